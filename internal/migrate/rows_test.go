package migrate_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/emulatortest"
)

var (
	statuses = []string{"RECEIVED", "PROCESSING", "RETRYING", "PROCESSED", "PARKED", "DISCARDED"}
	open     = []string{"RECEIVED", "PROCESSING", "RETRYING"}
	finished = []string{"PROCESSED", "DISCARDED"}

	past   = spanner.NullTime{Time: time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC), Valid: true}
	future = spanner.NullTime{Time: time.Date(2101, 2, 3, 4, 5, 6, 0, time.UTC), Valid: true}
)

// tables knows which columns a row must have, so that these tests speak only of those they are about.
type tables struct {
	client  *spanner.Client
	columns []column
}

func newTables(ctx context.Context, t *testing.T) *tables {
	db := emulatortest.Database(t)
	return &tables{client: emulatortest.Client(t, db), columns: columns(ctx, t, db)}
}

// row is an insertion with every required column that values do not have.
func (ts *tables) row(t *testing.T, table string, values map[string]any) *spanner.Mutation {
	t.Helper()
	row := map[string]any{}
	for _, c := range ts.columns {
		if c.Table != table || c.Nullable || c.Default || c.Computed {
			continue
		}
		switch {
		case strings.HasPrefix(c.Type, "STRING"):
			row[c.Name] = "x"
		case strings.HasPrefix(c.Type, "BYTES"):
			row[c.Name] = []byte{}
		case c.Type == "INT64":
			row[c.Name] = 1
		case c.Type == "BOOL":
			row[c.Name] = false
		case c.Type == "TIMESTAMP":
			row[c.Name] = past
		case c.Type == "JSON":
			row[c.Name] = spanner.NullJSON{Value: map[string]any{}, Valid: true}
		default:
			t.Fatalf("no value for %s %s", c.Name, c.Type)
		}
	}
	for name, value := range values {
		row[name] = value
	}
	return spanner.InsertMap(table, row)
}

func (ts *tables) insert(ctx context.Context, t *testing.T, table string, values map[string]any) error {
	t.Helper()
	_, err := ts.client.Apply(ctx, []*spanner.Mutation{ts.row(t, table, values)}, spanner.ApplyAtLeastOnce())
	return err
}

func TestCheckConstraintsRefuseWrongValues(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	ts := newTables(ctx, t)
	id := 0
	try := func(table, key string, values map[string]any) error {
		t.Helper()
		id++
		all := map[string]any{key: fmt.Sprintf("id-%d", id)}
		if table == "Messages" {
			all["Status"] = "RECEIVED"
		}
		for name, value := range values {
			all[name] = value
		}
		return ts.insert(ctx, t, table, all)
	}
	good := []map[string]any{{}}
	bad := []map[string]any{
		{"Status": ""}, {"Status": "received"}, {"Status": "OPEN"}, {"Status": "ARCHIVED"}, {"Status": "PARKED "}, {"Status": spanner.NullString{}},
	}
	for _, status := range statuses {
		good = append(good, map[string]any{"Status": status})
	}
	for _, count := range []string{"Attempts", "TechnicalFailures", "LostWorkers", "PatienceUsed"} {
		bad = append(bad, map[string]any{count: -1})
		good = append(good, map[string]any{count: 0}, map[string]any{count: 7})
	}
	for _, values := range good {
		if err := try("Messages", "InboxId", values); err != nil {
			t.Errorf("Messages %v: %v", values, err)
		}
	}
	for _, values := range bad {
		if err := try("Messages", "InboxId", values); !refused(err) {
			t.Errorf("Messages %v: got %v, want it refused", values, err)
		}
	}
	for _, shard := range []int64{0, 15, 1<<46 - 1} {
		if err := try("Lanes", "LaneId", map[string]any{"Shard": shard}); err != nil {
			t.Errorf("shard %d: %v", shard, err)
		}
	}
	for _, shard := range []int64{-1} {
		if err := try("Lanes", "LaneId", map[string]any{"Shard": shard}); !refused(err) {
			t.Errorf("shard %d: got %v, want it refused", shard, err)
		}
	}
	// An update is checked too.
	_, err := ts.client.Apply(ctx, []*spanner.Mutation{spanner.UpdateMap("Messages", map[string]any{"InboxId": "id-1", "Status": "DONE"})}, spanner.ApplyAtLeastOnce())
	if !refused(err) {
		t.Errorf("an update to DONE: got %v, want it refused", err)
	}
}

// refused says whether Spanner has said no to the values themselves.
func refused(err error) bool {
	code := spanner.ErrCode(err)
	return code == codes.OutOfRange || code == codes.FailedPrecondition || code == codes.InvalidArgument
}

// message is a row of every kind there can be.
type message struct {
	InboxId    string
	Status     string
	Blocks     bool
	Reason     spanner.NullString
	PurgeAfter spanner.NullTime
}

func (m message) values() map[string]any {
	return map[string]any{"InboxId": m.InboxId, "Status": m.Status, "Blocks": m.Blocks, "Reason": m.Reason, "PurgeAfter": m.PurgeAfter}
}

func everyMessage() []message {
	var all []message
	for _, status := range statuses {
		for _, blocks := range []bool{false, true} {
			for _, reason := range []spanner.NullString{{}, {StringVal: "NO_ROUTE", Valid: true}} {
				for _, purge := range []spanner.NullTime{{}, past, future} {
					all = append(all, message{fmt.Sprintf("m-%02d", len(all)), status, blocks, reason, purge})
				}
			}
		}
	}
	return all
}

func (ts *tables) insertAll(ctx context.Context, t *testing.T, all []message) {
	t.Helper()
	var ms []*spanner.Mutation
	for _, m := range all {
		ms = append(ms, ts.row(t, "Messages", m.values()))
	}
	write(ctx, t, ts.client, ms...)
}

func TestComputedColumnsFollowTheStatus(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	ts := newTables(ctx, t)
	all := everyMessage()
	ts.insertAll(ctx, t, all)

	type computed struct {
		InboxId      string
		Queue        int64
		OpenShard    spanner.NullInt64
		ParkedReason spanner.NullString
		PurgeAt      spanner.NullTime
	}
	shards := map[int64]bool{}
	verify := func(name string, want map[string]message) {
		t.Helper()
		got := query[computed](ctx, t, ts.client, "SELECT InboxId, Queue, OpenShard, ParkedReason, PurgeAt FROM Messages", nil)
		if len(got) != len(want) {
			t.Fatalf("%s: got %d rows, want %d", name, len(got), len(want))
		}
		for _, g := range got {
			m := want[g.InboxId]
			w := computed{InboxId: m.InboxId, Queue: 1}
			isOpen := slices.Contains(open, m.Status)
			if isOpen || m.Status == "PARKED" && m.Blocks {
				w.Queue = 0
			}
			if g.OpenShard.Valid != isOpen || g.OpenShard.Int64 < 0 || g.OpenShard.Int64 > 15 {
				t.Errorf("%s: OpenShard of %+v: got %v", name, m, g.OpenShard)
			}
			if g.OpenShard.Valid {
				shards[g.OpenShard.Int64] = true
			}
			w.OpenShard = g.OpenShard
			if m.Status == "PARKED" {
				w.ParkedReason = spanner.NullString{StringVal: m.Reason.StringVal, Valid: true}
			}
			if slices.Contains(finished, m.Status) {
				w.PurgeAt = m.PurgeAfter
			}
			if diff := cmp.Diff(w, g); diff != "" {
				t.Errorf("%s: computed columns of %+v (-want +got):\n%s", name, m, diff)
			}
		}
	}
	want := map[string]message{}
	for _, m := range all {
		want[m.InboxId] = m
	}
	verify("inserted", want)
	if len(shards) < 8 {
		t.Errorf("%d rows are in only %d shards", len(all), len(shards))
	}
	// They follow an update as well: every row takes the status of the next.
	var ms []*spanner.Mutation
	for i, m := range all {
		m.Status = all[(i+1)%len(all)].Status
		m.Blocks = !m.Blocks
		want[m.InboxId] = m
		ms = append(ms, spanner.UpdateMap("Messages", map[string]any{"InboxId": m.InboxId, "Status": m.Status, "Blocks": m.Blocks}))
	}
	write(ctx, t, ts.client, ms...)
	verify("updated", want)
}

// policy is what Spanner's clean-up looks for in a table.
type policy struct{ table, column, days string }

var policyPattern = regexp.MustCompile(`(?s)^CREATE TABLE (\w+) .*ROW DELETION POLICY \(OLDER_THAN\((\w+), INTERVAL ([0-9]+) DAY\)\)`)

func policies(ctx context.Context, t *testing.T, db string) []policy {
	t.Helper()
	var all []policy
	for _, statement := range ddl(ctx, t, db) {
		if m := policyPattern.FindStringSubmatch(statement); m != nil {
			all = append(all, policy{m[1], m[2], m[3]})
		} else if strings.Contains(statement, "ROW DELETION") {
			t.Fatalf("cannot read the row deletion policy of: %s", statement)
		}
	}
	slices.SortFunc(all, func(a, b policy) int { return strings.Compare(a.table, b.table) })
	return all
}

// deletable evaluates a policy as the documentation of row deletion tells to check one.
func (ts *tables) deletable(ctx context.Context, t *testing.T, p policy, key string) []string {
	t.Helper()
	type row struct{ Key string }
	var keys []string
	for _, r := range query[row](ctx, t, ts.client, fmt.Sprintf("SELECT %s AS Key FROM %s WHERE TIMESTAMP_ADD(%s, INTERVAL %s DAY) < CURRENT_TIMESTAMP() ORDER BY Key", key, p.table, p.column, p.days), nil) {
		keys = append(keys, r.Key)
	}
	return keys
}

func TestRowDeletionTakesOnlyWhatIsFinished(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	ts := newTables(ctx, t)
	got := policies(ctx, t, ts.client.DatabaseName())
	want := []policy{{"Lanes", "PurgeAt", "0"}, {"Messages", "PurgeAt", "0"}, {"Payloads", "PurgeAt", "0"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(policy{})); diff != "" {
		t.Fatalf("policies (-want +got):\n%s", diff)
	}
	lanes, messages, payloads := got[0], got[1], got[2]

	all := everyMessage()
	ts.insertAll(ctx, t, all)
	var due []string
	for _, m := range all {
		if slices.Contains(finished, m.Status) && m.PurgeAfter == past {
			due = append(due, m.InboxId)
		}
	}
	if len(due) == 0 {
		t.Fatal("nothing is due: this test shows nothing")
	}
	if diff := cmp.Diff(due, ts.deletable(ctx, t, messages, "InboxId")); diff != "" {
		t.Errorf("messages to be deleted (-want +got):\n%s", diff)
	}

	// The repair by hand, of parked rows and of finished ones too, with PurgeAfter left as it was.
	_, err := ts.client.ReadWriteTransaction(ctx, func(ctx context.Context, tx *spanner.ReadWriteTransaction) error {
		n, err := tx.Update(ctx, spanner.NewStatement("UPDATE Messages SET Status = 'RECEIVED', Attempts = 0 WHERE Status IN ('PARKED', 'PROCESSED', 'DISCARDED')"))
		if err == nil && n != int64(len(all)/2) {
			err = fmt.Errorf("reopened %d rows of %d", n, len(all))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := ts.deletable(ctx, t, messages, "InboxId"); got != nil {
		t.Errorf("reopened messages to be deleted: %v", got)
	}

	// Payloads and lanes go by a column that is written, and only while it is.
	times := map[string]spanner.NullTime{"null": {}, "past": past, "future": future}
	for name, at := range times {
		write(ctx, t, ts.client,
			ts.row(t, "Lanes", map[string]any{"LaneId": "lane-" + name, "PurgeAt": at}))
		for _, status := range statuses {
			id := status + "-" + name
			write(ctx, t, ts.client,
				ts.row(t, "Messages", map[string]any{"InboxId": id, "Status": status}),
				ts.row(t, "Payloads", map[string]any{"InboxId": id, "PurgeAt": at}))
		}
	}
	if diff := cmp.Diff([]string{"lane-past"}, ts.deletable(ctx, t, lanes, "LaneId")); diff != "" {
		t.Errorf("lanes to be deleted (-want +got):\n%s", diff)
	}
	due = nil
	for _, status := range statuses {
		due = append(due, status+"-past")
	}
	slices.Sort(due)
	if diff := cmp.Diff(due, ts.deletable(ctx, t, payloads, "InboxId")); diff != "" {
		t.Errorf("payloads to be deleted (-want +got):\n%s", diff)
	}
	_, err = ts.client.ReadWriteTransaction(ctx, func(ctx context.Context, tx *spanner.ReadWriteTransaction) error {
		_, err := tx.BatchUpdate(ctx, []spanner.Statement{
			spanner.NewStatement("UPDATE Payloads SET PurgeAt = NULL WHERE true"), spanner.NewStatement("UPDATE Lanes SET PurgeAt = NULL WHERE true"),
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []struct {
		policy
		key string
	}{{payloads, "InboxId"}, {lanes, "LaneId"}} {
		if got := ts.deletable(ctx, t, p.policy, p.key); got != nil {
			t.Errorf("%s to be deleted after a reopen: %v", p.table, got)
		}
	}
}

func TestADeletedMessageTakesItsChildrenAlong(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	ts := newTables(ctx, t)
	var children []string
	for _, statement := range ddl(ctx, t, ts.client.DatabaseName()) {
		if m := regexp.MustCompile(`(?s)^CREATE TABLE (\w+) .*INTERLEAVE IN PARENT Messages`).FindStringSubmatch(statement); m != nil {
			children = append(children, m[1])
		}
	}
	if len(children) < 3 {
		t.Errorf("children of Messages: got %v", children)
	}
	for _, id := range []string{"goes", "stays"} {
		write(ctx, t, ts.client, ts.row(t, "Messages", map[string]any{"InboxId": id, "Status": "PROCESSED"}))
		for _, child := range children {
			write(ctx, t, ts.client, ts.row(t, child, map[string]any{"InboxId": id}))
		}
	}
	write(ctx, t, ts.client, spanner.Delete("Messages", spanner.Key{"goes"}))
	type row struct{ InboxId string }
	for _, child := range children {
		if diff := cmp.Diff([]row{{"stays"}}, query[row](ctx, t, ts.client, "SELECT InboxId FROM "+child, nil)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", child, diff)
		}
	}
}

// What is finished must cost a relay nothing: it is not in what a relay reads.
func TestIndexesHoldOnlyTheRowsTheyAreFor(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	ts := newTables(ctx, t)
	all := everyMessage()
	ts.insertAll(ctx, t, all)
	of := func(keep func(message) bool) []string {
		var ids []string
		for _, m := range all {
			if keep(m) {
				ids = append(ids, m.InboxId)
			}
		}
		return ids
	}
	in := func(table, index, key string) []string {
		t.Helper()
		var keys []string
		err := ts.client.Single().ReadUsingIndex(ctx, table, index, spanner.AllKeys(), []string{key}).Do(func(r *spanner.Row) error {
			var k string
			err := r.Columns(&k)
			keys = append(keys, k)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(keys)
		return keys
	}
	for index, want := range map[string][]string{
		"MessagesByLane":      of(func(message) bool { return true }),
		"MessagesOpen":        of(func(m message) bool { return slices.Contains(open, m.Status) }),
		"MessagesParked":      of(func(m message) bool { return m.Status == "PARKED" }),
		"MessagesByTransport": nil,
	} {
		if diff := cmp.Diff(want, in("Messages", index, "InboxId")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", index, diff)
		}
	}

	for name, values := range map[string]map[string]any{
		"rests": {}, "woken": {"WokenAt": past}, "due": {"DueAt": future}, "both": {"WokenAt": past, "DueAt": past},
		// A null in a stored column must not matter.
		"leased":  {"DueAt": future, "LeaseUntil": future},
		"blocked": {"WhyNotDue": "BLOCKED"}, "held": {"HeldBy": "somebody", "WhyNotDue": "BLOCKED"}, "waits": {"WhyNotDue": "HEAD_WAITS"},
	} {
		values["LaneId"] = name
		write(ctx, t, ts.client, ts.row(t, "Lanes", values))
	}
	for index, want := range map[string][]string{"LanesWoken": {"both", "woken"}, "LanesDue": {"both", "due", "leased"},
		"LanesStopped": {"blocked", "held"}} {
		if diff := cmp.Diff(want, in("Lanes", index, "LaneId")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", index, diff)
		}
	}

	// One row for each transport identity; any number without one.
	if err := ts.insert(ctx, t, "Messages", map[string]any{"InboxId": "first", "Status": "RECEIVED", "TransportKey": "k"}); err != nil {
		t.Fatal(err)
	}
	if err := ts.insert(ctx, t, "Messages", map[string]any{"InboxId": "second", "Status": "RECEIVED", "TransportKey": "k"}); spanner.ErrCode(err) != codes.AlreadyExists {
		t.Errorf("a second row for a transport identity: got %v, want AlreadyExists", err)
	}
}
