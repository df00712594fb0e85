package spannerstore

import (
	"context"
	"errors"
	"fmt"

	"cloud.google.com/go/spanner"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// RefusedError says why an operator's action was not done; nothing was written. It is an inbox.ErrConflict.
type RefusedError struct {
	Why string
}

// Error returns the sentence.
func (e *RefusedError) Error() string { return e.Why }

// Is makes it an inbox.ErrConflict.
func (e *RefusedError) Is(target error) bool { return target == inbox.ErrConflict }

func refuse(format string, args ...any) error {
	return &RefusedError{Why: fmt.Sprintf(format, args...)}
}

// Reopening is a person's wish to have a message tried again.
type Reopening struct {
	ID     string
	Actor  string // who
	Reason string // why
	Force  bool   // finished rows, too
	DryRun bool   // decide, and write nothing
	// Renew makes the object that keeps a finished message's payload anew, from its location, and returns the new one. The
	// old generation is marked for deletion, or is about to be, and nothing takes that back. It is called before the
	// transaction, not in a dry run, and its errors end the action.
	Renew func(ctx context.Context, location string) (string, error)
}

// Changed is what an operator's action did to a message, or would do.
type Changed struct {
	Before, After inbox.Message
	Lane          *inbox.Lane // where it is now, as it was found; nil: it had no row
	// Late: later messages of its lane are through. It runs all the same, and is marked.
	Late bool
}

// Reopen sets a parked message back to RECEIVED, in its old place in the order, wakes its lane and writes down who did it
// and why, in one transaction. Of several at once one wins, and the others find it open. What is finished is reopened only
// by force, and only while its payload is there, which then is kept again: an object as a new generation, which the row
// names from this transaction on. If the transaction fails, the row names the old generation, and the next reopen, or
// reconcile, takes the new one for it.
//
// Errors: inbox.ErrNotFound; a *RefusedError; one of Renew. After any other, Show tells whether it was done.
func (s *Store) Reopen(ctx context.Context, r Reopening) (Changed, error) {
	renewed, err := s.renew(ctx, r)
	if err != nil {
		return Changed{}, fmt.Errorf("reopen message %s: %w", r.ID, err)
	}
	var changed Changed
	action := "reopen"
	act := func(ctx context.Context, txn reader, write func([]*spanner.Mutation) error) error {
		var expires bool
		var err error
		if changed, expires, err = planReopen(ctx, txn, r); err != nil {
			return err
		}
		action = "reopen"
		if r.Force && changed.Before.Status.Finished() {
			action = "reopen-forced"
		}
		var moved []*spanner.Mutation
		if changed.Before.Status.Finished() && changed.Before.PayloadLocation != "" && !r.DryRun {
			if changed.Before.PayloadLocation != renewed.from {
				return refuse("its payload has moved meanwhile; try again")
			}
			changed.After.PayloadLocation = renewed.to
			moved = append(moved, writeLocation(&changed.After))
		}
		mutations := []*spanner.Mutation{writeState(&changed.After), wakeLane(&changed.After), s.audit(auditEntry{
			Consumer: changed.Before.Consumer, Actor: inbox.Text(r.Actor, 256), Action: action, Reason: r.Reason, InboxID: r.ID,
			LaneID: changed.Before.LaneID, Before: &changed.Before, After: &changed.After,
		})}
		if expires {
			mutations = append(mutations, keepPayload(r.ID))
		}
		return write(append(mutations, moved...))
	}
	if err := s.operate(ctx, "inbox-reopen", r.DryRun, act); err != nil {
		var refused *RefusedError
		if renewed.to != "" && errors.As(err, &refused) {
			// Another one was quicker, and the generation that the row names now has gone with ours.
			_, moveErr := s.Relocate(ctx, Relocation{ID: r.ID, To: renewed.to, Actor: r.Actor, Action: "reopen-forced", Reason: r.Reason})
			err = errors.Join(err, moveErr)
		}
		return Changed{}, fmt.Errorf("reopen message %s: %w", r.ID, s.moved(ctx, r.ID, err))
	}
	return changed, nil
}

// renewal is a payload's object that was made anew; empty: it was not.
type renewal struct{ from, to string }

// renew makes the object anew where the reopen needs that and nothing speaks against it: what would be refused costs nothing.
func (s *Store) renew(ctx context.Context, r Reopening) (renewal, error) {
	if !r.Force || r.DryRun || r.Renew == nil {
		return renewal{}, nil
	}
	txn := s.client.ReadOnlyTransaction()
	defer txn.Close()
	changed, _, err := planReopen(ctx, txn, r)
	var refused *RefusedError
	switch {
	case errors.As(err, &refused), errors.Is(err, inbox.ErrNotFound):
		return renewal{}, nil // the transaction says so
	case err != nil:
		return renewal{}, err
	case !changed.Before.Status.Finished() || changed.Before.PayloadLocation == "":
		return renewal{}, nil
	}
	to, err := r.Renew(ctx, changed.Before.PayloadLocation)
	if err != nil {
		return renewal{}, err
	}
	return renewal{from: changed.Before.PayloadLocation, to: to}, nil
}

func writeLocation(m *inbox.Message) *spanner.Mutation {
	return spanner.Update("Messages", []string{"InboxId", "PayloadLocation"}, []any{m.ID, nullString(m.PayloadLocation)})
}

// operate runs an operator's action: in a read-write transaction, or dry on a snapshot of the database.
func (s *Store) operate(ctx context.Context, tag string, dry bool, act func(ctx context.Context, txn reader, write func([]*spanner.Mutation) error) error) error {
	if dry {
		txn := s.client.ReadOnlyTransaction()
		defer txn.Close()
		return act(ctx, txn, func([]*spanner.Mutation) error { return nil })
	}
	_, err := s.write(ctx, tag, func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
		return act(ctx, txn, txn.BufferWrite)
	})
	var refused *RefusedError
	if err != nil && !definite(err) && !errors.As(err, &refused) && !errors.Is(err, inbox.ErrNotFound) {
		return fmt.Errorf("the outcome is unknown, look at the message before trying again: %w", err)
	}
	return err
}

// planReopen decides by what the transaction reads. expires says that the payload has a time to be deleted at.
func planReopen(ctx context.Context, txn reader, r Reopening) (changed Changed, expires bool, err error) {
	messages, err := readMessages(ctx, txn, []string{r.ID})
	if err != nil {
		return Changed{}, false, err
	}
	m, ok := messages[r.ID]
	if !ok {
		return Changed{}, false, inbox.ErrNotFound
	}
	switch {
	case m.Status == inbox.Received || m.Status == inbox.Retrying:
		return Changed{}, false, refuse("already open (%s)", m.Status)
	case m.Status == inbox.Processing:
		return Changed{}, false, refuse("being handled right now (PROCESSING); wait until its lease has ended and look again")
	case m.Status.Finished() && !r.Force:
		return Changed{}, false, refuse("finished (%s); --force reopens it all the same, and it then runs a second time", m.Status)
	case m.Route == "":
		return Changed{}, false, refuse("it has no route (%s), so that a reopen would only park it again; use reroute", m.Reason)
	}
	there, expires, err := readPayloadPurge(ctx, txn, r.ID)
	if err != nil {
		return Changed{}, false, err
	}
	if !there {
		return Changed{}, false, refuse("its payload has been deleted, so that there is nothing to send")
	}
	changed = Changed{Before: m, After: m}
	inbox.StartAfresh(&changed.After)
	return changed, expires, changed.lookAtLane(ctx, txn)
}

// lookAtLane notes what the lane that the message is to run in says of it.
func (c *Changed) lookAtLane(ctx context.Context, txn reader) error {
	lanes, err := readLanes(ctx, txn, []string{c.After.LaneID})
	if err != nil {
		return err
	}
	if lane, ok := lanes[c.After.LaneID]; ok {
		c.Lane = &lane
		c.Late = !lane.Last.IsZero() && c.After.Position().Before(lane.Last)
	}
	return nil
}

// readPayloadPurge reports whether the payload's row is there, and whether it is to be deleted one day. It does not read
// the body.
func readPayloadPurge(ctx context.Context, txn reader, id string) (there, expires bool, err error) {
	rows := txn.ReadWithOptions(ctx, "Payloads", keySet([]string{id}), []string{"PurgeAt"}, nil)
	err = rows.Do(func(row *spanner.Row) error {
		var purge spanner.NullTime
		there = true
		if err := row.Columns(&purge); err != nil {
			return err
		}
		expires = purge.Valid
		return nil
	})
	if err != nil {
		return false, false, fmt.Errorf("look for the payload: %w", err)
	}
	return there, expires, nil
}

func keepPayload(id string) *spanner.Mutation {
	return spanner.Update("Payloads", []string{"InboxId", "PurgeAt"}, []any{id, spanner.NullTime{}})
}
