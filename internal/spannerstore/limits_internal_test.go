package spannerstore

import (
	"errors"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// stringColumns are the STRING columns of a table, with their widths, as the schema has them.
func stringColumns(t *testing.T, table string) map[string]int {
	t.Helper()
	schema, err := os.ReadFile("../../migrations/schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(schema), "CREATE TABLE "+table+" (")
	if !ok {
		t.Fatalf("no table %s", table)
	}
	rest, _, _ = strings.Cut(rest, "PRIMARY KEY")
	columns := map[string]int{}
	for _, found := range regexp.MustCompile(`(?m)^  (\w+) STRING\((\d+)\)`).FindAllStringSubmatch(rest, -1) {
		if columns[found[1]], err = strconv.Atoi(found[2]); err != nil {
			t.Fatal(err)
		}
	}
	return columns
}

func TestEachTextIsCheckedByTheWidthOfItsColumn(t *testing.T) {
	a := &inbox.Arrival{ContentType: "x", Message: inbox.Message{
		ID: "x", Consumer: "x", Scope: "x", DedupeKey: "x", TransportKey: "x", Subscription: "x", MessageID: "x", OrderingKey: "x",
		OrderedAt: time.Unix(0, 0), Type: "x", Version: "x", Route: "x", TenantID: "x", AggregateType: "x", CorrelationID: "x",
		CausationID: "x", TraceParent: "x", LaneID: "x", Key: "x", Status: inbox.Received, Reason: "x", LastErrorMessage: "x",
		ContentSHA256: "x", PayloadSHA256: "x", PayloadLocation: "x", ReplayOf: "x", ConflictsWith: "x",
		Claim: inbox.Object{Bucket: "b", Name: "n", SHA256: "x"},
	}}
	for _, table := range []struct {
		name    string
		columns []string
		row     []any
	}{{"Messages", insertColumns, messageRow(&a.Message, time.Unix(0, 0))}, {"Payloads", payloadColumns, payloadRow(a)}} {
		schema := stringColumns(t, table.name)
		checked := 0
		for i, column := range table.columns {
			width, isText := schema[column]
			if !isText {
				continue
			}
			checked++
			for name, c := range map[string]struct {
				text    string
				refused bool
			}{
				"as wide as the column":          {strings.Repeat("é", width), false},
				"one character more":             {strings.Repeat("é", width+1), true},
				"half a character":               {"\xc3", true},
				"a surrogate in UTF-8's clothes": {"\xed\xa0\x80", true},
			} {
				for _, value := range []any{c.text, spanner.NullString{StringVal: c.text, Valid: true}} {
					row := append([]any(nil), table.row...)
					if _, isString := row[i].(string); isString != isStringValue(value) {
						continue
					}
					row[i] = value
					if err := checkTexts(table.columns, row); errors.Is(err, inbox.ErrRefused) != c.refused {
						t.Errorf("%s.%s, %s: %v", table.name, column, name, err)
					}
				}
			}
			switch row := table.row[i].(type) {
			case string:
			case spanner.NullString:
				if !row.Valid {
					t.Errorf("%s.%s is null here: this test does not see its value", table.name, column)
				}
			default:
				t.Errorf("%s.%s is given as %T, which is not checked", table.name, column, row)
			}
		}
		if checked == 0 {
			t.Errorf("no column of %s was checked", table.name)
		}
	}
	if _, err := insertMutations(a); err != nil {
		t.Error(err)
	}
}

func isStringValue(v any) bool { _, ok := v.(string); return ok }
