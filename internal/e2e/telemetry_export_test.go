package e2e_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/telemetry/otlptest"
)

// C065: two instances of one revision, and a collector that refuses points of one series out of order.
func TestC065InstancesOfOneRevisionDoNotGetInEachOthersWay(t *testing.T) {
	w := newObservedWorld(t, map[string]string{"K_REVISION": "receive-00007"})
	second := w.instance(receiveOptions)
	secondRelay := w.instance(relayOptions)
	for i := range 20 {
		w.store(observed{id: fmt.Sprint("a", i), typ: "Order", key: fmt.Sprint("A", i)})
		if status := w.send(second, "/", observed{id: fmt.Sprint("b", i), typ: "Order", key: fmt.Sprint("B", i)}.body(t)); status != http.StatusNoContent {
			t.Fatalf("status %d, want 204", status)
		}
	}
	w.run()
	if status := w.send(secondRelay, "/", `{"once": true}`); status != http.StatusOK {
		t.Fatalf("status %d, want 200", status)
	}
	eventually(t, "both instances' numbers are there", func() bool {
		w.send(w.receive, "/", "{}")
		w.send(second, "/", "{}")
		return w.collector.Sum("inbox_received_total", map[string]string{"status": "RECEIVED"}) == 40
	})
	instances := map[string]bool{}
	for _, s := range w.collector.Series("inbox_received_total") {
		instances[s.Resource["service.instance.id"]] = true
		if s.Resource["service.version"] != "receive-00007" || s.Resource["service.name"] == "" || s.Resource["gcp.project_id"] != "test-project" {
			t.Errorf("the resource is %v", s.Resource)
		}
	}
	if len(instances) != 2 {
		t.Errorf("the instances are %v, want two", instances)
	}
	for _, fault := range w.collector.Refused() {
		t.Errorf("the collector has refused: %s", fault)
	}
	// Gauges have one writer, whoever runs.
	writers := map[string]bool{}
	for _, s := range w.collector.Series("inbox_oldest_open_age_seconds") {
		writers[s.Resource["service.instance.id"]] = true
	}
	if len(writers) != 1 {
		t.Errorf("the gauges' writers are %v, want one", writers)
	}
}

// A collector that is down, or takes everything and answers nothing, changes no answer, and costs a wait once in an
// interval: whoever comes while an export hangs, or within the interval, waits for nothing.
func TestACollectorThatIsDownOrHangsChangesNoAnswer(t *testing.T) {
	const pushes = 60
	release, ended := make(chan struct{}), newSignal()
	t.Cleanup(func() { close(release) })
	times := map[string]time.Duration{}
	for _, c := range []struct {
		name string
		set  func(w *observedWorld)
	}{
		{"without telemetry", func(w *observedWorld) { w.env["OTEL_SDK_DISABLED"] = "true" }},
		{"with a good collector", func(*observedWorld) {}},
		{"with one that is down", func(w *observedWorld) { w.env["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://127.0.0.1:1" }},
		{"with one that hangs", func(w *observedWorld) {
			w.collector.Answer(func(_ http.ResponseWriter, r *http.Request) bool {
				select {
				case <-release:
				case <-r.Context().Done():
					ended.set()
				}
				return true
			})
		}},
	} {
		w := newObservedWorld(t, map[string]string{"OTEL_METRIC_EXPORT_INTERVAL": "3600000", "OTEL_TRACES_SAMPLER_ARG": "0"})
		c.set(w)
		w.receive = w.instance(receiveOptions)
		w.store(observed{id: "first", typ: "Order", key: "first"}) // begins the interval's export
		// The answer gives an export up long before that ends by itself, which is after five seconds.
		select {
		case <-ended.c:
			t.Error("an answer has waited for an export that hangs")
		default:
		}
		began := time.Now()
		for i := range pushes {
			w.store(observed{id: fmt.Sprint(i), typ: "Order", key: fmt.Sprint("K", i)})
		}
		times[c.name] = time.Since(began)
		if got := w.count("Messages"); got != pushes+1 {
			t.Errorf("%s: %d rows, want %d", c.name, got, pushes+1)
		}
		if got := w.collector.Requests(); got > 1 {
			t.Errorf("%s: %d exports were begun in one interval, want 1 at most", c.name, got)
		}
		if got := strings.Count(w.logs.String(), "telemetry was not exported"); got > 1 {
			t.Errorf("%s: a failed export is logged %d times a minute, want once at most", c.name, got)
		}
	}
	for name, took := range times {
		t.Logf("%d receives %s: %v", pushes, name, took.Round(time.Millisecond))
	}
}

// C064: what is counted and not yet sent is sent when the process is told to end, and a collector that hangs does not
// keep it.
func TestC064WhatIsLeftIsExportedAtTheEnd(t *testing.T) {
	t.Parallel()
	env := func(w *relayWorld, function, engine string, c *otlptest.Collector) []string {
		return append(w.env(function, engine, ""), "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL, "OTEL_METRIC_EXPORT_INTERVAL=3600000", "OTEL_TRACES_SAMPLER_ARG=1")
	}
	t.Run("an idle receive", func(t *testing.T) {
		t.Parallel()
		w, c := newRelayWorld(t), otlptest.New(t)
		p := startProcess(t, env(w, "Receive", "http://127.0.0.1:1", c)...).serving()
		store := func(id string) {
			t.Helper()
			if status, _, err := p.post(strings.NewReader(push(id, "WO-"+id, 30))); err != nil || status != http.StatusNoContent {
				t.Fatalf("a push is answered %d, %v; want 204", status, err)
			}
		}
		store("1")
		eventually(t, "the first is exported with its request", func() bool { return c.Sum("inbox_received_total", nil) == 1 })
		store("2")
		store("3")
		if got := c.Sum("inbox_received_total", nil); got != 1 {
			t.Errorf("%v receives are exported within the interval, want 1: this test shows nothing", got)
		}
		begun := time.Now()
		p.signal(syscall.SIGTERM)
		p.endsInTime(begun)
		if got := c.Sum("inbox_received_total", nil); got != 3 {
			t.Errorf("%v receives are exported, want 3", got)
		}
		if got := len(spansNamed(c.Spans(), "receive")); got != 3 {
			t.Errorf("%d spans are exported, want 3", got)
		}
	})
	t.Run("a relay with claims and one call under way", func(t *testing.T) {
		t.Parallel()
		w, c := newRelayWorld(t), otlptest.New(t)
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
		p := startProcess(t, env(w, "Relay", e.url("relay"), c)...).serving()
		run := p.start()
		within(t, "the engine is called", arrived.c)
		begun := time.Now()
		p.signal(syscall.SIGTERM)
		p.await("shutting down")
		answer.set()
		if got := p.finished(run); got.Processed != 1 || got.Released != 19 {
			t.Errorf("the run's summary is %+v, want 1 processed and 19 released", got)
		}
		p.endsInTime(begun)
		if got := c.Sum("inbox_processed_total", nil); got != 1 {
			t.Errorf("%v processed messages are exported, want 1", got)
		}
		if got := c.Sum("inbox_relay_runs_total", map[string]string{"result": "ok"}); got != 1 {
			t.Errorf("%v runs are exported, want 1", got)
		}
		if got := len(spansNamed(c.Spans(), "attempt")); got != 1 {
			t.Errorf("%d attempts are exported, want 1", got)
		}
	})
	t.Run("a receive whose collector hangs", func(t *testing.T) {
		t.Parallel()
		w, c := newRelayWorld(t), otlptest.New(t)
		release := make(chan struct{})
		t.Cleanup(func() { close(release) })
		c.Answer(func(_ http.ResponseWriter, r *http.Request) bool {
			select {
			case <-release:
			case <-r.Context().Done():
			}
			return true
		})
		p := startProcess(t, env(w, "Receive", "http://127.0.0.1:1", c)...).serving()
		if status, _, err := p.post(strings.NewReader(push("1", "WO-1", 30))); err != nil || status != http.StatusNoContent {
			t.Fatalf("a push is answered %d, %v; want 204", status, err)
		}
		begun := time.Now()
		p.signal(syscall.SIGTERM)
		p.endsInTime(begun)
		if got := w.count("Messages"); got != 1 {
			t.Errorf("%d rows, want 1", got)
		}
	})
}

// Unset, nothing is exported, nothing is read for gauges, and no lease is taken.
func TestWithoutAnEndpointTelemetryDoesNothing(t *testing.T) {
	w := newObservedWorld(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": ""})
	w.store(observed{id: "1", typ: "Order", key: "A"})
	w.run()
	if got := w.collector.Requests(); got != 0 {
		t.Errorf("%d requests reached the collector, want none", got)
	}
	if got := w.texts("SELECT ReporterOwner FROM Relays WHERE ReporterOwner IS NOT NULL"); len(got) != 0 {
		t.Errorf("the reporter's lease is held by %v, want nobody", got)
	}
	if !slices.Equal(w.texts("SELECT Status FROM Messages"), []string{"PROCESSED"}) {
		t.Error("the message is not processed")
	}
}
