package e2e_test

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/telemetry/otlptest"
)

const (
	publisherTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	publisherSpan  = "00f067aa0ba902b7"
)

func spansNamed(spans []otlptest.Span, name string) []otlptest.Span {
	var found []otlptest.Span
	for _, s := range spans {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

func attributeOf(s otlptest.Span, key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

// C066: the publisher's context travels as an attribute; what cannot be read is no context, and no error.
func TestC066TheTraceOfThePublisherReachesTheEngine(t *testing.T) {
	w := newObservedWorld(t, map[string]string{"OTEL_TRACES_SAMPLER_ARG": "1"})
	w.env["INBOX_CONFIG"] = fmt.Sprintf("consumer: orders\nengines:\n  engine: {kind: http, url: %q, timeout: 20s, idempotent: true}\nroutes:\n"+
		"  - {name: all, key: payload.orderId, engine: engine, message: Closed}\n", w.engine.url)
	w.receive, w.relay = w.instance(receiveOptions), w.instance(relayOptions)
	for _, body := range caseInput(t, "C066") {
		if status := w.send(w.receive, "/", string(body)); status != http.StatusNoContent {
			t.Fatalf("status %d, want 204", status)
		}
	}
	stored := w.texts("SELECT COALESCE(TraceParent, '') FROM Messages ORDER BY MessageId")
	if diff := cmp.Diff([]string{"00-" + publisherTrace + "-" + publisherSpan + "-01", "", ""}, stored); diff != "" {
		t.Errorf("trace contexts on the rows (-want +got):\n%s", diff)
	}
	w.run()
	var received, attempts []otlptest.Span
	eventually(t, "three receives and three attempts are exported", func() bool {
		w.send(w.receive, "/", "{}")
		w.run()
		received, attempts = spansNamed(w.collector.Spans(), "receive"), spansNamed(w.collector.Spans(), "attempt")
		return len(received) == 3 && len(attempts) == 3
	})
	children := 0
	for _, s := range received {
		if hex.EncodeToString(s.TraceId) == publisherTrace {
			children++
			if got := hex.EncodeToString(s.ParentSpanId); got != publisherSpan {
				t.Errorf("the receive's parent is %s, want the publisher's span %s", got, publisherSpan)
			}
			if attributeOf(s, "inbox.id") == "" || attributeOf(s, "inbox.status") != "RECEIVED" || attributeOf(s, "inbox.route") != "all" {
				t.Errorf("the receive's attributes are %v", s.Attributes)
			}
		} else if len(s.ParentSpanId) != 0 || len(s.Links) != 0 {
			t.Errorf("a receive without a publisher's context has a parent or a link: %v", s)
		}
	}
	if children != 1 {
		t.Errorf("%d receives belong to the publisher's trace, want 1", children)
	}
	handedOn := map[string]bool{}
	for _, h := range w.engine.sent("") {
		handedOn[h.Get("Traceparent")] = true
	}
	linked := 0
	for _, s := range attempts {
		if hex.EncodeToString(s.TraceId) == publisherTrace || len(s.ParentSpanId) != 0 {
			t.Errorf("an attempt, hours later, is part of the publisher's trace; want a link")
		}
		for _, l := range s.Links {
			if hex.EncodeToString(l.TraceId) == publisherTrace && hex.EncodeToString(l.SpanId) == publisherSpan {
				linked++
			}
		}
		if want := fmt.Sprintf("00-%x-%x-01", s.TraceId, s.SpanId); !handedOn[want] {
			t.Errorf("no call of the engine carries the attempt's context %s; they carry %v", want, handedOn)
		}
	}
	if linked != 1 {
		t.Errorf("%d attempts link to the publisher's trace, want 1", linked)
	}
}

// Also of an attempt that is not sampled: nobody could follow a span of ours that is not exported.
func TestWithoutTracesTheEngineGetsThePublishersContext(t *testing.T) {
	for name, value := range map[string]string{"OTEL_TRACES_EXPORTER": "none", "OTEL_TRACES_SAMPLER_ARG": "0.000001"} {
		w := newObservedWorld(t, map[string]string{name: value})
		context := "00-" + publisherTrace + "-" + publisherSpan + "-01"
		w.store(observed{id: "1", typ: "Order", key: "A", more: map[string]string{"googclient_traceparent": context}})
		w.run()
		calls := w.engine.sent("1")
		if len(calls) != 1 || calls[0].Get("Traceparent") != context {
			t.Errorf("%s=%s: the engine was sent %v, want the publisher's context %s", name, value, calls, context)
		}
	}
}

// A sender that sets the flag on everything, on one trace of its choice, costs no more than the ratio that we have set.
func TestC066AnUnknownSendersFlagForcesNoCost(t *testing.T) {
	w := newObservedWorld(t, map[string]string{"OTEL_TRACES_SAMPLER_ARG": "0.1", "OTEL_METRICS_EXPORTER": "none"})
	const sent = 200
	for i := range sent {
		w.store(observed{id: fmt.Sprint(i), typ: "Order", key: fmt.Sprint("K", i),
			more: map[string]string{"googclient_traceparent": "00-00000000000000000000000000000001-" + publisherSpan + "-01"}})
	}
	w.send(w.receive, "/", "{}")
	got := len(spansNamed(w.collector.Spans(), "receive"))
	t.Logf("%d of %d are exported", got, sent)
	if got > sent/2 {
		t.Errorf("%d of %d receives are exported at a ratio of 0.1: the sender's flag or trace id decides", got, sent)
	}
	if strings.Contains(w.logs.String(), "ERROR") {
		t.Errorf("the log has errors:\n%s", w.logs.String())
	}
}
