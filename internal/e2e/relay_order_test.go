package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// together returns an engine's behaviour that lets nobody go on before each of the processes has called, so that all of
// them are seen at work, and then takes up to latency.
func together(processes int, latency time.Duration) func(engineCall, <-chan struct{}) int {
	all := newSignal()
	arrived := make(chan string, 1000)
	go func() {
		seen := map[string]bool{}
		for name := range arrived {
			if seen[name] = true; len(seen) == processes {
				all.set()
				return
			}
		}
	}()
	return func(c engineCall, gone <-chan struct{}) int {
		select {
		case arrived <- c.Process:
		default: // it is full of names by now
		}
		select {
		case <-all.c:
		case <-gone:
			return 0
		}
		<-time.After(rand.N(latency))
		return 200
	}
}

func TestProcessesOnOneBacklogCallEachMessageOnceAndEachKeyInOrder(t *testing.T) {
	t.Parallel()
	for _, processes := range []int{2, 3} {
		t.Run(fmt.Sprintf("%d processes", processes), func(t *testing.T) {
			t.Parallel()
			w := newRelayWorld(t)
			messages, want := backlog("WO", 40, 5)
			w.load(messages, 50)
			e := startEngine(t, together(processes, 20*time.Millisecond))
			var runs []<-chan runAnswer
			var relays []*relayProcess
			for n := range processes {
				relays = append(relays, w.process(e.url(fmt.Sprintf("p%d", n)), ""))
			}
			for _, p := range relays {
				runs = append(runs, p.start())
			}
			claimed, processed := 0, 0
			for n, run := range runs {
				s := relays[n].finished(run)
				claimed, processed = claimed+s.Claimed, processed+s.Processed
			}
			e.checkOnceInOrder(t, want)
			if most := e.mostAtOnce(); most < 2 {
				t.Errorf("at most %d call was under way at a time, want several: keys are independent", most)
			}
			if diff := cmp.Diff(map[string]int{"PROCESSED": 200}, w.statuses()); diff != "" {
				t.Errorf("statuses (-want +got):\n%s", diff)
			}
			if claimed != 200 || processed != 200 {
				t.Errorf("the runs counted %d claimed and %d processed, want 200 of each", claimed, processed)
			}
			if n := w.count("Attempts"); n != 0 {
				t.Errorf("%d attempts are recorded, want none: no message failed, was late or was lost", n)
			}
		})
	}
}
