package inbox

import (
	"cmp"
	"slices"
	"time"
)

// AttemptRecord is one attempt that failed, was late or was lost.
type AttemptRecord struct {
	Number       int64
	StartedAt    time.Time
	EndedAt      time.Time
	Verdict      string
	ErrorCode    string
	ErrorMessage string
	Engine       string
	Owner        string
	Revision     string
}

// Result is what became of one claimed message.
type Result struct {
	Message *Message // its state after the attempt
	Number  int64    // of the attempt, as the claim recorded it
	Engine  string
	Event   EngineEvent
	// Attempt is kept as a row of its own; nil for a first success and for what was not started.
	Attempt *AttemptRecord
	// Technical: the failure counts towards poison by what the engine answered others meanwhile.
	Technical bool
	// Refused: the failure is a refusal of our credentials. It is Technical where the engine accepts others with the same
	// ones; otherwise the attempt is given back.
	Refused bool
	// Verdict is kept in the Attempts row if the result turns out to be late.
	Verdict   string
	StartedAt time.Time
	EndedAt   time.Time
	// Type and TenantID are the message's own, as far as it was loaded; they are counted by.
	Type, TenantID string
}

// LaneSettlement carries results of one lane under one lease.
type LaneSettlement struct {
	Lane    Lane // as claimed
	Results []Result
	Release bool // these are the last: the lease ends with them
}

// SettleRequest settles results, in one transaction.
type SettleRequest struct {
	Consumer string
	Lanes    []LaneSettlement
	// Retention is how long finished rows and lanes stay, PayloadRetention how long finished payloads do.
	Retention        time.Duration
	PayloadRetention time.Duration
	Breakers         map[string]BreakerPolicy
	Poison           PoisonPolicy
	// Again: an earlier try at some of it failed, and may have been committed all the same.
	Again bool
}

// Settled is what became of a settlement.
type Settled struct {
	Plans  []SettlePlan
	Failed []string // lanes of which nothing was written, as far as is known
}

// Stored is what the transaction finds of a message that is to be settled.
type Stored struct {
	Status   Status
	Attempts int64
	Reason   Reason
}

// SettlePlan is what a settlement writes.
type SettlePlan struct {
	Messages []*Message
	Attempts []SettledAttempt
	Lanes    []Lane
	Engines  []EngineState
	Late     []string // results that came after their lease: nothing but an Attempts row is written of them
	Settled  []Result
	More     bool // a released lane has a head that is due
	Closed   bool // a breaker has closed: lanes that waited behind its probe are due in a moment
}

// SettledAttempt is an Attempts row to write.
type SettledAttempt struct {
	InboxID string
	AttemptRecord
	Late bool
}

// PlanSettle decides what a settlement at latest (a time not before the database's) writes. queues hold the first
// messages of each released lane's queue as this transaction reads them: those being settled too, in their old state.
// again says that an earlier try may have been committed: what already stands as it should is not late.
func PlanSettle(req SettleRequest, now, latest time.Time, lanes map[string]Lane, stored map[string]Stored, queues map[string][]*Message, engines map[string]EngineState, again bool) SettlePlan {
	var plan SettlePlan
	engines = applyEvents(req, latest, engines, &plan, func(r Result) bool {
		row := stored[r.Message.ID]
		return !again || (row.Status == Processing && row.Attempts == r.Number)
	})
	for _, ls := range req.Lanes {
		lane, ok := lanes[ls.Lane.ID]
		ours := ok && lane.LeaseOwner == ls.Lane.LeaseOwner && lane.LeaseToken == ls.Lane.LeaseToken
		settled := map[string]*Message{}
		for _, r := range ls.Results {
			row, exists := stored[r.Message.ID]
			if !exists {
				continue // deleted by hand
			}
			m := *r.Message
			if r.Refused && !refusesThisOne(r, engines[r.Engine], latest, req.Breakers[r.Engine]) {
				m.giveBack()
				m.LastFailedAt = latest
				r.Technical, r.Attempt = false, nil
			}
			if r.Technical && m.Status == Retrying {
				if CountFailure(&m, engines[r.Engine], req.Poison, latest) {
					m.Status, m.Reason, m.NextAttemptAt = Parked, Poisoned, time.Time{}
				}
			}
			if ours && row.Status == Processing && row.Attempts == r.Number {
				if m.Status.Finished() {
					m.ProcessedAt, m.PurgeAfter = latest, latest.Add(req.Retention)
					if lane.Last.IsZero() || lane.Last.Before(m.Position()) {
						lane.Last = m.Position()
					}
				}
				settled[m.ID] = &m
				r.Message = &m
				plan.Messages = append(plan.Messages, &m)
				plan.Settled = append(plan.Settled, r)
				if r.Attempt != nil {
					plan.Attempts = append(plan.Attempts, SettledAttempt{InboxID: m.ID, AttemptRecord: *r.Attempt})
				}
				continue
			}
			if again && row.Status == m.Status && row.Attempts == m.Attempts {
				if m.Status.Finished() {
					m.ProcessedAt = latest // what was written then is not read again; it was moments ago
				}
				r.Message = &m
				plan.Settled = append(plan.Settled, r)
				continue
			}
			if r.Verdict == "" {
				continue // nothing was sent: there is no result that could be late
			}
			plan.Late = append(plan.Late, m.ID)
			record := AttemptRecord{Number: r.Number, StartedAt: r.StartedAt, EndedAt: r.EndedAt,
				Verdict: r.Verdict, Engine: r.Engine, Owner: ls.Lane.LeaseOwner}
			if r.Attempt != nil {
				record = *r.Attempt
			}
			plan.Attempts = append(plan.Attempts, SettledAttempt{InboxID: m.ID, AttemptRecord: record, Late: true})
		}
		if !ours || (!ls.Release && len(settled) == 0) {
			continue
		}
		if ls.Release {
			plan.More = release(&lane, queues[lane.ID], settled, now, latest, req.Retention) || plan.More
		}
		plan.Lanes = append(plan.Lanes, lane)
	}
	return plan
}

// refusesThisOne reports whether a refusal is about its message: the engine, whose state is that after the settlement,
// accepts others.
func refusesThisOne(r Result, engine EngineState, now time.Time, policy BreakerPolicy) bool {
	return engine.answersOthers(r.Event, now, policy)
}

// giveBack undoes the attempt that a claim recorded, of a message that was not handled.
func (m *Message) giveBack() {
	m.Attempts--
	m.Status, m.NextAttemptAt = Received, m.PlannedAt
	if m.Attempts > 0 || m.OutcomeUnknown || m.LostWorkers > 0 {
		m.Status = Retrying
	}
}

// release ends the lease and says when the lane is due next, by its queue as it will be.
func release(lane *Lane, queue []*Message, settled map[string]*Message, now, latest time.Time, retention time.Duration) (more bool) {
	var head *Message
	for _, m := range queue {
		if after, ok := settled[m.ID]; ok {
			m = after
		}
		if m.Status.Open() || (m.Status == Parked && m.Blocks) {
			head = m
			break
		}
	}
	rest := RestOf(head, now)
	lane.LeaseOwner, lane.LeaseUntil = "", time.Time{}
	lane.DueAt, lane.WhyNotDue = rest.DueAt, rest.WhyNotDue
	if rest.Empty {
		lane.PurgeAt = lane.End(latest, retention)
	}
	return !rest.DueAt.IsZero() && !rest.DueAt.After(now)
}

// applyEvents brings the engines' states forward, in the order in which the calls ended: failures are in a row only where
// no answer came between them. Where an earlier try may have been committed, only those speak that it has not settled: an
// event counts once.
func applyEvents(req SettleRequest, now time.Time, engines map[string]EngineState, plan *SettlePlan, speaks func(Result) bool) map[string]EngineState {
	after := make(map[string]EngineState, len(engines))
	changed := map[string]bool{}
	var order []string
	for name, state := range engines {
		after[name] = state
	}
	var results []Result
	for _, ls := range req.Lanes {
		for _, r := range ls.Results {
			if speaks(r) {
				results = append(results, r)
			}
		}
	}
	slices.SortStableFunc(results, func(a, b Result) int { return cmp.Or(a.EndedAt.Compare(b.EndedAt), answersFirst(a, b)) })
	for _, r := range results {
		state := after[r.Engine]
		state.Name = r.Engine
		next, ok := state.Apply(r.Event, now, req.Breakers[r.Engine])
		after[r.Engine] = next
		plan.Closed = plan.Closed || (!state.OpenUntil.IsZero() && next.OpenUntil.IsZero())
		if ok && !changed[r.Engine] {
			changed[r.Engine] = true
			order = append(order, r.Engine)
		}
	}
	for _, name := range order {
		plan.Engines = append(plan.Engines, after[name])
	}
	return after
}

// answersFirst orders what ended in one moment: a failure is judged by what others were answered.
func answersFirst(a, b Result) int {
	switch answered := a.Event.Kind == EngineAnswered; {
	case answered == (b.Event.Kind == EngineAnswered):
		return 0
	case answered:
		return -1
	}
	return 1
}
