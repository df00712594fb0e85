package telemetry

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the table of docs/metrics.md anew")

const document = "../../docs/metrics.md"

const (
	begin = "<!-- Written from internal/telemetry/metric.go by make generate. -->\n"
	end   = "<!-- The end of what is written by make generate. -->\n"
)

// table is the table of record as the document has it.
func table() string {
	var b strings.Builder
	for _, part := range []struct {
		title string
		of    func(Metric) bool
	}{
		{"Receive", func(m Metric) bool { return m.By == byReceive }},
		{"Relay", func(m Metric) bool { return m.By != byReceive && m.By != byReport }},
		{"State of the table", func(m Metric) bool { return m.By == byReport }},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n| metric | kind | unit | labels | meaning | when it moves |\n|---|---|---|---|---|---|\n", part.title)
		for _, m := range Metrics() {
			if part.of(m) {
				unit := m.Unit
				if unit == "" {
					unit = "0 or 1"
				}
				fmt.Fprintf(&b, "| `%s` | %s | %s | `%s` | %s | %s |\n", m.Name, m.Kind, unit, strings.Join(m.Labels, "`, `"), m.Meaning, m.Action)
			}
		}
	}
	return b.String() + "\n"
}

func TestMetricsDocumentIsWhatTheCodeExports(t *testing.T) {
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	got, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s: the marks of what is generated are gone", document)
	}
	want := table()
	if *update {
		if err := os.WriteFile(document, []byte(before+begin+want+end+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s is not what the code exports; run make generate (-code +document):\n%s", document, diff)
	}
}

func TestTheTableIsWellFormed(t *testing.T) {
	name := regexp.MustCompile(`^inbox_[a-z_]+$`)
	seen := map[string]bool{}
	total := 0
	for _, m := range Metrics() {
		if !name.MatchString(m.Name) || seen[m.Name] || m.Meaning == "" || m.Action == "" || m.By == "" || len(m.Labels) == 0 || m.Labels[0] != labelConsumer {
			t.Errorf("the row of %s is incomplete or there twice", m.Name)
		}
		seen[m.Name] = true
		// The suffixes are Prometheus's: nobody adds them later.
		if counts := strings.HasSuffix(m.Name, "_total"); counts != (m.Kind == Counter) {
			t.Errorf("%s: a counter's name, and no other's, ends in _total", m.Name)
		}
		if seconds := strings.HasSuffix(m.Name, "_seconds"); seconds != (m.Unit == "s") {
			t.Errorf("%s: what is in seconds says so", m.Name)
		}
		if m.Unit == "1" {
			t.Errorf("%s: the unit 1 makes a ratio of it for Prometheus", m.Name)
		}
		if (m.Kind == Histogram) != (len(m.buckets) > 0) {
			t.Errorf("%s: a histogram has buckets", m.Name)
		}
		total++
	}
	if total < 30 {
		t.Errorf("the table has %d rows", total)
	}
}
