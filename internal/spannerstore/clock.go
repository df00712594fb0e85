package spannerstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// readingKept is how long a commit says what the time is: no local clock drifts by a noticeable part of it.
const readingKept = time.Minute

// lastCommit is what this process's latest commit says of the time. It is safe for concurrent use.
type lastCommit struct {
	mu      sync.Mutex
	reading inbox.Reading
}

func (l *lastCommit) note(r inbox.Reading) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.At.After(l.reading.At) {
		l.reading = r
	}
}

func (l *lastCommit) get(local time.Time) inbox.Reading {
	l.mu.Lock()
	defer l.mu.Unlock()
	if local.Sub(l.reading.Received) > readingKept {
		return inbox.Reading{}
	}
	return l.reading
}

// readTime completes a clock by the timestamp of txn's read, which has been answered. Where the timestamp seems to lie
// before the wall clock, and no commit of the last minute tells more, one is made: one of the two is wrong, and only the
// database can say which. So a wall clock that is wrong costs a commit a minute, and decides nothing.
func (s *Store) readTime(ctx context.Context, consumer string, clock *inbox.Clock, txn *spanner.ReadOnlyTransaction) error {
	var err error
	if clock.Read, err = txn.Timestamp(); err != nil {
		return fmt.Errorf("read the database's time: %w", err)
	}
	clock.Received = s.now()
	clock.Commit = s.committed.get(clock.Received)
	if clock.Lag() <= inbox.LagTolerated || !clock.Commit.At.IsZero() {
		return nil
	}
	reading := inbox.Reading{Sent: s.now()}
	reading.At, err = s.client.Apply(ctx, []*spanner.Mutation{spanner.InsertOrUpdate("Relays", []string{"Consumer"}, []any{consumer})},
		spanner.ApplyAtLeastOnce(), spanner.TransactionTag("inbox-clock"))
	if err != nil {
		return fmt.Errorf("take the time by a commit: %w", err)
	}
	reading.Received = s.now()
	s.committed.note(reading)
	clock.Commit = reading
	return nil
}
