package spannerstore

import (
	"context"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// Rerouting is a person's wish to have a stored message routed again.
type Rerouting struct {
	ID     string
	Actor  string // who
	Reason string // why
	DryRun bool   // decide, and write nothing
	// Route returns the message as a configuration places it now, from what is stored. It must be pure: it may run several
	// times. Its errors refuse the action: nothing is written.
	Route func(m inbox.Message, body []byte) (Rerouted, error)
}

// Rerouted is what a stored message becomes. Its id, consumer, scope, dedupe key and transport key are not written.
type Rerouted struct {
	Message     inbox.Message
	Content     bool // attributes, hashes, Body and ContentType replace what is stored
	Body        []byte
	ContentType string
}

var placeColumns = []string{
	"InboxId", "OrderingKey", "PublishedAt", "MessageType", "MessageVersion", "Route", "TenantId", "AggregateType", "CorrelationId",
	"CausationId", "TraceParent", "LaneId", "CorrelationKey", "Sequence", "OrderedAt", "Blocks",
}

// Reroute gives a parked message, or an open one that nobody holds, the place that a configuration says now: type, key,
// order, lane and route. It starts afresh there, and both lanes are woken, in one transaction with the note of who did it
// and why. The row keeps its id and identity.
//
// Errors: inbox.ErrNotFound; a *RefusedError. After any other, Show tells whether it was done.
func (s *Store) Reroute(ctx context.Context, r Rerouting) (Changed, error) {
	// Read before the transaction, so that it is a moment too early: a lease that has just ended still counts.
	clock := s.client.ReadOnlyTransaction()
	now, err := snapshotTime(ctx, clock)
	clock.Close()
	if err != nil {
		return Changed{}, fmt.Errorf("reroute message %s: %w", r.ID, err)
	}
	var changed Changed
	act := func(ctx context.Context, txn reader, write func([]*spanner.Mutation) error) error {
		var to Rerouted
		var err error
		if changed, to, err = planReroute(ctx, txn, r, now); err != nil {
			return err
		}
		return write(s.rerouteMutations(r, changed, to))
	}
	if err := s.operate(ctx, "inbox-reroute", r.DryRun, act); err != nil {
		return Changed{}, fmt.Errorf("reroute message %s: %w", r.ID, err)
	}
	return changed, nil
}

func planReroute(ctx context.Context, txn reader, r Rerouting, now time.Time) (Changed, Rerouted, error) {
	messages, err := readMessages(ctx, txn, []string{r.ID})
	if err != nil {
		return Changed{}, Rerouted{}, err
	}
	m, ok := messages[r.ID]
	switch {
	case !ok:
		return Changed{}, Rerouted{}, inbox.ErrNotFound
	case m.Status == inbox.Processing:
		return Changed{}, Rerouted{}, refuse("being handled right now (PROCESSING); wait until its lease has ended and look again")
	case m.Status.Finished():
		return Changed{}, Rerouted{}, refuse("finished (%s); reroute is for parked and open messages", m.Status)
	case m.PayloadLocation != "":
		return Changed{}, Rerouted{}, refuse("its payload is an object in Cloud Storage, which reroute does not read")
	}
	if m.Status.Open() {
		lanes, err := readLanes(ctx, txn, []string{m.LaneID})
		if err != nil {
			return Changed{}, Rerouted{}, err
		}
		if lane, ok := lanes[m.LaneID]; ok && lane.Leased(now) {
			return Changed{}, Rerouted{}, refuse("a relay holds its lane until %s; try again then", lane.LeaseUntil.UTC().Format(time.RFC3339))
		}
	}
	body, there, err := readBody(ctx, txn, r.ID)
	if err != nil {
		return Changed{}, Rerouted{}, err
	}
	if !there {
		return Changed{}, Rerouted{}, refuse("its payload has been deleted, so that there is nothing to route")
	}
	to, err := r.Route(m, body)
	if err != nil {
		return Changed{}, Rerouted{}, &RefusedError{Why: err.Error()}
	}
	changed := Changed{Before: m, After: to.Message}
	inbox.StartAfresh(&changed.After)
	if changed.After.LaneID != m.LaneID {
		changed.After.Late = false // it was so in the lane that it leaves
	}
	return changed, to, changed.lookAtLane(ctx, txn)
}

func (s *Store) rerouteMutations(r Rerouting, c Changed, to Rerouted) []*spanner.Mutation {
	m := &c.After
	mutations := []*spanner.Mutation{
		spanner.Update("Messages", placeColumns, []any{
			m.ID, nullString(m.OrderingKey), nullTime(m.PublishedAt), nullString(m.Type), nullString(m.Version), nullString(m.Route),
			nullString(m.TenantID), nullString(m.AggregateType), nullString(m.CorrelationID), nullString(m.CausationID),
			nullString(m.TraceParent), m.LaneID, nullString(m.Key), m.Sequence, m.OrderedAt, m.Blocks,
		}),
		writeState(m),
		wakeLane(m),
		s.audit(auditEntry{Consumer: m.Consumer, Actor: inbox.Text(r.Actor, 256), Action: "reroute", Reason: r.Reason, InboxID: m.ID,
			LaneID: m.LaneID, Before: &c.Before, After: m}),
	}
	if to.Content {
		mutations = append(mutations, spanner.Update("Messages",
			[]string{"InboxId", "Attributes", "ContentSha256", "PayloadSha256", "PayloadBytes"},
			[]any{m.ID, nullJSON(m.Attributes), m.ContentSHA256, m.PayloadSHA256, m.PayloadBytes}))
		mutations = append(mutations, spanner.Update("Payloads", []string{"InboxId", "Body", "ContentType", "PurgeAt"},
			[]any{m.ID, body(to.Body), nullString(to.ContentType), spanner.NullTime{}}))
	} else {
		mutations = append(mutations, keepPayload(m.ID))
	}
	// The lane that it leaves may have waited for it, or be empty now: the next claim finds out.
	if old := c.Before; old.LaneID != m.LaneID && (old.Status.Open() || old.Blocks) {
		mutations = append(mutations, wakeLane(&old))
	}
	return mutations
}

func readBody(ctx context.Context, txn reader, id string) (body []byte, there bool, err error) {
	rows := txn.ReadWithOptions(ctx, "Payloads", keySet([]string{id}), []string{"Body"}, nil)
	err = rows.Do(func(row *spanner.Row) error {
		there = true
		return row.Columns(&body)
	})
	if err != nil {
		return nil, false, fmt.Errorf("read the payload: %w", err)
	}
	return body, there, nil
}
