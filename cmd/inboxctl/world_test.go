package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/api/option"

	"github.com/pubsub-inbox/pubsub-inbox/internal/claimcheck"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/emulatortest"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/rpctap"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/spannerstore"
	"github.com/pubsub-inbox/pubsub-inbox/internal/wiring"
)

func TestMain(m *testing.M) {
	code := emulatortest.Run(m)
	if sharedPubSub.emulator != nil {
		if err := sharedPubSub.emulator.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

const consumer = "orders"

// world is one database, and what runs against it.
type world struct {
	t      *testing.T
	db     string
	client *spanner.Client // for looking and for backdating; not tapped
	store  *spannerstore.Store
	tap    *rpctap.Tap // of the program under test
	n      atomic.Int64
	env    map[string]string
	stdin  string

	bucket  *emulatortest.Bucket // nil: none
	objects *claimcheck.Store
	pubsub  []option.ClientOption
	now     func() time.Time // the program's clock
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, db: emulatortest.Database(t), tap: &rpctap.Tap{}, now: time.Now}
	w.client = emulatortest.Client(t, w.db)
	w.store = spannerstore.New(w.client, time.Now, wiring.NewID)
	w.env = map[string]string{"SPANNER_DATABASE": w.db, "SPANNER_EMULATOR_HOST": emulatortest.Spanner(t), "USER": "ann"}
	return w
}

// answer is what a run of the program has left.
type answer struct {
	code        int
	out, stderr string
}

func (w *world) run(args ...string) answer {
	w.t.Helper()
	a := &app{now: w.now, options: append(emulatortest.ClientOptions(w.t), w.tap.Options()...), pubsubOptions: w.pubsub}
	if w.bucket != nil {
		a.storageOptions = w.bucket.Options()
	}
	return runApp(w.t, a, w.env, w.stdin, args...)
}

func runWith(t *testing.T, options []option.ClientOption, env map[string]string, stdin string, args ...string) answer {
	t.Helper()
	return runApp(t, &app{now: time.Now, options: options}, env, stdin, args...)
}

func runApp(t *testing.T, a *app, env map[string]string, stdin string, args ...string) answer {
	t.Helper()
	var out, stderr bytes.Buffer
	a.stdin, a.stdout, a.stderr = strings.NewReader(stdin), &out, &stderr
	a.lookup = func(name string) (string, bool) { value, ok := env[name]; return value, ok }
	code := a.run(t.Context(), args)
	return answer{code, out.String(), stderr.String()}
}

// ok runs a command that must succeed.
func (w *world) ok(args ...string) answer {
	w.t.Helper()
	got := w.run(args...)
	if got.code != 0 {
		w.t.Fatalf("inboxctl %s: exit code %d: %s", strings.Join(args, " "), got.code, got.stderr)
	}
	return got
}

// refused runs a command that must fail with a code and a text on standard error.
func (w *world) refused(code int, text string, args ...string) answer {
	w.t.Helper()
	got := w.run(args...)
	if got.code != code || !strings.Contains(got.stderr, text) {
		w.t.Fatalf("inboxctl %s: exit code %d, want %d; standard error %q, want one with %q", strings.Join(args, " "), got.code, code, got.stderr, text)
	}
	return got
}

// listed runs list --json and returns the objects.
func (w *world) listed(args ...string) []map[string]any {
	w.t.Helper()
	return objects(w.t, w.ok(append([]string{"list", "--json"}, args...)...).out)
}

func objects(t *testing.T, lines string) []map[string]any {
	t.Helper()
	var all []map[string]any
	for line := range strings.Lines(lines) {
		object := map[string]any{}
		if err := json.Unmarshal([]byte(line), &object); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all = append(all, object)
	}
	return all
}

func idsOf(objects []map[string]any) []string {
	ids := []string{}
	for _, o := range objects {
		ids = append(ids, o["id"].(string))
	}
	return ids
}

// row describes a message to insert; the zero value is a RECEIVED one of route r under a key of its own.
type row struct {
	key      string
	consumer string
	order    inbox.OrderKind
	body     []byte
	arrival  func(m *inbox.Message)
	after    map[string]any // columns that only later states have
}

// insert stores a message, published a second after the one before.
func (w *world) insert(r row) string {
	w.t.Helper()
	n := w.n.Add(1)
	if r.consumer == "" {
		r.consumer = consumer
	}
	if r.key == "" {
		r.key = fmt.Sprintf("key-%d", n)
	}
	if r.order == "" {
		r.order = inbox.OrderPublished
	}
	messageID := fmt.Sprintf("m-%d", n)
	m := inbox.Message{
		ID:       inbox.ID(inbox.TransportIdentity, r.consumer, "sub", messageID),
		Consumer: r.consumer, Scope: "sub", DedupeKey: messageID, TransportKey: inbox.TransportKey(r.consumer, "sub", messageID),
		Subscription: "sub", MessageID: messageID, PublishedAt: time.Unix(1700000000+n, 0).UTC(), OrderedAt: time.Unix(1700000000+n, 0).UTC(),
		Type: "Started", Route: "r", Key: r.key, LaneID: inbox.LaneID(r.consumer, "", r.order, r.key), Status: inbox.Received,
		ContentSHA256: inbox.ContentSHA256(r.body, nil), PayloadSHA256: inbox.SHA256(r.body), PayloadBytes: int64(len(r.body)),
		Attributes: map[string]string{},
	}
	if r.arrival != nil {
		r.arrival(&m)
	}
	if err := w.store.Insert(w.t.Context(), &inbox.Arrival{Message: m, Body: r.body}); err != nil {
		w.t.Fatal(err)
	}
	if len(r.after) > 0 {
		r.after["InboxId"] = m.ID
		w.update("Messages", r.after)
	}
	return m.ID
}

// parked inserts a message that was tried and parked for reason.
func (w *world) parked(key string, reason inbox.Reason) string {
	w.t.Helper()
	return w.insert(row{key: key, after: map[string]any{"Status": "PARKED", "Reason": string(reason), "Attempts": 3, "TechnicalFailures": 2,
		"OutageFailures": 1, "LostWorkers": 1, "PatienceUsed": 9, "LastErrorCode": "E1", "LastErrorMessage": "nobody waits",
		"FirstFailedAt": time.Unix(1700000000, 0), "LastFailedAt": time.Unix(1700000100, 0), "EngineReference": "instance-1"}})
}

// finished inserts a message that is through.
func (w *world) finished(key, status string) string {
	w.t.Helper()
	at := time.Now().UTC()
	id := w.insert(row{key: key, after: map[string]any{"Status": status, "Attempts": 1, "ProcessedAt": at, "PurgeAfter": at.Add(75 * 24 * time.Hour)}})
	w.update("Payloads", map[string]any{"InboxId": id, "PurgeAt": at.Add(14 * 24 * time.Hour)})
	return id
}

func (w *world) update(table string, values map[string]any) {
	w.t.Helper()
	if _, err := w.client.Apply(w.t.Context(), []*spanner.Mutation{spanner.UpdateMap(table, values)}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) apply(mutations ...*spanner.Mutation) {
	w.t.Helper()
	if _, err := w.client.Apply(w.t.Context(), mutations); err != nil {
		w.t.Fatal(err)
	}
}

// text reads one column as text; "<null>" is a null, "<none>" no row.
func (w *world) text(table, id, column string) string {
	w.t.Helper()
	key := map[string]string{"Lanes": "LaneId"}[table]
	if key == "" {
		key = "InboxId"
	}
	got := "<none>"
	err := w.client.Single().Query(w.t.Context(), spanner.Statement{
		SQL:    fmt.Sprintf("SELECT CAST(%s AS STRING) FROM %s WHERE %s = @id", column, table, key),
		Params: map[string]any{"id": id},
	}).Do(func(r *spanner.Row) error {
		var s spanner.NullString
		err := r.Columns(&s)
		if got = s.StringVal; !s.Valid {
			got = "<null>"
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

func (w *world) count(sql string) int64 {
	w.t.Helper()
	var n int64
	err := w.client.Single().Query(w.t.Context(), spanner.Statement{SQL: sql}).Do(func(r *spanner.Row) error { return r.Columns(&n) })
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

type ctx = context.Context
