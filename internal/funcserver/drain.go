package funcserver

import (
	"context"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/telemetry"
)

// enter counts a request in, unless the process is leaving.
func (f *Function) enter() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.leaving {
		return false
	}
	f.flying++
	return true
}

func (f *Function) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.flying--
	if f.leaving && f.flying == 0 {
		close(f.idle)
	}
}

// beginDrain has new requests refused from now on, and tells those under way that the process ends. Calling it again does nothing.
func (f *Function) beginDrain() {
	f.mu.Lock()
	if !f.leaving {
		f.leaving = true
		if f.flying == 0 {
			close(f.idle)
		}
	}
	f.mu.Unlock()
	f.drain()
}

// shutDown ends the process. The times are the package's.
func (f *Function) shutDown() {
	ctx, cancel := context.WithTimeout(context.Background(), exitAfter)
	defer cancel()
	f.beginDrain()

	cut := time.AfterFunc(cutAfter, func() { f.cutOff(ErrShuttingDown) })
	defer cut.Stop()
	giveUp := time.NewTimer(giveUpAfter)
	defer giveUp.Stop()
	select {
	case <-f.idle:
	case <-giveUp.C:
		f.mu.Lock()
		n := f.flying
		f.mu.Unlock()
		f.o.Logger.Warn("requests given up at shut-down", slog.String("function", f.o.Name), slog.Int("requests", n))
	}

	done := make(chan struct{})
	go func() {
		defer close(done)
		f.runClosers(ctx)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		f.o.Logger.Warn("clients given up at shut-down", slog.String("function", f.o.Name))
	}
	f.o.Exit(0)
}

func (f *Function) runClosers(ctx context.Context) {
	f.mu.Lock()
	closers := slices.Clone(f.closers)
	f.mu.Unlock()
	for _, c := range slices.Backward(closers) {
		f.runCloser(ctx, c)
	}
}

func (f *Function) runCloser(ctx context.Context, c closer) {
	defer func() {
		if v := recover(); v != nil {
			telemetry.LogPanic(ctx, f.o.Logger, "closing "+c.name, v, debug.Stack())
		}
	}()
	if err := c.run(ctx); err != nil {
		f.o.Logger.LogAttrs(ctx, slog.LevelWarn, "close failed", slog.String("what", c.name), telemetry.Err(err))
	}
}
