package inbox

import "time"

// Verdict is the outcome of one delivery to a workflow engine. Package engine says what an adapter means by each of them;
// Attempt.Settle says what follows for the message.
type Verdict string

// The verdicts.
const (
	VerdictCorrelated     Verdict = "CORRELATED"
	VerdictDuplicate      Verdict = "DUPLICATE"
	VerdictHandedOver     Verdict = "HANDED_OVER"
	VerdictNotWaiting     Verdict = "NOT_WAITING"
	VerdictAlreadyThrough Verdict = "ALREADY_THROUGH"
	VerdictAmbiguous      Verdict = "AMBIGUOUS"
	VerdictVanished       Verdict = "VANISHED"
	VerdictRejected       Verdict = "REJECTED"
	VerdictRetryAfter     Verdict = "RETRY_AFTER"
	VerdictTechnical      Verdict = "TECHNICAL"
	VerdictThrottled      Verdict = "THROTTLED"
	VerdictUnauthorised   Verdict = "UNAUTHORISED"
	VerdictUnknown        Verdict = "UNKNOWN"
	VerdictDrop           Verdict = "DROP"
	VerdictNotStarted     Verdict = "NOT_STARTED"
)

// Answer is what an attempt has led to: a verdict and its evidence. Code, Detail and Reference are kept on the row.
type Answer struct {
	Verdict    Verdict
	Code       string // empty: the verdict stands for it
	Detail     string
	Reference  string
	RetryAfter time.Duration // zero: not said
	// NotAsked: no request of the attempt got as far as the engine, so that the answer says nothing about the engine.
	NotAsked bool
	// Reason is why the message is parked, for VerdictRejected; empty: REJECTED.
	Reason Reason
	// Missed is why the message is parked when patience ends, for VerdictNotWaiting; empty: NO_WAITING_INSTANCE.
	Missed Reason
}

// CodeClaimMissing is the code of an answer that waits for the object that a message refers to, and not for an instance.
const CodeClaimMissing = "CLAIM_MISSING"
