package relayer_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/flowable"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/httpengine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/freeport"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/relayer"
)

// due has the waits of messages and lanes pass, and leaves their engines as they are. Failures are as old then as the waits
// were: closer together, the clock's readings do not tell what came first.
func (w *world) due() {
	w.sql("UPDATE Messages SET LastFailedAt = TIMESTAMP_SUB(LastFailedAt, INTERVAL 1 HOUR) WHERE LastFailedAt IS NOT NULL", nil)
	w.sql("UPDATE Messages SET NextAttemptAt = TIMESTAMP '2020-01-01T00:00:00Z' WHERE NextAttemptAt IS NOT NULL", nil)
	w.lanesDue()
}

func (w *world) lanesDue() {
	w.sql("UPDATE Lanes SET DueAt = TIMESTAMP '2020-01-01T00:00:00Z' WHERE PurgeAt IS NULL", nil)
}

// pauseEnds has the time pass that a breaker is open.
func (w *world) pauseEnds() {
	w.sql("UPDATE Engines SET OpenUntil = TIMESTAMP '2020-01-01T00:00:00Z' WHERE OpenUntil IS NOT NULL", nil)
}

// TestC087: something in front of the engine refuses one message, whatever it answers; everybody else is accepted, with the
// same credentials.
func TestC087(t *testing.T) {
	raw, err := os.ReadFile("testdata/C087.json")
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		Messages []struct {
			Key  string
			Data json.RawMessage
		}
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		t.Fatal(err)
	}
	bad, behind, others := c.Messages[0], c.Messages[1], c.Messages[2]
	for name, answer := range map[string]struct {
		status     int
		retryAfter string
	}{
		"403": {403, ""}, "401": {401, ""}, "407": {407, ""}, "429": {429, ""}, "503": {503, ""},
		"429 with a time": {429, "3600"}, "503 with a time": {503, "3600"},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			refused := 0
			server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				var body bytes.Buffer
				_, _ = body.ReadFrom(r.Body)
				if !strings.Contains(body.String(), "UNION SELECT") {
					rw.WriteHeader(http.StatusNoContent)
					return
				}
				mu.Lock()
				refused++
				mu.Unlock()
				if answer.retryAfter != "" {
					rw.Header().Set("Retry-After", answer.retryAfter)
				}
				rw.Header().Set("Content-Type", "text/html")
				rw.WriteHeader(answer.status)
				_, _ = rw.Write([]byte("<html><title>blocked</title></html>"))
			}))
			t.Cleanup(server.Close)
			e, err := httpengine.New(httpengine.Config{Name: "e", URL: server.URL, Idempotent: true}, httpengine.Deps{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = e.Close() })

			w := newWorld(t)
			w.cfg.Routes["r"] = relayer.RoutePolicy{Engine: "e", Patience: hour, RetryMin: hour, RetryMax: hour}
			w.cfg.Poison = inbox.PoisonPolicy{Failures: 4, Over: time.Millisecond, LostWorkers: 5}
			var log bytes.Buffer
			r := relayer.New(w.cfg, relayer.Deps{
				Store: w.store, Router: plainRouter{}, Engines: map[string]engine.Engine{"e": e}, Now: time.Now, After: time.After, NewID: w.newID,
				Log:  slog.New(slog.NewTextHandler(&log, nil)),
				Rand: func() *rand.Rand { return rand.New(rand.NewPCG(1, uint64(w.ids.Add(1)))) },
			})
			n := 0
			another := func() string {
				n++
				return w.insertBody(strings.Replace(others.Key, "NN", fmt.Sprint(10+n), 1), n, others.Data)
			}
			through := func(id string) {
				t.Helper()
				if got := w.status(id); got != "PROCESSED" {
					t.Errorf("one of another key is %s beside the one that is refused", got)
				}
			}
			first := another()
			w.once(r)
			through(first)
			id, later := w.insertBody(bad.Key, 1, bad.Data), w.insertBody(behind.Key, 2, behind.Data)
			w.once(r)
			if answer.retryAfter != "" {
				// A call for less is believed the first time. Its time passes, and another one finds the engine well.
				w.pauseEnds()
			}
			for range 3 {
				ok := another()
				w.once(r)
				through(ok)
				w.due()
				w.once(r)
			}
			if got := w.status(id); got != "PARKED/POISONED" || refused != 4 {
				t.Errorf("the refused one is %s after %d calls, want PARKED/POISONED after 4", got, refused)
			}
			w.once(r)
			through(later)
			if n := w.count("SELECT COUNT(*) FROM Engines WHERE OpenUntil IS NOT NULL", nil); n != 0 {
				t.Error("its engine is paused for everybody")
			}
			if strings.Contains(log.String(), "refuses our credentials") {
				t.Errorf("the log blames the credentials:\n%s", log.String())
			}
		})
	}
}

// An engine that refuses everybody is paused, and what it refused waits as it was, however long it lasts.
func TestAnEngineThatRefusesEverybodyParksNothing(t *testing.T) {
	w := newWorld(t)
	w.cfg.Routes["r"] = relayer.RoutePolicy{Engine: "e", Patience: hour, RetryMin: hour, RetryMax: hour}
	w.cfg.Poison = inbox.PoisonPolicy{Failures: 2, Over: time.Nanosecond, LostWorkers: 5}
	w.insert("before", 1)
	w.once(w.relay(w.engine(nil)))
	for n := range 10 {
		w.insert(fmt.Sprintf("WO-%d", n), n)
	}
	probed := map[string]bool{}
	for range 12 {
		calls := len(w.called())
		w.once(w.relay(w.engine(always(engine.Unauthorised))))
		for _, id := range w.called()[calls:] {
			probed[id] = true
		}
		w.pauseEnds()
		w.due()
	}
	if len(probed) != 10 {
		t.Errorf("%d of 10 messages were asked about in turn", len(probed))
	}
	w.once(w.relay(w.engine(nil)))
	w.due()
	w.once(w.relay(w.engine(nil)))
	if n := w.count("SELECT COUNT(*) FROM Messages WHERE Status = 'PROCESSED'", nil); n != 11 {
		t.Errorf("%d messages are correlated once the credentials are right, want 11", n)
	}
}

// A message that an adapter refuses by itself, although nobody can reach its engine, neither closes the breaker nor makes the
// failures of others their own.
func TestWhatNoEngineWasAskedSaysNothingAboutOne(t *testing.T) {
	closed, err := freeport.Hold()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closed.Release() })
	e, err := flowable.New(flowable.Config{Name: "e", BaseURL: "http://" + closed.Address(), Correlation: flowable.Correlation{Variable: "order"}}, flowable.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	w := newWorld(t)
	w.cfg.Routes["r"] = relayer.RoutePolicy{Engine: "e", Patience: hour, RetryMin: hour, RetryMax: hour}
	w.cfg.Poison = inbox.PoisonPolicy{Failures: 2, Over: time.Nanosecond, LostWorkers: 5}
	r := w.relay(map[string]engine.Engine{"e": e})
	w.sql("INSERT INTO Engines (Consumer, Engine, OpenReason, OpenUntil, Openings, Failures) VALUES ('"+consumer+"', 'e', 'TECHNICAL', TIMESTAMP '2020-01-01T00:00:00Z', 3, 5)", nil)
	good := w.insert("WO-1", 1)
	for n := range 3 {
		w.once(r) // the good one is the probe, and finds nobody
		keyless := w.insert("", n)
		w.pauseEnds()
		w.lanesDue()
		w.once(r)
		if got := w.status(keyless); got != "PARKED/REJECTED" {
			t.Fatalf("a message without a key is %s, want PARKED/REJECTED", got)
		}
		if open := w.count("SELECT COUNT(*) FROM Engines WHERE OpenUntil IS NOT NULL AND LastAnsweredAt IS NULL", nil); open != 1 {
			t.Error("the breaker of an engine that nobody reached is closed, or it counts as one that has answered")
		}
		w.pauseEnds()
		w.due()
	}
	if got := w.row(good); got.Status != "RETRYING" || got.TechnicalFailures < 3 {
		t.Errorf("the good message is %s after %d failures, want RETRYING after 3", w.status(good), got.TechnicalFailures)
	}
}

// Time in which nobody could be asked uses no patience: neither our own outage nor the engine's, wherever the message stands.
func TestNoOutageUsesPatience(t *testing.T) {
	setUp := func(t *testing.T) (*world, string) {
		w := newWorld(t)
		w.cfg.Routes["r"] = relayer.RoutePolicy{Engine: "e", Patience: 24 * hour, RetryMin: 10 * time.Second, RetryMax: 10 * time.Minute}
		id := w.insert("WO-1", 5)
		w.once(w.relay(w.engine(always(engine.NotWaiting))))
		return w, id
	}
	aDayPasses := func(w *world, id string) {
		r := w.row(id)
		w.update("Messages", map[string]any{"InboxId": id, "LastNotWaitingAt": r.LastNotWaiting.Add(-25 * hour), "NextAttemptAt": r.Next.Add(-25 * hour)})
		w.lanesDue()
	}
	check := func(w *world, id string) {
		w.t.Helper()
		got := w.row(id)
		if used := time.Duration(got.PatienceUsed) * time.Millisecond; w.status(id) != "RETRYING" || used > 10*time.Second || used < 5*time.Second {
			w.t.Errorf("it is %s and has used %v of its patience, want RETRYING and the one planned wait", w.status(id), used)
		}
	}
	t.Run("ours", func(t *testing.T) {
		w, id := setUp(t)
		aDayPasses(w, id)
		w.once(w.relay(w.engine(always(engine.NotWaiting))))
		check(w, id)
	})
	t.Run("the engine's, behind another message", func(t *testing.T) {
		w, id := setUp(t)
		front := w.insert("WO-1", 1) // late
		w.once(w.relay(w.engine(always(engine.Technical))))
		aDayPasses(w, id)
		w.update("Messages", map[string]any{"InboxId": front, "NextAttemptAt": time.Unix(0, 0)})
		w.once(w.relay(w.engine(func(_ ctx, d engine.Delivery) engine.Result {
			if d.InboxID == front {
				return engine.Result{Verdict: engine.Correlated}
			}
			return engine.Result{Verdict: engine.NotWaiting}
		})))
		check(w, id)
	})
	t.Run("ours, with an attempt that could not start in it", func(t *testing.T) {
		w, id := setUp(t)
		aDayPasses(w, id)
		started := false
		w.once(w.relay(w.engine(func(ctx, engine.Delivery) engine.Result {
			defer func() { started = true }()
			if !started {
				return engine.Result{Verdict: engine.NotStarted}
			}
			return engine.Result{Verdict: engine.NotWaiting}
		})))
		check(w, id)
	})
}

// TestC089: a gateway answers 503 for an engine that has acted. To an engine that can neither be asked nor takes a repetition
// for one nothing is sent again, whatever wait the gateway asks for.
func TestC089(t *testing.T) {
	raw, err := os.ReadFile("testdata/C089.json")
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		Answer struct {
			Status  int
			Headers map[string]string
			Body    string
		}
		Messages []struct {
			Key  string
			Data json.RawMessage
		}
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		t.Fatal(err)
	}
	for _, retryAfter := range []string{"", "1"} {
		t.Run("Retry-After "+retryAfter, func(t *testing.T) {
			var effects atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if effects.Add(1) > 1 {
					rw.WriteHeader(http.StatusNoContent)
					return
				}
				for name, value := range c.Answer.Headers {
					rw.Header().Set(name, value)
				}
				if retryAfter != "" {
					rw.Header().Set("Retry-After", retryAfter)
				}
				rw.WriteHeader(c.Answer.Status)
				_, _ = rw.Write([]byte(c.Answer.Body))
			}))
			t.Cleanup(server.Close)
			e, err := httpengine.New(httpengine.Config{Name: "e", URL: server.URL}, httpengine.Deps{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = e.Close() })
			w := newWorld(t)
			w.cfg.Routes["r"] = relayer.RoutePolicy{Engine: "e", Patience: hour, RetryMin: hour, RetryMax: hour}
			id := w.insertBody(c.Messages[0].Key, 1, c.Messages[0].Data)
			r := w.relay(map[string]engine.Engine{"e": e})
			w.once(r)
			if got := w.row(id); got.Status != "RETRYING" || !got.Unknown {
				t.Errorf("it is %s, outcome unknown %v; want RETRYING, true", w.status(id), got.Unknown)
			}
			w.due()
			w.pauseEnds()
			w.once(r)
			if got := w.status(id); got != "PARKED/POSSIBLY_DELIVERED" || effects.Load() != 1 {
				t.Errorf("it is %s after %d requests, want PARKED/POSSIBLY_DELIVERED after 1", got, effects.Load())
			}
		})
	}
}
