package docs

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/config"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/httpengine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/routing/expr"
)

const configuration = "configuration.md"

func TestEverySettingIsDocumentedAndEveryDocumentedOneExists(t *testing.T) {
	known := settings(t, "", func(inner string) string { return inner })
	if !slices.Contains(known, "routes[].retry.min") || !slices.Contains(known, "engines.NAME.auth.tokenEnv") {
		t.Fatalf("the settings were not found as config.Parse names them: %v", known)
	}
	documented := map[string]string{} // to the default
	for _, row := range rows(t, configuration) {
		name := strings.Trim(row[0], "`")
		top, _, _ := strings.Cut(strings.ReplaceAll(name, "[]", ""), ".")
		if len(row) == 4 && slices.Contains([]string{"consumer", "engines", "routes", "retention", "relay", "claimCheck", "traceAttributes"}, top) {
			documented[name] = row[2]
		}
	}
	for _, setting := range known {
		if _, ok := documented[setting]; !ok {
			t.Errorf("%s: no table has a row for the setting `%s`", configuration, setting)
		}
	}
	for name := range documented {
		if !slices.Contains(known, name) {
			t.Errorf("%s: there is no setting `%s`", configuration, name)
		}
	}
	for name, want := range defaults() {
		if got := strings.Trim(documented[name], "`"); got != want && !sameDuration(t, got, want) {
			t.Errorf("%s: the default of `%s` is %s, documented is %s", configuration, name, want, got)
		}
	}
}

// settings asks config.Parse for the settings below a place: it lists them where it is given one that is none. around
// puts a value at that place.
func settings(t *testing.T, place string, around func(string) string) []string {
	t.Helper()
	none := strings.Repeat("q", 40) // like no setting, so that no single one is suggested
	list := regexp.MustCompile(`there is no setting "` + none + `" here; there are (.*)`)
	found := func(text string) []string {
		_, _, err := config.Parse("f.yaml", []byte(text))
		var faults config.Faults
		errors.As(err, &faults)
		for _, fault := range faults {
			if m := list.FindStringSubmatch(fault.Message); m != nil {
				return strings.Split(m[1], ", ")
			}
		}
		return nil
	}
	var all []string
	for _, name := range found(around("{" + none + ": 0}")) {
		path := name
		if place != "" {
			path = place + "." + name
		}
		all = append(all, path)
		for _, form := range []struct{ suffix, before, after string }{{"", "", ""}, {"[]", "[", "]"}, {".NAME", "{NAME: ", "}"}} {
			inner := func(value string) string {
				return around("{" + name + ": " + form.before + value + form.after + "}")
			}
			// As NAME is no setting either, a map of known settings is not taken for one of free names.
			if below := found(inner("{" + none + ": 0}")); below != nil {
				all = append(all, settings(t, path+form.suffix, inner)...)
				break
			}
		}
	}
	return all
}

func sameDuration(t *testing.T, a, b string) bool {
	t.Helper()
	read := func(text string) (time.Duration, error) {
		days, rest, ok := strings.Cut(text, "d")
		n, err := strconv.Atoi(days)
		if !ok || err != nil {
			return time.ParseDuration(text)
		}
		more, err := time.ParseDuration("0s" + rest)
		return time.Duration(n)*24*time.Hour + more, err
	}
	x, errA := read(a)
	y, errB := read(b)
	return errA == nil && errB == nil && x == y
}

func defaults() map[string]string {
	d, e, r := config.Default(), config.DefaultEngine(), config.DefaultRoute()
	return map[string]string{
		"claimCheck.threshold":            fmt.Sprintf("%dMiB", d.ClaimCheck.Threshold>>20),
		"routes[].claim.maxBytes":         fmt.Sprintf("%dMiB", config.DefaultClaim().MaxBytes>>20),
		"routes[].claim.read":             strconv.FormatBool(config.DefaultClaim().Read),
		"routes[].deadLetter":             string(r.DeadLetter),
		"engines.NAME.timeout":            config.Duration(e.Timeout),
		"engines.NAME.idempotent":         strconv.FormatBool(e.Idempotent),
		"engines.NAME.probe":              strconv.FormatBool(e.Probe),
		"engines.NAME.auth.kind":          e.Auth.Kind,
		"engines.NAME.maxAnswerBytes":     strconv.FormatInt(e.MaxAnswerBytes, 10),
		"routes[].scope":                  string(r.Scope),
		"routes[].order":                  string(r.Order),
		"routes[].parked":                 string(r.Parked),
		"routes[].patience":               config.Duration(r.Patience),
		"routes[].retry.min":              config.Duration(r.Retry.Min),
		"routes[].retry.max":              config.Duration(r.Retry.Max),
		"retention.processed":             config.Duration(d.Retention.Processed),
		"retention.payload":               config.Duration(d.Retention.Payload),
		"retention.waysBack.subscription": config.Duration(d.Retention.WaysBack.Subscription),
		"retention.waysBack.deadLetter":   config.Duration(d.Retention.WaysBack.DeadLetter),
		"retention.waysBack.replay":       config.Duration(d.Retention.WaysBack.Replay),
		"relay.budget":                    config.Duration(d.Relay.Budget),
		"relay.poll":                      config.Duration(d.Relay.Poll),
		"relay.parallel":                  strconv.Itoa(d.Relay.Parallel),
		"relay.batch":                     strconv.Itoa(d.Relay.Batch),
		"relay.lease":                     config.Duration(d.Relay.Lease),
		"relay.poison.failures":           strconv.Itoa(d.Relay.Poison.Failures),
		"relay.poison.over":               config.Duration(d.Relay.Poison.Over),
		"relay.lostWorkers":               strconv.Itoa(d.Relay.LostWorkers),
		"relay.breaker.failures":          strconv.Itoa(d.Relay.Breaker.Failures),
	}
}

func TestEveryEnvironmentVariableIsDocumented(t *testing.T) {
	names := environment(t)
	if !slices.Contains(names, "SPANNER_DATABASE") || !slices.Contains(names, "INBOX_CONFIG_FILE") {
		t.Fatalf("the constants of package config were not found: %v", names)
	}
	var documented []string
	for _, row := range rows(t, configuration) {
		for _, name := range strings.Split(row[0], ", ") {
			documented = append(documented, strings.Trim(name, "`"))
		}
	}
	for _, name := range names {
		if !slices.Contains(documented, name) {
			t.Errorf("%s: no table has a row for the environment variable `%s`", configuration, name)
		}
	}
}

// environment returns the values of package config's constants Env...: what Go has no reflection for.
func environment(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, file := range glob(t, "../internal/config/*.go") {
		ast.Inspect(parse(t, file), func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			for i, name := range spec.Names {
				if !strings.HasPrefix(name.Name, "Env") || i >= len(spec.Values) {
					continue
				}
				if value, ok := spec.Values[i].(*ast.BasicLit); ok && value.Kind == token.STRING {
					text, _ := strconv.Unquote(value.Value)
					names = append(names, text)
				}
			}
			return true
		})
	}
	return names
}

func TestTheConfigurationsInTheDocumentsAreAccepted(t *testing.T) {
	checked := 0
	for _, document := range documents(t) {
		for _, block := range blocks(t, document, "yaml") {
			text := block.text
			switch {
			case strings.HasPrefix(text, "consumer:"):
			case document == configuration && strings.HasPrefix(text, "- name:"):
				text = "consumer: c\nengines: {work-orders: {kind: http, url: 'https://e.example', idempotent: true}}\nroutes:\n" + text
			default:
				continue
			}
			checked++
			_, warnings, err := config.Parse(document, []byte(text))
			if err != nil {
				t.Errorf("the block at %s:%d is refused, with lines counted from its first:\n%v", document, block.line, err)
			}
			for _, w := range warnings {
				t.Errorf("the block at %s:%d is no good example: %s", document, block.line, w)
			}
		}
	}
	if checked < 3 {
		t.Errorf("only %d configurations were found in the documents", checked)
	}
}

func TestTheExpressionsInTheDocumentsHaveTheValuesThatStandBesideThem(t *testing.T) {
	attributes := map[string]string{"eventType": "OrderShipped", "eventId": "e-1"}
	uses := []expr.Use{expr.ForMatch, expr.ForText, expr.ForKey, expr.ForSequence, expr.ForVariable}
	checked := 0
	for _, row := range rows(t, configuration) {
		use := expr.Use(row[0])
		if len(row) != 4 || !slices.Contains(uses, use) || !strings.HasPrefix(row[1], "`") {
			continue
		}
		checked++
		text, payload, want := strings.Trim(row[1], "`"), strings.Trim(row[2], "`"), strings.Trim(row[3], "`")
		if row[3] == "empty" {
			want = ""
		}
		program, err := expr.Compile(text, use)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		in := expr.NewInput(expr.Message{ID: "1", Subscription: "projects/p/subscriptions/s"}, attributes, []byte(payload))
		if got := evaluate(program, use, in); got != want {
			t.Errorf("%s %s of %s: the value is %q, documented is %q", use, text, payload, got, want)
		}
	}
	if checked < 10 {
		t.Errorf("only %d expressions were found", checked)
	}
}

func evaluate(p *expr.Program, use expr.Use, in *expr.Input) string {
	var value string
	var err error
	switch use {
	case expr.ForMatch:
		value = strconv.FormatBool(p.Bool(in))
	case expr.ForText:
		value, err = p.Text(in)
	case expr.ForKey:
		value, err = p.Key(in)
	case expr.ForSequence:
		var n int64
		n, err = p.Sequence(in)
		value = strconv.FormatInt(n, 10)
	default:
		var raw []byte
		raw, err = p.JSON(in)
		value = string(raw)
	}
	if err != nil {
		return "fails: " + err.Error()
	}
	return value
}

func TestTheRequestInTheDocumentsIsTheOneThatIsSent(t *testing.T) {
	found := blocks(t, configuration, "http")
	if len(found) != 1 {
		t.Fatalf("%d http blocks, want 1", len(found))
	}
	want, wantBody := request(t, strings.NewReader(strings.ReplaceAll(found[0].text, "\n", "\r\n")))
	if want.Header.Get("Authorization") == "" {
		t.Error("the documented request has no Authorization")
	}

	sent := make(chan string, 1)
	here, there := net.Pipe()
	go func() {
		defer there.Close()
		r, err := http.ReadRequest(bufio.NewReader(there))
		if err != nil {
			sent <- err.Error()
			return
		}
		body, _ := io.ReadAll(r.Body)
		sent <- dump(r, string(body))
		_, _ = io.WriteString(there, "HTTP/1.1 204 No Content\r\n\r\n")
	}()
	e, err := httpengine.New(httpengine.Config{
		Name: "work-orders", URL: "http://work-orders.example/messages", Idempotent: true, Source: "urn:pubsub-inbox:work-order-service",
		Auth: httpengine.Auth{Kind: httpengine.AuthBearer, Token: httpengine.Secret(strings.TrimPrefix(want.Header.Get("Authorization"), "Bearer "))},
	}, httpengine.Deps{Dial: func(context.Context, string, string) (net.Conn, error) { return here, nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	result := e.Correlate(t.Context(), engine.Delivery{
		InboxID: want.Header.Get("Ce-Id"), Attempt: 1, Message: "WorkOrderCompleted", Key: "WO-4711",
		PublishedAt: time.Date(2026, 3, 1, 10, 0, 0, 500_000_000, time.UTC),
		TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		Variables:   map[string]json.RawMessage{"completedItems": json.RawMessage("12")},
	})
	if result.Verdict != engine.Correlated {
		t.Fatalf("got %+v", result)
	}
	if diff := cmp.Diff(dump(want, wantBody), <-sent); diff != "" {
		t.Errorf("the request differs from the documented one (-documented +sent):\n%s", diff)
	}
}

func request(t *testing.T, from io.Reader) (*http.Request, string) {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(from))
	if err != nil {
		t.Fatalf("the documented request cannot be read: %v", err)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatalf("the documented body is not of the documented length: %v", err)
	}
	return r, string(body)
}

func dump(r *http.Request, body string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s\n", r.Method, r.URL.Path, r.Host)
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		fmt.Fprintf(&b, "%s: %s\n", name, r.Header.Get(name))
	}
	return b.String() + body
}

func TestTheVerdictsAndProblemsInTheDocumentsAreThoseThatExist(t *testing.T) {
	mentioned := map[string]bool{}
	for _, row := range rows(t, configuration) {
		for _, name := range strings.Split(row[0], ", ") {
			mentioned[strings.Trim(name, "`")] = true
		}
		if len(row) != 2 {
			continue
		}
		if _, verdict, ok := strings.Cut(row[1], "`"); ok { // of a problem type, or of a status
			verdict, _, _ = strings.Cut(verdict, "`")
			if v, known := httpengine.Problem("urn:pubsub-inbox:problem:" + strings.Trim(row[0], "`")); known && string(v) != strings.ToUpper(verdict) {
				t.Errorf("the problem %s stands for %s, documented is %s", row[0], v, verdict)
			}
		}
	}
	for _, v := range []engine.Verdict{engine.Correlated, engine.Duplicate, engine.HandedOver, engine.NotWaiting, engine.AlreadyThrough,
		engine.Ambiguous, engine.Vanished, engine.Rejected, engine.RetryAfter, engine.Technical, engine.Throttled, engine.Unauthorised,
		engine.Unknown, engine.Drop} {
		if !mentioned[strings.ToLower(string(v))] {
			t.Errorf("%s: the verdict `%s` has no row", configuration, strings.ToLower(string(v)))
		}
	}
	for _, p := range []string{"ambiguous", "already-through", "not-waiting", "vanished", "rejected", "retry-later", "duplicate", "drop"} {
		if _, ok := httpengine.Problem(httpengine.ProblemURN + p); !ok || !mentioned[p] {
			t.Errorf("%s: the problem `%s` has no row, or does not exist", configuration, p)
		}
	}
}

var link = regexp.MustCompile(`\[([^\]]*)\]\(([^)\s]+)\)`)

func TestRelativeLinksLeadSomewhere(t *testing.T) {
	for _, document := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(prose(t, document), -1) {
			text, target := m[1], m[2]
			if u, err := url.Parse(target); err != nil || u.IsAbs() {
				if err != nil {
					t.Errorf("%s: %s is no link: %v", document, target, err)
				}
				continue
			}
			path, anchor, _ := strings.Cut(target, "#")
			file := filepath.Join(filepath.Dir(document), path)
			if path == "" {
				file = document
			}
			if filepath.IsAbs(path) {
				t.Errorf("%s: %s is a path of one machine", document, path)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", document, target)
				continue
			}
			if anchor != "" && strings.HasSuffix(file, ".md") && !slices.Contains(anchors(t, file), anchor) {
				t.Errorf("%s: %s has no heading #%s", document, file, anchor)
			}
			if strings.HasSuffix(file, ".go") {
				checkNames(t, document, text, file)
			}
		}
	}
}

var goName = regexp.MustCompile("`([A-Za-z]+(?:\\.[A-Za-z]+)?)`")

// checkNames sees to it that the names of a link's text are declared in the file that it leads to. A name that is a
// folder's or a package's is none of the file.
func checkNames(t *testing.T, document, text, file string) {
	t.Helper()
	declared := declarations(t, file)
	for _, m := range goName.FindAllStringSubmatch(text, -1) {
		name := m[1]
		if name == filepath.Base(filepath.Dir(file)) || name == filepath.Base(file) {
			continue
		}
		if !declared[name] {
			t.Errorf("%s: `%s` is not declared in %s", document, name, file)
		}
	}
}

// declarations returns the functions, Type.Methods and types of a file.
func declarations(t *testing.T, file string) map[string]bool {
	t.Helper()
	declared := map[string]bool{}
	for _, d := range parse(t, file).Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				of := d.Recv.List[0].Type
				if star, ok := of.(*ast.StarExpr); ok {
					of = star.X
				}
				if id, ok := of.(*ast.Ident); ok {
					name = id.Name + "." + name
				}
			}
			declared[name] = true
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if s, ok := spec.(*ast.TypeSpec); ok {
					declared[s.Name.Name] = true
				}
			}
		}
	}
	return declared
}

func TestTheColumnsInTheDesignAreThoseOfTheSchema(t *testing.T) {
	schema, err := os.ReadFile("../migrations/schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	design, err := os.ReadFile("design.md")
	if err != nil {
		t.Fatal(err)
	}
	table := regexp.MustCompile(`(?s)CREATE TABLE (\w+) \((.*?)\n\) PRIMARY KEY`)
	column := regexp.MustCompile(`(?m)^\s+([A-Z]\w+) (?:STRING|BYTES|INT64|BOOL|TIMESTAMP|JSON)`)
	tables := table.FindAllStringSubmatch(string(schema), -1)
	if len(tables) < 8 {
		t.Fatalf("found %d tables in the schema, want 8 at least", len(tables))
	}
	for _, m := range tables {
		name := m[1]
		_, section, ok := strings.Cut(string(design), "\n### "+name+"\n")
		if !ok {
			t.Errorf("design.md has no section %s", name)
			continue
		}
		section, _, _ = strings.Cut(section, "\n### ")
		if name != "Messages" && name != "Lanes" {
			continue // the others are described as a whole
		}
		for _, c := range column.FindAllStringSubmatch(m[2], -1) {
			if !strings.Contains(section, "`"+c[1]+"`") {
				t.Errorf("design.md: the section %s does not name `%s`", name, c[1])
			}
		}
	}
}

func documents(t *testing.T) []string {
	t.Helper()
	all := glob(t, "*.md")
	if _, err := os.Stat("../README.md"); !errors.Is(err, fs.ErrNotExist) {
		all = append(all, "../README.md")
	}
	return all
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no file matches %s: %v", pattern, err)
	}
	return files
}

func parse(t *testing.T, file string) *ast.File {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

type block struct {
	line int
	text string
}

// blocks returns the fenced blocks of a language, with the lines that they begin in.
func blocks(t *testing.T, document, language string) []block {
	t.Helper()
	var found []block
	in := false
	for i, line := range lines(t, document) {
		switch {
		case in && strings.HasPrefix(line, "```"):
			in = false
		case in:
			last := &found[len(found)-1]
			last.text += line + "\n"
		case line == "```"+language:
			in = true
			found = append(found, block{line: i + 2})
		}
	}
	for i := range found {
		if language == "http" {
			found[i].text = strings.TrimSuffix(found[i].text, "\n") // a body has no line end of its own
		}
	}
	return found
}

// prose returns a document without its blocks.
func prose(t *testing.T, document string) string {
	t.Helper()
	var b strings.Builder
	fenced := false
	for _, line := range lines(t, document) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
			continue
		}
		if !fenced && !strings.HasPrefix(line, "    ") {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// rows returns the cells of all table rows of a document.
func rows(t *testing.T, document string) [][]string {
	t.Helper()
	var all [][]string
	for line := range strings.Lines(prose(t, document)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "| ") || !strings.HasSuffix(line, " |") {
			continue
		}
		cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "| "), " |"), " | ")
		all = append(all, cells)
	}
	return all
}

// anchors returns the headings of a document as GitHub makes anchors of them.
func anchors(t *testing.T, document string) []string {
	t.Helper()
	var all []string
	for line := range strings.Lines(prose(t, document)) {
		title := strings.TrimLeft(line, "#")
		if title == line || !strings.HasPrefix(title, " ") {
			continue
		}
		title = strings.ToLower(strings.TrimSpace(title))
		title = regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(title, "")
		all = append(all, strings.ReplaceAll(title, " ", "-"))
	}
	return all
}

func lines(t *testing.T, document string) []string {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(text), "\n")
}
