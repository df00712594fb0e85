package telemetry

import (
	"context"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// Receive counts what becomes of deliveries. Its methods return at once and may be called from many goroutines.
type Receive struct {
	*Export
	payloads payloads
}

// NewReceive returns the observer of a receive function. routes are the configured ones: their counters begin at zero, so
// that a first increase is one.
func NewReceive(e *Export, routes []string) *Receive {
	consumer := e.o.Consumer
	for _, outcome := range []string{"stored", "known"} {
		e.in.add(deadLetters, 0, consumer, outcome)
	}
	for _, route := range routes {
		for _, m := range []*Metric{redelivered, conflicts, equalPayloads} {
			e.in.add(m, 0, consumer, route)
		}
	}
	return &Receive{Export: e}
}

// Begin starts the span of a push that has been read. What it returns ends it: stored is false where there is no row.
func (r *Receive) Begin(ctx context.Context, publisher string) (context.Context, func(stored bool)) {
	if r.tracer == nil {
		return ctx, func(bool) {}
	}
	ctx, span := r.startReceive(ctx, publisher)
	return ctx, func(stored bool) {
		if !stored {
			failed(span, "not stored")
		}
		span.End()
	}
}

// Stored counts a new row, at the broker's delivery attempt, 0 if it does not say.
func (r *Receive) Stored(ctx context.Context, m *inbox.Message, attempt int64) {
	describe(ctx, m, "stored")
	if r.in == nil {
		return
	}
	consumer := r.o.Consumer
	r.in.addWith(received, 1, r.tenant(m.TenantID), consumer, m.Route, r.types.value(m.Type), string(m.Status), string(m.Reason))
	if m.Status == inbox.Parked {
		r.in.add(parked, 1, consumer, m.Route, string(m.Reason))
	}
	if m.Reason == inbox.DedupeConflict {
		r.in.add(conflicts, 1, consumer, m.Route)
	}
	if m.PayloadBytes > 0 && r.payloads.add(m.Route, m.PayloadSHA256) {
		r.in.add(equalPayloads, 1, consumer, m.Route)
	}
	r.attempt(ctx, attempt)
}

// Known counts a delivery whose row was there. m is what the delivery would have stored.
func (r *Receive) Known(ctx context.Context, m *inbox.Message, attempt int64) {
	describe(ctx, m, "known")
	r.in.add(redelivered, 1, r.o.Consumer, m.Route)
	r.attempt(ctx, attempt)
}

func (r *Receive) attempt(ctx context.Context, attempt int64) {
	if attempt > 0 {
		r.in.record(ctx, brokerAttempts, float64(attempt), r.o.Consumer)
	}
}

// DeadLetter counts a message of the dead-letter topic that has its row.
func (r *Receive) DeadLetter(outcome string) { r.in.add(deadLetters, 1, r.o.Consumer, outcome) }

// Committed records how long the commit of a message took.
func (r *Receive) Committed(ctx context.Context, took time.Duration) {
	r.in.record(ctx, commitSeconds, took.Seconds(), r.o.Consumer)
}

// Refused counts a request that was answered without a row.
func (r *Receive) Refused(status int) { r.in.add(refused, 1, r.o.Consumer, strconv.Itoa(status)) }

// tenant is the label tenant, where it is configured.
func (e *Export) tenant(id string) []attribute.KeyValue {
	if e.tenants == nil {
		return nil
	}
	return []attribute.KeyValue{attribute.String(labelTenant, e.tenants.value(id))}
}

// describe names a message on the span of its push: what it is called here, and nothing that its sender wrote.
func describe(ctx context.Context, m *inbox.Message, outcome string) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.String("inbox.id", m.ID), attribute.String("inbox.outcome", outcome), attribute.String("inbox.route", m.Route),
		attribute.String("inbox.status", string(m.Status)), attribute.String("inbox.reason", string(m.Reason)))
}
