package e2e_test

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/rpctap"
	"github.com/pubsub-inbox/pubsub-inbox/internal/relayer"
)

// leases returns, for each message in PROCESSING, when the lease of its lane ends.
func (w *relayWorld) leases() map[string]time.Time {
	w.t.Helper()
	ends := map[string]time.Time{}
	err := w.client.Single().Query(w.t.Context(), spanner.NewStatement(`SELECT m.InboxId, l.LeaseUntil
		FROM Messages m JOIN Lanes l ON l.LaneId = m.LaneId WHERE m.Status = 'PROCESSING'`)).Do(func(r *spanner.Row) error {
		var id string
		var until time.Time
		if err := r.Columns(&id, &until); err != nil {
			return err
		}
		ends[id] = until
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return ends
}

func TestAfterAKillOnlyWhatWasInFlightIsCalledAgain(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		// arm makes the victim stop at its place, and returns an event that says so.
		arm func(e *webEngine, tap *rpctap.Tap) <-chan struct{}
		// there says of the victim's calls of a message whether it was killed at that very place in handling it. What else
		// was in flight may have been called at most once.
		there func(calls []engineCall) bool
	}{
		{
			name: "between claim and call",
			arm: func(_ *webEngine, tap *rpctap.Tap) <-chan struct{} {
				arrived, _ := hold(tap, "StreamingRead", func(req any) bool { return readTable(req) == "Payloads" })
				return arrived
			},
			there: func(calls []engineCall) bool { return len(calls) == 0 },
		},
		{
			name: "during the call",
			arm: func(e *webEngine, _ *rpctap.Tap) <-chan struct{} {
				arrived := newSignal()
				n := 0
				var mu sync.Mutex
				e.become(func(c engineCall, gone <-chan struct{}) int {
					if c.Process == "victim" {
						mu.Lock()
						n++
						last := n >= 7 // some are finished by then
						mu.Unlock()
						if last {
							arrived.set()
							<-gone
							return 0
						}
					}
					<-time.After(time.Millisecond)
					return 200
				})
				return arrived.c
			},
			there: func(calls []engineCall) bool { return len(calls) == 1 && calls[0].End.IsZero() },
		},
		{
			name: "between call and settle",
			arm: func(_ *webEngine, tap *rpctap.Tap) <-chan struct{} {
				n := 0
				arrived, _ := hold(tap, "Commit", func(req any) bool {
					if commitTag(req) == "inbox-settle" {
						n++ // of one process, one after another
					}
					return n >= 2
				})
				return arrived
			},
			there: func(calls []engineCall) bool { return len(calls) == 1 && !calls[0].End.IsZero() },
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newRelayWorld(t)
			messages, want := backlog("WO", 40, 5)
			w.load(messages, 50)
			tap := &rpctap.Tap{}
			e := startEngine(t, nil)
			stopped := tt.arm(e, tap)
			victim := w.process(e.url("victim"), startProxy(t, tap))
			survivor := w.process(e.url("survivor"), "")

			victim.start()
			within(t, "the victim is at its place", stopped)
			victim.kill()
			survivor.run()
			inFlight := w.leases() // the survivor has settled all that it claimed
			if len(inFlight) == 0 {
				t.Fatal("nothing was in flight when the victim was killed: this test shows nothing")
			}
			before := len(e.all())
			for n := survivor.run(); n.Claimed != 0; n = survivor.run() {
				t.Errorf("before the lease ended %d messages were claimed, want none", n.Claimed)
			}
			w.lapse()
			survivor.run()

			calls := e.all()
			byID := map[string][]engineCall{}
			for _, c := range calls {
				byID[c.ID] = append(byID[c.ID], c)
			}
			there := 0
			for _, ids := range want {
				for _, id := range ids {
					_, lost := inFlight[id]
					got := byID[id]
					if !lost {
						if len(got) != 1 || got[0].Attempt != 1 || got[0].End.IsZero() {
							t.Errorf("message %s was not in flight; its calls are %v, want one at attempt 1", id, got)
						}
						continue
					}
					again := slices.IndexFunc(got, func(c engineCall) bool { return c.Process == "survivor" })
					if again < 0 || again != len(got)-1 || again > 1 || got[again].Attempt != 2 {
						t.Errorf("message %s was in flight; its calls are %v, want one more, of the survivor at attempt 2", id, got)
						continue
					}
					if tt.there(got[:again]) {
						there++
					}
				}
			}
			if there == 0 {
				t.Errorf("no message was %s when the victim was killed: this test shows nothing", tt.name)
			}
			w.checkOrderOfLast(t, calls, want)
			if diff := cmp.Diff(map[string]int{"PROCESSED": 200}, w.statuses()); diff != "" {
				t.Errorf("statuses (-want +got):\n%s", diff)
			}
			if n := w.count("Attempts WHERE Verdict = 'LOST' AND Number = 1"); n != len(inFlight) || n != w.count("Attempts") {
				t.Errorf("%d lost attempts are recorded among %d, want %d and no other", n, w.count("Attempts"), len(inFlight))
			}
			if n := w.count("Messages WHERE LostWorkers != 0 OR OutcomeUnknown"); n != 0 {
				t.Errorf("%d messages still count a lost worker, want none: each got its answer", n)
			}
			t.Logf("%d in flight, %d calls by then", len(inFlight), before)
		})
	}
}

// checkOrderOfLast fails unless the last call of each message came in the order of its key, one after another.
func (w *relayWorld) checkOrderOfLast(t *testing.T, calls []engineCall, want map[string][]string) {
	t.Helper()
	last := map[string]engineCall{}
	for _, c := range calls {
		last[c.ID] = c
	}
	for key, ids := range want {
		for n := 1; n < len(ids); n++ {
			if before, after := last[ids[n-1]], last[ids[n]]; after.Start.Before(before.End) {
				t.Errorf("key %s: message %d was called before the call of message %d had ended", key, n, n-1)
			}
		}
	}
}

// A process may stand still for as long as it likes: Cloud Run takes the processor away between requests.
func TestAProcessThatSleptThroughItsLeaseChangesNothing(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	messages, want := backlog("WO", 1, 3)
	first := messages[0].id()
	w.load(messages, 50)
	arrived, answer := newSignal(), newSignal()
	e := startEngine(t, func(c engineCall, _ <-chan struct{}) int {
		if c.Process == "sleeper" {
			arrived.set()
			<-answer.c
		} else if c.ID == first {
			return 422 // so that it shows whose answer counts
		}
		return 200
	})
	other := w.process(e.url("other"), "")
	w.lease, w.timeout = 30*time.Second, 5*time.Second // which must pass for the process too
	sleeper := w.process(e.url("sleeper"), "")
	asleep := sleeper.start()
	within(t, "the engine is called", arrived.c)
	if n := w.count("Messages WHERE Status = 'PROCESSING'"); n != 3 {
		t.Fatalf("%d messages are claimed, want 3", n)
	}
	sleeper.stop()
	answer.set() // it lies in the sleeper's socket
	<-time.After(time.Until(w.leases()[first]))
	eventually(t, "another process takes over", func() bool {
		other.run()
		return w.count("Messages WHERE Status IN ('PROCESSED', 'PARKED')") == 3
	})
	before := w.dump("Messages ORDER BY InboxId")
	lane := w.dump("Lanes")
	sleeper.signal(syscall.SIGCONT)
	// A read that it slept through has run out of time: then it says that the run has failed.
	woken := within(t, "the sleeper's run is answered", asleep)
	if woken.err != nil || (woken.status != http.StatusOK && woken.status != http.StatusServiceUnavailable) {
		t.Fatalf("the sleeper's run: status %d, %v", woken.status, woken.err)
	}
	s := woken.summary
	s.DurationMs = 0
	if diff := cmp.Diff(relayer.Summary{Claimed: 3}, s); diff != "" {
		t.Errorf("summary of the sleeper (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, w.dump("Messages ORDER BY InboxId")); diff != "" {
		t.Errorf("the sleeper has changed messages (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(lane, w.dump("Lanes")); diff != "" {
		t.Errorf("the sleeper has changed the lane (-before +after):\n%s", diff)
	}
	// Whether it still reads the answer, or finds its time-out over first, is a race that it may lose.
	if diff := cmp.Diff([]string{first}, w.texts("SELECT InboxId FROM Attempts WHERE Late AND Verdict IN ('CORRELATED', 'UNKNOWN')")); diff != "" {
		t.Errorf("late results that are kept (-want +got):\n%s", diff)
	}
	calls := map[string][]string{}
	for _, c := range e.all() {
		calls[c.Process] = append(calls[c.Process], c.ID)
	}
	if diff := cmp.Diff(map[string][]string{"sleeper": {first}, "other": want["WO-000"]}, calls); diff != "" {
		t.Errorf("calls by process (-want +got):\n%s", diff)
	}
	w.checkOrderOfLast(t, e.all(), want)
	t.Logf("attempts: %q", w.texts("SELECT CONCAT(Verdict, IF(Late, ' late ', ' '), CAST(Number AS STRING)) FROM Attempts"))
}

func TestAMessageThatKillsItsProcessIsPoisonedAndNothingBesideItIs(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	messages, want := backlog("WO", 15, 2)
	poison, behind := message{key: "POISON", n: 1}, message{key: "POISON", n: 2}
	w.load(append(messages, poison, behind), 50)
	others := fmt.Sprintf("Messages WHERE Status = 'PROCESSING' AND InboxId != '%s'", poison.id())

	var beside []int // messages of others in PROCESSING at each kill
	victim := make(chan *relayProcess, 1)
	e := startEngine(t, func(c engineCall, gone <-chan struct{}) int {
		if c.ID == poison.id() {
			beside = append(beside, w.count(others))
			(<-victim).kill()
			<-gone
			return 0
		}
		<-time.After(2 * time.Millisecond)
		return 200
	})
	deaths := 0
	for {
		p := w.process(e.url("relay"), "")
		victim <- p
		run := within(t, "a run ends, or its process", p.start())
		if run.err == nil {
			break
		}
		p.exit()
		if deaths++; deaths > 5 {
			t.Fatalf("the message has killed %d processes, want 5 at most", deaths)
		}
		w.lapse()
	}

	if deaths != 5 {
		t.Errorf("%d processes died, want 5", deaths)
	}
	if len(beside) == 0 || beside[0] == 0 {
		t.Errorf("messages claimed beside it at each kill: %v; want some at the first, or this test shows nothing", beside)
	}
	for n, company := range beside[min(1, len(beside)):] {
		if company != 0 {
			t.Errorf("at kill %d it had %d others beside it, want none: it is a suspect by then", n+2, company)
		}
	}
	if diff := cmp.Diff(map[string]int{"PROCESSED": 31, "PARKED/POISONED": 1}, w.statuses()); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
	attempts := e.attempts()
	if diff := cmp.Diff([]int64{1, 2, 3, 4, 5}, attempts[poison.id()]); diff != "" {
		t.Errorf("attempts at the message (-want +got):\n%s", diff)
	}
	if n := w.count(fmt.Sprintf("Attempts WHERE Verdict = 'LOST' AND InboxId = '%s'", poison.id())); n != 5 {
		t.Errorf("%d lost attempts of it are recorded, want 5", n)
	}
	for _, ids := range want {
		for _, id := range ids {
			if got := attempts[id]; len(got) == 0 || len(got) > 2 || got[len(got)-1] > 2 {
				t.Errorf("message %s was called at attempts %v; want once, or twice if the first kill caught it", id, got)
			}
		}
	}
	w.checkOrderOfLast(t, e.all(), want)
	// It may have been claimed together with the first, and lost with it; called it was only after that was out of the way.
	if got := attempts[behind.id()]; len(got) != 1 || got[0] > 2 {
		t.Errorf("the message behind it was called at attempts %v, want one call", got)
	}
}
