package inbox

import "time"

// Why a breaker is open.
const (
	OpenTechnical    = "TECHNICAL"
	OpenThrottled    = "THROTTLED"
	OpenUnauthorised = "UNAUTHORISED"
)

// EngineState is what all relays of a consumer know about one engine. The breaker is closed while OpenUntil is zero.
// Open, it lets nothing pass before OpenUntil; from then on one probe at a time among all relays.
type EngineState struct {
	Name                string
	PausedAt            time.Time // by an operator
	Failures            int64     // in a row, each of another message than the one before
	LastFailedInboxID   string
	OpenReason          string
	OpenUntil           time.Time
	Openings            int64 // in a row
	ProbeOwner          string
	ProbeUntil          time.Time
	LastAnsweredAt      time.Time // when it last gave any message a definite answer
	LastAnsweredInboxID string
	LastErrorMessage    string
}

// BreakerPolicy says when an engine's breaker opens and how soon it is probed.
type BreakerPolicy struct {
	Failures int64         // in a row, of different messages
	Min, Max time.Duration // between probes
}

// EngineEvent is what one call says about its engine.
type EngineEvent struct {
	Kind       EngineEventKind
	InboxID    string
	Owner      string        // of the claim the call belongs to
	RetryAfter time.Duration // what it asks for; the caller bounds it
	Error      string
}

// EngineEventKind classifies a call by what it says about the engine.
type EngineEventKind int

const (
	// EngineSilent: it was not asked. A probe that was not sent leaves its place to the next.
	EngineSilent EngineEventKind = iota
	// EngineAnswered: a definite answer, whatever it was.
	EngineAnswered
	// EngineFailed: no definite answer.
	EngineFailed
	// EngineThrottled: it wants less.
	EngineThrottled
	// EngineRefusedUs: it does not accept our credentials.
	EngineRefusedUs
)

// Probing reports whether a probe holds the half-open breaker at now.
func (e *EngineState) Probing(now time.Time) bool { return e.ProbeUntil.After(now) }

// Closed reports whether calls may pass freely.
func (e *EngineState) Closed() bool { return e.OpenUntil.IsZero() && e.PausedAt.IsZero() }

// Apply returns the state after the event, and whether it changed. Failures of calls that were under way when the breaker
// opened do not push it further: only the probe's own outcome does, or one seen after the waiting time. A time that the
// engine itself asks for is kept in any case.
func (e EngineState) Apply(ev EngineEvent, now time.Time, policy BreakerPolicy) (EngineState, bool) {
	isProbe := ev.Owner != "" && ev.Owner == e.ProbeOwner
	switch ev.Kind {
	case EngineSilent:
		if isProbe {
			e.ProbeOwner, e.ProbeUntil = "", time.Time{}
		}
		return e, isProbe
	case EngineAnswered:
		e.LastAnsweredAt, e.LastAnsweredInboxID = now, ev.InboxID
		e.Failures, e.LastFailedInboxID = 0, ""
		e.OpenReason, e.OpenUntil, e.Openings, e.ProbeOwner, e.ProbeUntil = "", time.Time{}, 0, "", time.Time{}
		return e, true
	case EngineFailed, EngineThrottled:
		e.LastErrorMessage = ev.Error
		if ev.InboxID != e.LastFailedInboxID {
			e.Failures, e.LastFailedInboxID = e.Failures+1, ev.InboxID
		}
		var reason string
		var wait time.Duration
		open := !e.OpenUntil.IsZero()
		underWay := open && !isProbe && e.OpenUntil.After(now)
		if !underWay && (open || e.Failures >= policy.Failures) {
			reason, wait = OpenTechnical, Backoff(policy.Min, policy.Max, e.Openings+1)
		}
		if ev.Kind == EngineThrottled && ev.RetryAfter > wait && now.Add(ev.RetryAfter).After(e.OpenUntil) {
			reason, wait = OpenThrottled, ev.RetryAfter
		}
		switch {
		case reason == "":
		case underWay: // the engine's own word counts, but not as one more opening
			e.OpenReason, e.OpenUntil = reason, now.Add(wait)
		default:
			e.open(reason, wait, now)
		}
		return e, true
	case EngineRefusedUs:
		e.LastErrorMessage = ev.Error
		if e.OpenUntil.IsZero() || isProbe || !e.OpenUntil.After(now) || e.OpenReason != OpenUnauthorised {
			e.open(OpenUnauthorised, max(Backoff(policy.Min, policy.Max, e.Openings+1), e.OpenUntil.Sub(now)), now)
		}
		return e, true
	}
	return e, false
}

func (e *EngineState) open(reason string, wait time.Duration, now time.Time) {
	e.OpenReason, e.OpenUntil = reason, now.Add(wait)
	e.Openings++
	e.ProbeOwner, e.ProbeUntil = "", time.Time{}
}

// PoisonPolicy says when a message that fails while its engine answers others is given up.
type PoisonPolicy struct {
	Failures    int64         // of one message
	Over        time.Duration // since its first failure
	LostWorkers int64         // workers in a row that did not survive it
}

// CountFailure adds a technical failure at now to m and reports whether m is poisoned. Only failures during which the
// engine answered somebody else count against the message: an outage poisons nothing.
func CountFailure(m *Message, engine EngineState, policy PoisonPolicy, now time.Time) bool {
	since := m.LastFailedAt
	if since.IsZero() {
		since = m.FirstFailedAt
	}
	answersOthers := !since.IsZero() && engine.LastAnsweredAt.After(since) && engine.LastAnsweredInboxID != m.ID
	m.TechnicalFailures++
	if !answersOthers && m.TechnicalFailures > 1 {
		m.OutageFailures++
	}
	if m.FirstFailedAt.IsZero() {
		m.FirstFailedAt = now
	}
	m.LastFailedAt = now
	return answersOthers && m.TechnicalFailures-m.OutageFailures >= policy.Failures && now.Sub(m.FirstFailedAt) >= policy.Over
}
