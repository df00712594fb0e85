package e2e_test

import (
	"bufio"
	"bytes"
	"context"
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

	"github.com/pubsub-inbox/pubsub-inbox/internal/freeport"
	"github.com/pubsub-inbox/pubsub-inbox/internal/relayer"
)

// relayProcess is one process of the program the buildpack generates, serving one of its functions.
type relayProcess struct {
	t      *testing.T
	cmd    *exec.Cmd
	url    string
	exited chan struct{} // then code is set
	code   int

	mu      sync.Mutex
	lines   []string // of stderr
	changed chan struct{}
}

// startProcess starts the program with nothing in its environment but env and a port.
func startProcess(t *testing.T, env ...string) *relayProcess {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	port, err := freeport.Hold()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = port.Release() })
	p := &relayProcess{t: t, url: "http://" + port.Address(), exited: make(chan struct{}), changed: make(chan struct{})}
	p.cmd = exec.Command(path)
	p.cmd.Env = append([]string{"PORT=" + port.String()}, env...)
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for s := bufio.NewScanner(stderr); s.Scan(); {
			p.mu.Lock()
			p.lines = append(p.lines, s.Text())
			close(p.changed)
			p.changed = make(chan struct{})
			p.mu.Unlock()
		}
		_ = p.cmd.Wait() // the code says it
		p.code = p.cmd.ProcessState.ExitCode()
		close(p.exited)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			lines := p.log()
			t.Logf("the last lines of process %s:\n%s", p.url, strings.Join(lines[max(0, len(lines)-15):], "\n"))
		}
	})
	return p
}

// serving waits until the process listens.
func (p *relayProcess) serving() *relayProcess {
	p.t.Helper()
	eventually(p.t, "the process listens", func() bool {
		select {
		case <-p.exited:
			p.t.Fatalf("exited with %d before it listened: %q", p.code, p.log())
		default:
		}
		conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
		if err != nil {
			return false
		}
		_ = conn.Close()
		return true
	})
	return p
}

func (p *relayProcess) log() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.lines...)
}

// await waits for a log entry with this message.
func (p *relayProcess) await(message string) map[string]any {
	p.t.Helper()
	late := time.After(patience)
	for next := 0; ; {
		p.mu.Lock()
		lines, changed := p.lines[next:], p.changed
		p.mu.Unlock()
		next += len(lines)
		for _, line := range lines {
			var entry map[string]any
			if json.Unmarshal([]byte(line), &entry) == nil && entry["message"] == message {
				return entry
			}
		}
		select {
		case <-changed:
		case <-late:
			p.t.Fatalf("no log entry %q", message)
		}
	}
}

// exit waits for the end and answers its code.
func (p *relayProcess) exit() int {
	p.t.Helper()
	within(p.t, "the process ends", p.exited)
	return p.code
}

// kill ends the process as the kernel would: without a word. It may be called from any goroutine, and again.
func (p *relayProcess) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.exited
}

// signal sends a signal: SIGTERM asks the process to end, as Cloud Run does; SIGSTOP lets it stand still, SIGCONT go on.
func (p *relayProcess) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// stop has the process stand still. A signal takes its time to reach all threads of a process: until then they go on.
func (p *relayProcess) stop() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	eventually(p.t, "the process stands still", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
		if err != nil || len(threads) == 0 {
			return false
		}
		for _, name := range threads {
			text, err := os.ReadFile(name)
			if at := bytes.LastIndexByte(text, ')'); err != nil || !bytes.HasPrefix(text[at+1:], []byte(" T")) {
				return false
			}
		}
		return true
	})
}

// runAnswer is what a request to run the relay came to.
type runAnswer struct {
	status  int
	summary relayer.Summary
	took    time.Duration
	err     error
}

// post sends a body and returns the answer's status and body. It may be called from any goroutine.
func (p *relayProcess) post(body io.Reader) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/", body)
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, text, err
}

// start asks for a run until nothing is due, as Cloud Scheduler would, and does not wait for it.
func (p *relayProcess) start() <-chan runAnswer {
	done := make(chan runAnswer, 1)
	go func() {
		begun := time.Now()
		var a runAnswer
		var text []byte
		a.status, text, a.err = p.post(strings.NewReader(`{"once": true}`))
		a.took = time.Since(begun)
		if a.err == nil {
			a.err = json.Unmarshal(text, &a.summary)
		}
		done <- a
	}()
	return done
}

// run has the relay run until nothing is due, and expects that it did its part.
func (p *relayProcess) run() relayer.Summary {
	p.t.Helper()
	return p.finished(p.start())
}

func (p *relayProcess) finished(run <-chan runAnswer) relayer.Summary {
	p.t.Helper()
	a := within(p.t, "a run of the relay is answered", run)
	if a.err != nil || a.status != http.StatusOK {
		p.t.Fatalf("a run of the relay: status %d, %v; want 200", a.status, a.err)
	}
	return a.summary
}

// faults returns the faults that a process which refused to start has named, in its one line.
func (p *relayProcess) faults() ([]string, error) {
	var entry struct {
		Severity, Message, Function string
		Faults                      []string
	}
	lines := p.log()
	if len(lines) != 1 {
		return nil, fmt.Errorf("%d lines on stderr, want 1: %q", len(lines), lines)
	}
	d := json.NewDecoder(bytes.NewReader([]byte(lines[0])))
	if err := d.Decode(&entry); err != nil {
		return nil, fmt.Errorf("the line is not JSON: %w: %q", err, lines[0])
	}
	if entry.Severity != "CRITICAL" || entry.Message != "refusing to start" {
		return nil, errors.New("the line says something else: " + lines[0])
	}
	return entry.Faults, nil
}
