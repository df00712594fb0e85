package httpengine

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
)

// sent is the request a server gets for d.
func sent(t *testing.T, d engine.Delivery, changes ...func(*Config)) (*http.Request, string) {
	t.Helper()
	type request struct {
		*http.Request
		body string
	}
	got := make(chan request, 1)
	url := answering(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- request{r, string(body)}
	})
	if r := newEngine(t, url+"/events?tenant=a", changes...).Correlate(t.Context(), d); r.Verdict != engine.Correlated {
		t.Fatalf("verdict %s %s (%s)", r.Verdict, r.Code, r.Detail)
	}
	r := <-got
	return r.Request, r.body
}

func TestADeliveryIsACloudEventInBinaryMode(t *testing.T) {
	r, body := sent(t, aDelivery(), func(c *Config) {
		c.Source = "//pubsub-inbox/work-order-service"
		c.Headers = Headers{"x-api-key": "k"}
	})
	if r.Method != "POST" || r.RequestURI != "/events?tenant=a" {
		t.Errorf("%s %s", r.Method, r.RequestURI)
	}
	r.Header.Del("Content-Length")
	want := http.Header{
		"Accept":           {"application/json, application/problem+json"},
		"Accept-Encoding":  {"identity"},
		"User-Agent":       {"pubsub-inbox"},
		"X-Api-Key":        {"k"},
		"Content-Type":     {"application/json"},
		"Idempotency-Key":  {`"00112233445566778899aabbccddeeff"`},
		"Ce-Specversion":   {"1.0"},
		"Ce-Id":            {"00112233445566778899aabbccddeeff"},
		"Ce-Source":        {"//pubsub-inbox/work-order-service"},
		"Ce-Type":          {"WorkOrderCompleted"},
		"Ce-Time":          {"2026-03-02T08:15:30.123Z"},
		"Ce-Subject":       {"4711"},
		"Ce-Partitionkey":  {"4711"},
		"Ce-Correlationid": {"4711"},
		"Ce-Inboxattempt":  {"3"},
		"Traceparent":      {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		"Ce-Traceparent":   {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
	}
	if diff := cmp.Diff(want, r.Header); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
	if want := `{"completedItems":4812}`; body != want {
		t.Errorf("body %s, want %s", body, want)
	}
}

func TestWhatIsNotKnownIsNotSent(t *testing.T) {
	r, _ := sent(t, engine.Delivery{InboxID: "a", Attempt: 1, Message: "M"})
	for _, name := range []string{"Ce-Time", "Ce-Subject", "Ce-Partitionkey", "Ce-Correlationid", "Traceparent", "Ce-Traceparent", "Authorization"} {
		if v, ok := r.Header[name]; ok {
			t.Errorf("%s is %q", name, v)
		}
	}
}

func TestTheBodyIsExact(t *testing.T) {
	tests := []struct {
		name        string
		d           engine.Delivery
		body, media string
	}{
		{
			name: "variables, sorted, each value's own text",
			d: engine.Delivery{
				Payload: []byte("not this"), ContentType: "text/plain",
				Variables: map[string]json.RawMessage{
					"z": json.RawMessage("9007199254740993"), "a": json.RawMessage("0.1000000000000000055"),
					"n": json.RawMessage(`{ "b":1, "a":[1.0,-0] }`), "nil": nil, `<"ä">`: json.RawMessage(`"<é>"`),
				},
			},
			body:  `{"<\"ä\">":"<é>","a":0.1000000000000000055,"n":{ "b":1, "a":[1.0,-0] },"nil":null,"z":9007199254740993}`,
			media: "application/json",
		},
		{name: "variables, none of them", d: engine.Delivery{Variables: map[string]json.RawMessage{}}, body: "{}", media: "application/json"},
		{name: "a payload with its type", d: engine.Delivery{Payload: []byte("<a/>"), ContentType: "application/xml; charset=utf-8"}, body: "<a/>", media: "application/xml; charset=utf-8"},
		{name: "a payload of JSON without a type", d: engine.Delivery{Payload: []byte(" {\"b\":1.0, \"a\":1} ")}, body: " {\"b\":1.0, \"a\":1} ", media: "application/json"},
		{name: "a payload of bytes without a type", d: engine.Delivery{Payload: []byte{0, 0xff}}, body: "\x00\xff", media: "application/octet-stream"},
		{name: "no payload", d: engine.Delivery{}, body: "", media: "application/octet-stream"},
		{name: "a type that would add a header", d: engine.Delivery{Payload: []byte("x"), ContentType: "text/plain\r\nX-Evil: 1"}, body: "x", media: "application/octet-stream"},
		{name: "a type that would make it a structured event", d: engine.Delivery{Payload: []byte("{}"), ContentType: "application/cloudevents+json"}, body: "{}", media: "application/json"},
		{name: "a type that is none", d: engine.Delivery{Payload: []byte("x"), ContentType: "json"}, body: "x", media: "application/octet-stream"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.d.InboxID, tt.d.Message, tt.d.Attempt = "a", "M", 1
			r, body := sent(t, tt.d)
			if body != tt.body || r.Header.Get("Content-Type") != tt.media {
				t.Errorf("%s %q, want %s %q", r.Header.Get("Content-Type"), body, tt.media, tt.body)
			}
			if r.ContentLength != int64(len(tt.body)) {
				t.Errorf("content length %d, want %d", r.ContentLength, len(tt.body))
			}
		})
	}
}

func TestNoMessageCanAddAHeader(t *testing.T) {
	evil := "a\r\nX-Evil: 1\r\n\r\nGET / HTTP/1.1\r\n\x00\x7f\xff \"%25\" ü😀"
	encoded := "a%0D%0AX-Evil:%201%0D%0A%0D%0AGET%20/%20HTTP/1.1%0D%0A%00%7F%EF%BF%BD%20%22%2525%22%20%C3%BC%F0%9F%98%80"
	d := aDelivery()
	d.InboxID, d.Key, d.Message, d.TraceParent = evil, evil, evil, evil
	r, _ := sent(t, d)
	for _, name := range []string{"Ce-Id", "Ce-Subject", "Ce-Partitionkey", "Ce-Type"} {
		if got := r.Header.Get(name); got != encoded {
			t.Errorf("%s: %q, want %q", name, got, encoded)
		}
	}
	if got := r.Header.Get("Idempotency-Key"); got != `"`+encoded+`"` {
		t.Errorf("Idempotency-Key: %q", got)
	}
	if r.Header.Get("X-Evil") != "" || r.Header.Get("Traceparent") != "" {
		t.Errorf("header %v", r.Header)
	}
}

func TestOnlyAWellFormedTraceContextTravels(t *testing.T) {
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	tests := map[string]bool{
		good:                  true,
		"":                    false,
		strings.ToUpper(good): false,
		"ff" + good[2:]:       false,
		good + "-extra":       false,
		good[:54] + "g":       false,
		"00-00000000000000000000000000000000-b7ad6b7169203331-01": false,
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01": false,
	}
	for s, want := range tests {
		if got := validTraceParent(s); got != want {
			t.Errorf("validTraceParent(%q) = %v, want %v", s, got, want)
		}
	}
}

func TestWhatCannotBeSentIsRejectedWithoutItsValue(t *testing.T) {
	for name, change := range map[string]func(*engine.Delivery){
		"no message":            func(d *engine.Delivery) { d.Message = "" },
		"no inbox id":           func(d *engine.Delivery) { d.InboxID = "" },
		"a variable not JSON":   func(d *engine.Delivery) { d.Variables["x"] = json.RawMessage("canary") },
		"a variable with more":  func(d *engine.Delivery) { d.Variables["x"] = json.RawMessage(`1},{"canary":2`) },
		"a variable with empty": func(d *engine.Delivery) { d.Variables["x"] = json.RawMessage(``) },
	} {
		w := newWire(t, say(okAnswer))
		d := aDelivery()
		change(&d)
		r := newEngine(t, w.url).Correlate(t.Context(), d)
		if r.Verdict != engine.Rejected || strings.Contains(r.Detail, "canary") {
			t.Errorf("%s: %s %q", name, r.Verdict, r.Detail)
		}
		if _, requests := w.seen(); requests != 0 {
			t.Errorf("%s: %d requests", name, requests)
		}
	}
}

// https://github.com/cloudevents/spec/blob/main/cloudevents/extensions/dataref.md
func TestTheObjectThatAMessageRefersToIsItsDataref(t *testing.T) {
	d := aDelivery()
	d.DataRef = "gs://demo-reports/2026/report 1.json#17"
	r, _ := sent(t, d)
	if got := r.Header.Get("Ce-Dataref"); got != "gs://demo-reports/2026/report%201.json#17" {
		t.Errorf("dataref %q", got)
	}
}

func TestAPayloadsCodingGoesWithItsType(t *testing.T) {
	const packed = "\x1f\x8b\x08"
	for name, tt := range map[string]struct {
		contentType, coding  string
		variables            map[string]json.RawMessage
		wantType, wantCoding string
	}{
		"gzip":                     {"application/json", "gzip", nil, "application/json", "gzip"},
		"two, one over the other":  {"text/csv", "gzip, br", nil, "text/csv", "gzip, br"},
		"without a type":           {"", "gzip", nil, "application/octet-stream", "gzip"},
		"none":                     {"text/csv", "", nil, "text/csv", ""},
		"what no header can say":   {"application/json", "gzip\r\nx-evil: 1", nil, "application/octet-stream", ""},
		"a word that is no coding": {"application/json", "packed twice", nil, "application/octet-stream", ""},
		"variables are not packed": {"application/json", "gzip", map[string]json.RawMessage{"a": []byte("1")}, "application/json", ""},
	} {
		d := aDelivery()
		d.Variables, d.Payload, d.ContentType, d.ContentEncoding = tt.variables, []byte(packed), tt.contentType, tt.coding
		r, body := sent(t, d)
		if got := r.Header.Get("Content-Type"); got != tt.wantType || r.Header.Get("Content-Encoding") != tt.wantCoding || r.Header.Get("X-Evil") != "" {
			t.Errorf("%s: sent as %q and %q", name, got, r.Header.Values("Content-Encoding"))
		}
		if tt.variables == nil && body != packed {
			t.Errorf("%s: sent %q", name, body)
		}
	}
}
