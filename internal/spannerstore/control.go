package spannerstore

import (
	"context"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// controlColumns are what the relay decides by and writes back; what a message says is read after the claim.
var controlColumns = []string{
	"InboxId", "Consumer", "LaneId", "CorrelationKey", "Sequence", "OrderedAt", "ReceivedAt", "Route", "Blocks", "Status",
	"Reason", "Late", "HandedOver", "Attempts", "TechnicalFailures", "OutageFailures", "LostWorkers", "OutcomeUnknown",
	"PatienceUsed", "LastNotWaitingAt", "NextAttemptAt", "ProcessingStartedAt", "ProcessedAt", "FirstFailedAt", "LastFailedAt",
	"LastErrorCode", "LastErrorMessage", "EngineReference", "PayloadBytes", "PurgeAfter",
	"PayloadLocation", "ConflictsWith", "ClaimUri", "ClaimGeneration", "ClaimSha256", "SourceAttempts", "Subscription",
	"PublishedAt", "ContentSha256", "PatienceFor", "TenantId",
}

// readControl reads the control columns of messages by key.
func readControl(ctx context.Context, txn reader, ids []string) (map[string]*inbox.Message, error) {
	messages := make(map[string]*inbox.Message, len(ids))
	rows := txn.ReadWithOptions(ctx, "Messages", keySet(ids), controlColumns, nil)
	err := rows.Do(func(row *spanner.Row) error {
		m, err := scanControl(row)
		if err != nil {
			return err
		}
		messages[m.ID] = m
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read messages: %w", err)
	}
	return messages, nil
}

func scanControl(row *spanner.Row) (*inbox.Message, error) {
	m := &inbox.Message{}
	var key, route, reason, code, text, reference, location, conflict, uri, claimSHA256, subscription, patienceFor, tenant spanner.NullString
	var claimGeneration, sourceAttempts spanner.NullInt64
	var published, notWaiting, next, started, processed, firstFailed, lastFailed, purge spanner.NullTime
	var status string
	var patience int64
	if err := row.Columns(&m.ID, &m.Consumer, &m.LaneID, &key, &m.Sequence, &m.OrderedAt, &m.ReceivedAt, &route, &m.Blocks, &status,
		&reason, &m.Late, &m.HandedOver, &m.Attempts, &m.TechnicalFailures, &m.OutageFailures, &m.LostWorkers, &m.OutcomeUnknown,
		&patience, &notWaiting, &next, &started, &processed, &firstFailed, &lastFailed,
		&code, &text, &reference, &m.PayloadBytes, &purge, &location, &conflict, &uri, &claimGeneration, &claimSHA256,
		&sourceAttempts, &subscription, &published, &m.ContentSHA256, &patienceFor, &tenant); err != nil {
		return nil, err
	}
	m.Key, m.Route, m.Status, m.Reason = key.StringVal, route.StringVal, inbox.Status(status), inbox.Reason(reason.StringVal)
	m.PatienceUsed, m.PatienceFor = time.Duration(patience)*time.Millisecond, patienceFor.StringVal
	m.LastNotWaitingAt, m.NextAttemptAt, m.ProcessingStartedAt = notWaiting.Time, next.Time, started.Time
	m.ProcessedAt, m.FirstFailedAt, m.LastFailedAt, m.PurgeAfter = processed.Time, firstFailed.Time, lastFailed.Time, purge.Time
	m.LastErrorCode, m.LastErrorMessage, m.EngineReference = code.StringVal, text.StringVal, reference.StringVal
	m.PayloadLocation, m.ConflictsWith, m.Claim = location.StringVal, conflict.StringVal, claim(uri, claimGeneration, claimSHA256)
	m.FromDeadLetter, m.SourceAttempts = sourceAttempts.Valid, sourceAttempts.Int64
	m.Subscription, m.PublishedAt, m.TenantID = subscription.StringVal, published.Time, tenant.StringVal
	return m, nil
}

var stateColumns = []string{
	"InboxId", "Status", "Reason", "Late", "HandedOver", "Attempts", "TechnicalFailures", "OutageFailures", "LostWorkers",
	"OutcomeUnknown", "PatienceUsed", "LastNotWaitingAt", "NextAttemptAt", "ProcessingStartedAt", "ProcessedAt", "FirstFailedAt",
	"LastFailedAt", "LastErrorCode", "LastErrorMessage", "EngineReference", "PurgeAfter", "ConflictsWith",
	"PatienceFor",
}

// writeState writes the state of a message. Texts are made valid and cut here: a text that Spanner refuses would lose the
// result that it describes.
func writeState(m *inbox.Message) *spanner.Mutation {
	return spanner.Update("Messages", stateColumns, []any{
		m.ID, string(m.Status), nullString(string(m.Reason)), m.Late, m.HandedOver, m.Attempts, m.TechnicalFailures, m.OutageFailures,
		m.LostWorkers, m.OutcomeUnknown, m.PatienceUsed.Milliseconds(), nullTime(m.LastNotWaitingAt), nullTime(m.NextAttemptAt),
		nullTime(m.ProcessingStartedAt), nullTime(m.ProcessedAt), nullTime(m.FirstFailedAt), nullTime(m.LastFailedAt),
		nullString(inbox.Text(m.LastErrorCode, inbox.MaxErrorCode)), nullString(inbox.Text(m.LastErrorMessage, inbox.MaxErrorMessage)),
		nullString(inbox.Text(m.EngineReference, inbox.MaxEngineReference)), nullTime(m.PurgeAfter),
		nullString(m.ConflictsWith), nullString(m.PatienceFor),
	})
}

func (s *Store) writeAttempt(a inbox.SettledAttempt) *spanner.Mutation {
	return spanner.Insert("Attempts",
		[]string{"InboxId", "AttemptId", "Number", "StartedAt", "EndedAt", "Verdict", "Late", "ErrorCode", "ErrorMessage", "Engine", "Owner", "Revision"},
		[]any{a.InboxID, s.newID(), a.Number, nullTime(a.StartedAt), nullTime(a.EndedAt), a.Verdict, a.Late,
			nullString(inbox.Text(a.ErrorCode, inbox.MaxErrorCode)), nullString(inbox.Text(a.ErrorMessage, inbox.MaxErrorMessage)),
			nullString(a.Engine), nullString(a.Owner), nullString(a.Revision)})
}
