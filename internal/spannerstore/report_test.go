package spannerstore_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/spanner/apiv1/spannerpb"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

func (w *world) report() inbox.Report {
	w.t.Helper()
	r, err := w.store.Report(w.t.Context(), inbox.ReportRequest{Consumer: consumer, Routes: []string{"r"}, Lease: lease, MaxOpen: 100, MaxParked: 100})
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func TestTheGaugesOfOpenMessagesBeginAtTheOldestOne(t *testing.T) {
	w := newWorld(t)
	w.insert("WO", 1)
	w.insert("WO", 2)
	var mu sync.Mutex
	bounded, whole := 0, 0
	w.tap.Before("StreamingRead", func(_ context.Context, _ int, req any) error {
		read := req.(*spannerpb.ReadRequest)
		if read.GetIndex() != "MessagesOpen" {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		for _, r := range read.GetKeySet().GetRanges() {
			if len(r.GetStartClosed().GetValues()) == 3 {
				bounded++
			} else {
				whole++
			}
		}
		return nil
	})
	if got := w.report().Open; got != 2 {
		t.Errorf("%d open, want 2", got)
	}
	if bounded != 0 || whole != inbox.Shards {
		t.Errorf("the first report reads %d shards from a mark and %d from their beginning", bounded, whole)
	}
	plan, clock := w.claim(w.store, "owner")
	if _, err := w.store.Settle(t.Context(), settlement(plan, "done"), clock); err != nil {
		t.Fatal(err)
	}
	w.insert("WO", 3)
	bounded, whole = 0, 0
	if got := w.report().Open; got != 1 {
		t.Errorf("%d open, want 1", got)
	}
	if bounded != inbox.Shards || whole != 0 {
		t.Errorf("the second report reads %d shards from a mark and %d from their beginning", bounded, whole)
	}
}

func TestAMessageThatIsOpenAgainIsInTheGaugesAfterASweep(t *testing.T) {
	w := newWorld(t)
	for n := range 5 {
		w.insert("WO", n, func(m *inbox.Message) { m.Status, m.Reason = inbox.Parked, inbox.Poisoned })
	}
	if got := w.report().Open; got != 0 {
		t.Errorf("%d open, want none", got)
	}
	w.sql("UPDATE Messages SET Status = 'RECEIVED' WHERE true", nil)
	w.sweep(100, 1)
	r := w.report()
	if r.Open != 5 || r.OldestOpen < 0 || r.OldestOpen > time.Minute {
		t.Errorf("%d open, the oldest since %v; want all five", r.Open, r.OldestOpen)
	}
}
