package spannerstore

import (
	"context"
	"fmt"

	"cloud.google.com/go/spanner"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// findSQL looks a push up under every name that it can have: by primary key, and through MessagesByTransport. The count
// of its recorded redeliveries is a read of the child rows' prefix, at most inbox.MaxDeliveries of them.
const findSQL = `
SELECT m.InboxId, m.ContentSha256, m.TransportKey, m.MessageId IS NULL, m.ClaimUri, m.Attributes,
       (SELECT COUNT(*) FROM Deliveries AS d WHERE d.InboxId = m.InboxId) AS Deliveries
FROM Messages AS m WHERE m.InboxId IN UNNEST(@ids)
UNION ALL
SELECT m.InboxId, m.ContentSha256, m.TransportKey, m.MessageId IS NULL, m.ClaimUri, m.Attributes,
       (SELECT COUNT(*) FROM Deliveries AS d WHERE d.InboxId = m.InboxId) AS Deliveries
FROM Messages@{FORCE_INDEX=MessagesByTransport} AS m
WHERE m.TransportKey IS NOT NULL AND m.TransportKey = @transport AND m.InboxId NOT IN UNNEST(@ids)`

// Find returns the rows that own one of the ids or the transport key, in one round trip.
func (s *Store) Find(ctx context.Context, ids []string, transportKey string) ([]inbox.Known, error) {
	rows := s.client.Single().QueryWithOptions(ctx, spanner.Statement{
		SQL: findSQL, Params: map[string]any{"ids": ids, "transport": transportKey},
	}, spanner.QueryOptions{RequestTag: "inbox-find"})
	var known []inbox.Known
	err := rows.Do(func(row *spanner.Row) error {
		var k inbox.Known
		var transport, uri spanner.NullString
		var attributes spanner.NullJSON
		var withoutMessage bool
		if err := row.Columns(&k.ID, &k.ContentSHA256, &transport, &withoutMessage, &uri, &attributes, &k.Deliveries); err != nil {
			return err
		}
		k.TransportKey = transport.StringVal
		if withoutMessage { // no message made it: see Import
			// Not ClaimGeneration: its route need not name one, and the relay notes what it has found, which can be a later one.
			generation := inbox.AnnouncedGeneration(textMap(attributes))
			k.Imported = claim(uri, spanner.NullInt64{Int64: generation, Valid: true}, spanner.NullString{})
		}
		known = append(known, k)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("find the row of a repeated push: %w", err)
	}
	return known, nil
}

// AddRedelivery appends one delivery to a message that has its row. It is best effort: the commit may be repeated by the
// client and then count once too many.
func (s *Store) AddRedelivery(ctx context.Context, d inbox.Redelivery) error {
	attempt := spanner.NullInt64{Int64: d.Attempt, Valid: d.Attempt > 0}
	err := s.commitOnce(ctx, "inbox-redelivery", []*spanner.Mutation{spanner.Insert("Deliveries",
		[]string{"InboxId", "DeliveryId", "ReceivedAt", "MessageId", "DeliveryAttempt", "Subscription", "Revision"},
		[]any{d.InboxID, s.newID(), spanner.CommitTimestamp, nullString(d.MessageID), attempt, nullString(d.Subscription), nullString(d.Revision)},
	)})
	if err != nil {
		return fmt.Errorf("append a redelivery to message %s: %w", d.InboxID, err)
	}
	return nil
}
