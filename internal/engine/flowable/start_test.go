package flowable

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
)

// starting is an engine in which the message Created starts a process, and nothing else is.
func starting(t *testing.T, definition string, sent *atomic.Int32, changes ...func(*Config)) *Engine {
	return answering(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/runtime/process-instances"):
			sent.Add(1)
			say(w, http.StatusCreated, "application/json", `{"id":"p1"}`)
		case strings.HasSuffix(r.URL.Path, "/runtime/event-subscriptions"):
			say(w, http.StatusOK, "application/json", `{"data":[{"id":"s1","processDefinitionId":"any:1:1"}],"total":1}`)
		case strings.HasSuffix(r.URL.Path, "/repository/process-definitions/any:1:1"):
			say(w, http.StatusOK, "application/json", definition)
		default:
			say(w, http.StatusOK, "application/json", `{"data":[],"total":0}`)
		}
	}, append(changes, func(c *Config) { c.ProcessDefinitionKey = "order" })...)
}

func TestAStartIsMadeSureOf(t *testing.T) {
	created := aDelivery
	created.Start, created.Message = true, "Created"
	long := created
	long.Key = strings.Repeat("ß", 256)
	longest := created
	longest.Key = strings.Repeat("ß", 255)
	const order = `{"id":"any:1:1","key":"order","suspended":false}`
	for name, tt := range map[string]struct {
		definition string
		d          engine.Delivery
		want       engine.Verdict
		code       string
	}{
		"of the configured process":      {order, created, engine.Correlated, "HTTP 201"},
		"of another process":             {strings.Replace(order, `"order"`, `"other"`, 1), created, engine.Technical, "CONFIGURATION"},
		"of a suspended process":         {strings.Replace(order, "false", "true", 1), created, engine.RetryAfter, "SUSPENDED"},
		"of who knows which process":     {`{"id":"x"}`, created, engine.Technical, "PROTOCOL"},
		"under a key that is too long":   {order, long, engine.Rejected, "KEY"},
		"under the longest key there is": {order, longest, engine.Correlated, "HTTP 201"},
		"under a key of another type":    {order, created, engine.Rejected, "KEY"},
	} {
		t.Run(name, func(t *testing.T) {
			var sent atomic.Int32
			e := starting(t, tt.definition, &sent, func(c *Config) {
				if name == "under a key of another type" {
					c.Correlation.Type = "uuid"
				}
			})
			r := e.Correlate(t.Context(), tt.d)
			if r.Verdict != tt.want || r.Code != tt.code {
				t.Errorf("got %s %s (%s), want %s %s", r.Verdict, r.Code, r.Detail, tt.want, tt.code)
			}
			if n := sent.Load(); (n == 1) != (tt.want == engine.Correlated) {
				t.Errorf("%d starts were sent", n)
			}
		})
	}
}

// TestALostStartIsNotRepeatedWhereNothingIsKnownOfHistory: that nothing is found proves nothing then.
func TestALostStartIsNotRepeatedWhereNothingIsKnownOfHistory(t *testing.T) {
	created := aDelivery
	created.Start, created.Message = true, "Created"
	var sent atomic.Int32
	outcome, r := starting(t, `{}`, &sent).Probe(t.Context(), created)
	if outcome != engine.ProbeGone || r.Code != "NO_HISTORY" {
		t.Errorf("got %s %s (%s), want GONE NO_HISTORY", outcome, r.Code, r.Detail)
	}
}
