package emulatortest_test

import (
	"context"
	"testing"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/emulatortest"
	"github.com/pubsub-inbox/pubsub-inbox/internal/migrate"
)

func TestMain(m *testing.M) { emulatortest.Main(m) }

func TestEachDatabaseIsNewAndMigrated(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for range 3 {
		start := time.Now()
		db := emulatortest.Database(t)
		t.Log("database", time.Since(start))
		start = time.Now()
		client := emulatortest.Client(t, db)
		rows := 0
		err := client.Single().Read(ctx, migrate.Table, spanner.AllKeys(), []string{"Version", "Dirty"}).Do(func(r *spanner.Row) error {
			rows++
			return nil
		})
		t.Log("client", time.Since(start))
		if err != nil || rows != 1 {
			t.Fatalf("rows of %s: got %d, %v", migrate.Table, rows, err)
		}
	}
}
