package spannerstore

import (
	"context"
	"fmt"

	"cloud.google.com/go/spanner"
)

// Ready says whether the database answers, has our tables and lets us read: one read of one row at most.
func (s *Store) Ready(ctx context.Context, consumer string) error {
	rows := s.client.Single().ReadWithOptions(ctx, "Relays", spanner.Key{consumer}, []string{"Consumer"}, &spanner.ReadOptions{RequestTag: "inbox-ready"})
	if err := rows.Do(func(*spanner.Row) error { return nil }); err != nil {
		return fmt.Errorf("read the database: %w", err)
	}
	return nil
}
