package relayer

import (
	"math/rand/v2"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// RoutePolicy is what the relay must know of a route to settle its messages.
type RoutePolicy struct {
	Engine   string
	Patience time.Duration
	RetryMin time.Duration
	RetryMax time.Duration
	Start    bool // its messages start instances
	Claim    *ClaimPolicy
}

// ClaimPolicy is what the relay does with an object that a message refers to. Nil: its messages refer to none.
type ClaimPolicy struct {
	Read     bool
	MaxBytes int64 // that are read
}

// attempt is one claimed message on its way through a verdict.
type attempt struct {
	message *inbox.Message // as claimed; not changed
	engine  string
	policy  RoutePolicy
	timeout time.Duration // of the engine
	owner   string
	started time.Time // of the call, as the database counts
	now     time.Time // after it
}

// settle turns a verdict into the message's next state: the transition table of package inbox. Nothing here looks at the
// database; what other messages' answers decide (poison) is decided when the result is stored.
func (a attempt) settle(res engine.Result, rng *rand.Rand) inbox.Result {
	m := *a.message
	r := inbox.Result{Message: &m, Number: m.Attempts, Engine: a.engine, Verdict: string(res.Verdict), StartedAt: a.started, EndedAt: a.now}
	r.Event = inbox.EngineEvent{Kind: eventKind(res), InboxID: m.ID, Owner: a.owner, RetryAfter: a.atMost(res.RetryAfter),
		Error: res.Code + " " + res.Detail, LastFailedAt: m.LastFailedAt}
	if res.Reference != "" {
		m.EngineReference = res.Reference
	}
	if r.Event.Kind == inbox.EngineAnswered {
		m.LostWorkers = 0
	}
	if res.Verdict != engine.NotWaiting {
		m.LastNotWaitingAt = time.Time{}
	}
	backoff := func(failures int64) time.Duration {
		return inbox.Jitter(rng, inbox.Backoff(a.policy.RetryMin, a.policy.RetryMax, failures))
	}
	switch res.Verdict {
	case engine.Correlated, engine.Duplicate, engine.HandedOver:
		m.Status, m.Reason, m.OutcomeUnknown = inbox.Processed, "", false
		m.HandedOver = res.Verdict == engine.HandedOver
		m.LastErrorCode, m.LastErrorMessage = "", ""
		return r
	case engine.Drop:
		m.Status, m.OutcomeUnknown = inbox.Discarded, false
	case engine.NotWaiting:
		a.notWaiting(&m, res, backoff)
	case engine.AlreadyThrough:
		a.park(&m, inbox.AlreadyThrough)
	case engine.Ambiguous:
		a.park(&m, inbox.Ambiguous)
	case engine.Vanished:
		a.park(&m, inbox.Vanished)
	case engine.Rejected:
		a.park(&m, inbox.Rejected)
	case engine.RetryAfter:
		wait := a.atMost(max(res.RetryAfter, a.policy.RetryMin))
		a.retry(&m, wait)
	case engine.Unauthorised:
		// Whether it is about us or about this message is decided when it is stored: others may be accepted.
		r.Technical, r.Refused = true, true
		a.retry(&m, backoff(m.TechnicalFailures+1))
	case engine.NotStarted:
		r.Verdict = ""
		m.LastNotWaitingAt = a.message.LastNotWaitingAt
		m.GiveBack()
		return r
	case engine.Unknown:
		r.Technical = true
		m.OutcomeUnknown = true
		wait := max(backoff(m.TechnicalFailures+1), a.atMost(res.RetryAfter))
		if probeAt := a.started.Add(2 * a.timeout).Sub(a.now); probeAt > wait {
			wait = probeAt
		}
		a.retry(&m, wait)
	default: // Technical, Throttled
		r.Technical = true
		a.retry(&m, max(backoff(m.TechnicalFailures+1), a.atMost(res.RetryAfter)))
	}
	m.LastErrorCode, m.LastErrorMessage = code(res), res.Detail
	r.Attempt = &inbox.AttemptRecord{
		Number: r.Number, StartedAt: a.started, EndedAt: a.now, Verdict: string(res.Verdict), ErrorCode: m.LastErrorCode,
		ErrorMessage: res.Detail, Engine: a.engine, Owner: a.owner,
	}
	return r
}

// atMost bounds how long an engine may ask us to wait.
func (a attempt) atMost(wait time.Duration) time.Duration {
	return min(wait, max(a.policy.RetryMax, time.Hour))
}

// notWaiting counts patience: the time between consecutive NotWaiting answers, so that outages do not use it.
func (a attempt) notWaiting(m *inbox.Message, res engine.Result, backoff func(int64) time.Duration) {
	m.PatienceUsed, m.PatienceFor = a.patienceUsed(res.Code), waitsFor(res.Code)
	m.LastNotWaitingAt = a.now
	left := a.policy.Patience - m.PatienceUsed
	if left <= 0 {
		a.park(m, inbox.NoWaitingInstance)
		return
	}
	// The last try comes when patience ends, not a whole backoff later.
	a.retry(m, max(min(backoff(m.Attempts), left), min(a.policy.RetryMin, left), 10*time.Millisecond))
}

// patienceEnds reports whether a NotWaiting answer with this code would be the last.
func (a attempt) patienceEnds(code string) bool { return a.patienceUsed(code) >= a.policy.Patience }

// waitsFor says what a NotWaiting answer with this code waits for.
func waitsFor(code string) string {
	if code == codeMissing {
		return inbox.ForObject
	}
	return ""
}

// patienceUsed is the patience that is used with a NotWaiting answer now. Waiting for an object and waiting for an instance
// are two waits: what the first has used is not missing for the second.
func (a attempt) patienceUsed(code string) time.Duration {
	used := a.message.PatienceUsed
	if a.message.PatienceFor != waitsFor(code) {
		return 0
	}
	// No more than the wait that was planned: whatever kept the message from being asked then, an outage of the engine or of
	// ours, a backlog, or one in front of it, is not its process's to answer for. There is no plan where a person has made it
	// due.
	until := a.now
	if planned := a.message.PlannedAt; !planned.IsZero() && planned.Before(until) {
		until = planned
	}
	if last := a.message.LastNotWaitingAt; !last.IsZero() && until.After(last) {
		used += until.Sub(last)
	}
	return used
}

// park parks m. While an earlier delivery may have had its effect, "nobody waits" and "already through" may be that
// effect: then nobody but a person can tell.
func (a attempt) park(m *inbox.Message, reason inbox.Reason) {
	if m.OutcomeUnknown && (reason == inbox.NoWaitingInstance || reason == inbox.AlreadyThrough) {
		reason = inbox.PossiblyDelivered
	}
	m.Status, m.Reason, m.NextAttemptAt = inbox.Parked, reason, time.Time{}
	a.failed(m)
}

func (a attempt) retry(m *inbox.Message, wait time.Duration) {
	m.Status, m.NextAttemptAt = inbox.Retrying, a.now.Add(wait)
}

func (a attempt) failed(m *inbox.Message) {
	if m.FirstFailedAt.IsZero() {
		m.FirstFailedAt = a.now
	}
	m.LastFailedAt = a.now
}

func code(res engine.Result) string {
	if res.Code != "" {
		return res.Code
	}
	return string(res.Verdict)
}

// eventKind says what a result says about the engine: nothing where the engine was not asked.
func eventKind(res engine.Result) inbox.EngineEventKind {
	if res.NotAsked {
		return inbox.EngineSilent
	}
	switch res.Verdict {
	case engine.NotStarted:
		return inbox.EngineSilent
	case engine.Technical, engine.Unknown:
		return inbox.EngineFailed
	case engine.Throttled:
		return inbox.EngineThrottled
	case engine.Unauthorised:
		return inbox.EngineRefusedUs
	}
	return inbox.EngineAnswered
}
