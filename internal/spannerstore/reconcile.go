package spannerstore

import (
	"context"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// Holding is what a row says about its payload.
type Holding struct {
	ID              string
	Status          inbox.Status
	PayloadLocation string // empty: in the row
	PayloadSHA256   string
	ProcessedAt     time.Time
}

// reconciles is by what the reads of a reconciliation are known.
var reconciles = readAs{"inbox-reconcile", priorityLow}

var holdingColumns = []string{"InboxId", "Status", "PayloadLocation", "PayloadSha256", "ProcessedAt"}

// Holdings reads rows by key. One that is not there is missing from the answer.
func (s *Store) Holdings(ctx context.Context, ids []string) (map[string]Holding, error) {
	return readHoldings(ctx, s.single(reconciles), ids)
}

func readHoldings(ctx context.Context, txn reader, ids []string) (map[string]Holding, error) {
	holdings := make(map[string]Holding, len(ids))
	if len(ids) == 0 {
		return holdings, nil
	}
	rows := txn.ReadWithOptions(ctx, "Messages", keySet(ids), holdingColumns, &spanner.ReadOptions{RequestTag: "inbox-reconcile"})
	err := rows.Do(func(row *spanner.Row) error {
		var h Holding
		var status string
		var location spanner.NullString
		var processed spanner.NullTime
		if err := row.Columns(&h.ID, &status, &location, &h.PayloadSHA256, &processed); err != nil {
			return err
		}
		h.Status, h.PayloadLocation, h.ProcessedAt = inbox.Status(status), location.StringVal, processed.Time
		holdings[h.ID] = h
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read what %d rows say about their payloads: %w", len(ids), err)
	}
	return holdings, nil
}

// Place is where a walk over the open or the parked rows stands: the last row that it has seen. The zero Place is the
// beginning.
type Place struct {
	Consumer   string    `json:"c,omitempty"`
	Shard      int64     `json:"s,omitempty"` // of an open row
	Reason     string    `json:"r,omitempty"` // of a parked row
	ReceivedAt time.Time `json:"t,omitzero"`
	ID         string    `json:"i,omitempty"`
}

// OpenHoldings walks the open rows of all consumers: the next limit rows after a place, and the place of the last of them;
// the zero Place is the end. A row that is opened meanwhile behind the place is not seen.
func (s *Store) OpenHoldings(ctx context.Context, after Place, limit int) ([]Holding, Place, error) {
	return s.walk(ctx, openIndex, after, limit)
}

// ParkedHoldings walks the parked rows in the same way.
func (s *Store) ParkedHoldings(ctx context.Context, after Place, limit int) ([]Holding, Place, error) {
	return s.walk(ctx, parkedIndex, after, limit)
}

// walk reads a slice of an index, and those rows by key: two rows each.
func (s *Store) walk(ctx context.Context, index oldestIndex, after Place, limit int) ([]Holding, Place, error) {
	txn := s.snapshot(reconciles)
	defer txn.Close()
	keys := within(spanner.Key{})
	if after.ID != "" {
		group := any(after.Shard)
		if index.status == inbox.Parked {
			group = after.Reason
		}
		keys.Start, keys.Kind = spanner.Key{after.Consumer, group, after.ReceivedAt, after.ID}, spanner.OpenClosed
	}
	var ids []string
	var last Place
	rows := txn.ReadWithOptions(ctx, "Messages", keys, []string{"InboxId", "Consumer", index.group, "ReceivedAt"},
		&spanner.ReadOptions{Index: index.name, Limit: limit, RequestTag: "inbox-reconcile"})
	err := rows.Do(func(row *spanner.Row) error {
		last = Place{}
		group := any(&last.Shard)
		if index.status == inbox.Parked {
			group = &last.Reason
		}
		err := row.Columns(&last.ID, &last.Consumer, group, &last.ReceivedAt)
		ids = append(ids, last.ID)
		return err
	})
	if err != nil {
		return nil, Place{}, fmt.Errorf("read %s: %w", index.name, err)
	}
	holdings, err := readHoldings(ctx, txn, ids)
	if err != nil {
		return nil, Place{}, err
	}
	if len(ids) < limit {
		last = Place{}
	}
	found := make([]Holding, 0, len(ids))
	for _, id := range ids {
		found = append(found, holdings[id])
	}
	return found, last, nil
}

// Relocation says that the object which keeps a payload is there in a newer generation.
type Relocation struct {
	ID     string
	To     string // its location
	Actor  string // who
	Action string // as the audit calls it
	Reason string // why
}

// Relocate writes the location of a newer generation of the same object on a row that is open or parked, with the note of who
// did it and why. It reports whether it did: a row that is finished, is gone, names another object, or this generation or a
// newer one already, is left alone. So, of several that each made a generation anew, the last one stays, whatever the order
// of their commits: Cloud Storage gives a later generation the greater number.
func (s *Store) Relocate(ctx context.Context, r Relocation) (bool, error) {
	to, err := inbox.ParseLocation(r.To)
	if err != nil {
		return false, err
	}
	moved := false
	_, err = s.write(ctx, "inbox-relocate", func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
		moved = false
		messages, err := readMessages(ctx, txn, []string{r.ID})
		if err != nil {
			return err
		}
		before, ok := messages[r.ID]
		if !ok || before.Status.Finished() {
			return nil
		}
		from, err := inbox.ParseLocation(before.PayloadLocation)
		if err != nil || from.URI() != to.URI() || from.Generation >= to.Generation {
			return nil
		}
		moved = true
		after := before
		after.PayloadLocation = r.To
		return txn.BufferWrite([]*spanner.Mutation{writeLocation(&after), s.audit(auditEntry{Consumer: after.Consumer,
			Actor: inbox.Text(r.Actor, 256), Action: r.Action, Reason: r.Reason, InboxID: r.ID, LaneID: after.LaneID,
			Before: &before, After: &after})})
	})
	if err != nil {
		return false, fmt.Errorf("write where the payload of message %s is: %w", r.ID, err)
	}
	return moved, nil
}
