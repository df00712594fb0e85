package inbox_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// Whatever the retention was on each day: a message that may be deleted by now has finished before Since.
func TestTheMemoryNeverReachesBehindWhatIsDeleted(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(1, seed))
		const day = 24 * time.Hour
		begin := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
		now := begin
		var memory inbox.Memory
		type finished struct{ at, purge time.Time }
		var messages []finished
		for range 1 + rng.IntN(8) {
			retention := time.Duration(1+rng.IntN(60)) * day
			memory = memory.With(retention, now)
			for range 1 + rng.IntN(40) {
				messages = append(messages, finished{now, now.Add(retention)})
				now = now.Add(day)
			}
			configured := time.Duration(1+rng.IntN(60)) * day
			since := memory.Since(now, configured)
			for _, m := range messages {
				if !m.purge.After(now) && m.at.After(since) {
					t.Fatalf("seed %d: a message of %s is deleted, and the memory reaches back to %s", seed, m.at, since)
				}
			}
			if since.Before(now.Add(-configured)) {
				t.Fatalf("seed %d: the memory reaches back to %s, further than the %s that are configured", seed, since, configured)
			}
		}
	}
}

func TestTheMemoryGrowsWithTheRetentionFromThenOn(t *testing.T) {
	const day = 24 * time.Hour
	change := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	memory := inbox.Memory{}.With(35*day, change.Add(-100*day)).With(75*day, change)
	for after, reach := range map[time.Duration]time.Duration{0: 35 * day, 20 * day: 35 * day, 40 * day: 40 * day, 90 * day: 75 * day} {
		now := change.Add(after)
		if got := now.Sub(memory.Since(now, 75*day)); got != reach {
			t.Errorf("%s after the change the memory reaches back %s, want %s", after, got, reach)
		}
	}
	if memory.With(75*day, change.Add(day)) != memory {
		t.Error("a retention that stays changes the memory")
	}
}
