package spannerstore

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/apiv1/spannerpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

var insertColumns = []string{
	"InboxId", "Consumer", "Scope", "DedupeKey", "TransportKey", "Subscription", "MessageId", "OrderingKey", "PublishedAt",
	"ReceivedAt", "MessageType", "MessageVersion", "Route", "TenantId", "AggregateType", "CorrelationId", "CausationId",
	"TraceParent", "LaneId", "CorrelationKey", "Sequence", "OrderedAt", "Status", "Reason", "Blocks", "LastErrorMessage",
	"Attributes", "ContentSha256", "PayloadSha256", "PayloadBytes", "PayloadLocation", "ReplayOf", "ConflictsWith",
	"NextAttemptAt", "ClaimUri", "ClaimGeneration", "ClaimSha256", "SourceAttempts",
}

// Insert stores an arrival with its payload and wakes its lane, in one single-use commit: one round trip. Errors:
// inbox.ErrExists where the id or the transport key has a row (also after a lost answer to our own commit),
// inbox.ErrRefused where Spanner would never take these values; anything else is technical or of unknown outcome.
func (s *Store) Insert(ctx context.Context, a *inbox.Arrival) error {
	mutations, err := insertMutations(a)
	if err == nil {
		err = s.commitOnce(ctx, "inbox-receive", mutations)
	}
	if err != nil {
		return fmt.Errorf("insert message %s: %w", a.Message.ID, err)
	}
	return nil
}

var payloadColumns = []string{"InboxId", "Body", "ContentType"}

// messageRow is what insertColumns are filled with.
func messageRow(m *inbox.Message, receivedAt time.Time) []any {
	return []any{
		m.ID, m.Consumer, m.Scope, m.DedupeKey, nullString(m.TransportKey), nullString(m.Subscription),
		nullString(m.MessageID), nullString(m.OrderingKey), nullTime(m.PublishedAt),
		receivedAt, nullString(m.Type), nullString(m.Version), nullString(m.Route), nullString(m.TenantID),
		nullString(m.AggregateType), nullString(m.CorrelationID), nullString(m.CausationID), nullString(m.TraceParent),
		m.LaneID, nullString(m.Key), m.Sequence, m.OrderedAt, string(m.Status), nullString(string(m.Reason)), m.Blocks,
		nullString(m.LastErrorMessage), nullJSON(m.Attributes), m.ContentSHA256, m.PayloadSHA256, m.PayloadBytes,
		nullString(m.PayloadLocation), nullString(m.ReplayOf), nullString(m.ConflictsWith), nullTime(m.NextAttemptAt),
		claimURI(m.Claim), nullInt(m.Claim.Generation), nullString(m.Claim.SHA256),
		spanner.NullInt64{Int64: m.SourceAttempts, Valid: m.FromDeadLetter},
	}
}

// payloadRow is what payloadColumns are filled with.
func payloadRow(a *inbox.Arrival) []any {
	return []any{a.Message.ID, body(a.Body), nullString(a.ContentType)}
}

// insertMutations stores an arrival with its payload and wakes its lane. inbox.ErrRefused: a text does not fit its column.
func insertMutations(a *inbox.Arrival) ([]*spanner.Mutation, error) {
	row, payload := messageRow(&a.Message, spanner.CommitTimestamp), payloadRow(a)
	if err := errors.Join(checkTexts(insertColumns, row), checkTexts(payloadColumns, payload)); err != nil {
		return nil, err
	}
	mutations := []*spanner.Mutation{spanner.Insert("Messages", insertColumns, row), spanner.Insert("Payloads", payloadColumns, payload)}
	if a.WakesLane() {
		mutations = append(mutations, wakeLane(&a.Message))
	}
	return mutations, nil
}

// insertRow is a new row, with what a receipt knows of it.
func insertRow(m *inbox.Message, receivedAt time.Time) *spanner.Mutation {
	return spanner.Insert("Messages", insertColumns, messageRow(m, receivedAt))
}

// wakeLane makes sure that the lane of m exists, is not on its way out, and is looked at. A wake-up is always safe; the
// lease columns, DueAt and the last position are not touched.
func wakeLane(m *inbox.Message) *spanner.Mutation {
	return spanner.InsertOrUpdate("Lanes",
		[]string{"LaneId", "Consumer", "CorrelationKey", "Shard", "WokenAt", "PurgeAt"},
		[]any{m.LaneID, m.Consumer, nullString(m.LaneKey()), inbox.LaneShard(m.Route, m.TenantID, m.LaneID), spanner.CommitTimestamp, spanner.NullTime{}})
}

// body returns a BYTES value, never null: the column is NOT NULL. The client library's own encoding of a []byte takes
// two copies of it in base64, which for a payload of megabytes is a third of what a receive allocates.
func body(b []byte) spanner.GenericColumnValue {
	var text strings.Builder
	text.Grow(base64.StdEncoding.EncodedLen(len(b)))
	encoder := base64.NewEncoder(base64.StdEncoding, &text)
	_, _ = encoder.Write(b) // a Builder does not fail
	_ = encoder.Close()
	return spanner.GenericColumnValue{Type: &spannerpb.Type{Code: spannerpb.TypeCode_BYTES}, Value: structpb.NewStringValue(text.String())}
}
