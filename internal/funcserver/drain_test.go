package funcserver

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// moment is an event and how long after the signal it came.
type moment struct {
	What  string
	After time.Duration
}

func TestTheShutDownKeepsItsTimes(t *testing.T) {
	tests := []struct {
		name    string
		request func(f *Function, note func(string), r *http.Request) // nil: none in flight
		closer  func(ctx context.Context) error
		want    []moment
		log     string // in it
	}{
		{
			name: "an idle process ends at once",
			want: []moment{{"closed", 0}, {"exit 0", 0}},
		},
		{
			name: "a request in flight has seven seconds of undisturbed work",
			request: func(f *Function, note func(string), r *http.Request) {
				<-f.Draining().Done()
				note("draining")
				time.Sleep(6 * time.Second) // of the bubble's clock
				if r.Context().Err() == nil {
					note("undisturbed")
				}
			},
			want: []moment{{"draining", 0}, {"undisturbed", 6 * time.Second}, {"closed", 6 * time.Second}, {"exit 0", 6 * time.Second}},
		},
		{
			name: "then its context ends",
			request: func(_ *Function, note func(string), r *http.Request) {
				<-r.Context().Done()
				note("cut: " + context.Cause(r.Context()).Error())
				time.Sleep(time.Second)
			},
			want: []moment{{"cut: shutting down", 7 * time.Second}, {"closed", 8 * time.Second}, {"exit 0", 8 * time.Second}},
		},
		{
			name:    "a request that does not listen is given up, clients are still closed",
			request: func(*Function, func(string), *http.Request) { time.Sleep(time.Minute) },
			want:    []moment{{"closed", 8500 * time.Millisecond}, {"exit 0", 8500 * time.Millisecond}},
			log:     "requests given up",
		},
		{
			name:   "a client that does not close is given up after nine seconds",
			closer: func(context.Context) error { time.Sleep(time.Minute); return nil },
			want:   []moment{{"exit 0", 9 * time.Second}},
			log:    "clients given up",
		},
		{
			name:   "a client that fails to close stops no other",
			closer: func(context.Context) error { return errors.New("broken pipe") },
			want:   []moment{{"closed", 0}, {"exit 0", 0}},
			log:    "broken pipe",
		},
		{
			name:   "a client that panics on closing stops no other",
			closer: func(context.Context) error { panic("x") },
			want:   []moment{{"closed", 0}, {"exit 0", 0}},
			log:    "closing second",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex // a client given up may still note its end
				var got []moment
				var begin time.Time
				note := func(s string) {
					mu.Lock()
					defer mu.Unlock()
					got = append(got, moment{s, time.Since(begin)})
				}
				var f *Function
				f, log, exits := function(t, func(_ http.ResponseWriter, r *http.Request) { tt.request(f, note, r) })
				f.OnShutdown("first", func(context.Context) error { note("closed"); return nil })
				if tt.closer != nil {
					f.OnShutdown("second", tt.closer) // runs first
				}
				if tt.request != nil {
					go f.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil))
				}
				synctest.Wait() // the handler is at its first wait
				begin = time.Now()
				f.shutDown()
				note("exit " + string(rune('0'+<-exits)))
				mu.Lock()
				seen := slices.Clone(got)
				mu.Unlock()
				if diff := cmp.Diff(tt.want, seen); diff != "" {
					t.Errorf("moments (-want +got):\n%s", diff)
				}
				if !strings.Contains(log.String(), tt.log) {
					t.Errorf("the log lacks %q: %s", tt.log, log)
				}
				time.Sleep(2 * time.Minute) // let the stubborn ones end, the bubble wants it
			})
		})
	}
}

func TestWhatComesAfterTheSignalDoesNotReachTheHandler(t *testing.T) {
	f, _, exits := function(t, func(http.ResponseWriter, *http.Request) { t.Error("handler called") })
	f.shutDown()
	if code := <-exits; code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	w := httptest.NewRecorder()
	f.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Connection") != "close" {
		t.Errorf("answer %d, Connection %q; want 503, close", w.Code, w.Header().Get("Connection"))
	}
}

// A request is either counted, and waited for, or refused; there is no gap between the two.
func TestRequestsRacingTheSignalAreCountedOrRefused(t *testing.T) {
	var f *Function
	f, _, exits := function(t, func(w http.ResponseWriter, _ *http.Request) {
		select {
		case <-f.idle:
			t.Error("handler runs in a process without requests")
		default:
		}
		w.WriteHeader(204)
	})
	const n = 50
	codes := make(chan int, n)
	for range n {
		go func() {
			w := httptest.NewRecorder()
			f.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
			codes <- w.Code
		}()
	}
	f.shutDown()
	<-exits
	for range n {
		if c := <-codes; c != 204 && c != 503 {
			t.Errorf("answer %d", c)
		}
	}
}

// flushed is a response that says when it has been pushed out.
type flushed struct {
	*httptest.ResponseRecorder
	flush func()
}

func (w *flushed) Flush() { w.flush() }

// Otherwise the exit could come between the handler's return and the socket.
func TestAnAnswerIsOnTheSocketBeforeItsRequestStopsCounting(t *testing.T) {
	f, _, _ := function(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) })
	var counted []int
	w := &flushed{ResponseRecorder: httptest.NewRecorder()}
	w.flush = func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		counted = append(counted, f.flying, w.Code)
	}
	f.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
	if diff := cmp.Diff([]int{1, 204}, counted); diff != "" {
		t.Errorf("in flight, status at the flush (-want +got):\n%s", diff)
	}
}
