package migrate_test

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/emulatortest"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/rpctap"
	"github.com/pubsub-inbox/pubsub-inbox/internal/migrate"
	"github.com/pubsub-inbox/pubsub-inbox/migrations"
)

var three = files(map[string]string{
	"000001_create_a.sql": "CREATE TABLE A (B INT64 NOT NULL, C INT64) PRIMARY KEY (B)",
	"000002_seed_a.sql":   "INSERT INTO A (B) VALUES (1), (2)",
	"000003_fill_a.sql":   "UPDATE A SET C = 7 WHERE C IS NULL",
})

func with(t *testing.T, files fs.FS) migrate.Options {
	o := options(t)
	o.Files = files
	return o
}

func write(ctx context.Context, t *testing.T, client *spanner.Client, ms ...*spanner.Mutation) {
	t.Helper()
	if _, err := client.Apply(ctx, ms, spanner.ApplyAtLeastOnce()); err != nil {
		t.Fatal(err)
	}
}

func version(ctx context.Context, t *testing.T, db string) (int64, bool) {
	t.Helper()
	v, dirty, err := migrate.Version(ctx, db, options(t))
	if err != nil {
		t.Fatal(err)
	}
	return v, dirty
}

func TestApplyBringsAnEmptyDatabaseToTheNewestVersionOnce(t *testing.T) {
	t.Parallel()
	ctx, db := deadline(t), emulatortest.DatabaseWith(t)
	if v, dirty := version(ctx, t, db); v != 0 || dirty {
		t.Errorf("version of an empty database: got %d, dirty %t", v, dirty)
	}
	all, err := migrate.Read(ctx, migrations.Files)
	if err != nil {
		t.Fatal(err)
	}
	newest := all[len(all)-1].Version
	var announced, applied []string
	o := options(t)
	o.OnApply = func(m migrate.Migration) { announced = append(announced, m.File) }
	for _, m := range all {
		applied = append(applied, m.File)
	}
	got, err := migrate.Apply(ctx, db, o)
	if diff := cmp.Diff(migrate.Result{Before: 0, After: newest, Applied: applied}, got); err != nil || diff != "" {
		t.Errorf("first: %v\n%s", err, diff)
	}
	if diff := cmp.Diff(applied, announced); diff != "" {
		t.Errorf("announced (-want +got):\n%s", diff)
	}
	got, err = migrate.Apply(ctx, db, options(t))
	if diff := cmp.Diff(migrate.Result{Before: newest, After: newest}, got); err != nil || diff != "" {
		t.Errorf("second: %v\n%s", err, diff)
	}
	if v, dirty := version(ctx, t, db); v != newest || dirty {
		t.Errorf("version: got %d, dirty %t, want %d", v, dirty, newest)
	}
}

func TestApplyTakesEachKindOfStatement(t *testing.T) {
	t.Parallel()
	ctx, db := deadline(t), emulatortest.DatabaseWith(t)
	first := files(map[string]string{"000001_create_a.sql": string(three["000001_create_a.sql"].Data)})
	if got, err := migrate.Apply(ctx, db, with(t, first)); err != nil || got.After != 1 {
		t.Fatalf("the first: got %+v, %v", got, err)
	}
	got, err := migrate.Apply(ctx, db, with(t, three))
	want := migrate.Result{Before: 1, After: 3, Applied: []string{"000002_seed_a.sql", "000003_fill_a.sql"}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("the rest: %v\n%s", err, diff)
	}
	type row struct{ B, C int64 }
	rows := query[row](ctx, t, emulatortest.Client(t, db), "SELECT B, C FROM A ORDER BY B", nil)
	if diff := cmp.Diff([]row{{1, 7}, {2, 7}}, rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

func TestARefusedMigrationLeavesTheDatabaseAsItWas(t *testing.T) {
	t.Parallel()
	ctx, db := deadline(t), emulatortest.DatabaseWith(t)
	broken := files(map[string]string{
		"000001_create_a.sql": "CREATE TABLE A (B INT64) PRIMARY KEY (B)",
		"000002_create_b.sql": "CREATE INDEX I ON NoSuchTable (B)",
	})
	for range 2 {
		got, err := migrate.Apply(ctx, db, with(t, broken))
		if err == nil || errors.Is(err, migrate.ErrDirty) || !strings.Contains(err.Error(), "NoSuchTable") || got.After != 1 {
			t.Errorf("a broken migration: got %+v, %v", got, err)
		}
		if v, dirty := version(ctx, t, db); v != 1 || dirty {
			t.Errorf("version: got %d, dirty %t, want 1", v, dirty)
		}
	}
	broken["000002_create_b.sql"].Data = []byte("CREATE INDEX I ON A (B)")
	if got, err := migrate.Apply(ctx, db, with(t, broken)); err != nil || got.Before != 1 || got.After != 2 {
		t.Errorf("corrected: got %+v, %v", got, err)
	}
}

func TestAFailedMigrationLeavesTheDatabaseDirtyAndSaysWhatToDo(t *testing.T) {
	t.Parallel()
	ctx, db := deadline(t), emulatortest.DatabaseWith(t)
	client := emulatortest.Client(t, db)
	broken := files(map[string]string{
		"000001_create_a.sql": "CREATE TABLE A (B INT64) PRIMARY KEY (B)",
		"000002_seed_b.sql":   "INSERT INTO NoSuchTable (B) VALUES (1)",
	})
	got, err := migrate.Apply(ctx, db, with(t, broken))
	if !errors.Is(err, migrate.ErrDirty) || !strings.Contains(err.Error(), "NoSuchTable") || got.After != 1 {
		t.Errorf("a broken migration: got %+v, %v", got, err)
	}
	got, err = migrate.Apply(ctx, db, with(t, broken))
	if !errors.Is(err, migrate.ErrDirty) || len(got.Applied) != 0 {
		t.Fatalf("once more: got %+v, %v", got, err)
	}
	// What the sentence says works.
	for _, sql := range []string{"DELETE FROM SchemaMigrations WHERE true", "INSERT INTO SchemaMigrations (Version, Dirty) VALUES (1, false)"} {
		if !strings.Contains(err.Error(), "`"+sql+"`") {
			t.Errorf("%q is missing in: %v", sql, err)
		}
		_, err := client.ReadWriteTransaction(ctx, func(ctx context.Context, tx *spanner.ReadWriteTransaction) error {
			_, err := tx.Update(ctx, spanner.NewStatement(sql))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	broken["000002_seed_b.sql"].Data = []byte("INSERT INTO A (B) VALUES (1)")
	if got, err := migrate.Apply(ctx, db, with(t, broken)); err != nil || got.Before != 1 || got.After != 2 {
		t.Errorf("after the repair: got %+v, %v", got, err)
	}
}

func TestANewerDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	ctx, db := deadline(t), emulatortest.DatabaseWith(t, migrate.TableDDL()...)
	write(ctx, t, emulatortest.Client(t, db), spanner.Insert(migrate.Table, []string{"Version", "Dirty"}, []any{4, false}))
	if got, err := migrate.Apply(ctx, db, with(t, three)); !errors.Is(err, migrate.ErrNewer) || got.Before != 4 || got.After != 4 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestAWrongDatabaseNameIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := migrate.Apply(t.Context(), "my-database", migrate.Options{}); err == nil || !strings.Contains(err.Error(), "projects/PROJECT") {
		t.Errorf("got %v", err)
	}
}

func TestTheLockKeepsASecondOneOut(t *testing.T) {
	t.Parallel()
	ctx, db := deadline(t), emulatortest.DatabaseWith(t, migrate.TableDDL()...)
	client := emulatortest.Client(t, db)
	lock := func(renewed time.Time) {
		write(ctx, t, client, spanner.InsertOrUpdate(migrate.LockTable, []string{"Id", "Owner", "RenewedAt"}, []any{1, "the other host", renewed}))
	}
	lock(spanner.CommitTimestamp)
	if got, err := migrate.Apply(ctx, db, with(t, three)); !errors.Is(err, migrate.ErrLocked) || !strings.Contains(err.Error(), "the other host") || len(got.Applied) != 0 {
		t.Errorf("beside another: got %+v, %v", got, err)
	}
	lock(time.Unix(0, 0))
	if got, err := migrate.Apply(ctx, db, with(t, three)); err != nil || got.After != 3 {
		t.Errorf("after another has died: got %+v, %v", got, err)
	}
	type row struct{ Owner string }
	if rows := query[row](ctx, t, client, "SELECT Owner FROM "+migrate.LockTable, nil); len(rows) != 0 {
		t.Errorf("the lock is still held by %v", rows)
	}
	// One who finds nothing to do needs no lock.
	lock(spanner.CommitTimestamp)
	if got, err := migrate.Apply(ctx, db, with(t, three)); err != nil || got.Before != 3 {
		t.Errorf("with nothing to do: got %+v, %v", got, err)
	}
}

// The emulator takes one schema change at a time, so this shows the outcome, not every interleaving.
func TestSeveralAtOnceApplyEachMigrationOnce(t *testing.T) {
	t.Parallel()
	ctx, db := deadline(t), emulatortest.DatabaseWith(t)
	// DML shows a second application, which DDL would refuse.
	var wg sync.WaitGroup
	var mu sync.Mutex
	applied := map[string]int{}
	for range 4 {
		wg.Go(func() {
			got, err := migrate.Apply(ctx, db, with(t, three))
			if err != nil && !errors.Is(err, migrate.ErrLocked) {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, file := range got.Applied {
				applied[file]++
			}
		})
	}
	wg.Wait()
	if diff := cmp.Diff(map[string]int{"000001_create_a.sql": 1, "000002_seed_a.sql": 1, "000003_fill_a.sql": 1}, applied); diff != "" {
		t.Errorf("applied (-want +got):\n%s", diff)
	}
	if v, dirty := version(ctx, t, db); v != 3 || dirty {
		t.Errorf("version: got %d, dirty %t, want 3", v, dirty)
	}
}

func TestApplyAndTheQuickWayLeaveTheSameTables(t *testing.T) {
	t.Parallel()
	ctx, slow, quick := deadline(t), emulatortest.DatabaseWith(t), emulatortest.Database(t)
	if _, err := migrate.Apply(ctx, slow, options(t)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(ddl(ctx, t, quick), ddl(ctx, t, slow)); diff != "" {
		t.Errorf("-quick +slow:\n%s", diff)
	}
	qv, _ := version(ctx, t, quick)
	if sv, _ := version(ctx, t, slow); sv != qv {
		t.Errorf("versions: quick %d, slow %d", qv, sv)
	}
}

// Somebody ends the program, or its time is up, while Spanner fills an index for hours.
func TestASchemaChangeThatGoesOnWithoutItsCallerIsWaitedForByTheNextOne(t *testing.T) {
	t.Parallel()
	ctx, db := deadline(t), emulatortest.DatabaseWith(t, migrate.TableDDL()...)
	var tap rpctap.Tap
	o := with(t, three)
	o.ClientOptions = append(o.ClientOptions, tap.Options()...)
	gate := tap.HoldAnswerNth("UpdateDatabaseDdl", 1)
	first, end := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		_, err := migrate.Apply(first, db, o)
		done <- err
	}()
	if err := gate.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	end()
	if err := <-done; err == nil {
		t.Error("the first one has ended well")
	}
	if v, dirty := version(ctx, t, db); v != 1 || !dirty {
		t.Fatalf("version %d, dirty %t: this test shows nothing", v, dirty)
	}
	tap.Reset()
	got, err := migrate.Apply(ctx, db, o)
	want := migrate.Result{Before: 0, After: 3, Applied: []string{"000001_create_a.sql", "000002_seed_a.sql", "000003_fill_a.sql"}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("the next one: %v\n%s", err, diff)
	}
	if n := tap.Count("UpdateDatabaseDdl"); n != 0 {
		t.Errorf("the next one has begun %d schema changes, want none", n)
	}
	if v, dirty := version(ctx, t, db); v != 3 || dirty {
		t.Errorf("version: got %d, dirty %t, want 3", v, dirty)
	}
}

func TestASchemaChangeThatFailedHalfwayStaysDirtyAndCanBeTriedAgain(t *testing.T) {
	t.Parallel()
	ctx, db := deadline(t), emulatortest.DatabaseWith(t)
	client := emulatortest.Client(t, db)
	half := files(map[string]string{
		"000001_create_a.sql": "CREATE TABLE A (B INT64, C INT64) PRIMARY KEY (B)",
		"000002_seed_a.sql":   "INSERT INTO A (B, C) VALUES (1, 1), (2, 1)",
		"000003_index_a.sql":  "CREATE INDEX ByB ON A (B);\n\nCREATE UNIQUE INDEX ByC ON A (C)",
	})
	for range 2 {
		if got, err := migrate.Apply(ctx, db, with(t, half)); !errors.Is(err, migrate.ErrDirty) || got.After == 0 {
			t.Fatalf("halfway: got %+v, %v", got, err)
		}
	}
	// A person takes back what is there, and what was in the way; the same file then is another try.
	for _, sql := range []string{"DELETE FROM A WHERE B = 2", "DELETE FROM SchemaMigrations WHERE true", "INSERT INTO SchemaMigrations (Version, Dirty) VALUES (2, false)"} {
		_, err := client.ReadWriteTransaction(ctx, func(ctx context.Context, tx *spanner.ReadWriteTransaction) error {
			_, err := tx.Update(ctx, spanner.NewStatement(sql))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	back := files(map[string]string{"000001_create_a.sql": string(half["000001_create_a.sql"].Data), "000002_seed_a.sql": string(half["000002_seed_a.sql"].Data),
		"000003_drop_b.sql": "DROP INDEX ByB"})
	if _, err := migrate.Apply(ctx, db, with(t, back)); err != nil {
		t.Fatal(err)
	}
	write(ctx, t, client, spanner.Delete(migrate.Table, spanner.AllKeys()), spanner.Insert(migrate.Table, []string{"Version", "Dirty"}, []any{2, false}))
	if got, err := migrate.Apply(ctx, db, with(t, half)); err != nil || got.After != 3 {
		t.Errorf("the second try: got %+v, %v", got, err)
	}
}
