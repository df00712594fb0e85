package spannerstore

import (
	"context"
	"fmt"

	"cloud.google.com/go/spanner"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

var laneColumns = []string{
	"LaneId", "Consumer", "CorrelationKey", "WokenAt", "DueAt", "LeaseOwner", "LeaseToken", "LeaseUntil", "HeldBy", "WhyNotDue",
	"LastSequence", "LastOrderedAt", "LastReceivedAt", "LastInboxId", "PurgeAt", "Shard",
}

// readLanes reads lanes by key.
func readLanes(ctx context.Context, txn reader, ids []string) (map[string]inbox.Lane, error) {
	lanes := make(map[string]inbox.Lane, len(ids))
	rows := txn.ReadWithOptions(ctx, "Lanes", keySet(ids), laneColumns, nil)
	err := rows.Do(func(row *spanner.Row) error {
		var l inbox.Lane
		var key, owner, heldBy, why, lastID spanner.NullString
		var woken, due, until, lastOrdered, lastReceived, purge spanner.NullTime
		var lastSequence spanner.NullInt64
		if err := row.Columns(&l.ID, &l.Consumer, &key, &woken, &due, &owner, &l.LeaseToken, &until, &heldBy, &why,
			&lastSequence, &lastOrdered, &lastReceived, &lastID, &purge, &l.Shard); err != nil {
			return err
		}
		l.Key, l.LeaseOwner, l.HeldBy, l.WhyNotDue = key.StringVal, owner.StringVal, heldBy.StringVal, why.StringVal
		l.WokenAt, l.DueAt, l.LeaseUntil, l.PurgeAt = woken.Time, due.Time, until.Time, purge.Time
		l.Last = inbox.Position{Sequence: lastSequence.Int64, OrderedAt: lastOrdered.Time, ReceivedAt: lastReceived.Time, InboxID: lastID.StringVal}
		lanes[l.ID] = l
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read lanes: %w", err)
	}
	return lanes, nil
}

// settledColumns are what a settlement reads of a lane: nothing that receives write. A receive would otherwise wait for the
// settlement, or abort it, on each lane that messages keep coming to.
var settledColumns = []string{
	"LaneId", "DueAt", "LeaseOwner", "LeaseToken", "LeaseUntil", "HeldBy", "WhyNotDue", "LastSequence", "LastOrderedAt",
	"LastReceivedAt", "LastInboxId",
}

// readLanesToSettle reads lanes as far as a settlement needs them. Consumer and key are the claim's, which do not change;
// WokenAt is not known, and a leased lane has no PurgeAt.
func readLanesToSettle(ctx context.Context, txn reader, settlements []inbox.LaneSettlement) (map[string]inbox.Lane, error) {
	claimed := make(map[string]inbox.Lane, len(settlements))
	var ids []string
	for _, s := range settlements {
		ids = append(ids, s.Lane.ID)
		claimed[s.Lane.ID] = s.Lane
	}
	lanes := make(map[string]inbox.Lane, len(ids))
	rows := txn.ReadWithOptions(ctx, "Lanes", keySet(ids), settledColumns, nil)
	err := rows.Do(func(row *spanner.Row) error {
		var l inbox.Lane
		var owner, heldBy, why, lastID spanner.NullString
		var due, until, lastOrdered, lastReceived spanner.NullTime
		var lastSequence spanner.NullInt64
		if err := row.Columns(&l.ID, &due, &owner, &l.LeaseToken, &until, &heldBy, &why, &lastSequence, &lastOrdered, &lastReceived,
			&lastID); err != nil {
			return err
		}
		l.Consumer, l.Key = claimed[l.ID].Consumer, claimed[l.ID].Key
		l.LeaseOwner, l.HeldBy, l.WhyNotDue = owner.StringVal, heldBy.StringVal, why.StringVal
		l.DueAt, l.LeaseUntil = due.Time, until.Time
		l.Last = inbox.Position{Sequence: lastSequence.Int64, OrderedAt: lastOrdered.Time, ReceivedAt: lastReceived.Time, InboxID: lastID.StringVal}
		lanes[l.ID] = l
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read lanes to settle: %w", err)
	}
	return lanes, nil
}

// laneLease are the columns that the relay writes of a lane. WokenAt is not among them: only a claim clears it, and
// settling must not, or a wake-up that came meanwhile would be lost.
var laneLease = []string{
	"LaneId", "DueAt", "LeaseOwner", "LeaseToken", "LeaseUntil", "WhyNotDue", "LastSequence", "LastOrderedAt", "LastReceivedAt",
	"LastInboxId", "PurgeAt",
}

func settleLane(l inbox.Lane) *spanner.Mutation {
	return spanner.Update("Lanes", laneLease, laneLeaseValues(l))
}

func claimLane(l inbox.Lane) *spanner.Mutation {
	return spanner.Update("Lanes", append([]string{"WokenAt", "Shard"}, laneLease...),
		append([]any{spanner.NullTime{}, l.Shard}, laneLeaseValues(l)...))
}

func laneLeaseValues(l inbox.Lane) []any {
	return []any{
		l.ID, nullTime(l.DueAt), nullString(l.LeaseOwner), l.LeaseToken, nullTime(l.LeaseUntil), nullString(l.WhyNotDue),
		spanner.NullInt64{Int64: l.Last.Sequence, Valid: !l.Last.IsZero()}, nullTime(l.Last.OrderedAt),
		nullTime(l.Last.ReceivedAt), nullString(l.Last.InboxID), nullTime(l.PurgeAt),
	}
}

func keySet(ids []string) spanner.KeySet {
	keys := make([]spanner.Key, len(ids))
	for i, id := range ids {
		keys[i] = spanner.Key{id}
	}
	return spanner.KeySetFromKeys(keys...)
}
