package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/pubsub-inbox/pubsub-inbox/internal/demoengine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/rpctap"
	"github.com/pubsub-inbox/pubsub-inbox/internal/relayer"
)

func TestNumbersReachTheEngineExactlyAsTheyWerePublished(t *testing.T) {
	const payload = `{"big":9007199254740993,"small":0.1000000000000000055,"nested":{"a":[1.0,1e2,-0,9007199254740993]},"text":"7"}`
	engine := demoengine.New(demoengine.Options{})
	w := newCaseWorld(t, engine, `
  - {name: mapped, match: attributes.as == "variables", key: payload.big, engine: engine, message: M, `+caseRetry+`,
     variables: {big: payload.big, small: payload.small, nested: payload.nested, inner: "payload.nested.a[3]", all: payload}}
  - {name: whole, key: payload.small, engine: engine, message: M, `+caseRetry+`}`)
	engine.Start("9007199254740993", "M")
	engine.Start("0.1000000000000000055", "M")
	w.deliver(casePush{id: "1", attributes: map[string]string{"as": "variables"}, data: payload}.body(t), casePush{id: "2", data: payload}.body(t))
	if diff := cmp.Diff(relayer.Summary{Claimed: 2, Processed: 2}, w.run()); diff != "" {
		t.Error(diff)
	}
	got := map[string]string{}
	for _, d := range engine.History() {
		if d.Key != "9007199254740993" {
			got["the whole payload"] = string(d.Body)
			continue
		}
		for name, value := range d.Variables {
			got[name] = string(value)
		}
	}
	want := map[string]string{
		"the whole payload": payload, "big": "9007199254740993", "small": "0.1000000000000000055",
		"nested": `{"a":[1.0,1e2,-0,9007199254740993]}`, "inner": "9007199254740993", "all": payload,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestNeighboursThatAFloatCannotTellApartAreTwoKeys(t *testing.T) {
	engine := demoengine.New(demoengine.Options{})
	w := newCaseWorld(t, engine, `
  - {name: any, key: payload.id, dedupe: "hash([payload.id])", engine: engine, message: M, `+caseRetry+`}`)
	for _, key := range []string{"9007199254740992", "9007199254740993"} {
		engine.Start(key, "M")
		w.deliver(casePush{id: "m-" + key, data: `{"id":` + key + `}`}.body(t))
	}
	if diff := cmp.Diff(relayer.Summary{Claimed: 2, Processed: 2}, w.run()); diff != "" {
		t.Error(diff)
	}
	got := []int{engine.Advanced("9007199254740992"), engine.Advanced("9007199254740993"), len(w.rows()), int(w.number("SELECT COUNT(*) FROM Lanes"))}
	if diff := cmp.Diff([]int{1, 1, 2, 2}, got); diff != "" {
		t.Errorf("advanced, advanced, rows, lanes: %s", diff)
	}
}

func TestAMessageThatDoesNotFitItsRouteIsStoredAndParkedByTheRelayAlone(t *testing.T) {
	tests := []struct{ name, route, corrected, data, why string }{
		{"another version", `versions: ["1"], version: attributes.version`, `versions: ["1", "2"], version: attributes.version`, `{"a":1}`,
			"the version of this message is none of those that the route accepts (1)"},
		{"a schema", `schema: {type: object, required: [b]}`, `schema: {type: object}`, `{"a":1}`, "schema: required at /"},
		{"a schema, and no JSON", `schema: {type: object}`, ``, `plain text`, "schema: the payload is not JSON"},
		{"a variable", `variables: {b: payload.b}`, `variables: {b: payload.a}`, `{"a":1}`, "variable b (payload.b): a field that it reads is missing"},
		{"a name", `message: payload.b`, `message: payload.a`, `{"a":"M"}`, "message (payload.b): a field that it reads is missing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			engine := demoengine.New(demoengine.Options{})
			route := func(more string) string {
				if !strings.HasPrefix(more, "message:") {
					more = "message: M, " + more
				}
				return `
  - {name: any, key: '"WO-1"', engine: engine, ` + caseRetry + ", " + more + "}"
			}
			w := newCaseWorld(t, engine, route(tt.route))
			engine.Start("WO-1", "M")
			w.deliver(casePush{id: "1", attributes: map[string]string{"version": "2"}, data: tt.data}.body(t))
			if diff := cmp.Diff([]string{"RECEIVED"}, w.places()); diff != "" {
				t.Errorf("before the relay: %s", diff)
			}
			if diff := cmp.Diff(relayer.Summary{Claimed: 1, Parked: 1}, w.run()); diff != "" {
				t.Error(diff)
			}
			row := w.rows()[0]
			if diff := cmp.Diff([]string{"PARKED/CONTRACT", tt.why}, []string{row.Place, row.Error}); diff != "" {
				t.Error(diff)
			}
			if n := len(engine.History()); n != 0 {
				t.Errorf("the engine was called %d times", n)
			}
			// A corrected route and a reopen repair it.
			w.deploy(route(tt.corrected), "")
			w.reopen()
			if diff := cmp.Diff(relayer.Summary{Claimed: 1, Processed: 1}, w.run()); diff != "" {
				t.Errorf("after the repair: %s", diff)
			}
		})
	}
}

func TestC006APayloadThatWasEncodedTwiceIsParkedWhereJSONIsNeededAndRepairableByTheRoute(t *testing.T) {
	engine := demoengine.New(demoengine.Options{})
	w := newCaseWorld(t, engine, `
  - {name: any, key: message.id, engine: engine, message: M, variables: {status: payload.status}, `+caseRetry+`}`)
	engine.Start("9100000000000601", "M")
	w.deliver(caseInput(t, "C006")...)
	w.run()
	row := w.rows()[0]
	want := caseRow{MessageID: "9100000000000601", Key: "9100000000000601", Place: "PARKED/CONTRACT", Attempts: 1,
		Error: "variable status (payload.status): a field that it reads is missing; the payload is not JSON"}
	if diff := cmp.Diff(want, row); diff != "" {
		t.Error(diff)
	}
	w.deploy(`
  - {name: any, key: message.id, engine: engine, message: M, `+caseRetry+`}`, "")
	w.reopen()
	w.run()
	if got := engine.History(); len(got) != 1 || string(got[0].Body) != "eyJzdGF0dXMiOiJTVUNDRVNTIn0=" || w.places()[0] != "PROCESSED" {
		t.Errorf("%d calls, row %s", len(got), w.places()[0])
	}
}

func TestC011RepublishedEventsWithoutAnEventIDAreProcessedOnceAndTheRestIsAlreadyThrough(t *testing.T) {
	engine := demoengine.New(demoengine.Options{})
	w := newCaseWorld(t, engine, `
  - {name: any, key: payload.orderId, engine: engine, message: M, `+caseRetry+`}`)
	engine.Start("WO-4711", "M")
	w.deliver(caseInput(t, "C011")...)
	w.run()
	if diff := cmp.Diff([]string{"PROCESSED", "PARKED/ALREADY_THROUGH", "PARKED/ALREADY_THROUGH"}, w.places()); diff != "" {
		t.Error(diff)
	}
	if n := engine.Advanced("WO-4711"); n != 1 {
		t.Errorf("advanced %d times", n)
	}
}

func TestC017AMessageWithoutPayloadIsParkedByTheRelayIfItsRouteNeedsOne(t *testing.T) {
	engine := demoengine.New(demoengine.Options{})
	w := newCaseWorld(t, engine, `
  - {name: any, engine: engine, message: M, variables: {a: payload.a}, `+caseRetry+`}`)
	w.deliver(caseInput(t, "C017")...)
	w.run()
	row := w.rows()[0]
	if row.Place != "PARKED/CONTRACT" || !strings.Contains(row.Error, "the payload is not JSON") {
		t.Errorf("%s: %s", row.Place, row.Error)
	}
}

func TestC026StatesOfOneResourceReachTheEngineInTheOrderOfTheirArrival(t *testing.T) {
	for _, tt := range []struct {
		input, key, message string
		want                []string
		places              []string
	}{
		// All three have one publish time.
		{"C026", "attributes.buildId", "attributes.status", []string{"QUEUED", "WORKING", "SUCCESS"}, []string{"PROCESSED", "PROCESSED", "PROCESSED"}},
		{"C080", "payload.incident.incident_id", "payload.incident.state", []string{"open", "closed"}, []string{"PROCESSED", "PROCESSED"}},
		{"C083", "payload.subscriptionNotification.purchaseToken", "string(payload.subscriptionNotification.notificationType)",
			[]string{"4", "2"}, []string{"PARKED/NO_ROUTE", "PROCESSED", "PROCESSED"}},
	} {
		t.Run(tt.input, func(t *testing.T) {
			calls := &recordingEngine{status: http.StatusOK}
			match := ""
			if tt.input == "C083" {
				match = "match: has(payload.subscriptionNotification), "
			}
			w := newCaseWorld(t, calls, fmt.Sprintf(`
  - {name: any, %skey: %s, engine: engine, message: '%s', %s}`, match, tt.key, tt.message, caseRetry))
			w.deliver(caseInput(t, tt.input)...)
			w.run()
			var got []string
			for _, h := range calls.all() {
				got = append(got, h.Get("Ce-Type"))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tt.places, w.places()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestC054WhatTheBrokerReordersIsProcessedOnceAndMarkedLate(t *testing.T) {
	event := func(n int) casePush {
		return casePush{id: fmt.Sprint("m", n), time: fmt.Sprintf("2026-03-02T08:15:3%d.000Z", n), attributes: map[string]string{"eventId": fmt.Sprint("evt-", n)}}
	}
	m1, m2, m3 := event(1).body(t), event(2).body(t), event(3).body(t)
	// As it comes out of the dead-letter topic: another message id, its source in attributes.
	dead := event(1)
	dead.id, dead.time = "dead-1", "2026-03-02T09:40:00Z"
	dead.attributes["CloudPubSubDeadLetterSourceDeliveryCount"] = "5"
	dead.attributes["CloudPubSubDeadLetterSourceSubscription"] = "s"
	anew := event(1)
	anew.id, anew.time = "m1-again", "2026-03-02T09:40:00Z"
	tests := []struct {
		name   string
		routes string
		late   []byte
		when   string // m1 comes "before" the relay has run, or "after"
		calls  string
		rows   []caseRow
	}{
		{"redelivered before anything ran", "", m1, "before", "m1 m2 m3", []caseRow{
			{MessageID: "m2"}, {MessageID: "m3"}, {MessageID: "m1"}}},
		{"redelivered afterwards", "", m1, "after", "m2 m3 m1", []caseRow{
			{MessageID: "m2"}, {MessageID: "m3"}, {MessageID: "m1", Late: true}}},
		{"republished from the dead-letter topic as the dead letter that it is", "dedupe: attributes.eventId,", dead.body(t), "after", "m2 m3", []caseRow{
			{MessageID: "m2"}, {MessageID: "m3"}, {MessageID: "dead-1", Place: "PARKED/DEAD_LETTERED",
				Error: "refused 5 times by its subscription's endpoint, or never answered in time"}}},
		{"republished from the dead-letter topic without its attributes", "dedupe: attributes.eventId,", anew.body(t), "after", "m2 m3 m1-again", []caseRow{
			{MessageID: "m2"}, {MessageID: "m3"}, {MessageID: "m1-again"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			calls := &recordingEngine{status: http.StatusNoContent}
			w := newCaseWorld(t, calls, `
  - {name: any, `+tt.routes+` key: '"K"', engine: engine, message: message.id, `+caseRetry+`}`)
			w.tap.FailAll("Commit", rpctap.Error(codes.PermissionDenied))
			for range 5 {
				if got := w.post(m1); got != http.StatusServiceUnavailable {
					t.Fatalf("m1: status %d", got)
				}
			}
			w.tap.Reset()
			w.deliver(m2, m3)
			if tt.when == "after" {
				w.run()
			}
			w.deliver(m2, m3, tt.late, tt.late)
			w.run()
			w.deliver(m2, m3, tt.late)
			w.run()
			var got []string
			for _, h := range calls.all() {
				got = append(got, h.Get("Ce-Type"))
			}
			if diff := cmp.Diff(tt.calls, strings.Join(got, " ")); diff != "" {
				t.Error(diff)
			}
			var want []caseRow
			for _, r := range tt.rows {
				if r.Key = "K"; r.Place == "" {
					r.Place, r.Attempts = "PROCESSED", 1
				}
				want = append(want, r)
			}
			if diff := cmp.Diff(want, w.rows()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestC066TheEngineGetsThePublishersTraceOrNone(t *testing.T) {
	calls := &recordingEngine{status: http.StatusOK}
	w := newCaseWorld(t, calls, `
  - {name: any, key: '"K"', engine: engine, message: M, `+caseRetry+`}`)
	w.deliver(caseInput(t, "C066")...)
	w.run()
	var got []string
	for _, h := range calls.all() {
		got = append(got, h.Get("Traceparent"))
	}
	if len(got) != 3 || !strings.Contains(got[0], "4bf92f3577b34da6a3ce929d0e0e4736") || got[1] != "" || got[2] != "" {
		t.Errorf("got %q", got)
	}
}

// recordingEngine answers everything with one status.
type recordingEngine struct {
	status  int
	header  map[string]string
	body    string
	mu      sync.Mutex
	headers []http.Header
}

func (e *recordingEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	e.headers = append(e.headers, r.Header.Clone())
	e.mu.Unlock()
	for name, value := range e.header {
		w.Header().Set(name, value)
	}
	w.WriteHeader(e.status)
	_, _ = w.Write([]byte(e.body))
}

func (e *recordingEngine) all() []http.Header {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]http.Header(nil), e.headers...)
}
