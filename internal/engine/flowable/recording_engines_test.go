//go:build engines

package flowable_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/enginetest"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/flowable"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/flowable/flowabletest"
)

var update = flag.Bool("update", false, "write testdata/recorded anew")

// making is how a case comes about: in which Flowable, and what happens before it and between look-up and delivery.
var making = map[string]struct {
	options flowabletest.Options
	before  func(t *testing.T, w *world, key string)
	between func(t *testing.T, w *world, instance string)
	after   func(t *testing.T, w *world, key string)
}{
	"delivered":          {before: waits()},
	"delivered and over": {before: waitsIn("short")},
	"none":               {},
	"not there yet":      {before: waits(flowabletest.Text("stage", "preparing"))},
	"through":            {before: func(t *testing.T, w *world, key string) { w.Pass(key, completed) }},
	"through and over": {before: func(t *testing.T, w *world, key string) {
		w.advanceToEnd(t, w.start("short", key, ""))
	}},
	"delivered before": {before: func(t *testing.T, w *world, key string) {
		waits()(t, w, key)
		w.engine(ordinary).Correlate(t.Context(), recordedDelivery("delivered before", key))
	}},
	"two": {before: func(t *testing.T, w *world, key string) { waits()(t, w, key); waits()(t, w, key) }},
	"twelve": {before: func(t *testing.T, w *world, key string) {
		for range 12 {
			waits()(t, w, key)
		}
	}},
	"vanished, deleted":  {before: waits(), between: func(t *testing.T, w *world, i string) { w.client.Delete(i) }},
	"vanished, advanced": {before: waits(), between: func(t *testing.T, w *world, i string) { w.advance(i, completed) }},
	"vanished, masked":   {options: flowabletest.Options{MaskErrors: true}, before: waits(), between: func(t *testing.T, w *world, i string) { w.advance(i, completed) }},
	"suspended":          {before: func(t *testing.T, w *world, key string) { waits()(t, w, key); w.Suspend(key, completed) }},
	"suspended between":  {before: waits(), between: func(t *testing.T, w *world, i string) { w.client.Suspend(i) }},
	"suspended, masked":  {options: flowabletest.Options{MaskErrors: true}, before: waits(), between: func(t *testing.T, w *world, i string) { w.client.Suspend(i) }},
	"step fails":         {before: waits(flowabletest.Text("fault", "technical"))},
	"step fails, masked": {options: flowabletest.Options{MaskErrors: true}, before: waits(flowabletest.Text("fault", "technical"))},
	"step finds nothing": {before: waits(flowabletest.Text("fault", "missing"))},
	"step takes offence": {before: waits(flowabletest.Text("fault", "argument"))},
	"wrong type":         {before: waits()},
	"wrong password":     {before: waits()},
	"no privilege":       {before: waits()},
	"path below":         {before: waits()},
	"path beside":        {before: waits()},
	"probe found": {before: func(t *testing.T, w *world, key string) {
		waits()(t, w, key)
		w.Set(enginetest.LosesAnswers)
		w.engine(ordinary).Correlate(t.Context(), recordedDelivery("probe found", key))
		w.Set(enginetest.Healthy)
	}},
	"probe waiting":                   {before: waits()},
	"probe gone":                      {},
	"no history":                      {options: flowabletest.Options{History: "none"}, before: waits()},
	"started":                         {},
	"start, probed":                   {before: another},
	"started by somebody else":        {before: waits()},
	"start, no history":               {options: flowabletest.Options{History: "none"}, before: another},
	"start of another process":        {},
	"start, first step takes offence": {},
	"start, first step finds nothing": {},
	"no start":                        {},
	"start, suspended": {before: func(t *testing.T, w *world, key string) { w.definition(t, "short", "suspend") },
		after: func(t *testing.T, w *world, key string) { w.definition(t, "short", "activate") }},
}

// another instance of the process, by which it can be told what history is kept.
func another(_ *testing.T, w *world, key string) { w.start("order", key+"-another", "") }

func waits(variables ...flowabletest.Variable) func(*testing.T, *world, string) {
	return waitsIn("order", variables...)
}

func waitsIn(definition string, variables ...flowabletest.Variable) func(*testing.T, *world, string) {
	return func(_ *testing.T, w *world, key string) { w.start(definition, key, "", variables...) }
}

// definition suspends or activates the latest version of a process.
func (w *world) definition(t *testing.T, key, action string) {
	t.Helper()
	var page struct {
		Data []struct{ ID, TenantID string }
	}
	w.client.Do(http.MethodGet, "/repository/process-definitions?sort=version&order=desc&size=100&key="+key, nil, &page)
	page.Data = slices.DeleteFunc(page.Data, func(d struct{ ID, TenantID string }) bool { return d.TenantID != "" })
	if status, raw := w.client.Do(http.MethodPut, "/repository/process-definitions/"+page.Data[0].ID, map[string]any{"action": action}, nil); status > 299 {
		t.Fatalf("%s: status %d: %.300s", action, status, raw)
	}
}

// advanceToEnd delivers to an instance that ends with the message.
func (w *world) advanceToEnd(t *testing.T, instance string) {
	t.Helper()
	for _, execution := range w.client.Waiting(completed, instance) {
		if status, raw := w.client.Deliver(execution, completed); status != http.StatusNoContent {
			t.Fatalf("status %d: %.300s", status, raw)
		}
	}
}

// TestTheRecordingsAreStillWhatFlowableSays makes each case in a real Flowable, compares verdicts, and compares what was
// said with what was recorded.
func TestTheRecordingsAreStillWhatFlowableSays(t *testing.T) {
	for name, c := range recorded {
		t.Run(name, func(t *testing.T) {
			how, ok := making[name]
			if !ok {
				t.Fatal("nothing says how this case comes about")
			}
			w, key := newWorld(t, how.options), newKey()
			if how.before != nil {
				how.before(t, w, key)
			}
			if how.after != nil {
				defer how.after(t, w, key)
			}
			if how.between != nil {
				instance := w.of(key)[0]
				w.mu.Lock()
				w.between[key] = func(string) { how.between(t, w, instance) }
				w.mu.Unlock()
			}
			l := &lasting{key: key, base: strings.TrimSuffix(w.server.URL(), "/process-api"), ids: map[string]string{}}
			got := recording{Flowable: w.version()}
			w.mu.Lock()
			w.record = func(r *http.Request, body []byte, status int, header http.Header, answer []byte) {
				x := exchange{Method: r.Method, Path: l.text(r.URL.RequestURI()), Request: json.RawMessage(l.text(string(body))),
					Status: status, Media: header.Get("Content-Type")}
				if text := l.text(string(answer)); json.Valid([]byte(text)) {
					x.Answer = settled(x, json.RawMessage(text))
				} else {
					x.Text = text
				}
				got.Exchanges = append(got.Exchanges, x)
			}
			w.mu.Unlock()
			e := w.engine(ordinary, func(to *flowable.Config) {
				*to = recordedConfig(to.BaseURL)
				if c.change != nil {
					c.change(to)
				}
			})
			d := recordedDelivery(name, key)
			for i, s := range c.steps {
				outcome, r := s.ask(t, e, d)
				if outcome != s.outcome || r.Code != s.code {
					t.Errorf("step %d: got %s %s (%s), want %s %s", i, outcome, r.Code, r.Detail, s.outcome, s.code)
				}
			}
			raw, err := json.MarshalIndent(got, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			raw = append(raw, '\n')
			if *update {
				if err := os.MkdirAll(filepath.Dir(fileOf(name)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(fileOf(name), raw, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			was, err := os.ReadFile(fileOf(name))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(was), string(raw)); diff != "" {
				t.Errorf("Flowable, or what the adapter asks it, has changed (-recorded +now); go test -tags engines -update writes it anew:\n%s", diff)
			}
		})
	}
}

// settled takes away what Flowable itself leaves open: the order of variables, and which of an instance's activities is
// the first; and how many instances other tests have left.
func settled(x exchange, answer json.RawMessage) json.RawMessage {
	if bytes.Contains(x.Request, []byte(`"sort"`)) && !bytes.Contains(x.Request, []byte(recordedKey)) {
		answer = regexp.MustCompile(`"total":\d+`).ReplaceAll(answer, []byte(`"total":1`))
	}
	for _, member := range []string{"activityId", "activityType"} {
		if strings.Contains(x.Path, "historic-activity-instances") && !strings.Contains(x.Path, "activityId=") {
			answer = regexp.MustCompile(`"`+member+`":"[^"]*"`).ReplaceAll(answer, []byte(`"`+member+`":"any"`))
		}
	}
	return regexp.MustCompile(`"variables":\[(\{[^\]]*\})\]`).ReplaceAllFunc(answer, func(list []byte) []byte {
		var variables []json.RawMessage
		if json.Unmarshal(bytes.TrimPrefix(list, []byte(`"variables":`)), &variables) != nil {
			return list
		}
		slices.SortFunc(variables, func(a, b json.RawMessage) int { return bytes.Compare(a, b) })
		sorted, _ := json.Marshal(variables)
		return append([]byte(`"variables":`), sorted...)
	})
}

var (
	idPattern       = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	timePattern     = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)`)
	durationPattern = regexp.MustCompile(`"durationInMillis":\d+`)
	numberPattern   = regexp.MustCompile(`"version":\d+`) // of a process definition
	versionPattern  = regexp.MustCompile(`\b(order|short|cancellation|hasty):\d+:`)
)

// lasting replaces what differs from run to run, the same by the same.
type lasting struct {
	key, base string
	ids       map[string]string
}

func (l *lasting) text(s string) string {
	s = strings.ReplaceAll(s, l.base, "http://flowable")
	s = strings.ReplaceAll(s, l.key, recordedKey)
	s = idPattern.ReplaceAllStringFunc(s, func(id string) string {
		if l.ids[id] == "" {
			l.ids[id] = fmt.Sprintf("id-%d", len(l.ids)+1)
		}
		return l.ids[id]
	})
	s = timePattern.ReplaceAllString(s, "2026-03-02T08:15:30.123Z")
	s = durationPattern.ReplaceAllString(s, `"durationInMillis":1`)
	s = numberPattern.ReplaceAllString(s, `"version":1`)
	return versionPattern.ReplaceAllString(s, "$1:1:")
}
