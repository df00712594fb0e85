package funcserver

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Lazy makes a value at its first use, such as a client: not at start-up, where it would delay the first answer and turn
// a short outage into a failed deployment. A failure is the answer for those who waited, and the next use tries again.
type Lazy[T any] struct {
	create func(context.Context) (T, error)

	mu     sync.Mutex
	made   bool
	value  T
	flight *creation[T]
}

// creation is one try. value and err are read after done is closed.
type creation[T any] struct {
	done  chan struct{}
	value T
	err   error
}

// NewLazy returns a Lazy that calls create. Its context carries the values of the request that came first, but does not
// end with it: the value outlives that request, and clients hold on to the context they were made with.
func NewLazy[T any](create func(context.Context) (T, error)) *Lazy[T] {
	return &Lazy[T]{create: create}
}

// Get returns the value, and makes it if need be. Those who come meanwhile wait for the same try, each as long as its own
// context allows; the try itself goes on.
func (l *Lazy[T]) Get(ctx context.Context) (T, error) {
	l.mu.Lock()
	if l.made {
		defer l.mu.Unlock()
		return l.value, nil
	}
	c := l.flight
	if c == nil {
		c = &creation[T]{done: make(chan struct{})}
		l.flight = c
		go l.try(context.WithoutCancel(ctx), c)
	}
	l.mu.Unlock()
	select {
	case <-c.done:
		return c.value, c.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// Made returns the value if there is one. It never waits: a shut-down closes what was made.
func (l *Lazy[T]) Made() (T, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.value, l.made
}

func (l *Lazy[T]) try(ctx context.Context, c *creation[T]) {
	c.err = errors.New("creation did not return")
	defer func() {
		if v := recover(); v != nil { // it would end the process, for no request's sake
			c.err = fmt.Errorf("creation panicked with a value of type %T", v)
		}
		l.mu.Lock()
		l.flight = nil
		if c.err == nil {
			l.value, l.made = c.value, true
		}
		l.mu.Unlock()
		close(c.done)
	}()
	c.value, c.err = l.create(ctx)
}
