package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/pubsub-inbox/pubsub-inbox/internal/config"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/emulatortest"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/rpctap"
	"github.com/pubsub-inbox/pubsub-inbox/internal/receiver"
	"github.com/pubsub-inbox/pubsub-inbox/internal/relayer"
	"github.com/pubsub-inbox/pubsub-inbox/internal/routing"
	"github.com/pubsub-inbox/pubsub-inbox/internal/spannerstore"
	"github.com/pubsub-inbox/pubsub-inbox/internal/wiring"
)

// caseWorld is the whole path in one process: pushes by HTTP, the Spanner emulator, a relay, and an engine by HTTP.
type caseWorld struct {
	t       *testing.T
	client  *spanner.Client // for looking; not tapped
	store   *spannerstore.Store
	tap     *rpctap.Tap // on the receive side
	relays  *spannerstore.Store
	url     string // the engine's
	receive http.Handler
	relay   *relayer.Relayer
}

// caseRetry keeps what is to be tried again from being due in the same test.
const caseRetry = "patience: 24h, retry: {min: 1h, max: 2h}"

// newCaseWorld has an engine answer by handler, and routes as the YAML says. In them, "engine" is the engine.
func newCaseWorld(t *testing.T, handler http.Handler, routes string) *caseWorld {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	w := &caseWorld{t: t, url: server.URL, tap: &rpctap.Tap{}}
	db := emulatortest.Database(t)
	w.client = emulatortest.Client(t, db)
	w.store = spannerstore.New(emulatortest.Client(t, db, w.tap.Options()...), time.Now, wiring.NewID)
	w.relays = spannerstore.New(emulatortest.Client(t, db), time.Now, wiring.NewID)
	w.deploy(routes, "")
	return w
}

// deploy puts another configuration in place. statuses are the engine's.
func (w *caseWorld) deploy(routes, statuses string) {
	w.t.Helper()
	text := fmt.Sprintf("consumer: orders\nengines:\n  engine: {kind: http, url: '%s', timeout: 1m, idempotent: true, statuses: {%s}}\n"+
		"routes:%s\nrelay: {budget: 10m, parallel: 4, batch: 20, lease: 10m, poll: 20ms}\n", w.url, statuses, routes)
	cfg, _, err := config.Parse("config.yaml", []byte(text))
	if err != nil {
		w.t.Fatal(err)
	}
	router, err := routing.New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	engines, err := wiring.Engines(cfg, func(string) (string, bool) { return "", false })
	if err != nil {
		w.t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	auth, err := wiring.Auth(config.AuthModeNone, "", nil, false)
	if err != nil {
		w.t.Fatal(err)
	}
	rec := &receiver.Receiver{Consumer: cfg.Consumer, Revision: "rev", Store: w.store, Router: router, TraceAttributes: cfg.TraceAttributes, Log: log, Now: time.Now}
	w.receive = wiring.Endpoint(receiver.Handler(func(context.Context) (*receiver.Receiver, error) { return rec, nil }, log), auth, log)
	w.relay = relayer.New(relayer.FromConfig(cfg, "rev"), relayer.Deps{Store: w.relays, Router: router, Engines: engines, Log: log,
		Now: time.Now, After: time.After, NewID: wiring.NewID, Rand: wiring.NewRand})
}

// post delivers a body and returns the status.
func (w *caseWorld) post(body []byte) int {
	rr := httptest.NewRecorder()
	w.receive.ServeHTTP(rr, httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body)))
	return rr.Code
}

// deliver posts bodies, all of which must be stored.
func (w *caseWorld) deliver(bodies ...[]byte) {
	w.t.Helper()
	for i, body := range bodies {
		if got := w.post(body); got != http.StatusNoContent {
			w.t.Fatalf("delivery %d: status %d", i, got)
		}
	}
}

// run has the relay work until nothing is due.
func (w *caseWorld) run() relayer.Summary {
	w.t.Helper()
	s, err := w.relay.Run(w.t.Context(), true, nil, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	s.DurationMs = 0
	return s
}

// caseRow is a message after what was done to it.
type caseRow struct {
	MessageID, Key, Place, Error, Reference string
	Attempts                                int64
	Late, HandedOver                        bool
}

// rows returns the messages in the order of their arrival.
func (w *caseWorld) rows() []caseRow {
	w.t.Helper()
	var all []caseRow
	err := w.client.Single().Query(w.t.Context(), spanner.NewStatement(`
SELECT COALESCE(MessageId, ''), COALESCE(CorrelationKey, ''), CONCAT(Status, IF(Reason IS NULL, '', CONCAT('/', Reason))),
  COALESCE(LastErrorMessage, ''), COALESCE(EngineReference, ''), Attempts, Late, HandedOver
FROM Messages ORDER BY ReceivedAt, InboxId`)).Do(func(r *spanner.Row) error {
		var got caseRow
		if err := r.Columns(&got.MessageID, &got.Key, &got.Place, &got.Error, &got.Reference, &got.Attempts, &got.Late, &got.HandedOver); err != nil {
			return err
		}
		all = append(all, got)
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// places are the states of the messages in the order of their arrival.
func (w *caseWorld) places() []string {
	w.t.Helper()
	var all []string
	for _, r := range w.rows() {
		all = append(all, r.Place)
	}
	return all
}

// reopen is the repair that an operator makes by hand.
func (w *caseWorld) reopen() {
	w.t.Helper()
	_, err := w.client.ReadWriteTransaction(w.t.Context(), func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
		_, err := txn.Update(ctx, spanner.NewStatement("UPDATE Messages SET Status = 'RECEIVED', Attempts = 0 WHERE Status = 'PARKED'"))
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// casePush is a push as a publisher's message becomes one.
type casePush struct {
	id, time   string
	attributes map[string]string
	data       string
}

func (p casePush) body(t *testing.T) []byte {
	t.Helper()
	if p.time == "" {
		p.time = "2026-03-02T08:15:30.123Z"
	}
	b, err := json.Marshal(map[string]any{"subscription": "projects/p/subscriptions/s", "message": map[string]any{
		"messageId": p.id, "publishTime": p.time, "attributes": p.attributes, "data": []byte(p.data)}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// caseInput returns the bodies of a case of the project's collection of public incidents.
func caseInput(t *testing.T, name string) [][]byte {
	t.Helper()
	text := caseText(t, name)
	if text[0] != '[' {
		return [][]byte{text}
	}
	var bodies []json.RawMessage
	if err := json.Unmarshal(text, &bodies); err != nil {
		t.Fatal(err)
	}
	var all [][]byte
	for _, b := range bodies {
		all = append(all, b)
	}
	return all
}

func caseText(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	return text
}
