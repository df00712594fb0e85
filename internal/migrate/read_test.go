package migrate_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/migrate"
	"github.com/pubsub-inbox/pubsub-inbox/migrations"
)

func files(contents map[string]string) fstest.MapFS {
	m := fstest.MapFS{}
	for name, content := range contents {
		m[name] = &fstest.MapFile{Data: []byte(content)}
	}
	return m
}

func TestReadSortsAndParses(t *testing.T) {
	t.Parallel()
	got, err := migrate.Read(t.Context(), files(map[string]string{
		"000003_move_rows.sql":     "UPDATE A SET B = 1 WHERE B IS NULL;\nDELETE FROM A WHERE B = 2",
		"000001_create_a.sql":      "-- Purpose: none; not even this\nCREATE TABLE A (\n  B INT64, -- a comment\n) PRIMARY KEY (B);\n\nCREATE INDEX I ON A (B);\n",
		"000002_seed_a.sql":        "INSERT INTO A (B) VALUES (1);",
		"schema.sql":               "not even SQL",
		"notes.txt":                "nor this",
		"000004_rename_all_it.sql": "ALTER TABLE A ADD COLUMN `C;` STRING(MAX);",
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := []migrate.Migration{
		{Version: 1, File: "000001_create_a.sql", Kind: migrate.DDL, Statements: []string{"CREATE TABLE A (B INT64,) PRIMARY KEY (B)", "CREATE INDEX I ON A (B)"}},
		{Version: 2, File: "000002_seed_a.sql", Kind: migrate.DML, Statements: []string{"INSERT INTO A (B) VALUES (1)"}},
		{Version: 3, File: "000003_move_rows.sql", Kind: migrate.PartitionedDML, Statements: []string{"UPDATE A SET B = 1 WHERE B IS NULL", "DELETE FROM A WHERE B = 2"}},
		{Version: 4, File: "000004_rename_all_it.sql", Kind: migrate.DDL, Statements: []string{"ALTER TABLE A ADD COLUMN `C;` STRING(MAX)"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("migrations (-want +got):\n%s", diff)
	}
}

// unreadable is a folder with a file that is listed and cannot be read.
type unreadable struct{ fstest.MapFS }

func (u unreadable) Open(name string) (fs.File, error) {
	if strings.HasPrefix(name, "000002") {
		return nil, errors.New("the disk is broken")
	}
	return u.MapFS.Open(name)
}

func (u unreadable) ReadFile(name string) ([]byte, error) {
	if strings.HasPrefix(name, "000002") {
		return nil, errors.New("the disk is broken")
	}
	return u.MapFS.ReadFile(name)
}

func TestReadRefusesWhatCannotBeAppliedForSure(t *testing.T) {
	t.Parallel()
	const table = "CREATE TABLE A (B INT64) PRIMARY KEY (B)"
	for name, c := range map[string]struct {
		files fs.FS
		want  string
	}{
		"nothing":              {files(nil), "no migrations"},
		"a gap":                {files(map[string]string{"000001_create_a.sql": table, "000003_create_b.sql": table}), "number 000002 is missing"},
		"no first":             {files(map[string]string{"000002_create_b.sql": table}), "number 000001 is missing"},
		"equal numbers":        {files(map[string]string{"000001_create_a.sql": table, "000001_create_b.sql": table}), "the same number"},
		"five digits":          {files(map[string]string{"00001_create_a.sql": table}), "NNNNNN_verb_noun"},
		"no noun":              {files(map[string]string{"000001_create.sql": table}), "NNNNNN_verb_noun"},
		"upper case":           {files(map[string]string{"000001_Create_A.sql": table}), "NNNNNN_verb_noun"},
		"an .up file":          {files(map[string]string{"000001_create_a.up.sql": table}), "NNNNNN_verb_noun"},
		"an empty file":        {files(map[string]string{"000001_create_a.sql": "-- nothing\n"}), "no statement"},
		"DDL and INSERT":       {files(map[string]string{"000001_create_a.sql": table + "; INSERT INTO A (B) VALUES (1)"}), "must not be"},
		"INSERT and UPDATE":    {files(map[string]string{"000001_fill_a.sql": "INSERT INTO A (B) VALUES (1); UPDATE A SET B = 1 WHERE true"}), "must not be"},
		"a query":              {files(map[string]string{"000001_select_a.sql": "SELECT 1"}), "neither DDL nor"},
		"a hint":               {files(map[string]string{"000001_fill_a.sql": "@{PDML_MAX_PARALLELISM=1} DELETE FROM A WHERE true"}), "neither DDL nor"},
		"an open quote":        {files(map[string]string{"000001_create_a.sql": table + " 'abc"}), "parse"},
		"a file that is there": {unreadable{files(map[string]string{"000001_create_a.sql": table, "000002_create_b.sql": table})}, "the disk is broken"},
	} {
		if _, err := migrate.Read(t.Context(), c.files); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, c.want)
		}
	}
}

func TestMigrationsAreNumberedAndSayWhatTheyCost(t *testing.T) {
	t.Parallel()
	all, err := migrate.Read(t.Context(), migrations.Files)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		body, err := fs.ReadFile(migrations.Files, m.File)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"-- Purpose: ", "-- Cost: ", "-- Back out: "} {
			if !strings.Contains("\n"+string(body), "\n"+line) {
				t.Errorf("%s has no line that begins with %q", m.File, line)
			}
		}
	}
}
