package routing

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/config"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

func message(payload string) Input {
	return Input{MessageID: "17", OrderingKey: "ok", Subscription: "projects/p/subscriptions/s",
		PublishTime: time.Date(2026, 3, 2, 8, 15, 30, 0, time.UTC),
		Attributes:  map[string]string{"eventType": "Order", "eventId": "e-1", "schemaVersion": "1.10"}, Payload: []byte(payload)}
}

func TestTheFirstRouteThatMatchesDecidesEverything(t *testing.T) {
	r := router(t,
		"name: other\nmatch: attributes.eventType == \"Invoice\"",
		`
name: order
match: attributes.eventType == "Order" && payload.total > 1.5
type: attributes.eventType
version: attributes.schemaVersion
tenant: payload.tenant
aggregateType: '"WorkOrder"'
correlationId: payload.orderId
causationId: message.id
key: payload.orderId
keySpace: orders
dedupe: attributes.eventId
scope: consumer
order: sequence
sequence: payload.revision
parked: block`,
		"name: late\nmatch: attributes.eventType == \"Order\"")
	want := Decision{
		Route: "order", Type: "Order", Version: "1.10", TenantID: "7", AggregateType: "WorkOrder", CorrelationID: "4711", CausationID: "17",
		Key: "4711", KeySpace: "orders", Order: inbox.OrderSequence, Sequence: 3, DedupeKey: "e-1", ConsumerScope: true, Blocks: true,
	}
	if diff := cmp.Diff(want, r.Route(message(`{"orderId": 4711, "total": 1.51, "tenant": 7, "revision": 3}`))); diff != "" {
		t.Error(diff)
	}
	if d := r.Route(message(`{"total": 1.5}`)); d.Route != "late" {
		t.Errorf("got %+v, want the route after it", d)
	}
	if d := r.Route(message(`no JSON`)); d.Route != "late" {
		t.Errorf("got %+v, want the route that does not look at the payload", d)
	}
}

func TestAMatchThatFailsDoesNotMatch(t *testing.T) {
	for _, match := range []string{`attributes.missing == "x"`, `attributes.missing != "x"`, `!(attributes.missing == "x")`, `payload.a == 1`,
		`payload.a.b > 2`, `int(attributes.eventId) == 1`, `payload.flag`} {
		r := router(t, "name: r\nmatch: '"+match+"'")
		in := message(`{"flag": "yes"}`)
		if d := r.Route(in); d.Park != inbox.NoRoute || d.Route != "" {
			t.Errorf("%s: got %+v, want NO_ROUTE", match, d)
		}
	}
	r := router(t, `name: r`+"\n"+`match: '!has(attributes.missing) || attributes.missing != "x"'`)
	if d := r.Route(message("")); d.Route != "r" {
		t.Errorf("got %+v", d)
	}
}

func TestKeysAreExactAndTheirFaultsHaveReasons(t *testing.T) {
	long := strings.Repeat("k", inbox.MaxKey)
	for name, c := range map[string]struct {
		payload string
		key     string
		fault   string
	}{
		"an integer beyond doubles":    {`{"k": 9007199254740993}`, "9007199254740993", ""},
		"its neighbour":                {`{"k": 9007199254740992}`, "9007199254740992", ""},
		"a number of thirty digits":    {`{"k": 123456789012345678901234567891}`, "123456789012345678901234567891", ""},
		"one":                          {`{"k": 1}`, "1", ""},
		"one as a fraction":            {`{"k": 1.0}`, "1", ""},
		"a fraction":                   {`{"k": 1.10}`, "1.1", ""},
		"a text":                       {`{"k": "007"}`, "007", ""},
		"a text like a number":         {`{"k": "7"}`, "7", ""},
		"a bool":                       {`{"k": true}`, "true", ""},
		"the last of two":              {`{"k": 1, "k": 2}`, "2", ""},
		"null":                         {`{"k": null}`, "", ""},
		"missing":                      {`{}`, "", ""},
		"empty":                        {`{"k": ""}`, "", ""},
		"no JSON":                      {`<k/>`, "", "key (payload.k): a field that it reads is missing; the payload is not JSON"},
		"invalid UTF-8":                {"{\"k\": \"a\xff\"}", "", "key (payload.k): a field that it reads is missing; the payload is not JSON"},
		"a byte order mark":            {"\ufeff{\"k\": 1}", "1", ""},
		"nothing":                      {"", "", ""},
		"just within the column":       {`{"k": "` + long + `"}`, long, ""},
		"beyond the column":            {`{"k": "` + long + `k"}`, "", "key (payload.k): the key has 1025 bytes, its column holds 1024"},
		"a list":                       {`{"k": [1]}`, "", "key (payload.k): it is neither a string nor a number nor a bool"},
		"an object":                    {`{"k": {"id": 1}}`, "", "key (payload.k): it is neither a string nor a number nor a bool"},
		"half a character":             {`{"k": "\ud83d"}`, "", "key (payload.k): a text that it reads holds half a character (an unpaired surrogate)"},
		"a number beyond any":          {`{"k": 1e99999999999999999999}`, "", "key (payload.k): a number is out of range"},
		"a number with many digits":    {`{"k": ` + strings.Repeat("9", 2000) + `1}`, "", "key (payload.k): the key has 2007 bytes, its column holds 1024"},
		"a number with a far exponent": {`{"k": 1e999999999}`, "1e999999999", ""},
	} {
		d := router(t, "name: r\nkey: payload.k").Route(message(c.payload))
		park := inbox.Reason("")
		if c.fault != "" {
			park = inbox.Contract
		}
		if d.Key != c.key || d.Park != park || d.ParkDetail != c.fault {
			t.Errorf("%s: got key %.50q, %s %q, want %.50q, %q", name, d.Key, d.Park, d.ParkDetail, c.key, c.fault)
		}
	}
}

func TestADedupeExpressionThatFailsParksUnderTheTransportIdentity(t *testing.T) {
	const nothing = "a field that it reads is missing: nothing to recognise the event by"
	for payload, want := range map[string]string{
		`{"d": "e-1"}`: "", `{"d": 9007199254740993}`: "",
		`{}`: nothing, `x`: nothing + "; the payload is not JSON",
		`{"d": []}`: "it is neither a string nor a number nor a bool",
		`{"d": "` + strings.Repeat("d", 4097) + `"}`: "the key has 4097 bytes, its column holds 4096",
	} {
		d := router(t, "name: r\ndedupe: payload.d\nkey: attributes.eventId").Route(message(payload))
		if want == "" {
			if d.Park != "" || d.DedupeKey == "" {
				t.Errorf("%.40s: got %+v", payload, d)
			}
			continue
		}
		if d.Park != inbox.Contract || d.DedupeKey != "" || d.ParkDetail != "dedupe (payload.d): "+want || d.Key != "e-1" {
			t.Errorf("%.40s: got %+v, want %q", payload, d, want)
		}
	}
	for _, payload := range []string{`{"d": null}`, `{"d": ""}`} {
		d := router(t, "name: r\ndedupe: payload.d").Route(message(payload))
		if d.Park != "" || d.DedupeKey != "" {
			t.Errorf("%s has no id of its own, and nothing is wrong with it: got %+v", payload, d)
		}
	}
	d := router(t, "name: r\ndedupe: hash([payload.a, payload.b])").Route(message(`{"a": null, "b": ""}`))
	if d.Park != inbox.Contract || d.DedupeKey != "" {
		t.Errorf("hash of nothing: got %+v", d)
	}
}

func TestASequenceThatIsNoIntegerParks(t *testing.T) {
	for payload, want := range map[string]string{
		`{"s": 9007199254740993}`: "", `{"s": -1}`: "", `{"s": 1.0}`: "",
		`{}`: "a field that it reads is missing", `{"s": null}`: "it is null", `{"s": "1"}`: "it is not an integer",
		`{"s": 1.5}`: "it is not an integer of 64 bits", `{"s": 9223372036854775808}`: "it is not an integer of 64 bits",
	} {
		d := router(t, "name: r\norder: sequence\nsequence: payload.s").Route(message(payload))
		if want == "" {
			if d.Park != "" || d.Sequence == 0 {
				t.Errorf("%s: got %+v", payload, d)
			}
		} else if d.Park != inbox.Contract || d.ParkDetail != "sequence (payload.s): "+want || d.Sequence != 0 {
			t.Errorf("%s: got %+v, want %q", payload, d, want)
		}
	}
}

func TestDescriptionsAreEmptyWhereTheyFailAndCutWhereTheyAreTooLong(t *testing.T) {
	r := router(t, "name: r\ntype: payload.t\nversion: payload.v\ntenant: attributes.tenant\naggregateType: payload\ncorrelationId: payload.c\ncausationId: payload.missing")
	d := r.Route(message(`{"v": 1.10, "t": null, "c": [1]}`))
	if diff := cmp.Diff(Decision{Route: "r", Version: "1.10", Order: inbox.OrderPublished}, d); diff != "" {
		t.Error(diff)
	}
	d = r.Route(message(`{"t": "` + strings.Repeat("ä", 200) + `"}`))
	if d.Park != inbox.Contract || d.ParkDetail != "type (payload.t): the text has 400 bytes, its column holds 256" || len(d.Type) != 256 || !utf8.ValidString(d.Type) {
		t.Errorf("got %+v", d)
	}
	in := message(`{}`)
	in.Attributes["tenant"] = "a\xffb"
	if d := r.Route(in); d.Park != "" || d.TenantID != "a\uFFFDb" {
		t.Errorf("got %+v", d)
	}
	in.Attributes["eventId"] = "a\xffb"
	if d := router(t, "name: r\nkey: attributes.eventId\ndedupe: attributes.eventId").Route(in); d.Park != inbox.Contract || d.Key != "" || d.DedupeKey != "" {
		t.Errorf("got %+v", d)
	}
}

func TestAllFaultsOfAMessageAreInItsDetailAndNoneOfItsValues(t *testing.T) {
	d := router(t, "name: r\nkey: int(payload.secret)\ndedupe: payload.secret.deeper\norder: sequence\nsequence: payload.secret\nparked: block").
		Route(message(`{"secret": "hunter2"}`))
	want := "key (int(payload.secret)): it cannot be evaluated for this message; dedupe (payload.secret.deeper): a " +
		"field that it reads is missing: nothing to recognise the event by; sequence (payload.secret): it is not an integer"
	if d.ParkDetail != want || d.Park != inbox.Contract || !d.Blocks || d.Order != inbox.OrderSequence {
		t.Errorf("got %+v", d)
	}
}

func TestReceiptLooksAtNeitherSchemaNorVersionsNorVariables(t *testing.T) {
	r := router(t, "name: r\nversion: attributes.schemaVersion\nversions: [\"2\"]\nschema: {type: object, required: [x]}\nvariables: {x: payload.x}\nmessage: payload.name")
	if d := r.Route(message(`[]`)); d.Park != "" || d.Version != "1.10" {
		t.Errorf("got %+v", d)
	}
}

func TestACallHasExactVariables(t *testing.T) {
	const payload = `{"n": 9007199254740993, "d": 0.1000000000000000055, "p": 1.10, "o": {"b": 1, "a": [1E400 ]}}`
	r := router(t, "name: r\nmessage: attributes.eventType + \"Received\"\nvariables: {n: payload.n, d: payload.d, p: payload.p, o: payload.o, id: message.id, all: payload}",
		"name: none\nvariables: {}", "name: payload")
	call, err := r.Call("r", message(payload), "", "")
	want := Call{Engine: "e", Message: "OrderReceived", Variables: map[string]json.RawMessage{
		"n": []byte("9007199254740993"), "d": []byte("0.1000000000000000055"), "p": []byte("1.10"), "o": []byte(`{"b": 1, "a": [1E400 ]}`),
		"id": []byte(`"17"`), "all": []byte(payload),
	}}
	if diff := cmp.Diff(want, call); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if call, err := r.Call("none", message(payload), "", ""); err != nil || call.Variables == nil || len(call.Variables) != 0 {
		t.Errorf("an empty map of variables: got %+v, %v", call, err)
	}
	if call, err := r.Call("payload", message("\x00\xff"), "", ""); err != nil || call.Variables != nil || call.Message != "M" {
		t.Errorf("no variables: got %+v, %v", call, err)
	}
	in := message(payload)
	call, _ = r.Call("r", in, "", "")
	in.Payload[5] = 'x'
	if string(call.Variables["n"]) != "9007199254740993" {
		t.Error("a variable changes with the payload's buffer")
	}
}

func TestACallThatDoesNotFitSaysWhyWithoutTheValue(t *testing.T) {
	const schema = "schema: {type: object, required: [id], properties: {id: {}, n: {type: integer, minimum: 1}, secret: {enum: [a]}}, additionalProperties: false}"
	for name, c := range map[string]struct{ route, payload, version, want string }{
		"a version that is not accepted": {"version: attributes.v\nversions: [1, 1.1]", `{}`, "1.10", "the version of this message is none of those that the route accepts (1, 1.1)"},
		"an accepted version":            {"version: attributes.v\nversions: [1, 1.1]", `{}`, "1.1", ""},
		"no version":                     {"version: attributes.v\nversions: [1]", `{}`, "", "the version of this message is none of those that the route accepts (1)"},
		"a schema that fits":             {schema, `{"id": 1, "n": 9007199254740993}`, "", ""},
		"a missing member":               {schema, `{}`, "", "schema: required at /"},
		"a wrong type":                   {schema, `{"id": 1, "n": "hunter2"}`, "", "schema: type at /n"},
		"a number too small":             {schema, `{"id": 1, "n": -5}`, "", "schema: minimum at /n"},
		"a value that is none of a list": {schema, `{"id": 1, "secret": "hunter2"}`, "", "schema: enum at /secret"},
		"a member that is not foreseen":  {schema, `{"id": 1, "hunter2": 1}`, "", "schema: additionalProperties at /"},
		"two violations":                 {schema, `{"n": 0.5}`, "", "schema: required at /; type at /n"},
		"a schema and no JSON":           {schema, `hunter2`, "", "schema: the payload is not JSON"},
		"a schema and a hostile number":  {schema, `{"id": 1, "n": 1e999999}`, "", "schema: a number of the payload has an exponent that no schema can be checked against"},
		"a hostile number deep inside":   {schema, `{"id": [{"a": 1e-99999999999999999999}]}`, "", "schema: a number of the payload has an exponent that no schema can be checked against"},
		"a missing variable":             {"variables: {a: payload.a}", `{}`, "", "variable a (payload.a): a field that it reads is missing"},
		"a variable that cannot be":      {"variables: {a: int(payload.a)}", `{"a": "hunter2"}`, "", "variable a (int(payload.a)): it cannot be evaluated for this message"},
		"a name that is missing":         {"message: payload.name", `{}`, "", "message (payload.name): a field that it reads is missing"},
		"a name of no JSON":              {"message: payload.name", `hunter2`, "", "message (payload.name): a field that it reads is missing; the payload is not JSON"},
		"an empty name":                  {"message: payload.name", `{"name": ""}`, "", "message (payload.name): the name is empty"},
		"a name that is too long":        {"message: payload.name", `{"name": "` + strings.Repeat("n", 257) + `"}`, "", "message (payload.name): the name has more than 256 bytes"},
		"a name that is an object":       {"message: payload.name", `{"name": {}}`, "", "message (payload.name): a value has another type than the expression needs"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := router(t, "name: r\n"+c.route).Call("r", message(c.payload), "Order", c.version)
			if c.want == "" {
				if err != nil {
					t.Errorf("got %v", err)
				}
				return
			}
			var contract *ContractError
			if !errors.As(err, &contract) || contract.Detail != c.want || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestARouteThatIsNotThereIsUnknown(t *testing.T) {
	r := router(t, "name: r")
	if _, err := r.Call("other", message("{}"), "", ""); !errors.Is(err, ErrUnknownRoute) || !strings.Contains(err.Error(), `"other"`) {
		t.Errorf("got %v", err)
	}
	if _, ok := r.Lookup("other"); ok {
		t.Error("it is there")
	}
	if route, ok := r.Lookup("r"); !ok || route.Patience != 24*time.Hour || route.Engine != "e" {
		t.Errorf("got %+v", route)
	}
}

func TestAPanicIsADecisionToo(t *testing.T) {
	matched := &route{Route: config.Route{Name: "r"}, texts: []text{{}}}
	for broken, want := range map[*route]Decision{
		nil:     {Order: inbox.OrderNone, Park: inbox.NoRoute, ParkDetail: "routing broke on this message"},
		matched: {Order: inbox.OrderNone, Park: inbox.Contract, ParkDetail: "routing broke on this message", Route: "r"},
	} {
		r := &Router{routes: []*route{broken}}
		if diff := cmp.Diff(want, r.Route(message("{}"))); diff != "" {
			t.Error(diff)
		}
	}
	broken := &route{Route: config.Route{Name: "r", Variables: []config.Variable{{Name: "x"}}}}
	_, err := (&Router{byName: map[string]*route{"r": broken}}).Call("r", message("{}"), "", "")
	if contract := (*ContractError)(nil); !errors.As(err, &contract) || contract.Detail != "the route broke on this message" {
		t.Errorf("got %v", err)
	}
}

func TestAConfigurationBuiltByHandIsCompiled(t *testing.T) {
	route := config.DefaultRoute()
	route.Name, route.Engine, route.Key = "r", "e", config.Expr{Text: "payload.k"}
	route.Message = config.Message{Expr: config.Expr{Text: "payload.m"}}
	r, err := New(&config.Config{Routes: []config.Route{route}})
	if err != nil {
		t.Fatal(err)
	}
	if d := r.Route(message(`{"k": 7}`)); d.Key != "7" {
		t.Errorf("got %+v", d)
	}
	if call, err := r.Call("r", message(`{"m": "M"}`), "", ""); err != nil || call.Message != "M" {
		t.Errorf("got %+v, %v", call, err)
	}
	route.Key.Text = "payload.k +"
	if _, err := New(&config.Config{Routes: []config.Route{route}}); err == nil || !strings.Contains(err.Error(), `route "r": key: Syntax error`) {
		t.Errorf("got %v", err)
	}
}

func TestARouterIsForManyGoroutines(t *testing.T) {
	r := router(t, "name: a\nmatch: payload.kind == \"a\"\nkey: payload.k\nvariables: {k: payload.k}\nschema: {type: object}",
		"name: b\nkey: payload.k\ndedupe: hash([payload.k, payload.kind])\nvariables: {k: payload.k}")
	var wait sync.WaitGroup
	for g := range 8 {
		wait.Go(func() {
			for i := range 50 {
				name := []string{"a", "b"}[i%2]
				in := message(fmt.Sprintf(`{"kind": "%s", "k": %d.50}`, name, g))
				d := r.Route(in)
				call, err := r.Call(d.Route, in, "", "")
				if d.Route != name || d.Key != fmt.Sprintf("%d.5", g) || err != nil || string(call.Variables["k"]) != fmt.Sprintf("%d.50", g) {
					t.Errorf("got %+v, %+v, %v", d, call, err)
				}
			}
		})
	}
	wait.Wait()
}

// TestALargePayloadIsNotHeldTwice: a receive has four times the body for everything.
func TestALargePayloadIsNotHeldTwice(t *testing.T) {
	in := message(`{"items": [` + strings.Repeat(`{"sku": "A-1", "n": 1},`, 200_000) + `{}], "orderId": "4711"}`)
	r := router(t, "name: r\nmatch: payload.orderId != \"\"\nkey: payload.orderId\ndedupe: hash([payload.orderId, attributes.eventId])\ntype: payload.type")
	result := testing.Benchmark(func(b *testing.B) {
		for range b.N {
			if d := r.Route(in); d.Key != "4711" {
				b.Fatalf("got %+v", d)
			}
		}
	})
	if got := result.AllocedBytesPerOp(); got > int64(len(in.Payload))/4 {
		t.Errorf("%d bytes allocated for a payload of %d", got, len(in.Payload))
	}
}

func FuzzRoute(f *testing.F) {
	for _, seed := range []string{`{"k": 9007199254740993, "l": [1, 2.5], "s": 3}`, `{"k": 1e999999999}`, `{"k": {"k": {"k": []}}}`, "", "null", `{"k": "\ud800"}`,
		`[[[[`, `{"k":1,"k":"2"}`, "\xff", `{"l": [[], {}, "", null, true, -0, 1E400]}`} {
		f.Add([]byte(seed), "Order")
	}
	r := router(f, `
name: full
match: attributes.eventType == "Order" && (payload.k != 0.5 || payload.k < 3u || payload.l == [1.5])
type: payload.t
version: payload.k
key: payload.k
dedupe: hash([payload])
order: sequence
sequence: payload.s
message: payload.k
schema: {type: object, properties: {k: {type: [integer, string], minimum: 0.1, multipleOf: 0.5}}}
variables: {k: payload.k, l: "payload.l.map(i, [i, payload.k])", n: payload.k + 1.5, m: "{'p': payload}"}`,
		"name: rest\nkey: payload.l[0]\ndedupe: string(payload.k)\nvariables: {k: payload.k.k, p: payload}")
	f.Fuzz(func(t *testing.T, payload []byte, eventType string) {
		in := Input{MessageID: "1", Subscription: "s", Attributes: map[string]string{"eventType": eventType}, Payload: payload}
		d := r.Route(in)
		if d.ParkDetail == "routing broke on this message" {
			t.Fatal("it panicked")
		}
		if diff := cmp.Diff(d, r.Route(in)); diff != "" {
			t.Fatalf("it decides differently the second time: %s", diff)
		}
		for _, text := range []string{d.Type, d.Version, d.Key, d.DedupeKey, d.ParkDetail} {
			if !utf8.ValidString(text) {
				t.Fatalf("not valid UTF-8: %q", text)
			}
		}
		if len(d.Key) > inbox.MaxKey || len(d.DedupeKey) > inbox.MaxDedupeKey || len(d.Type) > inbox.MaxType || len(d.Version) > inbox.MaxType {
			t.Fatalf("beyond a column: %+v", d)
		}
		if (d.Park == "") != (d.ParkDetail == "") || (d.Park == "" && d.DedupeKey == "") {
			t.Fatalf("got %+v", d)
		}
		for _, route := range []string{"full", "rest"} {
			call, err := r.Call(route, in, "", "")
			if err != nil {
				if contract := (*ContractError)(nil); !errors.As(err, &contract) || strings.Contains(contract.Detail, "broke") {
					t.Fatalf("got %v", err)
				}
				continue
			}
			for name, value := range call.Variables {
				if !json.Valid(value) {
					t.Fatalf("variable %s is not JSON: %q", name, value)
				}
			}
		}
	})
}

func TestAnAttemptSeesTheObjectThatItsMessageRefersTo(t *testing.T) {
	r := router(t, `
name: order
claim: {reference: payload.report, read: true}
message: 'claim.contentType == "text/csv" ? "Table" : "Report"'
variables: {uri: claim.uri, generation: claim.generation, bytes: claim.bytes, sha256: claim.sha256, count: claim.payload.count, lines: size(claim.payload.lines)}`)
	in := message(`{"report": "gs://demo-claims/a b#1796000000000017"}`)
	o, err := r.Claim("order", in)
	if want := (inbox.Object{Bucket: "demo-claims", Name: "a b", Generation: 1796000000000017}); err != nil || o != want || r.Route(in).Claim != want {
		t.Fatalf("it refers to %+v, %v", o, err)
	}
	o.Bytes, o.SHA256 = 40, "abc"
	in.Claim = &Claim{Object: o, ContentType: "text/csv", Content: []byte(`{"count": 9007199254740993, "lines": [1, 2]}`)}
	call, err := r.Call("order", in, "", "")
	want := map[string]json.RawMessage{"uri": json.RawMessage(`"gs://demo-claims/a b#1796000000000017"`), "generation": json.RawMessage(`"1796000000000017"`), "bytes": json.RawMessage("40"),
		"sha256": json.RawMessage(`"abc"`), "count": json.RawMessage("9007199254740993"), "lines": json.RawMessage("2")}
	if diff := cmp.Diff(want, call.Variables); err != nil || diff != "" || call.Message != "Table" {
		t.Errorf("%s, %v\n%s", call.Message, err, diff)
	}
	in.Claim.Content = []byte("no JSON")
	var contract *ContractError
	if _, err := r.Call("order", in, "", ""); !errors.As(err, &contract) || strings.Contains(contract.Detail, "no JSON") {
		t.Errorf("a report that is no JSON: %v", err)
	}
	if _, err := r.Claim("order", message(`{}`)); !errors.As(err, &contract) {
		t.Errorf("without a reference: %v", err)
	}
	if _, err := r.Claim("nowhere", in); !errors.Is(err, ErrUnknownRoute) {
		t.Errorf("an unknown route: %v", err)
	}
}

// Where another source gives the key, or the route reads none of the payload, what the payload is does not matter.
func TestOnlyAKeyThatWantsThePayloadParksWhatIsNotRead(t *testing.T) {
	for key, want := range map[string]string{
		`attributes.eventId`: "e-1",
		`attributes.nothing`: "",
		`has(attributes.eventId) ? attributes.eventId : payload.k`: "e-1",
		`"all"`:                            "all",
		`payload == null ? "" : payload.k`: "",
	} {
		d := router(t, "name: r\nkey: '"+key+"'").Route(message("a,b"))
		if d.Park != "" || d.Key != want {
			t.Errorf("%s: key %q, %s %q, want %q", key, d.Key, d.Park, d.ParkDetail, want)
		}
	}
}

func TestASchemaReadsWhatExpressionsRead(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write([]byte(`{"k": 1}`)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	r := router(t, "name: r\nschema: {type: object, required: [k]}\nvariables: {k: payload.k}")
	for name, in := range map[string]Input{
		"a byte order mark": {Payload: []byte("\ufeff{\"k\": 1}")},
		"gzip":              {Payload: packed.Bytes(), Attributes: map[string]string{"content-encoding": "gzip"}},
	} {
		if call, err := r.Call("r", in, "", ""); err != nil || string(call.Variables["k"]) != "1" {
			t.Errorf("%s: got %s, %v", name, call.Variables, err)
		}
	}
	_, err := r.Call("r", Input{Payload: packed.Bytes(), Attributes: map[string]string{"content-encoding": "br"}}, "", "")
	if contract, ok := err.(*ContractError); !ok || contract.Detail != "schema: the payload has a content encoding that is not read here" {
		t.Errorf("got %v", err)
	}
}
