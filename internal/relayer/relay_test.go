package relayer_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/relayer"
)

func TestMessagesOfAKeyAreCorrelatedInOrder(t *testing.T) {
	w := newWorld(t)
	want := map[string][]string{}
	for n := range 10 {
		for k := range 4 {
			key := fmt.Sprintf("WO-%d", k)
			want[key] = append(want[key], w.insert(key, n))
		}
	}
	w.tap.Reset()
	got := w.once(w.relay(w.engine(nil)))
	t.Log(w.tap.Counts(), w.tap.Rows(), got)
	got.DurationMs = 0
	if diff := cmp.Diff(relayer.Summary{Claimed: 40, Processed: 40}, got); diff != "" {
		t.Error(diff)
	}
	w.checkOrder(want)
	if n := w.count("SELECT COUNT(*) FROM Messages WHERE Status='PROCESSED' AND PurgeAt IS NOT NULL AND Attempts=1", nil); n != 40 {
		t.Errorf("%d rows are processed, want 40", n)
	}
}

func TestABatchCostsFewCommits(t *testing.T) {
	tests := []struct {
		name string
		key  func(n int) string
	}{
		{"100 messages in 100 lanes", func(n int) string { return fmt.Sprintf("WO-%d", n) }},
		{"100 messages in one lane", func(int) string { return "WO-1" }},
		{"100 messages without a key", func(int) string { return "" }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			r := w.relay(w.engine(nil))
			w.once(r) // the first run writes down the retention
			for n := range 100 {
				w.insert(tt.key(n), n)
			}
			// The emulator aborts some transactions by chance; those tries do not count.
			commits := 0
			w.tap.After("Commit", func(_ ctx, _ int, _, _ any, err error) error {
				if err == nil {
					commits++
				}
				return err
			})
			got := w.once(r)
			if got.Processed != 100 {
				t.Errorf("processed %d, want 100", got.Processed)
			}
			if commits > 3 {
				t.Errorf("%d commits for 100 messages, want at most 3", commits)
			}
			t.Log(w.tap.Counts(), w.tap.Rows(), got)
		})
	}
}

func TestEachVerdictLeadsToItsState(t *testing.T) {
	tests := []struct {
		verdict engine.Verdict
		want    string
		attempt int64
	}{
		{engine.Correlated, "PROCESSED", 1},
		{engine.Duplicate, "PROCESSED", 1},
		{engine.HandedOver, "PROCESSED", 1},
		{engine.AlreadyThrough, "PARKED/ALREADY_THROUGH", 1},
		{engine.Ambiguous, "PARKED/AMBIGUOUS", 1},
		{engine.Vanished, "PARKED/VANISHED", 1},
		{engine.Rejected, "PARKED/REJECTED", 1},
		{engine.Drop, "DISCARDED", 1},
		{engine.RetryAfter, "RETRYING", 1},
	}
	for _, tt := range tests {
		t.Run(string(tt.verdict), func(t *testing.T) {
			w := newWorld(t)
			policy := w.cfg.Routes["r"]
			policy.RetryMin, policy.RetryMax = hour, hour
			w.cfg.Routes["r"] = policy
			id := w.insert("WO-1", 1)
			w.once(w.relay(w.engine(always(tt.verdict))))
			if got := w.status(id); got != tt.want {
				t.Errorf("status %s, want %s", got, tt.want)
			}
			if got := w.row(id).Attempts; got != tt.attempt {
				t.Errorf("attempts %d, want %d", got, tt.attempt)
			}
		})
	}
}

// slowScans answers a scan when what waits for a time is due.
type slowScans struct {
	relayer.Store
	w *world
}

func (s slowScans) Scan(ctx context.Context, req inbox.ScanRequest) (inbox.Scanned, error) {
	for s.w.count("SELECT COUNT(*) FROM Lanes WHERE LeaseUntil IS NULL AND DueAt > TIMESTAMP_SUB(CURRENT_TIMESTAMP(), INTERVAL 20 MILLISECOND)", nil) > 0 {
		if err := ctx.Err(); err != nil {
			return inbox.Scanned{}, err
		}
	}
	return s.Store.Scan(ctx, req)
}

// The pause before the next try may be shorter than a scan takes: the run ends all the same.
func TestARunOnceEndsThoughWhatItTriedIsDueAgain(t *testing.T) {
	w := newWorld(t)
	w.cfg.Routes["r"] = relayer.RoutePolicy{Engine: "e", Patience: time.Hour, RetryMin: time.Nanosecond, RetryMax: time.Nanosecond}
	w.cfg.BreakerFailures = 1000
	for key := range 5 {
		for n := range 2 {
			w.insert(fmt.Sprint("K", key), n)
		}
	}
	stop, calls := make(chan struct{}), atomic.Int64{}
	r := w.relayWith(slowScans{w.store, w}, time.Now, w.engine(func(ctx, engine.Delivery) engine.Result {
		if calls.Add(1) == 50 {
			close(stop)
		}
		return engine.Result{Verdict: engine.NotWaiting, Code: "HTTP 404"}
	}))
	for run := int64(1); run <= 2; run++ {
		s, err := r.Run(t.Context(), true, stop, nil)
		if err != nil {
			t.Fatal(err)
		}
		if s.Retrying != 5 || calls.Load() != 5*run {
			t.Errorf("run %d: %d messages are to be tried again, %d calls in all, want 5 and %d", run, s.Retrying, calls.Load(), 5*run)
		}
	}
}

// slowRead answers its second scan as if the read had been slow: what became due a moment ago is not due by its clock.
type slowRead struct {
	relayer.Store
	scans atomic.Int64
}

func (s *slowRead) Scan(ctx context.Context, req inbox.ScanRequest) (inbox.Scanned, error) {
	found, err := s.Store.Scan(ctx, req)
	if s.scans.Add(1) == 2 {
		found.Lanes, found.More = nil, false
		found.Clock = inbox.Clock{Read: found.Clock.Read.Add(-time.Minute), Sent: found.Clock.Sent.Add(-time.Minute), Received: found.Clock.Received}
	}
	return found, err
}

func TestARunOnceDoesNotEndBeforeWhatItHasLeftDue(t *testing.T) {
	for name, first := range map[string]engine.Verdict{"given back": engine.NotStarted, "behind others of its lane": engine.Correlated} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.cfg.Batch = 1
			for n := range 2 {
				w.insert("WO", n)
			}
			calls := 0
			s := w.once(w.relayWith(&slowRead{Store: w.store}, time.Now, w.engine(func(ctx, engine.Delivery) engine.Result {
				calls++
				if calls == 1 {
					return engine.Result{Verdict: first}
				}
				return engine.Result{Verdict: engine.Correlated}
			})))
			if s.Processed != 2 {
				t.Errorf("the run has processed %d messages, want both", s.Processed)
			}
		})
	}
}

// scanned tells of each scan that is answered.
type scanned struct {
	relayer.Store
	answered chan struct{}
}

func (s scanned) Scan(ctx context.Context, req inbox.ScanRequest) (inbox.Scanned, error) {
	found, err := s.Store.Scan(ctx, req)
	s.answered <- struct{}{}
	return found, err
}

// That there was nothing else to do while a message was at work says nothing about the time after it.
func TestARunOnceDoesNotEndByAScanFromBeforeAMessageWasGivenBack(t *testing.T) {
	w := newWorld(t)
	w.insert("WO", 1)
	store := scanned{w.store, make(chan struct{}, 100)}
	calls := 0
	s := w.once(w.relayWith(store, time.Now, w.engine(func(ctx, engine.Delivery) engine.Result {
		if calls++; calls > 1 {
			return engine.Result{Verdict: engine.Correlated}
		}
		for range 2 { // the first found this message
			<-store.answered
		}
		return engine.Result{Verdict: engine.NotStarted}
	})))
	if s.Released != 1 || s.Processed != 1 {
		t.Errorf("%d given back, %d processed; want 1 and 1", s.Released, s.Processed)
	}
}
