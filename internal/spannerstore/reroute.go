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
	// Load reads a payload that is an object. It is called before the transaction.
	Load func(ctx context.Context, m inbox.Message) ([]byte, error)
	// Keep puts a new Body where an object is to keep it, and returns its location; empty: it goes into its row. It is
	// called before the transaction, and not in a dry run.
	Keep func(ctx context.Context, to Rerouted) (string, error)
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
	"CausationId", "TraceParent", "LaneId", "CorrelationKey", "Sequence", "OrderedAt", "Blocks", "ClaimUri", "ClaimGeneration",
	"ClaimSha256",
}

// Reroute gives a parked message, or an open one that nobody holds, the place that a configuration says now: type, key,
// order, lane, route, and what it refers to. It starts afresh there, and both lanes are woken, in one transaction with the
// note of who did it and why. The row keeps its id and identity.
//
// Where the content is replaced, the object that kept it before, if there was one, belongs to nobody any more:
// Changed.Before names it.
//
// Errors: inbox.ErrNotFound; a *RefusedError; one of Load or Keep. After any other, Show tells whether it was done.
func (s *Store) Reroute(ctx context.Context, r Rerouting) (Changed, error) {
	changed, err := s.reroute(ctx, r)
	if err != nil {
		return Changed{}, fmt.Errorf("reroute message %s: %w", r.ID, err)
	}
	return changed, nil
}

func (s *Store) reroute(ctx context.Context, r Rerouting) (Changed, error) {
	// Its time is read before the transaction, so that it is a moment too early: a lease that has just ended still counts.
	before := s.client.ReadOnlyTransaction()
	defer before.Close()
	now, err := snapshotTime(ctx, before)
	if err != nil {
		return Changed{}, err
	}
	m, body, err := r.read(ctx, before, now)
	if err != nil {
		return Changed{}, err
	}
	location := m.PayloadLocation
	if to, err := r.Route(m, body); err != nil {
		return Changed{}, &RefusedError{Why: err.Error()}
	} else if to.Content {
		location = ""
		if !r.DryRun && r.Keep != nil {
			if location, err = r.Keep(ctx, to); err != nil {
				return Changed{}, err
			}
		}
	}
	var changed Changed
	act := func(ctx context.Context, txn reader, write func([]*spanner.Mutation) error) error {
		var to Rerouted
		var err error
		if changed, to, err = planReroute(ctx, txn, r, now, m.PayloadSHA256, body); err != nil {
			return err
		}
		if to.Content {
			changed.After.PayloadLocation = location
		}
		return write(s.rerouteMutations(r, changed, to))
	}
	if err := s.operate(ctx, "inbox-reroute", r.DryRun, act); err != nil {
		return Changed{}, err
	}
	return changed, nil
}

// read returns the message with its payload, wherever that is kept, unless the action would be refused.
func (r *Rerouting) read(ctx context.Context, txn reader, now time.Time) (inbox.Message, []byte, error) {
	m, err := reroutable(ctx, txn, r.ID, now)
	if err != nil {
		return inbox.Message{}, nil, err
	}
	body, there, err := readBody(ctx, txn, r.ID)
	switch {
	case err != nil:
		return inbox.Message{}, nil, err
	case !there:
		return inbox.Message{}, nil, errPayloadDeleted
	case m.PayloadLocation != "":
		if body, err = r.Load(ctx, m); err != nil {
			return inbox.Message{}, nil, err
		}
	}
	return m, body, nil
}

var errPayloadDeleted = &RefusedError{Why: "its payload has been deleted, so that there is nothing to route"}

// reroutable reads a message, and refuses what cannot be routed again.
func reroutable(ctx context.Context, txn reader, id string, now time.Time) (inbox.Message, error) {
	messages, err := readMessages(ctx, txn, []string{id})
	if err != nil {
		return inbox.Message{}, err
	}
	m, ok := messages[id]
	switch {
	case !ok:
		return inbox.Message{}, inbox.ErrNotFound
	case m.Status == inbox.Processing:
		return inbox.Message{}, refuse("being handled right now (PROCESSING); wait until its lease has ended and look again")
	case m.Status.Finished():
		return inbox.Message{}, refuse("finished (%s); reroute is for parked and open messages", m.Status)
	case m.Waits():
		return inbox.Message{}, refuse("a dead letter that waits until %s, when its lane is searched for what may be the same message; "+
			"it would run at once, and unsearched", m.NextAttemptAt.UTC().Format(time.RFC3339))
	}
	if m.Status.Open() {
		lanes, err := readLanes(ctx, txn, []string{m.LaneID})
		if err != nil {
			return inbox.Message{}, err
		}
		if lane, ok := lanes[m.LaneID]; ok && lane.Leased(now) {
			return inbox.Message{}, refuse("a relay holds its lane until %s; try again then", lane.LeaseUntil.UTC().Format(time.RFC3339))
		}
	}
	return m, nil
}

// planReroute decides by what the transaction reads, and by the payload that was read before it; sha256 is what the row said
// of that.
func planReroute(ctx context.Context, txn reader, r Rerouting, now time.Time, sha256 string, body []byte) (Changed, Rerouted, error) {
	m, err := reroutable(ctx, txn, r.ID, now)
	if err != nil {
		return Changed{}, Rerouted{}, err
	}
	there, _, err := readPayloadPurge(ctx, txn, r.ID)
	switch {
	case err != nil:
		return Changed{}, Rerouted{}, err
	case !there:
		return Changed{}, Rerouted{}, errPayloadDeleted
	case m.PayloadSHA256 != sha256:
		return Changed{}, Rerouted{}, refuse("its payload has been replaced meanwhile; try again")
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
			claimURI(m.Claim), nullInt(m.Claim.Generation), nullString(m.Claim.SHA256),
		}),
		writeState(m),
		wakeLane(m),
		s.audit(auditEntry{Consumer: m.Consumer, Actor: inbox.Text(r.Actor, 256), Action: "reroute", Reason: r.Reason, InboxID: m.ID,
			LaneID: m.LaneID, Before: &c.Before, After: m}),
	}
	if to.Content {
		inline := to.Body
		if m.PayloadLocation != "" {
			inline = nil
		}
		mutations = append(mutations, spanner.Update("Messages",
			[]string{"InboxId", "Attributes", "ContentSha256", "PayloadSha256", "PayloadBytes", "PayloadLocation"},
			[]any{m.ID, nullJSON(m.Attributes), m.ContentSHA256, m.PayloadSHA256, m.PayloadBytes, nullString(m.PayloadLocation)}))
		mutations = append(mutations, spanner.Update("Payloads", []string{"InboxId", "Body", "ContentType", "PurgeAt"},
			[]any{m.ID, body(inline), nullString(to.ContentType), spanner.NullTime{}}))
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
