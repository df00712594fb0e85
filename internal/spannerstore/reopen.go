package spannerstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

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

// Reopening is a person's wish to have messages tried again.
type Reopening struct {
	// IDs are of one lane, in the order of their positions, and at most MaxReopened: see InLanes.
	IDs    []string
	Actor  string // who
	Reason string // why
	Force  bool   // finished rows, too
	DryRun bool   // decide, and write nothing
	// Renew makes the object that keeps a finished message's payload anew, from its location, and returns the new one. The
	// old generation is marked for deletion, or is about to be, and nothing takes that back. It is called before the
	// transaction, not in a dry run, and its error ends the action for its message and those behind it.
	Renew func(ctx context.Context, location string) (string, error)
}

// MaxReopened bounds how many messages are reopened in one transaction.
const MaxReopened = 500

// ErrBehind: a message was not tried, because one before it in its lane failed.
var ErrBehind = errors.New("not tried: a message before it in its lane failed, and would come after it")

// Reopened is what became of one of them.
type Reopened struct {
	ID      string
	Changed Changed
	// Err is nil where it was done. Otherwise inbox.ErrNotFound, a *MovedError too; a *RefusedError; ErrBehind; one of Renew.
	// After any other, Show tells whether it was done.
	Err error
}

// Changed is what an operator's action did to a message, or would do.
type Changed struct {
	Before, After inbox.Message
	Lane          *inbox.Lane // where it is now, as it was found; nil: it had no row
	// Late: later messages of its lane are through. It runs all the same, and is marked.
	Late bool

	expires bool // its payload is to be deleted one day
}

// InLanes sorts messages for Reopen: into lanes, in the order in which the ids name them first, and in each by position. An
// id that has no message stands alone.
func (s *Store) InLanes(ctx context.Context, ids []string) ([][]string, error) {
	var lanes [][]string
	at := map[string]int{}
	positions := map[string]inbox.Position{}
	txn := s.snapshot(shows)
	defer txn.Close()
	for chunk := range slices.Chunk(ids, 1000) {
		messages, err := readControl(ctx, txn, chunk)
		if err != nil {
			return nil, fmt.Errorf("look for the lanes of %d messages: %w", len(ids), err)
		}
		for _, id := range chunk {
			m, ok := messages[id]
			if !ok {
				lanes = append(lanes, []string{id})
				continue
			}
			positions[id] = m.Position()
			i, ok := at[m.LaneID]
			if !ok {
				i = len(lanes)
				at[m.LaneID] = i
				lanes = append(lanes, nil)
			}
			lanes[i] = append(lanes[i], id)
		}
	}
	for _, lane := range lanes {
		slices.SortFunc(lane, func(a, b string) int { return positions[a].Compare(positions[b]) })
	}
	return lanes, nil
}

// Reopen sets parked messages of one lane back to RECEIVED, in their old places in the order, wakes the lane and writes down
// who did it and why, in one transaction: no relay can take a later one of them while an earlier one is parked still. One
// that is refused is left out. Of several operators at once one wins, and the others find the message open. What is finished
// is reopened only by force, and only while its payload is there, which then is kept again: an object as a new generation,
// which the row names from this transaction on. If the transaction fails, the row names the old generation, and the next
// reopen, or reconcile, takes the new one for it.
//
// There is one answer for each id, in their order.
func (s *Store) Reopen(ctx context.Context, r Reopening) []Reopened {
	answers := make([]Reopened, len(r.IDs))
	at := map[string]int{}
	for i, id := range r.IDs {
		answers[i], at[id] = Reopened{ID: id, Err: ErrBehind}, i
	}
	renewed := map[string]renewal{}
	var ids []string
	var refused *RefusedError
	for i, id := range r.IDs {
		made, err := s.renew(ctx, r, id)
		if err != nil {
			answers[i].Err = err
			if errors.As(err, &refused) {
				continue
			}
			break
		}
		renewed[id] = made
		ids = append(ids, id)
	}
	var tried []Reopened
	act := func(ctx context.Context, txn reader, write func([]*spanner.Mutation) error) error {
		var mutations []*spanner.Mutation
		var err error
		if tried, err = planReopen(ctx, txn, r, ids); err != nil {
			return err
		}
		for i := range tried {
			if tried[i].Err == nil {
				mutations = append(mutations, s.reopenMutations(r, &tried[i], renewed[tried[i].ID])...)
			}
		}
		if len(mutations) == 0 {
			return refuse("none of them can be reopened") // said of each
		}
		return write(mutations)
	}
	if len(ids) > 0 {
		err := s.operate(ctx, "inbox-reopen", r.DryRun, act)
		for i, id := range ids {
			if err == nil || errors.As(err, &refused) {
				answers[at[id]] = tried[i]
			} else {
				answers[at[id]].Err = err
			}
		}
	}
	for i := range answers {
		id, answer := answers[i].ID, &answers[i]
		if answer.Err == nil || errors.Is(answer.Err, ErrBehind) {
			continue
		}
		if errors.As(answer.Err, &refused) && renewed[id].to != "" {
			// Another one was quicker, and the generation that the row names now has gone with ours.
			_, moveErr := s.Relocate(ctx, Relocation{ID: id, To: renewed[id].to, Actor: r.Actor, Action: "reopen-forced", Reason: r.Reason})
			answer.Err = errors.Join(answer.Err, moveErr)
		}
		answer.Changed, answer.Err = Changed{}, fmt.Errorf("reopen message %s: %w", id, s.moved(ctx, id, answer.Err))
	}
	return answers
}

// reopenMutations writes one of them; it may be refused here still.
func (s *Store) reopenMutations(r Reopening, one *Reopened, renewed renewal) []*spanner.Mutation {
	changed := &one.Changed
	action := "reopen"
	if r.Force && changed.Before.Status.Finished() {
		action = "reopen-forced"
	}
	var moved []*spanner.Mutation
	if changed.Before.Status.Finished() && changed.Before.PayloadLocation != "" && !r.DryRun {
		if changed.Before.PayloadLocation != renewed.from {
			one.Err = refuse("its payload has moved meanwhile; try again")
			return nil
		}
		changed.After.PayloadLocation = renewed.to
		moved = append(moved, writeLocation(&changed.After))
	}
	mutations := []*spanner.Mutation{writeState(&changed.After), wakeLane(&changed.After), s.audit(auditEntry{
		Consumer: changed.Before.Consumer, Actor: inbox.Text(r.Actor, 256), Action: action, Reason: r.Reason, InboxID: one.ID,
		LaneID: changed.Before.LaneID, Before: &changed.Before, After: &changed.After,
	})}
	if changed.expires {
		mutations = append(mutations, keepPayload(one.ID))
	}
	return append(mutations, moved...)
}

// renewal is a payload's object that was made anew; empty: it was not.
type renewal struct{ from, to string }

// renew makes the object anew where the reopen needs that and nothing speaks against it: what would be refused costs nothing.
func (s *Store) renew(ctx context.Context, r Reopening, id string) (renewal, error) {
	if !r.Force || r.DryRun || r.Renew == nil {
		return renewal{}, nil
	}
	txn := s.snapshot(shows)
	defer txn.Close()
	planned, err := planReopen(ctx, txn, r, []string{id})
	if err != nil {
		return renewal{}, err
	}
	before := &planned[0].Changed.Before
	if planned[0].Err != nil || !before.Status.Finished() || before.PayloadLocation == "" {
		return renewal{}, nil // the transaction says so
	}
	to, err := r.Renew(ctx, before.PayloadLocation)
	if err != nil {
		return renewal{}, err
	}
	return renewal{from: before.PayloadLocation, to: to}, nil
}

func writeLocation(m *inbox.Message) *spanner.Mutation {
	return spanner.Update("Messages", []string{"InboxId", "PayloadLocation"}, []any{m.ID, nullString(m.PayloadLocation)})
}

// operate runs an operator's action: in a read-write transaction, or dry on a snapshot of the database.
func (s *Store) operate(ctx context.Context, tag string, dry bool, act func(ctx context.Context, txn reader, write func([]*spanner.Mutation) error) error) error {
	if dry {
		txn := s.snapshot(shows)
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

// planReopen decides about each by what the transaction reads.
func planReopen(ctx context.Context, txn reader, r Reopening, ids []string) ([]Reopened, error) {
	messages, err := readMessages(ctx, txn, ids)
	if err != nil {
		return nil, err
	}
	payloads, err := readPayloadPurges(ctx, txn, ids)
	if err != nil {
		return nil, err
	}
	planned := make([]Reopened, len(ids))
	for i, id := range ids {
		one := &planned[i]
		one.ID = id
		m, ok := messages[id]
		if !ok {
			one.Err = inbox.ErrNotFound
			continue
		}
		purge, there := payloads[id]
		if one.Err = mayReopen(&m, r.Force, there); one.Err != nil {
			continue
		}
		one.Changed = Changed{Before: m, After: m, expires: purge.Valid}
		inbox.StartAfresh(&one.Changed.After)
		if err := one.Changed.lookAtLane(ctx, txn); err != nil {
			return nil, err
		}
	}
	return planned, nil
}

// mayReopen refuses what must not be reopened, or would not be helped by it.
func mayReopen(m *inbox.Message, force, payload bool) error {
	switch {
	case m.Status == inbox.Received || m.Status == inbox.Retrying:
		return refuse("already open (%s)", m.Status)
	case m.Status == inbox.Processing:
		return refuse("being handled right now (PROCESSING); wait until its lease has ended and look again")
	case m.Status.Finished() && !force:
		return refuse("finished (%s); --force reopens it all the same, and it then runs a second time", m.Status)
	case m.Route == "":
		return refuse("it has no route (%s), so that a reopen would only park it again; use reroute", m.Reason)
	case m.UnfitOnArrival():
		return refuse("it did not fit its route when it arrived, and a reopen keeps the key, order and identity that it was stored " +
			"with; correct the route and use reroute, which evaluates them again")
	case !payload:
		return refuse("its payload has been deleted, so that there is nothing to send")
	}
	return nil
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

// readPayloadPurges returns when payloads are to be deleted, if at all. One whose row is not there is missing from the
// answer. It does not read the bodies.
func readPayloadPurges(ctx context.Context, txn reader, ids []string) (map[string]spanner.NullTime, error) {
	purges := make(map[string]spanner.NullTime, len(ids))
	rows := txn.ReadWithOptions(ctx, "Payloads", keySet(ids), []string{"InboxId", "PurgeAt"}, nil)
	err := rows.Do(func(row *spanner.Row) error {
		var id string
		var purge spanner.NullTime
		err := row.Columns(&id, &purge)
		purges[id] = purge
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for the payloads: %w", err)
	}
	return purges, nil
}

// hasPayload reports whether the payload's row is there.
func hasPayload(ctx context.Context, txn reader, id string) (bool, error) {
	purges, err := readPayloadPurges(ctx, txn, []string{id})
	_, there := purges[id]
	return there, err
}

func keepPayload(id string) *spanner.Mutation {
	return spanner.Update("Payloads", []string{"InboxId", "PurgeAt"}, []any{id, spanner.NullTime{}})
}
