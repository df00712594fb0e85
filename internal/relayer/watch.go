package relayer

import (
	"context"
	"log/slog"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// report has the table reported on while the run lasts. What it returns ends that: it waits for a report that is under
// way, because a short run would never finish one otherwise, unless the process is told to end.
func (r *run) report(ctx context.Context, stop <-chan struct{}) (end func()) {
	if r.Reporter == nil {
		return func() {}
	}
	reading, cancel := stopWith(context.WithoutCancel(ctx), stop)
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			wait := r.Reporter.Report(reading)
			select {
			case <-r.After(wait):
			case <-ended:
				return
			case <-reading.Done():
				return
			}
			r.Reporter.Export(reading)
		}
	}()
	return func() {
		close(ended)
		<-done
		cancel()
	}
}

// summarise writes the run's one line.
func (r *run) summarise(ctx context.Context, ok bool, err error) {
	s := r.summary
	attrs := []slog.Attr{slog.Bool("ok", ok), slog.Int("claimed", s.Claimed), slog.Int("processed", s.Processed),
		slog.Int("retrying", s.Retrying), slog.Int("parked", s.Parked), slog.Int("discarded", s.Discarded),
		slog.Int("released", s.Released), slog.Int64("durationMs", s.DurationMs)}
	level := slog.LevelInfo
	if !ok {
		level = slog.LevelError
	}
	if err != nil {
		attrs = append(attrs, slog.String("error", err.Error()))
	}
	r.Log.LogAttrs(ctx, level, "relay run", attrs...)
}

// logMessage writes what became of a message.
func (r *run) logMessage(ctx context.Context, level slog.Level, what string, m *inbox.Message, more ...any) {
	r.Log.Log(ctx, level, what, append([]any{"inboxId", m.ID, "route", m.Route, "status", m.Status, "reason", m.Reason}, more...)...)
}

// logParkedByClaim tells of messages that were parked before anybody was called.
func (r *run) logParkedByClaim(ctx context.Context, plan inbox.ClaimPlan) {
	for _, m := range plan.Messages {
		if m.Status == inbox.Parked {
			r.logMessage(ctx, slog.LevelWarn, "message parked", m, "code", m.LastErrorCode)
		}
	}
}
