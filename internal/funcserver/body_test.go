package funcserver

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"
)

// send opens a connection to the function, writes the beginning of a request, and returns where its answer will be read.
func send(t *testing.T, f *Function, request string) (net.Conn, *bufio.Reader) {
	t.Helper()
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil { // only a test that fails waits for it
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

// answerOf reads an answer, after which the connection must end.
func answerOf(t *testing.T, from *bufio.Reader) int {
	t.Helper()
	resp, err := http.ReadResponse(from, nil)
	if err != nil {
		t.Fatalf("there is no answer: %v", err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || !resp.Close {
		t.Errorf("the connection of a body that did not come is kept: %v", err)
	}
	return resp.StatusCode
}

// trickle writes a byte now and then, until the connection ends or the test does.
func trickle(t *testing.T, conn net.Conn, piece string) {
	tick := time.NewTicker(2 * time.Millisecond)
	go func() {
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-t.Context().Done():
				return
			}
			if _, err := io.WriteString(conn, piece); err != nil {
				return
			}
		}
	}()
}

func TestABodyIsWaitedForAndNoLonger(t *testing.T) {
	const head = "POST / HTTP/1.1\r\nHost: function.example\r\n"
	for name, tt := range map[string]struct {
		request, trickle string
		unread           bool // the handler answers without reading
	}{
		"a length that is never reached":        {request: head + "Content-Length: 500\r\n\r\n{"},
		"nothing of a body":                     {request: head + "Content-Length: 500\r\n\r\n"},
		"a chunk that is never ended":           {request: head + "Transfer-Encoding: chunked\r\n\r\n5\r\n{"},
		"chunks without an end":                 {request: head + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"},
		"a byte now and then":                   {request: head + "Content-Length: 100000\r\n\r\n{}", trickle: " "},
		"a chunk now and then":                  {request: head + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n", trickle: "1\r\n \r\n"},
		"a caller that is refused unread":       {request: head + "Content-Length: 500\r\n\r\n{", unread: true},
		"one that is refused and goes on a bit": {request: head + "Content-Length: 100000\r\n\r\n{", trickle: " ", unread: true},
	} {
		t.Run(name, func(t *testing.T) {
			f, _, _ := function(t, func(w http.ResponseWriter, r *http.Request) {
				if tt.unread {
					w.WriteHeader(http.StatusUnauthorized)
					return
				}
				_, err := io.ReadAll(r.Body)
				if errors.Is(err, os.ErrDeadlineExceeded) {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			})
			f.o.BodyWithin = 50 * time.Millisecond
			conn, answer := send(t, f, tt.request)
			if tt.trickle != "" {
				trickle(t, conn, tt.trickle)
			}
			want := map[bool]int{true: http.StatusUnauthorized, false: http.StatusServiceUnavailable}[tt.unread]
			if got := answerOf(t, answer); got != want {
				t.Errorf("answered %d, want %d", got, want)
			}
		})
	}
}

func TestARequestThatHasItsBodyMayTakeLonger(t *testing.T) {
	for name, request := range map[string]string{
		"a body":           "POST / HTTP/1.1\r\nHost: f\r\nContent-Length: 2\r\n\r\n{}",
		"chunks":           "POST / HTTP/1.1\r\nHost: f\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
		"an empty body":    "POST / HTTP/1.1\r\nHost: f\r\nContent-Length: 0\r\n\r\n",
		"no body, no word": "GET / HTTP/1.1\r\nHost: f\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			const within = 50 * time.Millisecond
			f, _, _ := function(t, func(w http.ResponseWriter, r *http.Request) {
				if _, err := io.ReadAll(r.Body); err != nil {
					panic(err)
				}
				select {
				case <-r.Context().Done():
					w.WriteHeader(http.StatusServiceUnavailable)
				case <-time.After(4 * within):
					w.WriteHeader(http.StatusNoContent)
				}
			})
			f.o.BodyWithin = within
			conn, answers := send(t, f, request)
			for n := range 2 { // the connection serves the next one too
				resp, err := http.ReadResponse(answers, nil)
				if err != nil || resp.StatusCode != http.StatusNoContent || resp.Close {
					t.Fatalf("request %d: %v, %v", n, resp, err)
				}
				if n == 0 {
					_, _ = fmt.Fprint(conn, request)
				}
			}
		})
	}
}

func TestABodyIsWaitedForEightSecondsUnlessSaidOtherwise(t *testing.T) {
	if got := New(Options{}).o.BodyWithin; got != 8*time.Second {
		t.Errorf("%v", got)
	}
}
