package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/rpctap"
	"github.com/pubsub-inbox/pubsub-inbox/internal/relayer"
)

// grace is what Cloud Run leaves between SIGTERM and SIGKILL.
const grace = 10 * time.Second

// endsInTime waits for the process's end, and fails unless it came in good order and before it would be killed.
func (p *relayProcess) endsInTime(since time.Time) {
	p.t.Helper()
	if code := p.exit(); code != 0 {
		p.t.Errorf("exits with %d, want 0", code)
	}
	took := time.Since(since)
	if took >= grace {
		p.t.Errorf("ends %v after the signal, want less than %v", took, grace)
	}
	p.t.Logf("ended %v after the signal", took.Round(time.Millisecond))
}

func TestATerminatedReceiveAnswers2xxOnlyForWhatItHasCommitted(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		goesOn bool // Spanner, before the process has to end
		status int
		rows   int
	}{
		{"a commit that comes through is answered 204", true, http.StatusNoContent, 1},
		{"a commit that does not is answered 503", false, http.StatusServiceUnavailable, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newRelayWorld(t)
			tap := &rpctap.Tap{}
			committing, letCommit := hold(tap, "Commit", func(req any) bool { return commitTag(req) == "inbox-receive" })
			p := startProcess(t, w.env("Receive", "http://127.0.0.1:1", startProxy(t, tap))...).serving()
			type answer struct {
				status int
				err    error
			}
			answered := make(chan answer, 1)
			go func() {
				status, _, err := p.post(strings.NewReader(push("1", "WO-1", 30)))
				answered <- answer{status, err}
			}()
			within(t, "the receive is about to commit", committing)
			begun := time.Now()
			p.signal(syscall.SIGTERM)
			p.await("shutting down")
			if tt.goesOn {
				letCommit()
			}
			got := within(t, "the push is answered", answered)
			if got.err != nil || got.status != tt.status {
				t.Errorf("the push is answered %d, %v; want %d", got.status, got.err, tt.status)
			}
			p.endsInTime(begun)
			if n := w.count("Messages"); n != tt.rows {
				t.Errorf("%d rows are stored, want %d", n, tt.rows)
			}
		})
	}
}

func TestATerminatedRelayFinishesItsCallAndGivesTheRestBack(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	w.parallel = 1
	messages, _ := backlog("WO", 20, 1)
	w.load(messages, 50)
	arrived, answer := newSignal(), newSignal()
	e := startEngine(t, func(_ engineCall, gone <-chan struct{}) int {
		arrived.set()
		select {
		case <-answer.c:
			return http.StatusOK
		case <-gone:
			return 0
		}
	})
	p := w.process(e.url("relay"), "")
	run := p.start()
	within(t, "the engine is called", arrived.c)
	if diff := cmp.Diff(map[string]int{"PROCESSING": 20}, w.statuses()); diff != "" {
		t.Fatalf("statuses before the signal (-want +got):\n%s", diff)
	}
	begun := time.Now()
	p.signal(syscall.SIGTERM)
	p.await("shutting down")
	late := message{key: "LATE", n: 1}
	w.load([]message{late}, 1)
	// What was not started is given back while the call is still under way.
	eventually(t, "19 messages are given back", func() bool {
		return w.count("Messages WHERE Status = 'RECEIVED' AND Attempts = 0 AND InboxId != '"+late.id()+"'") == 19
	})
	answer.set()
	got := p.finished(run)
	got.DurationMs = 0
	if diff := cmp.Diff(relayer.Summary{Claimed: 20, Processed: 1, Released: 19}, got); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
	p.endsInTime(begun)
	if diff := cmp.Diff(map[string]int{"PROCESSED": 1, "RECEIVED": 20}, w.statuses()); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
	if n := w.count("Lanes WHERE LeaseOwner IS NOT NULL"); n != 0 {
		t.Errorf("%d lanes are still leased, want none", n)
	}
	if n := w.count("Attempts"); n != 0 {
		t.Errorf("%d attempts are recorded, want none", n)
	}
	if n := e.count(); n != 1 {
		t.Errorf("%d calls, want 1", n)
	}
	// The next instance goes on at once: nobody waits for a lease.
	e.become(nil)
	if s := w.process(e.url("next"), "").run(); s.Processed != 20 {
		t.Errorf("the next instance processed %d, want 20", s.Processed)
	}
	for id, attempts := range e.attempts() {
		if len(attempts) != 1 || attempts[0] != 1 {
			t.Errorf("message %s was called at attempts %v, want one at attempt 1", id, attempts)
		}
	}
}

func TestACallThatOutlastsTheGraceIsCutAndItsOutcomeIsUnknown(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	w.parallel, w.timeout, w.lease = 1, 15*time.Second, 40*time.Second
	messages, _ := backlog("WO", 2, 1)
	w.load(messages, 50)
	arrived := newSignal()
	e := startEngine(t, func(_ engineCall, gone <-chan struct{}) int {
		arrived.set()
		<-gone
		return 0
	})
	p := w.process(e.url("relay"), "")
	run := p.start()
	within(t, "the engine is called", arrived.c)
	begun := time.Now()
	p.signal(syscall.SIGTERM)
	got := p.finished(run)
	got.DurationMs = 0
	if diff := cmp.Diff(relayer.Summary{Claimed: 2, Retrying: 1, Released: 1}, got); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
	p.endsInTime(begun)
	cut := e.all()[0]
	if n := w.count(fmt.Sprintf("Messages WHERE InboxId = '%s' AND Status = 'RETRYING' AND OutcomeUnknown AND Attempts = 1", cut.ID)); n != 1 {
		t.Error("the message that was cut is not RETRYING with an unknown outcome")
	}
	if n := w.count("Messages WHERE Status = 'RECEIVED' AND Attempts = 0"); n != 1 {
		t.Error("the message that was not started is not RECEIVED with no attempt")
	}
	if n := w.count("Attempts WHERE Verdict = 'UNKNOWN'"); n != 1 {
		t.Errorf("%d attempts of unknown outcome are recorded, want 1", n)
	}
	if n := e.count(); n != 1 {
		t.Errorf("%d calls, want 1", n)
	}
}
