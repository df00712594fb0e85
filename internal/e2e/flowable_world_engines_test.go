//go:build engines

package e2e_test

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/spanner"

	workorder "github.com/pubsub-inbox/pubsub-inbox/examples/work-order"
	"github.com/pubsub-inbox/pubsub-inbox/examples/work-order/worker"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/emulatortest"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/flowable/flowabletest"
)

//go:embed testdata/flowable/work-order.bpmn20.xml
var workOrderBPMN []byte

// The messages of a work order, in their order.
const (
	orderReleased  = "WorkOrderReleased"
	orderAccepted  = "WorkOrderAccepted"
	orderCompleted = "WorkOrderCompleted"
)

// flowWorld is the whole path with a real Flowable at its end: processes of both functions, the Spanner emulator, and
// a door before Flowable that sees, holds and loses what goes through it. What has become of an order is asked of Flowable
// itself, past the door.
type flowWorld struct {
	*relayWorld
	server  *flowabletest.Server
	client  *flowabletest.Client
	door    *flowDoor
	billing *billing
	poll    time.Duration
}

// startFlowable starts a Flowable for this test, with the settings of the example, or skips the test if that is asked for.
func startFlowable(t *testing.T, o flowabletest.Options) *billing {
	t.Helper()
	if os.Getenv("SKIP_ENGINES") == "1" {
		t.Skip("SKIP_ENGINES=1")
	}
	o.Properties = filepath.Join(t.TempDir(), "flowable.properties")
	if err := os.WriteFile(o.Properties, workorder.Properties, 0o600); err != nil {
		t.Fatal(err)
	}
	s := flowabletest.Start(t, o)
	s.Client(t).Deploy("work-order", "", workOrderBPMN)
	return startBilling(t, s)
}

// newFlowWorld is a world of its own before a Flowable that others may use as well.
func newFlowWorld(t *testing.T, b *billing) *flowWorld {
	t.Helper()
	w := &flowWorld{relayWorld: newRelayWorld(t), server: b.server, client: b.server.Client(t), door: &flowDoor{server: b.server}, billing: b,
		poll: 50 * time.Millisecond}
	w.timeout = 4 * time.Second
	front := httptest.NewServer(w.door)
	t.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
	})
	w.door.url = front.URL
	return w
}

// relayProcess starts a relay process. The door knows its requests by its name.
func (w *flowWorld) relayProcess(name, spannerHost string) *relayProcess {
	w.t.Helper()
	return startProcess(w.t, w.flowEnv("Relay", name, spannerHost)...).serving()
}

func (w *flowWorld) receiveProcess() *relayProcess {
	w.t.Helper()
	return startProcess(w.t, w.flowEnv("Receive", "receive", "")...).serving()
}

func (w *flowWorld) flowEnv(function, name, spannerHost string) []string {
	w.t.Helper()
	if spannerHost == "" {
		spannerHost = emulatortest.Spanner(w.t)
	}
	policy := fmt.Sprintf("patience: %v, retry: {min: %v, max: %v}", w.patience, w.retryMin, w.retryMax)
	text := fmt.Sprintf(`consumer: %s
engines:
  flow:
    kind: flowable
    url: %s/%s/process-api
    timeout: %v
    auth: {kind: basic, username: %s, passwordEnv: FLOWABLE_PASSWORD}
    processDefinitionKey: work-order
    correlation: {variable: workOrderId}
routes:
  - {name: released, match: attributes.eventType == "WorkOrderReleased", type: attributes.eventType, key: payload.workOrderId,
     dedupe: attributes.eventId, engine: flow, message: WorkOrderReleased, start: true, variables: {customer: payload.customer}, %s}
  - {name: steps, type: attributes.eventType, key: payload.workOrderId,
     dedupe: attributes.eventId, engine: flow, message: attributes.eventType, variables: {partial: payload.partial, completedItems: payload.items}, %s}
relay: {budget: 60s, poll: %v, parallel: %d, batch: %d, lease: %v}
`, relayConsumer, w.door.url, name, w.timeout, flowabletest.User, policy, policy, w.poll, w.parallel, w.batch, w.lease)
	file := filepath.Join(w.t.TempDir(), "inbox.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return []string{"FUNCTION_TARGET=" + function, "INBOX_CONFIG_FILE=" + file, "SPANNER_DATABASE=" + w.db,
		"SPANNER_EMULATOR_HOST=" + spannerHost, "AUTH_MODE=none", "FLOWABLE_PASSWORD=" + flowabletest.Password}
}

// orderEvent is what the work-order system publishes about an order. Its id is that of the business event, and of the
// message unless another one is given.
type orderEvent struct {
	order, what string
	partial     bool
	id          string // empty: made of the order and what happened
	second      int    // of the publish time
	messageID   string
}

func (e orderEvent) body(t *testing.T) []byte {
	t.Helper()
	if e.id == "" {
		e.id = e.order + "-" + e.what
	}
	if e.messageID == "" {
		e.messageID = "m-" + e.id
	}
	data, err := json.Marshal(map[string]any{"workOrderId": e.order, "partial": e.partial, "items": 4812, "customer": "c-" + e.order})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 3, 2, 8, 15, e.second, 0, time.UTC)
	return casePush{id: e.messageID, time: at.Format(time.RFC3339Nano), data: string(data),
		attributes: map[string]string{"eventType": e.what, "eventId": e.id}}.body(t)
}

// publish pushes events to a receive process, which must store them.
func (w *flowWorld) publish(receive *relayProcess, events ...orderEvent) {
	w.t.Helper()
	for _, e := range events {
		if status, text, err := receive.post(bytes.NewReader(e.body(w.t))); err != nil || status != http.StatusNoContent {
			w.t.Fatalf("the push of %s for %s is answered %d %s, %v; want 204", e.what, e.order, status, text, err)
		}
	}
}

// flowRow is a message after what was done to it.
type flowRow struct {
	Place     string // status, and reason where there is one
	Code      string
	Error     string
	Reference string
	Attempts  int64
}

// row is the message about what happened to an order.
func (w *flowWorld) row(order, what string) flowRow {
	w.t.Helper()
	var all []flowRow
	err := w.relayWorld.client.Single().Query(w.t.Context(), spanner.Statement{SQL: `
SELECT CONCAT(Status, IF(Reason IS NULL, '', CONCAT('/', Reason))), COALESCE(LastErrorCode, ''), COALESCE(LastErrorMessage, ''),
  COALESCE(EngineReference, ''), Attempts
FROM Messages WHERE CorrelationKey = @order AND MessageType = @what`, Params: map[string]any{"order": order, "what": what}}).Do(func(r *spanner.Row) error {
		var got flowRow
		if err := r.Columns(&got.Place, &got.Code, &got.Error, &got.Reference, &got.Attempts); err != nil {
			return err
		}
		all = append(all, got)
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if len(all) != 1 {
		w.t.Fatalf("%d rows of %s for %s, want 1", len(all), what, order)
	}
	return all[0]
}

// instances are the process instances of an order, running or ended.
func (w *flowWorld) instances(order string) []string {
	w.t.Helper()
	var page struct{ Data []struct{ ID string } }
	w.client.Do(http.MethodPost, "/query/historic-process-instances", map[string]any{"processBusinessKey": order, "size": 100}, &page)
	var ids []string
	for _, i := range page.Data {
		ids = append(ids, i.ID)
	}
	return ids
}

// startOrder starts an instance past the inbox, and takes it to where it waits for its completion.
func (w *flowWorld) startOrder(order string, variables ...flowabletest.Variable) string {
	w.t.Helper()
	i := w.client.StartProcess("work-order", order, "", append(variables, flowabletest.Text("workOrderId", order),
		flowabletest.Variable{Name: "completedItems", Type: "integer", Value: json.RawMessage("4812")})...)
	w.advance(i, orderAccepted)
	return i
}

// advance has an instance receive a message past the inbox.
func (w *flowWorld) advance(instance, message string) {
	w.t.Helper()
	waiting := w.client.Waiting(message, instance)
	if len(waiting) == 0 {
		w.t.Fatalf("instance %s does not wait for %s", instance, message)
	}
	for _, execution := range waiting {
		if status, raw := w.client.Deliver(execution, message); status > 299 {
			w.t.Fatalf("advancing an instance: status %d: %.300s", status, raw)
		}
	}
}

// flowCall is a request of a relay to Flowable.
type flowCall struct {
	Process, Method, Path string
	Message               string // the inbox id whose marker it sets or looks for
	Effect                bool   // it delivers
	Status                int    // Flowable's answer; zero: there was none
}

// flowDoor stands before Flowable. Its hooks are for requests that deliver; they run on the request's goroutine.
type flowDoor struct {
	url    string
	server *flowabletest.Server

	mu    sync.Mutex
	calls []*flowCall
	// before runs when a request has come and Flowable has not got it.
	before func(c flowCall)
	// after runs when Flowable has answered, and so committed or not. False loses the answer. gone is closed when the
	// relay is.
	after func(c flowCall, gone <-chan struct{}) bool
}

// direct makes no connection serve twice: net/http would repeat some requests on a new one, and the relay's would be two.
var direct = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

var markerName = regexp.MustCompile(`"inboxMsg_([0-9a-f]{32})"`)

func (d *flowDoor) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	process, path, _ := strings.Cut(strings.TrimPrefix(r.URL.RequestURI(), "/"), "/")
	c := &flowCall{Process: process, Method: r.Method, Path: strings.TrimPrefix(path, "process-api")}
	if m := markerName.FindSubmatch(body); m != nil {
		c.Message = string(m[1])
	}
	c.Effect = r.Method == http.MethodPut && strings.HasPrefix(c.Path, "/runtime/executions/") ||
		r.Method == http.MethodPost && c.Path == "/runtime/process-instances"
	d.mu.Lock()
	d.calls = append(d.calls, c)
	before, after := d.before, d.after
	seen := *c
	d.mu.Unlock()
	if c.Effect && before != nil {
		before(seen)
	}
	// On a context of its own: Flowable goes on when a caller has hung up.
	req, err := http.NewRequest(r.Method, strings.TrimSuffix(d.server.URL(), "process-api")+path, bytes.NewReader(body))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	req.Header = r.Header.Clone()
	resp, err := direct.Do(req)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	d.mu.Lock()
	c.Status = resp.StatusCode
	seen = *c
	d.mu.Unlock()
	if c.Effect && after != nil && !after(seen, r.Context().Done()) {
		panic(http.ErrAbortHandler)
	}
	for _, name := range []string{"Content-Type", "WWW-Authenticate"} {
		if v := resp.Header.Get(name); v != "" {
			rw.Header().Set(name, v)
		}
	}
	rw.WriteHeader(resp.StatusCode)
	_, _ = rw.Write(answer)
}

// on sets the hooks.
func (d *flowDoor) on(before func(c flowCall), after func(c flowCall, gone <-chan struct{}) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.before, d.after = before, after
}

// all are the requests so far that are wanted, in the order of their arrival.
func (d *flowDoor) all(wanted func(c flowCall) bool) []flowCall {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []flowCall
	for _, c := range d.calls {
		if wanted(*c) {
			all = append(all, *c)
		}
	}
	return all
}

// deliveries are the requests that deliver.
func (d *flowDoor) deliveries() []flowCall { return d.all(func(c flowCall) bool { return c.Effect }) }

// billing writes the invoices of all orders in a Flowable, by the worker of the example. Its ledger keeps apart what is
// billed for different jobs: that of the example would hide that an order is billed twice.
type billing struct {
	server *flowabletest.Server

	mu   sync.Mutex
	jobs map[string]map[string]bool // billed, by order
}

func startBilling(t *testing.T, s *flowabletest.Server) *billing {
	t.Helper()
	b := &billing{server: s, jobs: map[string]map[string]bool{}}
	c := worker.DefaultConfig()
	c.ID, c.Topic, c.Poll, c.MaxPause = "billing", "invoice", 200*time.Millisecond, time.Second
	client, err := worker.NewClient(s.JobsURL(), flowabletest.User, flowabletest.Password, c.Call)
	if err != nil {
		t.Fatal(err)
	}
	w, err := worker.New(c, client, b, slog.New(slog.DiscardHandler), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { w.Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	return b
}

// Issue implements worker.Ledger.
func (b *billing) Issue(_ context.Context, o worker.Order, job string) (worker.Invoice, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.jobs[o.WorkOrderID] == nil {
		b.jobs[o.WorkOrderID] = map[string]bool{}
	}
	b.jobs[o.WorkOrderID][job] = true
	return worker.Invoice{Number: "INV-" + job, WorkOrderID: o.WorkOrderID, Items: o.Items, Job: job}, nil
}

// invoices is how many were written for an order.
func (b *billing) invoices(order string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.jobs[order])
}

// wantInvoices waits until no invoice of an order is due, and fails unless n have been written.
func (w *flowWorld) wantInvoices(order string, n int) {
	w.t.Helper()
	eventually(w.t, "no invoice is due", func() bool {
		for _, i := range w.instances(order) {
			begun := w.client.Count("/history/historic-activity-instances?activityId=invoice&processInstanceId="+i, nil)
			if w.client.Finished(i, "invoice") != begun {
				return false
			}
		}
		return true
	})
	if got := w.billing.invoices(order); got != n {
		w.t.Errorf("%d invoices were written for order %s, want %d", got, order, n)
	}
}
