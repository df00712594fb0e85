package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// Relay counts what a relay does. Its methods return at once and may be called from many goroutines.
type Relay struct{ *Export }

// NewRelay returns the observer of a relay function. engines are those of the configured routes, by route: their counters
// begin at zero, so that a first increase is one.
func NewRelay(e *Export, engines map[string]string) *Relay {
	consumer := e.o.Consumer
	e.in.add(lostWorkers, 0, consumer)
	e.in.add(lateResults, 0, consumer)
	for _, result := range []string{resultOK, resultFailed} {
		e.in.add(relayRuns, 0, consumer, result)
	}
	for route, engine := range engines {
		e.in.add(poisoned, 0, consumer, route)
		e.in.add(handedOver, 0, consumer, route, engine)
		e.in.add(discarded, 0, consumer, route, engine)
	}
	return &Relay{e}
}

const (
	resultOK     = "ok"
	resultFailed = "failed"
)

// Attempt starts the span of an attempt. It returns the attempt's context, the trace context that the engine is to get
// (the publisher's, where nothing is traced here), and what ends the span with the attempt's verdict. A span that is not ended
// is not exported.
func (r *Relay) Attempt(ctx context.Context, m *inbox.Message, engine, publisher string) (context.Context, string, func(verdict string)) {
	if r.tracer == nil {
		return ctx, publisher, func(string) {}
	}
	ctx, span := r.startAttempt(ctx, publisher)
	span.SetAttributes(attribute.String("inbox.id", m.ID), attribute.String("inbox.route", m.Route), attribute.String("inbox.engine", engine),
		attribute.Int64("inbox.attempt", m.Attempts))
	engineSees := publisher // nobody could follow a span that is not exported
	if span.SpanContext().IsSampled() || publisher == "" {
		engineSees = traceParent(span.SpanContext())
	}
	return ctx, engineSees, func(verdict string) {
		span.SetAttributes(attribute.String("inbox.verdict", verdict))
		span.End()
	}
}

// Called records a call that delivered, or tried to.
func (r *Relay) Called(ctx context.Context, engine, verdict string, took time.Duration) {
	r.in.record(ctx, engineCallSeconds, took.Seconds(), r.o.Consumer, engine, verdict)
}

// Claimed counts a claim that was committed, and what it parked.
func (r *Relay) Claimed(ctx context.Context, plan inbox.ClaimPlan, took time.Duration) {
	r.in.record(ctx, claimSeconds, took.Seconds(), r.o.Consumer)
	r.in.add(lostWorkers, int64(len(plan.Lost)), r.o.Consumer)
	for _, m := range plan.Messages {
		if m.Status == inbox.Parked {
			r.parked(m)
		}
	}
}

func (r *Relay) parked(m *inbox.Message) {
	r.in.add(parked, 1, r.o.Consumer, m.Route, string(m.Reason))
	if m.Reason == inbox.Poisoned {
		r.in.add(poisoned, 1, r.o.Consumer, m.Route)
	}
}

// SettledIn records how long settling a batch took.
func (r *Relay) SettledIn(ctx context.Context, took time.Duration) {
	r.in.record(ctx, settleSeconds, took.Seconds(), r.o.Consumer)
}

// Settled counts results that were committed.
func (r *Relay) Settled(ctx context.Context, plan inbox.SettlePlan) {
	if r.in == nil {
		return
	}
	consumer := r.o.Consumer
	r.in.add(lateResults, int64(len(plan.Late)), consumer)
	for _, res := range plan.Settled {
		m := res.Message
		switch res.Event.Kind {
		case inbox.EngineFailed, inbox.EngineThrottled, inbox.EngineRefusedUs:
			r.in.add(technicalFailures, 1, consumer, res.Engine, res.Verdict)
		}
		switch {
		case m.Status == inbox.Processed:
			r.in.addWith(processed, 1, r.tenant(res.TenantID), consumer, m.Route, r.types.value(res.Type), res.Engine)
			if m.HandedOver {
				r.in.add(handedOver, 1, consumer, m.Route, res.Engine)
			}
			if !m.PublishedAt.IsZero() {
				r.in.record(ctx, publishToCorrelation, m.ProcessedAt.Sub(m.PublishedAt).Seconds(), consumer, m.Route)
			}
		case m.Status == inbox.Parked:
			r.parked(m)
		case m.Status == inbox.Discarded:
			r.in.add(discarded, 1, consumer, m.Route, res.Engine)
		case res.Attempt != nil:
			r.in.add(retried, 1, consumer, m.Route, res.Engine, res.Verdict)
		}
		if m.Status.Finished() {
			r.in.record(ctx, attempts, float64(m.Attempts), consumer, m.Route)
		}
	}
}

// Ran counts a run that has ended.
func (r *Relay) Ran(ctx context.Context, ok bool, took time.Duration) {
	result := resultOK
	if !ok {
		result = resultFailed
	}
	r.in.add(relayRuns, 1, r.o.Consumer, result)
	r.in.record(ctx, relayRunSeconds, took.Seconds(), r.o.Consumer)
}
