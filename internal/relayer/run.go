package relayer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// run is one request to relay.
type run struct {
	*Relayer
	once    bool
	owner   string
	rng     *rand.Rand
	started time.Time
	clock   inbox.Clock
	summary Summary

	lagLogged bool // once a run is enough

	calls     context.Context // of what an engine or a bucket is asked; it ends with cut
	ending    <-chan struct{} // closed when the process is told to end
	stopping  chan struct{}   // closed when nothing new may start
	stopOnce  sync.Once
	over      chan struct{} // closed when nobody reads results any more
	results   chan laneResult
	lanes     map[string]*activeLane // claimed by this run, by lane id
	tried     map[string]bool        // with once: lanes whose message is to be tried again, which the next run does
	unsettled int                    // results that wait to be settled
	oldest    time.Time              // since when
	nextScan  time.Time
	dueBy     time.Time // of the database: by then what the run has left due is due
	scanned   bool
	idle      bool  // the last scan found nothing to do
	owed      int   // messages claimed and not settled
	storeErr  error // the store's last failure, until it works again
	lost      error // results that could not be written before their lease ended
	unstarted error // nothing that was claimed could be started; until something is

	finishing sync.WaitGroup // objects of finished messages that are being marked

	settleAgain time.Time // when what failed to be settled is tried again; zero: nothing did
	wasCut      bool
}

// activeLane is a lane under this run's lease.
type activeLane struct {
	lane      inbox.Lane
	messages  []*inbox.Message
	leaseEnds time.Time // on the local monotonic clock
	clock     inbox.Clock
	results   []inbox.Result
	left      int // messages without a result
}

// laneResult is what became of one message of a lane, under the lease that it was claimed with.
type laneResult struct {
	lane   *activeLane
	result inbox.Result
}

func newRun(r *Relayer, once bool) *run {
	return &run{Relayer: r, once: once, owner: r.NewID(), rng: r.Rand(), started: r.Now(), stopping: make(chan struct{}), over: make(chan struct{}),
		results: make(chan laneResult, r.Batch+1), lanes: map[string]*activeLane{}, tried: map[string]bool{}}
}

// loop alternates between claiming and settling. Results are settled before the next claim, when a lane's last result has
// waited for settleAfter, and at the end; so a batch costs two read-write commits, however many lanes it has.
func (r *run) loop(ctx context.Context, stop, cut <-chan struct{}) error {
	calls, cutCalls := context.WithCancel(context.WithoutCancel(ctx))
	defer cutCalls()
	r.calls = calls
	// However the run ends, also by a panic: what it still owes keeps nobody in this process waiting.
	defer func() {
		close(r.over)
		r.stop()
		r.gate.abandon(r.owed)
	}()
	defer r.finishing.Wait()
	r.ending = stop
	r.sweep(ctx)
	budget := r.After(r.Budget)
	for {
		select {
		case <-stop: // before anything new is begun, whatever else is ready
			stop = nil
			r.stop()
		default:
		}
		// What has happened goes before another scan: one that takes longer than poll must not keep the rest waiting.
		select {
		case <-ctx.Done():
			ctx = context.WithoutCancel(ctx)
			r.stop()
		case <-cut:
			cut = nil
			r.wasCut = true
			cutCalls()
		case <-budget:
			r.stop()
		default:
		}
		select {
		case res := <-r.results:
			r.take(res)
		default:
		}
		if r.stopped() && len(r.lanes) == 0 {
			return errors.Join(r.storeErr, r.lost, r.unstarted)
		}
		if r.settleNow() {
			r.settle(ctx)
			continue
		}
		if r.mayClaim() {
			r.claim(ctx, calls)
			continue
		}
		if r.once && r.idle && len(r.lanes) == 0 {
			return errors.Join(r.storeErr, r.lost, r.unstarted)
		}
		select {
		case res := <-r.results:
			r.take(res)
		case <-r.After(r.wait()):
		case <-budget:
			r.stop()
		case <-stop: // these stay closed, and are seen above
		case <-ctx.Done():
		case <-cut:
		}
	}
}

func (r *run) stop() { r.stopOnce.Do(func() { close(r.stopping) }) }

// stopped reports whether nothing new may start. It looks at ending itself: the loop, which closes stopping, may be waiting for
// the database when the process is told to end.
func (r *run) stopped() bool {
	select {
	case <-r.stopping:
		return true
	case <-r.ending:
		return true
	default:
		return false
	}
}

// take files a result, and whatever else has come.
func (r *run) take(res laneResult) {
	for {
		lane := res.lane
		lane.results = append(lane.results, res.result)
		lane.left--
		if r.unsettled == 0 {
			r.oldest = r.Now()
		}
		r.unsettled++
		select {
		case res = <-r.results:
		default:
			return
		}
	}
}

// settleAfter is how long results wait for company. It is short against any lease, and long against a quick engine.
func (r *run) settleAfter() time.Duration { return 2 * r.Poll }

// company is how long finished results wait for those that are about to come before the next claim.
func (r *run) company() time.Duration { return r.Poll / 20 }

func (r *run) complete() (lanes, open int) {
	for _, lane := range r.lanes {
		if lane.left == 0 {
			lanes++
		} else {
			open++
		}
	}
	return lanes, open
}

func (r *run) settleNow() bool {
	if r.unsettled == 0 || r.Now().Before(r.settleAgain) {
		return false
	}
	complete, open := r.complete()
	waited := r.Now().Sub(r.oldest)
	switch {
	case open == 0: // everything claimed has its result
		return true
	case complete > 0 && waited >= r.settleAfter():
		return true
	case r.unsettled >= r.Batch:
		return true
	case complete > 0 && waited >= r.company() && r.claimable() && !r.Now().Before(r.nextScan):
		// The calls that are about to end are worth a moment: their lanes would cost a commit of their own.
		return true
	}
	return waited >= min(r.Lease/6, 10*time.Second)
}

// claimable reports whether some engine has a free slot that nobody waits for.
func (r *run) claimable() bool {
	if r.stopped() || !r.settleAgain.IsZero() {
		return false
	}
	for name := range r.Engines {
		if r.slots.room(name) > 0 {
			return true
		}
	}
	return false
}

// mayClaim reports whether to claim now. Finished results go first; for those that the next claim waits for, see settleNow.
func (r *run) mayClaim() bool {
	complete, _ := r.complete()
	return complete == 0 && r.claimable() && !r.Now().Before(r.nextScan)
}

// wait is how long to sleep when no result comes.
func (r *run) wait() time.Duration {
	wait := r.Poll
	if untilScan := r.nextScan.Sub(r.Now()); untilScan > 0 {
		wait = min(wait, untilScan)
	} else if r.unsettled > 0 {
		wait = r.company()
	}
	return max(wait, time.Millisecond)
}

// suspectsAtOnce is how many suspects a claim is offered: it takes one, and some may have to wait.
const suspectsAtOnce = 4

// claim scans, claims, and starts what it got.
func (r *run) claim(ctx, calls context.Context) {
	r.nextScan, r.idle = r.Now().Add(r.Poll), false
	turn, ok := r.gate.enter()
	if !ok {
		return
	}
	var plan inbox.ClaimPlan
	defer func() { r.owed += r.gate.leave(plan) }()
	routes, engines := r.policies()
	reading, done := r.reading(ctx)
	found, err := r.Store.Scan(reading, inbox.ScanRequest{Consumer: r.Consumer, Limit: 2 * r.Batch, Routes: routes, Engines: engines,
		States: r.gate.states, Held: r.leavesOut, Lease: r.Lease, All: !r.scanned})
	done()
	r.nextScan = r.Now().Add(r.Poll) // however long it took
	if err != nil {
		r.storeFailed(ctx, "scan", err)
		return
	}
	r.clock, r.gate.states, r.scanned = found.Clock, found.States, true
	if lag := found.Clock.Lag(); lag > inbox.LagTolerated && !r.lagLogged {
		r.lagLogged = true
		r.Log.WarnContext(ctx, "the database's reads seem to be old: they lie before this process's clock, or that is wrong; leases run by "+
			"the timestamps of commits", "lag", lag)
	}
	lanes := found.Lanes[:min(len(found.Lanes), r.Batch)]
	plan.Suspects = len(found.Suspects) > 0
	if turn.alone && (turn.suspectsFirst || len(lanes) == 0) {
		// Some at a time, not always the same: which of them may be called now the claim finds out.
		r.gate.suspects++
		first := r.gate.suspects % max(1, len(found.Suspects))
		suspects := slices.Concat(found.Suspects[first:], found.Suspects[:first])
		lanes = append(suspects[:min(len(suspects), suspectsAtOnce)], lanes...)
		plan.Suspects = false // what the claim leaves counts, not what may not be called
	}
	if len(lanes) == 0 {
		r.idle, r.storeErr = !plan.Suspects && !busy(engines) && !found.More && r.caughtUp(found.Clock), nil
		return
	}
	req := inbox.ClaimRequest{
		Consumer: r.Consumer, Owner: r.owner, LaneIDs: lanes, Batch: r.Batch, Lease: r.Lease, Retention: r.Retention,
		PerLane: (r.Batch + min(r.Parallel, len(lanes)) - 1) / max(1, min(r.Parallel, len(lanes))),
		Routes:  routes, Engines: engines, Poison: r.Poison, Alone: turn.alone, SuspectsFirst: turn.suspectsFirst,
	}
	before := r.Now()
	claiming, cancel := context.WithTimeout(ctx, r.transactionLimit())
	defer cancel()
	claimed, err := r.Store.Claim(claiming, req, found.Clock, r.rng)
	if err != nil {
		r.storeFailed(ctx, "claim", err)
		return
	}
	claimed.Suspects = claimed.Suspects || plan.Suspects
	plan, r.gate.states = claimed, claimed.States
	r.claimed(ctx, plan, r.Now().Sub(before))
	if found.More || plan.Suspects || progress(plan) || news(found.States, plan.States) {
		// There may be more, or there is an engine that the next scan leaves out: it needs not wait.
		r.scanAgain()
	}
	if len(plan.Claimed) == 0 {
		if len(plan.Lanes) == 0 && !news(found.States, plan.States) {
			// Due, and not for us now: somebody else's lease, or no room. The next scan leaves leased lanes out.
			r.nextScan = r.Now().Add(r.Poll)
			r.idle = !found.More && plan.Busy == 0 && !plan.Suspects && r.caughtUp(found.Clock)
		}
		return
	}
	r.dispatch(calls, plan, before)
}

// scanAgain has the next scan come at once: this run has left something that is due now, which the scans until now have not seen.
func (r *run) scanAgain() {
	r.nextScan, r.dueBy, r.idle = time.Time{}, r.clock.Earliest(r.Now()), false
}

// caughtUp reports whether a scan with this clock has seen what the run has left due. What is due now is written with the
// earliest time that the database can have then; the clock of a scan whose read was slow has an earlier one.
func (r *run) caughtUp(clock inbox.Clock) bool {
	return clock.Received.IsZero() || !clock.Earliest(clock.Received).Before(r.dueBy)
}

// leavesOut reports whether the run has the lane at work, or has tried it and is to end when it has tried all. A lane whose
// lease has lapsed meanwhile is another relay's to claim: this run would take the results of its own late worker for those of
// the new lease.
func (r *run) leavesOut(laneID string) bool { return r.lanes[laneID] != nil || r.tried[laneID] }

// news reports whether a claim has found an engine that cannot be called and that the scan took for one that can.
func news(scanned, claimed map[string]inbox.EngineState) bool {
	for name, state := range claimed {
		if before := scanned[name]; before.Closed() && !state.Closed() {
			return true
		}
	}
	return false
}

// busy reports whether the scan has left out the lanes of an engine because no call slot is free.
func busy(engines map[string]inbox.EnginePolicy) bool {
	for _, policy := range engines {
		if policy.Capacity == 0 {
			return true
		}
	}
	return false
}

// progress reports whether a claim has moved anything that another scan would find moved. Lanes of unknown routes do not
// count: there may be many, and each only gets another time.
func progress(plan inbox.ClaimPlan) bool {
	for _, lane := range plan.Lanes {
		if lane.WhyNotDue != inbox.WhyRouteUnknown && lane.WhyNotDue != inbox.WhyEngineUnknown {
			return true
		}
	}
	return false
}

// claimed says what a claim has done.
func (r *run) claimed(ctx context.Context, plan inbox.ClaimPlan, took time.Duration) {
	r.Observer.Claimed(ctx, plan, took)
	r.logParkedByClaim(ctx, plan)
	r.summary.Parked += plan.Parked
	r.storeErr = nil // what failed before has been made good
	for _, name := range plan.Unknown {
		r.Log.ErrorContext(ctx, "a due message names a route or an engine that this configuration lacks; it waits a minute", "name", name)
	}
	for _, lost := range plan.Lost {
		r.Log.WarnContext(ctx, "a worker was lost while handling a message", "inboxId", lost.InboxID, "attempt", lost.Number, "owner", lost.Owner)
	}
}

// dispatch starts a goroutine for each claimed lane.
func (r *run) dispatch(calls context.Context, plan inbox.ClaimPlan, before time.Time) {
	load := r.newLoader(plan)
	for _, claimed := range plan.Claimed {
		lane := &activeLane{lane: claimed.Lane, messages: claimed.Messages, leaseEnds: before.Add(r.Lease), clock: r.clock, left: len(claimed.Messages)}
		r.lanes[claimed.Lane.ID] = lane
		r.summary.Claimed += len(claimed.Messages)
		w := worker{run: r, lane: lane, load: load}
		r.slots.announce(r.Routes[lane.messages[0].Route].Engine)
		go w.work(calls)
	}
}

func (r *run) sweep(ctx context.Context) {
	reading, done := r.reading(ctx)
	defer done()
	if err := r.Store.Remember(reading, r.Consumer, r.Retention); err != nil {
		r.storeFailed(ctx, "write down the retention", err)
	}
	if _, err := r.Store.Sweep(reading, r.Consumer, r.SweepSlice); err != nil {
		r.storeFailed(ctx, "sweep", err)
	}
}

// readLimit bounds what is read outside of a transaction.
const readLimit = 10 * time.Second

// reading returns the context of a read that the loop waits for: it ends with the limit, and when the process is told to
// end, so that a database out of reach keeps nobody waiting.
func (r *run) reading(ctx context.Context) (context.Context, func()) {
	ctx, stopWaiting := stopWith(ctx, r.ending)
	ctx, cancel := context.WithTimeout(ctx, min(readLimit, r.transactionLimit()))
	return ctx, func() { cancel(); stopWaiting() }
}

// transactionLimit bounds one transaction well inside the lease.
func (r *run) transactionLimit() time.Duration { return r.Lease / 4 }

func (r *run) storeFailed(ctx context.Context, doing string, err error) {
	select {
	case <-r.ending:
		return // it was cut short: that is no failure of the store
	case <-ctx.Done():
		return
	default:
	}
	r.storeErr = fmt.Errorf("%s: %w", doing, err)
	r.Log.ErrorContext(ctx, doing+" failed", "error", err)
	if r.once {
		r.stop()
	}
}

// settle writes what has come, on a context of its own: what was done must be written even if nobody waits for the run.
// What fails is tried again until its lease ends; whoever claims then finds attempts of unknown outcome.
func (r *run) settle(ctx context.Context) {
	req := r.settleRequest(nil)
	req.Again = !r.settleAgain.IsZero()
	for _, lane := range r.lanes {
		if len(lane.results) > 0 {
			req.Lanes = append(req.Lanes, inbox.LaneSettlement{Lane: lane.lane, Results: lane.results, Release: lane.left == 0})
		}
	}
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.transactionLimit())
	defer cancel()
	began := r.Now()
	settled, err := r.Store.Settle(settling, req, r.clock)
	r.Observer.SettledIn(ctx, r.Now().Sub(began))
	r.settleAgain = time.Time{}
	if err != nil {
		r.storeErr = fmt.Errorf("settle: %w", err)
		r.Log.ErrorContext(ctx, "settling failed", "lanes", len(settled.Failed), "error", err)
	}
	for _, plan := range settled.Plans {
		r.Observer.Settled(ctx, plan)
		r.count(ctx, plan)
	}
	r.pauseIfNothingStarts(ctx, settled.Plans)
	failed := map[string]bool{}
	for _, id := range settled.Failed {
		failed[id] = true
	}
	r.unsettled = 0
	for _, s := range req.Lanes {
		lane := r.lanes[s.Lane.ID]
		if failed[s.Lane.ID] && !r.wasCut && r.Now().Before(lane.leaseEnds) {
			r.unsettled += len(lane.results)
			r.oldest = r.Now()
			r.settleAgain = r.Now().Add(r.Poll)
			continue
		}
		if failed[s.Lane.ID] {
			r.lost = fmt.Errorf("settle: results of lane %s are lost to the next run: %w", s.Lane.ID, err)
		}
		r.owed -= len(lane.results)
		if r.gate.settled(len(lane.results)) {
			r.scanAgain()
		}
		lane.results = nil
		if s.Release {
			delete(r.lanes, s.Lane.ID)
		}
	}
}

func (r *run) count(ctx context.Context, plan inbox.SettlePlan) {
	if plan.More || plan.Closed {
		r.scanAgain()
	}
	var kept []*inbox.Message
	for _, res := range plan.Settled {
		m := res.Message
		if m.Status.Finished() && m.PayloadLocation != "" {
			kept = append(kept, m)
		}
		switch {
		case m.Status == inbox.Processed:
			r.summary.Processed++
			r.logMessage(ctx, slog.LevelInfo, "message processed", m, "attempts", m.Attempts, "verdict", res.Verdict)
		case m.Status == inbox.Parked:
			r.summary.Parked++
			r.logMessage(ctx, slog.LevelWarn, "message parked", m, "code", m.LastErrorCode)
		case m.Status == inbox.Discarded:
			r.summary.Discarded++
			r.logMessage(ctx, slog.LevelInfo, "message discarded by its engine", m)
		case res.Attempt == nil:
			r.summary.Released++
		default:
			if r.once { // a pause shorter than a scan would keep the run from its end
				r.tried[m.LaneID] = true
			}
			r.summary.Retrying++
			r.logMessage(ctx, slog.LevelInfo, "message to be tried again", m, "attempts", m.Attempts, "verdict", res.Verdict,
				"code", m.LastErrorCode, "nextAttemptAt", m.NextAttemptAt)
		}
	}
	if len(kept) > 0 {
		r.finishing.Go(func() { r.finishObjects(r.calls, kept) })
	}
	for _, id := range plan.Late {
		r.Log.WarnContext(ctx, "a result came after its lease and changed nothing", "inboxId", id)
	}
	for _, e := range plan.Engines {
		if e.OpenReason == inbox.OpenUnauthorised {
			r.Log.ErrorContext(ctx, "an engine refuses our credentials; it is paused and probed", "engine", e.Name, "until", e.OpenUntil)
		} else if !e.OpenUntil.IsZero() {
			r.Log.WarnContext(ctx, "the breaker of an engine is open", "engine", e.Name, "until", e.OpenUntil, "reason", e.OpenReason)
		}
	}
}

// pauseIfNothingStarts keeps a run from claiming and giving back without end: where the lease leaves no time for a call once
// a slow database has answered, nothing would move, and nothing would be seen to fail.
func (r *run) pauseIfNothingStarts(ctx context.Context, plans []inbox.SettlePlan) {
	given := 0
	for _, plan := range plans {
		for _, res := range plan.Settled {
			if res.Verdict != "" {
				r.unstarted = nil
				return
			}
			given++
		}
	}
	if given == 0 || r.stopped() {
		return
	}
	r.scanAgain()
	r.nextScan = r.Now().Add(r.Poll)
	r.unstarted = fmt.Errorf("%d claimed messages were given back, none was started: a lease of %v did not outlast the claim, the wait for a call slot and twice the engine's timeout", given, r.Lease)
	r.Log.ErrorContext(ctx, "nothing that was claimed could be started; relay.lease is too short for the engines' timeouts beside this database", "messages", given, "lease", r.Lease.String())
}
