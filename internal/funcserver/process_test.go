package funcserver_test

import (
	"bufio"
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
	"github.com/pubsub-inbox/pubsub-inbox/internal/funcserver/buildpack"
)

// patience is how long a test waits for what should come at once. A test that reaches it has failed.
const patience = 3 * time.Minute

// fixture is the program the buildpack would make of testdata/fixture.
var fixture = sync.OnceValues(func() (string, error) {
	dir := "buildpack/testdata/fixture"
	out := filepath.Join(os.TempDir(), fmt.Sprintf("funcserver-fixture-%d", os.Getpid()))
	return out, buildpack.Tree{Root: "../..", Overlay: map[string]string{
		"function.go":                          dir + "/function.go",
		"functions/fixture/receive/receive.go": dir + "/receive/receive.go",
		"functions/fixture/relay/relay.go":     dir + "/relay/relay.go",
	}}.Compile(testContext, out)
})

// process is a running fixture.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	url    string
	stdout strings.Builder
	lines  chan string   // of stderr; closed at its end
	exited chan struct{} // then code is set
	code   int
}

// run starts the fixture with nothing in its environment but env, and a port.
func run(t *testing.T, env ...string) *process {
	t.Helper()
	program, err := fixture()
	if err != nil {
		t.Fatal(err)
	}
	port, err := freeport.Hold()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = port.Release() })

	p := &process{t: t, url: "http://" + port.Address(), lines: make(chan string, 1000), exited: make(chan struct{})}
	p.cmd = exec.Command(program)
	p.cmd.Env = append([]string{"PORT=" + port.String()}, env...)
	p.cmd.Stdout = &p.stdout
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for s := bufio.NewScanner(stderr); s.Scan(); {
			p.lines <- s.Text()
		}
		close(p.lines)
		err := p.cmd.Wait()
		var exit *exec.ExitError
		if err == nil || errors.As(err, &exit) {
			p.code = p.cmd.ProcessState.ExitCode()
		} else {
			p.code = -2
		}
		close(p.exited)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.exited
	})
	return p
}

// serving waits until the process listens. It has no event that says so: hence the polling.
func (p *process) serving() *process {
	p.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for {
		conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
		if err == nil {
			_ = conn.Close()
			return p
		}
		select {
		case <-tick.C:
		case <-p.exited:
			p.t.Fatalf("exited with %d before it listened: %q", p.code, p.rest())
		case <-late:
			p.t.Fatal("does not listen")
		}
	}
}

// await reads stderr up to a log entry with this message.
func (p *process) await(message string) map[string]any {
	p.t.Helper()
	late := time.After(patience)
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				p.t.Fatalf("ended without the message %q", message)
			}
			var entry map[string]any
			if json.Unmarshal([]byte(line), &entry) == nil && entry["message"] == message {
				return entry
			}
		case <-late:
			p.t.Fatalf("no message %q", message)
		}
	}
}

// exit waits for the end and answers its code.
func (p *process) exit() int {
	p.t.Helper()
	select {
	case <-p.exited:
		return p.code
	case <-time.After(patience):
		p.t.Fatal("does not end")
		return 0
	}
}

// rest is what is left of stderr, without empty lines. The process has ended.
func (p *process) rest() []string {
	p.exit()
	var out []string
	for l := range p.lines {
		if l != "" {
			out = append(out, l)
		}
	}
	return out
}

// answer is what a request came to.
type answer struct {
	status int
	header http.Header
	close  bool
	body   string
}

// get is a GET whose answer is read.
func (p *process) get(path string) answer {
	p.t.Helper()
	a, err := p.do(http.MethodGet, path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	return a
}

// do may be called from any goroutine.
func (p *process) do(method, path string, body io.Reader) (answer, error) {
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.url+path, body)
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, resp.Close, string(text)}, err
}

// slow posts to /slow, and returns when the handler has begun to read. The request ends when body is closed.
func (p *process) slow() (body *io.PipeWriter, got <-chan string) {
	p.t.Helper()
	r, w := io.Pipe()
	p.t.Cleanup(func() { _ = w.Close() })
	out := make(chan string, 1)
	go func() {
		a, err := p.do(http.MethodPost, "/slow", r)
		if err != nil {
			out <- err.Error()
			return
		}
		out <- fmt.Sprint(a.status, " ", a.body)
	}()
	if _, err := w.Write([]byte("half")); err != nil {
		p.t.Fatalf("write the first half of the body: %v; the request came to %q", err, p.answer(out))
	}
	p.await("entered")
	return w, out
}

// answer waits for what slow has begun.
func (p *process) answer(got <-chan string) string {
	p.t.Helper()
	select {
	case a := <-got:
		return a
	case <-time.After(patience):
		p.t.Fatal("no answer")
		return ""
	}
}

func (p *process) write(w io.Writer) {
	p.t.Helper()
	if _, err := w.Write([]byte("half")); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) terminate() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
}
