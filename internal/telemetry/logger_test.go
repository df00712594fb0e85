package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/slogtest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func entries(t *testing.T, b *bytes.Buffer) []map[string]any {
	t.Helper()
	var out []map[string]any
	for line := range bytes.Lines(b.Bytes()) {
		var m map[string]any
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatalf("not JSON: %v: %q", err, line)
		}
		out = append(out, m)
	}
	return out
}

// The handler keeps slog's contract, under Cloud Logging's names.
func TestTheHandlerPassesSlogtest(t *testing.T) {
	var b bytes.Buffer
	err := slogtest.TestHandler(NewLogger(&b, Options{}).Handler(), func() []map[string]any {
		var out []map[string]any
		for _, m := range entries(t, &b) {
			m[slog.LevelKey], m[slog.MessageKey] = m["severity"], m["message"]
			out = append(out, m)
		}
		return out
	})
	if err != nil {
		t.Error(err)
	}
}

type (
	status string
	secret struct{ value string }
	code   int
)

func (secret) LogValue() slog.Value { return slog.StringValue("[redacted]") }

func TestAnEntryHasCloudLoggingsForm(t *testing.T) {
	trace := ContextWithTrace(t.Context(), Trace{TraceID: "4bf92f3577b34da6a3ce929d0e0e4736", SpanID: "00f067aa0ba902b7", Sampled: true})
	tests := []struct {
		name string
		opts Options
		log  func(*slog.Logger)
		want []map[string]any
	}{
		{
			name: "percent signs, line breaks and markup stay as they are, on one line",
			log:  func(l *slog.Logger) { l.Info("100%!d(MISSING)\n<a> %s") },
			want: []map[string]any{{"severity": "INFO", "message": "100%!d(MISSING)\n<a> %s"}},
		},
		{
			name: "every level has its severity",
			opts: Options{Level: slog.LevelDebug},
			log: func(l *slog.Logger) {
				for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, LevelNotice, slog.LevelWarn, slog.LevelError, LevelCritical} {
					l.Log(context.Background(), level, "m")
				}
			},
			want: []map[string]any{
				{"severity": "DEBUG", "message": "m"}, {"severity": "INFO", "message": "m"}, {"severity": "NOTICE", "message": "m"},
				{"severity": "WARNING", "message": "m"}, {"severity": "ERROR", "message": "m"}, {"severity": "CRITICAL", "message": "m"},
			},
		},
		{
			name: "what is below the level is left out",
			log:  func(l *slog.Logger) { l.Debug("m") },
		},
		{
			name: "the trace is at the top, also of a grouped logger",
			opts: Options{ProjectID: "demo-proj", Service: "receive", Revision: "receive-00007"},
			log: func(l *slog.Logger) {
				l.With("a", 1).WithGroup("g").With("b", 2).WarnContext(trace, "m", "c", 3)
			},
			want: []map[string]any{{
				"severity": "WARNING", "message": "m", "a": 1.0, "g": map[string]any{"b": 2.0, "c": 3.0},
				"logging.googleapis.com/trace":         "projects/demo-proj/traces/4bf92f3577b34da6a3ce929d0e0e4736",
				"logging.googleapis.com/spanId":        "00f067aa0ba902b7",
				"logging.googleapis.com/trace_sampled": true,
				"logging.googleapis.com/labels":        map[string]any{"service": "receive", "revision": "receive-00007"},
			}},
		},
		{
			name: "without a project the bare trace id is kept",
			log: func(l *slog.Logger) {
				l.InfoContext(ContextWithTrace(t.Context(), Trace{TraceID: "4bf92f3577b34da6a3ce929d0e0e4736"}), "m")
			},
			want: []map[string]any{{
				"severity": "INFO", "message": "m",
				"logging.googleapis.com/trace": "4bf92f3577b34da6a3ce929d0e0e4736", "logging.googleapis.com/trace_sampled": false,
			}},
		},
		{
			name: "errors are text, however they are given",
			log: func(l *slog.Logger) {
				err := errors.Join(errors.New("100%"), fmt.Errorf("b"))
				l.Error("m", Err(err), "cause", err)
				l.Error("m", Err(nil))
			},
			want: []map[string]any{
				{"severity": "ERROR", "message": "m", "error": "100%\nb", "cause": "100%\nb"},
				{"severity": "ERROR", "message": "m"},
			},
		},
		{
			name: "payloads and attribute maps that get here are named only",
			log: func(l *slog.Logger) {
				l.Info("m", "body", []byte("iban"), "raw", json.RawMessage(`{"a":1}`), "attributes", map[string]string{"a": "iban"},
					"struct", struct{ A string }{"iban"}, "pointer", &struct{ A string }{"iban"})
			},
			want: []map[string]any{{
				"severity": "INFO", "message": "m", "body": "[[]uint8]", "raw": "[json.RawMessage]", "attributes": "[map[string]string]",
				"struct": "[struct { A string }]", "pointer": "[*struct { A string }]",
			}},
		},
		{
			name: "simple named types keep their value, redacting ones their mask",
			log: func(l *slog.Logger) {
				l.Info("m", "status", status("PARKED"), "code", code(7), "took", time.Second, "secret", secret{"x"},
					"at", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), "list", []string{"a"}, "nil", nil)
			},
			want: []map[string]any{{
				"severity": "INFO", "message": "m", "status": "PARKED", "code": 7.0, "took": 1e9, "secret": "[redacted]",
				"at": "2026-01-02T03:04:05Z", "list": []any{"a"}, "nil": nil,
			}},
		},
		{
			name: "an overlong string is cut at a character",
			log:  func(l *slog.Logger) { l.Info("m", "s", strings.Repeat("a", maxText-1)+"ää") },
			want: []map[string]any{{"severity": "INFO", "message": "m", "s": strings.Repeat("a", maxText-1) + " [cut]"}},
		},
		{
			name: "invalid UTF-8 is made valid",
			log:  func(l *slog.Logger) { l.Info("a\xffb") },
			want: []map[string]any{{"severity": "INFO", "message": "a\uFFFDb"}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var b bytes.Buffer
			tt.log(NewLogger(&b, tt.opts))
			got := entries(t, &b)
			for _, m := range got {
				if _, err := time.Parse(time.RFC3339Nano, m["time"].(string)); err != nil {
					t.Error(err)
				}
				delete(m, "time")
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAPanicIsOneEntryWithoutTheValueOfStrangers(t *testing.T) {
	index := func() (v any) {
		defer func() { v = recover() }()
		return []int{}[len(t.Name())]
	}()
	tests := []struct {
		name  string
		value any
		stack string
		want  map[string]any
	}{
		{
			name: "a run-time error is told", value: index, stack: "goroutine 1\nmain.go:1",
			want: map[string]any{
				"severity": "ERROR", "message": "panic", "where": "test",
				"error":       fmt.Sprintf("runtime error: index out of range [%d] with length 0", len(t.Name())),
				"stack_trace": fmt.Sprintf("panic: runtime error: index out of range [%d] with length 0\n\ngoroutine 1\nmain.go:1", len(t.Name())),
			},
		},
		{
			name: "any other value may quote a payload", value: errors.New("bad IBAN DE00"),
			want: map[string]any{"severity": "ERROR", "message": "panic", "where": "test", "error": "panic with a value of type *errors.errorString"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var b bytes.Buffer
			LogPanic(t.Context(), NewLogger(&b, Options{}), "test", tt.value, []byte(tt.stack))
			got := entries(t, &b)
			delete(got[0], "time")
			if diff := cmp.Diff([]map[string]any{tt.want}, got); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDerivedLoggersDoNotShareAttributes(t *testing.T) {
	var b bytes.Buffer
	base := NewLogger(&b, Options{}).WithGroup("g").With("a", 1)
	one, two := base.With("b", 2), base.With("c", 3)
	one.Info("m")
	two.Info("m")
	got := entries(t, &b)
	want := []any{map[string]any{"a": 1.0, "b": 2.0}, map[string]any{"a": 1.0, "c": 3.0}}
	if diff := cmp.Diff(want, []any{got[0]["g"], got[1]["g"]}); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
}
