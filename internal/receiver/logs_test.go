package receiver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/emulatortest"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/rpctap"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/migrate"
	"github.com/pubsub-inbox/pubsub-inbox/internal/telemetry"
	"github.com/pubsub-inbox/pubsub-inbox/migrations"
)

// canary is in every value that must not be logged or answered.
const canary = "c4n4ry"

// canaries is a message whose values are all secret; its names are not.
func canaries() message {
	return message{
		ID: "100%!d(MISSING)%s%n", OrderingKey: canary + "-ordering", Data: []byte(`{"iban":"` + canary + `","pct":"100%done %s %d"}`),
		Attributes: map[string]string{"note": canary + "\nline2", "key": canary + "-key", "eventId": canary + "-of-the-event-that-it-is", "type": canary + "-type"},
	}
}

func TestC025LogsHaveIDsAndReasonsAndNoValues(t *testing.T) {
	const routes = `
  - {name: any, match: '!has(attributes.lost)', key: attributes.key, dedupe: attributes.eventId, type: attributes.type, engine: e, message: M}`
	other := canaries()
	other.Data = []byte(canary + " other")
	long := canaries()
	long.Attributes["key"] = strings.Repeat(canary, 300)
	long.Attributes["type"] = strings.Repeat(canary, 300)
	lost := canaries()
	lost.Attributes["lost"] = canary
	noEvent := canaries()
	delete(noEvent.Attributes, "eventId")
	huge := canaries()
	huge.Data = []byte(strings.Repeat(canary, inbox.MaxInlinePayload/len(canary)+1))
	many := canaries()
	for _, name := range strings.Split(strings.Repeat("x,", 600), ",") {
		many.Attributes["a"+name+strings.Repeat("y", len(many.Attributes))] = strings.Repeat(canary, 170)
	}
	unreadable := func(inner string) []byte {
		return []byte(`{"message":{"messageId":"100%!d(MISSING)%s%n",` + inner + `},"subscription":"` + subscription + `"}`)
	}
	fail := func(method string, code codes.Code) func(*world) {
		return func(w *world) {
			w.tap.Before(method, func(_ context.Context, n int, _ any) error {
				if n == 1 {
					return rpctap.Error(code)
				}
				return nil
			})
		}
	}
	tests := []struct {
		name    string
		before  [][]byte
		prepare func(*world)
		body    []byte
		status  int
		log     string // the message of the last entry
		level   string
		ids     bool
	}{
		{name: "stored", body: canaries().body(t), status: 204, log: "message stored", level: "INFO", ids: true},
		{name: "the case's input", body: input(t, "C025")[0], status: 204, log: "message stored", level: "WARNING"},
		{name: "no route", body: lost.body(t), status: 204, log: "message stored", level: "WARNING", ids: true},
		{name: "a key that is too long", body: long.body(t), status: 204, log: "message stored", level: "WARNING", ids: true},
		{name: "no dedupe key", body: noEvent.body(t), status: 204, log: "message stored", level: "WARNING", ids: true},
		{name: "a contradiction", before: [][]byte{canaries().body(t)}, body: other.body(t), status: 204, log: "message stored", level: "WARNING", ids: true},
		{name: "data that is no base64", body: unreadable(`"data":"@` + canary + `"`), status: 204, log: "message stored", level: "WARNING", ids: true},
		{name: "an attribute that is no text", body: unreadable(`"attributes":{"n":{"` + canary + `":1}}`), status: 204, log: "message stored", level: "WARNING", ids: true},
		{name: "attributes over the limit", body: many.body(t), status: 204, log: "message stored", level: "WARNING", ids: true},
		{name: "no JSON", body: []byte(`{"` + canary + `"`), status: 400, log: "request refused: no row", level: "WARNING"},
		{name: "no push", body: []byte(`{"` + canary + `":"` + canary + `"}`), status: 400, log: "request refused: no row", level: "WARNING"},
		{name: "a message that is a text", body: []byte(`{"message":"` + canary + `"}`), status: 400, log: "request refused: no row", level: "WARNING"},
		{name: "over the size limit", body: huge.body(t), status: 413, log: "request refused: no row", level: "WARNING", ids: true},
		{name: "refused once", prepare: fail("Commit", codes.OutOfRange), body: canaries().body(t), status: 204, log: "message stored", level: "WARNING", ids: true},
		{name: "out of reach", prepare: fail("Commit", codes.PermissionDenied), body: canaries().body(t), status: 503, log: "storing a message failed", level: "ERROR", ids: true},
		{name: "not to be looked up", before: [][]byte{canaries().body(t)}, prepare: fail("ExecuteStreamingSql", codes.PermissionDenied), body: canaries().body(t),
			status: 503, log: "storing a message failed", level: "ERROR", ids: true},
		{name: "a panic with a value", prepare: func(w *world) {
			w.tap.Before("Commit", func(context.Context, int, any) error { panic(errors.New(canary)) })
		}, body: canaries().body(t), status: 500, log: "panic", level: "ERROR"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, routes)
			w.postAll(tt.before)
			w.tap.Reset()
			if tt.prepare != nil {
				tt.prepare(w)
			}
			got := post(w.function(w.endpoint()), tt.body)
			if got.Code != tt.status {
				t.Fatalf("status %d, want %d", got.Code, tt.status)
			}
			checkDiscreet(t, w, got)
			entries := w.log.entries(t)
			last := entries[len(entries)-1]
			if last["message"] != tt.log || last["severity"] != tt.level {
				t.Errorf("the last entry is %v at %v, want %s at %s", last["message"], last["severity"], tt.log, tt.level)
			}
			id, _ := last["inboxId"].(string)
			if tt.ids && (len(id) != 32 || last["messageId"] != "100%!d(MISSING)%s%n" || last["subscription"] != subscription) {
				t.Errorf("the last entry is about %v, %v of %v", last["inboxId"], last["messageId"], last["subscription"])
			}
		})
	}
}

// checkDiscreet fails if log or answer hold a value, or the log is not one object with a severity a line.
func checkDiscreet(t *testing.T, w *world, answer *httptest.ResponseRecorder) {
	t.Helper()
	for _, secret := range []string{canary, "YzRuNHJ5", "person@example.com", "DE00", "line1", "line2", "done"} { // with the base64 of it
		if strings.Contains(w.log.String(), secret) {
			t.Errorf("the log holds %q", secret)
		}
		if strings.Contains(answer.Body.String(), secret) {
			t.Errorf("the answer holds %q", secret)
		}
	}
	if strings.Contains(answer.Body.String(), "goroutine") || strings.Contains(answer.Body.String(), ".go:") {
		t.Errorf("the answer holds a stack: %.300s", answer.Body)
	}
	for _, entry := range w.log.entries(t) {
		if entry["severity"] == nil || entry["message"] == nil {
			t.Errorf("an entry without severity or message: %v", entry)
		}
	}
}

// A schema that is not the receiver's: the database itself refuses the values. That a column is smaller than it should be says
// nothing about the message, and the database answers as it does where its key is away.
func TestAValueThatTheDatabaseRefusesIsNotLoggedAndWhatACheckRefusesIsKeptRaw(t *testing.T) {
	tests := []struct {
		name, from, to string
		status         int
	}{
		{"a smaller key", "CorrelationKey STRING(1024)", "CorrelationKey STRING(4)", 503},
		{"a smaller dedupe key", "DedupeKey STRING(4096)", "DedupeKey STRING(20)", 503},
		{"another type", "MessageType STRING(256)", "MessageType INT64", 503},
		{"a check", "CONSTRAINT MessagesCountsNotNegative CHECK (", "CONSTRAINT MessagesCountsNotNegative CHECK ((CorrelationKey IS NULL) AND ", 204},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorldWith(t, tt.from, tt.to)
			m := canaries()
			body := m.body(t)
			var got []int
			for range 2 {
				answer := post(w.endpoint(), body)
				checkDiscreet(t, w, answer)
				got = append(got, answer.Code)
			}
			if got[0] != tt.status || got[1] != tt.status {
				t.Errorf("statuses %v, want %d", got, tt.status)
			}
			if tt.status != 204 {
				if n := w.count("Messages"); n != 0 {
					t.Errorf("%d rows", n)
				}
				return
			}
			want := unreadable(m.ID, body, "the database refused its values")
			want.OrderingKey, want.Deliveries = m.OrderingKey, 1
			checkRow(t, want, w.one())
		})
	}
}

// newWorldWith is a world whose schema differs in a text.
func newWorldWith(t *testing.T, from, to string) *world {
	t.Helper()
	all, err := migrate.Read(t.Context(), migrations.Files)
	if err != nil {
		t.Fatal(err)
	}
	var ddl []string
	found := 0
	for _, m := range all {
		for _, statement := range m.Statements {
			found += strings.Count(statement, from)
			ddl = append(ddl, strings.ReplaceAll(statement, from, to))
		}
	}
	if found == 0 {
		t.Fatalf("the schema has no %q", from)
	}
	w := &world{t: t, db: emulatortest.DatabaseWith(t, ddl...), log: &logBuffer{}, router: router(t, `
  - {name: any, key: attributes.key, dedupe: attributes.eventId, type: attributes.type, engine: e, message: M}`)}
	w.client = emulatortest.Client(t, w.db)
	w.store, w.tap = w.newStore()
	return w
}

// logBuffer holds a function's log.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) logger() *slog.Logger { return telemetry.NewLogger(b, telemetry.Options{}) }

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// entries parses the log, which has one JSON object a line.
func (b *logBuffer) entries(t testing.TB) []map[string]any {
	t.Helper()
	var all []map[string]any
	for line := range bytes.Lines([]byte(b.String())) {
		var entry map[string]any
		if err := json.Unmarshal(line, &entry); err != nil {
			t.Fatalf("a line of the log is no JSON object: %v: %.200s", err, line)
		}
		all = append(all, entry)
	}
	return all
}
