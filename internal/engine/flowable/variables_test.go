package flowable

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
)

func TestTypes(t *testing.T) {
	digits := strings.Repeat("9", maxDigits+1)
	tests := []struct{ raw, want, gotType, value string }{ // without a value: refused
		{`"a<b>"`, "", "string", `"a<b>"`},
		{`"007"`, "", "string", `"007"`},
		{`7`, "", "integer", `7`},
		{`-2147483648`, "", "integer", `-2147483648`},
		{`2147483648`, "", "long", `2147483648`},
		{`9007199254740993`, "", "long", `9007199254740993`},
		{`9223372036854775808`, "", "bigInteger", `"9223372036854775808"`},
		{`12345678901234567890`, "", "bigInteger", `"12345678901234567890"`},
		{digits, "", "", ``},
		{`1.10`, "", "bigDecimal", `"1.10"`},
		{`0.1000000000000000055`, "", "bigDecimal", `"0.1000000000000000055"`},
		{`1e2`, "", "bigDecimal", `"1e2"`},
		{`1e999999999`, "", "", ``},
		{`1e-999999999`, "", "", ``},
		{`1e99999999999999999999`, "", "", ``},
		{`true`, "", "boolean", `true`},
		{`null`, "", "", `null`},
		{``, "", "", `null`},
		{` [1,"a"] `, "", "json", `[1,"a"]`},
		{`{"a":1.10,"b":12345678901234567890,"c":-0,"d":1e3,"e":0.1}`, "", "json", `{"a":1.10,"b":12345678901234567890,"c":-0,"d":1e3,"e":0.1}`},
		{`{"a":[0.1000000000000000055]}`, "", "", ``},
		{`[1e400]`, "", "", ``},
		{`[1e-400]`, "", "", ``},
		{`[` + digits + `]`, "", "", ``},
		{`{"a":`, "", "", ``},

		{`{"a":0.1000000000000000055}`, "string", "string", `"{\"a\":0.1000000000000000055}"`},
		{`4812`, "string", "string", `"4812"`},
		{`4812`, "long", "long", `4812`},
		{`"4812"`, "long", "long", `4812`},
		{`"007"`, "long", "", ``},
		{`4.0`, "long", "", ``},
		{`4812`, "short", "short", `4812`},
		{`48120`, "short", "", ``},
		{`2147483648`, "integer", "", ``},
		{`true`, "integer", "", ``},
		{`4812`, "bigInteger", "bigInteger", `"4812"`},
		{`4812`, "bigDecimal", "bigDecimal", `"4812"`},
		{`"48.12"`, "bigDecimal", "bigDecimal", `"48.12"`},
		{`"x"`, "bigDecimal", "", ``},
		{`1.5`, "double", "double", `1.5`},
		{`1e400`, "double", "", ``},
		{`1.10`, "double", "double", `1.10`},
		{`9007199254740992`, "double", "double", `9007199254740992`},
		{`9007199254740993`, "double", "", ``},
		{`12345678901234567.89`, "double", "", ``},
		{`"0f8fad5b-d9cb-469f-a165-70867728950e"`, "uuid", "uuid", `"0f8fad5b-d9cb-469f-a165-70867728950e"`},
		{`"not-a-uuid"`, "uuid", "", ``},
		{`"1-1-1-1-1"`, "uuid", "", ``},
		{`7`, "uuid", "", ``},
		{`"1.5"`, "double", "", ``},
		{`"true"`, "boolean", "", ``},
		{`"2026-03-02"`, "localDate", "localDate", `"2026-03-02"`},
		{`20260302`, "localDate", "", ``},
		{`null`, "long", "", `null`},
		{`7`, "json", "json", `7`},
	}
	for _, tt := range tests {
		got, problem := typed(json.RawMessage(tt.raw), tt.want)
		if tt.value == "" {
			if problem == "" {
				t.Errorf("%.60s as %q: got %s %.60s, want a refusal", tt.raw, tt.want, got.Type, got.Value)
			}
			continue
		}
		if problem != "" || got.Type != tt.gotType || string(got.Value) != tt.value {
			t.Errorf("%s as %q: got %s %s (%s), want %s %s", tt.raw, tt.want, got.Type, got.Value, problem, tt.gotType, tt.value)
		}
	}
}

func TestKeys(t *testing.T) {
	tests := []struct{ key, keyType, value string }{ // without a value: none
		{"007", "string", `"007"`}, {"7", "string", `"7"`}, {"7", "integer", `7`}, {"007", "integer", ``}, {"+7", "integer", ``},
		{"-7", "long", `-7`}, {"9007199254740993", "long", `9007199254740993`}, {"9007199254740993", "integer", ``}, {"40000", "short", ``},
		{"", "long", ``}, {"7.0", "long", ``}, {"-0", "long", ``}, {"x", "uuid", ``},
		{"0f8fad5b-d9cb-469f-a165-70867728950e", "uuid", `"0f8fad5b-d9cb-469f-a165-70867728950e"`},
	}
	for _, tt := range tests {
		e := &Engine{config: Config{Correlation: Correlation{Variable: "v", Type: tt.keyType}}}
		got, problem := e.keyVariable(tt.key)
		if ok := problem == nil; ok != (tt.value != "") || ok && (string(got.Value) != tt.value || got.Type != tt.keyType || got.Name != "v") {
			t.Errorf("%q as %s: got %v %+v, want %q", tt.key, tt.keyType, problem, got, tt.value)
		}
	}
}

func TestVariablesOfADelivery(t *testing.T) {
	e := &Engine{}
	set, problem := e.variables(engine.Delivery{InboxID: "i", Payload: []byte(`{"a":1.10}`)})
	if problem != nil || len(set) != 2 || set[0].Name != PayloadVariable || string(set[0].Value) != `"{\"a\":1.10}"` || set[1].Name != "inboxMsg_i" {
		t.Errorf("got %+v %v", set, problem)
	}
	for name, d := range map[string]engine.Delivery{
		"bytes that are no text": {Payload: []byte{0xff}},
		"a marker of its own":    {Variables: map[string]json.RawMessage{"inboxMsg_x": json.RawMessage(`1`)}},
		"no JSON":                {Variables: map[string]json.RawMessage{"x": json.RawMessage(`{`)}},
	} {
		if _, problem := e.variables(d); problem == nil || problem.Verdict != engine.Rejected {
			t.Errorf("%s: got %+v, want Rejected", name, problem)
		}
	}
	if set, problem := e.variables(engine.Delivery{InboxID: "i", Variables: map[string]json.RawMessage{}}); problem != nil || len(set) != 1 {
		t.Errorf("no variables: got %+v %v, want the marker alone", set, problem)
	}
}

// TestTheCorrelationVariableStaysTheKey: a delivery that changed its value or type would make the instance unfindable.
func TestTheCorrelationVariableStaysTheKey(t *testing.T) {
	of := func(keyType string, d engine.Delivery) (string, *engine.Result) {
		e := &Engine{config: Config{Correlation: Correlation{Variable: "workOrderId", Type: keyType}}}
		set, problem := e.variables(d)
		var found []string
		for _, v := range set {
			if v.Name == "workOrderId" {
				found = append(found, v.Type+" "+string(v.Value))
			}
		}
		return strings.Join(found, ", "), problem
	}
	number := map[string]json.RawMessage{"workOrderId": json.RawMessage("4711"), "x": json.RawMessage("1")}
	tests := map[string]struct {
		keyType string
		d       engine.Delivery
		want    string
	}{
		"named by the route":                {"string", engine.Delivery{Key: "4711", Variables: number}, `string "4711"`},
		"of another type":                   {"long", engine.Delivery{Key: "4711", Variables: number}, `long 4711`},
		"not named":                         {"string", engine.Delivery{Key: "4711", Variables: map[string]json.RawMessage{}}, ``},
		"of an instance that is started":    {"string", engine.Delivery{Key: "4711", Start: true, Variables: map[string]json.RawMessage{}}, `string "4711"`},
		"named, and of one that is started": {"string", engine.Delivery{Key: "4711", Start: true, Variables: number}, `string "4711"`},
	}
	for name, tt := range tests {
		if got, problem := of(tt.keyType, tt.d); got != tt.want || problem != nil {
			t.Errorf("%s: got %s %v, want %s", name, got, problem, tt.want)
		}
	}
	if _, problem := of("long", engine.Delivery{Key: "x", Variables: number}); problem == nil || problem.Verdict != engine.Rejected {
		t.Errorf("a key that is not of its type: got %+v, want Rejected", problem)
	}
}

func TestAnEncodedPayloadIsNoText(t *testing.T) {
	e := &Engine{}
	for coding, refused := range map[string]bool{"": false, "br": true} {
		_, problem := e.variables(engine.Delivery{Payload: []byte("a text by accident"), ContentEncoding: coding})
		if (problem != nil) != refused || refused && problem.Code != "PAYLOAD" {
			t.Errorf("%q: %+v", coding, problem)
		}
	}
}
