package rpctap_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/apiv1/spannerpb"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/emulatortest"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/rpctap"
	"github.com/pubsub-inbox/pubsub-inbox/internal/migrate"
)

func TestMain(m *testing.M) { emulatortest.Main(m) }

// table is one that every migrated database has, whatever the migrations say. Its rows are only numbers here.
const table = migrate.LockTable

func insert(id int) []*spanner.Mutation {
	return []*spanner.Mutation{spanner.Insert(table, []string{"Id", "Owner", "RenewedAt"}, []any{id, "somebody", time.Unix(0, 0)})}
}

func connected(t *testing.T) (context.Context, *rpctap.Tap, *spanner.Client) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	tap := &rpctap.Tap{}
	return ctx, tap, emulatortest.Client(t, emulatortest.Database(t), tap.Options()...)
}

// stored reads through a client of its own, so that it is not counted.
func stored(ctx context.Context, t *testing.T, client *spanner.Client) int {
	t.Helper()
	n := 0
	err := emulatortest.Client(t, client.DatabaseName()).Single().Read(ctx, table, spanner.AllKeys(), []string{"Id"}).Do(func(*spanner.Row) error {
		n++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func load(ctx context.Context, t *testing.T, client *spanner.Client, n int, owner string) {
	t.Helper()
	var ms []*spanner.Mutation
	for id := 1; id <= n; id++ {
		ms = append(ms, spanner.Insert(table, []string{"Id", "Owner", "RenewedAt"}, []any{id, owner, time.Unix(0, 0)}))
	}
	if _, err := client.Apply(ctx, ms, spanner.ApplyAtLeastOnce()); err != nil {
		t.Fatal(err)
	}
}

func TestItCountsCallsAndKeepsSessionsApart(t *testing.T) {
	ctx, tap, client := connected(t)
	if _, err := client.Apply(ctx, insert(1), spanner.ApplyAtLeastOnce()); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Single().ReadRow(ctx, table, spanner.Key{1}, []string{"Id"}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"Commit": 1, "StreamingRead": 1}, tap.Counts()); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	if got := tap.Background()["CreateSession"]; got != 1 {
		t.Errorf("sessions made: got %d, want 1 multiplexed one", got)
	}
	if got, want := tap.Total(), 2; got != want {
		t.Errorf("total: got %d, want %d", got, want)
	}
	if got := tap.Count("Commit"); got != 1 {
		t.Errorf("commits: got %d, want 1", got)
	}
	tap.Reset()
	if len(tap.Counts()) != 0 || len(tap.Background()) != 0 || tap.Rows() != 0 || tap.Count("Commit") != 0 {
		t.Errorf("after Reset: got %v, %v, %d rows", tap.Counts(), tap.Background(), tap.Rows())
	}
}

func TestItCountsTheRowsThatAreDelivered(t *testing.T) {
	ctx, tap, client := connected(t)
	load(ctx, t, client, 300, "somebody")
	nothing := func(*spanner.Row) error { return nil }
	for _, c := range []struct {
		name   string
		do     func() error
		rows   int
		method string
	}{
		{"a read", func() error {
			return client.Single().Read(ctx, table, spanner.AllKeys(), []string{"Id", "Owner", "RenewedAt"}).Do(nothing)
		}, 300, "StreamingRead"},
		{"a read with a limit", func() error {
			return client.Single().ReadWithOptions(ctx, table, spanner.AllKeys(), []string{"Id", "Owner"}, &spanner.ReadOptions{Limit: 7}).Do(nothing)
		}, 7, "StreamingRead"},
		{"a read of nothing", func() error {
			return client.Single().Read(ctx, table, spanner.Key{-1}, []string{"Id"}).Do(nothing)
		}, 0, "StreamingRead"},
		{"a query", func() error {
			return client.Single().Query(ctx, spanner.NewStatement("SELECT Id, Owner FROM "+table+" WHERE Id <= 12")).Do(nothing)
		}, 12, "ExecuteStreamingSql"},
		{"a query that counts", func() error {
			return client.Single().Query(ctx, spanner.NewStatement("SELECT COUNT(*) FROM "+table)).Do(nothing)
		}, 1, "ExecuteStreamingSql"},
		{"DML", func() error {
			_, err := client.ReadWriteTransaction(ctx, func(ctx context.Context, tx *spanner.ReadWriteTransaction) error {
				_, err := tx.Update(ctx, spanner.NewStatement("UPDATE "+table+" SET Owner = 'x' WHERE Id <= 5"))
				return err
			})
			return err
		}, 0, "ExecuteSql"},
		{"DML that returns rows", func() error {
			_, err := client.ReadWriteTransaction(ctx, func(ctx context.Context, tx *spanner.ReadWriteTransaction) error {
				return tx.Query(ctx, spanner.NewStatement("UPDATE "+table+" SET Owner = 'x' WHERE Id <= 5 THEN RETURN Id, Owner")).Do(nothing)
			})
			return err
		}, 5, "ExecuteStreamingSql"},
	} {
		tap.Reset()
		if err := c.do(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := tap.Rows(); got != c.rows {
			t.Errorf("rows of %s: got %d, want %d (calls %v)", c.name, got, c.rows, tap.Counts())
		}
		if got := tap.RowsOf(c.method); got != c.rows {
			t.Errorf("rows of %s by %s: got %d, want %d", c.name, c.method, got, c.rows)
		}
	}
}

func TestRowsAreCountedThatAreSpreadOverMessages(t *testing.T) {
	ctx, tap, client := connected(t)
	// Values of several megabytes do not fit one message.
	chunks := 0
	tap.After("ExecuteStreamingSql", func(_ context.Context, _ int, _, reply any, err error) error {
		if set, ok := reply.(*spannerpb.PartialResultSet); ok && set.GetChunkedValue() {
			chunks++
		}
		return err
	})
	rows := 0
	err := client.Single().Query(ctx, spanner.Statement{
		SQL:    "SELECT n, @s AS s FROM UNNEST([1, 2, 3, 4, 5]) AS n",
		Params: map[string]any{"s": strings.Repeat("x", 2000000)},
	}).Do(func(r *spanner.Row) error {
		var n int64
		var s string
		if err := r.Columns(&n, &s); err != nil {
			return err
		}
		if len(s) != 2000000 || strings.Trim(s, "x") != "" {
			return fmt.Errorf("row %d is damaged", n)
		}
		rows++
		return nil
	})
	if err != nil || rows != 5 || tap.Rows() != 5 {
		t.Errorf("rows: got %d, counted %d, %v; want 5", rows, tap.Rows(), err)
	}
	if chunks == 0 {
		t.Error("no value was spread over messages: this test shows nothing")
	}
}

func TestARefusedCallIsNotSent(t *testing.T) {
	ctx, tap, client := connected(t)
	tap.FailNth("Commit", 1, rpctap.Error(codes.Internal))
	_, err := client.Apply(ctx, insert(1), spanner.ApplyAtLeastOnce())
	if got := spanner.ErrCode(err); got != codes.Internal {
		t.Errorf("first commit: got %v, want Internal", err)
	}
	if got := stored(ctx, t, client); got != 0 {
		t.Errorf("rows after a refused commit: got %d, want 0", got)
	}
	if _, err := client.Apply(ctx, insert(1), spanner.ApplyAtLeastOnce()); err != nil {
		t.Errorf("second commit: %v", err)
	}
	if got := stored(ctx, t, client); got != 1 {
		t.Errorf("rows after the second commit: got %d, want 1", got)
	}
}

func TestALostAnswerComesAfterTheCommit(t *testing.T) {
	ctx, tap, client := connected(t)
	tap.LoseNth("Commit", 1, rpctap.Error(codes.Internal))
	if _, err := client.Apply(ctx, insert(1), spanner.ApplyAtLeastOnce()); spanner.ErrCode(err) != codes.Internal {
		t.Errorf("commit: got %v, want Internal", err)
	}
	if got := stored(ctx, t, client); got != 1 {
		t.Errorf("rows after a lost answer: got %d, want 1", got)
	}
	tap.Reset()
	// The client sends a commit again after Unavailable, and meets its own row.
	tap.LoseNth("Commit", 1, rpctap.Error(codes.Unavailable))
	if _, err := client.Apply(ctx, insert(2), spanner.ApplyAtLeastOnce()); spanner.ErrCode(err) != codes.AlreadyExists {
		t.Errorf("commit repeated by the client: got %v, want AlreadyExists", err)
	}
	if got := tap.Count("Commit"); got != 2 {
		t.Errorf("commits sent: got %d, want 2", got)
	}
}

func TestAnAbortedCommitRunsTheTransactionAgain(t *testing.T) {
	ctx, tap, client := connected(t)
	tap.FailNth("Commit", 1, rpctap.Error(codes.Aborted))
	runs := 0
	_, err := client.ReadWriteTransaction(ctx, func(ctx context.Context, tx *spanner.ReadWriteTransaction) error {
		runs++
		if err := tx.Read(ctx, table, spanner.AllKeys(), []string{"Id"}).Do(func(*spanner.Row) error { return nil }); err != nil {
			return err
		}
		return tx.BufferWrite(insert(1))
	})
	if err != nil || runs != 2 {
		t.Errorf("got %d runs, %v; want 2", runs, err)
	}
	if got := stored(ctx, t, client); got != 1 {
		t.Errorf("rows: got %d, want 1", got)
	}
}

func TestStreamsAreRefusedAndLost(t *testing.T) {
	ctx, tap, client := connected(t)
	load(ctx, t, client, 3, "somebody")
	read := func() (n int, err error) {
		err = client.Single().Read(ctx, table, spanner.AllKeys(), []string{"Id"}).Do(func(*spanner.Row) error {
			n++
			return nil
		})
		return n, err
	}
	for name, program := range map[string]func(error){
		"refused": func(err error) { tap.FailNth("StreamingRead", 1, err) },
		"lost":    func(err error) { tap.LoseNth("StreamingRead", 1, err) },
	} {
		tap.Reset()
		program(rpctap.Error(codes.Internal))
		if n, err := read(); n != 0 || spanner.ErrCode(err) != codes.Internal {
			t.Errorf("%s with Internal: got %d rows, %v", name, n, err)
		}
		if got := tap.Rows(); got != 0 {
			t.Errorf("%s: counted %d rows that were not delivered", name, got)
		}
		tap.Reset()
		program(rpctap.Error(codes.Unavailable))
		if n, err := read(); n != 3 || err != nil || tap.Count("StreamingRead") != 2 {
			t.Errorf("%s with Unavailable: got %d rows, %v, %v; want 3 rows in 2 calls", name, n, err, tap.Counts())
		}
	}
}

func TestHeldCallsWaitForTheirRelease(t *testing.T) {
	ctx, tap, client := connected(t)
	for name, c := range map[string]struct {
		hold func(string, int) *rpctap.Gate
		rows int // while held
		id   int
	}{
		"before it is sent":     {tap.HoldNth, 0, 1},
		"before it is answered": {tap.HoldAnswerNth, 1, 2},
	} {
		tap.Reset()
		before := stored(ctx, t, client)
		gate := c.hold("Commit", 1)
		done := make(chan error, 1)
		go func() {
			_, err := client.Apply(ctx, insert(c.id), spanner.ApplyAtLeastOnce())
			done <- err
		}()
		if err := gate.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		if got := stored(ctx, t, client) - before; got != c.rows {
			t.Errorf("%s: got %d new rows while held, want %d", name, got, c.rows)
		}
		// Another call is not held.
		if err := client.Single().Read(ctx, table, spanner.AllKeys(), []string{"Id"}).Do(func(*spanner.Row) error { return nil }); err != nil {
			t.Errorf("%s: a read beside it: %v", name, err)
		}
		gate.Release()
		gate.Release()
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := stored(ctx, t, client) - before; got != 1 {
			t.Errorf("%s: got %d new rows in the end, want 1", name, got)
		}
	}
}

func TestAHeldCallEndsWithItsContext(t *testing.T) {
	ctx, tap, client := connected(t)
	gate := tap.HoldNth("Commit", 1)
	held, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := client.Apply(held, insert(1), spanner.ApplyAtLeastOnce())
		done <- err
	}()
	<-gate.Arrived()
	cancel()
	if err := <-done; spanner.ErrCode(err) != codes.Canceled {
		t.Errorf("got %v, want Canceled", err)
	}
	if got := stored(ctx, t, client); got != 0 {
		t.Errorf("rows: got %d, want 0", got)
	}
}

func TestHooksSeeRequestAndAnswer(t *testing.T) {
	ctx, tap, client := connected(t)
	var seen []string
	tap.Before("Commit", func(_ context.Context, n int, req any) error {
		seen = append(seen, fmt.Sprintf("before %d: %d mutations", n, len(req.(*spannerpb.CommitRequest).GetMutations())))
		return nil
	})
	tap.After("Commit", func(_ context.Context, n int, req, reply any, err error) error {
		seen = append(seen, fmt.Sprintf("after %d: %d mutations, committed %t, %v", n, len(req.(*spannerpb.CommitRequest).GetMutations()), reply.(*spannerpb.CommitResponse).GetCommitTimestamp() != nil, err))
		return err
	})
	for id := range 2 {
		if _, err := client.Apply(ctx, insert(id), spanner.ApplyAtLeastOnce()); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"before 1: 1 mutations", "after 1: 1 mutations, committed true, <nil>",
		"before 2: 1 mutations", "after 2: 1 mutations, committed true, <nil>",
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("hooks (-want +got):\n%s", diff)
	}
}
