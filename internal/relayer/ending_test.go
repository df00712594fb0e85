package relayer

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/routing"
)

// sender is an engine that sends unless it is forbidden to.
type sender struct {
	before func() // it asks whether it may send
	sent   int
}

func (*sender) Properties() engine.Properties { return engine.Properties{Idempotent: true} }

func (s *sender) Correlate(_ context.Context, d engine.Delivery) engine.Result {
	s.before()
	if !d.MaySend() {
		return engine.Result{Verdict: engine.NotStarted}
	}
	s.sent++
	return engine.Result{Verdict: engine.Correlated}
}

type anyRouter struct{ Router }

func (anyRouter) Call(string, routing.Input, string, string) (routing.Call, error) {
	return routing.Call{}, nil
}

// watcher is told of attempts.
type watcher struct {
	unobserved
	begun int
	ended []string
}

func (w *watcher) Attempt(ctx context.Context, _ *inbox.Message, _, traceParent string) (context.Context, string, func(string)) {
	w.begun++
	return ctx, traceParent, func(verdict string) { w.ended = append(w.ended, verdict) }
}

// The run's loop may be busy, with a slow database as a rule, when the process is told to end. Its workers must not wait for
// it to notice: a call that they began would have the less time until the process is killed.
func TestNothingStartsOnceTheProcessIsToldToEnd(t *testing.T) {
	for _, tt := range []struct {
		name  string
		early bool // before the attempt begins; else at the last moment, when nothing has been sent
		begun int
	}{
		{"before an attempt", true, 0},
		{"just before an attempt sends", false, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			seen, end := &watcher{}, make(chan struct{})
			tell := sync.OnceFunc(func() { close(end) })
			e := &sender{before: tell}
			if tt.early {
				tell()
			}
			r := newRun(New(Config{Parallel: 1, Batch: 1, Routes: map[string]RoutePolicy{"r": {Engine: "e"}}},
				Deps{Router: anyRouter{}, Engines: map[string]engine.Engine{"e": e}, Log: slog.New(slog.DiscardHandler), Now: time.Now,
					NewID: func() string { return "run" }, Rand: seeded, Observer: seen}), true)
			r.ending = end
			m := &inbox.Message{ID: "m", Route: "r", Status: inbox.Processing, Attempts: 1}
			load := &loader{ahead: map[string]bool{"m": true}, read: map[string]inbox.Content{"m": {HasBody: true}}}
			load.once.Do(func() {})
			lane := &activeLane{messages: []*inbox.Message{m}, leaseEnds: time.Now().Add(time.Hour), left: 1}
			r.slots.announce("e")
			worker{run: r, lane: lane, load: load}.work(t.Context())
			if got := (<-r.results).result.Message; got.Status != inbox.Received || got.Attempts != 0 {
				t.Errorf("the message is %s with %d attempts, want it given back", got.Status, got.Attempts)
			}
			if e.sent != 0 {
				t.Errorf("%d calls were sent, want none", e.sent)
			}
			// An attempt that sends nothing is none: it is not counted, and its span is not exported.
			if seen.begun != tt.begun || len(seen.ended) > 0 {
				t.Errorf("%d attempts have begun and ended with %q, want %d and no end", seen.begun, seen.ended, tt.begun)
			}
		})
	}
}
