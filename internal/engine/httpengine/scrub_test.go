package httpengine

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/httpcall"
)

func TestNothingElseOfAnAnswerIsKept(t *testing.T) {
	const canary = "CANARY"
	for _, media := range []string{"text/plain", "text/html", "application/json", problemJSON} {
		for _, status := range []int{200, 302, 400, 404, 409, 500, 503} {
			url := answering(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Canary", canary)
				w.Header().Set("Location", "/"+canary)
				respond(status, media, `{"type":"`+canary+`","message":"`+canary+`","instance":"`+canary+`"}`)(w, r)
			})
			r := newEngine(t, url).Correlate(t.Context(), aDelivery())
			if strings.Contains(r.Code+r.Detail+r.Reference, canary) {
				t.Errorf("%d %s: %+v", status, media, r)
			}
		}
	}
}

func TestAReferenceIsAnIdentifierOrNothing(t *testing.T) {
	tests := []struct {
		name, header, location, media, body string
		status                              int
		want                                string
	}{
		{name: "the header", header: "instance-7", body: `{"reference":"b"}`, want: "instance-7"},
		{name: "the member", body: `{"reference":"instance-7"}`, want: "instance-7"},
		{name: "the instance", body: `{"instanceId":12345678901234567890}`, want: "12345678901234567890"},
		{name: "a member of another kind", body: `{"reference":{"a":1},"instanceId":"i"}`, want: "i"},
		{name: "the body of another media type", media: "text/plain", body: `{"reference":"a"}`, want: ""},
		{name: "a problem's member", status: 409, media: problemJSON, body: `{"reference":"a,b"}`, want: "a,b"},
		{name: "what was created, without its query", status: 201, location: "https://u:p@engine.example/instances/7?token=secret#x", want: "https://engine.example/instances/7"},
		{name: "where a redirect leads", status: 302, location: "/login", want: ""},
		{name: "a text", header: "not an id", want: ""},
		{name: "a long one", header: strings.Repeat("x", maxReferenceBytes+1), want: ""},
		{name: "a value that was sent, in the header", header: "SENT-VALUE", want: "SENT-VALUE"},
		{name: "a value that was sent, as a location", status: 201, location: "/SENT-VALUE", want: ""},
		{name: "a value beyond ASCII", body: `{"reference":"Müller-4812"}`, want: ""},
		{name: "an echo", body: `{"reference":"SENT-VALUE"}`, want: ""},
		{name: "a list", body: `["a"]`, want: ""},
		{name: "null", body: `{"reference":null}`, want: ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.status == 0 {
				tt.status = 200
			}
			if tt.media == "" {
				tt.media = "application/json"
			}
			url := answering(t, func(w http.ResponseWriter, r *http.Request) {
				if tt.header != "" {
					w.Header().Set("Inbox-Reference", tt.header)
				}
				if tt.location != "" {
					w.Header().Set("Location", tt.location)
				}
				respond(tt.status, tt.media, tt.body)(w, r)
			})
			d := aDelivery()
			d.Variables["sent"] = json.RawMessage(`"SENT-VALUE"`)
			if r := newEngine(t, url).Correlate(t.Context(), d); r.Reference != tt.want {
				t.Errorf("got %q, want %q", r.Reference, tt.want)
			}
		})
	}
}

func FuzzAnAnswerNeverPanicsAndIsAlwaysShort(f *testing.F) {
	f.Add(409, problemJSON, `{"type":"x","title":"t","detail":"d","retryAfter":1e5}`, "5", `{"a":["b",{"c":1}]}`)
	f.Add(200, "application/json", `{"reference":1}`, "Mon", "\x00")
	e, err := New(Config{URL: "http://engine.example"}, Deps{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, status int, media, body, wait, payload string) {
		if status < 100 || status > 999 {
			return
		}
		a := answer{httpcall.Answer{Status: status, Media: media, Body: []byte(body), Header: http.Header{"Retry-After": {wait}, "Inbox-Reference": {wait}, "Location": {wait}}}}
		r := e.classify(a, engine.Delivery{Payload: []byte(payload)})
		if r.Verdict == "" || len(r.Detail) > httpcall.MaxDetailBytes || len(r.Reference) > maxReferenceBytes ||
			!utf8.ValidString(r.Detail) || strings.ContainsAny(r.Detail, "\r\n") || r.RetryAfter < 0 || r.RetryAfter > httpcall.MaxRetryAfter {
			t.Errorf("%+v", r)
		}
	})
}
