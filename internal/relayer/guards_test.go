package relayer_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/relayer"
)

// lapse makes the lease of a key's lane run out, as time would.
func (w *world) lapse(key string) {
	past := time.Now().Add(-hour)
	w.update("Lanes", map[string]any{"LaneId": inbox.LaneID(consumer, "", inbox.OrderPublished, key), "LeaseUntil": past, "DueAt": past})
}

func (w *world) lane(key string) inbox.Lane {
	w.t.Helper()
	id := inbox.LaneID(consumer, "", inbox.OrderPublished, key)
	r, err := w.client.Single().ReadRow(w.t.Context(), "Lanes", spanner.Key{id}, []string{"WokenAt", "DueAt", "LeaseOwner", "LeaseToken", "LeaseUntil", "WhyNotDue", "PurgeAt", "LastInboxId"})
	if err != nil {
		w.t.Fatal(err)
	}
	var l inbox.Lane
	var woken, due, until, purge spanner.NullTime
	var owner, why, last spanner.NullString
	if err := r.Columns(&woken, &due, &owner, &l.LeaseToken, &until, &why, &purge, &last); err != nil {
		w.t.Fatal(err)
	}
	l.WokenAt, l.DueAt, l.LeaseOwner, l.LeaseUntil, l.WhyNotDue, l.PurgeAt = woken.Time, due.Time, owner.StringVal, until.Time, why.StringVal, purge.Time
	l.Last.InboxID = last.StringVal
	return l
}

// held is an engine answer that waits until it is let go.
type held struct {
	arrived chan engine.Delivery
	let     chan engine.Result
}

func newHeld() *held {
	return &held{arrived: make(chan engine.Delivery, 1000), let: make(chan engine.Result, 10)}
}

func (h *held) answer(ctx context.Context, d engine.Delivery) engine.Result {
	h.arrived <- d
	select {
	case res, ok := <-h.let:
		if !ok { // closed: no more waiting
			return engine.Result{Verdict: engine.Correlated}
		}
		return res
	case <-ctx.Done():
		return engine.Result{Verdict: engine.Unknown}
	}
}

// start runs a relay in the background.
func (w *world) start(r *relayer.Relayer) <-chan relayer.Summary {
	done := make(chan relayer.Summary, 1)
	go func() {
		s, err := r.Run(context.WithoutCancel(w.t.Context()), true, nil, nil)
		if err != nil {
			w.t.Error(err)
		}
		done <- s
	}()
	return done
}

func TestTheAttemptIsRecordedBeforeTheCall(t *testing.T) {
	w := newWorld(t)
	id := w.insert("WO-1", 1)
	var seen row
	w.once(w.relay(w.engine(func(context.Context, engine.Delivery) engine.Result {
		seen = w.row(id)
		return engine.Result{Verdict: engine.Correlated}
	})))
	if seen.Status != "PROCESSING" || seen.Attempts != 1 {
		t.Errorf("during the call the row was %s with %d attempts, want PROCESSING with 1", seen.Status, seen.Attempts)
	}
}

func TestALateWorkerChangesNothing(t *testing.T) {
	w := newWorld(t)
	id := w.insert("WO-1", 1)
	slow := newHeld()
	done := w.start(w.relay(w.engine(slow.answer)))
	<-slow.arrived
	w.lapse("WO-1")
	store, _ := w.newStore()
	// The second relay finds a lost worker, and the engine, which is idempotent, takes the message again.
	second := w.once(w.relayWith(store, time.Now, w.engine(always(engine.Rejected))))
	if second.Parked != 1 {
		t.Fatalf("the second relay parked %d, want 1", second.Parked)
	}
	before := w.row(id)
	slow.let <- engine.Result{Verdict: engine.Correlated}
	first := <-done
	if first.Processed != 0 {
		t.Errorf("the late worker counts %d as processed, want 0", first.Processed)
	}
	if after := w.row(id); after != before {
		t.Errorf("the late worker changed the row from %+v to %+v", before, after)
	}
	if n := w.count("SELECT COUNT(*) FROM Attempts WHERE InboxId = @id AND Late AND Verdict = 'CORRELATED'", map[string]any{"id": id}); n != 1 {
		t.Errorf("%d late attempts are recorded, want 1", n)
	}
}

func TestALateWorkerDoesNotReleaseTheNextWorkersLane(t *testing.T) {
	w := newWorld(t)
	w.insert("WO-1", 1)
	slow, slower := newHeld(), newHeld()
	done := w.start(w.relay(w.engine(slow.answer)))
	<-slow.arrived
	w.lapse("WO-1")
	store, _ := w.newStore()
	second := w.start(w.relayWith(store, time.Now, w.engine(slower.answer)))
	<-slower.arrived
	before := w.lane("WO-1")
	slow.let <- engine.Result{Verdict: engine.Correlated}
	<-done
	if after := w.lane("WO-1"); after != before {
		t.Errorf("the late worker changed the lane from %+v to %+v", before, after)
	}
	slower.let <- engine.Result{Verdict: engine.Correlated}
	if s := <-second; s.Processed != 1 {
		t.Errorf("the lease's holder processed %d, want 1", s.Processed)
	}
}

func TestAWakeUpBetweenClaimAndSettleIsKept(t *testing.T) {
	w := newWorld(t)
	first := w.insert("WO-1", 1)
	slow := newHeld()
	w.cfg.SweepSlice = 1
	done := w.start(w.relay(w.engine(slow.answer)))
	<-slow.arrived
	second := w.insert("WO-1", 2)
	if w.lane("WO-1").WokenAt.IsZero() {
		t.Fatal("the receive did not wake the lane")
	}
	slow.let <- engine.Result{Verdict: engine.Correlated}
	<-slow.arrived // the same run goes on with it, without a sweep
	if !w.lane("WO-1").WokenAt.IsZero() {
		t.Error("the claim did not clear the wake-up that it answered")
	}
	slow.let <- engine.Result{Verdict: engine.Correlated}
	if s := <-done; s.Processed != 2 {
		t.Errorf("processed %d, want 2", s.Processed)
	}
	w.checkOrder(map[string][]string{"WO-1": {first, second}})
}

func TestSettlingLeavesTheWakeUpAlone(t *testing.T) {
	w := newWorld(t)
	w.insert("WO-1", 1)
	slow := newHeld()
	stop := make(chan struct{})
	done := make(chan struct{})
	r := w.relay(w.engine(slow.answer))
	go func() {
		defer close(done)
		if _, err := r.Run(context.WithoutCancel(t.Context()), true, stop, nil); err != nil {
			t.Error(err)
		}
	}()
	<-slow.arrived
	w.insert("WO-1", 2)
	woken := w.lane("WO-1").WokenAt
	close(stop) // nothing new is claimed: what is seen is the settlement
	slow.let <- engine.Result{Verdict: engine.Correlated}
	<-done
	if got := w.lane("WO-1"); !got.WokenAt.Equal(woken) || got.LeaseOwner != "" {
		t.Errorf("after settling WokenAt is %v, want %v; lease owner %q, want none", got.WokenAt, woken, got.LeaseOwner)
	}
}

func TestTheBackoffOfALaneSurvivesReceives(t *testing.T) {
	w := newWorld(t)
	policy := w.cfg.Routes["r"]
	policy.RetryMin, policy.RetryMax = hour, hour
	w.cfg.Routes["r"] = policy
	w.insert("WO-1", 1)
	r := w.relay(w.engine(always(engine.Technical)))
	w.once(r)
	w.insert("WO-1", 2)
	w.insert("WO-1", 3)
	if s := w.once(r); s.Claimed != 0 {
		t.Errorf("claimed %d behind a head that waits, want 0", s.Claimed)
	}
	if lane := w.lane("WO-1"); lane.WhyNotDue != inbox.WhyHeadWaits || lane.DueAt.Before(time.Now().Add(hour/3)) {
		t.Errorf("the lane is due at %v because of %s; want its head's next attempt", lane.DueAt, lane.WhyNotDue)
	}
	if n := len(w.called()); n != 1 {
		t.Errorf("%d calls, want 1", n)
	}
}

// shifted is a local clock that a test can move.
type shifted struct{ by atomic.Int64 }

func (s *shifted) now() time.Time { return time.Now().Add(time.Duration(s.by.Load())) }

func TestNothingStartsThatItsLeaseMightNotOutlast(t *testing.T) {
	w := newWorld(t)
	var ids []string
	for n := range 3 {
		ids = append(ids, w.insert("WO-1", n))
	}
	clock, stop := &shifted{}, make(chan struct{})
	r := w.relayWith(w.store, clock.now, w.engine(func(_ context.Context, d engine.Delivery) engine.Result {
		// This call ends when the lease has less than twice the timeout (a minute) left.
		clock.by.Add(int64(w.cfg.Lease - 90*time.Second))
		defer close(stop) // what is released is to be seen, not claimed again
		return engine.Result{Verdict: engine.Correlated}
	}))
	s, err := r.Run(t.Context(), true, stop, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s.Processed != 1 || s.Released != 2 {
		t.Errorf("processed %d, released %d; want 1 and 2", s.Processed, s.Released)
	}
	for _, id := range ids[1:] {
		if got := w.row(id); got.Status != "RECEIVED" || got.Attempts != 0 {
			t.Errorf("a message that was not started is %s with %d attempts, want RECEIVED with 0", got.Status, got.Attempts)
		}
	}
	if n := w.count("SELECT COUNT(*) FROM Attempts", nil); n != 0 {
		t.Errorf("%d attempts are recorded, want none", n)
	}
}

func TestAnEndingLaneIsKeptByWhatArrives(t *testing.T) {
	w := newWorld(t)
	w.insert("WO-1", 1)
	w.once(w.relay(w.engine(nil)))
	ended := w.lane("WO-1")
	if left := time.Until(ended.PurgeAt); left < w.cfg.Retention-hour || left > w.cfg.Retention+hour {
		t.Errorf("the empty lane is purged in %v, want %v: its position must outlive what can come late", left, w.cfg.Retention)
	}
	if ended.Last.InboxID == "" {
		t.Error("the lane forgot its last finished position")
	}
	w.insert("WO-1", 2)
	if got := w.lane("WO-1").PurgeAt; !got.IsZero() {
		t.Errorf("after a receive the lane is still purged at %v", got)
	}
	// A claim keeps it too: a sweep or an operator may have woken it.
	w.update("Lanes", map[string]any{"LaneId": inbox.LaneID(consumer, "", inbox.OrderPublished, "WO-1"), "PurgeAt": time.Now().Add(-hour)})
	slow := newHeld()
	done := w.start(w.relay(w.engine(slow.answer)))
	<-slow.arrived
	if got := w.lane("WO-1").PurgeAt; !got.IsZero() {
		t.Errorf("a claimed lane is purged at %v", got)
	}
	slow.let <- engine.Result{Verdict: engine.Correlated}
	<-done
}

func TestTheOwnLaneOfAMessageWithoutAKeyEndsAtOnce(t *testing.T) {
	w := newWorld(t)
	w.insert("", 1)
	w.once(w.relay(w.engine(nil)))
	if n := w.count("SELECT COUNT(*) FROM Lanes WHERE PurgeAt <= TIMESTAMP_ADD(CURRENT_TIMESTAMP(), INTERVAL 1 MINUTE)", nil); n != 1 {
		t.Errorf("%d lanes are on their way out, want 1", n)
	}
}

func TestAMessageThatArrivesBehindTheLanesPositionIsLateAndCorrelated(t *testing.T) {
	w := newWorld(t)
	w.insert("WO-1", 5)
	r := w.relay(w.engine(nil))
	w.once(r)
	last := w.lane("WO-1").Last.InboxID
	late := w.insert("WO-1", 2)
	w.once(r)
	if got := w.row(late); got.Status != "PROCESSED" || !got.Late {
		t.Errorf("the late message is %s, late %v; want PROCESSED, true", got.Status, got.Late)
	}
	if got := w.lane("WO-1").Last.InboxID; got != last {
		t.Error("a late message moved the lane's position back")
	}
}
