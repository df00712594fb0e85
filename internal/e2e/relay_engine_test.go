package e2e_test

import (
	"cmp"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/freeport"
)

// signal is an event that many may wait for.
type signal struct {
	c    chan struct{}
	once sync.Once
}

func newSignal() *signal { return &signal{c: make(chan struct{})} }

func (s *signal) set() { s.once.Do(func() { close(s.c) }) }

// engineCall is one delivery as an engine has seen it.
type engineCall struct {
	Process string // that called
	ID      string
	Key     string
	Attempt int64
	Start   time.Time
	End     time.Time // zero: no answer was given
}

// callLog is what engines have seen.
type callLog struct {
	mu    sync.Mutex
	calls []*engineCall
}

func (l *callLog) begin(c engineCall) *engineCall {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.Start = time.Now()
	l.calls = append(l.calls, &c)
	return &c
}

func (l *callLog) end(c *engineCall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.End = time.Now()
}

// all returns the calls so far in the order of their start.
func (l *callLog) all() []engineCall {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []engineCall
	for _, c := range l.calls {
		all = append(all, *c)
	}
	slices.SortStableFunc(all, func(a, b engineCall) int { return a.Start.Compare(b.Start) })
	return all
}

func (l *callLog) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.calls)
}

// attempts returns the attempts of each message that was called, in order.
func (l *callLog) attempts() map[string][]int64 {
	attempts := map[string][]int64{}
	for _, c := range l.all() {
		attempts[c.ID] = append(attempts[c.ID], c.Attempt)
	}
	return attempts
}

// checkOnceInOrder fails unless every message was called once, at its first attempt, the messages of a key in order and
// one after another.
func (l *callLog) checkOnceInOrder(t *testing.T, want map[string][]string) {
	t.Helper()
	ids := map[string][]string{}
	for _, c := range l.all() {
		ids[c.Key] = append(ids[c.Key], c.ID)
		if c.Attempt != 1 {
			t.Errorf("message %s of key %s was called at attempt %d, want 1", c.ID, c.Key, c.Attempt)
		}
	}
	l.checkNoOverlap(t)
	if diff := gocmp.Diff(want, ids); diff != "" {
		t.Errorf("calls by key (-want +got):\n%.3000s", diff)
	}
}

// checkNoOverlap fails if two calls of one key were under way at the same time.
func (l *callLog) checkNoOverlap(t *testing.T) {
	t.Helper()
	last := map[string]engineCall{}
	for _, c := range l.all() {
		if before, ok := last[c.Key]; ok && c.Start.Before(before.End) {
			t.Errorf("key %s: a call began at %v, before the one before it ended at %v", c.Key, c.Start, before.End)
		}
		last[c.Key] = c
	}
}

// mostAtOnce is the largest number of calls that were under way at the same time.
func (l *callLog) mostAtOnce() int {
	type edge struct {
		at   time.Time
		step int
	}
	var edges []edge
	for _, c := range l.all() {
		if !c.End.IsZero() {
			edges = append(edges, edge{c.Start, 1}, edge{c.End, -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.step, b.step)) })
	now, most := 0, 0
	for _, e := range edges {
		now += e.step
		most = max(most, now)
	}
	return most
}

// webEngine is a workflow engine reached by HTTP. It is idempotent as far as a caller can see: a delivery that comes again
// is answered in the same way.
type webEngine struct {
	callLog
	address string
	server  *http.Server

	behaviour sync.Mutex
	handle    func(c engineCall, gone <-chan struct{}) int
}

// startEngine starts an engine. handle gives each call's status, and may wait; gone is closed when the caller is. Nil: 200.
func startEngine(t *testing.T, handle func(c engineCall, gone <-chan struct{}) int) *webEngine {
	t.Helper()
	port, err := freeport.Hold() // also while it is down
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = port.Release() })
	e := &webEngine{address: port.Address(), handle: handle}
	e.up(t)
	t.Cleanup(e.down)
	return e
}

func (e *webEngine) become(handle func(c engineCall, gone <-chan struct{}) int) {
	e.behaviour.Lock()
	defer e.behaviour.Unlock()
	e.handle = handle
}

// up has the engine listen, where it did before.
func (e *webEngine) up(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", e.address)
	if err != nil {
		t.Fatal(err)
	}
	e.server = &http.Server{Handler: e, ReadHeaderTimeout: patience}
	go func() { _ = e.server.Serve(l) }()
}

// down ends the engine: connections are refused from now on.
func (e *webEngine) down() { _ = e.server.Close() }

// url is where a process finds the engine. The path is the process's name.
func (e *webEngine) url(process string) string { return "http://" + e.address + "/" + process }

// ServeHTTP takes one delivery. See package httpengine for its form.
func (e *webEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Only a body read to its end lets the server see that the caller is gone.
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		panic(http.ErrAbortHandler)
	}
	attempt, _ := strconv.ParseInt(r.Header.Get("Ce-Inboxattempt"), 10, 64)
	call := e.begin(engineCall{Process: strings.TrimPrefix(r.URL.Path, "/"), ID: r.Header.Get("Ce-Id"),
		Key: r.Header.Get("Ce-Subject"), Attempt: attempt})
	e.behaviour.Lock()
	handle := e.handle
	e.behaviour.Unlock()
	status := http.StatusOK
	if handle != nil {
		status = handle(*call, r.Context().Done())
	}
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // nobody is there to answer
	}
	e.end(call)
	if problem := map[int]string{http.StatusNotFound: "not-waiting", http.StatusUnprocessableEntity: "rejected"}[status]; problem != "" {
		// A status is not believed alone.
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"type":"urn:pubsub-inbox:problem:`+problem+`"}`)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
}
