package migrate_test

import (
	"os"
	"strings"
	"testing"

	"cloud.google.com/go/spanner"

	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/emulatortest"
)

// What the README tells an operator to run has to run.
func TestTheReadmesQueriesRun(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	client := emulatortest.Client(t, emulatortest.Database(t))
	queries := 0
	for line := range strings.Lines(string(readme)) {
		query, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "    SELECT ")
		if !ok {
			continue
		}
		queries++
		rows := client.Single().Query(t.Context(), spanner.NewStatement("SELECT "+query))
		if err := rows.Do(func(*spanner.Row) error { return nil }); err != nil {
			t.Errorf("%s: %v", query, err)
		}
	}
	if queries != 2 {
		t.Errorf("the README has %d queries, want 2: is it laid out differently?", queries)
	}
}
