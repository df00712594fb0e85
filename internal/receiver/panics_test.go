package receiver_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/funcserver"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/receiver"
)

// function serves a handler as production does: with what turns a panic into an answer around it.
func (w *world) function(h http.Handler) http.Handler {
	return funcserver.New(funcserver.Options{
		Name:   "Receive",
		Lookup: func(string) (string, bool) { return "", false },
		Logger: w.log.logger(),
		Build:  func(*funcserver.Function) (http.Handler, error) { return h, nil },
	})
}

// breaking is a store that breaks at an insert.
type breaking struct {
	receiver.Store
	before, after bool
}

func (s *breaking) Insert(ctx context.Context, a *inbox.Arrival) error {
	var nothing *inbox.Arrival
	if s.before {
		a = nothing
		_ = a.Body
	}
	err := s.Store.Insert(ctx, a)
	if s.after {
		_ = nothing.Body
	}
	return err
}

func TestC024APanicIsA500WithNoRowOrAWholeOne(t *testing.T) {
	tests := []struct {
		name   string
		broken func(w *world) receiver.Store
		rows   int64
	}{
		{"before the commit", func(w *world) receiver.Store { return &breaking{Store: w.store, before: true} }, 0},
		{"in the client library, before the commit is sent", func(w *world) receiver.Store {
			w.tap.Before("Commit", func(context.Context, int, any) error { panic("secret-canary") })
			return w.store
		}, 0},
		{"in the client library, with the commit's answer", func(w *world) receiver.Store {
			w.tap.After("Commit", func(context.Context, int, any, any, error) error { panic("secret-canary") })
			return w.store
		}, 1},
		{"after the commit, before the status", func(w *world) receiver.Store { return &breaking{Store: w.store, after: true} }, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, anyRoute)
			h := w.function(w.endpointOf(w.receiver(tt.broken(w)), noAuth(t)))
			body := input(t, "C002")[0]
			for n := range 50 {
				got := post(h, body)
				if got.Code != 500 || got.Body.String() != "internal error\n" {
					t.Fatalf("request %d: got %d %q", n, got.Code, got.Body)
				}
			}
			if n := w.count("Messages"); n != tt.rows {
				t.Errorf("%d rows, want %d", n, tt.rows)
			}
			w.tap.Reset()
			if got := post(w.function(w.endpoint()), body); got.Code != 204 {
				t.Errorf("redelivered: status %d", got.Code)
			}
			if r := w.one(); r.Body != orderJSON {
				t.Errorf("the row has the payload %q", r.Body)
			}
			if strings.Contains(w.log.String(), "secret-canary") {
				t.Error("the log has the text of the panic")
			}
			checkNoneLeft(t)
		})
	}
}

func TestC024AfterManyPanicsTheSameProcessStillServes(t *testing.T) {
	w := newWorld(t, anyRoute)
	broken := &breaking{Store: w.store, before: true}
	h := w.function(w.endpointOf(w.receiver(broken), noAuth(t)))
	var bodies [][]byte
	for range 150 {
		bodies = append(bodies, input(t, "C002")[0])
	}
	if diff := cmp.Diff(map[int]int{500: 150}, atOnce(h, bodies)); diff != "" {
		t.Error(diff)
	}
	broken.before = false
	if diff := cmp.Diff(map[int]int{204: 150}, atOnce(h, bodies)); diff != "" {
		t.Error(diff)
	}
	w.one()
	checkNoneLeft(t)
}
