package wiring

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

func ask(h http.Handler, path string) (int, string) {
	rr := httptest.NewRecorder()
	h.ServeHTTP(rr, httptest.NewRequest(http.MethodGet, path, nil))
	return rr.Code, rr.Body.String()
}

func TestReadinessNamesTheKindsThatFailAndLivenessDoesNotCare(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	var spanner, asked atomic.Int64 // spanner: 1 is down
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	h := Health(next, func() time.Time { return now }, slog.New(slog.DiscardHandler), map[string]func(context.Context) error{
		"spanner": func(context.Context) error {
			asked.Add(1)
			if spanner.Load() == 1 {
				return errors.New("projects/p/instances/i/databases/d is gone")
			}
			return nil
		},
		"storage": func(context.Context) error { return nil },
	})
	const ok, down = "{\"status\":\"ok\"}\n", "{\"status\":\"unavailable\",\"failing\":[\"spanner\"]}\n"
	if status, body := ask(h, ReadyPath); status != http.StatusOK || body != ok {
		t.Errorf("all is well: %d %q", status, body)
	}
	spanner.Store(1)
	for range 100 {
		if status, _ := ask(h, ReadyPath); status != http.StatusOK {
			t.Fatalf("within ten seconds the answer is the same: %d", status)
		}
	}
	if got := asked.Load(); got != 1 {
		t.Errorf("asked %d times within ten seconds, want once", got)
	}
	now = now.Add(readyFor)
	if status, body := ask(h, ReadyPath); status != http.StatusServiceUnavailable || body != down {
		t.Errorf("the database is gone: %d %q, want 503 %q", status, body, down)
	}
	if status, body := ask(h, LivePath); status != http.StatusOK || body != ok {
		t.Errorf("the process lives: %d %q", status, body)
	}
	if status, _ := ask(h, "/health"); status != http.StatusTeapot {
		t.Errorf("another path is somebody else's: %d", status)
	}
}

// A check that heeds nothing keeps nobody waiting beyond the bound.
func TestReadinessDoesNotWaitForACheckThatHangs(t *testing.T) {
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	h := Health(http.NotFoundHandler(), time.Now, slog.New(slog.DiscardHandler), map[string]func(context.Context) error{
		"keys":    func(context.Context) error { <-release; return nil },
		"spanner": func(context.Context) error { return nil },
	})
	if status, body := ask(h, ReadyPath); status != http.StatusServiceUnavailable || body != "{\"status\":\"unavailable\",\"failing\":[\"keys\"]}\n" {
		t.Errorf("%d %q, want 503 and keys", status, body)
	}
}
