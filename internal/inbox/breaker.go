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
	Failures            int64     // in a row, refusals of our credentials included, each of another message than the one before
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
	// LastFailedAt is when the message failed before this call; zero: it has not.
	LastFailedAt time.Time
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
	// EngineThrottled: it wants less, or something in front of it does not want this message now.
	EngineThrottled
	// EngineRefusedUs: it does not accept our credentials, or something in front of it does not accept this message.
	EngineRefusedUs
)

// Probing reports whether a probe holds the half-open breaker at now.
func (e *EngineState) Probing(now time.Time) bool { return e.ProbeUntil.After(now) }

// Closed reports whether calls may pass freely.
func (e *EngineState) Closed() bool { return e.OpenUntil.IsZero() && e.PausedAt.IsZero() }

// AnswersOthers reports whether the engine has answered another message than this one after that time, and nothing has
// opened the breaker since. A failure of this message is then the message's own, whatever it sounds like.
func (e *EngineState) AnswersOthers(inboxID string, after time.Time) bool {
	return e.OpenUntil.IsZero() && e.LastAnsweredInboxID != inboxID && e.LastAnsweredAt.After(after)
}

// answersOthers is AnswersOthers of an event. A message that is refused for the first time has no failure to reckon from:
// then an answer is evidence for as long as the longest pause between probes lasts. A first call for less is believed: it is
// the engine that knows.
func (e *EngineState) answersOthers(ev EngineEvent, now time.Time, policy BreakerPolicy) bool {
	if ev.LastFailedAt.IsZero() {
		return ev.Kind == EngineRefusedUs && e.AnswersOthers(ev.InboxID, now.Add(-policy.Max))
	}
	return e.AnswersOthers(ev.InboxID, ev.LastFailedAt)
}

// Doubtful reports whether the breaker is open by the refusal of one message alone, and not of this one: another message
// need not wait to find out whether it is the engine that refuses.
func (e *EngineState) Doubtful(inboxID string) bool {
	return e.OpenReason == OpenUnauthorised && e.Failures == 1 && e.LastFailedInboxID != inboxID
}

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
		own := e.answersOthers(ev, now, policy)
		e.failed(ev)
		var reason string
		var wait time.Duration
		open := !e.OpenUntil.IsZero()
		underWay := open && !isProbe && e.OpenUntil.After(now)
		if !underWay && (open || e.Failures >= policy.Failures) {
			reason, wait = OpenTechnical, Backoff(policy.Min, policy.Max, e.Openings+1)
		}
		if ev.Kind == EngineThrottled && ev.RetryAfter > wait && now.Add(ev.RetryAfter).After(e.OpenUntil) && !own {
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
		own := e.answersOthers(ev, now, policy)
		e.failed(ev)
		if own && e.Failures < policy.Failures {
			return e, true
		}
		if e.OpenUntil.IsZero() || isProbe || !e.OpenUntil.After(now) || e.OpenReason != OpenUnauthorised {
			e.open(OpenUnauthorised, max(Backoff(policy.Min, policy.Max, e.Openings+1), e.OpenUntil.Sub(now)), now)
		}
		return e, true
	}
	return e, false
}

// failed counts a failure in a row.
func (e *EngineState) failed(ev EngineEvent) {
	e.LastErrorMessage = ev.Error
	if ev.InboxID != e.LastFailedInboxID {
		e.Failures, e.LastFailedInboxID = e.Failures+1, ev.InboxID
	}
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
