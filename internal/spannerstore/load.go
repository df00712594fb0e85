package spannerstore

import (
	"context"
	"fmt"

	"cloud.google.com/go/spanner"
	"golang.org/x/sync/errgroup"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

var contentColumns = []string{
	"InboxId", "Scope", "DedupeKey", "Subscription", "MessageId", "OrderingKey", "PublishedAt", "MessageType", "MessageVersion",
	"TenantId", "AggregateType", "CorrelationId", "CausationId", "TraceParent", "Attributes", "PayloadSha256", "PayloadBytes",
	"PayloadLocation",
}

// Load reads what messages say: their descriptive columns and payloads, by key, in two reads that run side by side. A
// message that is gone is missing from the answer. The caller bounds the payload bytes that one call asks for.
func (s *Store) Load(ctx context.Context, ids []string) (map[string]inbox.Content, error) {
	contents := make(map[string]inbox.Content, len(ids))
	type payload struct {
		body        []byte
		contentType string
	}
	payloads := make(map[string]payload, len(ids))
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		rows := s.client.Single().ReadWithOptions(ctx, "Messages", keySet(ids), contentColumns, &spanner.ReadOptions{RequestTag: "inbox-load"})
		return rows.Do(func(row *spanner.Row) error {
			var c inbox.Content
			var subscription, messageID, ordering, typ, version, tenant, aggregate, correlation, causation, trace, location spanner.NullString
			var published spanner.NullTime
			var attributes spanner.NullJSON
			if err := row.Columns(&c.ID, &c.Scope, &c.DedupeKey, &subscription, &messageID, &ordering, &published, &typ, &version,
				&tenant, &aggregate, &correlation, &causation, &trace, &attributes, &c.PayloadSHA256, &c.PayloadBytes, &location); err != nil {
				return err
			}
			c.Subscription, c.MessageID, c.OrderingKey, c.PublishedAt = subscription.StringVal, messageID.StringVal, ordering.StringVal, published.Time
			c.Type, c.Version, c.TenantID, c.AggregateType = typ.StringVal, version.StringVal, tenant.StringVal, aggregate.StringVal
			c.CorrelationID, c.CausationID, c.TraceParent = correlation.StringVal, causation.StringVal, trace.StringVal
			c.Attributes, c.PayloadLocation = textMap(attributes), location.StringVal
			contents[c.ID] = c
			return nil
		})
	})
	group.Go(func() error {
		rows := s.client.Single().ReadWithOptions(ctx, "Payloads", keySet(ids), []string{"InboxId", "Body", "ContentType"}, &spanner.ReadOptions{RequestTag: "inbox-load"})
		return rows.Do(func(row *spanner.Row) error {
			var id string
			var p payload
			var contentType spanner.NullString
			if err := row.Columns(&id, &p.body, &contentType); err != nil {
				return err
			}
			p.contentType = contentType.StringVal
			payloads[id] = p
			return nil
		})
	})
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("load %d messages: %w", len(ids), err)
	}
	for id, c := range contents {
		p, ok := payloads[id]
		c.Body, c.ContentType, c.HasBody = p.body, p.contentType, ok
		contents[id] = c
	}
	return contents, nil
}
