package spannerstore

import (
	"context"
	"fmt"

	"cloud.google.com/go/spanner"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

var engineColumns = []string{
	"Engine", "PausedAt", "Failures", "LastFailedInboxId", "OpenReason", "OpenUntil", "Openings", "ProbeOwner", "ProbeUntil",
	"LastAnsweredAt", "LastAnsweredInboxId", "LastErrorMessage",
}

// readEngines reads what the relays know of all engines of a consumer.
func readEngines(ctx context.Context, txn reader, consumer string) (map[string]inbox.EngineState, error) {
	engines := map[string]inbox.EngineState{}
	rows := txn.ReadWithOptions(ctx, "Engines", spanner.Key{consumer}.AsPrefix(), engineColumns, nil)
	err := rows.Do(func(row *spanner.Row) error {
		var e inbox.EngineState
		var lastFailed, reason, probe, lastAnswered, message spanner.NullString
		var paused, until, probeUntil, answered spanner.NullTime
		if err := row.Columns(&e.Name, &paused, &e.Failures, &lastFailed, &reason, &until, &e.Openings, &probe, &probeUntil,
			&answered, &lastAnswered, &message); err != nil {
			return err
		}
		e.LastFailedInboxID, e.OpenReason, e.ProbeOwner = lastFailed.StringVal, reason.StringVal, probe.StringVal
		e.LastAnsweredInboxID, e.LastErrorMessage = lastAnswered.StringVal, message.StringVal
		e.PausedAt, e.OpenUntil, e.ProbeUntil, e.LastAnsweredAt = paused.Time, until.Time, probeUntil.Time, answered.Time
		engines[e.Name] = e
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the state of engines: %w", err)
	}
	return engines, nil
}

// writeEngine writes the breaker. The pause is an operator's and is left alone.
func writeEngine(consumer string, e inbox.EngineState) *spanner.Mutation {
	return spanner.InsertOrUpdate("Engines",
		[]string{"Consumer", "Engine", "Failures", "LastFailedInboxId", "OpenReason", "OpenUntil", "Openings", "ProbeOwner",
			"ProbeUntil", "LastAnsweredAt", "LastAnsweredInboxId", "LastErrorMessage"},
		[]any{consumer, e.Name, e.Failures, nullString(e.LastFailedInboxID), nullString(e.OpenReason), nullTime(e.OpenUntil),
			e.Openings, nullString(e.ProbeOwner), nullTime(e.ProbeUntil), nullTime(e.LastAnsweredAt),
			nullString(e.LastAnsweredInboxID), nullString(inbox.Text(e.LastErrorMessage, inbox.MaxErrorMessage))})
}
