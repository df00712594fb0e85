package httpengine

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
)

// aDelivery is a delivery with everything in it.
func aDelivery() engine.Delivery {
	return engine.Delivery{
		InboxID:     "00112233445566778899aabbccddeeff",
		Attempt:     3,
		Message:     "WorkOrderCompleted",
		Key:         "4711",
		PublishedAt: time.Date(2026, 3, 2, 8, 15, 30, 123_000_000, time.UTC),
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		Variables:   map[string]json.RawMessage{"completedItems": json.RawMessage("4812")},
	}
}

// newEngine is an engine for url, with changes to its configuration.
func newEngine(t *testing.T, url string, changes ...func(*Config)) *Engine {
	t.Helper()
	c := Config{Name: "test", URL: url, Timeout: 10 * time.Second, Idempotent: true}
	for _, change := range changes {
		change(&c)
	}
	e, err := New(c, Deps{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

func notIdempotent(c *Config) { c.Idempotent = false }

// shortTimeout is for what ends by it only. Until then a request must have come, however busy the machine is.
func shortTimeout(c *Config) { c.Timeout = 5 * time.Second }

// answering is a server that answers every request in the same way.
func answering(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s.URL
}

// wire is a server of bytes: it reads requests and does what script says with each, on the bare connection.
type wire struct {
	url    string
	script func(w *wire, conn net.Conn, n int) bool // false: close

	mu          sync.Mutex
	connections int
	requests    int
	arrived     chan struct{} // one for each request
}

func newWire(t *testing.T, script func(w *wire, conn net.Conn, n int) bool) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{url: "http://" + l.Addr().String(), script: script, arrived: make(chan struct{}, 100)}
	var all sync.WaitGroup
	var open sync.Map
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			open.Store(conn, true)
			all.Go(func() { w.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		open.Range(func(c, _ any) bool { _ = c.(net.Conn).Close(); return true })
		all.Wait()
	})
	return w
}

func (w *wire) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	w.mu.Lock()
	w.connections++
	w.mu.Unlock()
	in := bufio.NewReader(conn)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		w.mu.Lock()
		w.requests++
		n := w.requests
		w.mu.Unlock()
		w.arrived <- struct{}{}
		if !w.script(w, conn, n) {
			return
		}
	}
}

// seen is how many connections and requests there were.
func (w *wire) seen() (connections, requests int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.connections, w.requests
}

// say answers every request with these bytes, and keeps the connection.
func say(bytes string) func(*wire, net.Conn, int) bool {
	return func(_ *wire, conn net.Conn, _ int) bool {
		_, err := io.WriteString(conn, bytes)
		return err == nil
	}
}

// sayAndClose answers every request with these bytes, and closes.
func sayAndClose(bytes string) func(*wire, net.Conn, int) bool {
	return func(_ *wire, conn net.Conn, _ int) bool {
		_, _ = io.WriteString(conn, bytes)
		return false
	}
}
