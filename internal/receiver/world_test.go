package receiver_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/pubsub-inbox/pubsub-inbox/internal/claimcheck"
	"github.com/pubsub-inbox/pubsub-inbox/internal/config"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/emulatortest"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/rpctap"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/pushauth"
	"github.com/pubsub-inbox/pubsub-inbox/internal/receiver"
	"github.com/pubsub-inbox/pubsub-inbox/internal/routing"
	"github.com/pubsub-inbox/pubsub-inbox/internal/spannerstore"
	"github.com/pubsub-inbox/pubsub-inbox/internal/wiring"
)

func TestMain(m *testing.M) { emulatortest.Main(m) }

const (
	consumer     = "orders"
	subscription = "projects/demo-proj/subscriptions/orders-push"
)

// wallClock is what the receiver takes for now. No publish time of an input is near it.
var wallClock = time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)

// world is one database and the function in front of it.
type world struct {
	t      *testing.T
	db     string
	client *spanner.Client // for looking; not tapped
	store  *spannerstore.Store
	tap    *rpctap.Tap
	log    *logBuffer
	router *routing.Router
	bucket *emulatortest.Bucket // nil: payloads stay in their rows
	kept   receiver.Objects     // the bucket's
}

// newWorldWithBucket is newWorld with a bucket for payloads of more than 1 MiB.
func newWorldWithBucket(t *testing.T, routes string) *world {
	t.Helper()
	w := newWorld(t, routes)
	w.bucket = emulatortest.NewBucket(t)
	kept := claimcheck.New(w.bucket.Name, w.bucket.Options()...)
	t.Cleanup(func() { _ = kept.Close() })
	w.kept = kept
	return w
}

// newWorld returns a world whose routes are the YAML given.
func newWorld(t *testing.T, routes string) *world {
	t.Helper()
	w := &world{t: t, db: emulatortest.Database(t), log: &logBuffer{}, router: router(t, routes)}
	w.client = emulatortest.Client(t, w.db)
	w.store, w.tap = w.newStore()
	return w
}

// newStore returns another instance's store, and the tap on its calls.
func (w *world) newStore() (*spannerstore.Store, *rpctap.Tap) {
	w.t.Helper()
	tap := &rpctap.Tap{}
	return spannerstore.New(emulatortest.Client(w.t, w.db, tap.Options()...), time.Now, wiring.NewID), tap
}

// anyRoute takes every message, into a lane of its own.
const anyRoute = `
  - {name: any, engine: e, message: M}`

func router(t testing.TB, routes string) *routing.Router {
	t.Helper()
	cfg, _, err := config.Parse("config.yaml", []byte("consumer: "+consumer+"\nclaimCheck: {buckets: [demo-claims]}"+
		"\nengines: {e: {kind: http, url: 'https://e.example', idempotent: true}}\nroutes:"+routes+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := routing.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (w *world) receiver(store receiver.Store) *receiver.Receiver {
	return &receiver.Receiver{Consumer: consumer, Revision: "rev-1", Store: store, Router: w.router, Log: w.log.logger(),
		Objects: w.kept, Threshold: 1 << 20, Buckets: []string{"demo-claims"}, Now: func() time.Time { return wallClock }}
}

// endpoint is the function as it is served, without a token being asked for.
func (w *world) endpoint() http.Handler { return w.endpointOf(w.receiver(w.store), noAuth(w.t)) }

func (w *world) endpointOf(rec *receiver.Receiver, auth *pushauth.Authenticator) http.Handler {
	log := w.log.logger()
	get := func(context.Context) (*receiver.Receiver, error) { return rec, nil }
	return wiring.Endpoint(receiver.Handler(get, log), auth, log, receiver.DeadLetterPath)
}

func noAuth(t testing.TB) *pushauth.Authenticator {
	t.Helper()
	auth, err := wiring.Auth(config.AuthModeNone, "", nil, false)
	if err != nil {
		t.Fatal(err)
	}
	return auth
}

// post delivers a body and returns the status.
func (w *world) post(body []byte) int { return post(w.endpoint(), body).Code }

// postDeadLetter delivers a body of the dead-letter topic and returns the status.
func (w *world) postDeadLetter(body []byte) int {
	return serve(w.endpoint(), httptest.NewRequest(http.MethodPost, receiver.DeadLetterPath, bytes.NewReader(body))).Code
}

func post(h http.Handler, body []byte, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return serve(h, r)
}

func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	rr := httptest.NewRecorder()
	h.ServeHTTP(rr, r)
	return rr
}

// postAll delivers each body once and returns the statuses.
func (w *world) postAll(bodies [][]byte) []int {
	w.t.Helper()
	var statuses []int
	for _, body := range bodies {
		statuses = append(statuses, w.post(body))
	}
	return statuses
}

// input returns the bodies of a case.
func input(t testing.TB, name string) [][]byte {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	if text[0] != '[' {
		return [][]byte{text}
	}
	var elements []json.RawMessage
	if err := json.Unmarshal(text, &elements); err != nil {
		t.Fatal(err)
	}
	bodies := make([][]byte, len(elements))
	for i, e := range elements {
		bodies[i] = e
	}
	return bodies
}

// message is a push as tests write it.
type message struct {
	ID, Subscription, OrderingKey string
	Time                          string
	Attributes                    map[string]string
	Data                          []byte
	Attempt                       int
}

func (m message) body(t testing.TB) []byte {
	t.Helper()
	inner := map[string]any{"messageId": m.ID, "data": m.Data, "publishTime": "2026-03-02T08:15:30.123Z"}
	if m.Time != "" {
		inner["publishTime"] = m.Time
	}
	if m.OrderingKey != "" {
		inner["orderingKey"] = m.OrderingKey
	}
	if m.Attributes != nil {
		inner["attributes"] = m.Attributes
	}
	outer := map[string]any{"message": inner, "subscription": subscription}
	if m.Subscription != "" {
		outer["subscription"] = m.Subscription
	}
	if m.Attempt > 0 {
		outer["deliveryAttempt"] = m.Attempt
	}
	b, err := json.Marshal(outer)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// row is a message as it is stored, with its payload and the number of its recorded redeliveries. Nulls are empty.
type row struct {
	ID, Scope, DedupeKey, TransportKey       string
	Subscription, MessageID, OrderingKey     string
	PublishedAt, OrderedAt                   time.Time
	Type, Route, TraceParent                 string
	Key, LaneID                              string
	Sequence                                 int64
	Status, Reason, Error                    string
	Attempts                                 int64
	Attributes                               map[string]string
	Content, PayloadSHA256, ConflictsWith    string
	PayloadBytes                             int64
	ContentType, Body                        string
	Location                                 string
	Claim, ClaimSHA256                       string
	ClaimGeneration, SourceAttempts          spanner.NullInt64
	Deliveries                               int64
	Received                                 time.Time
	NextAttempt, Purge, PayloadPurge, Lapsed spanner.NullTime
}

const rowsSQL = `
SELECT m.InboxId, m.Scope, m.DedupeKey, COALESCE(m.TransportKey, ''), COALESCE(m.Subscription, ''), COALESCE(m.MessageId, ''),
  COALESCE(m.OrderingKey, ''), m.PublishedAt, m.OrderedAt, COALESCE(CAST(m.MessageType AS STRING), ''), COALESCE(m.Route, ''),
  COALESCE(m.TraceParent, ''), COALESCE(m.CorrelationKey, ''), m.LaneId, m.Sequence, m.Status, COALESCE(m.Reason, ''),
  COALESCE(m.LastErrorMessage, ''), m.Attempts, m.Attributes, m.ContentSha256, m.PayloadSha256, COALESCE(m.ConflictsWith, ''),
  m.PayloadBytes, COALESCE(p.ContentType, ''), p.Body,
  (SELECT COUNT(*) FROM Deliveries AS d WHERE d.InboxId = m.InboxId), m.ReceivedAt, m.NextAttemptAt, m.PurgeAt, p.PurgeAt,
  m.PurgeAfter, COALESCE(m.PayloadLocation, ''), COALESCE(m.ClaimUri, ''), COALESCE(m.ClaimSha256, ''), m.ClaimGeneration,
  m.SourceAttempts
FROM Messages AS m JOIN Payloads AS p ON p.InboxId = m.InboxId ORDER BY m.ReceivedAt, m.InboxId`

// rows returns everything that is stored, in the order of arrival.
func (w *world) rows() []row {
	w.t.Helper()
	var all []row
	err := w.client.Single().Query(w.t.Context(), spanner.NewStatement(rowsSQL)).Do(func(r *spanner.Row) error {
		var got row
		var published spanner.NullTime
		var attributes spanner.NullJSON
		var body []byte
		if err := r.Columns(&got.ID, &got.Scope, &got.DedupeKey, &got.TransportKey, &got.Subscription, &got.MessageID,
			&got.OrderingKey, &published, &got.OrderedAt, &got.Type, &got.Route, &got.TraceParent, &got.Key, &got.LaneID,
			&got.Sequence, &got.Status, &got.Reason, &got.Error, &got.Attempts, &attributes, &got.Content, &got.PayloadSHA256,
			&got.ConflictsWith, &got.PayloadBytes, &got.ContentType, &body, &got.Deliveries, &got.Received, &got.NextAttempt,
			&got.Purge, &got.PayloadPurge, &got.Lapsed, &got.Location, &got.Claim, &got.ClaimSHA256, &got.ClaimGeneration,
			&got.SourceAttempts); err != nil {
			return err
		}
		got.PublishedAt, got.Body = published.Time, string(body)
		if attributes.Valid {
			text, err := json.Marshal(attributes.Value)
			if err != nil {
				return err
			}
			if err := json.Unmarshal(text, &got.Attributes); err != nil {
				return err
			}
		}
		all = append(all, got)
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// one returns the only row.
func (w *world) one() row {
	w.t.Helper()
	all := w.rows()
	if len(all) != 1 {
		w.t.Fatalf("%d rows, want 1", len(all))
	}
	return all[0]
}

// places is what tests of many rows look at: "RECEIVED" or "PARKED/NO_ROUTE", in the order of arrival.
func places(rows []row) []string {
	var all []string
	for _, r := range rows {
		all = append(all, r.place())
	}
	return all
}

func (r row) place() string {
	if r.Reason != "" {
		return r.Status + "/" + r.Reason
	}
	return r.Status
}

func (w *world) count(table string) int64 {
	w.t.Helper()
	var n int64
	err := w.client.Single().Query(w.t.Context(), spanner.NewStatement("SELECT COUNT(*) FROM "+table)).Do(func(r *spanner.Row) error {
		return r.Columns(&n)
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

func transportID(id string) string {
	return inbox.ID(inbox.TransportIdentity, consumer, subscription, id)
}

func transportKey(id string) string { return inbox.TransportKey(consumer, subscription, id) }

func repeat(status, n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = status
	}
	return all
}

// drain is what a client sees of an answer's body.
func drain(t testing.TB, r io.Reader) string {
	t.Helper()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(fmt.Errorf("read an answer: %w", err))
	}
	return string(text)
}

// query reads the one row of a statement.
func (w *world) query(sql string, into ...any) {
	w.t.Helper()
	n := 0
	err := w.client.Single().Query(w.t.Context(), spanner.NewStatement(sql)).Do(func(r *spanner.Row) error {
		n++
		return r.Columns(into...)
	})
	if err != nil || n != 1 {
		w.t.Fatalf("%s: %d rows, %v", sql, n, err)
	}
}

func (w *world) number(sql string) int64 {
	w.t.Helper()
	var n int64
	w.query(sql, &n)
	return n
}

// checkRefused fails unless n requests were refused with the status, each counted by a log entry with its reason, and
// nothing is stored.
func (w *world) checkRefused(n, status int) {
	w.t.Helper()
	if rows := w.count("Messages") + w.count("Lanes") + w.count("Payloads"); rows != 0 {
		w.t.Errorf("%d rows after refusals, want none", rows)
	}
	refused := 0
	for _, entry := range w.log.entries(w.t) {
		if why, _ := entry["why"].(string); entry["severity"] == "WARNING" && entry["status"] == float64(status) && why != "" {
			refused++
		}
	}
	if refused != n {
		w.t.Errorf("%d refusals are logged, want %d", refused, n)
	}
}

// serve serves the function by HTTP and returns its URL.
func (w *world) serve() string {
	w.t.Helper()
	s := httptest.NewServer(w.endpoint())
	w.t.Cleanup(s.Close)
	return s.URL
}

func request(t testing.TB, method, url, path string, body []byte, headers ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

// chunked takes a request's length away.
func chunked(r *http.Request) *http.Request {
	r.Body, r.ContentLength = io.NopCloser(struct{ io.Reader }{r.Body}), -1
	r.TransferEncoding = []string{"chunked"}
	return r
}

func gzipped(t testing.TB, body []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(body); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// deliver posts bodies, all of which must be stored or known.
func (w *world) deliver(bodies ...[]byte) {
	w.t.Helper()
	for i, status := range w.postAll(bodies) {
		if status != http.StatusNoContent {
			w.t.Fatalf("delivery %d: status %d", i, status)
		}
	}
}
