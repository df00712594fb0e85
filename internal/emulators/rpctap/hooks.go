package rpctap

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Error returns what a server would answer. codes.Aborted makes a Spanner client run its transaction again;
// it sends most calls again after codes.Unavailable, Commit too; codes.Internal, codes.Unknown and
// codes.DeadlineExceeded reach the caller.
func Error(code codes.Code) error {
	return status.Errorf(code, "rpctap: %s", code)
}

// FailNth refuses the nth call of a method: it is not sent.
func (t *Tap) FailNth(method string, nth int, err error) {
	t.Before(method, func(_ context.Context, n int, _ any) error {
		if n == nth {
			return err
		}
		return nil
	})
}

// FailAll refuses every call of a method from now on.
func (t *Tap) FailAll(method string, err error) {
	t.Before(method, func(context.Context, int, any) error { return err })
}

// LoseNth lets the server execute the nth call of a method, and gives the client err in place of a good
// answer.
func (t *Tap) LoseNth(method string, nth int, err error) {
	t.After(method, func(_ context.Context, n int, _, _ any, got error) error {
		if n == nth && got == nil {
			return err
		}
		return got
	})
}

// Gate holds one call.
type Gate struct {
	name    string
	arrived chan struct{}
	open    chan struct{}
	once    sync.Once
	release sync.Once
}

func newGate(name string) *Gate {
	return &Gate{name: name, arrived: make(chan struct{}), open: make(chan struct{})}
}

// Arrived is closed when the call is at the gate.
func (g *Gate) Arrived() <-chan struct{} { return g.arrived }

// Wait waits until the call is at the gate.
func (g *Gate) Wait(ctx context.Context) error {
	select {
	case <-g.arrived:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for %s: %w", g.name, context.Cause(ctx))
	}
}

// Release lets the call go on, now or when it comes. It may be called more than once.
func (g *Gate) Release() { g.release.Do(func() { close(g.open) }) }

func (g *Gate) pass(ctx context.Context) error {
	g.once.Do(func() { close(g.arrived) })
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// HoldNth stops the nth call of a method before it is sent, until the gate is released or the call's context
// ends (it is not sent then).
func (t *Tap) HoldNth(method string, nth int) *Gate {
	g := newGate(fmt.Sprintf("call %d of %s", nth, method))
	t.Before(method, func(ctx context.Context, n int, _ any) error {
		if n != nth {
			return nil
		}
		return g.pass(ctx)
	})
	return g
}

// HoldAnswerNth stops the answer of the nth call of a method: the server has executed it, the client does
// not know. A call whose context ends gets that error.
func (t *Tap) HoldAnswerNth(method string, nth int) *Gate {
	g := newGate(fmt.Sprintf("the answer of call %d of %s", nth, method))
	t.After(method, func(ctx context.Context, n int, _, _ any, err error) error {
		if n != nth {
			return err
		}
		if held := g.pass(ctx); held != nil {
			return held
		}
		return err
	})
	return g
}
