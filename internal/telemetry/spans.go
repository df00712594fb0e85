package telemetry

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// sampler keeps a share of what begins here, drawn by chance. Neither a sender's flag nor its trace id decides: who could
// choose them could have everything exported at our cost. What is inside one of our spans goes with it.
type sampler struct {
	ratio float64
	mu    sync.Mutex
	rng   *rand.Rand
}

func (s *sampler) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	parent := trace.SpanContextFromContext(p.ParentContext)
	result := sdktrace.SamplingResult{Decision: sdktrace.Drop, Tracestate: parent.TraceState()}
	keep := parent.IsSampled()
	if !parent.IsValid() || parent.IsRemote() {
		s.mu.Lock()
		keep = s.rng.Float64() < s.ratio
		s.mu.Unlock()
	}
	if keep {
		result.Decision = sdktrace.RecordAndSample
	}
	return result
}

func (s *sampler) Description() string { return fmt.Sprintf("OwnRatio{%g}", s.ratio) }

// remote is the position in somebody else's trace; not valid if there is none.
func (t Trace) remote() trace.SpanContext {
	id, err := trace.TraceIDFromHex(t.TraceID)
	if err != nil {
		return trace.SpanContext{}
	}
	span, err := trace.SpanIDFromHex(t.SpanID)
	if err != nil {
		return trace.SpanContext{}
	}
	c := trace.SpanContextConfig{TraceID: id, SpanID: span, Remote: true}
	if t.Sampled {
		c.TraceFlags = trace.FlagsSampled
	}
	return trace.NewSpanContext(c)
}

// traceParent writes a span's position as a W3C traceparent of version 00.
func traceParent(c trace.SpanContext) string {
	return fmt.Sprintf("00-%s-%s-%02x", c.TraceID(), c.SpanID(), byte(c.TraceFlags()&trace.FlagsSampled))
}

// startReceive begins the span of a push: a child of the publisher's, with a link to the request that it came in; of the
// request's, if the publisher has none.
func (e *Export) startReceive(ctx context.Context, publisher string) (context.Context, trace.Span) {
	var request trace.SpanContext
	if t, ok := TraceFrom(ctx); ok {
		request = t.remote()
	}
	parent := request
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(attribute.String("messaging.system", "gcp_pubsub"))}
	if t, ok := ParseTraceParent(publisher); ok {
		parent = t.remote()
		if request.IsValid() {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: request}))
		}
	}
	return e.tracer.Start(trace.ContextWithRemoteSpanContext(ctx, parent), "receive", options...)
}

// startAttempt begins the span of an attempt: a trace of its own, because the message may have waited for days, with a
// link to the publisher's.
func (e *Export) startAttempt(ctx context.Context, publisher string) (context.Context, trace.Span) {
	options := []trace.SpanStartOption{trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindClient)}
	if t, ok := ParseTraceParent(publisher); ok {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: t.remote()}))
	}
	return e.tracer.Start(ctx, "attempt", options...)
}

// failed marks a span. The error's text stays out: a database quotes values in it.
func failed(span trace.Span, what string) { span.SetStatus(codes.Error, what) }
