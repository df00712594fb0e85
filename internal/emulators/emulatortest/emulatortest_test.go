package emulatortest_test

import (
	"context"
	"os"
	"slices"
	"testing"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"

	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/emulatortest"
	"github.com/pubsub-inbox/pubsub-inbox/internal/migrate"
)

func TestMain(m *testing.M) { emulatortest.Main(m) }

func TestEachDatabaseIsNewAndMigrated(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	seen := map[string]bool{}
	for range 3 {
		db := emulatortest.Database(t)
		if seen[db] {
			t.Errorf("%s is not new", db)
		}
		seen[db] = true
		client := emulatortest.Client(t, db)
		rows := 0
		err := client.Single().Read(ctx, migrate.Table, spanner.AllKeys(), []string{"Version", "Dirty"}).Do(func(r *spanner.Row) error {
			rows++
			return nil
		})
		if err != nil || rows != 1 {
			t.Fatalf("rows of %s: got %d, %v", migrate.Table, rows, err)
		}
	}
}

func TestADatabaseIsGoneWithItsTest(t *testing.T) {
	t.Parallel()
	var db string
	t.Run("a test", func(t *testing.T) { db = emulatortest.DatabaseWith(t, "CREATE TABLE A (B INT64) PRIMARY KEY (B)") })
	_, err := emulatortest.Client(t, db).Single().ReadRow(context.Background(), "A", spanner.Key{1}, []string{"B"})
	if spanner.ErrCode(err) != codes.NotFound {
		t.Errorf("got %v, want NotFound", err)
	}
}

func TestChildrenGetTheirEnvironmentAndThisProcessDoesNot(t *testing.T) {
	t.Parallel()
	before := os.Getenv("SPANNER_EMULATOR_HOST")
	host := emulatortest.Spanner(t)
	if want, got := []string{"SPANNER_EMULATOR_HOST=" + host, "SPANNER_DATABASE=a-database"}, emulatortest.Env("a-database"); !slices.Equal(want, got) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := os.Getenv("SPANNER_EMULATOR_HOST"); got != before {
		t.Errorf("SPANNER_EMULATOR_HOST has become %s", got)
	}
}

// BenchmarkDatabase says what a test pays for a database of its own.
func BenchmarkDatabase(b *testing.B) {
	for b.Loop() {
		emulatortest.Database(b)
	}
}
