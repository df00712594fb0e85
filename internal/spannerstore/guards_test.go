package spannerstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"

	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/rpctap"
)

func TestASettlementWhoseAnswerIsLostIsNotTakenForLate(t *testing.T) {
	w := newWorld(t)
	w.insert("A", 1)
	w.insert("B", 1)
	plan, clock := w.claim(w.store, "owner")
	w.tap.Reset()
	w.tap.LoseNth("Commit", 1, rpctap.Error(codes.Unknown))
	settled, err := w.store.Settle(t.Context(), settlement(plan, "done"), clock)
	if err != nil || len(settled.Failed) != 0 {
		t.Fatal(settled, err)
	}
	done := 0
	for _, p := range settled.Plans {
		done += len(p.Settled)
		if len(p.Late) != 0 {
			t.Errorf("taken for late: %v", p.Late)
		}
	}
	if done != 2 {
		t.Errorf("%d results are settled, want 2", done)
	}
	if n := w.count("SELECT COUNT(*) FROM Attempts"); n != 2 {
		t.Errorf("%d attempts are written, want one of each message", n)
	}
}

func TestAMessageWhosePayloadIsGoneIsSettledBesideOthers(t *testing.T) {
	w := newWorld(t)
	gone := w.insert("A", 1)
	w.insert("B", 1)
	plan, clock := w.claim(w.store, "owner")
	if _, err := w.client.Apply(t.Context(), []*spanner.Mutation{spanner.Delete("Payloads", spanner.Key{gone})}, spanner.ApplyAtLeastOnce()); err != nil {
		t.Fatal(err)
	}
	settled, err := w.store.Settle(t.Context(), settlement(plan, "done"), clock)
	if err != nil || len(settled.Failed) != 0 {
		t.Errorf("%v failed: %v", settled.Failed, err)
	}
	if n := w.count("SELECT COUNT(*) FROM Messages WHERE Status = 'PROCESSED'"); n != 2 {
		t.Errorf("%d messages are PROCESSED, want 2", n)
	}
}

func TestAPayloadEndsItsRetentionAfterItsMessageHasFinished(t *testing.T) {
	w := newWorld(t)
	w.insert("A", 1)
	plan, clock := w.claim(w.store, "owner")
	before := w.databaseTime()
	req := settlement(plan, "done")
	if _, err := w.store.Settle(t.Context(), req, clock); err != nil {
		t.Fatal(err)
	}
	after := w.databaseTime()
	var purge spanner.NullTime
	w.query("SELECT PurgeAt FROM Payloads", nil, &purge)
	if at := purge.Time.Add(-req.PayloadRetention); !purge.Valid || at.Before(before) || at.After(after.Add(time.Second)) {
		t.Errorf("it ends at %v, want %v after the settlement at %v", purge, req.PayloadRetention, before)
	}
}

// The queues of many lanes are read at once, under one limit: a deep one leaves nothing of it to those behind.
func TestADeepQueueHidesNoOtherFromAClaim(t *testing.T) {
	w := newWorld(t)
	const lanes, deep = 4, 6
	for lane := range lanes {
		for n := range deep {
			w.insert(fmt.Sprint("WO-", lane), n)
		}
	}
	found, clock := w.scan(w.store)
	req := claimRequest("owner", found)
	req.PerLane = 2
	plan, err := w.store.Claim(t.Context(), req, clock, random())
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Claimed) != lanes {
		t.Errorf("%d lanes are claimed, want %d", len(plan.Claimed), lanes)
	}
	for _, c := range plan.Claimed {
		if len(c.Messages) != req.PerLane {
			t.Errorf("lane %s gives %d messages, want %d", c.Lane.Key, len(c.Messages), req.PerLane)
		}
	}
}

func TestTheReadWriteTransactionsOfAProcessRunOneAfterAnother(t *testing.T) {
	w := newWorld(t)
	w.insert("A", 1)
	lanes, clock := w.scan(w.store)
	w.tap.Reset()
	first := w.tap.HoldNth("Commit", 1)
	done := make(chan error, 1)
	go func() {
		_, err := w.store.Claim(t.Context(), claimRequest("first", lanes), clock, random())
		done <- err
	}()
	if err := first.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	reads := w.tap.Count("StreamingRead")
	waiting, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := w.store.Claim(waiting, claimRequest("second", lanes), clock, random()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("beside the first, the second ended with %v", err)
	}
	if got := w.tap.Count("StreamingRead"); got != reads {
		t.Errorf("the second has read %d times while the first was under way", got-reads)
	}
	first.Release()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := w.store.Claim(t.Context(), claimRequest("third", lanes), clock, random()); err != nil {
		t.Errorf("after the first: %v", err)
	}
}

// forgotten inserts n messages whose lanes know nothing of them, and returns their lanes in the order of the sweep.
func (w *world) forgotten(n int) []string {
	w.t.Helper()
	for i := range n {
		w.insert(fmt.Sprint("WO-", i), 1)
	}
	w.forget(nil)
	var lanes []string
	w.query(`SELECT ARRAY(SELECT LaneId FROM Messages WHERE OpenShard IS NOT NULL ORDER BY OpenShard, ReceivedAt, InboxId)`, nil, &lanes)
	return lanes
}

// forget takes the wake-up from lanes; nil: from all.
func (w *world) forget(lanes []string) {
	w.t.Helper()
	w.sql("UPDATE Lanes SET WokenAt = NULL WHERE @all OR LaneId IN UNNEST(@lanes)", map[string]any{"all": lanes == nil, "lanes": lanes})
}

func (w *world) sweep(limit, want int) {
	w.t.Helper()
	if got, err := w.store.Sweep(w.t.Context(), consumer, limit); err != nil || got != want {
		w.t.Errorf("a sweep wakes %d lanes, want %d: %v", got, want, err)
	}
}

func TestEachSweepGoesOnWhereTheOneBeforeEnded(t *testing.T) {
	w := newWorld(t)
	lanes := w.forgotten(5)
	w.sweep(2, 2)
	w.forget(lanes[:2]) // they are not looked at again before the others were
	w.sweep(2, 2)
	if n := w.count("SELECT COUNT(*) FROM Lanes WHERE WokenAt IS NOT NULL"); n != 2 {
		t.Errorf("%d lanes are awake, want the third and the fourth", n)
	}
	w.sweep(2, 2) // the fifth, and the first
	w.sweep(2, 1) // the second; the third is awake
	w.sweep(5, 0)
}

func TestASweepThatReachesTheEndGoesOnAtTheBeginning(t *testing.T) {
	w := newWorld(t)
	lanes := w.forgotten(5)
	w.sweep(3, 3)
	w.forget(lanes[:1])
	w.sweep(3, 3) // the fourth, the fifth, and the first
	w.forget(lanes)
	w.sweep(10, 5)
	w.forget(lanes)
	w.sweep(10, 5)
}

// Otherwise two workers would call its messages side by side, under one lease.
func TestALaneThatIsNamedTwiceIsHandedOutOnce(t *testing.T) {
	w := newWorld(t)
	w.insert("WO", 1)
	_, clock := w.scan(w.store)
	plan, err := w.store.Claim(t.Context(), claimRequest("owner", []string{laneOf("WO"), laneOf("WO")}), clock, random())
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Claimed) != 1 || len(plan.Claimed[0].Messages) != 1 {
		t.Errorf("%d lanes are handed out, want 1", len(plan.Claimed))
	}
}
