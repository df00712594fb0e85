package relayer

import (
	"bytes"
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/routing"
)

// errand is one message's way through a worker: what is asked on the way, and how long each answer takes on the clock of a
// synctest bubble.
type errand struct {
	takes   map[string]time.Duration
	did     []string
	unknown bool           // the outcome of an earlier delivery is not known
	verdict engine.Verdict // of a delivery that is sent
}

// timeout is how long a call of errand's engine takes at most.
const timeout = 2 * time.Second

func (e *errand) step(ctx context.Context, name string) error {
	e.did = append(e.did, name)
	slow := time.NewTimer(e.takes[name])
	defer slow.Stop()
	select {
	case <-slow.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

const (
	keptObject     = "gs://b/kept?bytes=4&generation=1&sha256=00"
	referredObject = "report"
)

type errandStore struct {
	Store
	*errand
}

func (s errandStore) Load(ctx context.Context, ids []string) (map[string]inbox.Content, error) {
	return map[string]inbox.Content{ids[0]: {PayloadLocation: keptObject}}, s.step(ctx, "load")
}

func (s errandStore) PinClaim(ctx context.Context, _ *inbox.Message, _ inbox.Lane) error {
	return s.step(ctx, "pin")
}

type errandObjects struct {
	Objects
	*errand
}

func (o errandObjects) Stat(ctx context.Context, of inbox.Object) (inbox.FoundObject, error) {
	of.Generation = 7
	return inbox.FoundObject{Object: of}, o.step(ctx, "stat")
}

func (o errandObjects) Read(ctx context.Context, of inbox.Object, _ int64) ([]byte, error) {
	if of.Name == referredObject {
		return []byte("it"), o.step(ctx, "read")
	}
	return []byte("body"), o.step(ctx, "fetch")
}

type errandRouter struct {
	Router
	*errand
}

func (r errandRouter) Call(string, routing.Input, string, string) (routing.Call, error) {
	return routing.Call{}, r.step(context.Background(), "route")
}

type errandEngine struct{ *errand }

func (errandEngine) Properties() engine.Properties {
	return engine.Properties{Idempotent: true, Probe: true, Timeout: timeout}
}

func (e errandEngine) Probe(ctx context.Context, _ engine.Delivery) (engine.ProbeOutcome, engine.Result) {
	_ = e.step(ctx, "probe")
	return engine.ProbeWaiting, engine.Result{}
}

func (e errandEngine) Correlate(ctx context.Context, d engine.Delivery) engine.Result {
	_ = e.step(ctx, "look")
	if !d.MaySend() {
		return engine.Result{Verdict: engine.NotStarted}
	}
	_ = e.step(ctx, "send")
	return engine.Result{Verdict: e.verdict}
}

// run returns a run that has claimed nothing.
func (e *errand) run(store Store, log *slog.Logger, lease time.Duration) *run {
	return newRun(New(Config{Parallel: 1, Batch: 1, Poll: time.Second, Lease: lease, Buckets: []string{"b"}, Budget: time.Minute,
		Routes: map[string]RoutePolicy{"r": {Engine: "e", RetryMin: time.Minute, RetryMax: time.Minute, Claim: &ClaimPolicy{Read: true, MaxBytes: 10}}}},
		Deps{Store: store, Objects: errandObjects{errand: e}, Router: errandRouter{errand: e}, Engines: map[string]engine.Engine{"e": errandEngine{e}},
			Log: log, Now: time.Now, After: time.After, NewID: func() string { return "run" }, Rand: seeded}), true)
}

func (e *errand) message() *inbox.Message {
	return &inbox.Message{ID: "m", Route: "r", Status: inbox.Processing, Attempts: 1, OutcomeUnknown: e.unknown,
		Claim: inbox.Object{Bucket: "b", Name: referredObject}}
}

// work is what becomes of a message whose lane's lease has so much left. before: what happens before the worker is at work.
func (e *errand) work(t *testing.T, left time.Duration, before func(*run)) inbox.Result {
	t.Helper()
	r := e.run(errandStore{errand: e}, slog.New(slog.DiscardHandler), lease)
	if before != nil {
		before(r)
	}
	messages := []*inbox.Message{e.message()}
	lane := &activeLane{messages: messages, leaseEnds: time.Now().Add(left), left: 1}
	r.slots.announce("e")
	worker{run: r, lane: lane, load: r.newLoader(inbox.ClaimPlan{Claimed: []inbox.ClaimedLane{{Messages: messages}}})}.work(t.Context())
	return (<-r.results).result
}

// lease leaves five seconds before the last moment at which a call may begin.
const lease = 2*timeout + 5*time.Second

// Each step of an attempt may be slow. What its lease might not outlast is not begun, and a message that was not sent is given
// back as it was.
func TestASlowStepOfAnAttemptStartsNothingItsLeaseMightNotOutlast(t *testing.T) {
	all := []string{"load", "fetch", "stat", "pin", "read", "route", "probe", "look", "send"}
	for _, tt := range []struct {
		slow string
		last string // the last step that is taken; "": none
	}{
		{"", "send"},
		{"slot", ""},
		{"load", "route"}, {"fetch", "route"}, {"stat", "route"}, {"pin", "route"}, {"read", "route"}, {"route", "route"},
		{"probe", "look"},
		{"look", "look"},
	} {
		for _, unknown := range []bool{false, true} {
			if !unknown && tt.slow == "probe" {
				continue
			}
			name := "slow: " + tt.slow
			if unknown {
				name += ", after an unknown outcome"
			}
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					e := &errand{unknown: unknown, verdict: engine.Correlated, takes: map[string]time.Duration{tt.slow: 5*time.Second + 1}}
					got := e.work(t, lease, func(r *run) {
						if tt.slow == "slot" {
							take(t, r.slots, "e", 1)
							time.AfterFunc(e.takes["slot"], func() { r.slots.release("e") })
						}
					})
					want := slices.Clone(all[:slices.Index(all, tt.last)+1])
					if !unknown {
						want = slices.DeleteFunc(want, func(step string) bool { return step == "probe" })
					}
					if !slices.Equal(e.did, want) {
						t.Errorf("steps taken: %q, want %q", e.did, want)
					}
					status, attempts := inbox.Processed, int64(1)
					if tt.last != "send" {
						status, attempts = inbox.Received, 0
						if unknown {
							status = inbox.Retrying
						}
					}
					if m := got.Message; m.Status != status || m.Attempts != attempts || m.OutcomeUnknown != (unknown && tt.last != "send") || got.Attempt != nil {
						t.Errorf("the message is %s with %d attempts, unknown %t, a record %v; want %s with %d and no record", m.Status, m.Attempts,
							m.OutcomeUnknown, got.Attempt, status, attempts)
					}
				})
			})
		}
	}
}

func TestASecondLookAtAVanishedInstanceNeedsEnoughOfTheLease(t *testing.T) {
	for _, tt := range []struct {
		name  string
		takes map[string]time.Duration
		steps []string
	}{
		{"enough is left", nil, []string{"look", "send", "look", "send"}},
		{"too little is left", map[string]time.Duration{"send": 5*time.Second + 1}, []string{"look", "send"}},
		{"too little is left for the second to be sent", map[string]time.Duration{"look": 2*time.Second + 1, "send": time.Second}, []string{"look", "send", "look"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &errand{verdict: engine.Vanished, takes: tt.takes}
				got := e.work(t, lease, nil)
				called := slices.DeleteFunc(e.did, func(step string) bool { return step != "look" && step != "send" })
				if !slices.Equal(called, tt.steps) {
					t.Errorf("the engine was asked to %q, want %q", called, tt.steps)
				}
				if m := got.Message; m.Status != inbox.Parked || m.Reason != inbox.Vanished {
					t.Errorf("the message is %s/%s, want PARKED/VANISHED", m.Status, m.Reason)
				}
			})
		})
	}
}

// A worker that still waits for an answer when its lease is over would come back to a lane that is another's.
func TestWhatIsReadForAMessageIsWaitedForNoLongerThanItsLease(t *testing.T) {
	for _, slow := range []string{"load", "fetch", "stat", "pin", "read"} {
		for _, left := range []time.Duration{time.Hour, lease} {
			t.Run(slow+" with "+left.String()+" left", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					e := &errand{takes: map[string]time.Duration{slow: time.Hour}}
					began := time.Now()
					got := e.work(t, left, nil)
					if waited, want := time.Since(began), min(left, readLimit); waited != want {
						t.Errorf("the answer was waited for until %v after the claim, want %v", waited, want)
					}
					if m := got.Message; m.Status != inbox.Retrying || m.TechnicalFailures != 1 {
						t.Errorf("the message is %s after %d failures, want it tried again", m.Status, m.TechnicalFailures)
					}
				})
			})
		}
	}
}

// slowClaims is a store whose claims take their time. A scan finds a message for each of them.
type slowClaims struct {
	errandStore
	claims           []time.Duration // still to come
	scanned, settled []time.Time
}

func (s *slowClaims) Sweep(context.Context, string, int) (int, error) { return 0, nil }

func (s *slowClaims) Remember(context.Context, string, time.Duration) error { return nil }

func (s *slowClaims) Scan(context.Context, inbox.ScanRequest) (inbox.Scanned, error) {
	s.scanned = append(s.scanned, time.Now())
	if len(s.claims) == 0 {
		return inbox.Scanned{}, nil
	}
	return inbox.Scanned{Lanes: []string{"lane"}}, nil
}

func (s *slowClaims) Claim(ctx context.Context, _ inbox.ClaimRequest, _ inbox.Clock, _ *rand.Rand) (inbox.ClaimPlan, error) {
	s.takes["claim"], s.claims = s.claims[0], s.claims[1:]
	lane := inbox.Lane{ID: "lane"}
	plan := inbox.ClaimPlan{Lanes: []inbox.Lane{lane}, Claimed: []inbox.ClaimedLane{{Lane: lane, Messages: []*inbox.Message{s.message()}}}}
	return plan, s.step(ctx, "claim")
}

// Settle finds that the lane is due again, as it is when its message was given back.
func (s *slowClaims) Settle(_ context.Context, req inbox.SettleRequest, _ inbox.Clock) (inbox.Settled, error) {
	s.settled = append(s.settled, time.Now())
	return inbox.Settled{Plans: []inbox.SettlePlan{{Settled: req.Lanes[0].Results, More: true}}}, nil
}

const (
	// tight is a lease that outlasts a call that begins a second after the claim was sent.
	tight   = 2*timeout + time.Second
	tooSlow = time.Second + 1
)

// A lease runs from the commit of its claim, and the answer to that may take long.
func TestTheTimeThatAClaimTookIsGoneFromItsLease(t *testing.T) {
	for _, tt := range []struct {
		took   time.Duration
		status inbox.Status
	}{{0, inbox.Processed}, {time.Second, inbox.Processed}, {tooSlow, inbox.Received}} {
		t.Run(tt.took.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &errand{verdict: engine.Correlated, takes: map[string]time.Duration{}}
				r := e.run(&slowClaims{errandStore: errandStore{errand: e}, claims: []time.Duration{tt.took}}, slog.New(slog.DiscardHandler), tight)
				r.claim(t.Context(), t.Context())
				if got := (<-r.results).result.Message.Status; got != tt.status {
					t.Errorf("after a claim of %v the message is %s, want %s: steps taken %q", tt.took, got, tt.status, e.did)
				}
			})
		})
	}
}

// Where a slow database leaves no time for a call, all that is claimed is given back. The run says so, and goes easy.
func TestARunThatCanStartNothingPausesAndFails(t *testing.T) {
	for _, tt := range []struct {
		name   string
		claims []time.Duration
		fails  bool
	}{
		{"until its end", []time.Duration{tooSlow, tooSlow, tooSlow}, true},
		{"for a while", []time.Duration{tooSlow, tooSlow, 0}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				e := &errand{verdict: engine.Correlated, takes: map[string]time.Duration{}}
				store := &slowClaims{errandStore: errandStore{errand: e}, claims: tt.claims}
				_, err := e.run(store, slog.New(slog.NewTextHandler(&log, nil)), tight).Run(t.Context(), true, nil, nil)
				if (err != nil) != tt.fails {
					t.Errorf("the run says %v, want an error: %t", err, tt.fails)
				}
				if n := strings.Count(log.String(), "relay.lease is too short"); n < 2 {
					t.Errorf("it is logged %d times that the lease is too short, want each time:\n%s", n, log.String())
				}
				if len(store.settled) != len(tt.claims) {
					t.Fatalf("%d settlements, want %d", len(store.settled), len(tt.claims))
				}
				for i, at := range store.settled[:2] {
					if pause := store.scanned[i+1].Sub(at); pause != time.Second {
						t.Errorf("the next scan comes %v after everything was given back, want relay.poll", pause)
					}
				}
			})
		})
	}
}

// breaking is a store that panics when results are settled. Its claim hands out more messages than a run takes results of
// unread.
type breaking struct{ slowClaims }

func (s *breaking) Claim(ctx context.Context, req inbox.ClaimRequest, clock inbox.Clock, rng *rand.Rand) (inbox.ClaimPlan, error) {
	plan, err := s.slowClaims.Claim(ctx, req, clock, rng)
	for range 4 {
		plan.Claimed[0].Messages = append(plan.Claimed[0].Messages, s.message())
	}
	plan.Suspect = true
	return plan, err
}

func (*breaking) Settle(context.Context, inbox.SettleRequest, inbox.Clock) (inbox.Settled, error) {
	panic("broken off")
}

// breakingObserver panics when it is told of a claim.
type breakingObserver struct{ unobserved }

func (breakingObserver) Claimed(context.Context, inbox.ClaimPlan, time.Duration) { panic("broken off") }

// The process lives on when a run panics, as one does that serves requests.
func TestARunThatBreaksOffLeavesNothingBehindInItsProcess(t *testing.T) {
	for _, tt := range []struct {
		name     string
		observer Observer
		began    bool
	}{
		{"settling", unobserved{}, true},
		{"between a claim and its workers", breakingObserver{}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &errand{verdict: engine.Correlated, takes: map[string]time.Duration{}}
				store := &breaking{slowClaims{errandStore: errandStore{errand: e}, claims: []time.Duration{0}}}
				r := e.run(store, slog.New(slog.DiscardHandler), lease)
				r.Observer = tt.observer
				func() {
					defer func() {
						if got := recover(); got != "broken off" {
							t.Fatalf("the run ends with %v, want its panic", got)
						}
					}()
					_ = r.loop(t.Context(), nil, nil)
				}()
				for what, ended := range map[string]<-chan struct{}{"wait for a reader of their results": r.over, "begin": r.stopping} {
					select {
					case <-ended:
					default:
						t.Errorf("the run's workers may still %s", what)
					}
				}
				synctest.Wait()
				if began := slices.Contains(e.did, "send"); began != tt.began {
					t.Errorf("a message was sent: %t, want %t", began, tt.began)
				}
				if turn, ok := r.gate.enter(); !ok || !turn.alone {
					t.Errorf("the next run may claim: %t, and nothing else is claimed: %t; want both", ok, turn.alone)
				}
				if free := r.slots.room("e"); free != 1 {
					t.Errorf("the engine has %d free call slots, want 1", free)
				}
			})
		})
	}
}

func TestAWorkerEndsWhenNobodyReadsItsResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &errand{}
		r := e.run(errandStore{errand: e}, slog.New(slog.DiscardHandler), lease)
		lane := &activeLane{leaseEnds: time.Now()}
		for range cap(r.results) + 1 {
			lane.messages = append(lane.messages, e.message())
		}
		close(r.over)
		r.slots.announce("e")
		worker{run: r, lane: lane}.work(t.Context()) // the bubble reports a worker that waits for ever as a deadlock
	})
}

func seeded() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }
