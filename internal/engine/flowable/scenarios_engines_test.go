//go:build engines

package flowable_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/enginetest"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/flowable"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/flowable/flowabletest"
)

const (
	completed = "WorkOrderCompleted"
	ordinary  = 10 * time.Second
)

var lastKey atomic.Int64

func newKey() string { return fmt.Sprintf("scenario-%d-%d", time.Now().UnixNano(), lastKey.Add(1)) }

func delivery(key string) engine.Delivery {
	return engine.Delivery{InboxID: "id-" + key, Attempt: 1, Message: completed, Key: key,
		Variables: map[string]json.RawMessage{"completedItems": json.RawMessage("4812")}}
}

// want fails unless verdict and code are these; an empty code is any.
func want(t *testing.T, r engine.Result, v engine.Verdict, code string) {
	t.Helper()
	if r.Verdict != v || code != "" && r.Code != code {
		t.Errorf("got %s %s (%s), want %s %s", r.Verdict, r.Code, r.Detail, v, code)
	}
}

func wantProbe(t *testing.T, e *flowable.Engine, d engine.Delivery, outcome engine.ProbeOutcome) engine.Result {
	t.Helper()
	got, r := e.Probe(t.Context(), d)
	if got != outcome {
		t.Errorf("the probe says %s (%s: %s), want %s", got, r.Code, r.Detail, outcome)
	}
	return r
}

func (w *world) wantAdvanced(t *testing.T, key string, n int) {
	t.Helper()
	if got := w.Advanced(key); got != n {
		t.Errorf("advanced %d times, want %d", got, n)
	}
}

// move moves the tokens of an instance from one activity to another, as a person would.
func (w *world) move(t *testing.T, instance, from, to string) {
	t.Helper()
	status, raw := w.client.Do(http.MethodPost, "/runtime/process-instances/"+instance+"/change-state",
		map[string]any{"cancelActivityIds": []string{from}, "startActivityIds": []string{to}}, nil)
	if status != http.StatusOK {
		t.Fatalf("change-state: status %d: %.300s", status, raw)
	}
}

// trigger ends a receive task.
func (w *world) trigger(t *testing.T, instance, activity string) {
	t.Helper()
	var page struct{ Data []struct{ ID string } }
	w.client.Do(http.MethodPost, "/query/executions", map[string]any{"processInstanceId": instance, "activityId": activity}, &page)
	if len(page.Data) == 0 {
		t.Fatalf("no execution at %s", activity)
	}
	for _, e := range page.Data {
		if status, raw := w.client.Do(http.MethodPut, "/runtime/executions/"+e.ID, map[string]any{"action": "trigger"}, nil); status > 299 {
			t.Fatalf("trigger: status %d: %.300s", status, raw)
		}
	}
}

func TestNotThereYet(t *testing.T) {
	w, key := newWorld(t, flowabletest.Options{}), newKey()
	e, d := w.engine(ordinary), delivery(key)
	want(t, e.Correlate(t.Context(), d), engine.NotWaiting, "NONE")
	want(t, e.Through(t.Context(), d), engine.NotWaiting, "NONE")

	// It runs, and is not there yet: history must not take it for one that is through.
	instance := w.start("order", key, "", flowabletest.Text("stage", "preparing"))
	want(t, e.Correlate(t.Context(), d), engine.NotWaiting, "NONE")
	r := e.Through(t.Context(), d)
	want(t, r, engine.NotWaiting, "NONE")
	if r.Reference != instance {
		t.Errorf("reference %q, want the instance %q", r.Reference, instance)
	}
	w.trigger(t, instance, "preparing")
	want(t, e.Correlate(t.Context(), d), engine.Correlated, "")
	w.wantAdvanced(t, key, 1)
}

func TestAlreadyThrough(t *testing.T) {
	tests := []struct {
		name string
		code string
		pass func(t *testing.T, w *world, key string) (instance string)
	}{
		{"by another message, and still running", "THROUGH", func(t *testing.T, w *world, key string) string {
			w.Pass(key, completed)
			return w.of(key)[0]
		}},
		{"by another message, and ended", "THROUGH", func(t *testing.T, w *world, key string) string {
			w.Pass(key, completed)
			w.trigger(t, w.of(key)[0], "hold")
			return w.of(key)[0]
		}},
		{"moved by hand", "THROUGH", func(t *testing.T, w *world, key string) string {
			i := w.start("order", key, "")
			w.move(t, i, "wait", "hold")
			return i
		}},
		{"deleted", "THROUGH", func(t *testing.T, w *world, key string) string {
			i := w.start("order", key, "")
			w.client.Delete(i)
			return i
		}},
		{"ended without ever waiting", "ENDED", func(t *testing.T, w *world, key string) string {
			i := w.start("order", key, "", flowabletest.Text("stage", "preparing"))
			w.client.Delete(i)
			return i
		}},
		{"known by its business key alone", "THROUGH", func(t *testing.T, w *world, key string) string {
			i := w.client.StartProcess("order", key, "")
			w.own(key, i)
			w.advance(i, completed)
			return i
		}},
	}
	w := newWorld(t, flowabletest.Options{})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			key := newKey()
			instance := tt.pass(t, w, key)
			e, d := w.engine(ordinary), delivery(key)
			want(t, e.Correlate(t.Context(), d), engine.NotWaiting, "NONE")
			r := e.Through(t.Context(), d)
			want(t, r, engine.AlreadyThrough, tt.code)
			if r.Reference != instance {
				t.Errorf("reference %q, want the instance %q", r.Reference, instance)
			}
		})
	}
}

// TestAWaitForAnExpression: it is delivered to, and history does not know what it was that it waited for. Nothing is said
// that is not so: neither that the instance is past this message, nor that it never waited for it.
func TestAWaitForAnExpression(t *testing.T) {
	w, key := newWorld(t, flowabletest.Options{}), newKey()
	e := w.engine(ordinary, func(c *flowable.Config) { c.ProcessDefinitionKey = "told" })
	i := w.start("told", key, "", flowabletest.Text("awaited", completed))
	want(t, e.Correlate(t.Context(), delivery(key)), engine.Correlated, "")
	late := delivery(key)
	late.InboxID += "-late"
	r := e.Through(t.Context(), late)
	want(t, r, engine.NotWaiting, "NONE")
	if r.Reference != i || !strings.Contains(r.Detail, "not known to have waited") {
		t.Errorf("got %q of %q, want what is known of %q", r.Detail, r.Reference, i)
	}
	w.trigger(t, i, "hold6")
	r = e.Through(t.Context(), late)
	want(t, r, engine.AlreadyThrough, "ENDED")
	if !strings.Contains(r.Detail, "not known to have waited") {
		t.Errorf("got %q", r.Detail)
	}
}

func TestWhatWasDeliveredBeforeIsNoRejection(t *testing.T) {
	w, key := newWorld(t, flowabletest.Options{}), newKey()
	instance := w.start("order", key, "")
	e, d := w.engine(ordinary), delivery(key)
	want(t, e.Correlate(t.Context(), d), engine.Correlated, "")
	want(t, e.Correlate(t.Context(), d), engine.NotWaiting, "")
	r := e.Through(t.Context(), d)
	want(t, r, engine.Duplicate, "MARKER")
	if r.Reference != instance {
		t.Errorf("reference %q, want the instance %q", r.Reference, instance)
	}
}

func TestMoreThanOneWaits(t *testing.T) {
	w := newWorld(t, flowabletest.Options{})
	e := w.engine(ordinary)
	check := func(t *testing.T, key string, total, named int, says string) {
		t.Helper()
		r := e.Correlate(t.Context(), delivery(key))
		want(t, r, engine.Ambiguous, "AMBIGUOUS")
		ids := strings.Fields(r.Reference)
		waiting := map[string]bool{}
		for _, i := range w.of(key) {
			for _, x := range w.client.Waiting(completed, i) {
				waiting[x] = true
			}
		}
		if len(ids) != named || len(waiting) != total {
			t.Errorf("%d executions are named and %d wait, want %d and %d", len(ids), len(waiting), named, total)
		}
		for _, id := range ids {
			if !waiting[id] {
				t.Errorf("execution %s is named and does not wait", id)
			}
		}
		if !strings.HasPrefix(r.Detail, fmt.Sprintf("%d executions wait", total)) || !strings.Contains(r.Detail, says) {
			t.Errorf("detail %q", r.Detail)
		}
		w.wantAdvanced(t, key, 0)
	}
	t.Run("two instances", func(t *testing.T) {
		key := newKey()
		a, b := w.start("order", key, ""), w.start("order", key, "")
		check(t, key, 2, 2, "of process instances")
		// A person ends one of them, and the reopened message goes through.
		w.client.Delete(a)
		r := e.Correlate(t.Context(), delivery(key))
		want(t, r, engine.Correlated, "")
		if r.Reference != b {
			t.Errorf("reference %q, want %q", r.Reference, b)
		}
	})
	t.Run("two tokens in one instance, made by hand", func(t *testing.T) {
		key := newKey()
		i := w.start("order", key, "", flowabletest.Text("stage", "preparing"))
		status, raw := w.client.Do(http.MethodPost, "/runtime/process-instances/"+i+"/change-state",
			map[string]any{"cancelActivityIds": []string{"preparing"}, "startActivityIds": []string{"wait", "hold"}}, nil)
		if status != http.StatusOK {
			t.Fatalf("change-state: status %d: %.200s", status, raw)
		}
		w.move(t, i, "hold", "wait")
		check(t, key, 2, 2, "all of process instance "+i)
	})
	t.Run("more than a page", func(t *testing.T) {
		key := newKey()
		for range 12 {
			w.start("order", key, "")
		}
		check(t, key, 12, 10, "the first 10 are named")
	})
}

// TestTheInstanceMovesOnBetweenLookUpAndDelivery forces the race of A22.
func TestTheInstanceMovesOnBetweenLookUpAndDelivery(t *testing.T) {
	tests := []struct {
		name    string
		between func(t *testing.T, w *world, instance string)
		verdict engine.Verdict
		code    string
		masked  engine.Verdict // what it is where Flowable masks its errors
		stays   int            // advances by others
	}{
		{"deleted", func(t *testing.T, w *world, i string) { w.client.Delete(i) }, engine.Vanished, "HTTP 404", engine.Vanished, 0},
		{"advanced by another message", func(t *testing.T, w *world, i string) { w.advance(i, completed) }, engine.Vanished, "HTTP 500", engine.Vanished, 1},
		{"moved by hand", func(t *testing.T, w *world, i string) { w.move(t, i, "wait", "hold") }, engine.Vanished, "", engine.Vanished, 0},
		{"suspended", func(t *testing.T, w *world, i string) { w.client.Suspend(i) }, engine.RetryAfter, "SUSPENDED", engine.RetryAfter, 0},
	}
	for _, masked := range []bool{false, true} {
		w := newWorld(t, flowabletest.Options{MaskErrors: masked})
		for _, tt := range tests {
			t.Run(fmt.Sprintf("%s, masked %v", tt.name, masked), func(t *testing.T) {
				key := newKey()
				instance := w.start("order", key, "")
				e, d := w.engine(ordinary), delivery(key)
				w.mu.Lock()
				w.between[key] = func(string) { tt.between(t, w, instance) }
				w.mu.Unlock()
				r := e.Correlate(t.Context(), d)
				if masked {
					want(t, r, tt.masked, "")
				} else {
					want(t, r, tt.verdict, tt.code)
				}
				if r.Reference != instance {
					t.Errorf("reference %q, want the instance %q", r.Reference, instance)
				}
				w.wantAdvanced(t, key, tt.stays)
				if tt.verdict == engine.Vanished {
					// The one look more that the relay takes.
					want(t, e.Correlate(t.Context(), d), engine.NotWaiting, "NONE")
				}
			})
		}
	}
}

func TestTheAnswerIsLost(t *testing.T) {
	w := newWorld(t, flowabletest.Options{})
	e := w.engine(ordinary)
	lose := func(t *testing.T, d engine.Delivery) {
		t.Helper()
		w.Set(enginetest.LosesAnswers)
		defer w.Set(enginetest.Healthy)
		want(t, e.Correlate(t.Context(), d), engine.Unknown, "")
	}
	found := func(t *testing.T, d engine.Delivery, instance string) {
		t.Helper()
		if r := wantProbe(t, e, d, engine.ProbeFound); r.Reference != instance {
			t.Errorf("reference %q, want the instance %q", r.Reference, instance)
		}
	}
	t.Run("of an instance that goes on", func(t *testing.T) {
		key := newKey()
		i := w.start("order", key, "")
		lose(t, delivery(key))
		w.wantAdvanced(t, key, 1)
		found(t, delivery(key), i)
	})
	t.Run("of an instance that has ended since", func(t *testing.T) {
		key := newKey()
		i := w.start("order", key, "")
		lose(t, delivery(key))
		w.trigger(t, i, "hold")
		found(t, delivery(key), i)
	})
	t.Run("of an instance that waits for such a message again, in the same execution", func(t *testing.T) {
		key := newKey()
		i := w.start("order", key, "", flowabletest.Text("stage", "loop"))
		before := w.client.Waiting(completed, i)
		lose(t, delivery(key))
		if after := w.client.Waiting(completed, i); len(after) != 1 || after[0] != before[0] {
			t.Fatalf("%q waits, and before it was %q", after, before)
		}
		found(t, delivery(key), i)
		// The next message is another one, and has a marker of its own.
		next := delivery(key)
		next.InboxID += "-next"
		wantProbe(t, e, next, engine.ProbeWaiting)
		want(t, e.Correlate(t.Context(), next), engine.Correlated, "")
		found(t, delivery(key), i)
		w.wantAdvanced(t, key, 2)
	})
	t.Run("and was never given", func(t *testing.T) {
		key := newKey()
		i := w.start("order", key, "")
		w.Set(enginetest.Hangs)
		want(t, w.engine(2*time.Second).Correlate(t.Context(), delivery(key)), engine.Unknown, "timeout")
		w.Set(enginetest.Healthy)
		if r := wantProbe(t, e, delivery(key), engine.ProbeWaiting); r.Reference != i {
			t.Errorf("reference %q, want the instance %q", r.Reference, i)
		}
		want(t, e.Correlate(t.Context(), delivery(key)), engine.Correlated, "")
		w.wantAdvanced(t, key, 1)
	})
	t.Run("and nobody knows", func(t *testing.T) {
		key := newKey()
		w.client.Delete(w.start("order", key, ""))
		wantProbe(t, e, delivery(key), engine.ProbeGone)
	})
	t.Run("because a step takes longer than the timeout", func(t *testing.T) {
		key := newKey()
		i := w.start("order", key, "", flowabletest.Text("fault", "slow"))
		want(t, w.engine(2*time.Second).Correlate(t.Context(), delivery(key)), engine.Unknown, "timeout")
		// The engine works on, and its open transaction shows nothing: the rule of twice the timeout is for this.
		for until := time.Now().Add(20 * time.Second); time.Now().Before(until) && w.Advanced(key) == 0; {
			time.Sleep(50 * time.Millisecond)
		}
		found(t, delivery(key), i)
	})
}

func TestWithoutHistoryNothingIsSentAgain(t *testing.T) {
	w, key := newWorld(t, flowabletest.Options{History: "none"}), newKey()
	e, d := w.engine(ordinary), delivery(key)
	instance := w.start("order", key, "")
	want(t, e.Correlate(t.Context(), d), engine.Correlated, "")
	// Variables of running instances are there without history.
	if r := wantProbe(t, e, d, engine.ProbeFound); r.Reference != instance {
		t.Errorf("reference %q, want the instance %q", r.Reference, instance)
	}
	w.trigger(t, instance, "hold")
	wantProbe(t, e, d, engine.ProbeGone)
	w.start("order", key, "")
	if r := wantProbe(t, e, d, engine.ProbeGone); r.Code != "NO_HISTORY" {
		t.Errorf("code %s, want NO_HISTORY", r.Code)
	}
	if r := e.Check(t.Context()); len(r) != 1 || !strings.Contains(r[0], "history") {
		t.Errorf("the check says %q, want that there is no history", r)
	}
}

func TestALostStartIsNotRepeatedWithoutHistory(t *testing.T) {
	w := newWorld(t, flowabletest.Options{History: "none"})
	e := w.engine(ordinary, func(c *flowable.Config) { c.ProcessDefinitionKey = "hasty" })
	d := delivery(newKey())
	d.Start, d.Message = true, "HastyOrderCreated"
	w.mu.Lock()
	w.loseStart = true
	w.mu.Unlock()
	want(t, e.Correlate(t.Context(), d), engine.Unknown, "")
	if r := wantProbe(t, e, d, engine.ProbeFound); r.Reference == "" {
		t.Error("the instance that runs is not named")
	} else {
		w.trigger(t, r.Reference, "hold4")
	}
	if r := wantProbe(t, e, d, engine.ProbeGone); r.Code != "NO_HISTORY" {
		t.Errorf("code %s, want NO_HISTORY", r.Code)
	}
	// So it is, too, while another one runs.
	other := delivery(newKey())
	other.Start, other.Message = true, "HastyOrderCreated"
	want(t, e.Correlate(t.Context(), other), engine.Correlated, "")
	if r := wantProbe(t, e, d, engine.ProbeGone); r.Code != "NO_HISTORY" {
		t.Errorf("code %s, want NO_HISTORY", r.Code)
	}
	if r := e.Check(t.Context()); len(r) != 1 || !strings.Contains(r[0], "history") {
		t.Errorf("the check says %q, want that there is no history", r)
	}
}

func TestTheCheckIsContent(t *testing.T) {
	w := newWorld(t, flowabletest.Options{})
	w.start("order", newKey(), "")
	if r := w.engine(ordinary).Check(t.Context()); len(r) != 0 {
		t.Errorf("the check says %q, want nothing", r)
	}
	for name, change := range map[string]func(*flowable.Config){
		"no process definition": func(c *flowable.Config) { c.ProcessDefinitionKey = "nonsense" },
		"no REST API":           func(c *flowable.Config) { c.BaseURL += "/service" },
		"privilege": func(c *flowable.Config) {
			c.Auth.Username, c.Auth.Password = flowabletest.Stranger, flowabletest.StrangerPassword
		},
	} {
		if r := w.engine(ordinary, change).Check(t.Context()); len(r) != 1 || !strings.Contains(r[0], name) {
			t.Errorf("the check says %q, want something about %s", r, name)
		}
	}
}

func TestASuspendedInstanceIsLeftAloneUntilItWakes(t *testing.T) {
	w, key := newWorld(t, flowabletest.Options{}), newKey()
	e, d := w.engine(ordinary), delivery(key)
	i := w.start("order", key, "")
	w.client.Suspend(i)
	r := e.Correlate(t.Context(), d)
	want(t, r, engine.RetryAfter, "SUSPENDED")
	if r.RetryAfter <= 0 || r.Reference != i {
		t.Errorf("a wait of %v for %q, want one for %q", r.RetryAfter, r.Reference, i)
	}
	if n := w.Arrived(key); n != 0 {
		t.Errorf("%d deliveries arrived, want 0", n)
	}
	w.client.Activate(i)
	want(t, e.Correlate(t.Context(), d), engine.Correlated, "")
}

// TestTwoTransactionsMeet has two messages delivered to one execution at once, the step behind it taking a while: one of
// them loses to optimistic locking, or finds the subscription gone.
func TestTwoTransactionsMeet(t *testing.T) {
	for _, stage := range []string{"", "loop"} {
		t.Run("stage "+stage, func(t *testing.T) {
			w, key := newWorld(t, flowabletest.Options{}), newKey()
			e := w.engine(20 * time.Second)
			w.start("order", key, "", flowabletest.Text("fault", "slow"), flowabletest.Text("stage", stage))
			results := make([]engine.Result, 2)
			var all sync.WaitGroup
			for n := range results {
				d := delivery(key)
				d.InboxID += fmt.Sprint("-", n)
				all.Go(func() { results[n] = e.Correlate(t.Context(), d) })
			}
			all.Wait()
			t.Logf("%+v", results)
			won := 0
			for _, r := range results {
				switch {
				case r.Verdict == engine.Correlated:
					won++
				case stage == "" && r.Verdict == engine.Vanished:
				case stage == "loop" && r.Verdict == engine.RetryAfter && r.Code == "OPTIMISTIC_LOCK":
				default:
					t.Errorf("got %s %s (%s)", r.Verdict, r.Code, r.Detail)
				}
			}
			w.wantAdvanced(t, key, won)
			if won == 0 {
				t.Error("none of them was delivered")
			}
		})
	}
}

// TestAStepFails: whatever a later step throws, the delivery is rolled back, and it is no rejection.
func TestAStepFails(t *testing.T) {
	for _, masked := range []bool{false, true} {
		w := newWorld(t, flowabletest.Options{MaskErrors: masked})
		for _, fault := range []string{"technical", "plain", "missing", "argument"} {
			t.Run(fmt.Sprintf("%s, masked %v", fault, masked), func(t *testing.T) {
				key := newKey()
				i := w.start("order", key, "", flowabletest.Text("fault", fault))
				e, d := w.engine(ordinary), delivery(key)
				r := e.Correlate(t.Context(), d)
				want(t, r, engine.Technical, "")
				if r.Reference != i {
					t.Errorf("reference %q, want the instance %q", r.Reference, i)
				}
				if n := len(w.client.Waiting(completed, i)); n != 1 {
					t.Errorf("%d executions wait, want 1: the delivery was rolled back", n)
				}
				wantProbe(t, e, d, engine.ProbeWaiting)
				// It heals, with the same message.
				status, raw := w.client.Do(http.MethodPut, "/runtime/process-instances/"+i+"/variables", []any{flowabletest.Text("fault", "none")}, nil)
				if status > 299 {
					t.Fatalf("status %d: %s", status, raw)
				}
				want(t, e.Correlate(t.Context(), d), engine.Correlated, "")
				w.wantAdvanced(t, key, 1)
			})
		}
	}
}

// TestAnOutageOfMaskedErrorsParksNothing sends for as long as an outage may last in attempts, and Flowable answers each
// with a masked 500.
func TestAnOutageOfMaskedErrorsParksNothing(t *testing.T) {
	w, key := newWorld(t, flowabletest.Options{MaskErrors: true}), newKey()
	w.start("order", key, "", flowabletest.Text("fault", "technical"))
	e, d := w.engine(ordinary), delivery(key)
	for range 60 {
		if r := e.Correlate(t.Context(), d); r.Verdict != engine.Technical {
			t.Fatalf("got %s %s (%s)", r.Verdict, r.Code, r.Detail)
		}
	}
	// The same where Flowable cannot even answer a query.
	broken := func(rw http.ResponseWriter) bool {
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(http.StatusInternalServerError)
		_, _ = rw.Write([]byte(`{"message":"Internal server error","exception":"Error with ID: 7b0c"}`))
		return true
	}
	w.mu.Lock()
	w.after, w.broken = broken, true
	w.mu.Unlock()
	if r := e.Correlate(t.Context(), d); r.Verdict != engine.Technical {
		t.Errorf("got %s %s (%s)", r.Verdict, r.Code, r.Detail)
	}
	if r := e.Through(t.Context(), d); r.Verdict != engine.Technical {
		t.Errorf("got %s %s (%s)", r.Verdict, r.Code, r.Detail)
	}
	wantProbe(t, e, d, engine.ProbeFailed)
}

// TestAFailureAfterTheCommit has Flowable commit, and say that it has failed: status and text are those of a rollback.
func TestAFailureAfterTheCommit(t *testing.T) {
	w, key := newWorld(t, flowabletest.Options{}), newKey()
	i := w.start("order", key, "", flowabletest.Text("stage", "loop"))
	w.after = func(rw http.ResponseWriter) bool {
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(http.StatusInternalServerError)
		_, _ = rw.Write([]byte(`{"message":"Internal server error","exception":"Could not read the execution"}`))
		return true
	}
	r := w.engine(ordinary).Correlate(t.Context(), delivery(key))
	want(t, r, engine.Correlated, "HTTP 500")
	if r.Reference != i {
		t.Errorf("reference %q, want the instance %q", r.Reference, i)
	}
	w.wantAdvanced(t, key, 1)
}

// TestAGatewayLosesTheAnswer: what it says instead, and when to come back, says nothing of the delivery, which is done.
func TestAGatewayLosesTheAnswer(t *testing.T) {
	w, key := newWorld(t, flowabletest.Options{}), newKey()
	i := w.start("order", key, "", flowabletest.Text("stage", "loop"))
	w.after = func(rw http.ResponseWriter) bool {
		rw.Header().Set("Retry-After", "1")
		rw.WriteHeader(http.StatusServiceUnavailable)
		return true
	}
	e, d := w.engine(ordinary), delivery(key)
	want(t, e.Correlate(t.Context(), d), engine.Unknown, "HTTP 503")
	if r := wantProbe(t, e, d, engine.ProbeFound); r.Reference != i {
		t.Errorf("reference %q, want the instance %q", r.Reference, i)
	}
	w.wantAdvanced(t, key, 1)
}

// TestARouteCannotHideAnInstance: it sends a variable of the correlation variable's name, as a number.
func TestARouteCannotHideAnInstance(t *testing.T) {
	w := newWorld(t, flowabletest.Options{})
	key := fmt.Sprint(lastKey.Add(1) + 800_000)
	i := w.start("order", key, "", flowabletest.Text("stage", "loop"))
	e := w.engine(ordinary)
	for n := range 3 {
		d := delivery(key)
		d.InboxID += fmt.Sprint("-", n)
		d.Variables = map[string]json.RawMessage{"workOrderId": json.RawMessage(key)}
		want(t, e.Correlate(t.Context(), d), engine.Correlated, "")
	}
	if v := w.client.Variables(i)["workOrderId"]; v.Type != "string" || string(v.Value) != `"`+key+`"` {
		t.Errorf("the correlation variable is %s %s, want the text %s", v.Type, v.Value, key)
	}
	w.wantAdvanced(t, key, 3)
}

// TestAValueOfAnEarlierMessageIsNotRepeated: a step fails on what another message brought, and its text says it.
func TestAValueOfAnEarlierMessageIsNotRepeated(t *testing.T) {
	w, key := newWorld(t, flowabletest.Options{}), newKey()
	const account = "DE89370400440532013000"
	i := w.start("calling", key, "", flowabletest.Text("account", account))
	e := w.engine(ordinary, func(c *flowable.Config) { c.ProcessDefinitionKey = "calling" })
	r := e.Correlate(t.Context(), delivery(key))
	want(t, r, engine.Technical, "")
	if strings.Contains(r.Code+r.Detail+r.Reference, account) || r.Reference != i {
		t.Errorf("got %+v, want the instance and no value", r)
	}
}

func TestTheEngineRefusesUs(t *testing.T) {
	w, key := newWorld(t, flowabletest.Options{}), newKey()
	w.start("order", key, "")
	tests := map[string]struct {
		change func(*flowable.Config)
		want   engine.Verdict
		code   string
	}{
		"a wrong password":         {func(c *flowable.Config) { c.Auth.Password = "wrong" }, engine.Unauthorised, "HTTP 401"},
		"nobody":                   {func(c *flowable.Config) { c.Auth = flowable.Auth{} }, engine.Unauthorised, "HTTP 401"},
		"a token it does not know": {func(c *flowable.Config) { c.Auth = flowable.Auth{Kind: flowable.AuthBearer, Token: "t"} }, engine.Unauthorised, "HTTP 401"},
		"a user without the privilege": {func(c *flowable.Config) {
			c.Auth.Username, c.Auth.Password = flowabletest.Stranger, flowabletest.StrangerPassword
		}, engine.Unauthorised, "HTTP 403"},
		"a path below the REST API": {func(c *flowable.Config) { c.BaseURL += "/service" }, engine.Technical, "BASE_PATH"},
		"a path beside the REST API": {func(c *flowable.Config) {
			c.BaseURL = strings.TrimSuffix(c.BaseURL, "process-api") + "flowable-rest/service"
		}, engine.Technical, "BASE_PATH"},
		"a slash too many at the end":    {func(c *flowable.Config) { c.BaseURL += "//" }, engine.NotWaiting, "NONE"},
		"a key that is not of its type":  {func(c *flowable.Config) { c.Correlation.Type = "long" }, engine.Rejected, "KEY"},
		"a process that is not deployed": {func(c *flowable.Config) { c.ProcessDefinitionKey = "nonsense" }, engine.NotWaiting, "NONE"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			e, d := w.engine(ordinary, tt.change), delivery(key)
			if name == "a slash too many at the end" {
				d.Key += "-other"
			}
			want(t, e.Correlate(t.Context(), d), tt.want, tt.code)
		})
	}
	w.wantAdvanced(t, key, 0)
}

func TestOnlyTheOneThatIsMeant(t *testing.T) {
	w := newWorld(t, flowabletest.Options{})
	t.Run("a text is not a number", func(t *testing.T) {
		number := lastKey.Add(1) + 700_000
		text, padded := fmt.Sprint(number), "00"+fmt.Sprint(number)
		i := w.client.StartProcess("order", text, "", flowabletest.Variable{Name: "workOrderId", Type: "integer", Value: json.RawMessage(text)})
		w.own(text, i)
		want(t, w.engine(ordinary).Correlate(t.Context(), delivery(text)), engine.NotWaiting, "NONE")
		integer := w.engine(ordinary, func(c *flowable.Config) { c.Correlation.Type = "integer" })
		want(t, integer.Correlate(t.Context(), delivery(padded)), engine.Rejected, "KEY")
		want(t, integer.Correlate(t.Context(), delivery(text)), engine.Correlated, "")
	})
	t.Run("one tenant's", func(t *testing.T) {
		key := newKey()
		for _, tenant := range []string{"a", "b"} {
			w.client.Deploy("order", tenant, orderBPMN)
			w.start("order", key, tenant)
		}
		want(t, w.engine(ordinary).Correlate(t.Context(), delivery(key)), engine.Ambiguous, "")
		r := w.engine(ordinary, func(c *flowable.Config) { c.Tenant = "b" }).Correlate(t.Context(), delivery(key))
		want(t, r, engine.Correlated, "")
		if r.Reference != w.of(key)[1] {
			t.Errorf("reference %q, want tenant b's %q", r.Reference, w.of(key)[1])
		}
	})
	t.Run("of another version of the process too", func(t *testing.T) {
		key := newKey()
		w.start("order", key, "")
		w.client.Deploy("order", "", orderBPMN)
		w.start("order", key, "")
		want(t, w.engine(ordinary).Correlate(t.Context(), delivery(key)), engine.Ambiguous, "")
	})
}

func TestStartingByMessage(t *testing.T) {
	w := newWorld(t, flowabletest.Options{})
	e := w.engine(ordinary)
	starting := func(key string) engine.Delivery {
		d := delivery(key)
		d.Start, d.Message, d.InboxID = true, "WorkOrderCreated", d.InboxID+"-created"
		return d
	}
	count := func(key string) int {
		return w.client.Count("/query/historic-process-instances", map[string]any{"processBusinessKey": key, "size": 1})
	}
	t.Run("once, however often it is sent", func(t *testing.T) {
		key := newKey()
		r := e.Correlate(t.Context(), starting(key))
		want(t, r, engine.Correlated, "HTTP 201")
		again := e.Correlate(t.Context(), starting(key))
		want(t, again, engine.Duplicate, "MARKER")
		if again.Reference != r.Reference || count(key) != 1 {
			t.Errorf("%d instances, %q and %q", count(key), r.Reference, again.Reference)
		}
		w.own(key, r.Reference)
		// What it started is found by its key.
		want(t, e.Correlate(t.Context(), delivery(key)), engine.Correlated, "")
		w.trigger(t, r.Reference, "hold")
		want(t, e.Correlate(t.Context(), starting(key)), engine.Duplicate, "MARKER")
		// The same is said again, in a message of its own.
		repeated := starting(key)
		repeated.InboxID += "-repeated"
		want(t, e.Correlate(t.Context(), repeated), engine.Duplicate, "BUSINESS_KEY")
		if count(key) != 1 {
			t.Errorf("%d instances, want 1", count(key))
		}
	})
	t.Run("and the answer is lost", func(t *testing.T) {
		key := newKey()
		wantProbe(t, e, starting(key), engine.ProbeWaiting)
		w.mu.Lock()
		w.loseStart = true
		w.mu.Unlock()
		want(t, e.Correlate(t.Context(), starting(key)), engine.Unknown, "")
		wantProbe(t, e, starting(key), engine.ProbeFound)
		if count(key) != 1 {
			t.Errorf("%d instances, want 1", count(key))
		}
	})
	t.Run("of a process that is not deployed", func(t *testing.T) {
		d := starting(newKey())
		d.Message = "Nonsense"
		want(t, e.Correlate(t.Context(), d), engine.NotWaiting, "NO_START")
	})
	t.Run("of another process than the configured one", func(t *testing.T) {
		d := starting(newKey())
		d.Message = "ShortOrderCreated"
		for range 2 {
			want(t, e.Correlate(t.Context(), d), engine.Technical, "CONFIGURATION")
		}
		if n := count(d.Key); n != 0 {
			t.Errorf("%d instances, want none", n)
		}
	})
	t.Run("that fails in its first step, whatever that throws", func(t *testing.T) {
		hasty := w.engine(ordinary, func(c *flowable.Config) { c.ProcessDefinitionKey = "hasty" })
		for _, fault := range []string{"technical", "plain", "missing", "argument"} {
			d := starting(newKey())
			d.Message, d.Variables = "HastyOrderCreated", map[string]json.RawMessage{"fault": json.RawMessage(`"` + fault + `"`)}
			want(t, hasty.Correlate(t.Context(), d), engine.Technical, "")
			if n := count(d.Key); n != 0 {
				t.Errorf("%s: %d instances, want none", fault, n)
			}
			// It heals, with the same message.
			d.Variables = nil
			want(t, hasty.Correlate(t.Context(), d), engine.Correlated, "HTTP 201")
		}
	})
	t.Run("under a key that no business key can be", func(t *testing.T) {
		key := newKey()
		longest := starting(strings.Repeat("k", 255-len(key)) + key)
		longest.InboxID = "longest-" + key
		want(t, e.Correlate(t.Context(), longest), engine.Correlated, "HTTP 201")
		longer := longest
		longer.Key, longer.InboxID = "k"+longest.Key, "longer-"+key
		want(t, e.Correlate(t.Context(), longer), engine.Rejected, "KEY")
	})
	t.Run("without a key", func(t *testing.T) {
		want(t, e.Correlate(t.Context(), starting("")), engine.Rejected, "KEY")
	})
	t.Run("where BeforeSend forbids it", func(t *testing.T) {
		key := newKey()
		d := starting(key)
		d.BeforeSend = func() bool { return false }
		want(t, e.Correlate(t.Context(), d), engine.NotStarted, "")
		if count(key) != 0 {
			t.Errorf("%d instances, want none", count(key))
		}
	})
	t.Run("of a suspended process", func(t *testing.T) {
		w.definition(t, "order", "suspend")
		want(t, e.Correlate(t.Context(), starting(newKey())), engine.RetryAfter, "SUSPENDED")
		w.definition(t, "order", "activate")
		want(t, e.Correlate(t.Context(), starting(newKey())), engine.Correlated, "")
	})
}

// TestTheEngineIsKilledInTheMiddle: what was committed before is found after it, and what was not is sent.
func TestTheEngineIsKilledInTheMiddle(t *testing.T) {
	w, before, after := newWorld(t, flowabletest.Options{Folder: t.TempDir()}), newKey(), newKey()
	e := w.engine(ordinary)
	i := w.start("order", before, "")
	w.start("order", after, "")
	w.Set(enginetest.LosesAnswers)
	want(t, e.Correlate(t.Context(), delivery(before)), engine.Unknown, "")
	w.Set(enginetest.Healthy)
	w.server.Stop()
	if r := e.Correlate(t.Context(), delivery(after)); r.Verdict != engine.Technical {
		t.Errorf("got %s %s (%s), want Technical", r.Verdict, r.Code, r.Detail)
	}
	wantProbe(t, e, delivery(before), engine.ProbeFailed)
	if err := w.server.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := wantProbe(t, e, delivery(before), engine.ProbeFound); r.Reference != i {
		t.Errorf("reference %q, want %q", r.Reference, i)
	}
	want(t, e.Correlate(t.Context(), delivery(after)), engine.Correlated, "")
	w.wantAdvanced(t, before, 1)
	w.wantAdvanced(t, after, 1)
}
