package spannerstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// maxMoved bounds how many recorded attempts and redeliveries a message takes along: a transaction has room for some
// thousand rows. Earlier ones than the last so many are left behind.
const maxMoved = 1000

// mayMove refuses to move a message to an identity that another one has, and one whose engine may have it under its old id:
// an engine that takes a repetition for one knows it by the id.
func mayMove(ctx context.Context, txn reader, c *Changed) error {
	before, after := &c.Before, &c.After
	if before.ID == after.ID {
		return nil
	}
	owners, err := readMessages(ctx, txn, []string{after.ID})
	if err != nil {
		return err
	}
	if owner, taken := owners[after.ID]; taken {
		content := "and other content, so that one of the two contradicts the other"
		if owner.ContentSHA256 == after.ContentSHA256 {
			content = "and the same content, so that this one is a repetition; it can be discarded"
		}
		return refuse("message %s (%s) has the identity that route %s would give it, %s", owner.ID, owner.Status, after.Route, content)
	}
	if after.OutcomeUnknown {
		return refuse("the outcome of its last attempt is unknown, its engine may have it under this id, and route %s would give it another identity", after.Route)
	}
	return nil
}

// moveMutations writes a message, and all that belongs to it, anew under its new id, in place of the old row. The audit has
// a note under both ids.
func (s *Store) moveMutations(ctx context.Context, txn reader, r Rerouting, c Changed, to Rerouted) ([]*spanner.Mutation, error) {
	old, m := c.Before.ID, &c.After
	deliveries, err := copyChildren(ctx, txn, "Deliveries", old, m.ID, []string{"InboxId", "DeliveryId", "ReceivedAt", "MessageId",
		"DeliveryAttempt", "Subscription", "Revision"})
	if err != nil {
		return nil, err
	}
	attempts, err := copyChildren(ctx, txn, "Attempts", old, m.ID, []string{"InboxId", "AttemptId", "EndedAt", "Number", "StartedAt",
		"Verdict", "Late", "ErrorCode", "ErrorMessage", "Engine", "Owner", "Revision"})
	if err != nil {
		return nil, err
	}
	mutations := []*spanner.Mutation{spanner.Delete("Messages", spanner.Key{old})} // and its children
	mutations = append(mutations, insertRow(m, m.ReceivedAt),
		spanner.Insert("Payloads", []string{"InboxId", "Body", "ContentType"}, []any{m.ID, body(to.inline(m)), nullString(to.ContentType)}))
	mutations = append(mutations, deliveries...)
	mutations = append(mutations, attempts...)
	mutations = append(mutations, writeState(m), wakeLane(m))
	for _, id := range []string{old, m.ID} {
		mutations = append(mutations, s.audit(auditEntry{Consumer: m.Consumer, Actor: inbox.Text(r.Actor, 256), Action: "reroute",
			Reason: r.Reason, InboxID: id, LaneID: m.LaneID, Before: &c.Before, After: m}))
	}
	return append(mutations, wakeOldLane(c)...), nil
}

// copyChildren inserts the last rows of a table that belong to one message for another one, too. The columns begin with the
// message's id, the row's own, and its time.
func copyChildren(ctx context.Context, txn reader, table, from, to string, columns []string) ([]*spanner.Mutation, error) {
	type child struct {
		at     spanner.NullTime
		values []any
	}
	var children []child
	rows := txn.ReadWithOptions(ctx, table, spanner.Key{from}.AsPrefix(), columns, nil)
	err := rows.Do(func(row *spanner.Row) error {
		c := child{values: []any{to}}
		if err := row.Column(2, &c.at); err != nil {
			return err
		}
		for i := 1; i < len(columns); i++ {
			var value spanner.GenericColumnValue
			if err := row.Column(i, &value); err != nil {
				return err
			}
			c.values = append(c.values, value)
		}
		children = append(children, c)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the %s of message %s: %w", table, from, err)
	}
	sortByTime(children, func(c child) time.Time { return c.at.Time })
	children = children[max(0, len(children)-maxMoved):]
	mutations := make([]*spanner.Mutation, len(children))
	for i, c := range children {
		mutations[i] = spanner.Insert(table, columns, c.values)
	}
	return mutations, nil
}

// MovedError says that a message has another id since it was rerouted. It is an inbox.ErrNotFound.
type MovedError struct{ ID, To string }

// Error says which.
func (e *MovedError) Error() string {
	return "message " + e.ID + " has the id " + e.To + " since it was rerouted"
}

// Is makes it an inbox.ErrNotFound.
func (e *MovedError) Is(target error) bool { return target == inbox.ErrNotFound }

// moved returns a *MovedError in place of an inbox.ErrNotFound, where the audit says so. Other errors stay as they are.
func (s *Store) moved(ctx context.Context, id string, err error) error {
	if !errors.Is(err, inbox.ErrNotFound) {
		return err
	}
	txn := s.snapshot(shows)
	defer txn.Close()
	entries, readErr := readAudit(ctx, txn, id)
	if readErr != nil {
		return errors.Join(err, readErr)
	}
	for _, e := range entries {
		if after := textOf(e.After, "inboxId"); after != "" && after != id && textOf(e.Before, "inboxId") == id {
			return &MovedError{ID: id, To: after}
		}
	}
	return err
}
