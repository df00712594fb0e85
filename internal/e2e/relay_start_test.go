package e2e_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pubsub-inbox/pubsub-inbox/internal/relayer"
)

// push is the body of a wrapped Pub/Sub push of a message that was published at a second of some minute.
func push(id, key string, second int) string {
	return fmt.Sprintf(`{"message":{"data":"e30=","messageId":%q,"publishTime":"2026-03-02T08:15:%02d.123Z",`+
		`"orderingKey":%[3]q,"attributes":{"type":"Paid","key":%[3]q}},"subscription":"projects/p/subscriptions/s"}`, id, second, key)
}

func TestTheGeneratedMainServesTheFunctionThatItsTargetNames(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	e := startEngine(t, nil)
	receive := startProcess(t, w.env("Receive", e.url("relay"), "")...).serving()
	relay := w.process(e.url("relay"), "")

	for _, p := range []*relayProcess{receive, relay} {
		resp, err := http.Get(p.url)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("GET is answered %d, want 405", resp.StatusCode)
		}
	}
	for _, id := range []string{"1", "2", "1"} { // the last is a redelivery
		if status, text, err := receive.post(strings.NewReader(push(id, "WO-1", 30))); err != nil || status != http.StatusNoContent {
			t.Fatalf("a push is answered %d %q, %v; want 204", status, text, err)
		}
	}
	if status, _, err := receive.post(strings.NewReader(`{"once": true}`)); err != nil || status != http.StatusBadRequest {
		t.Errorf("Receive answers a relay's request with %d, %v; want 400", status, err)
	}
	if status, _, err := relay.post(strings.NewReader("no JSON")); err != nil || status != http.StatusBadRequest {
		t.Errorf("Relay answers a body that is no JSON with %d, %v; want 400", status, err)
	}
	got := relay.run()
	got.DurationMs = 0
	if diff := cmp.Diff(relayer.Summary{Claimed: 2, Processed: 2}, got); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
	if n := e.count(); n != 2 {
		t.Errorf("the engine was called %d times, want 2", n)
	}
	for _, p := range []*relayProcess{receive, relay} {
		p.signal(syscall.SIGTERM)
		if code := p.exit(); code != 0 {
			t.Errorf("told to end, the process exits with %d, want 0", code)
		}
	}
}

func TestABadEnvironmentIsRefusedWithOneLineAndCodeOne(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	tests := []struct {
		name   string
		change []string // NAME=value; added, or in place of the good one
		faults map[string][]string
	}{
		{
			name:   "no audience and no callers",
			change: []string{"AUTH_MODE=verify"},
			faults: map[string][]string{
				"Receive": {"PUSH_AUDIENCE is not set", "PUSH_SERVICE_ACCOUNTS is not set"},
				"Relay":   {"RELAY_AUDIENCE is not set", "RELAY_SERVICE_ACCOUNTS is not set"},
			},
		},
		{
			name:   "an empty audience",
			change: []string{"AUTH_MODE=edge", "K_SERVICE=s", "PUSH_AUDIENCE= ", "RELAY_AUDIENCE= ", "PUSH_SERVICE_ACCOUNTS=a@b.c", "RELAY_SERVICE_ACCOUNTS=a@b.c"},
			faults: map[string][]string{"Receive": {"PUSH_AUDIENCE is not set"}, "Relay": {"RELAY_AUDIENCE is not set"}},
		},
		{
			name:   "nobody checks callers on Cloud Run",
			change: []string{"K_SERVICE=inbox"},
			faults: map[string][]string{"Receive": {"AUTH_MODE is none"}, "Relay": {"AUTH_MODE is none"}},
		},
		{
			name:   "a configuration with two faults",
			change: []string{"INBOX_CONFIG_FILE=", "INBOX_CONFIG=consumer: orders\nengines: {e: {kind: smoke, url: \"http://e\"}}\nroutes:\n  - {name: r, engine: other, message: M}\n"},
			faults: map[string][]string{"Receive": {"2:", "4:"}, "Relay": {"2:", "4:"}},
		},
		{
			name:   "a database that is none, and no configuration",
			change: []string{"INBOX_CONFIG_FILE=/does/not/exist", "SPANNER_DATABASE=inbox"},
			faults: map[string][]string{"Receive": {"SPANNER_DATABASE", "/does/not/exist"}, "Relay": {"SPANNER_DATABASE", "/does/not/exist"}},
		},
	}
	for _, tt := range tests {
		for function, want := range tt.faults {
			t.Run(tt.name+", "+function, func(t *testing.T) {
				env := slices.Concat(w.env(function, "http://127.0.0.1:1", ""), tt.change) // the last one counts
				p := startProcess(t, env...)
				if code := p.exit(); code != 1 {
					t.Errorf("exits with %d, want 1", code)
				}
				faults, err := p.faults()
				if err != nil {
					t.Fatal(err)
				}
				if len(faults) != len(want) {
					t.Errorf("%d faults, want %d: %q", len(faults), len(want), faults)
				}
				for _, part := range want {
					if !slices.ContainsFunc(faults, func(f string) bool { return strings.Contains(f, part) }) {
						t.Errorf("no fault says %q: %q", part, faults)
					}
				}
			})
		}
	}
}
