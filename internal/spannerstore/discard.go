package spannerstore

import (
	"context"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// Discarding is a person's word that nobody wants a parked message any more.
type Discarding struct {
	ID     string
	Actor  string // who
	Reason string // why
	// At is the time by the database's clock, as Show says it; Until is how long the message is remembered, its payload too.
	At, Until time.Time
}

// Discard closes a parked message as DISCARDED and writes down who did it and why, in one transaction. Only what is parked
// can be closed: what is open is the relay's.
//
// Errors: inbox.ErrNotFound; a *RefusedError. After any other, Show tells whether it was done.
func (s *Store) Discard(ctx context.Context, d Discarding) (Changed, error) {
	var changed Changed
	act := func(ctx context.Context, txn reader, write func([]*spanner.Mutation) error) error {
		changed = Changed{}
		messages, err := readMessages(ctx, txn, []string{d.ID})
		if err != nil {
			return err
		}
		m, ok := messages[d.ID]
		switch {
		case !ok:
			return inbox.ErrNotFound
		case m.Status != inbox.Parked:
			return refuse("not parked (%s)", m.Status)
		}
		payload, err := hasPayload(ctx, txn, d.ID)
		if err != nil {
			return err
		}
		changed = Changed{Before: m, After: m}
		changed.After.Discard(d.At, d.Until)
		mutations := []*spanner.Mutation{
			writeState(&changed.After),
			s.audit(auditEntry{Consumer: m.Consumer, Actor: inbox.Text(d.Actor, 256), Action: "discard", Reason: d.Reason, InboxID: d.ID,
				LaneID: m.LaneID, Before: &changed.Before, After: &changed.After}),
		}
		if payload {
			mutations = append(mutations, spanner.Update("Payloads", []string{"InboxId", "PurgeAt"}, []any{d.ID, d.Until}))
		}
		if m.Blocks { // its lane has waited for it
			mutations = append(mutations, wakeLane(&changed.After))
		}
		return write(mutations)
	}
	if err := s.operate(ctx, "inbox-discard", false, act); err != nil {
		return Changed{}, fmt.Errorf("discard message %s: %w", d.ID, err)
	}
	return changed, nil
}
