package relayer_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/relayer"
)

// breaking is a store that panics when the first results are settled.
type breaking struct {
	relayer.Store
	broken atomic.Bool
}

func (s *breaking) Settle(ctx context.Context, req inbox.SettleRequest, clock inbox.Clock) (inbox.Settled, error) {
	if s.broken.CompareAndSwap(false, true) {
		panic("broken off")
	}
	return s.Store.Settle(ctx, req, clock)
}

// breakOff runs a relay that panics. Its process lives on, as one does that serves requests.
func (w *world) breakOff(r *relayer.Relayer) {
	w.t.Helper()
	defer func() {
		if got := recover(); got != "broken off" {
			w.t.Fatalf("the run ended with %v, want its panic", got)
		}
	}()
	_, err := r.Run(w.t.Context(), true, nil, nil)
	w.t.Fatalf("the run ended with %v, want a panic", err)
}

func TestWhatARunThatBreaksOffHasClaimedKeepsNoOtherWaiting(t *testing.T) {
	for _, tt := range []struct {
		name string
		lost bool // what the run has claimed is a suspect: nothing else is claimed beside it
	}{{"messages", false}, {"a suspect", true}} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.cfg.Budget = time.Minute // for a run that is kept waiting
			id := w.insert("WO-1", 1)
			if tt.lost {
				w.lose(id, "WO-1")
			}
			r := w.relayWith(&breaking{Store: w.store}, time.Now, w.engine(nil))
			w.breakOff(r)

			// Its lease keeps others away for as long as its calls may be under way.
			other := w.insert("WO-2", 1)
			w.once(r)
			if got, beside := w.status(other), w.status(id); got != "PROCESSED" || beside != "PROCESSING" {
				t.Fatalf("the next run leaves a new message %s and the one before %s, want PROCESSED and PROCESSING", got, beside)
			}
			w.lapse("WO-1")
			third := w.insert("WO-3", 1)
			w.once(r)
			if got, beside := w.status(third), w.status(id); got != "PROCESSED" || beside != "PROCESSED" {
				t.Errorf("once the lease is over, a new message is %s and the one before %s, want both PROCESSED", got, beside)
			}
		})
	}
}

func TestTheCallsOfARunThatBreaksOffAreCutAndTheirSlotsFree(t *testing.T) {
	w := newWorld(t)
	w.cfg.Parallel = 4
	quick := w.insert("WO-1", 1)
	ended := make(chan struct{}, 3)
	under := make(chan struct{}, 3)
	var again atomic.Bool
	r := w.relayWith(&breaking{Store: w.store}, time.Now, w.engine(func(ctx context.Context, d engine.Delivery) engine.Result {
		if again.Load() {
			return engine.Result{Verdict: engine.Correlated}
		}
		if d.InboxID == quick {
			for range 3 {
				<-under
			}
			return engine.Result{Verdict: engine.Correlated}
		}
		under <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
		return engine.Result{Verdict: engine.Unknown}
	}))
	for _, key := range []string{"WO-2", "WO-3", "WO-4"} {
		w.insert(key, 1)
	}
	w.breakOff(r)
	for range 3 {
		<-ended
	}
	again.Store(true)
	for _, key := range []string{"WO-5", "WO-6", "WO-7", "WO-8", "WO-9"} {
		w.insert(key, 1)
	}
	if s := w.once(r); s.Processed != 5 {
		t.Errorf("the next run processed %d, want 5", s.Processed)
	}
}
