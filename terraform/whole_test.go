package terraform

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// made is a resource as terraform test says it, after an apply.
type made struct {
	Address string         `json:"address"`
	Type    string         `json:"type"`
	Values  map[string]any `json:"values"`
}

type modules struct {
	Resources []made    `json:"resources"`
	Children  []modules `json:"child_modules"`
}

func (m modules) all() []made {
	all := m.Resources
	for _, child := range m.Children {
		all = append(all, child.all()...)
	}
	return all
}

func (r made) text(name string) string {
	s, _ := r.Values[name].(string)
	return s
}

// block returns the attributes of a block that there is once; without the block, none.
func block(t *testing.T, values map[string]any, name string) map[string]any {
	t.Helper()
	list, _ := values[name].([]any)
	if len(list) > 1 {
		t.Fatalf("there are %d blocks %s", len(list), name)
	}
	for _, one := range list {
		return one.(map[string]any)
	}
	return nil
}

func table(t *testing.T, name string) [][]string {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(read(t, name))).ReadAll()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return rows[1:]
}

// differ says which lines the list in a file lacks, and which it has too many.
func differ(t *testing.T, file string, got []string) {
	t.Helper()
	var want []string
	for _, row := range table(t, file) {
		want = append(want, strings.Join(row, " | "))
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("%s lacks what the module makes:\n%s", file, line)
		}
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("%s has what the module does not make:\n%s", file, line)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s has %d lines, the module makes %d", file, len(want), len(got))
	}
}

func TestAPlanOfTheWhole(t *testing.T) {
	needTerraform(t)
	dir := copied(t, nil)
	prepare(t, dir)
	out, ok := run(t, dir, "test", "-json", "-verbose", "-filter=tests/whole.tftest.hcl")
	if !ok {
		t.Fatal(out)
	}
	var all []made
	for line := range strings.Lines(out) {
		var event struct {
			Type  string `json:"type"`
			State struct {
				Root modules `json:"root_module"`
			} `json:"test_state"`
		}
		if json.Unmarshal([]byte(line), &event) == nil && event.Type == "test_state" {
			all = append(all, event.State.Root.all()...)
		}
	}
	if len(all) < 50 {
		t.Fatalf("terraform test says %d resources only", len(all))
	}
	t.Run("grants", func(t *testing.T) { grants(t, all) })
	t.Run("alerts", func(t *testing.T) { policies(t, all) })
	t.Run("dashboard", func(t *testing.T) { dashboard(t, all) })
}

// What a grant is on: the first of these that it has.
var onWhat = []string{"bucket", "topic", "subscription", "secret_id", "database", "repository", "crypto_key_id", "service_account_id", "name", "project"}

func grants(t *testing.T, all []made) {
	var got []string
	for _, r := range all {
		switch {
		case r.Type == "google_project_iam_custom_role":
			var permissions []string
			for _, p := range r.Values["permissions"].([]any) {
				permissions = append(permissions, p.(string))
			}
			slices.Sort(permissions)
			got = append(got, strings.Join([]string{r.Address, "", strings.Join(permissions, " "), "", ""}, " | "))
		case strings.Contains(r.Type, "_iam_"):
			on := ""
			for _, name := range onWhat {
				if on == "" {
					on = r.text(name)
				}
			}
			condition, _ := block(t, r.Values, "condition")["expression"].(string)
			got = append(got, strings.Join([]string{r.Address, on, r.text("role"), r.text("member"), condition}, " | "))
		}
	}
	differ(t, "tests/testdata/grants.csv", got)
}

var (
	anyResource = regexp.MustCompile(`(?ms)^\s*resource\s+"?([a-z0-9_]+)"?\s+"?([\w-]+)"?\s*\{(.*?)^\}`)
	indexed     = regexp.MustCompile(`\[.*\]$`)
	decides     = regexp.MustCompile(`(?m)^\s*(?:role|member)\s*=.*(?:\?|\bif\b)`)
	lists       = regexp.MustCompile(`_(acl|access_control|iam_policy|iam_binding)$`)
)

// A grant that no input of tests/whole.tftest.hcl makes would not be in that test: each resource must be in its list, and
// no grant decides by an input whom it lets in to what.
func TestEachGrantIsOneOfTheList(t *testing.T) {
	listed, seen := map[string]bool{}, map[string]bool{}
	for _, row := range table(t, "tests/testdata/grants.csv") {
		listed[indexed.ReplaceAllString(row[0], "")] = true
	}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if strings.HasSuffix(name, ".tf.json") {
			t.Errorf("%s is in a form that is not read here", name)
		}
		if !strings.HasSuffix(name, ".tf") {
			return nil
		}
		for _, m := range anyResource.FindAllStringSubmatch(comment.ReplaceAllString(read(t, name), ""), -1) {
			address := m[1] + "." + m[2]
			if lists.MatchString(m[1]) {
				t.Errorf("%s: %s is a grant of another form", name, address)
			}
			if !strings.Contains(m[1], "_iam_") {
				continue
			}
			seen[address] = true
			if !listed[address] || strings.HasPrefix(filepath.ToSlash(name), "examples/") {
				t.Errorf("%s: %s is not in tests/testdata/grants.csv", name, address)
			}
			if decides.MatchString(m[3]) {
				t.Errorf("%s: %s depends on an input", name, address)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for address := range listed {
		if !seen[address] {
			t.Errorf("tests/testdata/grants.csv has %s, which no file has", address)
		}
	}
}

// series is what is known of a metric by its name in PromQL.
type series struct {
	labels []string
	scope  []string // one of these labels says whose it is
	dies   bool     // with the process that counts
}

func knownSeries(t *testing.T) map[string]series {
	t.Helper()
	known := map[string]series{}
	for _, row := range table(t, "tests/testdata/google-metrics.csv") {
		for _, link := range []string{row[2], row[5]} {
			if !strings.HasPrefix(link, "https://cloud.google.com/monitoring/api/") {
				t.Errorf("%s is not documented by Google at %s", row[0], link)
			}
		}
		service, rest, _ := strings.Cut(row[0], "/")
		name := strings.ReplaceAll(service, ".", "_") + ":" + strings.ReplaceAll(rest, "/", "_")
		// monitored_resource: https://cloud.google.com/monitoring/promql/promql-mapping
		labels := append(strings.Fields(row[3]+" "+row[4]), "monitored_resource")
		known[name] = series{labels: labels, scope: []string{"subscription_id", "service_name"}}
	}
	row := regexp.MustCompile("(?m)^\\| `(inbox_\\w+)` \\| (\\w+) \\| [^|]* \\| ([^|]*) \\|")
	for _, m := range row.FindAllStringSubmatch(read(t, "../docs/metrics.md"), -1) {
		s := series{scope: []string{"consumer"}, dies: m[2] != "gauge"}
		for _, label := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(m[3], -1) {
			s.labels = append(s.labels, label[1])
		}
		if m[2] != "histogram" {
			known[m[1]] = s
			continue
		}
		known[m[1]+"_count"], known[m[1]+"_sum"] = s, s
		s.labels = append(slices.Clone(s.labels), "le")
		known[m[1]+"_bucket"] = s
	}
	if len(known) < 30 {
		t.Fatalf("found %d metrics only", len(known))
	}
	return known
}

var (
	quoted    = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	selector  = regexp.MustCompile(`([a-zA-Z_:][\w:]*)\{([^{}]*)\}`)
	matcher   = regexp.MustCompile(`^\s*(\w+)\s*(?:=~|!~|!=|=)\s*""\s*$`)
	grouping  = regexp.MustCompile(`\bby\s*\(([^()]*)\)\s*(\(?)`)
	word      = regexp.MustCompile(`[a-zA-Z_:][\w:]*`)
	duration  = regexp.MustCompile(`\[(\w+)\]`)
	threshold = regexp.MustCompile(`\S\s*(>=|<=|==|!=|>|<)\s*([\d.]+)$`)
	functions = strings.Fields("sum max min avg rate increase absent vector histogram_quantile or and unless")
)

// closing returns the length of text up to the parenthesis that closes its first.
func closing(text string) int {
	depth := 0
	for i, r := range text {
		switch r {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(text)
}

// examine finds what is wrong with the metrics and labels of a query, and returns the metrics of it.
func examine(t *testing.T, where, query string, known map[string]series) (metrics []string) {
	t.Helper()
	text := quoted.ReplaceAllString(query, `""`)
	for _, m := range selector.FindAllStringSubmatch(text, -1) {
		s, ok := known[m[1]]
		if !ok {
			t.Errorf("%s: nobody knows a metric %s", where, m[1])
		}
		metrics = append(metrics, m[1])
		scoped := false
		for _, one := range strings.Split(m[2], ",") {
			label := matcher.FindStringSubmatch(one)
			if label == nil || ok && !slices.Contains(s.labels, label[1]) {
				t.Errorf("%s: %s has no label as in %q; it has %v", where, m[1], one, s.labels)
			} else if slices.Contains(s.scope, label[1]) {
				scoped = true
			}
		}
		if !scoped {
			t.Errorf("%s: %s is that of every inbox, none of %v is selected", where, m[1], s.scope)
		}
	}
	for _, m := range grouping.FindAllStringSubmatchIndex(text, -1) {
		if m[4] == m[5] {
			t.Errorf("%s: write `sum by (label) (...)`, so that the labels can be compared: %s", where, query)
			continue
		}
		of := text[m[4]:]
		for _, in := range selector.FindAllStringSubmatch(of[:closing(of)], -1) {
			for label := range strings.SplitSeq(text[m[2]:m[3]], ",") {
				if label = strings.TrimSpace(label); !slices.Contains(known[in[1]].labels, label) {
					t.Errorf("%s: %s has no label %q to group by; it has %v", where, in[1], label, known[in[1]].labels)
				}
			}
		}
	}
	rest := grouping.ReplaceAllString(duration.ReplaceAllString(selector.ReplaceAllString(text, ""), ""), "(")
	for _, name := range word.FindAllString(rest, -1) {
		if !slices.Contains(functions, name) {
			t.Errorf("%s: %q is no function that is known here, or a metric without a selector", where, name)
		}
	}
	if len(metrics) == 0 {
		t.Errorf("%s: no metric is in %s", where, query)
	}
	return metrics
}

// branches are what `or` joins, outside of all parentheses.
func branches(query string) (all []string) {
	depth, quote, from := 0, false, 0
	for i := range len(query) {
		switch query[i] {
		case '"':
			quote = !quote
		case '(', '{', '[':
			depth++
		case ')', '}', ']':
			depth--
		}
		if depth == 0 && !quote && strings.HasPrefix(query[i:], " or ") {
			all, from = append(all, query[from:i]), i+len(" or ")
		}
	}
	return append(all, query[from:])
}

// Google counts what it refused or lost, but not what a publisher sent twice under one identity: that is known in receive
// alone. These alerts may have one such branch beside others that rely on no process.
var mayCount = map[string]bool{"redeliveries": true}

func policies(t *testing.T, all []made) {
	known := knownSeries(t)
	rows := map[string]string{}
	for _, r := range all {
		if r.Type != "google_monitoring_alert_policy" {
			continue
		}
		condition := block(t, r.Values, "conditions")
		name, _ := condition["display_name"].(string)
		promQL := block(t, condition, "condition_prometheus_query_language")
		query, _ := promQL["query"].(string)
		if enabled, set := r.Values["enabled"].(bool); set && !enabled {
			t.Errorf("%s is not enabled", r.Address)
		}
		var fires []string
		counting := 0
		for _, branch := range branches(query) {
			metrics := examine(t, name, branch, known)
			// A process that has ended, or cannot export, counts nothing.
			if slices.ContainsFunc(metrics, func(m string) bool { return known[m].dies }) {
				counting++
				if !mayCount[name] {
					t.Errorf("%s relies on what a process counts: %s", name, branch)
				}
			}
			what := "absent"
			if m := threshold.FindStringSubmatch(branch); m != nil {
				what = m[1] + " " + m[2]
			} else if !strings.HasPrefix(branch, "absent(") || closing(branch) != len(branch) {
				t.Errorf("%s compares with nothing: %s", name, branch)
			}
			var windows []string
			for _, m := range duration.FindAllStringSubmatch(branch, -1) {
				windows = append(windows, m[1])
			}
			if windows = slices.Compact(windows); len(windows) > 0 {
				what += " over " + strings.Join(windows, " and ")
			}
			fires = append(fires, what)
		}
		if counting > 1 || counting == len(fires) {
			t.Errorf("%s relies on what a process counts in %d of %d branches", name, counting, len(fires))
		}
		row := strings.Join([]string{name, r.text("severity"), fmt.Sprint(promQL["duration"]), strings.Join(fires, " or ")}, " | ")
		if before, ok := rows[name]; ok && before != row {
			t.Errorf("%s is %q and %q", name, before, row)
		}
		rows[name] = row
	}
	var got []string
	for _, row := range rows {
		got = append(got, row)
	}
	differ(t, "tests/testdata/alerts.csv", got)
}

func dashboard(t *testing.T, all []made) {
	known := knownSeries(t)
	queries := 0
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, one := range v {
				walk(one)
			}
		case map[string]any:
			for name, one := range v {
				if query, ok := one.(string); ok && name == "prometheusQuery" {
					queries++
					examine(t, "the dashboard", query, known)
				}
				walk(one)
			}
		}
	}
	for _, r := range all {
		if r.Type == "google_monitoring_dashboard" {
			var content any
			if err := json.Unmarshal([]byte(r.text("dashboard_json")), &content); err != nil {
				t.Fatal(err)
			}
			walk(content)
		}
	}
	if queries < 20 {
		t.Errorf("the dashboard has %d queries only", queries)
	}
}
