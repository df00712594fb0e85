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

	Audit []AuditEntry // in order of time
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

// Show reads one message and all that belongs to it, but not what its payload says. inbox.ErrNotFound: no such message.
func (s *Store) Show(ctx context.Context, id string) (Shown, error) {
	txn := s.client.ReadOnlyTransaction()
	defer txn.Close()
	shown, err := show(ctx, txn, id)
	if err != nil {
		return Shown{}, fmt.Errorf("show message %s: %w", id, err)
	}
	return shown, nil
}

func show(ctx context.Context, txn *spanner.ReadOnlyTransaction, id string) (Shown, error) {
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

func (shown *Shown) readLane(ctx context.Context, txn *spanner.ReadOnlyTransaction) error {
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

func (shown *Shown) readAudit(ctx context.Context, txn reader) error {
	var ids []string
	rows := txn.ReadWithOptions(ctx, "Audit", spanner.Key{shown.ID}.AsPrefix(), []string{"AuditId"}, &spanner.ReadOptions{Index: "AuditByMessage"})
	err := rows.Do(func(row *spanner.Row) error {
		var id string
		err := row.Columns(&id)
		ids = append(ids, id)
		return err
	})
	if err != nil {
		return fmt.Errorf("read the audit's index: %w", err)
	}
	if len(ids) == 0 {
		return nil
	}
	rows = txn.ReadWithOptions(ctx, "Audit", keySet(ids), []string{"OccurredAt", "Actor", "Action", "Reason", "Before", "After"}, nil)
	err = rows.Do(func(row *spanner.Row) error {
		var a AuditEntry
		var reason spanner.NullString
		if err := row.Columns(&a.OccurredAt, &a.Actor, &a.Action, &reason, &a.Before, &a.After); err != nil {
			return err
		}
		a.Reason = reason.StringVal
		shown.Audit = append(shown.Audit, a)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the audit: %w", err)
	}
	sortByTime(shown.Audit, func(a AuditEntry) time.Time { return a.OccurredAt })
	return nil
}

func sortByTime[T any](entries []T, at func(T) time.Time) {
	slices.SortStableFunc(entries, func(a, b T) int { return at(a).Compare(at(b)) })
}

// Rows reads messages by id, in two reads for up to a thousand of them. One that does not exist is missing from the answer.
func (s *Store) Rows(ctx context.Context, ids []string) (map[string]Row, error) {
	txn := s.client.ReadOnlyTransaction()
	defer txn.Close()
	rows, err := readRows(ctx, txn, ids)
	if err != nil {
		return nil, fmt.Errorf("show %d messages: %w", len(ids), err)
	}
	return rows, nil
}
