package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pubsub-inbox/pubsub-inbox/functions/receive"
	"github.com/pubsub-inbox/pubsub-inbox/functions/relay"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/emulatortest"
	"github.com/pubsub-inbox/pubsub-inbox/internal/funcserver"
	"github.com/pubsub-inbox/pubsub-inbox/internal/telemetry"
	"github.com/pubsub-inbox/pubsub-inbox/internal/telemetry/otlptest"
)

// observedWorld is both functions as production puts them together, in this process, with a collector.
type observedWorld struct {
	*relayWorld
	collector      *otlptest.Collector
	engine         *scriptedServer
	env            map[string]string
	receive, relay http.Handler
	logs           *lockedBuffer
}

const observedConfig = `consumer: orders
engines:
  engine: {kind: http, url: "%[1]s/engine", timeout: 1m, idempotent: true, statuses: {"202": handed_over, "404": not_waiting, "410": drop, "409": ambiguous}}
  billing: {kind: http, url: "%[1]s/billing", timeout: 1m, idempotent: true}
routes:
  - {name: invoices, match: attributes.type == "Invoice", type: attributes.type, key: attributes.key, engine: billing, message: Paid, retry: {min: 10ms, max: 20ms}}
  - {name: quick, match: attributes.type == "Quick", type: attributes.type, key: attributes.key, engine: engine, message: Advance, patience: 0s, parked: block, retry: {min: 10ms, max: 20ms}}
  - {name: orders, match: attributes.type == "Order", type: attributes.type, tenant: attributes.tenant, key: attributes.key, dedupe: attributes.eventId, engine: engine, message: Advance, retry: {min: 10ms, max: 20ms}}
relay: {budget: 10m, poll: 20ms, parallel: 4, batch: 20, lease: 10m, poison: {failures: 1, over: 1ms}, breaker: {failures: 50}}
`

// newObservedWorld sets SPANNER_EMULATOR_HOST, which the client reads by itself: the test is not parallel.
func newObservedWorld(t *testing.T, env map[string]string) *observedWorld {
	t.Helper()
	w := &observedWorld{relayWorld: newRelayWorld(t), collector: otlptest.New(t), engine: newScriptedServer(t), logs: &lockedBuffer{}}
	t.Setenv("SPANNER_EMULATOR_HOST", emulatortest.Spanner(t))
	w.env = map[string]string{"SPANNER_DATABASE": w.db, "AUTH_MODE": "none", "INBOX_CONFIG": fmt.Sprintf(observedConfig, w.engine.url),
		"OTEL_EXPORTER_OTLP_ENDPOINT": w.collector.URL, "OTEL_METRIC_EXPORT_INTERVAL": "1"}
	for name, value := range env {
		w.env[name] = value
	}
	w.receive, w.relay = w.instance(receive.Options), w.instance(relay.Options)
	return w
}

// instance makes one more instance of a function.
func (w *observedWorld) instance(options func(lookup func(string) (string, bool), out io.Writer) funcserver.Options) http.Handler {
	return http.HandlerFunc(funcserver.New(options(func(name string) (string, bool) {
		value, ok := w.env[name]
		return value, ok && value != ""
	}, w.logs)).ServeHTTP)
}

// send posts a body and returns the status.
func (w *observedWorld) send(to http.Handler, path, body string) int {
	rr := httptest.NewRecorder()
	to.ServeHTTP(rr, httptest.NewRequestWithContext(w.t.Context(), http.MethodPost, path, strings.NewReader(body)))
	return rr.Code
}

func (w *observedWorld) get(from http.Handler, path string) (int, string) {
	rr := httptest.NewRecorder()
	from.ServeHTTP(rr, httptest.NewRequestWithContext(w.t.Context(), http.MethodGet, path, nil))
	return rr.Code, rr.Body.String()
}

// store pushes messages, all of which must be stored or known.
func (w *observedWorld) store(messages ...observed) {
	w.t.Helper()
	for _, m := range messages {
		if status := w.send(w.receive, "/", m.body(w.t)); status != http.StatusNoContent {
			w.t.Fatalf("message %s: status %d, want 204", m.id, status)
		}
	}
}

// run has the relay run until nothing is due.
func (w *observedWorld) run() {
	w.t.Helper()
	if status := w.send(w.relay, "/", `{"once": true}`); status != http.StatusOK {
		w.t.Fatalf("a run of the relay: status %d, want 200; the log:\n%s", status, w.logs.String())
	}
}

// awaitStatus has the relay run until the message with this id stands there.
func (w *observedWorld) awaitStatus(id, want string) {
	w.t.Helper()
	eventually(w.t, id+" is "+want, func() bool {
		w.run()
		return slices.Equal(w.texts("SELECT CONCAT(Status, IF(Reason IS NULL, '', CONCAT('/', Reason))) FROM Messages WHERE MessageId = '"+id+"'"), []string{want})
	})
}

// observed is a push; do is what the engine answers, attempt by attempt.
type observed struct {
	id, typ, key, eventID, tenant string
	do                            string
	attempt                       int64
	more                          map[string]string // attributes
}

func (m observed) body(t *testing.T) string {
	t.Helper()
	attributes := map[string]string{"type": m.typ, "key": m.key, "eventId": m.eventID, "tenant": m.tenant}
	if m.eventID == "" {
		attributes["eventId"] = "event-" + m.id
	}
	for k, v := range m.more {
		attributes[k] = v
	}
	push := map[string]any{"subscription": "projects/p/subscriptions/s", "message": map[string]any{"messageId": m.id,
		"publishTime": "2026-03-02T08:15:30.123Z", "attributes": attributes, "data": fmt.Appendf(nil, `{"id":%q,"do":%q}`, m.id, m.do)}}
	if m.attempt > 0 {
		push["deliveryAttempt"] = m.attempt
	}
	text, err := json.Marshal(push)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// scriptedServer is an engine by HTTP that answers as each message's payload says: "503 200" is one failure, then success.
type scriptedServer struct {
	url string

	mu      sync.Mutex
	calls   map[string]int
	headers map[string][]http.Header // by message
	before  map[string]func()        // called before the first answer
}

func newScriptedServer(t *testing.T) *scriptedServer {
	t.Helper()
	s := &scriptedServer{calls: map[string]int{}, headers: map[string][]http.Header{}, before: map[string]func(){}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *scriptedServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct{ ID, Do string }
	_ = json.NewDecoder(r.Body).Decode(&body) // what is no JSON is answered 200
	answers := strings.Fields(body.Do)
	s.mu.Lock()
	n := s.calls[body.ID]
	s.calls[body.ID]++
	s.headers[body.ID] = append(s.headers[body.ID], r.Header.Clone())
	before := s.before[body.ID]
	delete(s.before, body.ID)
	s.mu.Unlock()
	if before != nil {
		before()
	}
	status := http.StatusOK
	if len(answers) > 0 {
		_, _ = fmt.Sscan(answers[min(n, len(answers)-1)], &status)
	}
	w.WriteHeader(status)
}

func (s *scriptedServer) sent(id string) []http.Header {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.headers[id])
}

// lockedBuffer is a log.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// entries are the log's, each of which must be one JSON object on a line of its own.
func (l *lockedBuffer) entries(t *testing.T) []map[string]any {
	t.Helper()
	var all []map[string]any
	for line := range strings.Lines(l.String()) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("the log has a line that is no JSON object: %v: %q", err, line)
		}
		all = append(all, entry)
	}
	return all
}

// differences says how what a collector got differs from the table of record.
func differences(table []telemetry.Metric, got []otlptest.Series) []string {
	var faults []string
	seen := map[string]bool{}
	for _, s := range got {
		i := slices.IndexFunc(table, func(m telemetry.Metric) bool { return m.Name == s.Name })
		if i < 0 {
			faults = append(faults, s.Name+": is in no row of the table")
			continue
		}
		seen[s.Name] = true
		m := table[i]
		labels := slices.Sorted(func(yield func(string) bool) {
			for name := range s.Labels {
				if !yield(name) {
					return
				}
			}
		})
		if want := slices.Sorted(slices.Values(m.Labels)); !slices.Equal(labels, want) {
			faults = append(faults, fmt.Sprintf("%s: has the labels %v, and the table says %v", s.Name, labels, want))
		}
		for name, value := range s.Labels {
			if value == "" {
				faults = append(faults, fmt.Sprintf("%s: the label %s is empty", s.Name, name))
			}
		}
		if s.Kind != string(m.Kind) || s.Unit != m.Unit {
			faults = append(faults, fmt.Sprintf("%s: is a %s in %q, and the table says %s in %q", s.Name, s.Kind, s.Unit, m.Kind, m.Unit))
		}
		if s.Kind != "gauge" && !s.Cumulative {
			faults = append(faults, s.Name+": is not cumulative")
		}
	}
	for _, m := range table {
		if !seen[m.Name] {
			faults = append(faults, m.Name+": did not come")
		}
	}
	return slices.Compact(faults)
}

// update runs a statement on lanes of a key.
func (w *observedWorld) update(set, key string) {
	w.t.Helper()
	w.sql("UPDATE Lanes SET "+set+" WHERE CorrelationKey = @key", map[string]any{"key": key})
}

var receiveOptions, relayOptions = receive.Options, relay.Options
