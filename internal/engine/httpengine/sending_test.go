package httpengine

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/httpcall"
	"github.com/pubsub-inbox/pubsub-inbox/internal/freeport"
)

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"

func TestADeliveryIsWrittenOnceEvenWhenAKeptConnectionBreaks(t *testing.T) {
	w := newWire(t, func(_ *wire, conn net.Conn, n int) bool {
		if n == 1 {
			_, _ = io.WriteString(conn, okAnswer)
		}
		return n == 1 // the second is read and never answered
	})
	for name, change := range map[string]func(*engine.Delivery){
		"with a body":    func(*engine.Delivery) {},
		"without a body": func(d *engine.Delivery) { d.Variables = nil },
	} {
		t.Run(name, func(t *testing.T) {
			w.mu.Lock()
			w.connections, w.requests = 0, 0
			w.mu.Unlock()
			e := newEngine(t, w.url)
			d := aDelivery()
			change(&d)
			first := e.Correlate(t.Context(), d)
			second := e.Correlate(t.Context(), d)
			if first.Verdict != engine.Correlated || second.Verdict != engine.Unknown {
				t.Errorf("verdicts %s, %s, want %s, %s", first.Verdict, second.Verdict, engine.Correlated, engine.Unknown)
			}
			connections, requests := w.seen()
			if connections != 1 || requests != 2 {
				t.Errorf("%d requests on %d connections, want 2 on 1", requests, connections)
			}
		})
	}
}

// The hazard is real: net/http's own client sends the second request twice.
func TestNetHTTPWouldRepeatTheDelivery(t *testing.T) {
	w := newWire(t, func(_ *wire, conn net.Conn, n int) bool {
		if n == 1 {
			_, _ = io.WriteString(conn, okAnswer)
		}
		return n == 1
	})
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for range 2 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url, bytes.NewReader([]byte("{}")))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", `"x"`)
		if resp, err := client.Do(r); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}
	if _, requests := w.seen(); requests != 3 {
		t.Errorf("%d requests: net/http has changed, and this package's own pool may not be needed any more", requests)
	}
}

func TestAnEngineThatIsNotIdempotentGetsANewConnectionEachTime(t *testing.T) {
	w := newWire(t, say(okAnswer))
	e := newEngine(t, w.url, notIdempotent)
	for range 3 {
		if r := e.Correlate(t.Context(), aDelivery()); r.Verdict != engine.Correlated {
			t.Fatalf("verdict %s", r.Verdict)
		}
	}
	if connections, _ := w.seen(); connections != 3 {
		t.Errorf("%d connections, want 3", connections)
	}
}

func TestAConnectionThatWasClosedMeanwhileIsNotUsed(t *testing.T) {
	hangUp := make(chan struct{})
	w := newWire(t, func(_ *wire, conn net.Conn, _ int) bool {
		_, _ = io.WriteString(conn, okAnswer) // does not say that it will close
		<-hangUp
		return false
	})
	e := newEngine(t, w.url)
	for range 3 {
		if r := e.Correlate(t.Context(), aDelivery()); r.Verdict != engine.Correlated {
			t.Fatalf("got %s %s (%s)", r.Verdict, r.Code, r.Detail)
		}
		if len(e.client.Idle()) != 1 {
			t.Fatalf("%d connections are kept, want 1", len(e.client.Idle()))
		}
		hangUp <- struct{}{}
		for e.client.Idle()[0] == nil {
			runtime.Gosched() // until the connection's reader has seen the end
		}
	}
	if connections, requests := w.seen(); connections != 3 || requests != 3 {
		t.Errorf("%d requests on %d connections, want 3 on 3", requests, connections)
	}
}

func TestConnectionsAreKeptUntilTheyAreOld(t *testing.T) {
	w := newWire(t, say(okAnswer))
	now := time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)
	e, err := New(Config{URL: w.url, Idempotent: true}, Deps{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for i, step := range []struct {
		wait time.Duration
		want int
	}{{0, 1}, {httpcall.MaxIdleTime, 1}, {httpcall.MaxIdleTime + 1, 2}, {0, 2}} {
		now = now.Add(step.wait)
		e.Correlate(t.Context(), aDelivery())
		if connections, _ := w.seen(); connections != step.want {
			t.Errorf("step %d: %d connections, want %d", i, connections, step.want)
		}
	}
}

func TestBreaksAfterTheRequestIsUnknown(t *testing.T) {
	chunkedForever := func(_ *wire, conn net.Conn, _ int) bool {
		_, err := io.WriteString(conn, "HTTP/1.1 100 Continue\r\n\r\n")
		for err == nil {
			_, err = io.WriteString(conn, "HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n")
		}
		return false
	}
	tests := []struct {
		name   string
		script func(*wire, net.Conn, int) bool
		code   string
	}{
		{"closed without an answer", sayAndClose(""), httpcall.CodeEOF},
		{"closed in the status line", sayAndClose("HTTP/1.1 20"), httpcall.CodeMalformed},
		{"closed in the header", sayAndClose("HTTP/1.1 200 OK\r\nContent-Le"), httpcall.CodeMalformed},
		{"reset", func(_ *wire, conn net.Conn, _ int) bool { _ = conn.(*net.TCPConn).SetLinger(0); return false }, httpcall.CodeReset},
		{"not HTTP", sayAndClose("220 mail.example.com ESMTP\r\n"), httpcall.CodeMalformed},
		{"a header without an end", sayAndClose("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", httpcall.MaxAnswerHeaderBytes*2)), httpcall.CodeMalformed},
		{"interim answers without an end", chunkedForever, httpcall.CodeMalformed},
	}
	for _, tt := range tests {
		for _, idempotent := range []bool{true, false} {
			t.Run(tt.name, func(t *testing.T) {
				w := newWire(t, tt.script)
				e := newEngine(t, w.url, func(c *Config) { c.Idempotent = idempotent })
				r := e.Correlate(t.Context(), aDelivery())
				if r.Verdict != engine.Unknown || r.Code != tt.code {
					t.Errorf("got %s %s (%s), want %s %s", r.Verdict, r.Code, r.Detail, engine.Unknown, tt.code)
				}
				if _, requests := w.seen(); requests != 1 {
					t.Errorf("%d requests, want 1", requests)
				}
			})
		}
	}
}

func TestAnEngineThatStaysSilentIsUnknownAtTheTimeout(t *testing.T) {
	stop := make(chan struct{})
	w := newWire(t, func(*wire, net.Conn, int) bool { <-stop; return false })
	t.Cleanup(func() { close(stop) }) // runs before the wire's own, which waits
	r := newEngine(t, w.url, shortTimeout).Correlate(t.Context(), aDelivery())
	if r.Verdict != engine.Unknown || r.Code != httpcall.CodeTimeout {
		t.Errorf("got %s %s, want %s %s", r.Verdict, r.Code, engine.Unknown, httpcall.CodeTimeout)
	}
}

func TestADefiniteAnswerIsNotUndoneByItsBody(t *testing.T) {
	endless := func(_ *wire, conn net.Conn, _ int) bool {
		_, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		for err == nil {
			_, err = io.WriteString(conn, "1\r\nx\r\n")
		}
		return false
	}
	stalled := make(chan struct{})
	sayAndStall := func(bytes string) func(*wire, net.Conn, int) bool {
		return func(_ *wire, conn net.Conn, _ int) bool {
			_, _ = io.WriteString(conn, bytes)
			<-stalled
			return false
		}
	}
	tests := []struct {
		name    string
		script  func(*wire, net.Conn, int) bool
		verdict engine.Verdict
		timeout []func(*Config)
	}{
		{"a body that breaks off", sayAndClose("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"), engine.Correlated, nil},
		{"a body without an end", endless, engine.Correlated, nil},
		{"a body that does not come", sayAndStall("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"), engine.Correlated, []func(*Config){shortTimeout}},
		{"chunks that are none", sayAndClose("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), engine.Correlated, nil},
		{"a content encoding that is a lie", sayAndClose("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nzzzz"), engine.Correlated, nil},
		{"a problem that breaks off", sayAndClose("HTTP/1.1 400 Bad Request\r\nContent-Type: application/problem+json\r\nContent-Length: 100\r\n\r\n{\"type\":"), engine.Technical, nil},
		{"a login that breaks off", sayAndClose("HTTP/1.1 401 Unauthorized\r\nContent-Type: application/problem+json\r\nContent-Length: 100\r\n\r\n{"), engine.Unauthorised, nil},
		{"another protocol", sayAndStall("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"), engine.Technical, []func(*Config){shortTimeout}},
		{"a status beyond HTTP", sayAndClose("HTTP/1.1 999 Really\r\nContent-Length: 0\r\n\r\n"), engine.Technical, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			stalled = make(chan struct{})
			w := newWire(t, tt.script)
			t.Cleanup(func() { close(stalled) }) // before the wire's own cleanup, which waits
			r := newEngine(t, w.url, tt.timeout...).Correlate(t.Context(), aDelivery())
			if r.Verdict != tt.verdict {
				t.Errorf("got %s %s (%s), want %s", r.Verdict, r.Code, r.Detail, tt.verdict)
			}
		})
	}
}

func TestFailuresBeforeTheRequestAreTechnical(t *testing.T) {
	tlsServer := httptest.NewUnstartedServer(http.NotFoundHandler())
	tlsServer.Config.ErrorLog = log.New(io.Discard, "", 0)
	tlsServer.StartTLS()
	defer tlsServer.Close()
	closed, err := freeport.Hold()
	if err != nil {
		t.Fatal(err)
	}
	defer closed.Release()
	plain := newWire(t, say(okAnswer))
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()

	dialWith := func(err error) Deps {
		return Deps{Dial: func(context.Context, string, string) (net.Conn, error) { return nil, err }}
	}
	tests := []struct {
		name, url string
		deps      Deps
		code      string
	}{
		{"a refused connection", "http://" + closed.Address(), Deps{}, httpcall.CodeDial},
		{"a host without an address", "http://engine.example", dialWith(&net.DNSError{Err: "no such host", Name: "engine.example", IsNotFound: true}), httpcall.CodeDNS},
		{"a certificate nobody trusts", tlsServer.URL, Deps{}, httpcall.CodeTLS},
		{"TLS spoken to a server without it", strings.Replace(plain.url, "http:", "https:", 1), Deps{}, httpcall.CodeReset},
		{"a server that is silent during the handshake", "https://" + silent.Addr().String(), Deps{}, httpcall.CodeTimeout},
		{"a dial that takes too long", "http://engine.example", Deps{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}, httpcall.CodeTimeout},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			timeout := time.Minute
			if tt.code == httpcall.CodeTimeout {
				timeout = time.Second
			}
			e, err := New(Config{URL: tt.url, Timeout: timeout}, tt.deps)
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			d := aDelivery()
			d.BeforeSend = func() bool { t.Error("BeforeSend was asked without a connection"); return true }
			r := e.Correlate(t.Context(), d)
			if r.Verdict != engine.Technical || r.Code != tt.code {
				t.Errorf("got %s %s (%s), want %s %s", r.Verdict, r.Code, r.Detail, engine.Technical, tt.code)
			}
		})
	}
}

func TestTLSWorksWithATrustedCertificate(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	defer s.Close()
	trusted := s.Client().Transport.(*http.Transport).TLSClientConfig
	e, err := New(Config{URL: s.URL, Idempotent: true}, Deps{TLS: &tls.Config{RootCAs: trusted.RootCAs}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for range 2 {
		if r := e.Correlate(t.Context(), aDelivery()); r.Verdict != engine.Correlated {
			t.Errorf("got %s %s (%s)", r.Verdict, r.Code, r.Detail)
		}
	}
}

// spy counts what is written to a connection.
type spy struct {
	net.Conn
	written *int
}

func (s spy) Write(b []byte) (int, error) { *s.written += len(b); return s.Conn.Write(b) }

func TestBeforeSendIsTheLastWord(t *testing.T) {
	w := newWire(t, say(okAnswer))
	var order []string
	written := 0
	e, err := New(
		Config{URL: w.url, Idempotent: true, Auth: Auth{Kind: AuthOIDC, Audience: "a"}},
		Deps{
			Tokens: tokens(func(context.Context) (string, error) { order = append(order, "token"); return "t", nil }),
			Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				order = append(order, "connection")
				conn, err := new(net.Dialer).DialContext(ctx, network, address)
				return spy{conn, &written}, err
			},
		})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	d := aDelivery()
	for _, allow := range []bool{false, true} {
		d.BeforeSend = func() bool {
			order = append(order, "asked")
			if written != 0 {
				t.Errorf("%d bytes were written before", written)
			}
			return allow
		}
		r := e.Correlate(t.Context(), d)
		if want := map[bool]engine.Verdict{false: engine.NotStarted, true: engine.Correlated}[allow]; r.Verdict != want {
			t.Errorf("allowed %v: %s, want %s", allow, r.Verdict, want)
		}
		if !allow && written != 0 {
			t.Errorf("%d bytes were written", written)
		}
	}
	// The second call takes the connection that the first one did not use.
	if diff := cmp.Diff([]string{"token", "connection", "asked", "token", "asked"}, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if connections, requests := w.seen(); connections != 1 || requests != 1 {
		t.Errorf("%d requests on %d connections, want 1 on 1", requests, connections)
	}
}

func TestACancelledCallIsNotStarted(t *testing.T) {
	w := newWire(t, say(okAnswer))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e := newEngine(t, w.url)
	d := aDelivery()
	for _, kept := range []int{0, 1} { // a kept connection does not fail by itself when the context has ended
		d.BeforeSend = func() bool { t.Error("BeforeSend was asked for a call that had ended"); return true }
		r := e.Correlate(ctx, d)
		if r.Verdict != engine.NotStarted || r.Code != httpcall.CodeCancelled {
			t.Errorf("got %s %s, want %s", r.Verdict, r.Code, engine.NotStarted)
		}
		if _, requests := w.seen(); requests != kept {
			t.Errorf("%d requests arrived, want %d", requests, kept)
		}
		d.BeforeSend = nil
		if r := e.Correlate(t.Context(), d); r.Verdict != engine.Correlated {
			t.Fatalf("got %s %s (%s)", r.Verdict, r.Code, r.Detail)
		}
	}
	if connections, _ := w.seen(); connections != 1 {
		t.Errorf("%d connections, want 1", connections)
	}
}

func TestAClosedEngineSendsNothing(t *testing.T) {
	w := newWire(t, say(okAnswer))
	e := newEngine(t, w.url)
	_ = e.Close()
	if r := e.Correlate(t.Context(), aDelivery()); r.Verdict != engine.Technical {
		t.Errorf("got %s, want %s", r.Verdict, engine.Technical)
	}
}

func TestNothingIsLeftRunningAfterClose(t *testing.T) {
	before := runtime.NumGoroutine()
	w := newWire(t, func(_ *wire, conn net.Conn, n int) bool {
		if n%3 == 0 {
			return false
		}
		_, err := io.WriteString(conn, okAnswer)
		return err == nil
	})
	e := newEngine(t, w.url)
	var all sync.WaitGroup
	for range 30 {
		all.Go(func() { e.Correlate(t.Context(), aDelivery()) })
	}
	all.Wait()
	_ = e.Close()
	// The wire's own goroutines end because ours have: it reads until the connection is closed.
	deadline := time.Now().Add(10 * time.Second)
	for runtime.NumGoroutine() > before+1 && time.Now().Before(deadline) {
		runtime.Gosched()
	}
	if now := runtime.NumGoroutine(); now > before+1 { // one accepts for the wire
		t.Errorf("%d goroutines, %d before", now, before)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	reached := make(chan struct{}, 1)
	target := answering(t, func(http.ResponseWriter, *http.Request) { reached <- struct{}{} })
	for _, status := range []int{301, 302, 303, 307, 308} {
		url := answering(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, target, status) })
		if r := newEngine(t, url).Correlate(t.Context(), aDelivery()); r.Verdict != engine.Technical {
			t.Errorf("%d: %s, want %s", status, r.Verdict, engine.Technical)
		}
	}
	select {
	case <-reached:
		t.Error("a redirect was followed")
	default:
	}
}
