package spannerstore

import (
	"context"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// Remember writes down the retention by which the caller keeps what finishes from now on, where another one is stored: one
// read, and one single-use commit after a change. Of two callers that change it at once one is written down, and the other
// one with the next call.
func (s *Store) Remember(ctx context.Context, consumer string, retention time.Duration) error {
	known, now, err := s.readMemory(ctx, consumer)
	if err != nil {
		return err
	}
	memory := known.With(retention.Truncate(time.Second), now)
	if memory == known {
		return nil
	}
	err = s.commitOnce(ctx, remembers.tag, []*spanner.Mutation{spanner.InsertOrUpdate("Relays",
		[]string{"Consumer", "RetentionSeconds", "ShorterRetentionSeconds", "ShorterRetentionUntil"},
		[]any{consumer, int64(memory.Retention / time.Second), nullInt(int64(memory.Shorter / time.Second)), nullTime(memory.ShorterUntil)})})
	if err != nil {
		return fmt.Errorf("write down the retention: %w", err)
	}
	return nil
}

// Memory is how far back the inbox of a consumer remembers. Before the first run of a relay nothing is known.
func (s *Store) Memory(ctx context.Context, consumer string) (inbox.Memory, error) {
	memory, _, err := s.readMemory(ctx, consumer)
	return memory, err
}

// remembers is by what these requests are known.
var remembers = readAs{tag: "inbox-memory"}

func (s *Store) readMemory(ctx context.Context, consumer string) (inbox.Memory, time.Time, error) {
	txn := s.client.Single()
	var retention, shorter spanner.NullInt64
	var until spanner.NullTime
	row, err := txn.ReadRowWithOptions(ctx, "Relays", spanner.Key{consumer},
		[]string{"RetentionSeconds", "ShorterRetentionSeconds", "ShorterRetentionUntil"}, remembers.options(nil))
	if err == nil {
		err = row.Columns(&retention, &shorter, &until)
	}
	if err != nil && spanner.ErrCode(err) != codes.NotFound {
		return inbox.Memory{}, time.Time{}, fmt.Errorf("read which retention is in force: %w", err)
	}
	now, err := txn.Timestamp()
	if err != nil {
		return inbox.Memory{}, time.Time{}, fmt.Errorf("read the database's time: %w", err)
	}
	return inbox.Memory{Retention: time.Duration(retention.Int64) * time.Second, Shorter: time.Duration(shorter.Int64) * time.Second,
		ShorterUntil: until.Time}, now, nil
}
