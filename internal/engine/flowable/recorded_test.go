package flowable_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/flowable"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/flowable/flowabletest"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/httpcall"
)

// recording is what was said between the adapter and a real Flowable in one case, with ids, times and keys replaced by
// what stays the same. The tests with the tag engines make it; here it is played back.
type recording struct {
	Flowable  string     // version
	Exchanges []exchange // in order
}

type exchange struct {
	Method, Path string
	Request      json.RawMessage `json:",omitempty"`
	Status       int
	Media        string          `json:",omitempty"`
	Answer       json.RawMessage `json:",omitempty"`
	Text         string          `json:",omitempty"` // of an answer that is not JSON
}

const recordedKey = "order-4711"

// step is one question to the adapter, and what it must say.
type step struct {
	ask     func(t *testing.T, e *flowable.Engine, d engine.Delivery) (string, engine.Result)
	outcome string // the verdict, or a probe's outcome
	code    string
}

func correlate(v engine.Verdict, code string) step {
	return step{outcome: string(v), code: code, ask: func(t *testing.T, e *flowable.Engine, d engine.Delivery) (string, engine.Result) {
		r := e.Correlate(t.Context(), d)
		return string(r.Verdict), r
	}}
}

func through(v engine.Verdict, code string) step {
	return step{outcome: string(v), code: code, ask: func(t *testing.T, e *flowable.Engine, d engine.Delivery) (string, engine.Result) {
		r := e.Through(t.Context(), d)
		return string(r.Verdict), r
	}}
}

func probe(o engine.ProbeOutcome, code string) step {
	return step{outcome: string(o), code: code, ask: func(t *testing.T, e *flowable.Engine, d engine.Delivery) (string, engine.Result) {
		got, r := e.Probe(t.Context(), d)
		return string(got), r
	}}
}

// recorded are the cases. What makes them is in the tests with the tag engines, under the same names.
var recorded = map[string]struct {
	change func(*flowable.Config)
	start  bool
	steps  []step
}{
	"delivered":          {steps: []step{correlate(engine.Correlated, "HTTP 200")}},
	"delivered and over": {change: process("short"), steps: []step{correlate(engine.Correlated, "HTTP 204")}},
	"none":               {steps: []step{correlate(engine.NotWaiting, "NONE"), through(engine.NotWaiting, "NONE")}},
	"not there yet":      {steps: []step{correlate(engine.NotWaiting, "NONE"), through(engine.NotWaiting, "NONE")}},
	"through":            {steps: []step{correlate(engine.NotWaiting, "NONE"), through(engine.AlreadyThrough, "THROUGH")}},
	"through and over":   {change: process("short"), steps: []step{correlate(engine.NotWaiting, "NONE"), through(engine.AlreadyThrough, "THROUGH")}},
	"delivered before":   {steps: []step{correlate(engine.NotWaiting, "NONE"), through(engine.Duplicate, "MARKER")}},
	"two":                {steps: []step{correlate(engine.Ambiguous, "AMBIGUOUS")}},
	"twelve":             {steps: []step{correlate(engine.Ambiguous, "AMBIGUOUS")}},
	"vanished, deleted":  {steps: []step{correlate(engine.Vanished, "HTTP 404"), correlate(engine.NotWaiting, "NONE")}},
	"vanished, advanced": {steps: []step{correlate(engine.Vanished, "HTTP 500"), correlate(engine.NotWaiting, "NONE")}},
	"vanished, masked":   {steps: []step{correlate(engine.Vanished, "HTTP 500"), correlate(engine.NotWaiting, "NONE")}},
	"suspended":          {steps: []step{correlate(engine.RetryAfter, "SUSPENDED")}},
	"suspended between":  {steps: []step{correlate(engine.RetryAfter, "SUSPENDED")}},
	"suspended, masked":  {steps: []step{correlate(engine.RetryAfter, "SUSPENDED")}},
	"step fails":         {steps: []step{correlate(engine.Technical, "HTTP 500")}},
	"step fails, masked": {steps: []step{correlate(engine.Technical, "HTTP 500")}},
	"step finds nothing": {steps: []step{correlate(engine.Technical, "HTTP 404")}},
	"step takes offence": {steps: []step{correlate(engine.Technical, "HTTP 400")}},
	"wrong type": {change: func(c *flowable.Config) {
		c.VariableTypes = map[string]string{"completedItems": "string", "when": "date"}
	},
		steps: []step{correlate(engine.Rejected, "HTTP 400")}},
	"wrong password": {change: func(c *flowable.Config) { c.Auth.Password = "wrong" },
		steps: []step{correlate(engine.Unauthorised, "HTTP 401")}},
	"no privilege": {change: func(c *flowable.Config) {
		c.Auth.Username, c.Auth.Password = flowabletest.Stranger, flowabletest.StrangerPassword
	}, steps: []step{correlate(engine.Unauthorised, "HTTP 403")}},
	"path below": {change: func(c *flowable.Config) { c.BaseURL += "/service" }, steps: []step{correlate(engine.Technical, "BASE_PATH")}},
	"path beside": {change: func(c *flowable.Config) { c.BaseURL = strings.TrimSuffix(c.BaseURL, "process-api") + "other" },
		steps: []step{correlate(engine.Technical, "BASE_PATH")}},
	"probe found":                     {steps: []step{probe(engine.ProbeFound, "MARKER")}},
	"probe waiting":                   {steps: []step{probe(engine.ProbeWaiting, "WAITING")}},
	"probe gone":                      {steps: []step{probe(engine.ProbeGone, "GONE")}},
	"no history":                      {steps: []step{probe(engine.ProbeGone, "NO_HISTORY")}},
	"started":                         {start: true, steps: []step{correlate(engine.Correlated, "HTTP 201"), correlate(engine.Duplicate, "MARKER")}},
	"start, probed":                   {start: true, steps: []step{probe(engine.ProbeWaiting, "WAITING"), correlate(engine.Correlated, "HTTP 201"), probe(engine.ProbeFound, "MARKER")}},
	"started by somebody else":        {start: true, steps: []step{correlate(engine.Duplicate, "BUSINESS_KEY"), probe(engine.ProbeFound, "BUSINESS_KEY")}},
	"start, no history":               {start: true, steps: []step{probe(engine.ProbeGone, "NO_HISTORY")}},
	"start of another process":        {start: true, change: process("short"), steps: []step{correlate(engine.Technical, "CONFIGURATION")}},
	"start, first step takes offence": {start: true, change: process("hasty"), steps: []step{correlate(engine.Technical, "HTTP 400")}},
	"start, first step finds nothing": {start: true, change: process("hasty"), steps: []step{correlate(engine.Technical, "HTTP 400")}},
	"no start":                        {start: true, steps: []step{correlate(engine.NotWaiting, "NO_START")}},
	"start, suspended": {start: true, change: process("short"),
		steps: []step{correlate(engine.RetryAfter, "SUSPENDED")}},
}

func process(key string) func(*flowable.Config) {
	return func(c *flowable.Config) { c.ProcessDefinitionKey = key }
}

// recordedDelivery is the delivery of a case.
func recordedDelivery(name, key string) engine.Delivery {
	d := engine.Delivery{InboxID: "inbox-" + key, Attempt: 1, Message: "WorkOrderCompleted", Key: key,
		Variables: map[string]json.RawMessage{"completedItems": json.RawMessage("4812")}}
	if name == "wrong type" {
		d.Variables["when"] = json.RawMessage(`"the day before yesterday"`)
	}
	if d.Start = recorded[name].start; d.Start {
		d.Message = "WorkOrderCreated"
	}
	switch name {
	case "no start":
		d.Message = "Nonsense"
	case "start, suspended":
		d.Message = "ShortOrderCreated"
	case "start, first step takes offence":
		d.Message, d.Variables["fault"] = "HastyOrderCreated", json.RawMessage(`"argument"`)
	case "start, first step finds nothing":
		d.Message, d.Variables["fault"] = "HastyOrderCreated", json.RawMessage(`"missing"`)
	}
	return d
}

func fileOf(name string) string {
	return filepath.Join("testdata", "recorded", strings.ReplaceAll(strings.ReplaceAll(name, ",", ""), " ", "-")+".json")
}

// TestRecorded plays back what a real Flowable said. The adapter must ask the same, and judge it the same way.
func TestRecorded(t *testing.T) {
	for name, c := range recorded {
		t.Run(name, func(t *testing.T) {
			raw, err := os.ReadFile(fileOf(name))
			if err != nil {
				t.Fatal(err)
			}
			var r recording
			if err := json.Unmarshal(raw, &r); err != nil {
				t.Fatal(err)
			}
			p := newPlayer(t, r.Exchanges)
			e := p.engine(c.change)
			d := recordedDelivery(name, recordedKey)
			for i, s := range c.steps {
				outcome, got := s.ask(t, e, d)
				if outcome != s.outcome || got.Code != s.code {
					t.Errorf("step %d: got %s %s (%s), want %s %s", i, outcome, got.Code, got.Detail, s.outcome, s.code)
				}
			}
			if left := p.left(); left > 0 {
				t.Errorf("%d recorded exchanges were not asked for", left)
			}
		})
	}
}

// TestWhatIsCalledMaskedIs keeps the recordings of masked errors from being recordings of others.
func TestWhatIsCalledMaskedIs(t *testing.T) {
	for name := range recorded {
		raw, err := os.ReadFile(fileOf(name))
		if err != nil {
			t.Fatal(err)
		}
		if masked := strings.Contains(string(raw), `"exception": "Error with ID: `); masked != strings.HasSuffix(name, "masked") {
			t.Errorf("%s: that its error is masked is %v", name, masked)
		}
	}
}

// TestEachRecordingIsOfACase: what nothing plays back proves nothing.
func TestEachRecordingIsOfACase(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "recorded", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for name := range recorded {
		known[fileOf(name)] = true
	}
	for _, f := range files {
		if !known[f] {
			t.Errorf("%s is no case's", f)
		}
	}
}

// player answers as was recorded.
type player struct {
	t      *testing.T
	server *httptest.Server

	mu    sync.Mutex
	tape  []exchange
	asked int
}

func newPlayer(t *testing.T, tape []exchange) *player {
	p := &player{t: t, tape: tape}
	p.server = httptest.NewServer(http.HandlerFunc(p.serve))
	t.Cleanup(p.server.Close)
	return p
}

func (p *player) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked >= len(p.tape) {
		p.t.Errorf("request %d, %s %s, was not recorded", p.asked, r.Method, r.URL)
		w.WriteHeader(http.StatusTeapot)
		return
	}
	x := p.tape[p.asked]
	if got, want := fmt.Sprint(r.Method, " ", r.URL.RequestURI()), fmt.Sprint(x.Method, " ", x.Path); got != want {
		p.t.Errorf("request %d is %s, and was recorded as %s", p.asked, got, want)
	}
	if diff := cmp.Diff(compacted(x.Request), compacted(body)); diff != "" {
		p.t.Errorf("request %d (-recorded +sent):\n%s", p.asked, diff)
	}
	p.asked++
	if x.Media != "" {
		w.Header().Set("Content-Type", x.Media)
	}
	w.WriteHeader(x.Status)
	if x.Answer != nil {
		_, _ = io.WriteString(w, compacted(x.Answer))
	} else {
		_, _ = io.WriteString(w, x.Text)
	}
}

func (p *player) left() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.tape) - p.asked
}

func (p *player) engine(change func(*flowable.Config)) *flowable.Engine {
	p.t.Helper()
	c := recordedConfig(p.server.URL + "/process-api")
	if change != nil {
		change(&c)
	}
	e, err := flowable.New(c, flowable.Deps{})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = e.Close() })
	return e
}

func recordedConfig(base string) flowable.Config {
	return flowable.Config{
		Name: "recorded", BaseURL: base, Timeout: 20 * time.Second, ProcessDefinitionKey: "order",
		Auth:        flowable.Auth{Kind: flowable.AuthBasic, Username: flowabletest.User, Password: httpcall.Secret(flowabletest.Password)},
		Correlation: flowable.Correlation{Variable: "workOrderId"},
	}
}

func compacted(raw []byte) string {
	if len(raw) == 0 {
		return ""
	}
	var b strings.Builder
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	for {
		var v json.RawMessage
		if dec.Decode(&v) != nil {
			return b.String()
		}
		out, _ := json.Marshal(v)
		b.Write(out)
	}
}
