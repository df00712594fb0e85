package spannerstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// Claim takes leases on lanes and records an attempt for each message it hands out, in one transaction. What it returns
// may be called: a claim whose commit had no definite answer is read back by owner and token first.
//
// The lease of what it returns runs from before the call: a worker measures it on its own monotonic clock.
func (s *Store) Claim(ctx context.Context, req inbox.ClaimRequest, clock inbox.Clock, rng *rand.Rand) (inbox.ClaimPlan, error) {
	var plan inbox.ClaimPlan
	_, err := s.write(ctx, "inbox-claim", func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
		var err error
		if plan, err = s.planClaim(ctx, txn, req, clock, rng); err != nil {
			return err
		}
		return txn.BufferWrite(s.claimMutations(req, plan))
	})
	if err == nil {
		return plan, nil
	}
	err = fmt.Errorf("claim messages: %w", err)
	if definite(err) || len(plan.Claimed) == 0 {
		return inbox.ClaimPlan{}, err
	}
	return s.readBackClaim(ctx, plan, err)
}

func (s *Store) planClaim(ctx context.Context, txn *spanner.ReadWriteTransaction, req inbox.ClaimRequest, clock inbox.Clock, rng *rand.Rand) (inbox.ClaimPlan, error) {
	lanes, err := readLanes(ctx, txn, req.LaneIDs)
	if err != nil {
		return inbox.ClaimPlan{}, err
	}
	now := clock.Earliest(s.now())
	var open []inbox.Lane
	var ids []string
	for _, id := range req.LaneIDs {
		if lane, ok := lanes[id]; ok {
			delete(lanes, id) // a lane that is named twice would be handed out twice, under one lease
			open = append(open, lane)
			if !lane.Leased(now) && lane.Due(now) {
				ids = append(ids, id)
			}
		}
	}
	queues, err := readQueues(ctx, txn, ids, func(string) int { return req.PerLane })
	if err != nil {
		return inbox.ClaimPlan{}, err
	}
	// The heads of all lanes, and of each queue as much as the batch can take.
	var wanted []string
	for depth := 0; depth < req.PerLane; depth++ {
		if depth > 0 && len(wanted) >= req.Batch+len(ids) {
			for _, id := range ids {
				queues[id] = queues[id][:min(depth, len(queues[id]))]
			}
			break
		}
		for _, id := range ids {
			if depth < len(queues[id]) {
				wanted = append(wanted, queues[id][depth].ID)
			}
		}
	}
	messages := map[string]*inbox.Message{}
	if len(wanted) > 0 {
		if messages, err = readControl(ctx, txn, wanted); err != nil {
			return inbox.ClaimPlan{}, err
		}
	}
	for id, queue := range queues {
		for i, m := range queue {
			full, ok := messages[m.ID]
			if !ok {
				return inbox.ClaimPlan{}, fmt.Errorf("message %s is in its lane's index and not in the table", m.ID)
			}
			queue[i] = full
		}
		queues[id] = queue
		if len(queue) > 0 && queue[0].Waits() && !queue[0].NextAttemptAt.After(now) {
			if queue[0].Twin, err = readTwin(ctx, txn, queue[0]); err != nil {
				return inbox.ClaimPlan{}, err
			}
		}
	}
	engines, err := readEngines(ctx, txn, req.Consumer)
	if err != nil {
		return inbox.ClaimPlan{}, err
	}
	local := s.now()
	return inbox.PlanClaim(req, now, clock.Latest(local), rng, open, queues, engines), nil
}

func (s *Store) claimMutations(req inbox.ClaimRequest, plan inbox.ClaimPlan) []*spanner.Mutation {
	var mutations []*spanner.Mutation
	for _, lane := range plan.Lanes {
		mutations = append(mutations, claimLane(lane))
	}
	for _, m := range plan.Messages {
		mutations = append(mutations, writeState(m))
	}
	for _, attempt := range plan.Lost {
		mutations = append(mutations, s.writeAttempt(attempt))
	}
	for _, m := range plan.Afresh {
		before := plan.Before[m.ID]
		mutations = append(mutations, s.audit(auditEntry{
			Consumer: m.Consumer, Actor: "database", Action: "reopen-by-hand", InboxID: m.ID, LaneID: m.LaneID,
			Reason: "the row was set to RECEIVED by a statement", Before: &before, After: m,
		}))
	}
	for _, e := range plan.Engines {
		mutations = append(mutations, writeEngine(req.Consumer, e))
	}
	return mutations
}

// readBackClaim finds out whether a claim of unknown outcome was committed: all of it, or nothing.
func (s *Store) readBackClaim(ctx context.Context, plan inbox.ClaimPlan, cause error) (inbox.ClaimPlan, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	first := plan.Claimed[0].Lane
	lanes, err := readLanes(ctx, s.single(readAs{tag: "inbox-claim"}), []string{first.ID})
	if err != nil {
		return inbox.ClaimPlan{}, fmt.Errorf("%w; reading it back: %w", cause, err)
	}
	if lane := lanes[first.ID]; lane.LeaseOwner == first.LeaseOwner && lane.LeaseToken == first.LeaseToken {
		return plan, nil
	}
	return inbox.ClaimPlan{}, cause
}
