package httpcall

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
)

// wire is a connection that does not report that the other side has stopped reading. Whoever refuses a large body answers
// from the header alone and closes; net/http takes the write that fails then for the whole story, and drops the answer that
// is there to be read. So a write after such a failure pretends to succeed, and what there is to read decides: an answer, or
// the same failure.
type wire struct {
	net.Conn
	written atomic.Int64 // bytes that the system has taken
	deaf    atomic.Bool  // the other side does not read any more
}

// Write implements net.Conn.
func (w *wire) Write(b []byte) (int, error) {
	if w.deaf.Load() {
		return len(b), nil
	}
	n, err := w.Conn.Write(b)
	w.written.Add(int64(n))
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		w.deaf.Store(true)
		return len(b), nil
	}
	return n, err
}

// wireKey is the context's key of the place where a dial leaves its wire.
type wireKey struct{}

// dialWire has dial leave the wire that it made with whoever asked for the connection.
func dialWire(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		w := &wire{Conn: conn}
		if place, ok := ctx.Value(wireKey{}).(**wire); ok {
			*place = w
		}
		return w, nil
	}
}
