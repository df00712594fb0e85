package relayer_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/relayer"
)

// watched tells of each scan once it is answered, and of what is claimed.
type watched struct {
	relayer.Store
	scans  chan struct{}
	claims chan []string // lanes
}

func newWatched(store relayer.Store) *watched {
	return &watched{Store: store, scans: make(chan struct{}), claims: make(chan []string, 1000)}
}

func (s *watched) Scan(ctx context.Context, req inbox.ScanRequest) (inbox.Scanned, error) {
	found, err := s.Store.Scan(ctx, req)
	select {
	case s.scans <- struct{}{}:
	default: // nobody waits for it
	}
	return found, err
}

func (s *watched) Claim(ctx context.Context, req inbox.ClaimRequest, clock inbox.Clock, rng *rand.Rand) (inbox.ClaimPlan, error) {
	s.claims <- req.LaneIDs
	return s.Store.Claim(ctx, req, clock, rng)
}

// A worker that outlives its lease is still at work for its run. A message that has come to the front of its lane meanwhile is
// another relay's to call: this run would take the old worker's result for one under the new lease.
func TestARunLeavesALaneAloneThatItsOverdueWorkerHasNotLeft(t *testing.T) {
	w := newWorld(t)
	late := w.insert("WO-1", 5)
	bystander := w.insert("WO-2", 1)
	slow, slower := newHeld(), newHeld()
	store := newWatched(w.store)
	first := w.start(w.relayWith(store, time.Now, w.engine(slow.answer)))
	<-slow.arrived
	<-slow.arrived
	for len(store.claims) > 0 {
		<-store.claims
	}
	front := w.insert("WO-1", 1)
	w.lapse("WO-1")
	for range 3 { // the first may have begun before, and what the second finds is claimed before the third
		<-store.scans
	}
	lane := inbox.LaneID(consumer, "", inbox.OrderPublished, "WO-1")
	for len(store.claims) > 0 {
		if lanes := <-store.claims; slices.Contains(lanes, lane) {
			t.Fatal("the run claims the lane that its worker is still at")
		}
	}

	other, _ := w.newStore()
	second := w.start(w.relayWith(other, time.Now, w.engine(slower.answer)))
	if d := <-slower.arrived; d.InboxID != front {
		t.Fatalf("another relay calls %s first, want the message at the front of the lane", d.InboxID)
	}
	held, atFront, behind := w.lane("WO-1"), w.row(front), w.row(late)
	slow.let <- engine.Result{Verdict: engine.Correlated}
	slow.let <- engine.Result{Verdict: engine.Correlated}
	if s := <-first; s.Processed != 1 {
		t.Errorf("the run whose lease is gone counts %d as processed, want the one of its other lane", s.Processed)
	}
	if got := w.status(bystander); got != "PROCESSED" {
		t.Errorf("the message of the run's other lane is %s, want PROCESSED", got)
	}
	if got := w.lane("WO-1"); got != held {
		t.Errorf("the overdue worker changed the lane from %+v to %+v", held, got)
	}
	if got := w.row(front); got != atFront {
		t.Errorf("the overdue worker changed the message that is being called from %+v to %+v", atFront, got)
	}
	if got := w.row(late); got != behind {
		t.Errorf("the overdue worker changed its message from %+v to %+v", behind, got)
	}

	close(slower.let)
	if s := <-second; s.Processed != 2 {
		t.Errorf("the lease's holder processed %d, want the message at the front and the one behind it", s.Processed)
	}
	for _, id := range []string{front, late} {
		if got := w.status(id); got != "PROCESSED" {
			t.Errorf("in the end %s is %s, want PROCESSED", id, got)
		}
	}
}

// What stands behind a head that leaves the queue in the claim has not been read where each lane gives one message.
func TestWhatStandsBehindAHeadThatLeavesInTheClaimIsNotForgotten(t *testing.T) {
	w := newWorld(t)
	w.cfg.Batch, w.cfg.Parallel = 4, 4
	head := w.insert("WO-1", 1)
	behind := w.insert("WO-1", 2)
	for _, key := range []string{"WO-2", "WO-3", "WO-4"} {
		w.insert(key, 1)
	}
	w.lose(head, "WO-1")
	w.update("Messages", map[string]any{"InboxId": head, "LostWorkers": w.cfg.Poison.LostWorkers - 1})
	w.once(w.relay(w.engine(nil)))
	if got := w.status(head); got != "PARKED/POISONED" {
		t.Errorf("the head is %s, want PARKED/POISONED", got)
	}
	if got := w.status(behind); got != "PROCESSED" {
		t.Errorf("the message behind it is %s, want PROCESSED by the same run", got)
	}
}
