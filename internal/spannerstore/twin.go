package spannerstore

import (
	"context"
	"fmt"

	"cloud.google.com/go/spanner"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// Twin looks for a row in m's lane that looks like m, whatever its status, in two reads.
func (s *Store) Twin(ctx context.Context, m *inbox.Message) (inbox.Twin, error) {
	return readTwin(ctx, singleReads{s.client}, m)
}

func readTwin(ctx context.Context, txn reader, m *inbox.Message) (inbox.Twin, error) {
	from, to, ok := m.TwinWindow()
	if !ok {
		return inbox.Twin{}, nil
	}
	var places []spanner.KeySet
	for _, queue := range []int64{0, 1} {
		places = append(places, spanner.KeyRange{Kind: spanner.ClosedOpen,
			Start: spanner.Key{m.LaneID, queue, m.Sequence, from}, End: spanner.Key{m.LaneID, queue, m.Sequence, to}})
	}
	var ids []string
	rows := txn.ReadWithOptions(ctx, "Messages", spanner.KeySets(places...), []string{"InboxId"},
		&spanner.ReadOptions{Index: "MessagesByLane", Limit: inbox.MaxTwins + 2, RequestTag: "inbox-twin"}) // one of them may be m
	err := rows.Do(func(row *spanner.Row) error {
		var id string
		err := row.Columns(&id)
		if id != m.ID {
			ids = append(ids, id)
		}
		return err
	})
	if err != nil {
		return inbox.Twin{}, fmt.Errorf("look for a twin of message %s: %w", m.ID, err)
	}
	if len(ids) == 0 {
		return inbox.Twin{}, nil
	}
	twin := inbox.Twin{Unsure: len(ids) > inbox.MaxTwins}
	rows = txn.ReadWithOptions(ctx, "Messages", keySet(ids), []string{"InboxId", "Subscription", "PublishedAt", "ContentSha256"},
		&spanner.ReadOptions{RequestTag: "inbox-twin"})
	err = rows.Do(func(row *spanner.Row) error {
		var other inbox.Message
		var subscription spanner.NullString
		var published spanner.NullTime
		if err := row.Columns(&other.ID, &subscription, &published, &other.ContentSHA256); err != nil {
			return err
		}
		other.Subscription, other.PublishedAt = subscription.StringVal, published.Time
		if twin.ID == "" && m.IsTwin(&other) {
			twin.ID = other.ID
		}
		return nil
	})
	if err != nil {
		return inbox.Twin{}, fmt.Errorf("look for a twin of message %s: %w", m.ID, err)
	}
	return twin, nil
}
