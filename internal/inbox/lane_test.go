package inbox_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// now is the database's time in these tests; latest is as late as it may be.
var (
	now    = time.Date(2026, 3, 2, 8, 15, 30, 0, time.UTC)
	latest = now.Add(20 * time.Millisecond)
)

const (
	minute = time.Minute
	hour   = time.Hour
	day    = 24 * time.Hour
)

func TestTheTrueTimeLiesBetweenEarliestAndLatest(t *testing.T) {
	local := time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC) // no instance's wall clock decides anything
	for _, read := range []time.Duration{0, 3 * time.Millisecond, 10 * time.Millisecond} {
		// The read takes 10 ms; its timestamp was taken somewhere within.
		truth := func(l time.Time) time.Time { return now.Add(l.Sub(local.Add(read))) }
		c := inbox.Clock{Read: now, Sent: local, Received: local.Add(10 * time.Millisecond)}
		for _, after := range []time.Duration{10 * time.Millisecond, time.Second, hour} {
			l := local.Add(after)
			if early, late := c.Earliest(l), c.Latest(l); early.After(truth(l)) || late.Before(truth(l)) {
				t.Errorf("after %v it is %v, outside of %v to %v", after, truth(l), early, late)
			}
			if got := c.Latest(l).Sub(c.Earliest(l)); got != 10*time.Millisecond {
				t.Errorf("the doubt is %v, want the 10ms that the read took", got)
			}
		}
	}
}

func TestALaneIsDueWhenWokenOrWhenItsTimeHasCome(t *testing.T) {
	tests := []struct {
		name        string
		lane        inbox.Lane
		due, leased bool
	}{
		{"no time", inbox.Lane{}, false, false},
		{"woken", inbox.Lane{WokenAt: now.Add(hour)}, true, false},
		{"due now", inbox.Lane{DueAt: now}, true, false},
		{"due in the past", inbox.Lane{DueAt: now.Add(-hour)}, true, false},
		{"due in a moment", inbox.Lane{DueAt: now.Add(1)}, false, false},
		{"leased until now", inbox.Lane{LeaseUntil: now, DueAt: now}, true, false},
		{"leased for a moment", inbox.Lane{LeaseUntil: now.Add(1), DueAt: now.Add(1)}, false, true},
		{"woken while leased", inbox.Lane{LeaseUntil: now.Add(hour), WokenAt: now}, true, true},
	}
	for _, tt := range tests {
		if got := tt.lane.Due(now); got != tt.due {
			t.Errorf("%s: due %v, want %v", tt.name, got, tt.due)
		}
		if got := tt.lane.Leased(now); got != tt.leased {
			t.Errorf("%s: leased %v, want %v", tt.name, got, tt.leased)
		}
	}
}

func TestALaneRestsAsItsHeadSays(t *testing.T) {
	tests := []struct {
		name string
		head *inbox.Message
		want inbox.Rest
	}{
		{"nothing left", nil, inbox.Rest{Empty: true}},
		{"a new head", &inbox.Message{Status: inbox.Received}, inbox.Rest{DueAt: now}},
		{"a new head that waits, as a dead letter does", &inbox.Message{Status: inbox.Received, NextAttemptAt: now.Add(hour)},
			inbox.Rest{DueAt: now.Add(hour), WhyNotDue: inbox.WhyHeadWaits}},
		{"a head under way", &inbox.Message{Status: inbox.Processing}, inbox.Rest{DueAt: now}},
		{"a head that waits", &inbox.Message{Status: inbox.Retrying, NextAttemptAt: now.Add(hour)},
			inbox.Rest{DueAt: now.Add(hour), WhyNotDue: inbox.WhyHeadWaits}},
		{"a head whose time has come", &inbox.Message{Status: inbox.Retrying, NextAttemptAt: now}, inbox.Rest{DueAt: now}},
		{"a head without a time", &inbox.Message{Status: inbox.Retrying}, inbox.Rest{DueAt: now}},
		{"a parked head", &inbox.Message{Status: inbox.Parked, NextAttemptAt: now.Add(hour)}, inbox.Rest{WhyNotDue: inbox.WhyBlocked}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, inbox.RestOf(tt.head, now)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAnEmptyLaneEndsWhenNothingCanComeLateAnyMore(t *testing.T) {
	tests := []struct {
		name string
		lane inbox.Lane
		want time.Time
	}{
		{"the lane of a key", inbox.Lane{Key: "WO-1"}, now.Add(75 * day)},
		{"a message's own lane", inbox.Lane{}, now},
		{"a held lane", inbox.Lane{Key: "WO-1", HeldBy: "ops"}, time.Time{}},
		{"a held own lane", inbox.Lane{HeldBy: "ops"}, time.Time{}},
	}
	for _, tt := range tests {
		if got := tt.lane.End(now, 75*day); !got.Equal(tt.want) {
			t.Errorf("%s ends at %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestAForgottenLaneIsFoundAndADeliberateOneIsLeftAlone(t *testing.T) {
	fresh := &inbox.Message{Status: inbox.Received}
	waits := &inbox.Message{Status: inbox.Retrying, NextAttemptAt: now.Add(hour)}
	blocks := &inbox.Message{Status: inbox.Parked, Blocks: true}
	tests := []struct {
		name string
		lane inbox.Lane
		head *inbox.Message
		want bool
	}{
		{"no time", inbox.Lane{}, fresh, true},
		{"no time, and the head waits", inbox.Lane{}, waits, true},
		{"no time, because the head blocks", inbox.Lane{WhyNotDue: inbox.WhyBlocked}, blocks, false},
		{"blocked, and the head has gone", inbox.Lane{WhyNotDue: inbox.WhyBlocked}, fresh, true},
		{"later than its head allows", inbox.Lane{DueAt: now.Add(2 * hour), WhyNotDue: inbox.WhyHeadWaits}, waits, true},
		{"later than its new head allows", inbox.Lane{DueAt: now.Add(hour), WhyNotDue: inbox.WhyHeadWaits}, fresh, true},
		{"later for no reason", inbox.Lane{DueAt: now.Add(hour)}, fresh, true},
		{"as its head says", inbox.Lane{DueAt: now.Add(hour), WhyNotDue: inbox.WhyHeadWaits}, waits, false},
		{"earlier than its head", inbox.Lane{DueAt: now.Add(minute), WhyNotDue: inbox.WhyHeadWaits}, waits, false},
		{"due, and not yet looked at", inbox.Lane{DueAt: now.Add(-hour)}, fresh, false},
		{"woken", inbox.Lane{WokenAt: now}, fresh, false},
		{"leased", inbox.Lane{LeaseUntil: now.Add(1)}, fresh, false},
		{"a lease that ran out", inbox.Lane{LeaseUntil: now, DueAt: now}, fresh, false},
		{"a lease that ran out without a time", inbox.Lane{LeaseUntil: now}, fresh, true},
		{"held", inbox.Lane{HeldBy: "ops"}, fresh, false},
		{"not held any more", inbox.Lane{WhyNotDue: inbox.WhyHeld}, fresh, true},
		{"waits for its engine", inbox.Lane{DueAt: now.Add(hour), WhyNotDue: inbox.WhyEnginePaused}, fresh, false},
		{"waits for its route", inbox.Lane{DueAt: now.Add(hour), WhyNotDue: inbox.WhyRouteUnknown}, fresh, false},
		{"waits for its engine, without a time", inbox.Lane{WhyNotDue: inbox.WhyEnginePaused}, fresh, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := inbox.Forgotten(tt.lane, tt.head, now); got != tt.want {
				t.Errorf("forgotten: %v, want %v", got, tt.want)
			}
			if got := inbox.MayBeForgotten(tt.lane, []*inbox.Message{blocks, tt.head}, now); got != tt.want {
				t.Errorf("with a message that would not miss it: deserves a look %v, want %v", got, tt.want)
			}
			if inbox.MayBeForgotten(tt.lane, nil, now) {
				t.Error("a lane without open messages is forgotten")
			}
		})
	}
}

// A database without traffic may answer a strong read with the timestamp of its last commit.
func TestACommitTellsTheTimeThatAnOldReadDoesNot(t *testing.T) {
	local := time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)
	truth := func(l time.Time) time.Time { return now.Add(l.Sub(local)) }
	c := inbox.Clock{Read: now.Add(-30 * time.Second), Sent: local, Received: local.Add(10 * time.Millisecond),
		Commit: inbox.Reading{At: truth(local.Add(-50 * time.Millisecond)), Sent: local.Add(-60 * time.Millisecond), Received: local.Add(-40 * time.Millisecond)}}
	for _, after := range []time.Duration{10 * time.Millisecond, time.Second, minute} {
		l := local.Add(after)
		if early, late := c.Earliest(l), c.Latest(l); early.After(truth(l)) || late.Before(truth(l)) || late.Sub(early) != 20*time.Millisecond {
			t.Errorf("after %v it is %v, and is said to be between %v and %v", after, truth(l), early, late)
		}
	}
}
