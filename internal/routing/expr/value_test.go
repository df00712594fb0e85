package expr

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"
)

const sample = `{
	"int": 9007199254740993, "near": 9007199254740992, "uint": 18446744073709551615, "huge": 123456789012345678901234567890,
	"price": 1.10, "one": 1.0, "hundred": 1e2, "exact": 0.1000000000000000055, "tiny": 1E-400, "far": 1E400, "wide": 1e99999999999999999999,
	"minus": -0, "nil": null, "yes": true, "text": "caf\u00e9 <b>", "pair": "\ud83d\ude00", "half": "\ud83d", "low": "a\udc00",
	"list": [1, 2.50, "x", null, [3]], "order": {"z": 1.10, "a": {"id": "4711"}}, "twice": 1, "twice": 2, "empty": "",
	"esc\u0061ped": "yes", "items": [{"sku": "A", "n": 1}, {"sku": "B", "n": 2.5}]
}`

func input(payload string) *Input {
	return NewInput(Message{ID: "17", OrderingKey: "ok", Subscription: "projects/p/subscriptions/s",
		PublishTime: time.Date(2026, 3, 2, 8, 15, 30, 123000000, time.UTC)},
		map[string]string{"eventType": "Order", "ce-id": "MFk-1", "n": "7"}, []byte(payload))
}

func mustCompile(t testing.TB, text string, use Use) *Program {
	t.Helper()
	p, err := Compile(text, use)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return p
}

func TestVariablesAreTheTextsOfThePayload(t *testing.T) {
	for text, want := range map[string]string{
		`payload.int`:      `9007199254740993`,
		`payload.uint`:     `18446744073709551615`,
		`payload.huge`:     `123456789012345678901234567890`,
		`payload.price`:    `1.10`,
		`payload.hundred`:  `1e2`,
		`payload.exact`:    `0.1000000000000000055`,
		`payload.far`:      `1E400`,
		`payload.wide`:     `1e99999999999999999999`,
		`payload.minus`:    `-0`,
		`payload.nil`:      `null`,
		`payload.text`:     `"caf\u00e9 <b>"`,
		`payload.half`:     `"\ud83d"`,
		`payload.list`:     `[1, 2.50, "x", null, [3]]`,
		`payload.list[1]`:  `2.50`,
		`payload["order"]`: `{"z": 1.10, "a": {"id": "4711"}}`,
		`payload.twice`:    `2`,
		`payload.escaped`:  `"yes"`,

		// Computed around it, it stays what it was.
		`[payload.price, payload.int]`:                    `[1.10,9007199254740993]`,
		`{"b": payload.order, "a": payload.far}`:          `{"a":1E400,"b":{"z": 1.10, "a": {"id": "4711"}}}`,
		`payload.list.filter(i, i != "x" && i != null)`:   `[1,2.50,[3]]`,
		`payload.items.map(i, i.n)`:                       `[1,2.5]`,
		`payload.yes ? payload.exact : 0`:                 `0.1000000000000000055`,
		`payload.int + 1`:                                 `9007199254740994`,
		`payload.text + "!"`:                              `"café <b>!"`,
		`payload.pair + ""`:                               `"😀"`,
		`payload.price * 2.0`:                             `2.2`,
		`2.0 - payload.price`:                             `0.9`,
		`-payload.price`:                                  `-1.1`,
		`payload.price / payload.one`:                     `1.1`,
		`payload.price + payload.one`:                     `2.1`,
		`payload.price - payload.one`:                     `0.1`,
		`payload.price * payload.one`:                     `1.1`,
		`string(payload.price)`:                           `"1.10"`,
		`int(payload.price)`:                              `1`,
		`int(payload.hundred)`:                            `100`,
		`int(payload.tiny)`:                               `0`,
		`uint(payload.price)`:                             `1`,
		`double(payload.int)`:                             `9007199254740992`,
		`type(payload.price) == double`:                   `true`,
		`message.publishTime`:                             `"2026-03-02T08:15:30.123Z"`,
		`duration("90s")`:                                 `"90s"`,
		`b"abc"`:                                          `"YWJj"`,
		`message.id + attributes["ce-id"]`:                `"17MFk-1"`,
		`attributes`:                                      `{"ce-id":"MFk-1","eventType":"Order","n":"7"}`,
		`"%s %d".format([payload.price, payload.int])`:    `"1.1 9007199254740993"`,
		`payload.list + [payload.exact]`:                  `[1,2.50,"x",null,[3],0.1000000000000000055]`,
		`["a", "b"].join("-")`:                            `"a-b"`,
		`payload.text.split(" ")`:                         `["café","<b>"]`,
		`18446744073709551615u`:                           `18446744073709551615`,
		`has(payload.nothing) ? payload.nothing : "none"`: `"none"`,
		`payload.items.map(i, i.sku).join(",")`:           `"A,B"`,
	} {
		got, err := mustCompile(t, text, ForVariable).JSON(input(sample))
		if err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v, want %s", text, got, err, want)
		}
		if err == nil && !json.Valid(got) {
			t.Errorf("%s: %s is not JSON", text, got)
		}
	}
}

func TestComparisonsAreExactOnBothSidesAndAtEveryDepth(t *testing.T) {
	for text, want := range map[string]bool{
		`payload.price == 1.1`:                                              true,
		`1.1 == payload.price`:                                              true,
		`1.1 != payload.price`:                                              false,
		`payload.exact == 0.1`:                                              false,
		`0.1 < payload.exact`:                                               true,
		`payload.exact > 0.1`:                                               true,
		`payload.one == 1`:                                                  true,
		`1 == payload.one`:                                                  true,
		`payload.hundred == 100u`:                                           true,
		`100 >= payload.hundred`:                                            true,
		`payload.int == payload.near`:                                       false,
		`payload.int == 9007199254740992.0`:                                 false,
		`payload.near == 9007199254740992.0`:                                true,
		`payload.int > 9007199254740992.0`:                                  true,
		`payload.far > 9223372036854775807`:                                 true,
		`9223372036854775807 < payload.far`:                                 true,
		`payload.far < 1.0 / 0.0`:                                           true,
		`-1.0 / 0.0 < payload.far`:                                          true,
		`payload.tiny > 0`:                                                  true,
		`payload.wide == payload.wide`:                                      true,
		`payload.wide == 1`:                                                 false,
		`payload.minus == 0`:                                                true,
		`payload.price == 0.0 / 0.0`:                                        false,
		`payload.price < 0.0 / 0.0`:                                         false,
		`payload.price in [1.1, 2.0]`:                                       true,
		`payload.price in [2.0]`:                                            false,
		`2.5 in payload.list`:                                               true,
		`"z" in payload.order`:                                              true,
		`"y" in payload.order`:                                              false,
		`[1.1, 1] == [payload.price, payload.one]`:                          true,
		`payload.list == [1, 2.5, "x", null, [3]]`:                          true,
		`[1, 2.5, "x", null, [3]] == payload.list`:                          true,
		`[1] == payload.list`:                                               false,
		`payload.order == {"a": {"id": "4711"}, "z": 1.1}`:                  true,
		`{"a": {"id": "4711"}, "z": 1.1} == payload.order`:                  true,
		`payload.order == {"a": {"id": "4711"}, "y": 1.1}`:                  false,
		`payload.order == {"z": 1.1}`:                                       false,
		`payload.order == payload.list`:                                     false,
		`payload.list == payload.order`:                                     false,
		`payload.price == "1.10"`:                                           false,
		`payload.nil == null`:                                               true,
		`payload.text == "café <b>"`:                                        true,
		`payload.list.size() == 5 && size(payload.order) == 2`:              true,
		`payload.items.exists(i, i.n == 2.5)`:                               true,
		`payload.order.all(k, k in ["a", "z"])`:                             true,
		`payload.list[1.0] == 2.5 && payload.list[int(payload.one)] == 2.5`: true,
		`attributes.eventType == "Order"`:                                   true,
		`attributes.eventType.matches("^O.*r$")`:                            true,
		`message.publishTime > timestamp("2026-01-01T00:00:00Z")`:           true,

		// What has no value does not match.
		`attributes.missing == "x"`:    false,
		`attributes.missing != "x"`:    false,
		`payload.missing.deeper == 1`:  false,
		`payload.text.deeper == 1`:     false,
		`payload.list[99] == 1`:        false,
		`payload.text > 1`:             false,
		`payload.wide > 1`:             false,
		`payload.text`:                 false,
		`payload.half == payload.half`: false,
	} {
		if got := mustCompile(t, text, ForMatch).Bool(input(sample)); got != want {
			t.Errorf("%s: got %t, want %t", text, got, want)
		}
	}
}

func TestKeysAreOneTextForOneValue(t *testing.T) {
	for text, want := range map[string]string{
		`payload.int`: "9007199254740993", `payload.near`: "9007199254740992", `payload.one`: "1", `payload.hundred`: "100",
		`payload.price`: "1.1", `payload.huge`: "123456789012345678901234567890", `payload.far`: "1e400", `payload.minus`: "0",
		`payload.yes`: "true", `1 > 2`: "false", `payload.order.a.id`: "4711", `attributes.n`: "7", `7`: "7", `payload.empty`: "",
		`payload.uint`: "18446744073709551615", `payload.tiny`: "1e-400",
	} {
		if got, err := mustCompile(t, text, ForKey).Key(input(sample)); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestWhatHasNoValueSaysWhyWithoutTheValue(t *testing.T) {
	key := func(p *Program, in *Input) error { _, err := p.Key(in); return err }
	text := func(p *Program, in *Input) error { _, err := p.Text(in); return err }
	sequence := func(p *Program, in *Input) error { _, err := p.Sequence(in); return err }
	variable := func(p *Program, in *Input) error { _, err := p.JSON(in); return err }
	for _, c := range []struct {
		text    string
		eval    func(*Program, *Input) error
		missing bool
		want    string
	}{
		{`payload.nothing`, key, true, "a field that it reads is missing"},
		{`payload.nil`, key, false, ""},
		{`payload.nil.deeper`, key, true, "a field that it reads is missing"},
		{`payload.list[99]`, key, true, "a field that it reads is missing"},
		{`payload.list.nothing`, key, true, "a field that it reads is missing"},
		{`attributes.nothing`, key, true, "a field that it reads is missing"},
		{`payload.list`, key, false, "it is neither a string nor a number nor a bool"},
		{`payload.order`, key, false, "it is neither a string nor a number nor a bool"},
		{`payload.price * 2.0 == 2.2 ? payload.price * 2.0 : 0.0`, variable, false, ""},
		{`payload.wide`, key, false, "a number is out of range"},
		{`payload.half`, key, false, "a text that it reads holds half a character (an unpaired surrogate)"},
		{`payload.low`, key, false, "a text that it reads holds half a character (an unpaired surrogate)"},
		{`dyn(double(payload.price))`, key, false, "it is computed in floating point, which is not exact"},
		{`int(payload.text)`, key, false, "it cannot be evaluated for this message"},
		{`int(payload.far)`, variable, false, "a number is out of range"},
		{`uint(-1)`, variable, false, "a number is out of range"},
		{`payload.far + 1.0`, variable, false, "a number is out of range"},
		{`payload.far + 1`, variable, false, "a number is out of range"},
		{`payload.wide * 1`, variable, false, "a number is out of range"},
		{`payload.price / 0`, variable, false, "it divides by zero"},
		{`payload.int / payload.minus`, variable, false, "it divides by zero"},
		{`payload.int % 0`, variable, false, "it divides by zero"},
		{`payload.price / payload.nil`, variable, false, "a value has another type than the expression needs"},
		{`payload.int / 7.0`, key, false, "it is a quotient that has no end, and so is rounded"},
		{`payload.int / 7.0 * 7.0`, key, false, "it is a quotient that has no end, and so is rounded"},
		{`payload.int / 7.0 / payload.minus`, variable, false, "it divides by zero"},
		{`payload.int / 7.0`, sequence, false, "it is not an integer"},
		{`payload.text - payload.int`, variable, false, "a value has another type than the expression needs"},
		{`payload.order + 1`, variable, false, "a value has another type than the expression needs"},
		{`"%s".format([payload.huge])`, key, false, "a number is out of range"},
		{`"%s".format([payload.exact])`, key, false, "a number is out of range"},
		{`"%s".format([payload.far])`, key, false, "a number is out of range"},
		{`"%s".format([payload.tiny])`, key, false, "a number is out of range"},
		{`"%s".format([{"a": [payload.huge]}])`, key, false, "a number is out of range"},
		{`hash([])`, key, false, "hash() of nothing but empty values would be one key for many messages"},
		{`hash([payload.nil, payload.empty])`, key, false, "hash() of nothing but empty values would be one key for many messages"},
		{`hash([payload.wide])`, key, false, "a number is out of range"},
		{`hash([payload.half])`, key, false, "a text that it reads holds half a character (an unpaired surrogate)"},
		{`hash([payload.nothing])`, key, true, "a field that it reads is missing"},
		{`payload.list`, text, false, "a value has another type than the expression needs"},
		{`payload.nil`, text, true, "it is null"},
		{`payload.text`, sequence, false, "it is not an integer"},
		{`payload.price`, sequence, false, "it is not an integer of 64 bits"},
		{`payload.uint`, sequence, false, "it is not an integer of 64 bits"},
		{`payload.far`, sequence, false, "it is not an integer of 64 bits"},
		{`payload.wide`, sequence, false, "it is not an integer of 64 bits"},
		{`payload.nil`, sequence, true, "it is null"},
		{`payload.nothing`, sequence, true, "a field that it reads is missing"},
		{`1.0 / 0.0`, variable, false, "a number is out of range"},
		{`[payload.half + ""]`, variable, false, "a text that it reads holds half a character (an unpaired surrogate)"},
		{`{1: 2}`, variable, false, "a map has keys that are no strings"},
		{`dyn(int)`, variable, false, "it has no JSON form"},
		{`[type(payload)]`, variable, false, "it has no JSON form"},
	} {
		err := c.eval(mustCompile(t, c.text, ForVariable), input(sample))
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.text, err)
			}
			continue
		}
		var fault *Fault
		if !errors.As(err, &fault) || fault.Reason != c.want || fault.Missing != c.missing {
			t.Errorf("%s: got %#v, want %q, missing %t", c.text, err, c.want, c.missing)
		}
	}
}

func TestSequencesAreIntegersHoweverWritten(t *testing.T) {
	for text, want := range map[string]int64{
		`payload.int`: 9007199254740993, `payload.one`: 1, `payload.hundred`: 100, `payload.minus`: 0, `int(attributes.n)`: 7, `7u`: 7,
	} {
		if got, err := mustCompile(t, text, ForSequence).Sequence(input(sample)); err != nil || got != want {
			t.Errorf("%s: got %d, %v, want %d", text, got, err, want)
		}
	}
}

func TestWhatIsNotJSONIsNull(t *testing.T) {
	null := mustCompile(t, `payload == null`, ForMatch)
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for payload, want := range map[string]bool{
		"": true, "{": true, `{"a":1} x`: true, "eyJhIjoxfQ==": true, "{\"a\":\"\xff\"}": true, "\ufeff{}": false, "\ufeff\ufeff{}": true, "NaN": true, "'a'": true,
		`{"a":1,}`: true, "null": true, " \n{}\t": false, "1": false, `"[[["`: false, deep(MaxDepth): false, deep(MaxDepth + 1): true,
		deep(100000): true,
	} {
		if got := null.Bool(input(payload)); got != want {
			t.Errorf("%.40q: null is %t, want %t", payload, got, want)
		}
	}
	for payload, want := range map[string]string{" 1.10 ": "1.10", "\n[ 1 ]\n": "[ 1 ]", `"x"`: `"x"`} {
		if got, err := mustCompile(t, "payload", ForVariable).JSON(input(payload)); err != nil || string(got) != want {
			t.Errorf("%q: got %s, %v", payload, got, err)
		}
	}
}

func TestAnUnknownPublishTimeIsAbsent(t *testing.T) {
	in := NewInput(Message{ID: "1"}, nil, nil)
	if mustCompile(t, "has(message.publishTime)", ForMatch).Bool(in) {
		t.Error("it is there")
	}
	if !mustCompile(t, "!has(message.publishTime) && !has(attributes.x)", ForMatch).Bool(in) {
		t.Error("it is there")
	}
}

func TestAnEvaluationThatTakesTooMuchWorkEnds(t *testing.T) {
	payload := "[" + strings.Repeat("1,", 5000) + "1]"
	_, err := mustCompile(t, "payload.all(a, payload.all(b, payload.all(c, c == b || c == a)))", ForVariable).JSON(input(payload))
	if err == nil || err.Error() != "it takes too much work for this message" {
		t.Errorf("got %v", err)
	}
	_, err = mustCompile(t, "payload.map(a, payload)", ForVariable).JSON(input(payload))
	if err == nil || err.Error() != "its JSON form is too large" {
		t.Errorf("got %v", err)
	}
}

func TestAProgramIsForManyGoroutines(t *testing.T) {
	p := mustCompile(t, `payload.items.filter(i, i.n == 2.5).map(i, i.sku)[0] + hash([payload.int])`, ForKey)
	want, err := p.Key(input(sample))
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for range 50 {
				if got, err := p.Key(input(sample)); err != nil || got != want {
					t.Errorf("got %q, %v", got, err)
				}
			}
		})
	}
	wait.Wait()
}

func TestAProgramKnowsWhatItReads(t *testing.T) {
	for text, want := range map[string]string{
		`attributes.a`:                      `attributes["a"]`,
		`string(attributes["a"])`:           `attributes["a"]`,
		`payload.a.b[0]["c"] + payload.a.b`: `payload["a"]["b"][0]["c"] payload["a"]["b"]`,
		`has(payload.a) ? payload.a : "x"`:  `payload payload["a"]`,
		`payload.l.map(i, i.x)`:             `payload["l"]`,
		`1 + 1`:                             ``,
		`[1].map(payload, payload)`:         ``,
		`payload.l.map(payload, payload.x)`: `payload["l"]`,
		`[1].map(payload, .payload.x)`:      `payload["x"]`,
		`payload.l.all(attributes, attributes.a == 1) && attributes.b == "c"`: `payload["l"] attributes["b"]`,
		`[[1]].map(payload, payload.map(x, payload))`:                         ``,
		`[1].exists_one(message, message == 1) ? message.id : ""`:             `message["id"]`,
	} {
		p := mustCompile(t, text, ForVariable)
		if got := strings.Join(p.Reads(), " "); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
		for _, name := range []string{"message", "attributes", "payload"} {
			if got, want := p.Refers(name), strings.Contains(want, name); got != want {
				t.Errorf("%s: refers to %s is %t", text, name, got)
			}
		}
		if p.Constant() != (want == "") {
			t.Errorf("%s: constant is %t", text, p.Constant())
		}
	}
}
