package migrate_test

import (
	"context"
	"flag"
	"os"
	"testing"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/emulatortest"
	"github.com/pubsub-inbox/pubsub-inbox/internal/migrate"
)

var update = flag.Bool("update", false, "write migrations/schema.sql anew")

func TestMain(m *testing.M) {
	flag.Parse()
	// wrench's client knows only by its environment that it is not to report to Google Cloud.
	os.Setenv("SPANNER_DISABLE_BUILTIN_METRICS", "true")
	emulatortest.Main(m)
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func options(t *testing.T) migrate.Options {
	return migrate.Options{ClientOptions: emulatortest.ClientOptions(t)}
}

// query returns the rows of a query as structs.
func query[T any](ctx context.Context, t *testing.T, client *spanner.Client, sql string, params map[string]any) []T {
	t.Helper()
	var rows []T
	err := client.Single().Query(ctx, spanner.Statement{SQL: sql, Params: params}).Do(func(r *spanner.Row) error {
		var row T
		if err := r.ToStruct(&row); err != nil {
			return err
		}
		rows = append(rows, row)
		return nil
	})
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return rows
}
