package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// minimal is the shortest valid configuration; tests replace lines of it.
const minimal = `consumer: orders
engines:
  flow: {kind: http, url: "https://flow.example/messages", idempotent: true}
routes:
  - name: completed
    engine: flow
    message: OrderCompleted
`

// full has one of everything that a test wants to break; it is valid and without warnings.
const full = `consumer: orders
engines:
  flow:
    kind: http
    url: "https://flow.example/messages"
    timeout: 10s
    idempotent: true
    probe: false
    maxAnswerBytes: 4096
    auth: {kind: oidc, audience: "https://flow.example"}
    headers: {X-Source: inbox}
    statuses: {"409": already_through}
routes:
  - name: completed
    match: attributes.eventType == "Completed"
    type: attributes.eventType
    version: attributes.version
    key: payload.orderId
    keySpace: orders
    dedupe: attributes.eventId
    scope: consumer
    order: sequence
    sequence: payload.revision
    engine: flow
    message: OrderCompleted
    variables: {items: payload.items}
    versions: ["1"]
    patience: 24h
    retry: {min: 10s, max: 10m}
    parked: block
retention: {processed: 75d, payload: 14d, waysBack: {subscription: 31d, deadLetter: 31d, replay: 7d}}
relay: {budget: 50s, poll: 1s, parallel: 16, batch: 100, lease: 90s, poison: {failures: 20, over: 24h}, lostWorkers: 5, breaker: {failures: 5}}
`

func lookup(env map[string]string) Lookup {
	return func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}
}

func replace(t *testing.T, text, old, new string) string {
	t.Helper()
	if strings.Count(text, old) != 1 {
		t.Fatalf("%q is %d times in the configuration, want once", old, strings.Count(text, old))
	}
	return strings.Replace(text, old, new, 1)
}

func TestTheExampleIsValidAndWithoutWarnings(t *testing.T) {
	text, err := os.ReadFile("testdata/example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cfg, warnings, err := Parse("testdata/example.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	if len(warnings) > 0 {
		t.Errorf("warnings: %v", warnings)
	}
	var names []string
	for _, route := range cfg.Routes {
		names = append(names, route.Name)
	}
	if diff := cmp.Diff([]string{"work-order-completed", "work-order-revised", "invoice"}, names); diff != "" {
		t.Error(diff)
	}
	route := cfg.Routes[0]
	if diff := cmp.Diff([]string{"1", "1.1"}, route.Versions); diff != "" {
		t.Error(diff)
	}
	if len(route.Variables) != 2 || route.Variables[0].Name != "completedItems" || route.Variables[1].Name != "completionTimestamp" {
		t.Errorf("variables %v are not those of the file, in its order", route.Variables)
	}
	if route.Schema == nil || route.Schema.Compiled() == nil {
		t.Error("the inline schema is not compiled")
	}
	if cfg.Routes[1].Message.Literal != "" || cfg.Routes[1].Message.Expr.Absent() || cfg.Routes[0].Message.Literal != "WorkOrderCompleted" {
		t.Errorf("message: %+v and %+v", cfg.Routes[0].Message, cfg.Routes[1].Message)
	}
	if cfg.Routes[2].Variables != nil {
		t.Error("a route without variables has some")
	}
}

func TestDefaultsHoldWhereTheFileSaysNothing(t *testing.T) {
	cfg, warnings, err := Parse("min.yaml", []byte(minimal))
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	const d = 24 * time.Hour
	want := &Config{
		Consumer: "orders",
		Engines: map[string]Engine{"flow": {
			Name: "flow", Kind: "http", URL: "https://flow.example/messages", Timeout: 10 * time.Second, Idempotent: true,
			Auth: Auth{Kind: "none"}, MaxAnswerBytes: 1 << 20,
		}},
		Routes: []Route{{
			Name: "completed", Line: 5, Scope: ScopeSubscription, Order: inbox.OrderPublished, Engine: "flow",
			Message: Message{Literal: "OrderCompleted"}, Patience: d,
			Retry: Retry{Min: 10 * time.Second, Max: 10 * time.Minute}, Parked: ParkedPass, DeadLetter: DeadLetterPark,
		}},
		Retention: Retention{Processed: 75 * d, Payload: 14 * d,
			WaysBack: WaysBack{Subscription: 31 * d, DeadLetter: 31 * d, Replay: 7 * d}},
		Relay: Relay{Budget: 50 * time.Second, Poll: time.Second, Parallel: 16, Batch: 100, Lease: 90 * time.Second,
			Poison: Poison{Failures: 20, Over: d}, LostWorkers: 5, Breaker: Breaker{Failures: 5}},
		ClaimCheck: ClaimCheck{Threshold: 1 << 20},
	}
	if diff := cmp.Diff(want, cfg, cmpopts.IgnoreUnexported(Config{}, Expr{})); diff != "" {
		t.Error(diff)
	}
}

func TestLoadReadsWhatTheEnvironmentNames(t *testing.T) {
	file := filepath.Join(t.TempDir(), "inbox.yaml")
	if err := os.WriteFile(file, []byte(minimal), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, env := range map[string]map[string]string{
		"a file":                      {"INBOX_CONFIG_FILE": file},
		"the text":                    {"INBOX_CONFIG": minimal},
		"the text, and an empty file": {"INBOX_CONFIG": minimal, "INBOX_CONFIG_FILE": ""},
	} {
		cfg, err := Load(lookup(env))
		if err != nil || cfg.Consumer != "orders" {
			t.Errorf("%s: got %v, %v", name, cfg, err)
		}
	}
	for name, c := range map[string]struct {
		env  map[string]string
		want string
	}{
		"both set":       {map[string]string{"INBOX_CONFIG_FILE": file, "INBOX_CONFIG": minimal}, "both INBOX_CONFIG_FILE and INBOX_CONFIG are set"},
		"none set":       {nil, "no configuration; set INBOX_CONFIG_FILE"},
		"no such file":   {map[string]string{"INBOX_CONFIG_FILE": file + "x"}, "read the configuration that INBOX_CONFIG_FILE names"},
		"a wrong text":   {map[string]string{"INBOX_CONFIG": "consumer: 1 2"}, "INBOX_CONFIG:1:1: consumer: "},
		"an empty text":  {map[string]string{"INBOX_CONFIG": "# nothing\n"}, "the configuration is empty"},
		"too large text": {map[string]string{"INBOX_CONFIG": strings.Repeat("#", maxFile+1)}, "larger than"},
	} {
		if _, err := Load(lookup(c.env)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func TestDurationsAreGosAndDays(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"75d": 75 * day, "24h": day, "10m": 10 * time.Minute, "1s": time.Second, "500ms": 500 * time.Millisecond,
		"1d12h": 36 * time.Hour, "0": 0, "0d": 0, "-2d": -2 * day, "1h30m": 90 * time.Minute,
	} {
		if got, err := parseDuration(text); err != nil || got != want {
			t.Errorf("%q: got %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "10", "d", "1.5d", "1d-1h", "999999d", "1dd", "1d2d", "x", "1 d", "106751d24h"} {
		if got, err := parseDuration(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
	for d, want := range map[time.Duration]string{
		75 * day: "75d", 36 * time.Hour: "36h", 10 * time.Minute: "10m", 90 * time.Second: "1m30s", 0: "0s", 500 * time.Millisecond: "500ms",
	} {
		if got := Duration(d); got != want {
			t.Errorf("%v: got %q, want %q", d, got, want)
		}
	}
}

func TestAnExactStatusGoesBeforeItsClass(t *testing.T) {
	e := Engine{Statuses: map[string]string{"409": "already_through", "4xx": "rejected"}}
	for status, want := range map[int]engine.Verdict{409: engine.AlreadyThrough, 404: engine.Rejected} {
		if got, ok := e.Verdict(status); !ok || got != want {
			t.Errorf("%d: got %q, want %q", status, got, want)
		}
	}
	if got, ok := e.Verdict(500); ok {
		t.Errorf("500: got %q, want none", got)
	}
}

func TestASchemaIsReadFromAFileBesideTheConfiguration(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"order.json": `{"type": "object", "required": ["orderId"]}`, "broken.json": `{"type":`, "wrong.json": `{"type": 3}`,
		"remote.json": `{"$ref": "https://schemas.example/order.json"}`, "large.json": `"` + strings.Repeat("x", maxSchema) + `"`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	with := func(schema string) string { return minimal + "    schema: " + schema + "\n" }
	cfg, _, err := Parse(filepath.Join(dir, "inbox.yaml"), []byte(with("order.json")))
	if err != nil || cfg.Routes[0].Schema.Compiled() == nil || cfg.Routes[0].Schema.Path != "order.json" {
		t.Fatalf("got %+v, %v", cfg, err)
	}
	if _, _, err := Parse("elsewhere.yaml", []byte(with(filepath.Join(dir, "order.json")))); err != nil {
		t.Errorf("an absolute path: %v", err)
	}
	for schema, want := range map[string]string{
		"missing.json":       "cannot be read; the path is relative to the configuration",
		".":                  "is not a regular file",
		"broken.json":        "is not JSON",
		"wrong.json":         "is not a JSON Schema",
		"remote.json":        "refers to another one",
		"large.json":         "is larger than",
		"[1]":                "must be the path of a JSON Schema, or the schema itself",
		"{minimum: .5}":      "is no JSON number",
		"{allOf: [{a: .5}]}": "is no JSON number",
	} {
		_, _, err := Parse(filepath.Join(dir, "inbox.yaml"), []byte(with(schema)))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "inbox.yaml:8:5: routes[0].schema: ") {
			t.Errorf("%s: got %v, want %q at 8:5", schema, err, want)
		}
	}
}
