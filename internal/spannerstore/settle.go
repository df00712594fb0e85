package spannerstore

import (
	"context"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// settleMode says how a settlement differs from the first try.
type settleMode struct {
	again        bool // an earlier try may have been committed
	keepPayloads bool // a payload row is gone: leave all of them alone
}

// Settle writes results in one transaction, each only where the lease and the recorded attempt still stand. Where the
// transaction fails, each lane is settled alone, so that one bad row does not hold up the others. The error is the last
// one met; lanes that failed even alone are named in the outcome, and may be tried again: what an earlier try committed
// after all is recognised.
func (s *Store) Settle(ctx context.Context, req inbox.SettleRequest, clock inbox.Clock) (inbox.Settled, error) {
	mode := settleMode{again: req.Again}
	plan, err := s.settle(ctx, req, clock, mode)
	if err == nil {
		return inbox.Settled{Plans: []inbox.SettlePlan{plan}}, nil
	}
	mode.again = mode.again || !definite(err)
	var settled inbox.Settled
	var failed error
	for _, lane := range req.Lanes {
		one := req
		one.Lanes = []inbox.LaneSettlement{lane}
		plan, err := s.settle(ctx, one, clock, mode)
		if spanner.ErrCode(err) == codes.NotFound {
			plan, err = s.settle(ctx, one, clock, settleMode{again: mode.again, keepPayloads: true})
		}
		if err != nil {
			failed = fmt.Errorf("settle lane %s: %w", lane.Lane.ID, err)
			settled.Failed = append(settled.Failed, lane.Lane.ID)
			continue
		}
		settled.Plans = append(settled.Plans, plan)
	}
	return settled, failed
}

func (s *Store) settle(ctx context.Context, req inbox.SettleRequest, clock inbox.Clock, mode settleMode) (inbox.SettlePlan, error) {
	var plan inbox.SettlePlan
	_, err := s.write(ctx, "inbox-settle", func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
		var err error
		if plan, err = s.planSettle(ctx, txn, req, clock, mode); err != nil {
			return err
		}
		return txn.BufferWrite(s.settleMutations(req, plan, clock.Latest(s.now()), mode))
	})
	if err != nil {
		return inbox.SettlePlan{}, fmt.Errorf("settle results: %w", err)
	}
	return plan, nil
}

func (s *Store) planSettle(ctx context.Context, txn *spanner.ReadWriteTransaction, req inbox.SettleRequest, clock inbox.Clock, mode settleMode) (inbox.SettlePlan, error) {
	var released, ids []string
	perLane := map[string]int{}
	for _, ls := range req.Lanes {
		if ls.Release {
			released = append(released, ls.Lane.ID)
			// Those being settled may all leave the queue; the one behind them is then its head.
			perLane[ls.Lane.ID] = len(ls.Results) + 1
		}
		for _, r := range ls.Results {
			ids = append(ids, r.Message.ID)
		}
	}
	lanes, err := readLanesToSettle(ctx, txn, req.Lanes)
	if err != nil {
		return inbox.SettlePlan{}, err
	}
	stored := map[string]inbox.Stored{}
	if len(ids) > 0 {
		rows := txn.Read(ctx, "Messages", keySet(ids), []string{"InboxId", "Status", "Attempts"})
		err := rows.Do(func(row *spanner.Row) error {
			var id, status string
			var attempts int64
			if err := row.Columns(&id, &status, &attempts); err != nil {
				return err
			}
			stored[id] = inbox.Stored{Status: inbox.Status(status), Attempts: attempts}
			return nil
		})
		if err != nil {
			return inbox.SettlePlan{}, fmt.Errorf("read the messages to settle: %w", err)
		}
	}
	queues, err := readQueues(ctx, txn, released, func(lane string) int { return perLane[lane] })
	if err != nil {
		return inbox.SettlePlan{}, err
	}
	engines, err := readEngines(ctx, txn, req.Consumer)
	if err != nil {
		return inbox.SettlePlan{}, err
	}
	local := s.now()
	return inbox.PlanSettle(req, clock.Earliest(local), clock.Latest(local), lanes, stored, queues, engines, mode.again), nil
}

func (s *Store) settleMutations(req inbox.SettleRequest, plan inbox.SettlePlan, latest time.Time, mode settleMode) []*spanner.Mutation {
	var mutations []*spanner.Mutation
	for _, m := range plan.Messages {
		mutations = append(mutations, writeState(m))
		if m.Status.Finished() && !mode.keepPayloads {
			mutations = append(mutations, spanner.Update("Payloads", []string{"InboxId", "PurgeAt"}, []any{m.ID, latest.Add(req.PayloadRetention)}))
		}
	}
	for _, a := range plan.Attempts {
		mutations = append(mutations, s.writeAttempt(a))
	}
	for _, lane := range plan.Lanes {
		mutations = append(mutations, settleLane(lane))
	}
	for _, e := range plan.Engines {
		mutations = append(mutations, writeEngine(req.Consumer, e))
	}
	return mutations
}
