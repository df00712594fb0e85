package inbox

import (
	"cmp"
	"math/rand/v2"
	"time"
)

// RetryPolicy says how long a route's messages are tried again.
type RetryPolicy struct {
	Patience time.Duration // how long a message may be answered that nobody waits for it
	Min, Max time.Duration // of the pause between two attempts
}

// Attempt is one claimed message at its engine.
type Attempt struct {
	Message  *Message // as claimed; Settle does not change it
	Engine   string
	Owner    string
	Revision string
	Retry    RetryPolicy
	Timeout  time.Duration // of the engine
	Started  time.Time     // of the call, as the database counts
	Ended    time.Time
}

// Settle is the transition of a message out of PROCESSING: it turns an answer into the message's next state. Nothing here looks
// at the database; what the answers to other messages decide (poison) is decided when the result is stored. An unknown verdict
// is taken for VerdictTechnical. rng is not used where nothing was started.
func (a Attempt) Settle(ans Answer, rng *rand.Rand) Result {
	m := *a.Message
	r := Result{Message: &m, Number: m.Attempts, Engine: a.Engine, Verdict: string(ans.Verdict), StartedAt: a.Started, EndedAt: a.Ended}
	r.Event = EngineEvent{Kind: EngineAnswered, InboxID: m.ID, Owner: a.Owner, RetryAfter: a.atMost(ans.RetryAfter),
		Error: ans.Code + " " + ans.Detail, LastFailedAt: m.LastFailedAt}
	m.EngineReference = cmp.Or(ans.Reference, m.EngineReference)
	if ans.Verdict == VerdictNotStarted {
		r.Event.Kind, r.Verdict = EngineSilent, ""
		m.giveBack()
		return r
	}
	pause := func(failures int64) time.Duration { return Jitter(rng, Backoff(a.Retry.Min, a.Retry.Max, failures)) }
	technical := func(kind EngineEventKind, atLeast time.Duration) {
		r.Event.Kind, r.Technical = kind, true
		a.retry(&m, max(pause(m.TechnicalFailures+1), atLeast))
	}
	waitedSince := m.LastNotWaitingAt
	m.LastNotWaitingAt = time.Time{}
	switch ans.Verdict {
	case VerdictCorrelated, VerdictDuplicate, VerdictHandedOver:
		m.Status, m.Reason, m.OutcomeUnknown = Processed, "", false
		m.HandedOver = ans.Verdict == VerdictHandedOver
	case VerdictDrop:
		m.Status, m.OutcomeUnknown = Discarded, false
	case VerdictNotWaiting:
		m.LastNotWaitingAt = waitedSince
		a.notWaiting(&m, ans, pause)
	case VerdictAlreadyThrough:
		a.park(&m, AlreadyThrough)
	case VerdictAmbiguous:
		a.park(&m, Ambiguous)
	case VerdictVanished:
		a.park(&m, Vanished)
	case VerdictRejected:
		a.park(&m, cmp.Or(ans.Reason, Rejected))
	case VerdictRetryAfter:
		a.retry(&m, a.atMost(max(ans.RetryAfter, a.Retry.Min)))
	case VerdictUnauthorised:
		// Whether it is about us or about this message is decided when it is stored: others may be accepted.
		r.Refused = true
		technical(EngineRefusedUs, 0)
	case VerdictUnknown:
		m.OutcomeUnknown = true
		// A probe must not come before an open transaction of the engine has ended.
		technical(EngineFailed, max(a.atMost(ans.RetryAfter), a.Started.Add(2*a.Timeout).Sub(a.Ended)))
	case VerdictThrottled:
		technical(EngineThrottled, a.atMost(ans.RetryAfter))
	default: // VerdictTechnical
		technical(EngineFailed, a.atMost(ans.RetryAfter))
	}
	a.evidence(&r, ans)
	return r
}

// evidence says what an answer tells about the engine and about us, and keeps it.
func (a Attempt) evidence(r *Result, ans Answer) {
	m := r.Message
	switch {
	case ans.NotAsked:
		r.Event.Kind = EngineSilent
		if r.Technical { // ours, not the message's: it never counts towards poison
			r.Technical, r.Refused = false, false
			m.TechnicalFailures++
			m.OutageFailures++
		}
	case r.Event.Kind == EngineAnswered:
		m.LostWorkers = 0
	}
	if m.Status == Processed {
		m.LastErrorCode, m.LastErrorMessage = "", ""
		return
	}
	m.LastErrorCode, m.LastErrorMessage = cmp.Or(ans.Code, string(ans.Verdict)), ans.Detail
	r.Attempt = &AttemptRecord{
		Number: r.Number, StartedAt: a.Started, EndedAt: a.Ended, Verdict: r.Verdict, ErrorCode: m.LastErrorCode,
		ErrorMessage: ans.Detail, Engine: a.Engine, Owner: a.Owner, Revision: a.Revision,
	}
}

// atMost bounds how long an engine may ask us to wait.
func (a Attempt) atMost(wait time.Duration) time.Duration {
	return min(wait, max(a.Retry.Max, time.Hour))
}

// notWaiting counts patience: the time between consecutive answers that nobody waits, so that outages do not use it.
func (a Attempt) notWaiting(m *Message, ans Answer, pause func(int64) time.Duration) {
	m.PatienceUsed, m.PatienceFor = a.patienceUsed(ans.Code), waitsFor(ans.Code)
	m.LastNotWaitingAt = a.Ended
	left := a.Retry.Patience - m.PatienceUsed
	if left <= 0 {
		a.park(m, NoWaitingInstance)
		if m.Reason == NoWaitingInstance {
			m.Reason = cmp.Or(ans.Missed, NoWaitingInstance)
		}
		return
	}
	// The last try comes when patience ends, not a whole pause later.
	a.retry(m, max(min(pause(m.Attempts), left), min(a.Retry.Min, left), 10*time.Millisecond))
}

// PatienceEnds reports whether the answer that nobody waits, with this code, would be the last.
func (a Attempt) PatienceEnds(code string) bool { return a.patienceUsed(code) >= a.Retry.Patience }

// waitsFor says what the answer that nobody waits, with this code, waits for.
func waitsFor(code string) string {
	if code == CodeClaimMissing {
		return ForObject
	}
	return ""
}

// patienceUsed is the patience that is used if the answer is now that nobody waits. Waiting for an object and waiting for an
// instance are two waits: what the first has used is not missing for the second.
func (a Attempt) patienceUsed(code string) time.Duration {
	used := a.Message.PatienceUsed
	if a.Message.PatienceFor != waitsFor(code) {
		return 0
	}
	// No more than the wait that was planned: whatever kept the message from being asked then, an outage of the engine or of
	// ours, a backlog, or one in front of it, is not its process's to answer for. There is no plan where a person has made it
	// due.
	until := a.Ended
	if planned := a.Message.PlannedAt; !planned.IsZero() && planned.Before(until) {
		until = planned
	}
	if last := a.Message.LastNotWaitingAt; !last.IsZero() && until.After(last) {
		used += until.Sub(last)
	}
	return used
}

// park parks m. While an earlier delivery may have had its effect, "nobody waits" and "already through" may be that
// effect: then nobody but a person can tell.
func (a Attempt) park(m *Message, reason Reason) {
	if m.OutcomeUnknown && (reason == NoWaitingInstance || reason == AlreadyThrough) {
		reason = PossiblyDelivered
	}
	m.Status, m.Reason, m.NextAttemptAt = Parked, reason, time.Time{}
	if m.FirstFailedAt.IsZero() {
		m.FirstFailedAt = a.Ended
	}
	m.LastFailedAt = a.Ended
}

func (a Attempt) retry(m *Message, wait time.Duration) {
	m.Status, m.NextAttemptAt = Retrying, a.Ended.Add(wait)
}
