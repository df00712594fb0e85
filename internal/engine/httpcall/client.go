package httpcall

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
)

// Deps are what a Client uses of the world. Each zero value means the real thing.
type Deps struct {
	Now  func() time.Time // for the age of idle connections
	TLS  *tls.Config
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Client calls one server.
type Client struct{ pool *pool }

// New makes a client for the server of target, whose path does not matter. With keep, connections are used again; without,
// each request has a new one. It connects to nothing.
func New(target *url.URL, keep bool, deps Deps) *Client {
	if deps.Now == nil {
		deps.Now = time.Now
	}
	return &Client{pool: newPool(target, keep, deps)}
}

// Close gives the kept connections back. Calls that come later are Technical.
func (c *Client) Close() { c.pool.close() }

// Idle returns what the kept connections say of themselves: nil, or why they are of no use any more.
func (c *Client) Idle() []error { return c.pool.errors() }

// Do writes req and reads its answer, whose body is used up to limit bytes. Where there is none, the result says what
// that means; otherwise it is nil. MaySend may be nil, which allows.
func (c *Client) Do(ctx context.Context, req *http.Request, limit int64, maySend func() bool) (Answer, *engine.Result) {
	conn, err := c.pool.get(ctx)
	if err != nil {
		return Answer{}, Unsent(ctx, err)
	}
	if err := ctx.Err(); err != nil {
		c.pool.put(conn)
		return Answer{}, Unsent(ctx, err)
	}
	// The last moment at which nothing has left: the connection stands and is ours alone, and RoundTrip writes at once.
	if maySend != nil && !maySend() {
		c.pool.put(conn)
		return Answer{}, &engine.Result{Verdict: engine.NotStarted, Code: "forbidden", Detail: "Nothing was sent: the time left was too short, or the lease was lost."}
	}
	written := conn.wire.written.Load()
	var wrote, wroteAll, early atomic.Bool
	trace := &httptrace.ClientTrace{
		WroteHeaders:         func() { wrote.Store(true) },
		WroteRequest:         func(httptrace.WroteRequestInfo) { wroteAll.Store(true) },
		GotFirstResponseByte: func() { early.Store(!wroteAll.Load()) },
	}
	resp, err := conn.RoundTrip(req.WithContext(httptrace.WithClientTrace(ctx, trace)))
	if err != nil {
		// RoundTrip has waited for the connection's writer to end: what wrote says is final. What the connection itself has met
		// first, such as a refusal, can be another error than the one that our write has met then.
		if first := conn.Err(); refusesHandshake(first) {
			err = first
		}
		_ = conn.Close()
		switch {
		case !wrote.Load(), conn.wire.written.Load() == written:
			return Answer{}, Unsent(ctx, err)
		case !conn.used && refusesHandshake(err):
			return Answer{}, Unsent(ctx, err)
		}
		return Answer{}, broken(ctx, err)
	}
	answer, whole := read(resp, limit)
	// Who answers before there is a whole request does not read the rest of it, as a rule, and may be about to close.
	if whole && !early.Load() && !conn.wire.deaf.Load() {
		conn.used = true
		c.pool.put(conn)
	} else {
		_ = conn.Close()
	}
	return answer, nil
}

// Body is b as a request's body. It has no GetBody beside it, and needs none: nothing rewinds.
func Body(b []byte) io.ReadCloser {
	if len(b) == 0 {
		return http.NoBody
	}
	return io.NopCloser(bytes.NewReader(b))
}
