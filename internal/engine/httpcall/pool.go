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

type idleConn struct {
	conn  *http.ClientConn
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
			DialContext:            dial,
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
func (p *pool) get(ctx context.Context) (*http.ClientConn, error) {
	for {
		conn, err := p.takeIdle()
		if err != nil {
			return nil, err
		}
		if conn == nil {
			break
		}
		if conn.Reserve() == nil {
			return conn, nil
		}
		_ = conn.Close()
	}
	conn, err := p.transport.NewClientConn(ctx, p.scheme, p.address)
	if err != nil {
		return nil, err
	}
	if err := conn.Reserve(); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// takeIdle takes the connection used last, if any is young enough, and closes those that are not.
func (p *pool) takeIdle() (*http.ClientConn, error) {
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
	conn := p.idle[last].conn
	p.idle[last] = idleConn{}
	p.idle = p.idle[:last]
	return conn, nil
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
func (p *pool) put(conn *http.ClientConn) {
	conn.Release()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.keep || p.closed || len(p.idle) >= maxIdleConns || conn.Err() != nil {
		_ = conn.Close()
		return
	}
	p.idle = append(p.idle, idleConn{conn: conn, since: p.now()})
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
