package spannerstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/emulatortest"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/rpctap"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/spannerstore"
)

func TestMain(m *testing.M) { emulatortest.Main(m) }

const (
	consumer = "orders"
	lease    = 2 * time.Minute
)

// world is one database with a store whose calls are tapped.
type world struct {
	t      *testing.T
	db     string
	client *spanner.Client // for looking; not tapped
	store  *spannerstore.Store
	tap    *rpctap.Tap
	ids    atomic.Int64
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, db: emulatortest.Database(t)}
	w.client = emulatortest.Client(t, w.db)
	w.store, w.tap = w.newStore()
	return w
}

// newStore returns the store of another process.
func (w *world) newStore() (*spannerstore.Store, *rpctap.Tap) {
	w.t.Helper()
	tap := &rpctap.Tap{}
	return spannerstore.New(emulatortest.Client(w.t, w.db, tap.Options()...), time.Now, w.newID), tap
}

func (w *world) newID() string { return fmt.Sprintf("id-%06d", w.ids.Add(1)) }

func random() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// arrival is the nth message of a key.
func arrival(key string, n int) *inbox.Arrival {
	id := inbox.ID(inbox.TransportIdentity, consumer, "sub", fmt.Sprintf("%s/%d", key, n))
	return &inbox.Arrival{Body: []byte("{}"), ContentType: "application/json", Message: inbox.Message{
		ID: id, Consumer: consumer, Scope: "sub", DedupeKey: id, TransportKey: id, Subscription: "sub", MessageID: id, Route: "r",
		Key: key, OrderedAt: time.Unix(1_700_000_000+int64(n), 0).UTC(), Status: inbox.Received, ContentSHA256: "c", PayloadSHA256: "p",
		LaneID: laneOf(key),
	}}
}

func laneOf(key string) string { return inbox.LaneID(consumer, "", inbox.OrderPublished, key) }

// insert stores the nth message of a key through a store of its own, and returns its id.
func (w *world) insert(key string, n int, change ...func(*inbox.Message)) string {
	w.t.Helper()
	a := arrival(key, n)
	for _, c := range change {
		c(&a.Message)
	}
	if err := spannerstore.New(w.client, time.Now, w.newID).Insert(w.t.Context(), a); err != nil {
		w.t.Fatal(err)
	}
	return a.Message.ID
}

func (w *world) scan(store *spannerstore.Store) ([]string, inbox.Clock) {
	w.t.Helper()
	req := claimRequest("", nil)
	found, err := store.Scan(w.t.Context(), inbox.ScanRequest{Consumer: consumer, Limit: 100, Routes: req.Routes, Engines: req.Engines, Lease: lease})
	if err != nil {
		w.t.Fatal(err)
	}
	return found.Lanes, found.Clock
}

// claim claims the lanes that a scan finds.
func (w *world) claim(store *spannerstore.Store, owner string) (inbox.ClaimPlan, inbox.Clock) {
	w.t.Helper()
	lanes, clock := w.scan(store)
	plan, err := store.Claim(w.t.Context(), claimRequest(owner, lanes), clock, random())
	if err != nil {
		w.t.Fatal(err)
	}
	return plan, clock
}

func claimRequest(owner string, lanes []string) inbox.ClaimRequest {
	return inbox.ClaimRequest{
		Consumer: consumer, Owner: owner, LaneIDs: lanes, Batch: 100, PerLane: 10, Lease: lease, Retention: 75 * 24 * time.Hour,
		Routes:  map[string]inbox.RoutePolicy{"r": {Engine: "e"}},
		Engines: map[string]inbox.EnginePolicy{"e": {Timeout: time.Second, Capacity: 100, Breaker: breaker}},
		Poison:  poison, Alone: true,
	}
}

var (
	breaker = inbox.BreakerPolicy{Failures: 5, Min: time.Second, Max: time.Minute}
	poison  = inbox.PoisonPolicy{Failures: 20, Over: 24 * time.Hour, LostWorkers: 5}
)

// databaseTime is the database's time now.
func (w *world) databaseTime() time.Time {
	w.t.Helper()
	var now time.Time
	w.query("SELECT CURRENT_TIMESTAMP()", nil, &now)
	return now
}

// query reads the one row of a statement.
func (w *world) query(sql string, params map[string]any, into ...any) {
	w.t.Helper()
	n := 0
	err := w.client.Single().Query(w.t.Context(), spanner.Statement{SQL: sql, Params: params}).Do(func(r *spanner.Row) error {
		n++
		return r.Columns(into...)
	})
	if err != nil || n != 1 {
		w.t.Fatalf("%s: %d rows, %v", sql, n, err)
	}
}

func (w *world) count(sql string) int64 {
	w.t.Helper()
	var n int64
	w.query(sql, nil, &n)
	return n
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
