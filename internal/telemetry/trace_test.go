package telemetry

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	id   = "4bf92f3577b34da6a3ce929d0e0e4736"
	span = "00f067aa0ba902b7"
)

func TestWithTraceReadsTheHeadersOfTheRequest(t *testing.T) {
	tests := []struct {
		name                string
		traceparent, google string
		want                *Trace // nil: none
	}{
		{name: "no header"},
		{name: "traceparent, sampled", traceparent: "00-" + id + "-" + span + "-01", want: &Trace{id, span, true}},
		{name: "traceparent, not sampled", traceparent: "00-" + id + "-" + span + "-02", want: &Trace{id, span, false}},
		{name: "a later version with more fields", traceparent: "cc-" + id + "-" + span + "-01-what", want: &Trace{id, span, true}},
		{name: "version 00 has no more fields", traceparent: "00-" + id + "-" + span + "-01-what"},
		{name: "version ff is invalid", traceparent: "ff-" + id + "-" + span + "-01"},
		{name: "garbage", traceparent: "garbage"},
		{name: "all-zero ids", traceparent: "00-00000000000000000000000000000000-0000000000000000-00"},
		{name: "upper case is invalid", traceparent: "00-" + strings.ToUpper(id) + "-" + span + "-01"},
		{name: "other separators", traceparent: "00_" + id + "_" + span + "_01"},
		{name: "flags that are no number", traceparent: "00-" + id + "-" + span + "-0x"},
		{name: "Google's header, its span made hexadecimal", google: id + "/255;o=1", want: &Trace{id, "00000000000000ff", true}},
		{name: "Google's header without options", google: id + "/1", want: &Trace{id, "0000000000000001", false}},
		{name: "Google's header without a span", google: id, want: &Trace{TraceID: id}},
		{name: "Google's header with span zero", google: id + "/0;o=1", want: &Trace{TraceID: id, Sampled: true}},
		{name: "Google's header with a span that is no number", google: id + "/x;o=0", want: &Trace{TraceID: id}},
		{name: "Google's header, too short", google: "105445aa7843bc8bf206b120001000/1;o=1"},
		{name: "traceparent goes first", traceparent: "00-" + id + "-" + span + "-00", google: strings.Repeat("a", 32) + "/1;o=1", want: &Trace{id, span, false}},
		{name: "an unreadable traceparent leaves Google's", traceparent: "x", google: id + "/1;o=1", want: &Trace{id, "0000000000000001", true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest("POST", "/", nil)
			if tt.traceparent != "" {
				r.Header.Set("traceparent", tt.traceparent)
			}
			if tt.google != "" {
				r.Header.Set("X-Cloud-Trace-Context", tt.google)
			}
			var got *Trace
			if tr, ok := TraceFrom(WithTrace(t.Context(), r)); ok {
				got = &tr
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("trace (-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzParseTraceParent(f *testing.F) {
	f.Add("00-" + id + "-" + span + "-01")
	f.Add("garbage")
	f.Fuzz(func(t *testing.T, s string) {
		tr, ok := ParseTraceParent(s)
		if ok && (len(tr.TraceID) != 32 || len(tr.SpanID) != 16 || zero(tr.TraceID) || zero(tr.SpanID)) {
			t.Errorf("accepted %q as %+v", s, tr)
		}
		if tr, ok := parseCloudTrace(s); ok && (len(tr.TraceID) != 32 || (tr.SpanID != "" && len(tr.SpanID) != 16)) {
			t.Errorf("accepted %q as %+v", s, tr)
		}
	})
}
