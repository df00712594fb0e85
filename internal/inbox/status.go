package inbox

// Status is where a message stands. The six values are also a CHECK constraint of the Messages table.
type Status string

const (
	Received   Status = "RECEIVED"   // stored, never attempted
	Processing Status = "PROCESSING" // attempt recorded, lease held
	Retrying   Status = "RETRYING"   // waits for its next attempt
	Processed  Status = "PROCESSED"  // correlated
	Parked     Status = "PARKED"     // needs a person; Reason says why
	Discarded  Status = "DISCARDED"  // closed by a person, or by an engine's explicit answer
)

// Statuses lists every status in the order of a message's life.
func Statuses() []Status {
	return []Status{Received, Processing, Retrying, Processed, Parked, Discarded}
}

// Open reports whether the relay still has work to do on the message.
func (s Status) Open() bool { return s == Received || s == Processing || s == Retrying }

// Finished reports whether the message is closed for good, so that clean-up may take it one day.
func (s Status) Finished() bool { return s == Processed || s == Discarded }

// Reason says why a message is parked.
type Reason string

const (
	NoWaitingInstance Reason = "NO_WAITING_INSTANCE" // nobody waited for it while its patience lasted
	AlreadyThrough    Reason = "ALREADY_THROUGH"     // the process is past the point that waits for it
	Ambiguous         Reason = "AMBIGUOUS"           // more than one instance waits for it
	Vanished          Reason = "VANISHED"            // the waiting instance went away between look-up and delivery
	Rejected          Reason = "REJECTED"            // the engine refuses the message itself
	Contract          Reason = "CONTRACT"            // the message does not fit its route
	NoRoute           Reason = "NO_ROUTE"            // no route matches
	Unreadable        Reason = "UNREADABLE"          // data or attributes cannot be decoded
	DedupeConflict    Reason = "DEDUPE_CONFLICT"     // other content under an identity that is taken
	DeadLettered      Reason = "DEAD_LETTERED"       // arrived through the dead-letter topic
	ClaimMissing      Reason = "CLAIM_MISSING"       // the claim-check object is not there
	ClaimChanged      Reason = "CLAIM_CHANGED"       // the claim-check object is not the one that was referred to
	PayloadTooLarge   Reason = "PAYLOAD_TOO_LARGE"   // too large for its engine
	Poisoned          Reason = "POISONED"            // fails, or kills its worker, while others pass
	PossiblyDelivered Reason = "POSSIBLY_DELIVERED"  // sent once with an unknown outcome that nobody can look up
)

// Reasons lists every reason.
func Reasons() []Reason {
	return []Reason{
		NoWaitingInstance, AlreadyThrough, Ambiguous, Vanished, Rejected, Contract, NoRoute, Unreadable, DedupeConflict,
		DeadLettered, ClaimMissing, ClaimChanged, PayloadTooLarge, Poisoned, PossiblyDelivered,
	}
}
