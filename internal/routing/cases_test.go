package routing

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/config"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// load reads the push bodies of a case: one, or a list of them.
func load(t *testing.T, name string) []Input {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	type push struct {
		Message struct {
			Data        []byte         `json:"data"`
			Attributes  map[string]any `json:"attributes"`
			MessageID   string         `json:"messageId"`
			OrderingKey string         `json:"orderingKey"`
			PublishTime time.Time      `json:"publishTime"`
		} `json:"message"`
		Subscription string `json:"subscription"`
	}
	var pushes []push
	if text[0] == '{' {
		pushes = make([]push, 1)
		err = json.Unmarshal(text, &pushes[0])
	} else {
		err = json.Unmarshal(text, &pushes)
	}
	if err != nil {
		t.Fatal(err)
	}
	var inputs []Input
	for _, p := range pushes {
		in := Input{MessageID: p.Message.MessageID, OrderingKey: p.Message.OrderingKey, Subscription: p.Subscription,
			PublishTime: p.Message.PublishTime, Attributes: map[string]string{}, Payload: p.Message.Data}
		for name, value := range p.Message.Attributes {
			if s, ok := value.(string); ok { // the others are the receiver's case
				in.Attributes[name] = s
			}
		}
		inputs = append(inputs, in)
	}
	return inputs
}

// router makes a router of routes in YAML, each without its engine and, unless it has one, its message.
func router(t testing.TB, routes ...string) *Router {
	t.Helper()
	text := "consumer: c\nclaimCheck: {buckets: [demo-claims]}\nengines: {e: {kind: http, url: 'https://e.example', idempotent: true}}\nroutes:\n"
	for _, route := range routes {
		lines := strings.Split(strings.TrimSpace(route), "\n")
		text += "  - engine: e\n    " + strings.Join(lines, "\n    ") + "\n"
		if !strings.Contains("\n"+route, "\nmessage:") {
			text += "    message: M\n"
		}
	}
	cfg, _, err := config.Parse("c.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// ids returns the InboxId that each message gets.
func ids(r *Router, inputs []Input) []string {
	var all []string
	for _, in := range inputs {
		d := r.Route(in)
		scope := in.Subscription
		if d.ConsumerScope {
			scope = ""
		}
		if d.DedupeKey == "" {
			all = append(all, inbox.ID(inbox.TransportIdentity, "c", in.Subscription, in.MessageID))
		} else {
			all = append(all, inbox.ID(inbox.BusinessIdentity, "c", scope, d.DedupeKey))
		}
	}
	return all
}

func distinct(ids []string) int {
	seen := map[string]bool{}
	for _, id := range ids {
		seen[id] = true
	}
	return len(seen)
}

func TestC006APayloadEncodedTwiceIsNoJSONAndIsParked(t *testing.T) {
	in := load(t, "C006")[0]
	if string(in.Payload) != "eyJzdGF0dXMiOiJTVUNDRVNTIn0=" {
		t.Fatalf("payload %q", in.Payload)
	}
	r := router(t, "name: r\nkey: payload.status\nvariables: {status: payload.status}")
	const why = "key (payload.status): a field that it reads is missing; the payload is not JSON"
	if d := r.Route(in); d.Park != inbox.Contract || d.ParkDetail != why || d.Key != "" || d.Route != "r" {
		t.Errorf("on receipt: got %+v, want %q", d, why)
	}
	_, err := r.Call("r", in, "", "")
	want := "variable status (payload.status): a field that it reads is missing; the payload is not JSON"
	if contract, ok := err.(*ContractError); !ok || contract.Detail != want {
		t.Errorf("at the attempt: got %v, want %q", err, want)
	}
}

func TestC011ARepublishedEventIsOneMessageWhereItsIdIsTheKey(t *testing.T) {
	inputs := load(t, "C011")
	if n := distinct(ids(router(t, "name: r\ndedupe: attributes.eventId"), inputs)); n != 1 {
		t.Errorf("with an event id: %d rows, want 1", n)
	}
	if n := distinct(ids(router(t, "name: r\nkey: payload.orderId"), inputs)); n != 3 {
		t.Errorf("without: %d rows, want 3", n)
	}
}

func TestC013CloudEventAttributesAreOrdinaryOnes(t *testing.T) {
	in := load(t, "C013")[0]
	d := router(t, `
name: r
match: attributes["ce-type"].startsWith("test.event.") && attributes["Content-Type"] == "application/json"
type: attributes["ce-type"]
dedupe: attributes["ce-source"] + "|" + attributes["ce-id"]`).Route(in)
	want := Decision{Route: "r", Type: "test.event.signIn", DedupeKey: "my-app|MFk-1", Order: inbox.OrderPublished}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Error(diff)
	}
}

func TestC018AttributesAsKeysAreMeasured(t *testing.T) {
	in := load(t, "C018")[2]
	r := router(t, "name: r\nkey: attributes.k00\ndedupe: attributes.k00 + attributes.k01 + attributes.k02")
	d := r.Route(in)
	if d.Park != "" || d.Key != in.Attributes["k00"] || len(d.DedupeKey) != 3*len(d.Key) {
		t.Errorf("within the limits: got %+v", d)
	}
	for i := range 2 {
		in.Attributes["k0"+string(rune('0'+i))] = strings.Repeat("v", 4096)
	}
	d = r.Route(in)
	want := "key (attributes.k00): the key has 4096 bytes, its column holds 1024; " +
		"dedupe (attributes.k00 + attributes.k01 + attributes.k02): the key has "
	if d.Park != inbox.Contract || d.Key != "" || d.DedupeKey != "" || !strings.HasPrefix(d.ParkDetail, want) {
		t.Errorf("beyond: got %+v, want %q", d, want)
	}
}

func TestC026EachStateOfABuildIsItsOwnMessageInItsLane(t *testing.T) {
	inputs := load(t, "C026")
	r := router(t, "name: r\nkey: attributes.buildId")
	for i, in := range inputs {
		if d := r.Route(in); d.Key != "b-123" || d.DedupeKey != "" || d.Order != inbox.OrderPublished {
			t.Errorf("%d: got %+v", i, d)
		}
	}
	if n := distinct(ids(r, inputs)); n != 3 {
		t.Errorf("%d rows, want 3", n)
	}
	if n := distinct(ids(router(t, "name: r\ndedupe: hash([attributes.buildId, attributes.status])"), inputs)); n != 3 {
		t.Errorf("by build and status: %d rows, want 3", n)
	}
}

func TestC066TraceAttributesDecideNothing(t *testing.T) {
	for i, in := range load(t, "C066") {
		d := router(t, "name: r\nkey: payload.orderId\ndedupe: hash([payload.orderId, payload.event])").Route(in)
		if d.Park != "" || d.Key != "WO-4711" || len(d.DedupeKey) != 64 {
			t.Errorf("%d: got %+v", i, d)
		}
	}
}

func TestC078AnOverwriteOfAnObjectIsThreeEventsAndADuplicate(t *testing.T) {
	inputs := load(t, "C078")
	r := router(t, `
name: r
key: attributes.bucketId + "/" + attributes.objectId
dedupe: "[attributes.bucketId, attributes.objectId, attributes.objectGeneration, attributes.eventType].join('|')"
scope: consumer
variables: {generation: payload.generation, size: payload.size}`)
	got := ids(r, inputs)
	if len(got) != 4 || distinct(got) != 3 || got[3] != got[0] {
		t.Errorf("got %v, want three ids and the first again", got)
	}
	if d := r.Route(inputs[0]); d.Key != "demo-claims/2026/03/report 1.json" || !d.ConsumerScope {
		t.Errorf("got %+v", d)
	}
	call, err := r.Call("r", inputs[0], "", "")
	if err != nil || string(call.Variables["generation"]) != `"1700000000000001"` {
		t.Errorf("got %s, %v", call.Variables, err)
	}
}

func TestC080AnIncidentsMessagesShareALaneAndAMissingFieldDoesNotBlockReceipt(t *testing.T) {
	inputs := load(t, "C080")
	r := router(t, `
name: r
key: payload.incident.incident_id
type: '"incident." + payload.incident.state'
variables: {ended: payload.incident.ended_at, value: payload.incident.observed_value, number: payload.incident.scoping_project_number}`)
	for i, want := range []string{"incident.open", "incident.closed"} {
		if d := r.Route(inputs[i]); d.Park != "" || d.Key != "0.mtd1" || d.Type != want {
			t.Errorf("%d: got %+v", i, d)
		}
	}
	if n := distinct(ids(r, inputs)); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
	call, err := r.Call("r", inputs[0], "", "")
	want := map[string]json.RawMessage{"ended": []byte("null"), "value": []byte(`"0.790"`), "number": []byte("286919713412")}
	if diff := cmp.Diff(want, call.Variables); diff != "" || err != nil {
		t.Error(diff, err)
	}
	for _, payload := range []string{`{}`, `{"incident": null}`, `{"incident": "x"}`, `{"incident": {"incident_id": null}}`,
		`{"incident": {"incident_id": ""}}`, `[]`, ``} {
		in := inputs[0]
		in.Payload = []byte(payload)
		if d := r.Route(in); d.Park != "" || d.Key != "" || d.Type != "" {
			t.Errorf("%s: got %+v, want no fault and a lane of its own", payload, d)
		}
	}
}

func TestC081BudgetNotificationsAreTwoMessagesWithExactAmounts(t *testing.T) {
	inputs := load(t, "C081")
	r := router(t, "name: r\nkey: attributes.budgetId\nvariables: {cost: payload.costAmount, all: payload}")
	if n := distinct(ids(r, inputs)); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
	call, err := r.Call("r", inputs[0], "", "")
	if err != nil || string(call.Variables["cost"]) != "140.321" || string(call.Variables["all"]) != string(inputs[0].Payload) {
		t.Errorf("got %s, %v", call.Variables, err)
	}
}

func TestC083OneTopicWithThreeKindsOfNotification(t *testing.T) {
	inputs := load(t, "C083")
	const subscriptions = `
name: subscriptions
match: has(payload.subscriptionNotification)
type: '"subscription." + string(payload.subscriptionNotification.notificationType)'
key: payload.subscriptionNotification.purchaseToken
order: sequence
sequence: int(payload.eventTimeMillis)`
	r := router(t, subscriptions)
	if d := r.Route(inputs[0]); d.Park != inbox.NoRoute || d.Route != "" || d.ParkDetail != "no route matches" {
		t.Errorf("the test notification: got %+v, want it parked without a route", d)
	}
	for i, want := range []Decision{
		{Type: "subscription.4", Sequence: 1772439330124}, {Type: "subscription.2", Sequence: 1772439399124},
	} {
		want.Route, want.Key, want.Order = "subscriptions", "tok-1", inbox.OrderSequence
		if diff := cmp.Diff(want, r.Route(inputs[i+1])); diff != "" {
			t.Error(diff)
		}
	}
	r = router(t, subscriptions, "name: tests\nmatch: has(payload.testNotification)\nmessage: TestNotification")
	if d := r.Route(inputs[0]); d.Route != "tests" || d.Park != "" {
		t.Errorf("with a route of its own: got %+v", d)
	}
}

func TestC094AnAmountIsWhatItIsHoweverItWasWritten(t *testing.T) {
	text, err := os.ReadFile("testdata/C094.yaml")
	if err != nil {
		t.Fatal(err)
	}
	routes, _, ok := strings.Cut(string(text), "messages:")
	if !ok {
		t.Fatal("the case has no messages")
	}
	cfg, _, err := config.Parse("c.yaml", []byte("consumer: c\nengines: {sink: {kind: http, url: 'https://e.example', idempotent: true}}\n"+routes))
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		Messages []struct{ Kind, Data, Expect string }
	}
	if err := yaml.Unmarshal(text, &c); err != nil || len(c.Messages) != 9 {
		t.Fatalf("%v: %d messages", err, len(c.Messages))
	}
	for _, m := range c.Messages {
		in := Input{MessageID: "1", Subscription: "s", Attributes: map[string]string{"kind": m.Kind}, Payload: []byte(m.Data)}
		call, err := r.Call(r.Route(in).Route, in, "", "")
		if got := call.Message; err != nil || (m.Kind == "order" && got != m.Expect) {
			t.Errorf("%s %s: got %s, %v, want %s", m.Kind, m.Data, got, err, m.Expect)
		}
		if got := string(call.Variables["v"]); m.Kind != "order" && got != m.Expect {
			t.Errorf("%s %s: got %s, want %s", m.Kind, m.Data, got, m.Expect)
		}
	}
}
