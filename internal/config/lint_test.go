package config

import (
	"strings"
	"testing"
)

func TestWarningsNameWhatWorksAndIsProbablyNotMeant(t *testing.T) {
	const engine = `  flow: {kind: http, url: "https://flow.example/messages", idempotent: true}`
	for name, c := range map[string]struct{ old, new, want string }{
		"C026 the dedupe key is the key":        {"    engine: flow", "    key: attributes.buildId\n    dedupe: attributes.buildId\n    engine: flow", "7:5: routes[0].dedupe: the dedupe key has no event-specific part: it reads what the key reads"},
		"C026 the same field in other spelling": {"    engine: flow", "    key: attributes.buildId\n    dedupe: string(attributes[\"buildId\"])\n    engine: flow", "7:5: routes[0].dedupe: the dedupe key has no event-specific part"},
		"C026 a part of a composed key":         {"    engine: flow", "    key: hash([payload.a, payload.b])\n    dedupe: payload.a\n    engine: flow", "routes[0].dedupe: the dedupe key has no event-specific part"},
		"C026 a constant dedupe key":            {"    engine: flow", "    dedupe: '\"x\"'\n    engine: flow", "6:5: routes[0].dedupe: the dedupe key is the same for every message"},
		"C026 the ordering key":                 {"    engine: flow", "    dedupe: message.orderingKey\n    engine: flow", "6:5: routes[0].dedupe: the dedupe key has no event-specific part: what it reads is no event's own"},
		"a scope without dedupe":                {"    engine: flow", "    scope: consumer\n    engine: flow", "6:5: routes[0].scope: scope says where a dedupe key is unique; without dedupe"},
		"a constant key":                        {"    engine: flow", "    key: '\"all\"'\n    engine: flow", "6:5: routes[0].key: the key is the same for every message: one strict order over everything"},
		"block without a key":                   {"    engine: flow", "    parked: block\n    engine: flow", "6:5: routes[0].parked: without a key and an order"},
		"an unreachable route":                  {"    message: OrderCompleted", "    message: A\n  - {name: b, engine: flow, message: B}", "8:6: routes[1]: no message reaches this route: routes[0] before it matches every one"},
		"an unreachable route after true":       {"    message: OrderCompleted", "    message: A\n    match: '1 < 2'\n  - {name: b, engine: flow, message: B}", "9:6: routes[1]: no message reaches this route"},
		"two orders in one key space":           {"    engine: flow", "    match: attributes.a == 'x'\n    key: payload.a\n    engine: flow\n    message: A\n  - name: b\n    key: payload.a\n    order: received\n    engine: flow", "12:5: routes[1].order: routes[0] orders the same keys by published"},
		"a probe that kind http does not have":  {engine, `  flow: {kind: http, url: "https://flow.example", idempotent: true, probe: true}`, "engines.flow.probe: an engine of kind http cannot be asked"},
		"neither idempotent nor probe":          {engine, `  flow: {kind: http, url: "https://flow.example"}`, "3:3: engines.flow: neither idempotent nor probe"},
		"credentials over plain http":           {engine, `  flow: {kind: http, url: "http://flow.example", idempotent: true, auth: {kind: bearer, tokenEnv: T}}`, "3:22: engines.flow.url: the credentials go over plain http"},
		"an engine that nobody uses":            {engine, engine + "\n" + strings.Replace(engine, "flow:", "unused:", 1), "4:3: engines.unused: no route uses this engine"},
		"a constant key of a bound name":        {"    engine: flow", "    key: '[1].map(payload, payload + 1)[0]'\n    engine: flow", "6:5: routes[0].key: the key is the same for every message"},
		"a dedupe key of the key's part and a bound name": {"    engine: flow", "    key: payload.a\n    dedupe: hash([payload.a] + ['b'].map(attributes, attributes))\n    engine: flow",
			"7:5: routes[0].dedupe: the dedupe key has no event-specific part"},
		"a quotient of what may be whole":            {"    engine: flow", "    key: payload.ms / 1000\n    engine: flow", "6:21: routes[0].key: this division has no fraction where both numbers are whole"},
		"such a quotient in a block":                 {"    engine: flow", "    key: |\n      payload.a\n        / payload.b\n    engine: flow", "8:9: routes[0].key: this division has no fraction"},
		"such a quotient in a message name":          {"OrderCompleted", "'payload.a / 2 > 1 ? \"A\" : \"B\"'", "7:25: routes[0].message: this division has no fraction"},
		"the same match twice":                       {"    message: OrderCompleted", "    match: payload.a  == 1\n    message: A\n  - {name: b, match: payload.a == 1, engine: flow, message: B}", "9:15: routes[1].match: no message reaches this route: routes[0] has the same match, and is before it"},
		"a variable of the shell's":                  {"    engine: flow", "    keySpace: ${SPACE}\n    engine: flow", "6:15: routes[0].keySpace: nothing is filled in here: ${...} stands as it is"},
		"a name that would do as a text":             {"OrderCompleted", "'\"OrderCompleted\"'", "7:14: routes[0].message: this goes out as it stands"},
		"a name that would do as one, single":        {"OrderCompleted", "\"'OrderCompleted'\"", "7:14: routes[0].message: this goes out as it stands"},
		"a name that reads the message":              {"OrderCompleted", "string(payload)", "7:14: routes[0].message: this goes out as it stands"},
		"a text of a number in a key":                {"    engine: flow", "    key: string(payload.a) + '/' + payload.b\n    engine: flow", "6:16: routes[0].key: the text of a number is as the publisher wrote it"},
		"a text of a number in a match":              {"    engine: flow", "    match: payload.x || string(payload.code) == '7'\n    engine: flow", "6:31: routes[0].match: the text of a number"},
		"a pause longer than a run":                  {"routes:", "relay: {poll: 51s}\nroutes:", "4:9: relay.poll: the pause between two scans is longer than a run (50s)"},
		"a batch smaller than parallel":              {"routes:", "relay: {batch: 8}\nroutes:", "4:9: relay.batch: a claim of 8 messages cannot keep 16 lanes at work"},
		"C034 a lease shorter than a run and a call": {"routes:", "relay: {lease: 59s}\nroutes:", "4:9: relay.lease: the lease is shorter than a whole run and one call (1m)"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, warnings, err := Parse("f.yaml", []byte(replace(t, minimal, c.old, c.new)))
			if err != nil {
				t.Fatal(err)
			}
			if len(warnings) != 1 || !strings.Contains(warnings[0].String(), "f.yaml:") || !strings.Contains(warnings[0].String(), c.want) {
				t.Errorf("got %v, want only %q", warnings, c.want)
			}
			if len(cfg.Warnings) != len(warnings) {
				t.Errorf("the configuration has %d warnings, want %d", len(cfg.Warnings), len(warnings))
			}
		})
	}
}

func TestWhatIsMeantIsNotWarnedOf(t *testing.T) {
	for name, lines := range map[string]string{
		"C026 the key and the status":                  "    key: attributes.buildId\n    dedupe: hash([attributes.buildId, attributes.status])\n",
		"C011 an event id":                             "    key: payload.orderId\n    dedupe: attributes.eventId\n",
		"the key or the event id":                      "    key: attributes.a\n    dedupe: \"has(attributes.e) ? attributes.e : attributes.a\"\n",
		"a quotient of what is known":                  "    variables: {a: 'int(payload.a) / 2', b: payload.a / 2.0, c: double(payload.a) / payload.b, d: 3 / 2}\n",
		"a text of what is none, or of no consequence": "    key: string(attributes.a) + string(message.publishTime)\n    type: string(payload.a)\n",
		"a text by value":                              "    key: '\"%s/%s\".format([payload.a, payload.b])'\n",
		"two orders in two spaces": "    match: attributes.a == 'x'\n    key: payload.a\n  - name: b\n    key: payload.a\n    keySpace: b\n" +
			"    order: received\n    engine: flow\n    message: B\n",
		"no order beside one": "    match: attributes.a == 'x'\n    key: payload.a\n  - name: b\n    key: payload.a\n    order: none\n" +
			"    engine: flow\n    message: B\n",
	} {
		if _, warnings, err := Parse("f.yaml", []byte(minimal+lines)); err != nil || len(warnings) > 0 {
			t.Errorf("%s: got %v, %v", name, err, warnings)
		}
	}
}

func TestALongTimeoutIsWarnedOfWhereTheEngineIsNotIdempotent(t *testing.T) {
	_, warnings, err := Parse("f.yaml", []byte(replace(t, minimal, `  flow: {kind: http, url: "https://flow.example/messages", idempotent: true}`, `  flow: {kind: http, url: "https://flow.example", timeout: 31s}`)))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range warnings {
		if strings.Contains(w.String(), "engines.flow.timeout: a call cut off after 31s may have had its effect") {
			return
		}
	}
	t.Errorf("got %v, want one of the timeout", warnings)
}

func TestANameThatAMacroBindsIsNotTheOuterOne(t *testing.T) {
	for name, lines := range map[string]string{
		"an element called message": "    key: payload.messages.map(message, message.text)[0]\n",
		"an element called claim":   "    key: payload.claims.filter(claim, claim.open)[0].id\n",
		"a claim in variables":      "    variables: {ids: 'payload.claims.map(claim, claim.id)'}\n",
	} {
		if _, warnings, err := Parse("f.yaml", []byte(minimal+lines)); err != nil || len(warnings) > 0 {
			t.Errorf("%s: got %v, %v", name, err, warnings)
		}
	}
	for lines, want := range map[string]string{
		"    key: payload.l.map(message, .message.text)[0]\n":      `routes[0].key: message has no "text"`,
		"    key: claim.uri + payload.l.map(claim, claim.id)[0]\n": "routes[0].key: claim is known only when an attempt is made",
		"    key: payload.l.map(claim, .claim.uri)[0]\n":           "routes[0].key: claim is known only when an attempt is made",
		"    key: claim.uris.map(claim, claim)[0]\n":               `routes[0].key: claim has no "uris"`,
	} {
		if _, _, err := Parse("f.yaml", []byte(minimal+lines)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", lines, err, want)
		}
	}
}
