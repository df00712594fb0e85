package httpcall

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

const (
	// maxIdleConns is more than the calls a relay makes in parallel.
	maxIdleConns = 64
	// MaxIdleTime is below the five seconds after which the least patient common servers (Node) close a kept connection:
	// a request that meets that close would be Unknown.
	MaxIdleTime = 4 * time.Second
	// MaxAnswerHeaderBytes bounds an answer's header.
	MaxAnswerHeaderBytes = 64 << 10
)

var errPoolClosed = errors.New("the engine's adapter is closed")

// pool keeps connections to one server. Unlike http.Transport's own it hands a connection out before the request is
// written, and never repeats a request on another one.
type pool struct {
	transport *http.Transport
	scheme    string
	address   string
	keep      bool
	now       func() time.Time

	mu     sync.Mutex
	idle   []idleConn // the most recently used one last
	closed bool
}

// conn is a connection of the pool.
type conn struct {
	*http.ClientConn
	wire *wire
	used bool // an answer has come on it
}

type idleConn struct {
	conn  *conn
	since time.Time
}

func newPool(target *url.URL, keep bool, deps Deps) *pool {
	port := target.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[target.Scheme]
	}
	tlsConfig := &tls.Config{MinVersion: tls.VersionTLS12}
	if deps.TLS != nil {
		tlsConfig = deps.TLS.Clone()
	}
	if tlsConfig.ClientSessionCache == nil {
		tlsConfig.ClientSessionCache = tls.NewLRUClientSessionCache(maxIdleConns)
	}
	dial := deps.Dial
	if dial == nil {
		dial = (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &pool{
		transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            dialWire(dial),
			TLSClientConfig:        tlsConfig,
			Protocols:              protocols,
			DisableCompression:     true, // a bounded number of bytes must stay a bounded number of bytes
			MaxResponseHeaderBytes: MaxAnswerHeaderBytes,
		},
		scheme:  target.Scheme,
		address: net.JoinHostPort(target.Hostname(), port),
		keep:    keep,
		now:     deps.Now,
	}
}

// get reserves a connection that stands. It must be given to put, or closed.
func (p *pool) get(ctx context.Context) (*conn, error) {
	for {
		kept, err := p.takeIdle()
		if err != nil {
			return nil, err
		}
		if kept == nil {
			break
		}
		if kept.Reserve() == nil {
			return kept, nil
		}
		_ = kept.Close()
	}
	made := &conn{}
	var err error
	made.ClientConn, err = p.transport.NewClientConn(context.WithValue(ctx, wireKey{}, &made.wire), p.scheme, p.address)
	if err != nil {
		return nil, err
	}
	if err := made.Reserve(); err != nil {
		_ = made.Close()
		return nil, err
	}
	return made, nil
}

// takeIdle takes the connection used last, if any is young enough, and closes those that are not.
func (p *pool) takeIdle() (*conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errPoolClosed
	}
	p.dropOld()
	last := len(p.idle) - 1
	if last < 0 {
		return nil, nil
	}
	kept := p.idle[last].conn
	p.idle[last] = idleConn{}
	p.idle = p.idle[:last]
	return kept, nil
}

func (p *pool) dropOld() {
	oldest := p.now().Add(-MaxIdleTime)
	n := 0
	for n < len(p.idle) && p.idle[n].since.Before(oldest) {
		_ = p.idle[n].conn.Close()
		n++
	}
	if n > 0 {
		p.idle = append(p.idle[:0:0], p.idle[n:]...)
	}
}

// put keeps a connection whose last answer was read to its end, or on which nothing was sent.
func (p *pool) put(c *conn) {
	c.Release()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.keep || p.closed || len(p.idle) >= maxIdleConns || c.Err() != nil {
		_ = c.Close()
		return
	}
	p.idle = append(p.idle, idleConn{conn: c, since: p.now()})
}

// close closes the idle connections, and lets no new one be made.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.idle {
		_ = c.conn.Close()
	}
	p.idle = nil
}

// errors returns what the idle connections say of themselves, the most recently used one last.
func (p *pool) errors() []error {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]error, len(p.idle))
	for i, c := range p.idle {
		all[i] = c.conn.Err()
	}
	return all
}
