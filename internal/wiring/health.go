package wiring

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"
)

// The health paths. Cloud Run keeps some paths that end in z for itself:
// https://docs.cloud.google.com/run/docs/known-issues
const (
	LivePath  = "/health/live"
	ReadyPath = "/health/ready"
)

const (
	// readyLimit bounds one look at all dependencies.
	readyLimit = 2 * time.Second
	// readyFor is how long an answer serves everybody: whoever asks more often costs nothing.
	readyFor = 10 * time.Second
)

// Health answers GET on the health paths, and leaves everything else to next. Nobody is asked who he is: Cloud Run's own
// probes show no token, and what they learn are the kinds of what a function depends on, never a name.
//
//	/health/live   200  the process serves requests
//	/health/ready  200  {"status":"ok"}
//	               503  {"status":"unavailable","failing":["spanner"]}: the kinds that could not be reached
//
// checks are by kind. They run side by side, at most once in ten seconds, for two seconds at most.
func Health(next http.Handler, now func() time.Time, log *slog.Logger, checks map[string]func(context.Context) error) http.Handler {
	ready := &readiness{now: now, log: log, checks: checks}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !IsHealth(r):
			next.ServeHTTP(w, r)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "GET only", http.StatusMethodNotAllowed)
		case r.URL.Path == LivePath:
			answerHealth(w, nil)
		default:
			answerHealth(w, ready.failing(r.Context()))
		}
	})
}

func answerHealth(w http.ResponseWriter, failing []string) {
	answer := struct {
		Status  string   `json:"status"`
		Failing []string `json:"failing,omitempty"`
	}{Status: "ok", Failing: failing}
	status := http.StatusOK
	if len(failing) > 0 {
		answer.Status, status = "unavailable", http.StatusServiceUnavailable
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // whoever asked may have gone
}

type readiness struct {
	now    func() time.Time
	log    *slog.Logger
	checks map[string]func(context.Context) error

	mu    sync.Mutex // held while it is looked: others wait for the same answer
	last  []string
	until time.Time
}

func (c *readiness) failing(ctx context.Context) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now().Before(c.until) {
		return c.last
	}
	// Not with the request: what one finds serves all.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyLimit)
	defer cancel()
	type verdict struct {
		kind string
		err  error
	}
	verdicts := make(chan verdict, len(c.checks))
	pending := map[string]bool{}
	for kind, check := range c.checks {
		pending[kind] = true
		go func() { verdicts <- verdict{kind, check(ctx)} }()
	}
	var failing []string
	for len(pending) > 0 {
		select {
		case v := <-verdicts:
			delete(pending, v.kind)
			if v.err != nil {
				failing = append(failing, v.kind)
				c.log.WarnContext(ctx, "not ready", "kind", v.kind, "error", v.err)
			}
		case <-ctx.Done(): // a check need not heed it
			late := slices.Sorted(maps.Keys(pending))
			c.log.WarnContext(ctx, "not ready", "kind", late, "error", "no answer in time")
			failing, pending = append(failing, late...), nil
		}
	}
	slices.Sort(failing)
	c.last, c.until = failing, c.now().Add(readyFor)
	return failing
}
