package e2e_test

import (
	"context"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/apiv1/spannerpb"
	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
)

func TestOverlappingRunsDoTheirPartAndAreAllAnswered200(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	w.parallel, w.batch = 16, 100
	messages, want := backlog("WO", 50, 10)
	w.load(messages, 50)
	e := startEngine(t, func(engineCall, <-chan struct{}) int {
		<-time.After(20 * time.Millisecond)
		return 200
	})
	first, second := w.process(e.url("first"), ""), w.process(e.url("second"), "")
	// Five within a second, and the scheduler's retries of two of them.
	var runs []<-chan runAnswer
	for _, p := range []*relayProcess{first, second, first, first, second, first, second} {
		runs = append(runs, p.start())
	}
	claimed, processed := 0, 0
	for _, run := range runs {
		s := first.finished(run)
		claimed, processed = claimed+s.Claimed, processed+s.Processed
	}
	e.checkOnceInOrder(t, want)
	if claimed != 500 || processed != 500 {
		t.Errorf("the runs counted %d claimed and %d processed, want 500 of each", claimed, processed)
	}
	if most := e.mostAtOnce(); most > 2*w.parallel {
		t.Errorf("%d calls were under way at a time, want at most %d: runs of one process share its slots", most, 2*w.parallel)
	}
	if diff := cmp.Diff(map[string]int{"PROCESSED": 500}, w.statuses()); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
	idle := first.start()
	if s := first.finished(idle); s.Claimed != 0 {
		t.Errorf("with nothing due a run claimed %d, want 0", s.Claimed)
	}
}

func TestARunThatLosesTheRaceForTheOldestLanesTakesOthers(t *testing.T) {
	for name, clock := range map[string]func() time.Time{"by a right clock": time.Now, "by a clock ten minutes ahead": shiftedBy(10 * time.Minute)} {
		t.Run(name, func(t *testing.T) {
			w := newRelayWorld(t)
			w.batch = 4
			messages, want := backlog("WO", 10, 1)
			w.load(messages, 50)
			arrived, answer := make(chan string, 100), newSignal()
			winnersStore, _ := w.store(time.Now)
			winner := w.relay(winnersStore, time.Now, w.engine(func(_ context.Context, d engine.Delivery) engine.Verdict {
				arrived <- d.Key
				<-answer.c
				return engine.Correlated
			}))
			losersStore, tap := w.store(clock)
			loser := w.relay(losersStore, clock, w.engine(nil))

			// The loser has seen the ten lanes, and begins to claim the oldest four when the winner has them and more has
			// come for them.
			scanned, goOn := hold(tap, "StreamingRead", func(req any) bool {
				return req.(*spannerpb.ReadRequest).GetTransaction().GetBegin().GetReadWrite() != nil
			})
			lost := w.inBackground(loser)
			within(t, "the loser is about to claim", scanned)
			won := w.inBackground(winner)
			var more []message
			for range 4 {
				m := message{key: within(t, "the winner calls", arrived), n: 1}
				more = append(more, m)
				want[m.key] = append(want[m.key], m.id())
			}
			w.load(more, 50)
			goOn()
			if s := within(t, "the loser's run ends", lost); s.Processed != 6 {
				t.Errorf("the run that lost the race processed %d, want the 6 that nobody held", s.Processed)
			}
			answer.set()
			if s := within(t, "the winner's run ends", won); s.Processed != 8 {
				t.Errorf("the run that won the race processed %d, want 4, and what had come for their lanes", s.Processed)
			}
			w.log.checkOnceInOrder(t, want)
		})
	}
}

func TestAnOperatorsPauseIsHonouredByAllProcesses(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	w.batch = 4 // neither process can take all
	messages, want := backlog("WO", 10, 2)
	w.load(messages, 50)
	e := startEngine(t, together(2, 5*time.Millisecond))
	first, second := w.process(e.url("first"), ""), w.process(e.url("second"), "")
	if _, err := w.client.Apply(t.Context(), []*spanner.Mutation{
		spanner.InsertOrUpdateMap("Engines", map[string]any{"Consumer": relayConsumer, "Engine": relayEngine, "PausedAt": time.Now()}),
	}, spanner.ApplyAtLeastOnce()); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*relayProcess{first, second} {
		if s := p.run(); s.Claimed != 0 {
			t.Errorf("while the engine is paused a run claimed %d, want 0", s.Claimed)
		}
	}
	if n := e.count(); n != 0 {
		t.Errorf("%d calls while the engine is paused, want none", n)
	}
	if n := w.count("Lanes WHERE WokenAt IS NOT NULL AND LeaseOwner IS NULL"); n != 10 {
		t.Errorf("%d lanes stand as they stood, want 10", n)
	}
	if diff := cmp.Diff(map[string]int{"RECEIVED": 20}, w.statuses()); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}

	w.sql("UPDATE Engines SET PausedAt = NULL WHERE true", nil)
	one, two := first.start(), second.start()
	if n := first.finished(one).Processed + second.finished(two).Processed; n != 20 {
		t.Errorf("after the pause %d are processed, want 20", n)
	}
	e.checkOnceInOrder(t, want)
}
