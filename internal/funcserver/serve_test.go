package funcserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/telemetry"
)

// function returns one whose log goes to the buffer, and whose exits go to the channel.
func function(t *testing.T, h http.HandlerFunc) (*Function, *bytes.Buffer, chan int) {
	t.Helper()
	log, exits := &bytes.Buffer{}, make(chan int, 10)
	return New(Options{
		Name:   "Test",
		Lookup: func(string) (string, bool) { return "", false },
		Logger: telemetry.NewLogger(log, telemetry.Options{}),
		Build:  func(*Function) (http.Handler, error) { return h, nil },
		Exit:   func(code int) { exits <- code },
	}), log, exits
}

func TestAnAnswerIsSentAsTheHandlerLeftIt(t *testing.T) {
	type want struct {
		Status int
		Body   string
		Header string // X-Test
		Length string
	}
	tests := []struct {
		name    string
		handler http.HandlerFunc
		want    want
	}{
		{
			name:    "a status without a body",
			handler: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) },
			want:    want{Status: 204},
		},
		{
			name:    "a handler that says nothing has succeeded, as in net/http",
			handler: func(http.ResponseWriter, *http.Request) {},
			want:    want{Status: 200, Length: "0"},
		},
		{
			name: "headers, a status, and a body in pieces",
			handler: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Test", "a")
				w.WriteHeader(503)
				w.Header().Set("X-Test", "too late")
				w.WriteHeader(200)
				_, _ = io.WriteString(w, "one ")
				_, _ = io.WriteString(w, "two")
			},
			want: want{Status: 503, Body: "one two", Header: "a", Length: "7"},
		},
		{
			name: "a 204 takes no body",
			handler: func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(204)
				if _, err := w.Write([]byte("x")); !errors.Is(err, http.ErrBodyNotAllowed) {
					panic("body accepted")
				}
			},
			want: want{Status: 204},
		},
		{
			name: "a panic before the status",
			handler: func(http.ResponseWriter, *http.Request) {
				panic("secret")
			},
			want: want{Status: 500, Body: "internal error\n", Length: "15"},
		},
		{
			name: "a panic after a whole answer",
			handler: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Test", "a")
				w.WriteHeader(204)
				panic(errors.New("secret"))
			},
			want: want{Status: 500, Body: "internal error\n", Length: "15"},
		},
		{
			name:    "a panic that net/http means for itself",
			handler: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			want:    want{Status: 500, Body: "internal error\n", Length: "15"},
		},
		{
			name: "a handler that tries to flush its status early cannot",
			handler: func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(204)
				if err := http.NewResponseController(w).Flush(); err == nil {
					panic("flushed")
				}
				panic("after the flush")
			},
			want: want{Status: 500, Body: "internal error\n", Length: "15"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, log, _ := function(t, tt.handler)
			srv := httptest.NewServer(f) // a real one: it has opinions on headers
			defer srv.Close()
			resp, err := http.Post(srv.URL, "text/plain", strings.NewReader("x"))
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			got := want{resp.StatusCode, string(body), resp.Header.Get("X-Test"), resp.Header.Get("Content-Length")}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			srv.Close() // the log is complete
			if strings.Contains(log.String(), "secret") {
				t.Errorf("the log quotes the panic: %s", log)
			}
			if lines := strings.Count(log.String(), "\n"); (tt.want.Status == 500) != (lines == 1) {
				t.Errorf("%d lines of log:\n%s", lines, log)
			}
		})
	}
}

func TestAHandlerThatEndsItsGoroutineIsAnswered500(t *testing.T) {
	f, log, _ := function(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(204)
		runtime.Goexit()
	})
	w := httptest.NewRecorder()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
	}()
	<-done
	if w.Code == http.StatusNoContent {
		t.Error("answered 204")
	}
	if f.flying != 0 {
		t.Errorf("%d requests in flight, want 0", f.flying)
	}
	if !strings.Contains(log.String(), `"message":"panic"`) {
		t.Errorf("log: %s", log)
	}
}

func TestTheLogOfARequestCarriesItsTrace(t *testing.T) {
	var f *Function
	f, log, _ := function(t, func(_ http.ResponseWriter, r *http.Request) {
		f.o.Logger.InfoContext(r.Context(), "hello")
	})
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.Header.Set("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	f.ServeHTTP(httptest.NewRecorder(), r)
	var got map[string]any
	if err := json.Unmarshal(log.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("4bf92f3577b34da6a3ce929d0e0e4736", got["logging.googleapis.com/trace"]); diff != "" {
		t.Errorf("trace (-want +got):\n%s", diff)
	}
}

func TestTarget(t *testing.T) {
	tests := []struct {
		name string
		env  map[string]string
		want bool
	}{
		{name: "the named function is served", env: map[string]string{"FUNCTION_TARGET": "Receive"}, want: true},
		{name: "another one is not", env: map[string]string{"FUNCTION_TARGET": "Relay"}},
		{name: "names are matched to the letter, as the framework does", env: map[string]string{"FUNCTION_TARGET": "receive"}},
		{name: "nothing named is nothing served"},
		{name: "an empty name is none", env: map[string]string{"FUNCTION_TARGET": ""}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Target("Receive", func(k string) (string, bool) { v, ok := tt.env[k]; return v, ok })
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Target (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBuildIsCalledOnceAndItsPanicIsAFault(t *testing.T) {
	tests := []struct {
		name  string
		build func(*Function) (http.Handler, error)
		want  string
	}{
		{"an error", func(*Function) (http.Handler, error) { return nil, errors.New("no database") }, "no database"},
		{"a panic", func(*Function) (http.Handler, error) { panic("secret") }, "start-up check panicked with a value of type string"},
		{"no handler", func(*Function) (http.Handler, error) { return nil, nil }, "start-up check returned no handler"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, _, exits := function(t, nil)
			calls := 0
			f.o.Build = func(f *Function) (http.Handler, error) { calls++; return tt.build(f) }
			f.startOrExit()
			if diff := cmp.Diff(tt.want, f.Start().Error()); diff != "" {
				t.Errorf("fault (-want +got):\n%s", diff)
			}
			if calls != 1 || <-exits != 1 {
				t.Errorf("%d calls", calls)
			}
			w := httptest.NewRecorder()
			f.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil).WithContext(context.Background()))
			if diff := cmp.Diff(503, w.Code); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}

// What is told of an answer comes before it is sent and cannot change it, whatever goes wrong there.
func TestWhoWantsToKnowOfAnswersChangesNone(t *testing.T) {
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
		want    int
	}{
		{"a status", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, 204},
		{"nothing said", func(http.ResponseWriter, *http.Request) {}, 200},
		{"a panic", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204); panic("no") }, 500},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, panics := range []bool{false, true} {
				f, _, _ := function(t, c.handler)
				rr := httptest.NewRecorder()
				told, sent := 0, 0
				f.o.Answered = func(_ *http.Request, status int) {
					told, sent = status, len(rr.Result().Header)
					if panics {
						panic("no")
					}
				}
				f.ServeHTTP(rr, httptest.NewRequest(http.MethodPost, "/", nil))
				if told != c.want || rr.Code != c.want || sent != 0 {
					t.Errorf("told of %d after %d headers were sent, and answered %d; want %d, before anything is sent", told, sent, rr.Code, c.want)
				}
			}
		})
	}
}
