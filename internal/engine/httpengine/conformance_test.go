package httpengine_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/demoengine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/enginetest"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/httpengine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/freeport"
)

func TestConformance(t *testing.T) {
	enginetest.Run(t, func(t testing.TB) enginetest.World { return newWorld(t, true, nil) })
}

// An engine without idempotency is held to all but the promise of it.
func TestConformanceWithoutIdempotency(t *testing.T) {
	enginetest.Run(t, func(t testing.TB) enginetest.World { return newWorld(t, false, nil) })
}

// An engine that answers 200 to everything looks like a perfect one to whoever asks nobody else.
func TestAnEngineThatAlwaysSucceedsFailsTheSuite(t *testing.T) {
	always := func(w http.ResponseWriter, r *http.Request, _ http.Handler) { w.WriteHeader(http.StatusOK) }
	got := enginetest.Failing(t, func(t testing.TB) enginetest.World { return newWorld(t, true, always) })
	for _, name := range []string{
		"one waiting instance advances once",
		"nobody waiting is not a success and advances nobody else",
		"two waiting instances are ambiguous and neither advances",
		"a process past the point is already through",
		"an answer lost after the effect is unknown",
		"an engine that refuses our credentials refuses us and not the message",
		"an engine that asks for less says for how long",
	} {
		if !slices.Contains(got, name) {
			t.Errorf("the suite lets pass: %s", name)
		}
	}
}

// So does one that works, but says 200 where nobody waited.
func TestAnEngineThatHidesWhatItDidNotDoFailsTheSuite(t *testing.T) {
	hiding := func(w http.ResponseWriter, r *http.Request, engine http.Handler) {
		answer := httptest.NewRecorder()
		engine.ServeHTTP(answer, r)
		w.WriteHeader(http.StatusOK)
	}
	got := enginetest.Failing(t, func(t testing.TB) enginetest.World { return newWorld(t, true, hiding) })
	for _, name := range []string{
		"nobody waiting is not a success and advances nobody else",
		"two waiting instances are ambiguous and neither advances",
	} {
		if !slices.Contains(got, name) {
			t.Errorf("the suite lets pass: %s", name)
		}
	}
	if slices.Contains(got, "one waiting instance advances once") {
		t.Error("the suite fails what is right")
	}
}

func TestTheEngineThatConformsFailsNothing(t *testing.T) {
	if got := enginetest.Failing(t, func(t testing.TB) enginetest.World { return newWorld(t, true, nil) }); len(got) > 0 {
		t.Errorf("failing: %q", got)
	}
}

// world is the demo's engine behind a real server.
type world struct {
	t          testing.TB
	engine     *demoengine.Engine
	idempotent bool
	server     *httptest.Server
	closedPort string

	mu      sync.Mutex
	refused bool
	arrived map[string]int
	news    chan struct{} // closed and replaced with each arrival
}

// newWorld has answer, if any, answer in the engine's place.
func newWorld(t testing.TB, idempotent bool, answer func(http.ResponseWriter, *http.Request, http.Handler)) *world {
	t.Helper()
	w := &world{
		t:          t,
		engine:     demoengine.New(demoengine.Options{RetryAfter: 30 * time.Second, Forgetful: !idempotent}),
		idempotent: idempotent,
		arrived:    map[string]int{},
		news:       make(chan struct{}),
	}
	w.engine.SetLatency(func(_ context.Context, d demoengine.Delivery) { w.note(d.Key) })
	var handler http.Handler = w.engine
	if answer != nil {
		handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { answer(rw, r, w.engine) })
	}
	w.server = httptest.NewServer(handler)
	t.Cleanup(w.server.Close)
	closed, err := freeport.Hold()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closed.Release() })
	w.closedPort = closed.Address()
	return w
}

func (w *world) note(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.arrived[key]++
	close(w.news)
	w.news = make(chan struct{})
}

func (w *world) Lacks() map[enginetest.Ability]string {
	return map[enginetest.Ability]string{enginetest.Suspension: "the demo's engine has no suspended instances"}
}

func (w *world) Engine(timeout time.Duration) engine.Engine {
	e, err := httpengine.New(
		httpengine.Config{Name: "demo", URL: w.server.URL + "/events", Timeout: timeout, Idempotent: w.idempotent},
		httpengine.Deps{Dial: w.dial})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = e.Close() })
	return e
}

func (w *world) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	if w.refused {
		address = w.closedPort
	}
	w.mu.Unlock()
	return new(net.Dialer).DialContext(ctx, network, address)
}

func (w *world) Start(key, message string) { w.engine.Start(key, message) }

func (w *world) Pass(key, message string) {
	w.engine.Start(key, message)
	w.engine.Finish(key)
}

func (w *world) Vanish(key, _ string) { w.engine.VanishOnDelivery(key) }
func (w *world) Suspend(string, string) {
	w.t.Fatal("there are no suspended instances")
}

func (w *world) Set(o enginetest.Outage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused = o == enginetest.Refused
	w.engine.SetOutage(map[enginetest.Outage]demoengine.Outage{
		enginetest.Healthy: demoengine.Healthy, enginetest.Refused: demoengine.Healthy,
		enginetest.LosesAnswers: demoengine.LosingAnswers, enginetest.Hangs: demoengine.Hanging,
		enginetest.Locked: demoengine.Locked, enginetest.Throttled: demoengine.Throttling, enginetest.Echoes: demoengine.Echoing,
	}[o])
}

func (w *world) Advanced(key string) int { return w.engine.Advanced(key) }

func (w *world) Arrived(key string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.arrived[key]
}

func (w *world) Await(ctx context.Context, key string, n int) error {
	for {
		w.mu.Lock()
		arrived, news := w.arrived[key], w.news
		w.mu.Unlock()
		if arrived >= n {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (w *world) Variables(key string) map[string]json.RawMessage {
	var last map[string]json.RawMessage
	for _, d := range w.engine.History() {
		if d.Key == key && d.Advanced != "" {
			last = d.Variables
		}
	}
	return last
}

func (w *world) Settle(time.Duration) {} // the demo's engine answers a look-up from what it has done
