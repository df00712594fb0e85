package spannerstore

import (
	"context"
	"fmt"

	"cloud.google.com/go/spanner"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// Twin looks for the row in m's lane that m is to be parked beside (inbox.TwinAmong), in two reads.
func (s *Store) Twin(ctx context.Context, m *inbox.Message) (inbox.Twin, error) {
	return readTwin(ctx, s.single(readAs{tag: "inbox-twin"}), m)
}

func readTwin(ctx context.Context, txn reader, m *inbox.Message) (inbox.Twin, error) {
	first, last, ok := m.TwinWindow()
	if !ok {
		return inbox.Twin{}, nil
	}
	var places []spanner.KeySet
	for _, queue := range []int64{0, 1} {
		places = append(places, spanner.KeyRange{Kind: spanner.ClosedClosed,
			Start: spanner.Key{m.LaneID, queue, m.Sequence, first}, End: spanner.Key{m.LaneID, queue, m.Sequence, last}})
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
	var near []*inbox.Message
	rows = txn.ReadWithOptions(ctx, "Messages", keySet(ids), []string{"InboxId", "Subscription", "PublishedAt", "ContentSha256", "Status",
		"Reason", "Attempts", "NextAttemptAt", "ProcessingStartedAt", "ConflictsWith", "SourceAttempts"}, &spanner.ReadOptions{RequestTag: "inbox-twin"})
	err = rows.Do(func(row *spanner.Row) error {
		other := &inbox.Message{}
		var status string
		var subscription, reason, conflict spanner.NullString
		var published, next, started spanner.NullTime
		var source spanner.NullInt64
		if err := row.Columns(&other.ID, &subscription, &published, &other.ContentSHA256, &status, &reason, &other.Attempts, &next,
			&started, &conflict, &source); err != nil {
			return err
		}
		other.Subscription, other.PublishedAt = subscription.StringVal, published.Time
		other.Status, other.Reason, other.ConflictsWith = inbox.Status(status), inbox.Reason(reason.StringVal), conflict.StringVal
		other.NextAttemptAt, other.ProcessingStartedAt, other.FromDeadLetter = next.Time, started.Time, source.Valid
		near = append(near, other)
		return nil
	})
	if err != nil {
		return inbox.Twin{}, fmt.Errorf("look for a twin of message %s: %w", m.ID, err)
	}
	twin.ID = m.TwinAmong(near)
	return twin, nil
}
