package e2e_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
)

func TestWhatARetryOfTheBrokerBringsLateIsCorrelatedAndMarked(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	e := startEngine(t, nil)
	receive := startProcess(t, w.env("Receive", e.url("receive"), "")...).serving()
	relay := w.process(e.url("relay"), "")
	deliver := func(id string, second int) {
		t.Helper()
		status, _, err := receive.post(strings.NewReader(push(id, "WO-12", second)))
		if err != nil || status != http.StatusNoContent {
			t.Fatalf("the push of %s is answered %d, %v; want 204", id, status, err)
		}
	}
	// The first was refused, for whatever reason, and goes round by the dead-letter topic; the others come, and come again.
	deliver("m2", 2)
	deliver("m3", 3)
	relay.run()
	deliver("m2", 2)
	deliver("m3", 3)
	deliver("m1", 1)
	deliver("m1", 1)
	relay.run()
	if diff := cmp.Diff([]string{"m2", "m3", "m1"}, w.called(e)); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"m1"}, w.texts("SELECT MessageId FROM Messages WHERE Late AND Status = 'PROCESSED'")); diff != "" {
		t.Errorf("late messages (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"PROCESSED": 3}, w.statuses()); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
}

// called is what an engine was called with, by message id.
func (w *relayWorld) called(e *webEngine) []string {
	w.t.Helper()
	var ids []string
	for _, c := range e.all() {
		row, err := w.client.Single().ReadRow(w.t.Context(), "Messages", spanner.Key{c.ID}, []string{"MessageId"})
		if err != nil {
			w.t.Fatal(err)
		}
		var id string
		if err := row.Column(0, &id); err != nil {
			w.t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

func TestAnOldMessageThatIsReopenedIsJudgedByItsNewStart(t *testing.T) {
	w := newRelayWorld(t)
	w.retryMin, w.retryMax = time.Hour, time.Hour
	m := message{key: "WO-1", n: 1}
	w.load([]message{m}, 1)
	old := time.Now().Add(-72 * time.Hour)
	if _, err := w.client.Apply(t.Context(), []*spanner.Mutation{spanner.UpdateMap("Messages", map[string]any{
		"InboxId": m.id(), "Status": "PARKED", "Reason": "NO_WAITING_INSTANCE", "ReceivedAt": old, "Attempts": 40, "FirstFailedAt": old,
		"LastFailedAt": old, "LastNotWaitingAt": old, "ProcessingStartedAt": old, "PatienceUsed": w.patience.Milliseconds(),
	})}, spanner.ApplyAtLeastOnce()); err != nil {
		t.Fatal(err)
	}
	w.sql("UPDATE Messages SET Status = 'RECEIVED', Attempts = 0 WHERE InboxId = '"+m.id()+"' AND Status = 'PARKED'", nil)

	arrived, answer := newSignal(), newSignal()
	store, _ := w.store(time.Now)
	calling := w.inBackground(w.relay(store, time.Now, w.engine(func(context.Context, engine.Delivery) engine.Verdict {
		arrived.set()
		<-answer.c
		return engine.NotWaiting
	})))
	within(t, "the engine is called", arrived.c)
	before := w.dump("Messages")
	others, _ := w.store(time.Now)
	if s := w.once(w.relay(others, time.Now, w.engine(nil))); s.Claimed != 0 {
		t.Errorf("during the call another relay claimed %d, want none", s.Claimed)
	}
	if diff := cmp.Diff(before, w.dump("Messages")); diff != "" {
		t.Errorf("another relay's sweep has changed the message under way (-before +after):\n%s", diff)
	}
	answer.set()
	if s := within(t, "the run ends", calling); s.Retrying != 1 || s.Parked != 0 {
		t.Errorf("after its first miss %d messages wait and %d are parked, want 1 and 0: its patience has begun anew", s.Retrying, s.Parked)
	}
}

func TestAResultDoesNotOverwriteWhatAPersonHasChangedMeanwhile(t *testing.T) {
	for _, change := range []string{
		"Status = 'DISCARDED'",
		"Status = 'RECEIVED', Attempts = 0",
		"Attempts = 7", // as if it had been claimed anew
	} {
		t.Run(change, func(t *testing.T) {
			w := newRelayWorld(t)
			m := message{key: "WO-1", n: 1}
			w.load([]message{m}, 1)
			store, _ := w.store(time.Now)
			stop := make(chan struct{}) // what follows from the change is not looked at here
			var changed []string
			r := w.relay(store, time.Now, w.engine(func(context.Context, engine.Delivery) engine.Verdict {
				w.sql("UPDATE Messages SET "+change+" WHERE InboxId = '"+m.id()+"'", nil)
				changed = w.dump("Messages")
				close(stop)
				return engine.Correlated
			}))
			s, err := r.Run(t.Context(), true, stop, nil)
			if err != nil {
				t.Fatal(err)
			}
			if s.Processed != 0 {
				t.Errorf("the run counts %d processed, want 0", s.Processed)
			}
			if diff := cmp.Diff(changed, w.dump("Messages")); diff != "" {
				t.Errorf("the result has changed the message (-before +after):\n%s", diff)
			}
			if n := w.count("Attempts WHERE Late AND Verdict = 'CORRELATED'"); n != 1 {
				t.Errorf("%d late results are kept, want 1", n)
			}
			if n := w.count("Lanes WHERE LeaseOwner IS NOT NULL"); n != 0 {
				t.Error("the lane is still leased: nobody could take it up before the lease ends")
			}
		})
	}
}
