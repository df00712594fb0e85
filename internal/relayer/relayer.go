// Package relayer takes stored messages in key order and correlates each into its engine: scan, claim, correlate, settle,
// sweep. What it must not forget it keeps in the store; a process that dies leaves nothing but leases that run out.
//
// It promises: the messages of a lane are called one after another, in order; no call starts without a lease that
// outlasts it; an attempt is recorded before its call; a result changes nothing once its lease is gone. It does not
// promise that an engine is called once: a process that dies between call and settlement leaves an outcome that the next
// one has to probe, or to repeat under the same id.
//
// A Relayer is safe for concurrent use: runs may overlap, in one process and in several. One message that has cost a
// worker its life is called alone in its process.
package relayer

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/routing"
)

// Store is what the relayer needs of the ledger.
type Store interface {
	Sweep(ctx context.Context, consumer string, limit int) (woken int, err error)
	// Remember writes down by which retention the caller keeps what finishes.
	Remember(ctx context.Context, consumer string, retention time.Duration) error
	Scan(ctx context.Context, req inbox.ScanRequest) (inbox.Scanned, error)
	Claim(ctx context.Context, req inbox.ClaimRequest, clock inbox.Clock, rng *rand.Rand) (inbox.ClaimPlan, error)
	Load(ctx context.Context, ids []string) (map[string]inbox.Content, error)
	// PinClaim writes down m.Claim while the attempt of m and the lease of its lane still stand; inbox.ErrConflict says that
	// one of them does not.
	PinClaim(ctx context.Context, m *inbox.Message, lease inbox.Lane) error
	Settle(ctx context.Context, req inbox.SettleRequest, clock inbox.Clock) (inbox.Settled, error)
}

// Router evaluates a route at an attempt. It answers with a *routing.ContractError where the message does not fit its
// route.
type Router interface {
	Call(route string, in routing.Input, messageType, version string) (routing.Call, error)
	Claim(route string, in routing.Input) (inbox.Object, error)
}

// Objects reads payloads that are kept beside their rows, and what senders refer to. See claimcheck.Store.
type Objects interface {
	Stat(ctx context.Context, o inbox.Object) (inbox.FoundObject, error)
	Read(ctx context.Context, o inbox.Object, limit int64) ([]byte, error)
	Finish(ctx context.Context, o inbox.Object, at time.Time) error
}

// Observer is told what a relay does, for numbers and traces. Its methods return at once, and are called from many
// goroutines.
type Observer interface {
	// Attempt is told that a message goes to its engine, with its publisher's W3C trace context or "". It returns the trace
	// context that the engine is to get, and what is called once with the attempt's verdict; it is not called if nothing was
	// started, for then there was no attempt.
	Attempt(ctx context.Context, m *inbox.Message, engine, traceParent string) (context.Context, string, func(verdict string))
	// Called is told how long a call that delivers took.
	Called(ctx context.Context, engine, verdict string, took time.Duration)
	// Claimed is told of a claim that was committed.
	Claimed(ctx context.Context, plan inbox.ClaimPlan, took time.Duration)
	// SettledIn is told how long a batch took to settle, and Settled, once for each transaction that was committed, what
	// became of it.
	SettledIn(ctx context.Context, took time.Duration)
	Settled(ctx context.Context, plan inbox.SettlePlan)
	// Ran is told that a run has ended; not ok: the store failed it.
	Ran(ctx context.Context, ok bool, took time.Duration)
}

// Reporter keeps watch over the table while a run lasts.
type Reporter interface {
	// Report reads the state of the table if that is due, and says when to come back.
	Report(ctx context.Context) time.Duration
	// Export sends what has been counted if that is due. It does not wait.
	Export(ctx context.Context)
}

// unobserved stands in where nobody watches.
type unobserved struct{}

func (unobserved) Attempt(ctx context.Context, _ *inbox.Message, _, traceParent string) (context.Context, string, func(string)) {
	return ctx, traceParent, func(string) {}
}
func (unobserved) Called(context.Context, string, string, time.Duration)   {}
func (unobserved) Claimed(context.Context, inbox.ClaimPlan, time.Duration) {}
func (unobserved) SettledIn(context.Context, time.Duration)                {}
func (unobserved) Settled(context.Context, inbox.SettlePlan)               {}
func (unobserved) Ran(context.Context, bool, time.Duration)                {}

// RoutePolicy is what the relay must know of a route to settle its messages.
type RoutePolicy struct {
	Engine   string
	Patience time.Duration
	RetryMin time.Duration
	RetryMax time.Duration
	Start    bool // its messages start instances
	Claim    *ClaimPolicy
}

// ClaimPolicy is what the relay does with an object that a message refers to. Nil: its messages refer to none.
type ClaimPolicy struct {
	Read     bool
	MaxBytes int64 // that are read
}

// Config is how a relay runs. Package config documents the settings.
type Config struct {
	Consumer         string
	Revision         string // of this deployment, kept with each attempt
	Budget           time.Duration
	Poll             time.Duration
	Parallel         int
	Batch            int
	Lease            time.Duration
	Retention        time.Duration
	PayloadRetention time.Duration
	Routes           map[string]RoutePolicy
	Poison           inbox.PoisonPolicy
	Buckets          []string // that a sender may refer to
	BreakerFailures  int64
	SweepSlice       int
}

// Deps are the relayer's surroundings.
type Deps struct {
	Store   Store
	Objects Objects
	Router  Router
	Engines map[string]engine.Engine
	Log     *slog.Logger
	Now     func() time.Time // read for durations only
	After   func(time.Duration) <-chan time.Time
	NewID   func() string // of at most 36 characters
	Rand    func() *rand.Rand
	// Observer and Reporter may be nil.
	Observer Observer
	Reporter Reporter
}

// Relayer runs the relay of one process.
type Relayer struct {
	Config
	Deps
	slots *slots
	gate  gate
}

// New returns a relayer.
func New(cfg Config, deps Deps) *Relayer {
	if deps.Observer == nil {
		deps.Observer = unobserved{}
	}
	names := make([]string, 0, len(deps.Engines))
	for name := range deps.Engines {
		names = append(names, name)
	}
	return &Relayer{Config: cfg, Deps: deps, slots: newSlots(cfg.Parallel, names)}
}

// Summary counts what a run did.
type Summary struct {
	Claimed    int   `json:"claimed"`
	Processed  int   `json:"processed"`
	Retrying   int   `json:"retrying"`
	Parked     int   `json:"parked"`
	Discarded  int   `json:"discarded"`
	Released   int   `json:"released"`
	DurationMs int64 `json:"durationMs"`
}

// Run polls until its budget ends, or with once until nothing is due that it has not tried. It stops claiming when ctx or stop
// ends; calls under way get until cut ends (nil: as long as they take), what was claimed and not called is given back. The error says that
// the store failed: whatever was counted was done.
func (r *Relayer) Run(ctx context.Context, once bool, stop, cut <-chan struct{}) (Summary, error) {
	run := newRun(r, once)
	endReports := run.report(ctx, stop)
	err := run.loop(ctx, stop, cut)
	endReports()
	took := r.Now().Sub(run.started)
	run.summary.DurationMs = took.Milliseconds()
	// That its caller went away is no failure of a run.
	ok := err == nil || errors.Is(err, context.Canceled)
	run.summarise(ctx, ok, err)
	r.Observer.Ran(ctx, ok, took)
	return run.summary, err
}

// policies says what a scan and a claim must know of routes and engines at this moment.
func (r *Relayer) policies() (map[string]inbox.RoutePolicy, map[string]inbox.EnginePolicy) {
	routes, engines := map[string]inbox.RoutePolicy{}, map[string]inbox.EnginePolicy{}
	for name, route := range r.Routes {
		routes[name] = inbox.RoutePolicy{Engine: route.Engine}
	}
	for name, e := range r.Engines {
		props := e.Properties()
		policy := inbox.EnginePolicy{Timeout: props.Timeout, OneByOne: !props.Idempotent && !props.Probe, Breaker: r.breaker(name)}
		switch free := r.slots.room(name); {
		case free == 0: // somebody waits for its slots
		case policy.OneByOne:
			policy.Capacity = free
		default:
			policy.Capacity = r.Batch
		}
		engines[name] = policy
	}
	return routes, engines
}

// breaker derives how soon an engine is probed from how soon its routes' messages would be tried again.
func (r *Relayer) breaker(name string) inbox.BreakerPolicy {
	policy := inbox.BreakerPolicy{Failures: r.BreakerFailures}
	for _, route := range r.Routes {
		if route.Engine != name {
			continue
		}
		if policy.Min == 0 || route.RetryMin < policy.Min {
			policy.Min = route.RetryMin
		}
		policy.Max = max(policy.Max, route.RetryMax)
	}
	policy.Max = min(policy.Max, 2*time.Minute)
	return policy
}

func (r *Relayer) settleRequest(lanes []inbox.LaneSettlement) inbox.SettleRequest {
	req := inbox.SettleRequest{Consumer: r.Consumer, Lanes: lanes, Retention: r.Retention, PayloadRetention: r.PayloadRetention,
		Breakers: map[string]inbox.BreakerPolicy{}, Poison: r.Poison}
	for name := range r.Engines {
		req.Breakers[name] = r.breaker(name)
	}
	return req
}
