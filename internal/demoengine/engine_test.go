package demoengine

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var start = time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)

// ticking is a clock that is a second later each time it is asked.
func ticking() func() time.Time {
	var mu sync.Mutex
	now := start.Add(-time.Second)
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(time.Second)
		return now
	}
}

// post delivers by hand, as any CloudEvents sender would.
func post(t *testing.T, h http.Handler, id, key, message, body string) (int, map[string]any) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/events", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", `"`+id+`"`)
	r.Header.Set("Ce-Id", id)
	r.Header.Set("Ce-Subject", key)
	r.Header.Set("Ce-Type", message)
	r.Header.Set("Ce-Inboxattempt", "2")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var document map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &document); err != nil {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	return w.Code, document
}

func TestEachSituationHasItsAnswer(t *testing.T) {
	tests := []struct {
		name    string
		setUp   func(e *Engine)
		status  int
		problem string
	}{
		{"one waits", func(e *Engine) { e.Start("k", "M") }, 200, ""},
		{"nobody is there", func(*Engine) {}, 404, "not-waiting"},
		{"another key waits", func(e *Engine) { e.Start("other", "M") }, 404, "not-waiting"},
		{"the process is not there yet", func(e *Engine) { e.Start("k", "First", "M") }, 404, "not-waiting"},
		{"the process is past it", func(e *Engine) { e.Start("k", "M"); e.Finish("k") }, 410, "already-through"},
		{"two wait", func(e *Engine) { e.StartTwice("k", "M") }, 409, "ambiguous"},
		{"two waited, and one is gone", func(e *Engine) { e.StartTwice("k", "M"); e.RemoveOne("k") }, 200, ""},
		{"an old one is through and a new one waits", func(e *Engine) { e.Start("k", "M"); e.Finish("k"); e.Start("k", "M") }, 200, ""},
		{"it goes away in the middle", func(e *Engine) { e.Start("k", "M"); e.VanishOnDelivery("k") }, 412, "vanished"},
		{"it is closed", func(e *Engine) { e.Start("k", "M"); e.SetOutage(Unavailable) }, 503, "throttled"},
		{"it is busy", func(e *Engine) { e.Start("k", "M"); e.SetOutage(Throttling) }, 429, "throttled"},
		{"it is locked", func(e *Engine) { e.Start("k", "M"); e.SetOutage(Locked) }, 401, ""},
		{"it is closed, and open again", func(e *Engine) { e.Start("k", "M"); e.SetOutage(Unavailable); e.SetOutage(Healthy) }, 200, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := New(Options{})
			tt.setUp(e)
			status, document := post(t, e, "a", "k", "M", "{}")
			want := any(nil)
			switch {
			case tt.problem != "":
				want = problemBase + tt.problem
			case status >= 300:
				want = "about:blank"
			}
			if status != tt.status || document["type"] != want {
				t.Errorf("%d %v, want %d %v", status, document, tt.status, want)
			}
			advanced := 0
			if tt.status == 200 {
				advanced = 1
			}
			if got := e.Advanced("k"); got != advanced {
				t.Errorf("advanced %d times, want %d", got, advanced)
			}
		})
	}
}

func TestADeliveryHasOneEffect(t *testing.T) {
	e := New(Options{})
	id := e.Start("k", "M", "M")
	for range 3 {
		if status, document := post(t, e, "a", "k", "M", "{}"); status != 200 || document["reference"] != id {
			t.Errorf("%d %v", status, document)
		}
	}
	if status, _ := post(t, e, "a", "k", "M", `{"x":1}`); status != 422 {
		t.Errorf("another delivery under the same key: %d, want 422", status)
	}
	if got := e.Advanced("k"); got != 1 {
		t.Errorf("advanced %d times, want 1", got)
	}
	if status, _ := post(t, e, "b", "k", "M", "{}"); status != 200 || e.Advanced("k") != 2 || e.Waiting("k", "M") != 0 {
		t.Errorf("the next: %d, advanced %d", status, e.Advanced("k"))
	}
}

func TestAForgetfulEngineHasAnEffectEachTime(t *testing.T) {
	e := New(Options{Forgetful: true})
	e.Start("k", "M", "M")
	post(t, e, "a", "k", "M", "{}")
	post(t, e, "a", "k", "M", "{}")
	if got := e.Advanced("k"); got != 2 {
		t.Errorf("advanced %d times, want 2", got)
	}
}

func TestARefusalIsNotRemembered(t *testing.T) {
	e := New(Options{})
	if status, _ := post(t, e, "a", "k", "M", "{}"); status != 404 {
		t.Fatalf("%d, want 404", status)
	}
	e.Start("k", "M")
	if status, _ := post(t, e, "a", "k", "M", "{}"); status != 200 {
		t.Errorf("%d, want 200", status)
	}
}

func TestDeliveriesInParallelHaveOneEffectEach(t *testing.T) {
	e := New(Options{})
	var all sync.WaitGroup
	for i := range 20 {
		key := fmt.Sprint("k", i/4)
		if i%4 == 0 {
			e.Start(key, "M", "M", "M", "M")
		}
		all.Go(func() { post(t, e, key, key, "M", "{}") })
	}
	all.Wait()
	for i := range 5 {
		if got := e.Advanced(fmt.Sprint("k", i)); got != 1 {
			t.Errorf("k%d advanced %d times, want 1", i, got)
		}
	}
}

func TestTheHistoryTellsWhatHappened(t *testing.T) {
	e := New(Options{Now: ticking()})
	id := e.Start("größe 1", "M")
	body := `{"n":9007199254740993}`
	post(t, e, "a", "gr%C3%B6%C3%9Fe%201", "M", body)
	post(t, e, "b", "nobody", "M", "not an object")
	want := []Delivery{
		{
			Key: "größe 1", InboxID: "a", Attempt: 2, Message: "M", ContentType: "application/json", Body: []byte(body),
			Variables: map[string]json.RawMessage{"n": json.RawMessage("9007199254740993")},
			Start:     start, End: start.Add(time.Second), Status: 200, Advanced: id,
		},
		{
			Key: "nobody", InboxID: "b", Attempt: 2, Message: "M", ContentType: "application/json", Body: []byte("not an object"),
			Start: start.Add(2 * time.Second), End: start.Add(3 * time.Second), Status: 404,
		},
	}
	if diff := cmp.Diff(want, e.History()); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
}

func TestAnOutageCutsTheConnection(t *testing.T) {
	for name, tt := range map[string]struct {
		outage   Outage
		advanced int
	}{"before the effect": {Closing, 0}, "after it": {LosingAnswers, 1}} {
		e := New(Options{})
		e.Start("k", "M")
		e.SetOutage(tt.outage)
		s := httptest.NewServer(e)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Ce-Id", "a")
		r.Header.Set("Ce-Subject", "k")
		r.Header.Set("Ce-Type", "M")
		resp, err := s.Client().Do(r)
		if err == nil {
			_ = resp.Body.Close()
			t.Errorf("%s: answered %d", name, resp.StatusCode)
		}
		s.Close()
		if got := e.Advanced("k"); got != tt.advanced {
			t.Errorf("%s: advanced %d times, want %d", name, got, tt.advanced)
		}
	}
}

func TestLatencyComesBeforeTheEffect(t *testing.T) {
	e := New(Options{})
	e.Start("k", "M")
	e.SetLatency(func(_ context.Context, d Delivery) {
		if d.Key != "k" || e.Advanced("k") != 0 {
			t.Errorf("key %q, advanced %d", d.Key, e.Advanced("k"))
		}
	})
	post(t, e, "a", "k", "M", "{}")
	if got := e.Advanced("k"); got != 1 {
		t.Errorf("advanced %d times, want 1", got)
	}
}

func TestAWaitIsSaidInWholeSeconds(t *testing.T) {
	e := New(Options{RetryAfter: 1500 * time.Millisecond})
	for _, o := range []Outage{Unavailable, Throttling} {
		e.SetOutage(o)
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", http.NoBody))
		if got := w.Header().Get("Retry-After"); got != "2" {
			t.Errorf("Retry-After %q, want 2", got)
		}
	}
}

func TestWhatIsNoDeliveryIsToldSo(t *testing.T) {
	for _, tt := range []struct {
		method, path string
		status       int
		media        string
	}{
		{"GET", "/", 405, "application/problem+json"},
		{"POST", "/elsewhere", 404, "text/html; charset=utf-8"},
		{"POST", "/", 422, "application/problem+json"},
	} {
		w := httptest.NewRecorder()
		New(Options{}).ServeHTTP(w, httptest.NewRequest(tt.method, tt.path, http.NoBody))
		if w.Code != tt.status || w.Header().Get("Content-Type") != tt.media {
			t.Errorf("%s %s: %d %s, want %d %s", tt.method, tt.path, w.Code, w.Header().Get("Content-Type"), tt.status, tt.media)
		}
		_, _ = io.Copy(io.Discard, w.Body)
	}
}
