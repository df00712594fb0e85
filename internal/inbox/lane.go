package inbox

import "time"

// Why a lane has no time, or a later one than its head. Kept in WhyNotDue for the operator.
const (
	WhyHeadWaits     = "HEAD_WAITS"     // its head waits for its next attempt
	WhyBlocked       = "BLOCKED"        // a parked message of a blocking route closes it
	WhyHeld          = "HELD"           // held by an operator
	WhyEnginePaused  = "ENGINE_PAUSED"  // the engine's breaker is open, or it is paused
	WhyRouteUnknown  = "ROUTE_UNKNOWN"  // this instance's configuration lacks the route
	WhyEngineUnknown = "ENGINE_UNKNOWN" // this instance's configuration lacks the engine
)

// Lane is one unit of order: its messages are correlated one after another. A lane is due when WokenAt is set or DueAt
// has passed, and no lease holds it.
type Lane struct {
	ID         string
	Consumer   string
	Key        string
	Shard      int64     // where a scan looks for it; see LaneShard
	WokenAt    time.Time // written by receive, cleared by the claim that reads the queue
	DueAt      time.Time // written by the relay only
	LeaseOwner string
	LeaseToken int64 // grows with each claim: the fence
	LeaseUntil time.Time
	HeldBy     string
	WhyNotDue  string
	Last       Position // of the last finished message
	PurgeAt    time.Time
}

// Leased reports whether a lease holds the lane at now.
func (l *Lane) Leased(now time.Time) bool { return l.LeaseUntil.After(now) }

// Due reports whether the lane has something to look at, leases aside.
func (l *Lane) Due(now time.Time) bool {
	return !l.WokenAt.IsZero() || (!l.DueAt.IsZero() && !l.DueAt.After(now))
}

// Rest is what a lane without a lease waits for.
type Rest struct {
	DueAt     time.Time // zero: for nothing but a wake-up
	WhyNotDue string
	Empty     bool // nothing left to pass: the lane ends
}

// RestOf says when a lane is due whose queue begins with head. A nil head: the queue is empty.
func RestOf(head *Message, now time.Time) Rest {
	switch {
	case head == nil:
		return Rest{Empty: true}
	case head.Status == Parked:
		return Rest{WhyNotDue: WhyBlocked}
	case head.Status != Processing && head.NextAttemptAt.After(now):
		// It is tried again then, or a dead letter waits for its evidence. What is parked has no time: so one that was reopened
		// by hand has none either.
		return Rest{DueAt: head.NextAttemptAt, WhyNotDue: WhyHeadWaits}
	}
	return Rest{DueAt: now}
}

// End returns when an empty lane may be deleted: the position of its last message must outlive what can still come late,
// but the own lane of a message without a key has nothing to remember. A held lane stays.
func (l *Lane) End(now time.Time, retention time.Duration) time.Time {
	switch {
	case l.HeldBy != "":
		return time.Time{}
	case l.Key == "":
		return now
	}
	return now.Add(retention)
}
