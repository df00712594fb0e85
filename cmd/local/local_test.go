package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// timeout bounds each wait for another process. A cold build on a busy machine is the longest.
const timeout = 4 * time.Minute

var program string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		// The processes here bring their own emulators, whatever the environment has.
		for _, name := range []string{"SPANNER_EMULATOR_HOST", "PUBSUB_EMULATOR_HOST", "STORAGE_EMULATOR_HOST"} {
			os.Unsetenv(name)
		}
		dir, err := os.MkdirTemp("", "local-test-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		program = filepath.Join(dir, "local")
		if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build this program: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

func TestUpServesUntilItIsToldToEnd(t *testing.T) {
	config := filepath.Join(t.TempDir(), "inbox.yaml")
	if err := os.WriteFile(config, []byte(defaultConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	readyFile := filepath.Join(t.TempDir(), "ready.json")
	if err := os.WriteFile(readyFile, []byte("an earlier run's"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, program, "up", "--config", config, "--ready-file", readyFile, "--relay-every", "0")
	ready := p.ready(t, readyFile)

	push := `{"subscription": "` + ready["subscription"] + `", "message": {"messageId": "1", "data": "e30=", "attributes": {"eventType": "Paid", "key": "k"}}}`
	if status, body := post(t, ready["receiveUrl"], push); status != http.StatusNoContent || body != "" {
		t.Errorf("a push was answered %d %q, want 204 and no body", status, body)
	}
	status, body := post(t, ready["relayUrl"], `{"once": true}`)
	var summary map[string]int64
	if err := json.Unmarshal([]byte(body), &summary); err != nil || status != http.StatusOK {
		t.Errorf("the relay answered %d %q (%v), want 200 and JSON", status, body, err)
	}
	for _, name := range []string{"claimed", "processed", "retrying", "parked", "discarded", "released", "durationMs"} {
		if _, ok := summary[name]; !ok {
			t.Errorf("the relay's answer %s has no %s", body, name)
		}
	}
	if summary["claimed"] != 1 {
		t.Errorf("the relay claimed %d messages, want the one that was pushed: nobody else may have asked it", summary["claimed"])
	}

	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.wait(t); err != nil {
		t.Errorf("after SIGTERM it ended with %v, want code 0; it said:\n%s", err, p.out)
	}
	p.gone(t, ready)
	if _, err := os.Stat(readyFile); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the ready file is still there (%v)", err)
	}
}

func TestTheEndOfGoRunEndsEverything(t *testing.T) {
	readyFile := filepath.Join(t.TempDir(), "ready.json")
	p := start(t, "go", "run", ".", "up", "--ready-file", readyFile)
	ready := p.ready(t, readyFile)
	// Only `go run` itself gets it, and it passes nothing on.
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.gone(t, ready)
	eventually(t, "the ready file is removed", p.out, func() bool {
		_, err := os.Stat(readyFile)
		return errors.Is(err, os.ErrNotExist)
	})
}

func TestTheEmulatorsEndWithAKilledProcess(t *testing.T) {
	readyFile := filepath.Join(t.TempDir(), "ready.json")
	p := start(t, program, "up", "--ready-file", readyFile)
	ready := p.ready(t, readyFile)
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.gone(t, ready)
}

func TestWhatIsMissingOrWrongIsSaidAndTheCodeIsOne(t *testing.T) {
	wrong := filepath.Join(t.TempDir(), "wrong.yaml")
	if err := os.WriteFile(wrong, []byte("consumer: c\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		env  string
		args []string
		want string
	}{
		{"no Java", "JAVA_HOME=/nowhere", []string{"up"}, "needs Java"},
		{"no configuration", "", []string{"up", "--config", "/nowhere.yaml"}, "/nowhere.yaml"},
		{"a wrong configuration", "", []string{"up", "--config", wrong}, "at least one engine"},
		{"no folder for the ready file", "", []string{"up", "--ready-file", "/nowhere/ready.json"}, "folder must exist"},
		{"a negative time", "", []string{"up", "--relay-every", "-1s"}, "--relay-every"},
		{"no such command", "", []string{"down"}, "unknown command"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.Command(program, tt.args...)
			cmd.Env = append(os.Environ(), tt.env)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), tt.want) {
				t.Errorf("it ended with %v and said %q, want code 1 and %q", err, out, tt.want)
			}
		})
	}
}

func TestTheDemoGoesAsExpected(t *testing.T) {
	cmd := exec.Command(program, "demo")
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the demo ended with %v; it said:\n%s", err, out)
	}
	for _, want := range []string{"All messages", "PARKED  DEDUPE_CONFLICT", "PARKED  UNREADABLE", "PARKED/AMBIGUOUS", "answers HTTP 403", "PARKED/POISONED", "make up"} {
		if !strings.Contains(strings.Join(strings.Fields(string(out)), " "), strings.Join(strings.Fields(want), " ")) {
			t.Errorf("the demo said nothing of %q:\n%s", want, out)
		}
	}
}

// process is one of this program's.
type process struct {
	cmd   *exec.Cmd
	out   *buffer
	ended chan struct{}
	err   error // once ended
}

func start(t *testing.T, name string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(name, args...), out: &buffer{}, ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	p.cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir()) // what is killed leaves files behind
	p.cmd.WaitDelay = time.Second                           // `go run` leaves our pipe to its child
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		p.err = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
	})
	return p
}

func (p *process) wait(t *testing.T) error {
	t.Helper()
	select {
	case <-p.ended:
		return p.err
	case <-time.After(timeout):
		t.Fatalf("it did not end in %s; it said:\n%s", timeout, p.out)
		return nil
	}
}

// ready waits for the ready file. What is there is whole.
func (p *process) ready(t *testing.T, path string) map[string]string {
	t.Helper()
	var ready map[string]string
	eventually(t, "the ready file is there", p.out, func() bool {
		select {
		case <-p.ended:
			t.Fatalf("it ended with %v; it said:\n%s", p.err, p.out)
		default:
		}
		text, err := os.ReadFile(path)
		if err != nil || string(text) == "an earlier run's" {
			return false
		}
		if err := json.Unmarshal(text, &ready); err != nil {
			t.Fatalf("the ready file is no JSON object: %v\n%s", err, text)
		}
		return true
	})
	return ready
}

// gone waits until nothing listens any more where the stack was.
func (p *process) gone(t *testing.T, ready map[string]string) {
	t.Helper()
	for _, name := range []string{"spannerEmulatorHost", "pubsubEmulatorHost", "storageEmulatorHost", "receiveUrl", "relayUrl"} {
		host := strings.TrimPrefix(ready[name], "http://")
		eventually(t, "nothing listens at "+name+" "+host, p.out, func() bool {
			conn, err := net.Dial("tcp", host)
			if err == nil {
				conn.Close()
			}
			return err != nil
		})
	}
}

func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

// eventually waits for what another process brings about.
func eventually(t *testing.T, what string, out *buffer, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(timeout); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s until %s; the process said:\n%s", timeout, what, out)
		}
	}
}

type buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
