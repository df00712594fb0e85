package inbox

import "time"

// MayBeForgotten reports whether a lane deserves a look at its queue: none of the open rows given would wait for it as
// long as it stands, if it were the head. A lane that waits for its engine is deliberate.
func MayBeForgotten(lane Lane, open []*Message, now time.Time) bool {
	if !lane.WokenAt.IsZero() || lane.Leased(now) || lane.HeldBy != "" {
		return false
	}
	for _, m := range open {
		if laterThan(lane, RestOf(m, now)) {
			return true
		}
	}
	return false
}

// Forgotten reports whether the lane's time is later than its head allows, or missing.
func Forgotten(lane Lane, head *Message, now time.Time) bool {
	return MayBeForgotten(lane, []*Message{head}, now)
}

func laterThan(lane Lane, rest Rest) bool {
	switch {
	case rest.DueAt.IsZero():
		return false // blocked
	case lane.DueAt.IsZero():
		return true
	case lane.WhyNotDue != "" && lane.WhyNotDue != WhyHeadWaits:
		return false // it waits for its engine or its route, and has a time
	}
	return lane.DueAt.After(rest.DueAt)
}
