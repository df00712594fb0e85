package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/pubsub-inbox/pubsub-inbox/internal/telemetry"
	"github.com/pubsub-inbox/pubsub-inbox/internal/telemetry/otlptest"
)

// everything lives through what the demo shows, and what it cannot show: lost workers, late results, poison.
func (w *observedWorld) everything() {
	w.t.Helper()
	// Delivered twice, contradicted, published again under another id.
	first := observed{id: "1", typ: "Order", key: "A", attempt: 1}
	again := first
	again.attempt = 2
	other := first
	other.id, other.eventID = "1b", "event-1"
	w.store(first, again, other)
	copied := observed{id: "1c", typ: "Order", key: "A2", more: map[string]string{}}
	body := strings.Replace(copied.body(w.t), "eyJpZCI6IjFjIiwiZG8iOiIifQ==", "eyJpZCI6IjEiLCJkbyI6IiJ9", 1) // the payload of the first
	if status := w.send(w.receive, "/", body); status != http.StatusNoContent {
		w.t.Fatalf("the same payload under a new id: status %d", status)
	}
	// Unreadable, without a route, refused, dead-lettered.
	for path, bodies := range map[string]map[string]int{
		"/": {`{"message":{"messageId":"u1","publishTime":"2026-03-02T08:15:30Z","attributes":{"type":7}},"subscription":"s"}`: 204,
			`{"once": true}`: 400, observed{id: "n1", typ: "Nobody"}.body(w.t): 204},
		"/dead-letter": {observed{id: "d1", typ: "Order", key: "D", more: map[string]string{"CloudPubSubDeadLetterSourceDeliveryCount": "5"}}.body(w.t): 204},
	} {
		for body, want := range bodies {
			if status := w.send(w.receive, path, body); status != want {
				w.t.Fatalf("POST %s: status %d, want %d", path, status, want)
			}
		}
	}
	// Processed, handed over, tried again, discarded, ambiguous, nobody waits, an outage of one engine.
	w.store(
		observed{id: "2", typ: "Order", key: "B", do: "404 200"},
		observed{id: "3", typ: "Order", key: "C", do: "202"},
		observed{id: "4", typ: "Order", key: "E", do: "410"},
		observed{id: "5", typ: "Order", key: "F", do: "409"},
		observed{id: "6", typ: "Quick", key: "G", do: "404"},
		observed{id: "7", typ: "Invoice", key: "H", do: "503 503 200"},
		observed{id: "8", typ: "Invoice", key: "H2"},
	)
	w.awaitStatus("2", "PROCESSED")
	w.awaitStatus("5", "PARKED/AMBIGUOUS")
	w.awaitStatus("6", "PARKED/NO_WAITING_INSTANCE")
	w.awaitStatus("7", "PROCESSED")
	// Poisoned: it fails while others pass.
	w.store(observed{id: "9", typ: "Order", key: "P", do: "500"})
	w.awaitStatus2("9", "RETRYING", "PARKED/POISONED")
	// A result that comes after its lease, then a worker that does not come back.
	w.engine.mu.Lock()
	w.engine.before["10"] = func() { w.update("LeaseToken = LeaseToken + 1", "L") }
	w.engine.mu.Unlock()
	w.store(observed{id: "10", typ: "Order", key: "L"})
	w.run()
	w.lapse()
	w.awaitStatus("10", "PROCESSED")
}

// awaitStatus2 has others answered meanwhile, until the message stands there.
func (w *observedWorld) awaitStatus2(id, _, want string) {
	w.t.Helper()
	n := 0
	eventually(w.t, id+" is "+want, func() bool {
		n++
		w.store(observed{id: fmt.Sprintf("%s-beside-%d", id, n), typ: "Order", key: fmt.Sprintf("P-%d", n)})
		w.run()
		return slices.Equal(w.texts("SELECT CONCAT(Status, IF(Reason IS NULL, '', CONCAT('/', Reason))) FROM Messages WHERE MessageId = '"+id+"'"), []string{want})
	})
}

func TestACollectorGetsEveryMetricOfTheTableAndNoOther(t *testing.T) {
	w := newObservedWorld(t, nil)
	w.everything()
	eventually(t, "everything is exported", func() bool {
		w.store(observed{id: "last", typ: "Order", key: "Z"})
		w.run()
		return w.collector.Sum("inbox_late_results_total", nil) == 1 && w.collector.Sum("inbox_lost_workers_total", nil) == 1 &&
			len(differences(telemetry.Metrics(), w.collector.Series(""))) == 0
	})
	for _, fault := range w.collector.Refused() {
		t.Errorf("the collector has refused: %s", fault)
	}
	// What happened once is counted once, under the labels that the table says.
	for _, c := range []struct {
		metric string
		labels map[string]string
		want   float64
	}{
		{"inbox_received_total", map[string]string{"route": "orders", "status": "PARKED", "reason": "DEDUPE_CONFLICT", "type": "Order"}, 1},
		{"inbox_received_total", map[string]string{"route": "none", "status": "PARKED", "reason": "NO_ROUTE", "type": "none"}, 1},
		{"inbox_received_total", map[string]string{"reason": "UNREADABLE"}, 1},
		{"inbox_received_total", map[string]string{"reason": "DEAD_LETTERED"}, 1},
		{"inbox_conflicts_total", map[string]string{"route": "orders"}, 1},
		{"inbox_refused_requests_total", map[string]string{"code": "400"}, 1},
		{"inbox_dead_letters_total", map[string]string{"outcome": "stored"}, 1},
		{"inbox_dead_letters_total", map[string]string{"outcome": "known"}, 0},
		{"inbox_equal_payloads_total", map[string]string{"route": "orders"}, 1},
		{"inbox_broker_delivery_attempts", nil, 3},
		{"inbox_handed_over_total", map[string]string{"route": "orders", "engine": "engine"}, 1},
		{"inbox_discarded_total", map[string]string{"route": "orders"}, 1},
		{"inbox_retried_total", map[string]string{"route": "orders", "verdict": "NOT_WAITING"}, 1},
		{"inbox_retried_total", map[string]string{"route": "invoices", "engine": "billing", "verdict": "THROTTLED"}, 2},
		{"inbox_technical_failures_total", map[string]string{"engine": "billing", "verdict": "THROTTLED"}, 2},
		{"inbox_parked_total", map[string]string{"reason": "AMBIGUOUS"}, 1},
		{"inbox_parked_total", map[string]string{"reason": "NO_WAITING_INSTANCE", "route": "quick"}, 1},
		{"inbox_parked_total", map[string]string{"reason": "DEAD_LETTERED"}, 1},
		{"inbox_poisoned_total", map[string]string{"route": "orders"}, 1},
		{"inbox_processed_total", map[string]string{"route": "invoices", "type": "Invoice", "engine": "billing"}, 2},
		{"inbox_relay_runs_total", map[string]string{"result": "failed"}, 0},
	} {
		if got := w.collector.Sum(c.metric, c.labels); got != c.want {
			t.Errorf("%s{%s} is %v, want %v", c.metric, otlptest.Labels(c.labels), got, c.want)
		}
	}
	if got := len(w.collector.Series("inbox_parked_messages")); got < 15 {
		t.Errorf("parked messages are reported for %d reasons, want all: a zero is written as zero", got)
	}
}

func TestAMissingAnExtraAndADifferentlyLabelledMetricAreSeen(t *testing.T) {
	t.Parallel()
	table := []telemetry.Metric{{Name: "a_total", Kind: telemetry.Counter, Labels: []string{"consumer", "route"}}, {Name: "b", Kind: telemetry.Gauge, Labels: []string{"consumer"}}}
	a := otlptest.Series{Name: "a_total", Kind: "counter", Cumulative: true, Labels: map[string]string{"consumer": "c", "route": "r"}}
	b := otlptest.Series{Name: "b", Kind: "gauge", Labels: map[string]string{"consumer": "c"}}
	with := func(s otlptest.Series, change func(*otlptest.Series)) otlptest.Series {
		change(&s)
		return s
	}
	for _, c := range []struct {
		name string
		got  []otlptest.Series
		want int
	}{
		{"nothing is wrong", []otlptest.Series{a, b}, 0},
		{"one is missing", []otlptest.Series{a}, 1},
		{"one is extra", []otlptest.Series{a, b, {Name: "c", Kind: "gauge"}}, 1},
		{"a label is missing", []otlptest.Series{with(a, func(s *otlptest.Series) { s.Labels = b.Labels }), b}, 1},
		{"a label is extra", []otlptest.Series{a, with(b, func(s *otlptest.Series) { s.Labels = a.Labels })}, 1},
		{"a label has another name", []otlptest.Series{with(a, func(s *otlptest.Series) { s.Labels = map[string]string{"consumer": "c", "path": "r"} }), b}, 1},
		{"a label is empty", []otlptest.Series{a, with(b, func(s *otlptest.Series) { s.Labels = map[string]string{"consumer": ""} })}, 1},
		{"it is another kind", []otlptest.Series{a, with(b, func(s *otlptest.Series) { s.Kind, s.Cumulative = "counter", true })}, 1},
		{"it is not cumulative", []otlptest.Series{with(a, func(s *otlptest.Series) { s.Cumulative = false }), b}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := differences(table, c.got); len(got) != c.want {
				t.Errorf("%d differences, want %d: %v", len(got), c.want, got)
			}
		})
	}
}

// Tenants are a label only where somebody has listed them, and then no more values than listed.
func TestTenantsAreALabelOnlyWhereTheyAreListed(t *testing.T) {
	w := newObservedWorld(t, map[string]string{"INBOX_METRIC_TENANTS": "acme, globex"})
	for i, tenant := range []string{"acme", "globex", "initech", "umbrella", ""} {
		w.store(observed{id: fmt.Sprint("t", i), typ: "Order", key: fmt.Sprint("T", i), tenant: tenant})
	}
	w.run()
	for _, metric := range []string{"inbox_received_total", "inbox_processed_total"} {
		for tenant, want := range map[string]float64{"acme": 1, "globex": 1, "other": 2, "none": 1} {
			eventually(t, metric+" of "+tenant, func() bool {
				w.send(w.receive, "/", "{}") // refused, and exported
				return w.collector.Sum(metric, map[string]string{"tenant": tenant}) == want
			})
		}
		if n := len(w.collector.Series(metric)); n != 4 {
			t.Errorf("%s has %d series, want 4", metric, n)
		}
	}
}

// C011: one event, published again and again under new message ids.
func TestC011EqualPayloadsUnderNewIDsAreCounted(t *testing.T) {
	for _, c := range []struct {
		name                    string
		dedupe                  bool
		rows                    int
		redelivered, equalCount float64
	}{
		{"with a business event id there is one row", true, 1, 2, 0},
		{"without one each has its row, and the metric shows it", false, 3, 0, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newObservedWorld(t, nil)
			dedupe := ""
			if c.dedupe {
				dedupe = ", dedupe: attributes.eventId"
			}
			w.env["INBOX_CONFIG"] = fmt.Sprintf("consumer: orders\nengines:\n  engine: {kind: http, url: %q, timeout: 20s, idempotent: true}\nroutes:\n"+
				"  - {name: all, key: payload.orderId, engine: engine, message: Closed%s}\n", w.engine.url, dedupe)
			w.receive = w.instance(receiveOptions)
			for _, body := range caseInput(t, "C011") {
				if status := w.send(w.receive, "/", string(body)); status != http.StatusNoContent {
					t.Fatalf("status %d, want 204", status)
				}
			}
			if got := w.count("Messages"); got != c.rows {
				t.Errorf("%d rows, want %d", got, c.rows)
			}
			eventually(t, "the counts are exported", func() bool {
				w.send(w.receive, "/", "{}")
				return w.collector.Sum("inbox_redelivered_total", nil) == c.redelivered && w.collector.Sum("inbox_equal_payloads_total", nil) == c.equalCount &&
					w.collector.Sum("inbox_received_total", nil) == float64(c.rows)
			})
		})
	}
}

// The run's summary is one line and one metric, and a run that fails is another one.
func TestARunOfTheRelayIsOneLineAndAFailingOneIsSeenFromOutside(t *testing.T) {
	w := newObservedWorld(t, nil)
	w.store(observed{id: "1", typ: "Order", key: "A"}, observed{id: "2", typ: "Order", key: "B", do: "409"})
	w.run()
	var lines []map[string]any
	for _, e := range w.logs.entries(t) {
		if e["message"] == "relay run" {
			lines = append(lines, e)
		}
	}
	if len(lines) != 1 || lines[0]["severity"] != "INFO" || lines[0]["processed"] != 1.0 || lines[0]["parked"] != 1.0 || lines[0]["ok"] != true {
		t.Errorf("the run's lines are %v, want one with what it did", lines)
	}
	w.env["SPANNER_DATABASE"] = strings.Replace(w.db, "/databases/", "/databases/x", 1)
	w.relay = w.instance(relayOptions)
	if status := w.send(w.relay, "/", `{"once": true}`); status != http.StatusServiceUnavailable {
		t.Errorf("a run without a database is answered %d, want 503", status)
	}
	eventually(t, "the failed run is exported", func() bool {
		w.send(w.relay, "/", "no JSON")
		return w.collector.Sum("inbox_relay_runs_total", map[string]string{"result": "failed"}) == 1 &&
			w.collector.Sum("inbox_relay_runs_total", map[string]string{"result": "ok"}) == 1
	})
}

// C025, and what telemetry adds to it: neither logs nor numbers nor spans say what a sender wrote.
func TestC025NoPayloadAndNoAttributeValueLeavesTheProcess(t *testing.T) {
	w := newObservedWorld(t, map[string]string{"OTEL_TRACES_SAMPLER_ARG": "1", "INBOX_LOG_LEVEL": "debug"})
	secrets := []string{"person@example.com", "DE00 0000", "100%done", "line1", "do-not-tell", "KEY-17"}
	var bodies []string
	for _, body := range caseInput(t, "C025") {
		bodies = append(bodies, string(body))
	}
	bodies = append(bodies, observed{id: "9100000000002502", typ: "Order", key: "KEY-17", do: "404 404 200", more: map[string]string{"note": "do-not-tell 100%done %s %d"}}.body(t))
	for _, body := range bodies {
		if status := w.send(w.receive, "/", body); status != http.StatusNoContent {
			t.Fatalf("status %d, want 204", status)
		}
	}
	w.awaitStatus("9100000000002502", "PROCESSED")
	eventually(t, "spans of both functions are exported", func() bool {
		w.run()
		names := map[string]bool{}
		for _, s := range w.collector.Spans() {
			names[s.Name] = true
		}
		return names["receive"] && names["attempt"]
	})
	log, exported := w.logs.String(), string(w.collector.Raw())
	for _, secret := range secrets {
		if strings.Contains(log, secret) {
			t.Errorf("the log has %q:\n%s", secret, log)
		}
		if strings.Contains(exported, secret) {
			t.Errorf("what is exported has %q", secret)
		}
	}
	steps := map[string]bool{}
	for _, e := range w.logs.entries(t) {
		if e["severity"] == nil || e["severity"] == "" {
			t.Errorf("an entry without severity: %v", e)
		}
		what, _ := e["message"].(string)
		if !strings.HasPrefix(what, "message ") {
			continue
		}
		steps[what] = true
		for _, field := range []string{"inboxId", "route", "status", "reason"} {
			if _, ok := e[field]; !ok {
				t.Errorf("the step %q has no %s: %v", what, field, e)
			}
		}
	}
	for _, step := range []string{"message stored", "message processed", "message to be tried again"} {
		if !steps[step] {
			t.Errorf("there is no entry %q", step)
		}
	}
}

func TestHealthSaysWhichKindFailsAndNothingElse(t *testing.T) {
	w := newObservedWorld(t, nil)
	for name, handler := range map[string]http.Handler{"receive": w.receive, "relay": w.relay} {
		for _, path := range []string{"/health/live", "/health/ready"} {
			if status, body := w.get(handler, path); status != http.StatusOK || body != "{\"status\":\"ok\"}\n" {
				t.Errorf("%s: GET %s is answered %d %q, want 200 and ok", name, path, status, body)
			}
		}
		if status := w.send(handler, "/health/ready", ""); status != http.StatusMethodNotAllowed {
			t.Errorf("%s: POST /health/ready is answered %d, want 405", name, status)
		}
	}
	w.env["SPANNER_DATABASE"] = strings.Replace(w.db, "/databases/", "/databases/x", 1)
	handler := w.instance(receiveOptions)
	status, body := w.get(handler, "/health/ready")
	var answer struct {
		Status  string
		Failing []string
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status != http.StatusServiceUnavailable ||
		!slices.Equal(answer.Failing, []string{"spanner"}) || strings.Contains(body, "databases") {
		t.Errorf("without its database: %d %q, %v; want 503 and spanner, and no name", status, body, err)
	}
	if status, _ := w.get(handler, "/health/live"); status != http.StatusOK {
		t.Errorf("without its database it lives: %d, want 200", status)
	}
}
