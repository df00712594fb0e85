package telemetry

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// Trace is the position in a distributed trace that a request came with.
type Trace struct {
	TraceID string // 32 lower-case hexadecimal digits, not all zero
	SpanID  string // 16 of them, or empty if unknown
	Sampled bool
}

type traceKey struct{}

// ContextWithTrace returns a context whose log entries belong to t.
func ContextWithTrace(ctx context.Context, t Trace) context.Context {
	return context.WithValue(ctx, traceKey{}, t)
}

// TraceFrom returns the context's trace, and false if it has none.
func TraceFrom(ctx context.Context) (Trace, bool) {
	t, ok := ctx.Value(traceKey{}).(Trace)
	return t, ok
}

// WithTrace returns ctx with the trace that the request's headers name: traceparent, or else X-Cloud-Trace-Context. It is
// the trace of this HTTP request, as the platform's request log has it; the publisher's travels in a message attribute.
// Headers that cannot be read are ignored.
func WithTrace(ctx context.Context, r *http.Request) context.Context {
	if t, ok := ParseTraceParent(r.Header.Get("traceparent")); ok {
		return ContextWithTrace(ctx, t)
	}
	if t, ok := parseCloudTrace(r.Header.Get("X-Cloud-Trace-Context")); ok {
		return ContextWithTrace(ctx, t)
	}
	return ctx
}

// ParseTraceParent reads a W3C traceparent. A version after 00 is read by its first four fields, as the specification
// asks.
func ParseTraceParent(s string) (Trace, bool) {
	const size = 2 + 1 + 32 + 1 + 16 + 1 + 2
	if len(s) < size || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return Trace{}, false
	}
	version, id, span, flags := s[:2], s[3:35], s[36:52], s[53:55]
	if !isHex(version) || version == "ff" || !isHex(id) || !isHex(span) || !isHex(flags) || zero(id) || zero(span) {
		return Trace{}, false
	}
	if len(s) > size && (version == "00" || s[size] != '-') {
		return Trace{}, false
	}
	bits, _ := strconv.ParseUint(flags, 16, 8)
	return Trace{TraceID: id, SpanID: span, Sampled: bits&1 == 1}, true
}

// parseCloudTrace reads TRACE_ID/SPAN_ID;o=OPTIONS, where the span id is decimal and all but the trace id may be missing.
func parseCloudTrace(s string) (Trace, bool) {
	s, options, _ := strings.Cut(s, ";")
	id, span, _ := strings.Cut(s, "/")
	if len(id) != 32 || !isHex(id) || zero(id) {
		return Trace{}, false
	}
	t := Trace{TraceID: id, Sampled: options == "o=1"}
	if n, err := strconv.ParseUint(span, 10, 64); err == nil && n != 0 {
		t.SpanID = fmt.Sprintf("%016x", n)
	}
	return t, true
}

func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func zero(s string) bool { return strings.Trim(s, "0") == "" }
