//go:build engines

package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	workorder "github.com/pubsub-inbox/pubsub-inbox/examples/work-order"
	"github.com/pubsub-inbox/pubsub-inbox/examples/work-order/worker"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/flowable/flowabletest"
)

// patience bounds each wait for another process.
const patience = 60 * time.Second

// engine is a real Flowable with the example's settings and process, but for how often it looks for ended locks: a test
// need not wait for that. It is shared by the tests, which run one after another and leave no job behind.
var engine = sync.OnceValues(func() (*flowabletest.Server, error) {
	if err := flowabletest.Missing(); err != nil {
		return nil, fmt.Errorf("Flowable cannot be run: %w (SKIP_ENGINES=1 skips these tests)", err)
	}
	folder, err := os.MkdirTemp("", "work-order-test-")
	if err != nil {
		return nil, err
	}
	atEnd = append(atEnd, func() { _ = os.RemoveAll(folder) })
	settings := filepath.Join(folder, "flowable.properties")
	more := "\nflowable.process.async.executor.reset-expired-jobs-interval=PT0.5S\n"
	if err := os.WriteFile(settings, append(workorder.Properties, more...), 0o600); err != nil {
		return nil, err
	}
	s, err := flowabletest.Run(context.Background(), flowabletest.Options{Properties: settings})
	if err != nil {
		return nil, err
	}
	atEnd = append(atEnd, s.Stop)
	return s, s.Deploy(context.Background(), "work-order", workorder.BPMN)
})

// program is the worker, built.
var program = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "work-order-test-")
	if err != nil {
		return "", err
	}
	atEnd = append(atEnd, func() { _ = os.RemoveAll(folder) })
	out := filepath.Join(folder, "worker")
	if text, err := exec.Command("go", "build", "-o", out, "../cmd/worker").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the worker: %w\n%s", err, text)
	}
	return out, nil
})

// world is a real Flowable, and a ledger of the test's own.
type world struct {
	t      *testing.T
	server *flowabletest.Server
	client *flowabletest.Client
	folder string // the ledger's
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if os.Getenv("SKIP_ENGINES") == "1" {
		t.Skip("SKIP_ENGINES=1")
	}
	s, err := engine()
	if err != nil {
		t.Fatal(err)
	}
	return &world{t: t, server: s, client: s.Client(t), folder: t.TempDir()}
}

// completed starts a work order, has it completed with that many items, and returns the id of its instance.
func (w *world) completed(order, items string) string {
	w.t.Helper()
	instance := w.client.StartProcess("work-order-execution", order, "", flowabletest.Text("workOrderId", order))
	w.eventually("the order waits for its completion", func() bool { return len(w.client.Waiting("WorkOrderCompleted", instance)) == 1 })
	w.complete(instance, items)
	return instance
}

func (w *world) complete(instance, items string) {
	w.t.Helper()
	for _, execution := range w.client.Waiting("WorkOrderCompleted", instance) {
		status, raw := w.client.Deliver(execution, "WorkOrderCompleted", flowabletest.Variable{Name: "completedItems", Type: "long", Value: json.RawMessage(items)})
		if status != http.StatusOK {
			w.t.Fatalf("complete the order: status %d: %s", status, raw)
		}
	}
}

// invoiced waits until an instance has ended, and expects one invoice for its order.
func (w *world) invoiced(instance, order string) {
	w.t.Helper()
	w.eventually("the process has ended", func() bool { return w.ended(instance) })
	number := "INV-" + order
	if got := string(w.client.Variables(instance)["invoiceNumber"].Value); got != `"`+number+`"` {
		w.t.Errorf("the process has the invoice %s, want %s", got, number)
	}
	if got := invoices(w.t, w.folder); len(got) != 1 || got[0] != number {
		w.t.Errorf("there are the invoices %v, want one: %s", got, number)
	}
}

func (w *world) ended(instance string) bool {
	w.t.Helper()
	return w.client.Count("/history/historic-process-instances?finished=true&processInstanceId="+instance, nil) == 1
}

// eventually waits for what Flowable announces by no event.
func (w *world) eventually(what string, done func() bool) {
	w.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !done(); <-tick.C {
		if time.Now().After(deadline) {
			w.t.Fatalf("waited %s in vain: %s", patience, what)
		}
	}
}

// worker is a worker in this process.
func (w *world) worker(l worker.Ledger, now func() time.Time, change func(*worker.Config)) *worker.Worker {
	w.t.Helper()
	c := worker.DefaultConfig()
	c.ID, c.Poll = w.t.Name(), 50*time.Millisecond
	if change != nil {
		change(&c)
	}
	client, err := worker.NewClient(w.server.JobsURL(), flowabletest.User, flowabletest.Password, c.Call)
	if err != nil {
		w.t.Fatal(err)
	}
	made, err := worker.New(c, client, l, slog.New(slog.NewTextHandler(io.Discard, nil)), now)
	if err != nil {
		w.t.Fatal(err)
	}
	return made
}

func (w *world) ledger() *ledger {
	w.t.Helper()
	files, err := worker.NewFileLedger(w.folder, time.Now)
	if err != nil {
		w.t.Fatal(err)
	}
	return &ledger{Ledger: files}
}

// works has a worker try until it had a job.
func (w *world) works(by *worker.Worker) {
	w.t.Helper()
	w.eventually("there is a job", func() bool {
		worked, err := by.Once(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		return worked
	})
}

// process is a worker in a process of its own.
type process struct {
	cmd *exec.Cmd
	log strings.Builder
}

func (w *world) start(base, id string, more ...string) *process {
	w.t.Helper()
	name, err := program()
	if err != nil {
		w.t.Fatal(err)
	}
	p := &process{cmd: exec.Command(name, append([]string{"-flowable", base, "-user", flowabletest.User, "-ledger", w.folder, "-id", id, "-poll", "100ms"}, more...)...)}
	p.cmd.Env = append(os.Environ(), "FLOWABLE_PASSWORD="+flowabletest.Password)
	p.cmd.Stderr = &p.log
	if err := p.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	return p
}

// end ends it with a signal. SIGTERM must give the exit code 0.
func (w *world) end(p *process, s syscall.Signal) {
	w.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		w.t.Fatal(err)
	}
	err := p.cmd.Wait()
	var exit *exec.ExitError
	killed := errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
	if s == syscall.SIGKILL && !killed || s == syscall.SIGTERM && err != nil {
		w.t.Fatalf("after %v it ended with %v:\n%s", s, err, &p.log)
	}
}

// gate is a proxy to Flowable that can stop a request on its way, or its answer.
type gate struct {
	*httptest.Server
	action  string // the end of the path
	forward bool   // to Flowable; then it is the answer that is stopped
	stopped chan struct{}
	open    chan struct{}
	once    sync.Once
}

func (w *world) gate(action string, forward bool) *gate {
	w.t.Helper()
	target, err := url.Parse(strings.TrimSuffix(w.server.JobsURL(), "/external-job-api"))
	if err != nil {
		w.t.Fatal(err)
	}
	g := &gate{action: action, forward: forward, stopped: make(chan struct{}), open: make(chan struct{})}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	g.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, action) {
			proxy.ServeHTTP(rw, r)
			return
		}
		answer := httptest.NewRecorder()
		if g.forward {
			proxy.ServeHTTP(answer, r)
			if strings.TrimSpace(answer.Body.String()) == "[]" {
				_, _ = rw.Write(answer.Body.Bytes()) // no job yet
				return
			}
		}
		g.once.Do(func() { close(g.stopped) })
		<-g.open
		if !g.forward {
			proxy.ServeHTTP(answer, r)
		}
		rw.WriteHeader(answer.Code)
		_, _ = rw.Write(answer.Body.Bytes())
	}))
	w.t.Cleanup(func() {
		g.letThrough()
		g.Close()
	})
	return g
}

func (g *gate) url() string { return g.URL + "/external-job-api" }

func (g *gate) letThrough() {
	select {
	case <-g.open:
	default:
		close(g.open)
	}
}

func (w *world) wait(what string, c <-chan struct{}) {
	w.t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		w.t.Fatalf("waited %s in vain: %s", patience, what)
	}
}

// jobs asks the API of external workers.
func (w *world) jobs(path string, body map[string]any, into any) {
	w.t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		w.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.server.JobsURL()+path, strings.NewReader(string(raw)))
	if err != nil {
		w.t.Fatal(err)
	}
	req.SetBasicAuth(flowabletest.User, flowabletest.Password)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode > 299 {
		w.t.Fatalf("%s: status %d", path, resp.StatusCode)
	}
	if into != nil {
		if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
			w.t.Fatal(err)
		}
	}
}
