package relayer_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/relayer"
)

// lose makes a message look as if its worker had died in the middle of it.
func (w *world) lose(id, key string) {
	w.update("Messages", map[string]any{"InboxId": id, "Status": "PROCESSING", "Attempts": 1})
	past := time.Now().Add(-hour)
	w.update("Lanes", map[string]any{"LaneId": inbox.LaneID(consumer, "", inbox.OrderPublished, key), "LeaseOwner": "dead", "LeaseToken": 7, "LeaseUntil": past, "DueAt": past})
}

func TestALostWorkersMessageIsCalledAgainUnderTheSameID(t *testing.T) {
	w := newWorld(t)
	id := w.insert("WO-1", 1)
	w.lose(id, "WO-1")
	w.once(w.relay(w.engine(nil)))
	got := w.row(id)
	if got.Status != "PROCESSED" || got.Attempts != 2 || got.Lost != 0 || got.Unknown {
		t.Errorf("row is %+v; want PROCESSED at the second attempt, with no lost worker left", got)
	}
	if n := w.count("SELECT COUNT(*) FROM Attempts WHERE Verdict = 'LOST' AND Number = 1 AND Owner = 'dead' AND Engine = 'e'", nil); n != 1 {
		t.Errorf("%d lost attempts are recorded, want 1", n)
	}
}

func TestSuspectsAreCalledAloneAndOthersGoOn(t *testing.T) {
	w := newWorld(t)
	var suspects []string
	for n := range 3 {
		key := fmt.Sprintf("S-%d", n)
		id := w.insert(key, n)
		w.lose(id, key)
		suspects = append(suspects, id)
	}
	for n := range 20 {
		w.insert(fmt.Sprintf("WO-%d", n), n)
	}
	isSuspect := map[string]bool{}
	for _, id := range suspects {
		isSuspect[id] = true
	}
	var mu sync.Mutex
	inflight, crowded := 0, false
	s := w.once(w.relay(w.engine(func(_ context.Context, d engine.Delivery) engine.Result {
		mu.Lock()
		inflight++
		alone := inflight == 1
		mu.Unlock()
		if isSuspect[d.InboxID] {
			claimed := w.count("SELECT COUNT(*) FROM Messages WHERE Status = 'PROCESSING'", nil)
			mu.Lock()
			crowded = crowded || !alone || claimed != 1
			mu.Unlock()
		}
		mu.Lock()
		inflight--
		mu.Unlock()
		return engine.Result{Verdict: engine.Correlated}
	})))
	if s.Processed != 23 {
		t.Errorf("processed %d, want 23", s.Processed)
	}
	if crowded {
		t.Error("a suspect had company in its process")
	}
}

func TestAMessageThatCostsWorkerAfterWorkerIsPoisoned(t *testing.T) {
	w := newWorld(t)
	id := w.insert("WO-1", 1)
	next := w.insert("WO-1", 2)
	w.lose(id, "WO-1")
	w.update("Messages", map[string]any{"InboxId": id, "LostWorkers": 4})
	s := w.once(w.relay(w.engine(nil)))
	if got := w.status(id); got != "PARKED/POISONED" {
		t.Errorf("status %s, want PARKED/POISONED", got)
	}
	if got := w.status(next); got != "PROCESSED" {
		t.Errorf("the message behind it is %s, want PROCESSED", got)
	}
	if s.Parked != 1 {
		t.Errorf("the summary counts %d parked, want 1", s.Parked)
	}
	for _, called := range w.called() {
		if called == id {
			t.Error("the poisoned message was called once more")
		}
	}
}

func TestAnEngineThatCanNeitherBeAskedNorTakeItTwiceGetsNothingTwice(t *testing.T) {
	w := newWorld(t)
	id := w.insert("WO-1", 1)
	w.lose(id, "WO-1")
	w.once(w.relay(map[string]engine.Engine{"e": &scripted{w: w, name: "e"}}))
	if got := w.status(id); got != "PARKED/POSSIBLY_DELIVERED" {
		t.Errorf("status %s, want PARKED/POSSIBLY_DELIVERED", got)
	}
	if n := len(w.called()); n != 0 {
		t.Errorf("%d calls, want none", n)
	}
	// A person's word that it may be sent.
	w.sql("UPDATE Messages SET Status = 'RECEIVED', Attempts = 0 WHERE InboxId = @id AND Status = 'PARKED'", map[string]any{"id": id})
	w.once(w.relay(map[string]engine.Engine{"e": &scripted{w: w, name: "e"}}))
	if got := w.status(id); got != "PROCESSED" {
		t.Errorf("after the repair status %s, want PROCESSED", got)
	}
}

func TestTheOneStatementReopensAParkedMessage(t *testing.T) {
	w := newWorld(t)
	policy := w.cfg.Routes["r"]
	policy.Patience = 0
	w.cfg.Routes["r"] = policy
	id := w.insert("WO-1", 1)
	w.once(w.relay(w.engine(always(engine.NotWaiting))))
	if got := w.status(id); got != "PARKED/NO_WAITING_INSTANCE" {
		t.Fatalf("status %s, want PARKED/NO_WAITING_INSTANCE", got)
	}
	w.update("Messages", map[string]any{"InboxId": id, "NextAttemptAt": time.Now().Add(hour), "TechnicalFailures": 9, "PatienceUsed": 5})
	w.sql("UPDATE Messages SET Status = 'RECEIVED', Attempts = 0 WHERE InboxId = @id AND Status = 'PARKED'", map[string]any{"id": id})
	w.once(w.relay(w.engine(nil)))
	got := w.row(id)
	if got.Status != "PROCESSED" || got.Attempts != 1 || got.TechnicalFailures != 0 || got.PatienceUsed != 0 || got.Reason != "" {
		t.Errorf("row is %+v, want PROCESSED from a fresh start", got)
	}
	if n := w.count("SELECT COUNT(*) FROM Audit WHERE InboxId = @id AND Action = 'reopen-by-hand'", map[string]any{"id": id}); n != 1 {
		t.Errorf("%d audit rows, want 1", n)
	}
}

func TestARowWithoutARouteIsParkedAgainWithItsReason(t *testing.T) {
	w := newWorld(t)
	id := w.insert("", 1, func(m *inbox.Message) { m.Route, m.Status, m.Reason = "", inbox.Parked, inbox.NoRoute })
	w.sql("UPDATE Messages SET Status = 'RECEIVED', Attempts = 0 WHERE InboxId = @id", map[string]any{"id": id})
	w.once(w.relay(w.engine(nil)))
	if got := w.status(id); got != "PARKED/NO_ROUTE" {
		t.Errorf("status %s, want PARKED/NO_ROUTE", got)
	}
}

func TestAParkedMessageOfABlockingRouteClosesItsLane(t *testing.T) {
	for _, blocks := range []bool{true, false} {
		t.Run(fmt.Sprintf("blocks %v", blocks), func(t *testing.T) {
			w := newWorld(t)
			block := func(m *inbox.Message) { m.Blocks = blocks }
			first, second, third := w.insert("WO-8", 1, block), w.insert("WO-8", 2, block), w.insert("WO-8", 3, block)
			healthy := w.insert("WO-9", 1, block)
			verdict := engine.Ambiguous
			r := w.relay(w.engine(func(_ context.Context, d engine.Delivery) engine.Result {
				if d.InboxID == first {
					return engine.Result{Verdict: verdict}
				}
				return engine.Result{Verdict: engine.Correlated}
			}))
			w.once(r)
			if got := w.status(first); got != "PARKED/AMBIGUOUS" {
				t.Fatalf("the head is %s, want PARKED/AMBIGUOUS", got)
			}
			want := "PROCESSED"
			if blocks {
				want = "RECEIVED"
				if lane := w.lane("WO-8"); lane.WhyNotDue != inbox.WhyBlocked || !lane.DueAt.IsZero() {
					t.Errorf("the lane is due at %v because of %q, want never, BLOCKED", lane.DueAt, lane.WhyNotDue)
				}
			}
			for _, id := range []string{second, third} {
				if got := w.status(id); got != want {
					t.Errorf("a message behind it is %s, want %s", got, want)
				}
			}
			if got := w.status(healthy); got != "PROCESSED" {
				t.Errorf("another key's message is %s, want PROCESSED", got)
			}
			verdict = engine.Correlated
			w.sql("UPDATE Messages SET Status = 'RECEIVED', Attempts = 0 WHERE InboxId = @id AND Status = 'PARKED'", map[string]any{"id": first})
			w.once(r)
			for _, id := range []string{first, second, third} {
				if got := w.status(id); got != "PROCESSED" {
					t.Errorf("after the repair a message is %s, want PROCESSED", got)
				}
			}
			if got := w.row(first).Late; got == blocks {
				t.Errorf("the repaired message is late: %v, want %v", got, !blocks)
			}
		})
	}
}

func TestTheSweepFindsWhatItsLaneHasForgotten(t *testing.T) {
	tests := []struct {
		name   string
		forget func(w *world, lane string)
	}{
		{"a lane that is missing", func(w *world, lane string) {
			w.sql("DELETE FROM Lanes WHERE LaneId = @id", map[string]any{"id": lane})
		}},
		{"a lane without a time", func(w *world, lane string) {
			w.update("Lanes", map[string]any{"LaneId": lane, "WokenAt": nil, "DueAt": nil})
		}},
		{"a lane whose time is later than its head allows", func(w *world, lane string) {
			w.update("Lanes", map[string]any{"LaneId": lane, "WokenAt": nil, "DueAt": time.Now().Add(hour)})
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			id := w.insert("WO-1", 1)
			tt.forget(w, inbox.LaneID(consumer, "", inbox.OrderPublished, "WO-1"))
			w.once(w.relay(w.engine(nil)))
			if got := w.status(id); got != "PROCESSED" {
				t.Errorf("status %s, want PROCESSED", got)
			}
		})
	}
}

func TestTheSweepGoesRoundInSlices(t *testing.T) {
	w := newWorld(t)
	w.cfg.SweepSlice = 3
	for n := range 10 {
		w.insert(fmt.Sprintf("WO-%d", n), n)
	}
	w.sql("DELETE FROM Lanes WHERE true", nil)
	r := w.relay(w.engine(nil))
	processed := 0
	for range 6 {
		processed += w.once(r).Processed
	}
	if processed != 10 {
		t.Errorf("six runs found %d of 10 forgotten messages", processed)
	}
}

func TestPatienceIsTheTimeOfNotWaitingOnly(t *testing.T) {
	w := newWorld(t)
	policy := w.cfg.Routes["r"]
	policy.Patience, policy.RetryMin, policy.RetryMax = 10*time.Minute, hour, hour
	w.cfg.Routes["r"] = policy
	id := w.insert("WO-1", 1)
	due := func() {
		w.update("Messages", map[string]any{"InboxId": id, "NextAttemptAt": nil})
		w.sql("UPDATE Lanes SET WokenAt = PENDING_COMMIT_TIMESTAMP() WHERE true", nil)
	}
	w.once(w.relay(w.engine(always(engine.NotWaiting))))
	if got := w.status(id); got != "RETRYING" {
		t.Fatalf("status %s, want RETRYING", got)
	}
	// An outage of two hours.
	w.update("Messages", map[string]any{"InboxId": id, "LastNotWaitingAt": time.Now().Add(-2 * hour)})
	due()
	w.once(w.relay(w.engine(always(engine.Technical))))
	due()
	w.once(w.relay(w.engine(always(engine.NotWaiting))))
	if got := w.row(id); got.Status != "RETRYING" || got.PatienceUsed != 0 {
		t.Errorf("after an outage the row is %s with %d ms of patience used, want RETRYING with 0", got.Status, got.PatienceUsed)
	}
	// Eleven minutes in which nobody waited.
	w.update("Messages", map[string]any{"InboxId": id, "LastNotWaitingAt": time.Now().Add(-11 * time.Minute)})
	due()
	w.once(w.relay(w.engine(always(engine.NotWaiting))))
	if got := w.status(id); got != "PARKED/NO_WAITING_INSTANCE" {
		t.Errorf("status %s, want PARKED/NO_WAITING_INSTANCE", got)
	}
}

func TestAnOutageParksNothingAndAllIsCorrelatedAfterwards(t *testing.T) {
	w := newWorld(t)
	w.cfg.Routes["r"] = relayer.RoutePolicy{Engine: "e", Patience: time.Millisecond, RetryMin: time.Millisecond, RetryMax: 5 * time.Millisecond}
	for n := range 30 {
		w.insert(fmt.Sprintf("WO-%d", n), n)
	}
	down := true
	r := w.relay(w.engine(func(context.Context, engine.Delivery) engine.Result {
		if down {
			return engine.Result{Verdict: engine.Technical}
		}
		return engine.Result{Verdict: engine.Correlated}
	}))
	w.cfg.Budget = time.Second
	short := w.relay(w.engine(always(engine.Technical)))
	w.once(short)
	// As if it had lasted for days.
	w.sql("UPDATE Messages SET FirstFailedAt = TIMESTAMP_SUB(CURRENT_TIMESTAMP(), INTERVAL 3 DAY), TechnicalFailures = 500, OutageFailures = 499 WHERE FirstFailedAt IS NOT NULL", nil)
	w.once(short)
	if n := w.count("SELECT COUNT(*) FROM Messages WHERE Status = 'PARKED'", nil); n != 0 {
		t.Fatalf("the outage parked %d messages", n)
	}
	down = false
	w.wakeAll()
	w.once(r)
	if n := w.count("SELECT COUNT(*) FROM Messages WHERE Status = 'PROCESSED'", nil); n != 30 {
		t.Errorf("after the outage %d messages are correlated, want 30", n)
	}
}

// wakeAll makes everything due now, as time would.
func (w *world) wakeAll() {
	w.sql("UPDATE Messages SET NextAttemptAt = NULL WHERE Status = 'RETRYING'", nil)
	w.sql("UPDATE Lanes SET DueAt = TIMESTAMP_SUB(CURRENT_TIMESTAMP(), INTERVAL 1 SECOND) WHERE PurgeAt IS NULL", nil)
	w.sql("UPDATE Engines SET OpenUntil = TIMESTAMP_SUB(CURRENT_TIMESTAMP(), INTERVAL 1 SECOND) WHERE OpenUntil IS NOT NULL", nil)
}

func TestOneMessageThatAlwaysFailsWhileOthersPassIsPoisonedInTheEnd(t *testing.T) {
	w := newWorld(t)
	w.cfg.Routes["r"] = relayer.RoutePolicy{Engine: "e", Patience: hour, RetryMin: hour, RetryMax: hour}
	bad := w.insert("BAD", 1)
	r := w.relay(w.engine(func(_ context.Context, d engine.Delivery) engine.Result {
		if d.InboxID == bad {
			return engine.Result{Verdict: engine.Technical, Code: "HTTP 500"}
		}
		return engine.Result{Verdict: engine.Correlated}
	}))
	w.once(r)
	w.update("Messages", map[string]any{"InboxId": bad, "FirstFailedAt": time.Now().Add(-25 * hour)})
	for n := range 30 {
		w.insert(fmt.Sprintf("WO-%d", n), n)
		w.once(r)
		w.wakeAll()
		w.once(r)
		if w.status(bad) != "RETRYING" {
			break
		}
	}
	got := w.row(bad)
	if got.Status != "PARKED" || got.Reason != "POISONED" {
		t.Fatalf("status %s/%s, want PARKED/POISONED", got.Status, got.Reason)
	}
	if got.TechnicalFailures < 20 || got.TechnicalFailures > 21 {
		t.Errorf("given up after %d failures, want 20", got.TechnicalFailures)
	}
}

func TestTheBreakerLetsOneProbeThroughAmongAllRelays(t *testing.T) {
	w := newWorld(t)
	w.cfg.Routes["r"] = relayer.RoutePolicy{Engine: "e", Patience: hour, RetryMin: hour, RetryMax: hour}
	w.cfg.Parallel = 1
	for n := range 20 {
		w.insert(fmt.Sprintf("WO-%02d", n), n)
	}
	w.cfg.Batch = 5 // claims are settled before the next
	failing := w.engine(always(engine.Technical))
	w.once(w.relay(failing))
	// Five failures open it; a claim made meanwhile may add its own.
	called := len(w.called())
	if called < 5 || called > 10 {
		t.Errorf("%d calls before the breaker opened, want 5 to 10", called)
	}
	if n := w.count("SELECT COUNT(*) FROM Lanes WHERE WokenAt IS NOT NULL", nil); n != int64(20-called) {
		t.Errorf("%d lanes stand as they stood, want %d", n, 20-called)
	}
	w.wakeAll()
	probe := newHeld()
	first := w.start(w.relay(w.engine(probe.answer)))
	<-probe.arrived
	// While the probe is under way, another process calls nothing.
	w.wakeAll()
	store, _ := w.newStore()
	calls := len(w.called())
	w.cfg.Budget = 500 * time.Millisecond
	other := w.relayWith(store, time.Now, w.engine(nil))
	w.once(other)
	if n := len(w.called()) - calls; n != 0 {
		t.Errorf("another relay made %d calls beside the probe, want none", n)
	}
	close(probe.let)
	<-first
	w.wakeAll()
	w.cfg.Budget = time.Minute
	w.once(w.relay(w.engine(nil)))
	if n := w.count("SELECT COUNT(*) FROM Messages WHERE Status = 'PROCESSED'", nil); n != 20 {
		t.Errorf("%d messages are correlated after the probe, want 20", n)
	}
}

func TestAnEngineThatRefusesUsIsPausedAndNoAttemptIsBurned(t *testing.T) {
	w := newWorld(t)
	w.cfg.Routes["r"] = relayer.RoutePolicy{Engine: "e", Patience: hour, RetryMin: hour, RetryMax: hour}
	id := w.insert("WO-1", 1)
	s := w.once(w.relay(w.engine(always(engine.Unauthorised))))
	if got := w.row(id); got.Status != "RECEIVED" || got.Attempts != 0 || got.TechnicalFailures != 0 {
		t.Errorf("row is %+v, want RECEIVED with no attempt", got)
	}
	if s.Released != 1 {
		t.Errorf("released %d, want 1", s.Released)
	}
	if n := w.count("SELECT COUNT(*) FROM Engines WHERE OpenReason = 'UNAUTHORISED' AND OpenUntil > CURRENT_TIMESTAMP()", nil); n != 1 {
		t.Error("the engine is not paused")
	}
	if n := len(w.called()); n != 1 {
		t.Errorf("%d calls, want 1", n)
	}
}

func TestASlowEngineDoesNotStopAQuickOne(t *testing.T) {
	w := newWorld(t)
	w.cfg.Routes["slow"] = relayer.RoutePolicy{Engine: "slow", Patience: hour, RetryMin: time.Second, RetryMax: time.Second}
	for n := range 500 {
		w.insert(fmt.Sprintf("S-%d", n), n, func(m *inbox.Message) { m.Route = "slow" })
	}
	slow := newHeld()
	slow.arrived = make(chan engine.Delivery, 1000)
	quick := make(chan struct{}, 100)
	engines := w.engine(func(context.Context, engine.Delivery) engine.Result {
		quick <- struct{}{}
		return engine.Result{Verdict: engine.Correlated}
	})
	engines["slow"] = &scripted{w: w, name: "slow", props: engine.Properties{Idempotent: true}, answer: slow.answer}
	r := w.relay(engines)
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = r.Run(context.WithoutCancel(t.Context()), false, stop, nil)
	}()
	<-slow.arrived // the slow engine hangs with all that it may have
	for n := range 5 {
		w.insert(fmt.Sprintf("Q-%d", n), n)
	}
	for range 5 {
		<-quick
	}
	close(stop)
	close(slow.let)
	<-done
}

func TestAHeadThatWaitsDoesNotStopOtherKeys(t *testing.T) {
	w := newWorld(t)
	w.cfg.Routes["r"] = relayer.RoutePolicy{Engine: "e", Patience: hour, RetryMin: hour, RetryMax: hour}
	waits := w.insert("WO-1", 1)
	behind := w.insert("WO-1", 2)
	var others []string
	for n := range 10 {
		others = append(others, w.insert(fmt.Sprintf("X-%d", n), n))
	}
	w.once(w.relay(w.engine(func(_ context.Context, d engine.Delivery) engine.Result {
		if d.InboxID == waits {
			return engine.Result{Verdict: engine.NotWaiting}
		}
		return engine.Result{Verdict: engine.Correlated}
	})))
	if got := w.status(waits); got != "RETRYING" {
		t.Errorf("the head is %s, want RETRYING", got)
	}
	if got := w.status(behind); got != "RECEIVED" {
		t.Errorf("the message behind it is %s, want RECEIVED", got)
	}
	for _, id := range others {
		if got := w.status(id); got != "PROCESSED" {
			t.Errorf("another key's message is %s, want PROCESSED", got)
		}
	}
}

func TestARouteThisInstanceLacksWaitsAMinuteAndIsNotParked(t *testing.T) {
	w := newWorld(t)
	id := w.insert("WO-1", 1, func(m *inbox.Message) { m.Route = "newer" })
	w.once(w.relay(w.engine(nil)))
	if got := w.status(id); got != "RECEIVED" {
		t.Errorf("status %s, want RECEIVED", got)
	}
	if lane := w.lane("WO-1"); lane.WhyNotDue != inbox.WhyRouteUnknown || lane.DueAt.Before(time.Now().Add(30*time.Second)) {
		t.Errorf("the lane is due at %v because of %q, want in a minute, ROUTE_UNKNOWN", lane.DueAt, lane.WhyNotDue)
	}
}

func TestWhatVanishedIsLookedForOnceMore(t *testing.T) {
	for second, want := range map[engine.Verdict]string{
		engine.Vanished: "PARKED/VANISHED", engine.NotWaiting: "PARKED/VANISHED", engine.Correlated: "PROCESSED",
	} {
		w := newWorld(t)
		id := w.insert("WO-1", 1)
		calls := 0
		w.once(w.relay(w.engine(func(context.Context, engine.Delivery) engine.Result {
			if calls++; calls == 1 {
				return engine.Result{Verdict: engine.Vanished}
			}
			return engine.Result{Verdict: second}
		})))
		if got := w.status(id); got != want || calls != 2 {
			t.Errorf("vanished, then %s: %s after %d calls, want %s after 2", second, got, calls, want)
		}
	}
}

// unreachable is a store whose reads hang, as they do when the database is out of reach.
type unreachable struct{ relayer.Store }

func (unreachable) Sweep(ctx context.Context, _ string, _ int) (int, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

func (unreachable) Scan(ctx context.Context, _ inbox.ScanRequest) (inbox.Scanned, error) {
	<-ctx.Done()
	return inbox.Scanned{}, ctx.Err()
}

func TestADatabaseOutOfReachKeepsNoRunWaiting(t *testing.T) {
	w := newWorld(t)
	w.cfg.Lease, w.cfg.Budget = 400*time.Millisecond, time.Second // a read waits for a quarter of the lease
	for _, once := range []bool{true, false} {
		r := w.relayWith(unreachable{w.store}, time.Now, w.engine(nil))
		if _, err := r.Run(t.Context(), once, nil, nil); err == nil {
			t.Errorf("once %v: no error", once)
		}
	}
	// Told to end, it does not wait for the read either.
	w.cfg.Lease, w.cfg.Budget = hour, hour
	stop := make(chan struct{})
	close(stop)
	r := w.relayWith(unreachable{w.store}, time.Now, w.engine(nil))
	if _, err := r.Run(t.Context(), false, stop, nil); err != nil {
		t.Errorf("a run that is told to end reports %v", err)
	}
}
