package relayer_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/emulatortest"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/rpctap"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/relayer"
	"github.com/pubsub-inbox/pubsub-inbox/internal/routing"
	"github.com/pubsub-inbox/pubsub-inbox/internal/spannerstore"
)

func TestMain(m *testing.M) { emulatortest.Main(m) }

const consumer = "orders"

// world is one database and what runs against it.
type world struct {
	t      *testing.T
	db     string
	client *spanner.Client // for looking; not tapped
	store  *spannerstore.Store
	tap    *rpctap.Tap
	ids    atomic.Int64
	mu     sync.Mutex
	calls  []call
	cfg    relayer.Config
	kept   relayer.Objects // nil: no bucket
}

// call is one delivery as an engine has seen it.
type call struct {
	engine  string
	id      string
	key     string
	attempt int64
	start   time.Time
	end     time.Time
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, db: emulatortest.Database(t)}
	w.client = emulatortest.Client(t, w.db)
	w.store, w.tap = w.newStore()
	w.cfg = relayer.Config{
		Consumer: consumer, Revision: "rev", Budget: 10 * time.Minute, Poll: 20 * time.Millisecond, Parallel: 16, Batch: 100,
		Lease: 10 * time.Minute, Retention: 75 * 24 * time.Hour, PayloadRetention: 14 * 24 * time.Hour,
		Routes: map[string]relayer.RoutePolicy{
			"r": {Engine: "e", Patience: time.Hour, RetryMin: 10 * time.Millisecond, RetryMax: time.Second},
		},
		Poison:          inbox.PoisonPolicy{Failures: 20, Over: 24 * time.Hour, LostWorkers: 5},
		BreakerFailures: 5, SweepSlice: 500,
	}
	return w
}

func (w *world) newID() string { return fmt.Sprintf("id-%06d", w.ids.Add(1)) }

func (w *world) newStore() (*spannerstore.Store, *rpctap.Tap) {
	tap := &rpctap.Tap{}
	client := emulatortest.Client(w.t, w.db, tap.Options()...)
	return spannerstore.New(client, time.Now, w.newID), tap
}

func (w *world) relay(engines map[string]engine.Engine) *relayer.Relayer {
	return w.relayWith(w.store, time.Now, engines)
}

func (w *world) relayWith(store relayer.Store, now func() time.Time, engines map[string]engine.Engine) *relayer.Relayer {
	return relayer.New(w.cfg, relayer.Deps{
		Store: store, Objects: w.kept, Router: plainRouter{}, Engines: engines, Log: slog.New(slog.DiscardHandler), Now: now, After: time.After,
		NewID: w.newID, Rand: func() *rand.Rand { return rand.New(rand.NewPCG(1, uint64(w.ids.Add(1)))) },
	})
}

// plainRouter sends the route's name and the payload as it came.
type plainRouter struct{}

func (plainRouter) Claim(string, routing.Input) (inbox.Object, error) { return inbox.Object{}, nil }

func (plainRouter) Call(route string, in routing.Input, _, _ string) (routing.Call, error) {
	if string(in.Payload) == "contract" {
		return routing.Call{}, &routing.ContractError{Detail: "does not fit"}
	}
	return routing.Call{Message: route}, nil
}

// scripted answers by a function, and records.
type scripted struct {
	w      *world
	name   string
	props  engine.Properties
	answer func(ctx context.Context, d engine.Delivery) engine.Result
}

func (s *scripted) Properties() engine.Properties {
	p := s.props
	if p.Timeout == 0 {
		p.Timeout = time.Minute
	}
	return p
}

func (s *scripted) Correlate(ctx context.Context, d engine.Delivery) engine.Result {
	if !d.MaySend() {
		return engine.Result{Verdict: engine.NotStarted}
	}
	c := call{engine: s.name, id: d.InboxID, key: d.Key, attempt: d.Attempt, start: time.Now()}
	res := engine.Result{Verdict: engine.Correlated, Reference: "instance"}
	if s.answer != nil {
		res = s.answer(ctx, d)
	}
	c.end = time.Now()
	s.w.mu.Lock()
	s.w.calls = append(s.w.calls, c)
	s.w.mu.Unlock()
	return res
}

// engine returns a world with one idempotent engine "e".
func (w *world) engine(answer func(ctx context.Context, d engine.Delivery) engine.Result) map[string]engine.Engine {
	return map[string]engine.Engine{"e": &scripted{w: w, name: "e", props: engine.Properties{Idempotent: true}, answer: answer}}
}

func always(v engine.Verdict) func(context.Context, engine.Delivery) engine.Result {
	return func(context.Context, engine.Delivery) engine.Result {
		return engine.Result{Verdict: v, Code: string(v), Detail: "scripted"}
	}
}

type option func(*inbox.Message)

func (w *world) insert(key string, n int, opts ...option) string {
	w.t.Helper()
	return w.insertBody(key, n, []byte("{}"), opts...)
}

func (w *world) insertBody(key string, n int, body []byte, opts ...option) string {
	w.t.Helper()
	id := inbox.ID(inbox.TransportIdentity, consumer, "sub", fmt.Sprintf("%s/%d", key, n))
	m := inbox.Message{
		ID: id, Consumer: consumer, Scope: "sub", DedupeKey: id, TransportKey: id, Subscription: "sub", MessageID: id,
		Route: "r", Key: key, OrderedAt: time.Unix(1700000000+int64(n), 0), Status: inbox.Received,
		ContentSHA256: "c", PayloadSHA256: "p", LaneID: inbox.LaneID(consumer, "", inbox.OrderPublished, key),
	}
	if key == "" {
		m.ID = inbox.ID(inbox.TransportIdentity, consumer, "sub", fmt.Sprintf("none/%d", n))
		m.DedupeKey, m.TransportKey, m.LaneID = m.ID, m.ID, inbox.OwnLaneID(consumer, m.ID)
	}
	for _, o := range opts {
		o(&m)
	}
	if err := w.store.Insert(w.t.Context(), &inbox.Arrival{Message: m, Body: body}); err != nil {
		w.t.Fatal(err)
	}
	return m.ID
}

func (w *world) once(r *relayer.Relayer) relayer.Summary {
	w.t.Helper()
	s, err := r.Run(w.t.Context(), true, nil, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// row is what tests look at.
type row struct {
	Status, Reason                                      string
	Attempts, TechnicalFailures, OutageFailures, Lost   int64
	Unknown, Late, HandedOver                           bool
	Code                                                string
	PatienceUsed                                        int64
	Next, LastNotWaiting, FirstFailed, Purge, Processed time.Time
}

func (w *world) row(id string) row {
	w.t.Helper()
	r, err := w.client.Single().ReadRow(w.t.Context(), "Messages", spanner.Key{id}, []string{"Status", "Reason", "Attempts",
		"TechnicalFailures", "OutageFailures", "LostWorkers", "OutcomeUnknown", "Late", "HandedOver", "LastErrorCode", "PatienceUsed",
		"NextAttemptAt", "LastNotWaitingAt", "FirstFailedAt", "PurgeAt", "ProcessedAt"})
	if err != nil {
		w.t.Fatal(err)
	}
	var got row
	var reason, code spanner.NullString
	var next, waiting, first, purge, processed spanner.NullTime
	if err := r.Columns(&got.Status, &reason, &got.Attempts, &got.TechnicalFailures, &got.OutageFailures, &got.Lost, &got.Unknown,
		&got.Late, &got.HandedOver, &code, &got.PatienceUsed, &next, &waiting, &first, &purge, &processed); err != nil {
		w.t.Fatal(err)
	}
	got.Reason, got.Code = reason.StringVal, code.StringVal
	got.Next, got.LastNotWaiting, got.FirstFailed, got.Purge, got.Processed = next.Time, waiting.Time, first.Time, purge.Time, processed.Time
	return got
}

func (w *world) status(id string) string {
	r := w.row(id)
	if r.Reason != "" {
		return r.Status + "/" + r.Reason
	}
	return r.Status
}

func (w *world) update(table string, values map[string]any) {
	w.t.Helper()
	if _, err := w.client.Apply(w.t.Context(), []*spanner.Mutation{spanner.UpdateMap(table, values)}, spanner.ApplyAtLeastOnce()); err != nil {
		w.t.Fatal(err)
	}
}

// sql runs one statement as an operator would.
func (w *world) sql(statement string, params map[string]any) {
	w.t.Helper()
	_, err := w.client.ReadWriteTransaction(w.t.Context(), func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
		_, err := txn.Update(ctx, spanner.Statement{SQL: statement, Params: params})
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) count(sql string, params map[string]any) int64 {
	w.t.Helper()
	var n int64
	err := w.client.Single().Query(w.t.Context(), spanner.Statement{SQL: sql, Params: params}).Do(func(r *spanner.Row) error { return r.Columns(&n) })
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// called lists the ids of the calls so far, in the order in which they ended.
func (w *world) called() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ids []string
	for _, c := range w.calls {
		ids = append(ids, c.id)
	}
	return ids
}

// checkOrder fails unless each key's calls came in the order given, without overlap, each once.
func (w *world) checkOrder(want map[string][]string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	byKey := map[string][]call{}
	for _, c := range w.calls {
		byKey[c.key] = append(byKey[c.key], c)
	}
	for key, ids := range want {
		calls := byKey[key]
		if len(calls) != len(ids) {
			w.t.Errorf("key %s: %d calls, want %d", key, len(calls), len(ids))
			continue
		}
		for i, c := range calls {
			if c.id != ids[i] {
				w.t.Errorf("key %s: call %d is of another message", key, i)
			}
			if i > 0 && c.start.Before(calls[i-1].end) {
				w.t.Errorf("key %s: call %d began before the one before it ended", key, i)
			}
		}
	}
}

type ctx = context.Context

const hour = time.Hour
