//go:build engines

package flowable_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/enginetest"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/flowable"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/flowable/flowabletest"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/httpcall"
	"github.com/pubsub-inbox/pubsub-inbox/internal/freeport"
)

// world is a real Flowable behind a proxy that can break what goes through it. What advanced is asked of Flowable itself.
type world struct {
	t          testing.TB
	server     *flowabletest.Server
	client     *flowabletest.Client
	proxy      *httptest.Server
	closedPort string
	ended      chan struct{}

	mu        sync.Mutex
	outage    enginetest.Outage
	instances map[string][]string               // by key
	arrived   map[string]int                    // by key
	news      chan struct{}                     // closed and replaced with each arrival
	between   map[string]func(execution string) // by key: once, between look-up and delivery
	after     func(w http.ResponseWriter) bool  // after a delivery was handled, instead of its answer
	record    func(r *http.Request, body []byte, status int, header http.Header, answer []byte)
	broken    bool // each request is answered as a delivery that after answers
	loseStart bool // the answer to the next start of an instance
}

func newWorld(t testing.TB, o flowabletest.Options) *world {
	t.Helper()
	s := server(t, o)
	w := &world{t: t, server: s, client: s.Client(t), ended: make(chan struct{}), outage: enginetest.Healthy,
		instances: map[string][]string{}, arrived: map[string]int{}, between: map[string]func(string){}, news: make(chan struct{})}
	w.proxy = httptest.NewServer(http.HandlerFunc(w.serve))
	t.Cleanup(func() {
		close(w.ended)
		w.proxy.CloseClientConnections()
		w.proxy.Close()
	})
	closed, err := freeport.Hold()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closed.Release() })
	w.closedPort = closed.Address()
	return w
}

// serve passes a request on to Flowable, or does to it what the outage says.
func (w *world) serve(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	path := strings.TrimPrefix(r.URL.EscapedPath(), "/process-api")
	execution, delivers := strings.CutPrefix(path, "/runtime/executions/")
	delivers = delivers && r.Method == http.MethodPut
	key := ""
	if delivers {
		key = w.keyOf(execution)
	}
	w.mu.Lock()
	outage, hook, after := w.outage, w.between[key], w.after
	broken := w.broken
	lose := w.loseStart && r.Method == http.MethodPost && path == "/runtime/process-instances"
	w.loseStart = w.loseStart && !lose
	if delivers {
		delete(w.between, key)
		w.arrived[key]++
		close(w.news)
		w.news = make(chan struct{})
	}
	w.mu.Unlock()
	if hook != nil && delivers {
		hook(execution)
	}
	switch {
	case broken:
		after(rw)
		return
	case outage == enginetest.Throttled && delivers:
		rw.Header().Set("Retry-After", "30")
		rw.WriteHeader(http.StatusTooManyRequests)
		return
	case outage == enginetest.Echoes && delivers:
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(rw).Encode(map[string]string{"message": "Bad request", "exception": "cannot take " + string(body)})
		return
	case outage == enginetest.Hangs && delivers:
		select {
		case <-r.Context().Done():
		case <-w.ended:
		}
		panic(http.ErrAbortHandler)
	case outage == enginetest.Locked:
		r.SetBasicAuth(flowabletest.Stranger, flowabletest.StrangerPassword)
	}
	status, header, answer, err := w.forward(r, body)
	if err != nil || outage == enginetest.LosesAnswers && delivers || lose {
		panic(http.ErrAbortHandler)
	}
	w.mu.Lock()
	if w.record != nil {
		w.record(r, body, status, header, answer)
	}
	w.mu.Unlock()
	if after != nil && delivers && after(rw) {
		return
	}
	for _, name := range []string{"Content-Type", "WWW-Authenticate"} {
		if v := header.Get(name); v != "" {
			rw.Header().Set(name, v)
		}
	}
	rw.WriteHeader(status)
	_, _ = rw.Write(answer)
}

// forward uses a context of its own: Flowable goes on when a caller has hung up.
func (w *world) forward(r *http.Request, body []byte) (int, http.Header, []byte, error) {
	target := strings.TrimSuffix(w.server.URL(), "/process-api") + r.URL.RequestURI()
	req, err := http.NewRequest(r.Method, target, bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	req.Header = r.Header.Clone()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, answer, err
}

// version is Flowable's own word.
func (w *world) version() string {
	var got struct{ Version string }
	w.client.Do(http.MethodGet, "/management/engine", nil, &got)
	return got.Version
}

// keyOf is the key of the instance that an execution belongs to.
func (w *world) keyOf(execution string) string {
	status, raw := w.client.Do(http.MethodGet, "/runtime/executions/"+execution, nil, nil)
	var got struct{ ProcessInstanceID string }
	if status != http.StatusOK || json.Unmarshal(raw, &got) != nil {
		return ""
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, instances := range w.instances {
		for _, i := range instances {
			if i == got.ProcessInstanceID {
				return key
			}
		}
	}
	return ""
}

func (w *world) Lacks() map[enginetest.Ability]string { return nil }

// Engine takes a second at least: on a busy machine a real Flowable answers no look-up within the part of 250ms that it
// is given.
func (w *world) Engine(timeout time.Duration) engine.Engine {
	return w.engine(max(timeout, 2*time.Second))
}

func (w *world) engine(timeout time.Duration, changes ...func(*flowable.Config)) *flowable.Engine {
	w.t.Helper()
	c := flowable.Config{
		Name: "test", BaseURL: w.proxy.URL + "/process-api", Timeout: timeout,
		Auth:                 flowable.Auth{Kind: flowable.AuthBasic, Username: flowabletest.User, Password: httpcall.Secret(flowabletest.Password)},
		ProcessDefinitionKey: "order",
		Correlation:          flowable.Correlation{Variable: "workOrderId"},
		// Exact numbers inside of JSON are what a string is for.
		VariableTypes: map[string]string{"nested": "string"},
	}
	for _, change := range changes {
		change(&c)
	}
	e, err := flowable.New(c, flowable.Deps{Dial: w.dial})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = e.Close() })
	return e
}

func (w *world) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	if w.outage == enginetest.Refused {
		address = w.closedPort
	}
	w.mu.Unlock()
	return new(net.Dialer).DialContext(ctx, network, address)
}

func (w *world) Start(key, message string) {
	definition := map[string]string{"WorkOrderCompleted": "order", "WorkOrderCancelled": "cancellation"}[message]
	w.start(definition, key, "")
}

// start starts an instance with the variables that the test process understands.
func (w *world) start(definition, key, tenant string, variables ...flowabletest.Variable) string {
	w.t.Helper()
	id := w.client.StartProcess(definition, key, tenant, append(variables, flowabletest.Text("workOrderId", key))...)
	w.own(key, id)
	return id
}

func (w *world) own(key, instance string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.instances[key] = append(w.instances[key], instance)
}

func (w *world) of(key string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.instances[key]...)
}

func (w *world) Pass(key, message string) {
	w.Start(key, message)
	w.advance(w.of(key)[0], message)
}

// advance has an instance receive a message past the inbox.
func (w *world) advance(instance, message string) {
	w.t.Helper()
	for _, execution := range w.client.Waiting(message, instance) {
		if status, raw := w.client.Deliver(execution, message); status != http.StatusOK {
			w.t.Fatalf("advancing an instance: status %d: %.300s", status, raw)
		}
	}
}

func (w *world) Vanish(key, _ string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	instance := w.instances[key][0]
	w.between[key] = func(string) { w.client.Delete(instance) }
}

func (w *world) Suspend(key, _ string) { w.client.Suspend(w.of(key)[0]) }

func (w *world) Set(o enginetest.Outage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outage = o
}

func (w *world) Advanced(key string) int {
	n := 0
	for _, instance := range w.of(key) {
		n += w.client.Finished(instance, "step") + w.client.Finished(instance, "hold2")
	}
	return n
}

func (w *world) Arrived(key string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.arrived[key]
}

func (w *world) Await(ctx context.Context, key string, n int) error {
	for {
		w.mu.Lock()
		arrived, news := w.arrived[key], w.news
		w.mu.Unlock()
		if arrived >= n {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (w *world) Variables(key string) map[string]json.RawMessage {
	all := map[string]json.RawMessage{}
	for _, instance := range w.of(key) {
		for name, v := range w.client.Variables(instance) {
			all[name] = v.Value
			if v.Type == "bigDecimal" || v.Type == "bigInteger" || name == "nested" {
				var text string
				if err := json.Unmarshal(v.Value, &text); err != nil {
					w.t.Errorf("variable %s: %v", name, err)
				}
				all[name] = json.RawMessage(text)
			}
			if v.Type == "string" && name != "nested" {
				all[name] = spelled(v.Value)
			}
		}
	}
	return all
}

// spelled writes a JSON string as the suite does.
func spelled(raw json.RawMessage) json.RawMessage {
	var text string
	_ = json.Unmarshal(raw, &text)
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(text)
	return bytes.TrimSpace(b.Bytes())
}

// Settle has nothing to wait for: an answer that was lost had been given.
func (w *world) Settle(time.Duration) {}

func TestConformance(t *testing.T) {
	enginetest.Run(t, func(t testing.TB) enginetest.World { return newWorld(t, flowabletest.Options{}) })
}
