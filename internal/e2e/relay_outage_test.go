package e2e_test

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAnEnginesOutageLongerThanPatienceParksNothing(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	w.patience = 1500 * time.Millisecond
	messages, _ := backlog("WO", 20, 2)
	w.load(messages, 50)
	nobody := func(engineCall, <-chan struct{}) int { return http.StatusNotFound }
	e := startEngine(t, nobody)
	p := w.process(e.url("relay"), "")

	// At first nobody waits for the messages: what follows must not use what patience is left.
	p.run()
	if n := w.count("Messages WHERE LastNotWaitingAt IS NOT NULL"); n != 20 {
		t.Fatalf("%d heads have met nobody, want 20", n)
	}
	if n := w.count("Messages WHERE Status = 'PARKED'"); n != 0 {
		t.Fatalf("%d messages are parked at once, want none", n)
	}

	e.down()
	begun := time.Now()
	eventually(t, "connections are refused for longer than patience", func() bool {
		p.run()
		return w.count("Messages WHERE LastErrorCode = 'dial'") > 0 && time.Since(begun) > 2*w.patience
	})
	e.become(func(engineCall, <-chan struct{}) int { return http.StatusServiceUnavailable })
	e.up(t)
	begun = time.Now()
	eventually(t, "503 is answered for longer than patience", func() bool {
		p.run()
		return w.count("Messages WHERE LastErrorCode = 'HTTP 503'") > 0 && time.Since(begun) > 2*w.patience
	})
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
