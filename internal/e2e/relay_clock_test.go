package e2e_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/relayer"
)

// shiftedBy is a local clock that is wrong.
func shiftedBy(d time.Duration) func() time.Time {
	return func() time.Time { return time.Now().Add(d) }
}

// inBackground has a relay run until nothing is due.
func (w *relayWorld) inBackground(r *relayer.Relayer) <-chan relayer.Summary {
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

// skewedRelays are three relays on one database: one with the right time, one ten minutes ahead, one ten behind.
func (w *relayWorld) skewedRelays(e engine.Engine) (right, ahead, behind *relayer.Relayer) {
	var relays []*relayer.Relayer
	for _, by := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute} {
		store, _ := w.store(shiftedBy(by))
		relays = append(relays, w.relay(store, shiftedBy(by), e))
	}
	return relays[0], relays[1], relays[2]
}

func TestAClockTenMinutesAheadTakesNobodysLease(t *testing.T) {
	w := newRelayWorld(t)
	first, second := message{key: "WO-1", n: 1}, message{key: "WO-2", n: 1}
	w.load([]message{first}, 1)
	arrived, answer := make(chan string, 2), newSignal()
	right, ahead, behind := w.skewedRelays(w.engine(func(_ context.Context, d engine.Delivery) engine.Verdict {
		arrived <- d.InboxID
		<-answer.c
		return engine.Correlated
	}))
	calling := w.inBackground(right)
	within(t, "the engine is called", arrived)
	for name, other := range map[string]*relayer.Relayer{"ahead": ahead, "behind": behind} {
		if s := w.once(other); s.Claimed != 0 {
			t.Errorf("the relay %s claimed %d messages that are leased, want none", name, s.Claimed)
		}
	}
	// A lease that a wrong clock has given is as long as any other.
	w.load([]message{second}, 1)
	callingToo := w.inBackground(ahead)
	within(t, "the engine is called by the relay ahead", arrived)
	if s := w.once(behind); s.Claimed != 0 {
		t.Errorf("the relay behind claimed %d messages that are leased, want none", s.Claimed)
	}
	for id, end := range w.leases() {
		if left := time.Until(end); left < w.lease/2 || left > 2*w.lease {
			t.Errorf("the lease of %s has %v left, want about %v", id, left, w.lease)
		}
	}
	answer.set()
	<-calling
	<-callingToo
	w.log.checkOnceInOrder(t, map[string][]string{"WO-1": {first.id()}, "WO-2": {second.id()}})
}

func TestRetriesThatAWrongClockHasScheduledAreDueOnTimeForAll(t *testing.T) {
	for _, who := range []string{"ahead", "behind"} {
		t.Run(who, func(t *testing.T) {
			w := newRelayWorld(t)
			w.retryMin, w.retryMax = time.Hour, time.Hour
			m := message{key: "WO-1", n: 1}
			w.load([]message{m}, 1)
			var mu sync.Mutex
			verdict := engine.NotWaiting
			_, ahead, behind := w.skewedRelays(w.engine(func(context.Context, engine.Delivery) engine.Verdict {
				mu.Lock()
				defer mu.Unlock()
				return verdict
			}))
			wrong, other := ahead, behind
			if who == "behind" {
				wrong, other = behind, ahead
			}
			w.once(wrong)
			mu.Lock()
			verdict = engine.Correlated
			mu.Unlock()
			var wait time.Duration
			row, err := w.client.Single().ReadRow(t.Context(), "Messages", spanner.Key{m.id()}, []string{"NextAttemptAt", "LastFailedAt", "ProcessingStartedAt"})
			if err != nil {
				t.Fatal(err)
			}
			var next, failed, started spanner.NullTime
			if err := row.Columns(&next, &failed, &started); err != nil {
				t.Fatal(err)
			}
			if wait = next.Time.Sub(started.Time); wait < w.retryMin/2 || wait > 2*w.retryMax {
				t.Errorf("the next attempt is %v after the claim, want about %v", wait, w.retryMin)
			}
			if off := time.Since(started.Time).Abs(); off > time.Minute {
				t.Errorf("the claim is stamped %v away from now", off)
			}
			if s := w.once(other); s.Claimed != 0 {
				t.Errorf("before its time the other relay claimed %d, want none", s.Claimed)
			}
			w.pass(wait + time.Minute)
			if s := w.once(other); s.Claimed != 1 {
				t.Errorf("at its time the other relay claimed %d, want 1", s.Claimed)
			}
			if calls := w.log.all(); len(calls) != 2 || calls[1].Attempt != 2 {
				t.Fatalf("calls %v, want two", calls)
			}
		})
	}
}

func TestRelaysWithClocksApartShareABacklogWithoutClaimingAnythingTwice(t *testing.T) {
	w := newRelayWorld(t)
	messages, want := backlog("WO", 20, 4)
	w.load(messages, 50)
	right, ahead, behind := w.skewedRelays(w.engine(nil))
	claimed := 0
	var runs []<-chan relayer.Summary
	for _, r := range []*relayer.Relayer{right, ahead, behind} {
		runs = append(runs, w.inBackground(r))
	}
	for _, run := range runs {
		claimed += (<-run).Claimed
	}
	if claimed != len(messages) {
		t.Errorf("%d messages were claimed, want %d", claimed, len(messages))
	}
	w.log.checkOnceInOrder(t, want)
}

func TestEqualTimestampsHaveOneOrderForAllRelays(t *testing.T) {
	w := newRelayWorld(t)
	w.batch = 4 // an order is kept over many claims
	published := time.Date(2026, 3, 2, 8, 15, 30, 0, time.UTC)
	var messages []message
	for n := range 40 {
		messages = append(messages, message{key: "WO-6", n: n, orderedAt: published})
	}
	w.load(messages, 8) // eight of each ReceivedAt
	stored := w.texts("SELECT InboxId FROM Messages ORDER BY ReceivedAt, InboxId")
	if n := w.count("(SELECT DISTINCT ReceivedAt FROM Messages)"); n >= len(stored) || n < 2 {
		t.Fatalf("%d receive times among %d messages: this test shows nothing", n, len(stored))
	}
	// Relays begin anew after every few calls, as if they had been started again.
	for started := 0; ; started++ {
		store, _ := w.store(time.Now)
		stop, calls := make(chan struct{}), 0
		r := w.relay(store, time.Now, w.engine(func(context.Context, engine.Delivery) engine.Verdict {
			if calls++; calls == 7 {
				close(stop)
			}
			return engine.Correlated
		}))
		if _, err := r.Run(t.Context(), true, stop, nil); err != nil {
			t.Fatal(err)
		}
		if w.count("Messages WHERE Status != 'PROCESSED'") == 0 {
			break
		}
		if started > len(messages) {
			t.Fatal("the relays do not get through the lane")
		}
	}
	var called []string
	for _, c := range w.log.all() {
		called = append(called, c.ID)
	}
	if diff := cmp.Diff(stored, called); diff != "" {
		t.Errorf("order of the calls (-stored +called):\n%s", diff)
	}
}
