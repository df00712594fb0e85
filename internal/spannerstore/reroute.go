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

// Rerouted is what a stored message becomes. Its consumer and transport key are not written. With another id it is moved:
// the row and all that belongs to it go under that id, with its scope and dedupe key.
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
// note of who did it and why. A message that gets another identity is moved under the id of that, where a republished copy
// finds it; the push that owns it finds it by the transport key, as before. An identity that another message has is refused.
//
// Where the content is replaced or the message is moved, the object that kept its payload before, if there was one, belongs
// to nobody any more: Changed.Before names it.
//
// Errors: inbox.ErrNotFound, a *MovedError too; a *RefusedError; one of Load or Keep. After any other, Show tells whether it was done.
func (s *Store) Reroute(ctx context.Context, r Rerouting) (Changed, error) {
	changed, err := s.reroute(ctx, r)
	if err != nil {
		err = s.moved(ctx, r.ID, err)
		return Changed{}, fmt.Errorf("reroute message %s: %w", r.ID, err)
	}
	return changed, nil
}

func (s *Store) reroute(ctx context.Context, r Rerouting) (Changed, error) {
	// Its time is read before the transaction, so that it is a moment too early: a lease that has just ended still counts.
	before := s.snapshot(shows)
	defer before.Close()
	now, err := snapshotTime(ctx, before)
	if err != nil {
		return Changed{}, err
	}
	m, payload, err := r.read(ctx, before, now)
	if err != nil {
		return Changed{}, err
	}
	// What would be refused has no object made for it.
	_, to, err := planReroute(ctx, before, r, now, m.PayloadSHA256, payload)
	if err != nil {
		return Changed{}, err
	}
	location := m.PayloadLocation
	if to.Content || to.Message.ID != m.ID && location != "" {
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
		if changed, to, err = planReroute(ctx, txn, r, now, m.PayloadSHA256, payload); err != nil {
			return err
		}
		moved := changed.After.ID != changed.Before.ID
		if !r.DryRun && (to.Content || moved) {
			changed.After.PayloadLocation = location
		}
		if !moved {
			return write(s.rerouteMutations(r, changed, to))
		}
		mutations, err := s.moveMutations(ctx, txn, r, changed, to)
		if err != nil {
			return err
		}
		return write(mutations)
	}
	if err := s.operate(ctx, "inbox-reroute", r.DryRun, act); err != nil {
		return Changed{}, err
	}
	return changed, nil
}

// read returns the message with its payload, wherever that is kept, unless the action would be refused.
func (r *Rerouting) read(ctx context.Context, txn reader, now time.Time) (inbox.Message, payload, error) {
	m, err := reroutable(ctx, txn, r.ID, now)
	if err != nil {
		return inbox.Message{}, payload{}, err
	}
	stored, there, err := readPayload(ctx, txn, r.ID)
	switch {
	case err != nil:
		return inbox.Message{}, payload{}, err
	case !there:
		return inbox.Message{}, payload{}, errPayloadDeleted
	case m.PayloadLocation != "":
		if stored.body, err = r.Load(ctx, m); err != nil {
			return inbox.Message{}, payload{}, err
		}
	}
	return m, stored, nil
}

// payload is what is kept of a message's data.
type payload struct {
	body        []byte
	contentType string
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
func planReroute(ctx context.Context, txn reader, r Rerouting, now time.Time, sha256 string, stored payload) (Changed, Rerouted, error) {
	m, err := reroutable(ctx, txn, r.ID, now)
	if err != nil {
		return Changed{}, Rerouted{}, err
	}
	there, err := hasPayload(ctx, txn, r.ID)
	switch {
	case err != nil:
		return Changed{}, Rerouted{}, err
	case !there:
		return Changed{}, Rerouted{}, errPayloadDeleted
	case m.PayloadSHA256 != sha256:
		return Changed{}, Rerouted{}, refuse("its payload has been replaced meanwhile; try again")
	}
	to, err := r.Route(m, stored.body)
	if err != nil {
		return Changed{}, Rerouted{}, &RefusedError{Why: err.Error()}
	}
	if !to.Content {
		to.Body, to.ContentType = stored.body, stored.contentType
	}
	changed := Changed{Before: m, After: to.Message}
	inbox.StartAfresh(&changed.After)
	if err := mayMove(ctx, txn, &changed); err != nil {
		return Changed{}, Rerouted{}, err
	}
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
		mutations = append(mutations, spanner.Update("Messages",
			[]string{"InboxId", "Attributes", "ContentSha256", "PayloadSha256", "PayloadBytes", "PayloadLocation"},
			[]any{m.ID, nullJSON(m.Attributes), m.ContentSHA256, m.PayloadSHA256, m.PayloadBytes, nullString(m.PayloadLocation)}))
		mutations = append(mutations, spanner.Update("Payloads", []string{"InboxId", "Body", "ContentType", "PurgeAt"},
			[]any{m.ID, body(to.inline(m)), nullString(to.ContentType), spanner.NullTime{}}))
	} else {
		mutations = append(mutations, keepPayload(m.ID))
	}
	return append(mutations, wakeOldLane(c)...)
}

// inline is what the payload's row holds: nothing where an object keeps it.
func (to *Rerouted) inline(m *inbox.Message) []byte {
	if m.PayloadLocation != "" {
		return nil
	}
	return to.Body
}

// wakeOldLane wakes the lane that a message leaves: it may have waited for the message, or be empty now. The next claim
// finds out.
func wakeOldLane(c Changed) []*spanner.Mutation {
	if old := c.Before; old.LaneID != c.After.LaneID && (old.Status.Open() || old.Blocks) {
		return []*spanner.Mutation{wakeLane(&old)}
	}
	return nil
}

func readPayload(ctx context.Context, txn reader, id string) (stored payload, there bool, err error) {
	rows := txn.ReadWithOptions(ctx, "Payloads", keySet([]string{id}), []string{"Body", "ContentType"}, nil)
	err = rows.Do(func(row *spanner.Row) error {
		there = true
		var contentType spanner.NullString
		err := row.Columns(&stored.body, &contentType)
		stored.contentType = contentType.StringVal
		return err
	})
	if err != nil {
		return payload{}, false, fmt.Errorf("read the payload: %w", err)
	}
	return stored, there, nil
}
