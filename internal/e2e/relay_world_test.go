package e2e_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"golang.org/x/sync/errgroup"

	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/emulatortest"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/rpctap"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/relayer"
	"github.com/pubsub-inbox/pubsub-inbox/internal/routing"
	"github.com/pubsub-inbox/pubsub-inbox/internal/spannerstore"
)

const (
	relayConsumer = "orders"
	relayRoute    = "all"
	relayEngine   = "engine"
)

// relayWorld is one database, and what relays of it are set to.
type relayWorld struct {
	t      *testing.T
	db     string
	client *spanner.Client // for looking; not tapped
	ids    atomic.Int64
	log    callLog // of engines in this process

	parallel, batch    int
	lease              time.Duration
	retryMin, retryMax time.Duration
	patience           time.Duration
	timeout            time.Duration // of the engine
	sweepSlice         int
}

func newRelayWorld(t *testing.T) *relayWorld {
	t.Helper()
	// The times that end work are long: however slow the machine, none of them decides how a test ends. A test that is about
	// one of them lets it pass.
	w := &relayWorld{t: t, db: emulatortest.Database(t), parallel: 4, batch: 20, lease: 10 * time.Minute, timeout: time.Minute,
		retryMin: 50 * time.Millisecond, retryMax: 500 * time.Millisecond, patience: time.Hour, sweepSlice: 500}
	w.client = emulatortest.Client(t, w.db)
	return w
}

// process starts a relay process whose engine is at url. spannerHost is where it finds the database; empty: the emulator.
func (w *relayWorld) process(url, spannerHost string) *relayProcess {
	w.t.Helper()
	return startProcess(w.t, w.env("Relay", url, spannerHost)...).serving()
}

// env is the environment of a process that serves a function.
func (w *relayWorld) env(function, engineURL, spannerHost string) []string {
	w.t.Helper()
	if spannerHost == "" {
		spannerHost = emulatortest.Spanner(w.t)
	}
	text := fmt.Sprintf(`consumer: %s
engines:
  %s: {kind: http, url: "%s", timeout: %v, idempotent: true}
routes:
  - {name: %s, type: attributes.type, key: attributes.key, engine: %s, message: Advance, patience: %v, retry: {min: %v, max: %v}}
relay: {budget: 10m, poll: 50ms, parallel: %d, batch: %d, lease: %v}
`, relayConsumer, relayEngine, engineURL, w.timeout, relayRoute, relayEngine, w.patience, w.retryMin, w.retryMax, w.parallel,
		w.batch, w.lease)
	file := filepath.Join(w.t.TempDir(), "inbox.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return []string{"FUNCTION_TARGET=" + function, "INBOX_CONFIG_FILE=" + file, "SPANNER_DATABASE=" + w.db,
		"SPANNER_EMULATOR_HOST=" + spannerHost, "AUTH_MODE=none"}
}

// store returns a store of its own, as a process has one. now is its local clock.
func (w *relayWorld) store(now func() time.Time) (*spannerstore.Store, *rpctap.Tap) {
	w.t.Helper()
	tap := &rpctap.Tap{}
	return spannerstore.New(emulatortest.Client(w.t, w.db, tap.Options()...), now, w.newID), tap
}

func (w *relayWorld) newID() string { return fmt.Sprintf("id-%06d", w.ids.Add(1)) }

// relay returns a relay in this process, with the settings of the world.
func (w *relayWorld) relay(store relayer.Store, now func() time.Time, e engine.Engine) *relayer.Relayer {
	return relayer.New(relayer.Config{
		Consumer: relayConsumer, Revision: "rev", Budget: patience, Poll: 20 * time.Millisecond, Parallel: w.parallel, Batch: w.batch,
		Lease: w.lease, Retention: 75 * 24 * time.Hour, PayloadRetention: 14 * 24 * time.Hour,
		Routes: map[string]relayer.RoutePolicy{relayRoute: {Engine: relayEngine, Patience: w.patience, RetryMin: w.retryMin, RetryMax: w.retryMax}},
		Poison: inbox.PoisonPolicy{Failures: 20, Over: 24 * time.Hour, LostWorkers: 5}, BreakerFailures: 5, SweepSlice: w.sweepSlice,
	}, relayer.Deps{
		Store: store, Router: literalRouter{}, Engines: map[string]engine.Engine{relayEngine: e}, Log: slog.New(slog.DiscardHandler),
		Now: now, After: time.After, NewID: w.newID,
		Rand: func() *rand.Rand { return rand.New(rand.NewPCG(1, uint64(w.ids.Add(1)))) },
	})
}

// once has a relay run until nothing is due.
func (w *relayWorld) once(r *relayer.Relayer) relayer.Summary {
	w.t.Helper()
	s, err := r.Run(w.t.Context(), true, nil, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// literalRouter calls every message the same.
type literalRouter struct{}

func (literalRouter) Claim(string, routing.Input) (inbox.Object, error) { return inbox.Object{}, nil }

func (literalRouter) Call(string, routing.Input, string, string) (routing.Call, error) {
	return routing.Call{Message: "Advance"}, nil
}

// scriptedEngine is an idempotent engine in this process.
type scriptedEngine struct {
	log     *callLog
	timeout time.Duration
	answer  func(ctx context.Context, d engine.Delivery) engine.Verdict // nil: correlated
}

func (w *relayWorld) engine(answer func(ctx context.Context, d engine.Delivery) engine.Verdict) *scriptedEngine {
	return &scriptedEngine{log: &w.log, timeout: w.timeout, answer: answer}
}

func (e *scriptedEngine) Properties() engine.Properties {
	return engine.Properties{Idempotent: true, Timeout: e.timeout}
}

func (e *scriptedEngine) Correlate(ctx context.Context, d engine.Delivery) engine.Result {
	if !d.MaySend() {
		return engine.Result{Verdict: engine.NotStarted}
	}
	c := e.log.begin(engineCall{ID: d.InboxID, Key: d.Key, Attempt: d.Attempt})
	defer e.log.end(c)
	if e.answer == nil {
		return engine.Result{Verdict: engine.Correlated}
	}
	verdict := e.answer(ctx, d)
	return engine.Result{Verdict: verdict, Code: string(verdict)}
}

// message is one row to store, as a receive would leave it unless its fields say more.
type message struct {
	key       string
	n         int // its place in the lane
	orderedAt time.Time
	status    inbox.Status // RECEIVED if empty
	due       time.Time    // of a RETRYING one, and of its lane
}

func (m message) id() string {
	return inbox.ID(inbox.TransportIdentity, relayConsumer, "sub", fmt.Sprintf("%s/%d", m.key, m.n))
}

func (m message) lane() string { return laneOf(m.key) }

func laneOf(key string) string { return inbox.LaneID(relayConsumer, "", inbox.OrderPublished, key) }

// backlog is lanes times depth messages, and their ids by key in order.
func backlog(prefix string, lanes, depth int) ([]message, map[string][]string) {
	var all []message
	ids := map[string][]string{}
	for n := range depth {
		for lane := range lanes {
			m := message{key: fmt.Sprintf("%s-%03d", prefix, lane), n: n}
			all = append(all, m)
			ids[m.key] = append(ids[m.key], m.id())
		}
	}
	return all, ids
}

// load stores messages, a few in each commit: those of one commit have one ReceivedAt.
func (w *relayWorld) load(messages []message, aCommit int) {
	w.t.Helper()
	group, ctx := errgroup.WithContext(w.t.Context())
	group.SetLimit(4)
	for len(messages) > 0 {
		n := min(aCommit, len(messages))
		var mutations []*spanner.Mutation
		for _, m := range messages[:n] {
			mutations = append(mutations, m.mutations()...)
		}
		messages = messages[n:]
		group.Go(func() error {
			_, err := w.client.Apply(ctx, mutations, spanner.ApplyAtLeastOnce())
			return err
		})
	}
	if err := group.Wait(); err != nil {
		w.t.Fatal(err)
	}
}

func (m message) mutations() []*spanner.Mutation {
	row := map[string]any{
		"InboxId": m.id(), "Consumer": relayConsumer, "Scope": "sub", "DedupeKey": m.id(), "TransportKey": m.id(), "Subscription": "sub",
		"MessageId": m.id(), "ReceivedAt": spanner.CommitTimestamp, "Route": relayRoute, "LaneId": m.lane(), "CorrelationKey": m.key,
		"Sequence": 0, "OrderedAt": m.orderedAt, "Status": string(m.status), "ContentSha256": "c", "PayloadSha256": "p", "PayloadBytes": 2,
	}
	if m.orderedAt.IsZero() {
		row["OrderedAt"] = time.Unix(1_700_000_000+int64(m.n), 0)
	}
	lane := map[string]any{
		"LaneId": m.lane(), "Consumer": relayConsumer, "CorrelationKey": m.key, "Shard": inbox.LaneShard(relayRoute, "", m.lane()), "PurgeAt": nil,
	}
	switch m.status {
	case "":
		row["Status"], lane["WokenAt"] = string(inbox.Received), spanner.CommitTimestamp
	case inbox.Retrying:
		row["Attempts"], row["NextAttemptAt"], lane["DueAt"], lane["WhyNotDue"] = 1, m.due, m.due, inbox.WhyHeadWaits
	default:
		row["Attempts"], row["PurgeAfter"] = 1, time.Now().Add(24*time.Hour)
	}
	mutations := []*spanner.Mutation{spanner.InsertMap("Messages", row), spanner.InsertOrUpdateMap("Lanes", lane)}
	if m.status == "" { // the others are there to stand beside
		mutations = append(mutations, spanner.InsertMap("Payloads", map[string]any{"InboxId": m.id(), "Body": []byte("{}")}))
	}
	return mutations
}

// sql runs one statement as an operator would.
func (w *relayWorld) sql(statement string, params map[string]any) {
	w.t.Helper()
	_, err := w.client.ReadWriteTransaction(w.t.Context(), func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
		_, err := txn.Update(ctx, spanner.Statement{SQL: statement, Params: params})
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// texts is the first column of a query's rows.
func (w *relayWorld) texts(sql string) []string {
	w.t.Helper()
	var all []string
	err := w.client.Single().Query(w.t.Context(), spanner.NewStatement(sql)).Do(func(r *spanner.Row) error {
		var s string
		if err := r.Column(0, &s); err != nil {
			return err
		}
		all = append(all, s)
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// dump is all that a table holds.
func (w *relayWorld) dump(from string) []string {
	w.t.Helper()
	var all []string
	err := w.client.Single().Query(w.t.Context(), spanner.NewStatement("SELECT * FROM "+from)).Do(func(r *spanner.Row) error {
		all = append(all, r.String())
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

func (w *relayWorld) count(from string) int {
	w.t.Helper()
	var n int64
	err := w.client.Single().Query(w.t.Context(), spanner.NewStatement("SELECT COUNT(*) FROM "+from)).Do(func(r *spanner.Row) error {
		return r.Columns(&n)
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return int(n)
}

// statuses counts the messages by status, and reason where there is one.
func (w *relayWorld) statuses() map[string]int {
	w.t.Helper()
	counts := map[string]int{}
	for _, s := range w.texts("SELECT CONCAT(Status, IF(Reason IS NULL, '', CONCAT('/', Reason))) FROM Messages") {
		counts[s]++
	}
	return counts
}

// pass lets time pass for all that is stored and not finished: each moment is longer ago, or nearer, by d.
func (w *relayWorld) pass(d time.Duration) {
	w.t.Helper()
	for _, s := range []struct {
		columns []string
		update  string
	}{
		{[]string{"LastNotWaitingAt", "NextAttemptAt", "ProcessingStartedAt", "FirstFailedAt", "LastFailedAt"},
			"UPDATE Messages SET %s WHERE Status IN ('RECEIVED', 'PROCESSING', 'RETRYING')"},
		{[]string{"DueAt", "LeaseUntil"}, "UPDATE Lanes SET %s WHERE TRUE"},
		{[]string{"OpenUntil", "ProbeUntil", "LastAnsweredAt"}, "UPDATE Engines SET %s WHERE TRUE"},
	} {
		var earlier []string
		for _, c := range s.columns {
			earlier = append(earlier, fmt.Sprintf("%s = TIMESTAMP_SUB(%[1]s, INTERVAL %d MILLISECOND)", c, d.Milliseconds()))
		}
		w.sql(fmt.Sprintf(s.update, strings.Join(earlier, ", ")), nil)
	}
}

// lapse lets every lease run out.
func (w *relayWorld) lapse() {
	w.t.Helper()
	w.pass(w.lease + 2*time.Minute)
}
