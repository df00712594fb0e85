package spannerstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// Row is a message as an operator sees it.
type Row struct {
	inbox.Message
	Deliveries int64 // 1 and its recorded redeliveries
}

// Shown is all that the database knows of one message, at one moment.
type Shown struct {
	Row
	At time.Time // that moment, by the database's clock

	HasPayload     bool // false: it has been deleted
	ContentType    string
	PayloadPurgeAt time.Time

	Redeliveries []Delivery     // in order of time
	History      []AttemptEntry // in order of time

	Lane       *inbox.Lane // nil: there is no row of it
	HeldReason string
	// Ahead is what the lane has to pass before the message, in order; at most MaxAhead of it.
	Ahead     []*inbox.Message
	MoreAhead bool

	Engines []StoppedEngine // of its consumer, in the order of their names

	Audit []AuditEntry // in order of time
}

// shows is by what the reads of one message or a few are known.
var shows = readAs{"inbox-show", priorityMedium}

// StoppedEngine is an engine that is paused, or whose breaker is open.
type StoppedEngine struct {
	Name                   string
	PausedAt               time.Time // zero: nobody has paused it
	PausedBy, PausedReason string
	OpenUntil              time.Time // zero: its breaker is closed; once past, the next message is a probe
	OpenReason, LastError  string
}

// MaxAhead is how many messages before a shown one are read.
const MaxAhead = 100

// Delivery is one recorded redelivery.
type Delivery struct {
	ReceivedAt   time.Time
	MessageID    string
	Attempt      int64 // 0: not said
	Subscription string
	Revision     string
}

// AttemptEntry is one recorded attempt.
type AttemptEntry struct {
	inbox.AttemptRecord
	Late bool
}

// AuditEntry is one operator action on a message.
type AuditEntry struct {
	OccurredAt            time.Time
	Actor, Action, Reason string
	Before, After         spanner.NullJSON
}

// Show reads one message and all that belongs to it, but not what its payload says. inbox.ErrNotFound: no such message;
// a *MovedError says which id it has now.
func (s *Store) Show(ctx context.Context, id string) (Shown, error) {
	txn := s.snapshot(shows)
	defer txn.Close()
	shown, err := show(ctx, txn, id)
	if err != nil {
		return Shown{}, fmt.Errorf("show message %s: %w", id, s.moved(ctx, id, err))
	}
	return shown, nil
}

func show(ctx context.Context, txn *snapshot, id string) (Shown, error) {
	rows, err := readRows(ctx, txn, []string{id})
	if err != nil {
		return Shown{}, err
	}
	row, ok := rows[id]
	if !ok {
		return Shown{}, inbox.ErrNotFound
	}
	shown := Shown{Row: row}
	if shown.At, err = txn.Timestamp(); err != nil {
		return Shown{}, err
	}
	payload, err := txn.ReadRow(ctx, "Payloads", spanner.Key{id}, []string{"ContentType", "PurgeAt"})
	if err == nil {
		var contentType spanner.NullString
		var purge spanner.NullTime
		err = payload.Columns(&contentType, &purge)
		shown.HasPayload, shown.ContentType, shown.PayloadPurgeAt = true, contentType.StringVal, purge.Time
	}
	if err != nil && spanner.ErrCode(err) != codes.NotFound {
		return Shown{}, fmt.Errorf("read the payload's row: %w", err)
	}
	if err := shown.readHistory(ctx, txn); err != nil {
		return Shown{}, err
	}
	if err := shown.readLane(ctx, txn); err != nil {
		return Shown{}, err
	}
	if err := shown.readStoppedEngines(ctx, txn); err != nil {
		return Shown{}, err
	}
	return shown, shown.readAudit(ctx, txn)
}

func (shown *Shown) readHistory(ctx context.Context, txn reader) error {
	children := spanner.Key{shown.ID}.AsPrefix()
	rows := txn.ReadWithOptions(ctx, "Deliveries", children, []string{"ReceivedAt", "MessageId", "DeliveryAttempt", "Subscription", "Revision"}, nil)
	err := rows.Do(func(row *spanner.Row) error {
		var d Delivery
		var messageID, subscription, revision spanner.NullString
		var attempt spanner.NullInt64
		if err := row.Columns(&d.ReceivedAt, &messageID, &attempt, &subscription, &revision); err != nil {
			return err
		}
		d.MessageID, d.Attempt, d.Subscription, d.Revision = messageID.StringVal, attempt.Int64, subscription.StringVal, revision.StringVal
		shown.Redeliveries = append(shown.Redeliveries, d)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read deliveries: %w", err)
	}
	sortByTime(shown.Redeliveries, func(d Delivery) time.Time { return d.ReceivedAt })

	rows = txn.ReadWithOptions(ctx, "Attempts", children, []string{"Number", "StartedAt", "EndedAt", "Verdict", "Late",
		"ErrorCode", "ErrorMessage", "Engine", "Owner", "Revision"}, nil)
	err = rows.Do(func(row *spanner.Row) error {
		var a AttemptEntry
		var started, ended spanner.NullTime
		var code, text, engine, owner, revision spanner.NullString
		if err := row.Columns(&a.Number, &started, &ended, &a.Verdict, &a.Late, &code, &text, &engine, &owner, &revision); err != nil {
			return err
		}
		a.StartedAt, a.EndedAt, a.ErrorCode, a.ErrorMessage = started.Time, ended.Time, code.StringVal, text.StringVal
		a.Engine, a.Owner, a.Revision = engine.StringVal, owner.StringVal, revision.StringVal
		shown.History = append(shown.History, a)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read attempts: %w", err)
	}
	sortByTime(shown.History, func(a AttemptEntry) time.Time { return a.EndedAt })
	return nil
}

func (shown *Shown) readLane(ctx context.Context, txn *snapshot) error {
	lanes, err := readLanes(ctx, txn, []string{shown.LaneID})
	if err != nil {
		return err
	}
	if lane, ok := lanes[shown.LaneID]; ok {
		shown.Lane = &lane
		row, err := txn.ReadRow(ctx, "Lanes", spanner.Key{shown.LaneID}, []string{"HeldReason"})
		var reason spanner.NullString
		if err == nil {
			err = row.Columns(&reason)
		}
		if err != nil {
			return fmt.Errorf("read why the lane is held: %w", err)
		}
		shown.HeldReason = reason.StringVal
	}
	if !shown.Status.Open() && (shown.Status != inbox.Parked || !shown.Blocks) {
		return nil // it is not in the lane's queue
	}
	keys := spanner.KeyRange{Kind: spanner.ClosedOpen, Start: spanner.Key{shown.LaneID, int64(0)},
		End: spanner.Key{shown.LaneID, int64(0), shown.Sequence, shown.OrderedAt, shown.ReceivedAt, shown.ID}}
	total, err := readQueue(ctx, txn, keys, MaxAhead+1, func(_ string, m *inbox.Message) { shown.Ahead = append(shown.Ahead, m) })
	if total > MaxAhead {
		shown.Ahead, shown.MoreAhead = shown.Ahead[:MaxAhead], true
	}
	return err
}

func (shown *Shown) readStoppedEngines(ctx context.Context, txn reader) error {
	if !shown.Status.Open() {
		return nil
	}
	rows := txn.ReadWithOptions(ctx, "Engines", spanner.Key{shown.Consumer}.AsPrefix(), []string{"Engine", "PausedAt", "PausedBy", "PausedReason",
		"OpenUntil", "OpenReason", "LastErrorMessage"}, nil)
	err := rows.Do(func(row *spanner.Row) error {
		var e StoppedEngine
		var paused, until spanner.NullTime
		var by, why, reason, text spanner.NullString
		if err := row.Columns(&e.Name, &paused, &by, &why, &until, &reason, &text); err != nil {
			return err
		}
		e.PausedAt, e.PausedBy, e.PausedReason = paused.Time, by.StringVal, why.StringVal
		e.OpenUntil, e.OpenReason, e.LastError = until.Time, reason.StringVal, text.StringVal
		if paused.Valid || until.Valid {
			shown.Engines = append(shown.Engines, e)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read which engines are stopped: %w", err)
	}
	return nil
}

// readAudit reads what operators have done to the message, also under the ids that it had before it was rerouted.
func (shown *Shown) readAudit(ctx context.Context, txn reader) error {
	for id, seen := shown.ID, map[string]bool{}; id != "" && !seen[id]; {
		seen[id] = true
		entries, err := readAudit(ctx, txn, id)
		if err != nil {
			return err
		}
		before := ""
		for _, e := range entries {
			if after := textOf(e.After, "inboxId"); after != "" && after != id {
				continue // it stands under that id, too
			}
			if was := textOf(e.Before, "inboxId"); was != id && was != "" {
				before = was
			}
			shown.Audit = append(shown.Audit, e)
		}
		id = before
	}
	sortByTime(shown.Audit, func(a AuditEntry) time.Time { return a.OccurredAt })
	return nil
}

// readAudit reads the entries of an id, in no order.
func readAudit(ctx context.Context, txn reader, id string) ([]AuditEntry, error) {
	var ids []string
	rows := txn.ReadWithOptions(ctx, "Audit", spanner.Key{id}.AsPrefix(), []string{"AuditId"}, &spanner.ReadOptions{Index: "AuditByMessage"})
	err := rows.Do(func(row *spanner.Row) error {
		var id string
		err := row.Columns(&id)
		ids = append(ids, id)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the audit's index: %w", err)
	}
	if len(ids) == 0 {
		return nil, nil
	}
	var entries []AuditEntry
	rows = txn.ReadWithOptions(ctx, "Audit", keySet(ids), []string{"OccurredAt", "Actor", "Action", "Reason", "Before", "After"}, nil)
	err = rows.Do(func(row *spanner.Row) error {
		var a AuditEntry
		var reason spanner.NullString
		if err := row.Columns(&a.OccurredAt, &a.Actor, &a.Action, &reason, &a.Before, &a.After); err != nil {
			return err
		}
		a.Reason = reason.StringVal
		entries = append(entries, a)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the audit: %w", err)
	}
	return entries, nil
}

func sortByTime[T any](entries []T, at func(T) time.Time) {
	slices.SortStableFunc(entries, func(a, b T) int { return at(a).Compare(at(b)) })
}

// Rows reads messages by id, in two reads for up to a thousand of them. One that does not exist is missing from the answer.
func (s *Store) Rows(ctx context.Context, ids []string) (map[string]Row, error) {
	txn := s.snapshot(shows)
	defer txn.Close()
	rows, err := readRows(ctx, txn, ids)
	if err != nil {
		return nil, fmt.Errorf("show %d messages: %w", len(ids), err)
	}
	return rows, nil
}

// storedRow is a row of Messages, fields named as the columns.
type storedRow struct {
	InboxId, Consumer, Scope, DedupeKey, LaneId, Status, ContentSha256, PayloadSha256 string

	TransportKey, Subscription, MessageId, OrderingKey, MessageType, MessageVersion, Route, TenantId, AggregateType,
	CorrelationId, CausationId, TraceParent, CorrelationKey, Reason, LastErrorCode, LastErrorMessage, EngineReference,
	PayloadLocation, ReplayOf, ConflictsWith, ClaimUri, ClaimSha256 spanner.NullString

	ReceivedAt, OrderedAt time.Time

	PublishedAt, LastNotWaitingAt, NextAttemptAt, ProcessingStartedAt, ProcessedAt, FirstFailedAt, LastFailedAt,
	PurgeAfter spanner.NullTime

	Sequence, Attempts, TechnicalFailures, OutageFailures, LostWorkers, PatienceUsed, PayloadBytes int64

	ClaimGeneration, SourceAttempts spanner.NullInt64

	Blocks, Late, HandedOver, OutcomeUnknown bool

	Attributes spanner.NullJSON
}

var rowColumns = []string{
	"InboxId", "Consumer", "Scope", "DedupeKey", "LaneId", "Status", "ContentSha256", "PayloadSha256", "TransportKey",
	"Subscription", "MessageId", "OrderingKey", "MessageType", "MessageVersion", "Route", "TenantId", "AggregateType",
	"CorrelationId", "CausationId", "TraceParent", "CorrelationKey", "Reason", "LastErrorCode", "LastErrorMessage",
	"EngineReference", "PayloadLocation", "ReplayOf", "ConflictsWith", "ReceivedAt", "OrderedAt", "PublishedAt",
	"LastNotWaitingAt", "NextAttemptAt", "ProcessingStartedAt", "ProcessedAt", "FirstFailedAt", "LastFailedAt", "PurgeAfter",
	"Sequence", "Attempts", "TechnicalFailures", "OutageFailures", "LostWorkers", "PatienceUsed", "PayloadBytes", "Blocks",
	"Late", "HandedOver", "OutcomeUnknown", "Attributes", "ClaimUri", "ClaimGeneration", "ClaimSha256", "SourceAttempts",
}

func (r *storedRow) message() inbox.Message {
	return inbox.Message{
		ID: r.InboxId, Consumer: r.Consumer, Scope: r.Scope, DedupeKey: r.DedupeKey, TransportKey: r.TransportKey.StringVal,
		Subscription: r.Subscription.StringVal, MessageID: r.MessageId.StringVal, OrderingKey: r.OrderingKey.StringVal,
		PublishedAt: r.PublishedAt.Time, ReceivedAt: r.ReceivedAt,
		Type: r.MessageType.StringVal, Version: r.MessageVersion.StringVal, Route: r.Route.StringVal, TenantID: r.TenantId.StringVal,
		AggregateType: r.AggregateType.StringVal, CorrelationID: r.CorrelationId.StringVal, CausationID: r.CausationId.StringVal,
		TraceParent: r.TraceParent.StringVal,
		LaneID:      r.LaneId, Key: r.CorrelationKey.StringVal, Sequence: r.Sequence, OrderedAt: r.OrderedAt,
		Status: inbox.Status(r.Status), Reason: inbox.Reason(r.Reason.StringVal), Blocks: r.Blocks, Late: r.Late,
		HandedOver: r.HandedOver, Attempts: r.Attempts, TechnicalFailures: r.TechnicalFailures, OutageFailures: r.OutageFailures,
		LostWorkers: r.LostWorkers, OutcomeUnknown: r.OutcomeUnknown, PatienceUsed: time.Duration(r.PatienceUsed) * time.Millisecond,
		LastNotWaitingAt: r.LastNotWaitingAt.Time, NextAttemptAt: r.NextAttemptAt.Time, ProcessingStartedAt: r.ProcessingStartedAt.Time,
		ProcessedAt: r.ProcessedAt.Time, FirstFailedAt: r.FirstFailedAt.Time, LastFailedAt: r.LastFailedAt.Time,
		LastErrorCode: r.LastErrorCode.StringVal, LastErrorMessage: r.LastErrorMessage.StringVal, EngineReference: r.EngineReference.StringVal,
		Attributes: textMap(r.Attributes), ContentSHA256: r.ContentSha256, PayloadSHA256: r.PayloadSha256, PayloadBytes: r.PayloadBytes,
		PayloadLocation: r.PayloadLocation.StringVal, ReplayOf: r.ReplayOf.StringVal, ConflictsWith: r.ConflictsWith.StringVal,
		PurgeAfter: r.PurgeAfter.Time,
		Claim:      claim(r.ClaimUri, r.ClaimGeneration, r.ClaimSha256), FromDeadLetter: r.SourceAttempts.Valid, SourceAttempts: r.SourceAttempts.Int64,
	}
}

// readMessages reads whole messages by key.
func readMessages(ctx context.Context, txn reader, ids []string) (map[string]inbox.Message, error) {
	messages := make(map[string]inbox.Message, len(ids))
	if len(ids) == 0 {
		return messages, nil
	}
	rows := txn.ReadWithOptions(ctx, "Messages", keySet(ids), rowColumns, &spanner.ReadOptions{RequestTag: "inbox-show"})
	err := rows.Do(func(row *spanner.Row) error {
		var stored storedRow
		if err := row.ToStruct(&stored); err != nil {
			return err
		}
		messages[stored.InboxId] = stored.message()
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read messages: %w", err)
	}
	return messages, nil
}

// readRows reads whole messages by key, and counts their deliveries: two reads for up to a thousand of them. Redeliveries
// are at most inbox.MaxDeliveries rows a message.
func readRows(ctx context.Context, txn reader, ids []string) (map[string]Row, error) {
	found := make(map[string]Row, len(ids))
	for chunk := range slices.Chunk(ids, 1000) {
		messages, err := readMessages(ctx, txn, chunk)
		if err != nil {
			return nil, err
		}
		var prefixes []spanner.KeySet
		for _, id := range chunk {
			prefixes = append(prefixes, spanner.Key{id}.AsPrefix())
		}
		redeliveries := map[string]int64{}
		rows := txn.ReadWithOptions(ctx, "Deliveries", spanner.KeySets(prefixes...), []string{"InboxId"}, &spanner.ReadOptions{RequestTag: "inbox-show"})
		err = rows.Do(func(row *spanner.Row) error {
			var id string
			err := row.Columns(&id)
			redeliveries[id]++
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("count deliveries: %w", err)
		}
		for id, m := range messages {
			found[id] = Row{Message: m, Deliveries: 1 + redeliveries[id]}
		}
	}
	return found, nil
}
