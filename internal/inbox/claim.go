package inbox

import (
	"math/rand/v2"
	"time"
)

// RoutePolicy is what a scan and a claim must know of a route.
type RoutePolicy struct {
	Engine string
}

// EnginePolicy is what a claim must know of an engine.
type EnginePolicy struct {
	// OneByOne: the engine has neither idempotency nor probe, so nothing may be claimed that is not called at once.
	OneByOne bool
	// Timeout bounds one call.
	Timeout time.Duration
	// Capacity is how many lanes may be claimed for it now: none while claimed ones wait for a call slot; for a OneByOne
	// engine the number of its free slots.
	Capacity int
	// Breaker says when and how soon the engine is probed.
	Breaker BreakerPolicy
}

// ClaimRequest asks for up to Batch messages of the given lanes.
type ClaimRequest struct {
	Consumer  string
	Owner     string // unique per run
	LaneIDs   []string
	Batch     int
	PerLane   int // messages a lane gives at most
	Lease     time.Duration
	Retention time.Duration // retention.processed, for lanes that turn out empty
	Routes    map[string]RoutePolicy
	Engines   map[string]EnginePolicy
	Poison    PoisonPolicy
	// Alone: nothing else is claimed by this process, so a suspect may be claimed, alone.
	Alone bool
	// SuspectsFirst: a suspect goes before everybody else this time.
	SuspectsFirst bool
}

// Suspect reports whether the handling of m has cost a worker: it is claimed and called alone in its process.
func (m *Message) Suspect() bool { return m.LostWorkers > 0 || m.Status == Processing }

// ClaimedLane is a lane under our lease, and the messages to call for it, in order.
type ClaimedLane struct {
	Lane     Lane
	Messages []*Message
}

// VerdictLost is what stands in the Attempts row of an attempt whose worker did not come back.
const VerdictLost = "LOST"

// ClaimPlan is what a claim writes. It is computed from what the transaction read, and from nothing else, so that a
// transaction that runs twice plans anew.
type ClaimPlan struct {
	Claimed  []ClaimedLane
	Suspect  bool             // Claimed is one message that has cost a worker
	Suspects bool             // a suspect was left for a time when it can be alone
	Lanes    []Lane           // to write; claimed ones too
	Messages []*Message       // to write
	Lost     []SettledAttempt // of those, whose worker was lost: an Attempts row each
	Afresh   []*Message       // of those, reopened by hand: an Audit row each, with the state before
	Before   map[string]Message
	Engines  []EngineState // to write: a probe was taken
	Parked   int
	Unknown  []string // routes or engines this instance does not know
	Leased   int      // lanes skipped because somebody holds them
	Busy     int      // lanes left for want of capacity
	Waiting  int      // lanes left because their engine is paused, behind its breaker, or being probed
	States   map[string]EngineState
}

// PlanClaim decides what a claim at now takes and writes. lanes are in the order of the request; queues hold the first
// messages of each lane's queue, in order, with their control columns. latest is a time not before the database's.
func PlanClaim(req ClaimRequest, now, latest time.Time, rng *rand.Rand, lanes []Lane, queues map[string][]*Message, engines map[string]EngineState) ClaimPlan {
	p := &claimPlanner{ClaimRequest: req, now: now, latest: latest, rng: rng, engines: engines,
		taken: map[string]int{}, probes: map[string]int{}}
	p.plan.Before = map[string]Message{}
	var runnable []candidate
	for _, lane := range lanes {
		if lane.Leased(now) {
			p.plan.Leased++
			continue
		}
		if !lane.Due(now) {
			continue
		}
		if c, ok := p.look(lane, queues[lane.ID]); ok {
			runnable = append(runnable, c)
		}
	}
	p.choose(runnable)
	p.plan.States = engines
	return p.plan
}

type claimPlanner struct {
	ClaimRequest
	now, latest time.Time
	rng         *rand.Rand
	engines     map[string]EngineState
	taken       map[string]int // lanes by engine
	messages    int
	probes      map[string]int // engine -> index into runnable of its probe
	plan        ClaimPlan
}

type candidate struct {
	lane   Lane  // with the shard that is right for the head of its queue
	filed  int64 // the shard that it has
	queue  []*Message
	engine string
}

// look settles what the lane's queue says without an engine: it answers false where the lane cannot run.
func (p *claimPlanner) look(lane Lane, queue []*Message) (candidate, bool) {
	filed := lane.Shard
	if lane.HeldBy != "" {
		p.rest(lane, Rest{WhyNotDue: WhyHeld})
		return candidate{}, false
	}
	left := false
	for len(queue) > 0 && p.prepare(lane, queue[0]) {
		queue, left = queue[1:], true
		if len(queue) > 0 && queue[0].Waits() {
			// The evidence about a dead letter is read for the head of a queue only: the next claim has it.
			p.rest(lane, Rest{DueAt: p.now})
			return candidate{}, false
		}
	}
	for _, m := range queue[min(1, len(queue)):] {
		// A lease that ran out: whatever of the lane was claimed with it may have been called.
		if m.Status == Processing {
			p.lost(lane, m)
		}
	}
	if len(queue) == 0 && left {
		// Something has left the queue, and what stands behind it may not have been read: the next claim knows.
		p.rest(lane, Rest{DueAt: p.now})
		return candidate{}, false
	}
	if len(queue) == 0 {
		p.rest(lane, Rest{Empty: true})
		return candidate{}, false
	}
	head := queue[0]
	lane.Shard = LaneShard(head.Route, head.TenantID, lane.ID)
	if rest := RestOf(head, p.now); rest.DueAt.IsZero() || rest.DueAt.After(p.now) {
		p.rest(lane, rest)
		return candidate{}, false
	}
	route, ok := p.Routes[head.Route]
	if !ok {
		p.plan.Unknown = append(p.plan.Unknown, head.Route)
		p.rest(lane, Rest{DueAt: p.now.Add(time.Minute), WhyNotDue: WhyRouteUnknown})
		return candidate{}, false
	}
	if _, ok := p.Engines[route.Engine]; !ok {
		p.plan.Unknown = append(p.plan.Unknown, route.Engine)
		p.rest(lane, Rest{DueAt: p.now.Add(time.Minute), WhyNotDue: WhyEngineUnknown})
		return candidate{}, false
	}
	return candidate{lane: lane, filed: filed, queue: queue, engine: route.Engine}, true
}

// prepare brings the head of a queue into a state that can be judged, and reports whether it leaves the queue.
func (p *claimPlanner) prepare(lane Lane, head *Message) (gone bool) {
	switch {
	case head.Status == Processing:
		p.lost(lane, head)
		return head.Status == Parked && !head.Blocks
	case head.Waits() && !head.NextAttemptAt.After(p.now) && head.Twin.Found():
		head.AsTwin(head.Twin)
		head.LastFailedAt = p.now
		p.plan.Messages = append(p.plan.Messages, head)
		p.plan.Parked++
		return !head.Blocks
	case head.Status == Received && head.Attempts == 0 && head.Reason != "":
		p.plan.Before[head.ID] = *head
		p.plan.Afresh = append(p.plan.Afresh, head)
		p.plan.Messages = append(p.plan.Messages, head)
		if head.Route == "" {
			head.Status = Parked
			p.plan.Parked++
			return !head.Blocks
		}
		StartAfresh(head)
	}
	return false
}

// StartAfresh clears what earlier attempts left on a reopened message. A person's word that a possibly delivered message
// may be sent clears the doubt.
func StartAfresh(m *Message) {
	if m.Reason == PossiblyDelivered {
		m.OutcomeUnknown = false
	}
	m.Status, m.Reason, m.Attempts = Received, "", 0
	m.NextAttemptAt, m.FirstFailedAt, m.LastFailedAt, m.LastNotWaitingAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	m.PatienceUsed, m.TechnicalFailures, m.OutageFailures, m.LostWorkers, m.PatienceFor = 0, 0, 0, 0, ""
	m.ProcessedAt, m.PurgeAfter = time.Time{}, time.Time{}
}

// lost records that the worker of m did not come back.
func (p *claimPlanner) lost(lane Lane, m *Message) {
	m.LostWorkers++
	m.OutcomeUnknown = true
	m.LastFailedAt = p.now
	if m.FirstFailedAt.IsZero() {
		m.FirstFailedAt = p.now
	}
	m.LastNotWaitingAt = time.Time{}
	m.LastErrorCode, m.LastErrorMessage = "LOST_WORKER", "the lease ran out while the message was being handled"
	m.Status, m.NextAttemptAt = Retrying, time.Time{}
	if m.LostWorkers >= p.Poison.LostWorkers {
		m.Status, m.Reason = Parked, Poisoned
		p.plan.Parked++
	}
	p.plan.Messages = append(p.plan.Messages, m)
	p.plan.Lost = append(p.plan.Lost, SettledAttempt{InboxID: m.ID, AttemptRecord: AttemptRecord{
		Number: m.Attempts, StartedAt: m.ProcessingStartedAt, EndedAt: p.now, Verdict: VerdictLost, ErrorCode: m.LastErrorCode,
		ErrorMessage: m.LastErrorMessage, Engine: p.Routes[m.Route].Engine, Owner: lane.LeaseOwner,
	}})
}

func (p *claimPlanner) rest(lane Lane, rest Rest) {
	lane.LeaseOwner, lane.LeaseUntil, lane.WokenAt = "", time.Time{}, time.Time{}
	lane.DueAt, lane.WhyNotDue, lane.PurgeAt = rest.DueAt, rest.WhyNotDue, time.Time{}
	if rest.Empty {
		lane.PurgeAt = lane.End(p.latest, p.Retention)
	}
	p.plan.Lanes = append(p.plan.Lanes, lane)
}

func (p *claimPlanner) choose(runnable []candidate) {
	var suspects, others []candidate
	for _, c := range runnable {
		if c.queue[0].Suspect() {
			suspects = append(suspects, c)
		} else {
			others = append(others, c)
		}
	}
	others = interleave(others)
	for i, c := range others {
		// A half-open breaker is probed with what has failed least, so that one bad message does not keep it open.
		if best, ok := p.probes[c.engine]; !ok || failedLess(c.queue[0], others[best].queue[0]) {
			p.probes[c.engine] = i
		}
	}
	alone := p.Alone && (p.SuspectsFirst || len(others) == 0)
	for i, c := range suspects {
		if alone && p.pass(c, true) {
			p.take(c, 1)
			p.plan.Suspect = true
			p.leave(suspects[i+1:])
			return
		}
		if !alone {
			p.leave(suspects[i : i+1])
		}
	}
	// First each engine's share, then whatever room is left.
	share := (p.Batch + len(p.probes) - 1) / max(1, len(p.probes))
	var second []candidate
	for i, c := range others {
		policy := p.Engines[c.engine]
		// Who cannot be taken must not hold the probe's place.
		room := p.messages < p.Batch && p.taken[c.engine] < policy.Capacity
		switch {
		case !p.pass(c, room && p.probes[c.engine] == i):
		case p.messages < p.Batch && p.taken[c.engine] < min(policy.Capacity, share):
			p.take(c, p.run(c))
		default:
			second = append(second, c)
		}
	}
	for _, c := range second {
		if p.messages < p.Batch && p.taken[c.engine] < p.Engines[c.engine].Capacity {
			p.take(c, p.run(c))
		} else {
			p.plan.Busy++
		}
	}
}

// failedLess reports whether m is a better probe than other: it has failed less often, or longer ago. A refusal of our
// credentials counts no failure while it may be the engine's, and is remembered by its time alone.
func failedLess(m, other *Message) bool {
	if m.TechnicalFailures != other.TechnicalFailures {
		return m.TechnicalFailures < other.TechnicalFailures
	}
	return m.LastFailedAt.Before(other.LastFailedAt)
}

// leave lets suspects wait for a time when they can be alone: it files them where only that time looks. A lease that ran out
// is cleared, so that its late worker finds nothing to release.
func (p *claimPlanner) leave(suspects []candidate) {
	for _, c := range suspects {
		p.plan.Suspects = true
		p.plan.Busy++
		if c.lane.LeaseOwner != "" || !SuspectShard(c.filed) {
			c.lane.Shard = FlowOf(c.queue[0].Route).Suspects()
			p.rest(c.lane, Rest{DueAt: p.now})
		}
	}
}

// interleave puts candidates in turns of their routes and tenants, in the order given within each, so that a deep backlog of
// one leaves room in every batch.
func interleave(candidates []candidate) []candidate {
	type group struct{ route, tenant string }
	waiting := map[group][]candidate{}
	var groups []group
	for _, c := range candidates {
		g := group{c.queue[0].Route, c.queue[0].TenantID}
		if waiting[g] == nil {
			groups = append(groups, g)
		}
		waiting[g] = append(waiting[g], c)
	}
	turns := make([]candidate, 0, len(candidates))
	for len(turns) < len(candidates) {
		for _, g := range groups {
			if rest := waiting[g]; len(rest) > 0 {
				turns = append(turns, rest[0])
				waiting[g] = rest[1:]
			}
		}
	}
	return turns
}

// run says how many messages of the lane may be claimed together.
func (p *claimPlanner) run(c candidate) int {
	if state := p.engines[c.engine]; p.Engines[c.engine].OneByOne || !state.Closed() || !fresh(c.queue[0]) {
		return 1
	}
	n := 1
	for n < len(c.queue) && n < p.PerLane && n < p.Batch-p.messages && fresh(c.queue[n]) &&
		p.Routes[c.queue[n].Route].Engine == c.engine {
		n++
	}
	return n
}

// fresh reports whether nobody has tried the message before.
func fresh(m *Message) bool {
	return m.Status == Received && m.Attempts == 0 && m.Reason == "" && m.NextAttemptAt.IsZero() && !m.Suspect() && !m.OutcomeUnknown
}

// pass asks the engine's pause and breaker, and lets one probe through a half-open one. Where the lane may not pass nothing is
// written, unless it is filed where a scan takes it for another route's: it waits where no scan looks before the engine may
// be called.
func (p *claimPlanner) pass(c candidate, mayProbe bool) bool {
	state := p.engines[c.engine]
	switch {
	case !state.PausedAt.IsZero(), state.OpenUntil.After(p.now) && !state.Doubtful(c.queue[0].ID),
		!state.OpenUntil.IsZero() && (state.Probing(p.now) || !mayProbe):
		p.plan.Waiting++
		if FlowAt(c.filed) != FlowAt(c.lane.Shard) || c.lane.LeaseOwner != "" {
			p.rest(c.lane, Rest{DueAt: p.now, WhyNotDue: WhyEnginePaused})
		}
		return false
	case state.OpenUntil.IsZero():
		return true
	}
	state.Name = c.engine
	state.ProbeOwner, state.ProbeUntil = p.Owner, p.latest.Add(p.Lease)
	p.engines[c.engine] = state
	p.plan.Engines = append(p.plan.Engines, state)
	return true
}

// take claims the first n messages of the lane.
func (p *claimPlanner) take(c candidate, n int) {
	lane := c.lane
	switch lane.WhyNotDue {
	case WhyEnginePaused, WhyHeld, WhyRouteUnknown, WhyEngineUnknown:
		// Since its last answer the message could not be asked about: that time uses no patience.
		c.queue[0].LastNotWaitingAt = time.Time{}
	}
	lane.LeaseOwner, lane.LeaseToken, lane.LeaseUntil = p.Owner, lane.LeaseToken+1, p.latest.Add(p.Lease)
	lane.DueAt, lane.WokenAt, lane.WhyNotDue, lane.PurgeAt = lane.LeaseUntil, time.Time{}, "", time.Time{}
	claimed := ClaimedLane{Lane: lane}
	for _, m := range c.queue[:n] {
		m.Status = Processing
		m.Attempts++
		m.ProcessingStartedAt = p.latest
		m.PlannedAt, m.NextAttemptAt = m.NextAttemptAt, time.Time{}
		m.Late = m.Late || (!lane.Last.IsZero() && m.Position().Before(lane.Last))
		claimed.Messages = append(claimed.Messages, m)
		if !p.written(m) {
			p.plan.Messages = append(p.plan.Messages, m)
		}
	}
	p.plan.Lanes = append(p.plan.Lanes, lane)
	p.plan.Claimed = append(p.plan.Claimed, claimed)
	p.taken[c.engine]++
	p.messages += n
}

// written reports whether m is to be written already: preparing it changed it.
func (p *claimPlanner) written(m *Message) bool {
	for _, w := range p.plan.Messages {
		if w == m {
			return true
		}
	}
	return false
}
