package spannerstore_test

import (
	"testing"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

func TestAChangeOfTheRetentionIsWrittenDownOnce(t *testing.T) {
	w := newWorld(t)
	const day = 24 * time.Hour
	remember := func(retention time.Duration) (inbox.Memory, int) {
		t.Helper()
		w.tap.Reset()
		if err := w.store.Remember(t.Context(), consumer, retention); err != nil {
			t.Fatal(err)
		}
		commits := w.tap.Count("Commit")
		memory, err := w.store.Memory(t.Context(), consumer)
		if err != nil {
			t.Fatal(err)
		}
		return memory, commits
	}
	if memory, err := w.store.Memory(t.Context(), consumer); err != nil || memory != (inbox.Memory{}) {
		t.Errorf("before the first run: %+v, %v", memory, err)
	}
	for i, want := range []struct {
		retention, shorter time.Duration
		commits            int
	}{{35*day + time.Millisecond, 0, 1}, {35*day + time.Millisecond, 0, 0}, {75 * day, 35 * day, 1}, {75 * day, 35 * day, 0}, {20 * day, 35 * day, 1}} {
		memory, commits := remember(want.retention)
		if memory.Retention != want.retention.Truncate(time.Second) || memory.Shorter != want.shorter || memory.ShorterUntil.IsZero() != (want.shorter == 0) || commits != want.commits {
			t.Errorf("run %d: %+v in %d commits, want %+v", i, memory, commits, want)
		}
	}
}
