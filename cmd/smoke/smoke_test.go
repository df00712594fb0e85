package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/spannerstore"
	"github.com/pubsub-inbox/pubsub-inbox/internal/wiring"
)

// startTimeout bounds a cold build and the start of three emulators on a busy machine.
const startTimeout = 3 * time.Minute

// The same program that `make deploy` runs, against the stack that `make up` leaves running.
func TestSmoke(t *testing.T) {
	var calls atomic.Int64
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.WriteHeader(http.StatusNoContent)
	}))
	defer engine.Close()
	lookup := up(t, `consumer: smoke-test
engines: {e: {kind: http, url: "`+engine.URL+`", timeout: 1m, idempotent: true}}
routes:
  - {name: paid, match: attributes.eventType == "Paid", engine: e, message: Paid, retry: {min: 1s, max: 1s}}
relay: {budget: 10s, poll: 200ms, parallel: 8, batch: 50, lease: 5m}
`)
	topic, subscription := lookup("topic"), lookup("subscription")

	t.Run("a message that no route takes is stored, closed and cleaned up", func(t *testing.T) {
		out := mustRun(t, lookup, "--topic", topic, "--subscription", subscription)
		shown := show(t, lookup, out)
		if shown.Status != inbox.Discarded || shown.Reason != inbox.NoRoute {
			t.Errorf("the message is %s%s, want it closed", shown.Status, because(shown.Reason))
		}
		if shown.PurgeAfter.IsZero() || shown.PurgeAfter.After(shown.At) || !shown.PayloadPurgeAt.Equal(shown.PurgeAfter) {
			t.Errorf("it is %v, and the row goes at %v, its payload at %v: want both by now", shown.At, shown.PurgeAfter, shown.PayloadPurgeAt)
		}
		if len(shown.Audit) != 1 || shown.Audit[0].Action != "discard" || shown.Audit[0].Actor != "smoke" {
			t.Errorf("the audit has %+v, want that this program has closed it", shown.Audit)
		}
		if calls.Load() != 0 {
			t.Errorf("the engine was called %d times, want never", calls.Load())
		}
	})

	t.Run("a message that an engine takes is seen through to the end", func(t *testing.T) {
		out := mustRun(t, lookup, "--topic", topic, "--subscription", subscription, "--attribute", "eventType=Paid")
		if shown := show(t, lookup, out); shown.Status != inbox.Processed || calls.Load() != 1 {
			t.Errorf("the message is %s after %d calls, want PROCESSED after one", shown.Status, calls.Load())
		}
	})

	t.Run("a deployment applies, migrates, and ends with this program", func(t *testing.T) {
		bin, said := t.TempDir(), filepath.Join(t.TempDir(), "said")
		if err := os.WriteFile(filepath.Join(bin, "terraform"), []byte(terraform), 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("../../terraform/deploy.sh")
		cmd.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "PROJECT=p", "AUTO_APPROVE=1", "SAID="+said,
			"OUT_database="+lookup("database"), "OUT_config="+read(t, lookup("config")), "OUT_topic="+topic, "OUT_subscription="+subscription)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "cleaned up") {
			t.Errorf("%v:\n%s", err, out)
		}
		asked := read(t, said)
		if !strings.Contains(asked, "init -input=false\n") || !strings.Contains(asked, "apply -auto-approve -var project_id=p -var source_archive=") {
			t.Errorf("terraform was asked for:\n%s", asked)
		}
	})

	t.Run("a message that does not arrive is an error that says where to look", func(t *testing.T) {
		err := run(t.Context(), []string{"--topic", topic, "--subscription", subscription + "-of-another", "--timeout", "3s"},
			&bytes.Buffer{}, &bytes.Buffer{}, env(lookup))
		if err == nil || !strings.Contains(err.Error(), "has no row of consumer smoke-test") {
			t.Errorf("got %v", err)
		}
	})
}

// terraform is a stand-in: it writes down what it was asked for, and says the outputs that it is given.
const terraform = `#!/bin/sh
echo "$*" >>"$SAID"
case "$*" in
*" output -raw "*) eval "printf '%s' \"\$OUT_${4}\"" ;;
esac
`

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheCommandLineIsChecked(t *testing.T) {
	for name, args := range map[string][]string{
		"no topic":               {"--subscription", "projects/p/subscriptions/s"},
		"no subscription":        {"--topic", "projects/p/topics/t"},
		"something else":         {"--topic", "projects/p/topics/t", "--subscription", "projects/p/subscriptions/s", "more"},
		"an attribute of no use": {"--attribute", "value"},
	} {
		if err := run(t.Context(), args, &bytes.Buffer{}, &bytes.Buffer{}, func(string) (string, bool) { return "", false }); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// up runs `cmd/local up` with a configuration, and returns what its ready file says.
func up(t *testing.T, config string) func(string) string {
	t.Helper()
	dir := t.TempDir()
	configFile, readyFile, program := filepath.Join(dir, "inbox.yaml"), filepath.Join(dir, "ready.json"), filepath.Join(dir, "local")
	if err := os.WriteFile(configFile, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-o", program, "../local").CombinedOutput(); err != nil {
		t.Fatalf("build cmd/local: %v\n%s", err, out)
	}
	var log bytes.Buffer
	cmd := exec.Command(program, "up", "--config", configFile, "--ready-file", readyFile, "--relay-every", "300ms")
	cmd.Env = append(os.Environ(), "SPANNER_EMULATOR_HOST=", "PUBSUB_EMULATOR_HOST=", "STORAGE_EMULATOR_HOST=")
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
		if t.Failed() {
			t.Logf("cmd/local said:\n%s", log.String())
		}
	})
	deadline := time.After(startTimeout)
	for {
		if text, err := os.ReadFile(readyFile); err == nil {
			var ready map[string]string
			if err := json.Unmarshal(text, &ready); err != nil {
				t.Fatal(err)
			}
			ready["config"] = configFile
			// The clients read these from the process's environment.
			t.Setenv("SPANNER_EMULATOR_HOST", ready["spannerEmulatorHost"])
			t.Setenv("PUBSUB_EMULATOR_HOST", ready["pubsubEmulatorHost"])
			return func(name string) string { return ready[name] }
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("cmd/local ended: %v", err)
		case <-deadline:
			t.Fatal("cmd/local did not get ready")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func env(ready func(string) string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := map[string]string{"SPANNER_DATABASE": ready("database"), "INBOX_CONFIG_FILE": ready("config")}[name]
		return value, ok
	}
}

func mustRun(t *testing.T, ready func(string) string, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := run(t.Context(), append(args, "--timeout", "3m"), &out, &out, env(ready)); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	return out.String()
}

var storedLine = regexp.MustCompile(`(?m)^stored +([0-9a-f]{32})$`)

func show(t *testing.T, ready func(string) string, out string) spannerstore.Shown {
	t.Helper()
	m := storedLine.FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("it does not say under which id the message is stored:\n%s", out)
	}
	store, err := spannerstore.Open(t.Context(), ready("database"), time.Now, wiring.NewID)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	shown, err := store.Show(t.Context(), m[1])
	if err != nil {
		t.Fatal(err)
	}
	return shown
}

// inTheWay is an inbox whose message is found as it is said.
type inTheWay struct {
	store
	status inbox.Status
	reason inbox.Reason
}

func (s inTheWay) Show(context.Context, string) (spannerstore.Shown, error) {
	shown := spannerstore.Shown{}
	shown.Status, shown.Reason, shown.Route = s.status, s.reason, "everything"
	return shown, nil
}

func TestWhatIsLeftBehindIsSaid(t *testing.T) {
	for _, c := range []struct {
		status inbox.Status
		reason inbox.Reason
		want   string
	}{
		{inbox.Parked, inbox.Ambiguous, `parked as AMBIGUOUS: the route "everything" takes it`},
		{inbox.Retrying, "", "is stored, and still RETRYING"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err := probe{Every: time.Millisecond}.end(ctx, inTheWay{status: c.status, reason: c.reason}, "4711")
		cancel()
		if err == nil || !strings.Contains(fmt.Sprint(err), c.want) || !strings.Contains(fmt.Sprint(err), "4711") {
			t.Errorf("%s%s: got %v", c.status, because(c.reason), err)
		}
	}
}
