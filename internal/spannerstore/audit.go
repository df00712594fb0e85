package spannerstore

import (
	"cloud.google.com/go/spanner"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

type auditEntry struct {
	Consumer, Actor, Action, Reason, InboxID, LaneID string
	Before, After                                    *inbox.Message
}

// audit writes down an operator action: who, when, why, before, after. It is part of the action's own transaction.
func (s *Store) audit(e auditEntry) *spanner.Mutation {
	return spanner.Insert("Audit",
		[]string{"AuditId", "OccurredAt", "Consumer", "Actor", "Action", "Reason", "InboxId", "LaneId", "Before", "After"},
		[]any{s.newID(), spanner.CommitTimestamp, nullString(e.Consumer), e.Actor, e.Action, nullString(inbox.Text(e.Reason, 2048)),
			nullString(e.InboxID), nullString(e.LaneID), auditState(e.Before), auditState(e.After)})
}

// auditState is what an Audit row keeps of a message: its state and place, no attribute and no payload.
func auditState(m *inbox.Message) spanner.NullJSON {
	if m == nil {
		return spanner.NullJSON{}
	}
	state := map[string]any{
		"inboxId": m.ID, "status": m.Status, "reason": m.Reason, "attempts": m.Attempts, "technicalFailures": m.TechnicalFailures,
		"lostWorkers": m.LostWorkers, "outcomeUnknown": m.OutcomeUnknown, "patienceUsed": m.PatienceUsed.String(),
		"lastErrorCode": m.LastErrorCode, "lastErrorMessage": m.LastErrorMessage, "route": m.Route, "laneId": m.LaneID,
		"type": m.Type, "sequence": m.Sequence,
	}
	if m.PayloadLocation != "" {
		state["payloadLocation"] = m.PayloadLocation
	}
	return spanner.NullJSON{Valid: true, Value: state}
}

// textOf returns a member of an audited state that is a text; "": there is none.
func textOf(state spanner.NullJSON, member string) string {
	members, _ := state.Value.(map[string]any)
	text, _ := members[member].(string)
	return text
}
