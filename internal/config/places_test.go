package config

import (
	"strings"
	"testing"
)

// TestAnExpressionsFaultStandsWhereItsTextDoes: each case names the first route's line of the minimal configuration and
// after, so that its own first line is line 8.
func TestAnExpressionsFaultStandsWhereItsTextDoes(t *testing.T) {
	for name, c := range map[string]struct{ yaml, want string }{
		"plain":                        {"    key: payload.a + nope\n", "8:22: routes[0].key: undeclared reference to 'nope'"},
		"plain, not ASCII":             {"    key: '\"ä\" + nope'\n", "8:17: routes[0].key: undeclared reference to 'nope'"},
		"double quoted":                {"    key: \"payload.a + nope\"\n", "8:23: routes[0].key: undeclared reference to 'nope'"},
		"single quoted":                {"    key: 'payload.a + nope'\n", "8:23: routes[0].key: undeclared reference to 'nope'"},
		"a block":                      {"    key: |\n      payload.a\n        + nope\n", "10:11: routes[0].key: undeclared reference to 'nope'"},
		"a block with an indicator":    {"    key: |-\n        payload.a + nope\n", "9:21: routes[0].key: undeclared reference to 'nope'"},
		"folded: its beginning":        {"    key: >\n      payload.a\n      + nope\n", "8:10: routes[0].key: undeclared reference to 'nope'"},
		"in a flow map":                {"    variables: {a: payload.a, b: payload.a + nope}\n", "8:46: routes[0].variables.b: undeclared reference to 'nope'"},
		"a syntax error":               {"    match: payload.a = 1\n", "8:22: routes[0].match: Syntax error"},
		"an unknown field of message":  {"    key: message.orderKey\n", `8:17: routes[0].key: message has no "orderKey"; it has id, publishTime, orderingKey, subscription`},
		"a constant without quotes":    {"    type: WorkOrder\n", `8:11: routes[0].type: undeclared reference to 'WorkOrder'; expressions see message, attributes, payload and hash(), those of message and variables also claim, and a constant text needs quotes of its own, as in '"Order"'`},
		"a match that is no bool":      {"    match: attributes.a\n", "8:12: routes[0].match: the result is string; a match needs a bool"},
		"a sequence of text":           {"    order: sequence\n    sequence: attributes.revision\n", "9:15: routes[0].sequence: the result is string; a sequence needs an integer, such as int(attributes.revision)"},
		"a key that is a list":         {"    key: '[payload.a, payload.b]'\n", "8:11: routes[0].key: the result is list(dyn); a key needs a string, an integer or a bool; use hash([...]) for several values"},
		"a dedupe key that is a list":  {"    dedupe: '[payload.a]'\n", "8:14: routes[0].dedupe: the result is list(dyn)"},
		"a type that is a map":         {"    type: attributes\n", "8:11: routes[0].type: the result is map(string, string), which has no text"},
		"a variable that is a type":    {"    variables: {a: type(payload)}\n", "8:20: routes[0].variables.a: a type is no value"},
		"an expression that is a list": {"    key: [payload.a]\n", "8:5: routes[0].key: this must be a CEL expression, not a list"},
		"an empty expression":          {"    key: ''\n", "8:5: routes[0].key: this must be a CEL expression"},
		"an expression beyond reason":  {"    key: '" + strings.Repeat("a+", 5000) + "a'\n", "8:11: routes[0].key: the expression is longer than 8192 bytes"},
		"nesting beyond reason":        {"    key: '" + strings.Repeat("(", 500) + "1" + strings.Repeat(")", 500) + "'\n", "routes[0].key: "},
		"a wrong pattern":              {"    match: attributes.a.matches('(')\n", "8:12: routes[0].match: error parsing regexp"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := Parse("f.yaml", []byte(minimal+c.yaml))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got\n%v\nwant\n%s", err, c.want)
			}
		})
	}
}

func TestAMessageIsAnExpressionExactlyIfItRefersToTheMessage(t *testing.T) {
	for text, literal := range map[string]bool{
		`WorkOrderCompleted`:                    true,
		`"work order completed"`:                true,
		`order-message.created`:                 true,
		`my.payload.received`:                   true,
		`payload`:                               true,
		`message`:                               true,
		`123`:                                   true,
		`attributes.eventType`:                  false,
		`'attributes["ce-type"]'`:               false,
		`"'Order' + payload.kind"`:              false,
		`message.orderingKey`:                   false,
		`"payload.a ? 'X' : 'Y'"`:               false,
		`"'message.created'"`:                   false,
		`"size(payload.items) > 1 ? 'M' : 'S'"`: false,
	} {
		cfg, _, err := Parse("f.yaml", []byte(replace(t, minimal, "OrderCompleted", text)))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		message := cfg.Routes[0].Message
		if got := message.Literal != ""; got != literal || message.Expr.Absent() != literal {
			t.Errorf("%s: got %+v, want literal %t", text, message, literal)
		}
	}
	for text, want := range map[string]string{
		`message.created`:    `message has no "created"`,
		`payload.a b`:        "Syntax error",
		`'Order payload.id'`: "quotes of its own, as in '\"message.created\"'",
	} {
		_, _, err := Parse("f.yaml", []byte(replace(t, minimal, "OrderCompleted", text)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

func TestVariablesThatAreEmptyAreNotAbsent(t *testing.T) {
	for yaml, want := range map[string]bool{"": true, "    variables:\n": true, "    variables: {}\n": false} {
		cfg, _, err := Parse("f.yaml", []byte(minimal+yaml))
		if err != nil {
			t.Fatal(err)
		}
		if got := cfg.Routes[0].Variables == nil; got != want {
			t.Errorf("%q: nil is %t, want %t", yaml, got, want)
		}
	}
}

func TestVersionsAreTheTextsOfTheFile(t *testing.T) {
	cfg, _, err := Parse("f.yaml", []byte(minimal+"    version: attributes.v\n    versions: [1, 1.10, \"2\", true]\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(cfg.Routes[0].Versions, " "); got != "1 1.10 2 true" {
		t.Errorf("got %q", got)
	}
}
