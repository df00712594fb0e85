package telemetry

import (
	"context"
	"encoding"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"unicode/utf8"
)

// Levels beyond slog's own, for which Cloud Logging has severities.
const (
	LevelNotice   = slog.LevelInfo + 2  // NOTICE: normal but significant, such as the start of a shut-down
	LevelCritical = slog.LevelError + 4 // CRITICAL: the process does not go on
)

// maxText bounds one string of a record. A stack of some hundred frames fits; Cloud Logging takes 256 KiB an entry.
const maxText = 32 << 10

// Special fields of a structured entry.
const (
	keyTrace   = "logging.googleapis.com/trace"
	keySpan    = "logging.googleapis.com/spanId"
	keySampled = "logging.googleapis.com/trace_sampled"
	keyLabels  = "logging.googleapis.com/labels"
	// keyLeftOut counts the entries of the same message that were left out before this one.
	keyLeftOut = "leftOut"
)

// Options of a logger. All may be left out.
type Options struct {
	// ProjectID completes a trace's name. Without it the bare trace id is written, which Cloud Logging keeps but does not
	// link.
	ProjectID string
	// Level is the least severe level that is written; Info if nil.
	Level slog.Leveler
	// Sample drops what is INFO and comes too often; see the package.
	Sample bool
	// Service and Revision become labels of every entry.
	Service, Revision string
}

// NewLogger returns a logger that writes structured entries to w.
func NewLogger(w io.Writer, o Options) *slog.Logger {
	var inner slog.Handler = slog.NewJSONHandler(w, &slog.HandlerOptions{Level: o.Level, ReplaceAttr: replace})
	var labels []any
	for _, l := range []struct{ key, value string }{{"service", o.Service}, {"revision", o.Revision}} {
		if l.value != "" {
			labels = append(labels, slog.String(l.key, l.value))
		}
	}
	if labels != nil {
		inner = inner.WithAttrs([]slog.Attr{slog.Group(keyLabels, labels...)})
	}
	var crowd *crowd
	if o.Sample {
		crowd = newCrowd()
	}
	return slog.New(&handler{inner: inner, project: o.ProjectID, crowd: crowd})
}

// Err is the attribute under which every error is logged.
func Err(err error) slog.Attr {
	if err == nil {
		return slog.Attr{} // slog leaves an empty attribute out
	}
	return slog.String("error", err.Error())
}

// LogPanic logs what a recover returned as one entry. The text of the panic is logged only if the Go runtime made it (an
// index out of range, a nil dereference): any other value may quote the data at hand, so only its type is named. The
// stack, if given, says where; it stays in one field, by the name under which Error Reporting looks for it.
func LogPanic(ctx context.Context, log *slog.Logger, where string, value any, stack []byte) {
	text := fmt.Sprintf("panic with a value of type %T", value)
	if err, ok := value.(runtime.Error); ok {
		text = err.Error()
	}
	attrs := []slog.Attr{slog.String("where", where), slog.String("error", text)}
	if len(stack) > 0 {
		attrs = append(attrs, slog.String("stack_trace", "panic: "+text+"\n\n"+string(stack)))
	}
	log.LogAttrs(ctx, slog.LevelError, "panic", attrs...)
}

// handler adds the trace of the context at the top level, also under a group. So it keeps the groups to itself: inner
// never has one open.
type handler struct {
	inner   slog.Handler
	project string
	scopes  []scope
	crowd   *crowd // nil: everything is written
}

// scope is an open group and the attributes given since it was opened.
type scope struct {
	group string
	attrs []slog.Attr
}

func (h *handler) Enabled(ctx context.Context, l slog.Level) bool { return h.inner.Enabled(ctx, l) }

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if len(attrs) == 0 {
		return h
	}
	if len(h.scopes) == 0 {
		return &handler{inner: h.inner.WithAttrs(attrs), project: h.project, crowd: h.crowd}
	}
	scopes := slices.Clone(h.scopes)
	last := &scopes[len(scopes)-1]
	last.attrs = append(slices.Clone(last.attrs), attrs...)
	return &handler{inner: h.inner, project: h.project, scopes: scopes, crowd: h.crowd}
}

func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return &handler{inner: h.inner, project: h.project, scopes: append(slices.Clone(h.scopes), scope{group: name}), crowd: h.crowd}
}

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	left := 0
	if h.crowd != nil && r.Level >= slog.LevelInfo && r.Level < LevelNotice {
		var write bool
		if write, left = h.crowd.admit(r.Message, r.Time); !write {
			return nil
		}
	}
	tr, traced := TraceFrom(ctx)
	if !traced && len(h.scopes) == 0 && left == 0 {
		return h.inner.Handle(ctx, r)
	}
	out := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	if left > 0 {
		out.AddAttrs(slog.Int(keyLeftOut, left))
	}
	if traced {
		out.AddAttrs(h.traceAttrs(tr)...)
	}
	attrs := make([]slog.Attr, 0, r.NumAttrs())
	r.Attrs(func(a slog.Attr) bool { attrs = append(attrs, a); return true })
	for _, s := range slices.Backward(h.scopes) {
		attrs = []slog.Attr{{Key: s.group, Value: slog.GroupValue(append(slices.Clone(s.attrs), attrs...)...)}}
	}
	out.AddAttrs(attrs...)
	return h.inner.Handle(ctx, out)
}

func (h *handler) traceAttrs(t Trace) []slog.Attr {
	name := t.TraceID
	if h.project != "" {
		name = "projects/" + h.project + "/traces/" + t.TraceID
	}
	attrs := []slog.Attr{slog.String(keyTrace, name)}
	if t.SpanID != "" {
		attrs = append(attrs, slog.String(keySpan, t.SpanID))
	}
	return append(attrs, slog.Bool(keySampled, t.Sampled))
}

// replace gives built-in attributes Cloud Logging's names, and every value a harmless form.
func replace(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 {
		if l, ok := a.Value.Any().(slog.Level); ok && a.Key == slog.LevelKey {
			return slog.String("severity", severity(l))
		}
		if a.Key == slog.MessageKey {
			a.Key = "message"
		}
	}
	switch a.Value.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(cut(a.Value.String()))
	case slog.KindAny:
		a.Value = plain(a.Value.Any())
	}
	return a
}

// plain renders what slog would hand to encoding/json. Values that say how they are to be read (an error, a Stringer, a
// text marshaller, which a redacting type is one of) are asked; simple named types keep their value; the rest is named
// only.
func plain(v any) slog.Value {
	switch x := v.(type) {
	case nil:
		return slog.AnyValue(nil)
	case error:
		return slog.StringValue(cut(x.Error()))
	case []string:
		out := make([]string, len(x))
		for i, s := range x {
			out[i] = cut(s)
		}
		return slog.AnyValue(out)
	case fmt.Stringer:
		return slog.StringValue(cut(x.String()))
	case encoding.TextMarshaler:
		text, err := x.MarshalText()
		if err != nil {
			return slog.StringValue(fmt.Sprintf("[%T]", v))
		}
		return slog.StringValue(cut(string(text)))
	}
	switch rv := reflect.ValueOf(v); {
	case rv.Kind() == reflect.String:
		return slog.StringValue(cut(rv.String()))
	case rv.Kind() == reflect.Bool:
		return slog.BoolValue(rv.Bool())
	case rv.CanInt():
		return slog.Int64Value(rv.Int())
	case rv.CanUint():
		return slog.Uint64Value(rv.Uint())
	}
	return slog.StringValue(fmt.Sprintf("[%T]", v))
}

func cut(s string) string {
	if len(s) <= maxText {
		return s
	}
	n := maxText
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.ToValidUTF8(s[:n], "\uFFFD") + " [cut]"
}

func severity(l slog.Level) string {
	switch {
	case l < slog.LevelInfo:
		return "DEBUG"
	case l < LevelNotice:
		return "INFO"
	case l < slog.LevelWarn:
		return "NOTICE"
	case l < slog.LevelError:
		return "WARNING"
	case l < LevelCritical:
		return "ERROR"
	}
	return "CRITICAL"
}
