package migrate_test

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	database "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/emulatortest"
	"github.com/pubsub-inbox/pubsub-inbox/internal/migrate"
	"github.com/pubsub-inbox/pubsub-inbox/migrations"
)

const schemaFile = "../../migrations/schema.sql"

const schemaHeader = `-- What the migrations add up to. Written by "go test ./internal/migrate -run TestSchema -update"; not applied from.

`

// ddl returns a database's own account of itself, without the migrations' books.
func ddl(ctx context.Context, t *testing.T, db string) []string {
	t.Helper()
	admin, err := database.NewDatabaseAdminClient(ctx, emulatortest.ClientOptions(t)...)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	response, err := admin.GetDatabaseDdl(ctx, &databasepb.GetDatabaseDdlRequest{Database: db})
	if err != nil {
		t.Fatal(err)
	}
	books := regexp.MustCompile(`^CREATE TABLE (` + migrate.Table + `|` + migrate.LockTable + `) `)
	return slices.DeleteFunc(response.Statements, books.MatchString)
}

var indexPattern = regexp.MustCompile(`(?is)^CREATE\s.*?\bINDEX\s+(?:IF\s+NOT\s+EXISTS\s+)?(\w+)\s+ON\b[^)]*\)(?:\s*STORING\s*\([^)]*\))?(.*)$`)

// whole adds to a database's account what the emulator leaves out of it: the WHERE clause of an index. An
// index keeps the clause it was made with, so the statement that made it last says it.
func whole(t *testing.T, account, made []string) []string {
	t.Helper()
	clauses := map[string]string{}
	for _, statement := range made {
		if m := indexPattern.FindStringSubmatch(statement); m != nil {
			clauses[m[1]] = strings.Join(strings.Fields(m[2]), " ")
		}
	}
	account = slices.Clone(account)
	for i, statement := range account {
		m := indexPattern.FindStringSubmatch(statement)
		if m == nil {
			continue
		}
		clause, ok := clauses[m[1]]
		if !ok {
			t.Fatalf("nothing has made the index %s", m[1])
		}
		// An emulator that prints the clause needs no help.
		if m[2] == "" && clause != "" {
			account[i] += " " + clause
		}
	}
	return account
}

func TestSchemaFileIsWhatTheMigrationsAddUpTo(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	all, err := migrate.Read(ctx, migrations.Files)
	if err != nil {
		t.Fatal(err)
	}
	var made []string
	for _, m := range all {
		made = append(made, m.Statements...)
	}
	want := whole(t, ddl(ctx, t, emulatortest.Database(t)), made)
	if *update {
		if err := os.WriteFile(schemaFile, []byte(schemaHeader+strings.Join(want, ";\n\n")+";\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	body, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := migrate.Read(ctx, fstest.MapFS{"000001_create_schema.sql": {Data: body}})
	if err != nil {
		t.Fatal(err)
	}
	got := whole(t, ddl(ctx, t, emulatortest.DatabaseWith(t, parsed[0].Statements...)), parsed[0].Statements)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("schema.sql is not what the migrations add up to; run go test ./internal/migrate -run TestSchema -update\n(-migrations +schema.sql):\n%s", diff)
	}
}

type column struct {
	Table    string
	Name     string
	Type     string
	Nullable bool
	Default  bool
	Computed bool
}

func columns(ctx context.Context, t *testing.T, db string) []column {
	t.Helper()
	return query[column](ctx, t, emulatortest.Client(t, db), `
		SELECT TABLE_NAME AS `+"`Table`"+`, COLUMN_NAME AS Name, SPANNER_TYPE AS Type, IS_NULLABLE = 'YES' AS Nullable,
		  COLUMN_DEFAULT IS NOT NULL AS `+"`Default`"+`, IS_GENERATED = 'ALWAYS' AS Computed
		FROM INFORMATION_SCHEMA.COLUMNS WHERE TABLE_SCHEMA = '' AND NOT STARTS_WITH(TABLE_NAME, 'SchemaMigration')
		ORDER BY TABLE_NAME, ORDINAL_POSITION`, nil)
}

type indexColumn struct {
	Table    string
	Index    string
	Column   string
	Type     string
	Position int64 // 0: only stored
	Filtered bool
}

func indexColumns(ctx context.Context, t *testing.T, db string) []indexColumn {
	t.Helper()
	return query[indexColumn](ctx, t, emulatortest.Client(t, db), `
		SELECT C.TABLE_NAME AS `+"`Table`"+`, C.INDEX_NAME AS Index, C.COLUMN_NAME AS Column, C.SPANNER_TYPE AS Type,
		  COALESCE(C.ORDINAL_POSITION, 0) AS Position, I.IS_NULL_FILTERED AS Filtered
		FROM INFORMATION_SCHEMA.INDEX_COLUMNS C
		JOIN INFORMATION_SCHEMA.INDEXES I ON I.TABLE_NAME = C.TABLE_NAME AND I.INDEX_NAME = C.INDEX_NAME AND I.TABLE_SCHEMA = C.TABLE_SCHEMA
		WHERE C.TABLE_SCHEMA = '' AND NOT STARTS_WITH(C.TABLE_NAME, 'SchemaMigration')`, nil)
}

// C049: a queue whose key or index begins with a time, or drags its payload along, gets slow.
func TestNoKeyOrIndexIsAHotSpotOrHoldsAPayload(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	all := indexColumns(ctx, t, emulatortest.Database(t))
	firsts := 0
	for _, c := range all {
		if c.Position == 1 {
			firsts++
			if !strings.HasPrefix(c.Type, "STRING(") {
				t.Errorf("%s.%s begins with %s %s: what counts up, a time above all, sends every write to one split", c.Table, c.Index, c.Column, c.Type)
			}
		}
		if strings.HasPrefix(c.Type, "BYTES") || c.Type == "JSON" || strings.HasPrefix(c.Type, "STRING(MAX") {
			t.Errorf("%s.%s holds %s %s: payloads are not for indexes", c.Table, c.Index, c.Column, c.Type)
		}
		if c.Filtered {
			t.Errorf("%s.%s is NULL_FILTERED: that also drops rows for a null in another column; say WHERE ... IS NOT NULL", c.Table, c.Index)
		}
	}
	if firsts < 10 {
		t.Errorf("saw only %d keys and indexes", firsts)
	}
}

// A commit timestamp column refuses future values, so it must be only where receipt or waking is meant.
func TestOnlyArrivalsAreCommitTimestamps(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	type option struct{ Column string }
	got := map[string]bool{}
	for _, o := range query[option](ctx, t, emulatortest.Client(t, emulatortest.Database(t)), `
		SELECT CONCAT(TABLE_NAME, '.', COLUMN_NAME) AS Column FROM INFORMATION_SCHEMA.COLUMN_OPTIONS
		WHERE OPTION_NAME = 'allow_commit_timestamp' AND UPPER(OPTION_VALUE) = 'TRUE' AND NOT STARTS_WITH(TABLE_NAME, 'SchemaMigration')`, nil) {
		got[o.Column] = true
		if _, name, _ := strings.Cut(o.Column, "."); name != "WokenAt" && !strings.HasSuffix(name, "ReceivedAt") && o.Column != "Audit.OccurredAt" {
			t.Errorf("%s is a commit timestamp", o.Column)
		}
	}
	for _, want := range []string{"Messages.ReceivedAt", "Lanes.WokenAt", "Audit.OccurredAt"} {
		if !got[want] {
			t.Errorf("%s is no commit timestamp", want)
		}
	}
}

func TestChildrenGoWithTheirParent(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	children := 0
	for _, statement := range ddl(ctx, t, emulatortest.Database(t)) {
		if strings.Contains(statement, "INTERLEAVE IN PARENT") {
			children++
			if !strings.Contains(statement, "ON DELETE CASCADE") {
				t.Errorf("row deletion would fail for the parent of: %s", statement)
			}
		}
	}
	if children == 0 {
		t.Error("saw no child table")
	}
}
