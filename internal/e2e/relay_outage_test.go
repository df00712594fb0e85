package e2e_test

import (
	"net/http"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAnEnginesOutageLongerThanPatienceParksNothing(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	long := 2 * w.patience
	messages, _ := backlog("WO", 20, 2)
	w.load(messages, 50)
	nobody := func(engineCall, <-chan struct{}) int { return http.StatusNotFound }
	e := startEngine(t, nobody)
	p := w.process(e.url("relay"), "")
	nobodyWaits := func(what string) {
		t.Helper()
		before := e.count()
		eventually(t, "nobody waits for any head", func() bool {
			p.run()
			return (w.count("Messages WHERE LastNotWaitingAt IS NOT NULL") == 20 && e.count() >= before+20) ||
				w.count("Messages WHERE Status = 'PARKED'") > 0
		})
		if n := w.count("Messages WHERE Status = 'PARKED'"); n != 0 {
			t.Fatalf("%s %d messages are parked, want none", what, n)
		}
	}

	// At first nobody waits for the messages: what follows must not use what patience is left.
	nobodyWaits("at once")
	w.pass(long) // in which no relay has run
	nobodyWaits("after an outage of the relay")

	e.down()
	for _, outage := range []struct{ code, what string }{{"dial", "connections are refused"}, {"HTTP 503", "503 is answered"}} {
		w.pass(long)
		eventually(t, outage.what, func() bool {
			p.run()
			return w.count("Messages WHERE LastErrorCode = '"+outage.code+"'") > 0
		})
		w.pass(long)
		if outage.code == "dial" {
			e.become(func(engineCall, <-chan struct{}) int { return http.StatusServiceUnavailable })
			e.up(t)
		}
	}
	for status, n := range w.statuses() {
		if status != "RECEIVED" && status != "RETRYING" {
			t.Errorf("the outage has left %d messages %s, want none", n, status)
		}
	}

	// Once more nobody waits for them, for a moment: the outage does not count as time in which nobody did.
	var mu sync.Mutex
	met := map[string]bool{}
	e.become(func(c engineCall, _ <-chan struct{}) int {
		mu.Lock()
		defer mu.Unlock()
		if !met[c.ID] {
			met[c.ID] = true
			return http.StatusNotFound
		}
		return http.StatusOK
	})
	eventually(t, "all are correlated, or parked", func() bool {
		p.run()
		return w.count("Messages WHERE Status NOT IN ('PROCESSED', 'PARKED')") == 0
	})
	if diff := cmp.Diff(map[string]int{"PROCESSED": 40}, w.statuses()); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
	e.checkNoOverlap(t)
}
