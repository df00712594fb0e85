package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEachFaultHasItsPlaceAndSaysWhatToDo(t *testing.T) {
	for name, c := range map[string]struct{ old, new, want string }{
		"no consumer":                         {"consumer: orders\n", "", "1:1: consumer: the configuration needs a consumer"},
		"an empty consumer":                   {"consumer: orders", "consumer:", "1:1: consumer: the configuration needs a consumer"},
		"a consumer with a space":             {"consumer: orders", "consumer: or ders", `1:1: consumer: "or ders" is no name`},
		"a consumer that is a list":           {"consumer: orders", "consumer: [a]", "1:1: consumer: this must be a text, not a list"},
		"a consumer longer than its column":   {"consumer: orders", "consumer: " + strings.Repeat("x", 129), "1:1: consumer: the consumer's name has 129 bytes; its column holds 128"},
		"an unknown setting":                  {"consumer: orders", "konsumer: orders", `1:1: konsumer: there is no setting "konsumer" here; did you mean "consumer"?`},
		"an unknown setting like none":        {"    parked: block", "    colour: red", `30:5: routes[0].colour: there is no setting "colour" here; there are aggregateType, causationId,`},
		"a setting twice":                     {"    scope: consumer", "    scope: consumer\n    scope: consumer", `22:5: "scope" is here twice, first in line 21; remove one`},
		"an anchor":                           {"    parked: block", "    parked: &a block", "30:13: routes[0].parked: anchors, aliases and tags are not read here"},
		"a merge":                             {"    parked: block", "    <<: {parked: block}", "30:5: merges and computed keys are not read here"},
		"a tag":                               {"    parked: block", "    parked: !!str block", "30:13: routes[0].parked: anchors, aliases and tags are not read here"},
		"engines that are a list":             {"engines:\n  flow:\n    kind: http", "engines: []\nx:\n  flow:\n    kind: http", "2:1: engines: this must be a map, not a list"},
		"an engine name with a slash":         {"  flow:", "  fl/ow:", `3:3: engines.fl/ow: "fl/ow" is no name for the engine`},
		"an engine name longer than a column": {"  flow:", "  " + strings.Repeat("x", 129) + ":", "the engine's name has 129 bytes; its column holds 128"},
		"an engine without a kind":            {"    kind: http\n", "", "3:3: engines.flow.kind: the engine needs a kind"},
		"an engine of unknown kind":           {"kind: http", "kind: htpp", `4:5: engines.flow.kind: there is no engine of kind "htpp"; there are http, flowable`},
		"an engine without a URL":             {`    url: "https://flow.example/messages"` + "\n", "", "3:3: engines.flow.url: the engine needs an absolute URL"},
		"a relative URL":                      {`url: "https://flow.example/messages"`, "url: /messages", "5:5: engines.flow.url: this must be an absolute http or https URL with a host"},
		"a URL without a host":                {`url: "https://flow.example/messages"`, `url: "https:///x"`, "5:5: engines.flow.url: this must be an absolute"},
		"a URL of another scheme":             {`url: "https://flow.example/messages"`, `url: "ftp://flow.example"`, "5:5: engines.flow.url: this must be an absolute"},
		"a URL with a password":               {`url: "https://flow.example/messages"`, `url: "https://u:p@flow.example"`, "5:5: engines.flow.url: secrets do not belong into this file"},
		"a URL with a fragment":               {`url: "https://flow.example/messages"`, `url: "https://flow.example/#x"`, "5:5: engines.flow.url: a fragment"},
		"a timeout of zero":                   {"timeout: 10s", "timeout: 0s", "6:5: engines.flow.timeout: the timeout must be longer than zero"},
		"a timeout without a unit":            {"timeout: 10s", "timeout: 10", `6:5: engines.flow.timeout: "10" is not a duration`},
		"a timeout that is a map":             {"timeout: 10s", "timeout: {a: 1}", "6:5: engines.flow.timeout: this must be a duration"},
		"idempotent neither true nor false":   {"idempotent: true", "idempotent: maybe", "7:5: engines.flow.idempotent: this must be true or false"},
		"probe neither true nor false":        {"probe: false", "probe: 1", "8:5: engines.flow.probe: this must be true or false"},
		"an answer limit of zero":             {"maxAnswerBytes: 4096", "maxAnswerBytes: 0", "9:5: engines.flow.maxAnswerBytes: this must be from 1 to"},
		"an answer limit in words":            {"maxAnswerBytes: 4096", "maxAnswerBytes: 4k", "9:5: engines.flow.maxAnswerBytes: this must be a whole number"},
		"an unknown auth":                     {"{kind: oidc, audience", "{kind: ntlm, audience", `10:12: engines.flow.auth.kind: there is no auth of kind "ntlm"`},
		"oidc without an audience":            {`{kind: oidc, audience: "https://flow.example"}`, "{kind: oidc}", "10:5: engines.flow.auth.audience: auth of kind oidc needs audience"},
		"basic without a user":                {`{kind: oidc, audience: "https://flow.example"}`, "{kind: basic, passwordEnv: P}", "10:5: engines.flow.auth.username: auth of kind basic needs username"},
		"basic without a password":            {`{kind: oidc, audience: "https://flow.example"}`, "{kind: basic, username: u}", "10:5: engines.flow.auth.passwordEnv: auth of kind basic needs passwordEnv"},
		"bearer without a token":              {`{kind: oidc, audience: "https://flow.example"}`, "{kind: bearer}", "10:5: engines.flow.auth.tokenEnv: auth of kind bearer needs tokenEnv"},
		"a token with oidc":                   {`{kind: oidc, audience`, "{kind: oidc, tokenEnv: T, audience", "10:24: engines.flow.auth.tokenEnv: auth of kind oidc has no use for tokenEnv"},
		"a password in the file":              {`{kind: oidc, audience: "https://flow.example"}`, "{kind: basic, username: u, password: x}", `did you mean "passwordEnv"?`},
		"a secret instead of its variable":    {`{kind: oidc, audience: "https://flow.example"}`, `{kind: bearer, tokenEnv: "a-b.c"}`, "10:26: engines.flow.auth.tokenEnv: this must be the name of an environment variable"},
		"a header that holds a secret":        {"{X-Source: inbox}", "{Authorization: x}", "11:15: engines.flow.headers.Authorization: secrets do not belong into this file"},
		"a header of the transport":           {"{X-Source: inbox}", "{Host: x}", "11:15: engines.flow.headers.Host: Host is set by the transport"},
		"a header with a space":               {"{X-Source: inbox}", `{"X Source": x}`, `11:15: engines.flow.headers.X Source: "X Source" is no name for a header`},
		"a header with a line break":          {"{X-Source: inbox}", `{X-Source: "a\nb"}`, "11:15: engines.flow.headers.X-Source: the header's value holds a control character"},
		"a status that is none":               {`{"409": already_through}`, `{"999": drop}`, `12:16: engines.flow.statuses.999: "999" is no HTTP status`},
		"a verdict that is none":              {`{"409": already_through}`, `{409: great}`, `12:16: engines.flow.statuses.409: "great" is no verdict`},
		"a verdict that was never sent":       {`{"409": already_through}`, `{409: not_started}`, `"not_started" is no verdict`},
		"no routes":                           {"routes:\n  - name: completed", "routes: []\nx:\n  - name: completed", "13:1: routes: the configuration needs at least one route"},
		"routes that are a map":               {"routes:\n  - name: completed\n", "routes:\n    name: completed\n", "13:1: routes: this must be a list, not a map"},
		"a route without a name":              {"  - name: completed\n    match", "  - match", "14:5: routes[0].name: the route needs a name"},
		"a route name with a space":           {"name: completed", "name: com pleted", `14:5: routes[0].name: "com pleted" is no name`},
		"a route name longer than a column":   {"name: completed", "name: " + strings.Repeat("x", 129), "14:5: routes[0].name: the route's name has 129 bytes"},
		"a route without an engine":           {"    engine: flow\n", "", "14:5: routes[0].engine: the route needs an engine"},
		"a route to no engine":                {"engine: flow", "engine: flaw", `24:5: routes[0].engine: there is no engine "flaw"; there are flow`},
		"a route without a message":           {"    message: OrderCompleted\n", "", "14:5: routes[0].message: the route needs a message"},
		"a message that is a list":            {"message: OrderCompleted", "message: [a]", "25:5: routes[0].message: this must be the engine's name"},
		"a message name that is too long":     {"message: OrderCompleted", "message: " + strings.Repeat("x", 257), "25:5: routes[0].message: the message's name has more than 256 bytes"},
		"an unknown scope":                    {"scope: consumer", "scope: world", "21:5: routes[0].scope: this must be one of subscription, consumer"},
		"an unknown order":                    {"order: sequence", "order: random", "22:5: routes[0].order: this must be one of published, received, sequence, none"},
		"order sequence without a sequence":   {"    sequence: payload.revision\n", "", "22:5: routes[0].order: order: sequence needs a sequence"},
		"a sequence without order sequence":   {"order: sequence", "order: received", "23:5: routes[0].sequence: a sequence decides nothing with order: received"},
		"a long key space":                    {"keySpace: orders", "keySpace: " + strings.Repeat("x", 129), "19:5: routes[0].keySpace: the key space has more than 128 bytes"},
		"versions without a version":          {"    version: attributes.version\n", "", "26:5: routes[0].versions: versions needs a version"},
		"an empty list of versions":           {`versions: ["1"]`, `versions: []`, "27:5: routes[0].versions: an empty list accepts no version"},
		"a version that no column holds":      {`versions: ["1"]`, `versions: [` + strings.Repeat("1", 257) + `]`, "27:16: routes[0].versions[0]: a version has at most 256 bytes"},
		"a variable without a name":           {"{items: payload.items}", `{"": payload.items}`, "26:5: routes[0].variables: a variable needs a name"},
		"variables that are a list":           {"{items: payload.items}", "[items]", "26:5: routes[0].variables: this must be a map, not a list"},
		"negative patience":                   {"patience: 24h", "patience: -1s", "28:5: routes[0].patience: patience must not be negative"},
		"C041 retry.min of zero":              {"retry: {min: 10s", "retry: {min: 0s", "29:13: routes[0].retry.min: retry.min must be longer than zero"},
		"C041 retry.min over retry.max":       {"retry: {min: 10s", "retry: {min: 20m", "29:5: routes[0].retry: retry.min (20m) must not be longer than retry.max (10m)"},
		"C041 retry.max of a month":           {"max: 10m}", "max: 30d}", "29:23: routes[0].retry.max: retry.max must not be longer than 7d"},
		"an unknown way to park":              {"parked: block", "parked: stop", "30:5: routes[0].parked: this must be one of pass, block"},
		"C051 dedupe memory too short":        {"processed: 75d", "processed: 7d", "31:13: retention.processed: 7d is shorter than the sum of waysBack (69d): a message could come back"},
		"payload longer than its row":         {"payload: 14d", "payload: 80d", "31:29: retention.payload: 80d is longer than retention.processed (75d)"},
		"a negative way back":                 {"replay: 7d", "replay: -7d", "retention.waysBack.replay: this must not be negative"},
		"a retention beyond any":              {"processed: 75d", "processed: 99999d", "retention.processed: this must not be longer than 3660d"},
		"a way back beyond any":               {"replay: 7d", "replay: 99999d", "retention.waysBack.replay: this must not be longer than 3660d"},
		"C034 a lease too short":              {"lease: 90s", "lease: 21s", `relay.lease: 21s is too short for the engine "flow": a claim may take a quarter of the lease, and a call starts only while the lease has twice its timeout (10s) left; make the lease 27s or longer`},
		"C034 a timeout too long":             {"timeout: 10s", "timeout: 45s", "relay.lease: 1m30s is too short"},
		"a lease of zero":                     {"lease: 90s", "lease: 0s", "relay.lease: this must be longer than zero"},
		"a URL of the shell's":                {"https://flow.example/messages", "${FLOW_URL}", "5:5: engines.flow.url: nothing is filled in here: ${...} stands as it is; write the URL out"},
		"a budget of zero":                    {"budget: 50s", "budget: 0s", "32:9: relay.budget: this must be longer than zero"},
		"a budget of a day":                   {"budget: 50s", "budget: 24h", "32:9: relay.budget: a run must not be longer than an hour"},
		"a poll of zero":                      {"poll: 1s", "poll: 0s", "32:22: relay.poll: this must be longer than zero"},
		"parallel zero":                       {"parallel: 16", "parallel: 0", "32:32: relay.parallel: this must be from 1 to 1000"},
		"parallel 1001":                       {"parallel: 16", "parallel: 1001", "32:32: relay.parallel: this must be from 1 to 1000"},
		"batch zero":                          {"batch: 100", "batch: 0", "32:46: relay.batch: this must be from 1 to 500"},
		"batch 501":                           {"batch: 100", "batch: 501", "Spanner takes 80,000 mutations in one"},
		"batch in words":                      {"batch: 100", "batch: many", "32:46: relay.batch: this must be a whole number"},
		"poison after no failure":             {"failures: 20", "failures: 0", "relay.poison.failures: this must be at least 1"},
		"poison over no time":                 {"over: 24h", "over: 0s", "relay.poison.over: this must be longer than zero"},
		"no lost worker":                      {"lostWorkers: 5", "lostWorkers: 0", "relay.lostWorkers: this must be at least 1"},
		"a breaker after no failure":          {"breaker: {failures: 5}", "breaker: {failures: 0}", "relay.breaker.failures: this must be at least 1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := Parse("f.yaml", []byte(replace(t, full, c.old, c.new)))
			var faults Faults
			if !errors.As(err, &faults) {
				t.Fatalf("got %v, want Faults", err)
			}
			for _, fault := range faults {
				if strings.Contains(fault.String(), c.want) {
					return
				}
			}
			t.Errorf("got\n%v\nwant %q", err, c.want)
		})
	}
}

func TestTheConfigurationThatIsBrokenAboveIsValid(t *testing.T) {
	if _, warnings, err := Parse("f.yaml", []byte(full)); err != nil || len(warnings) > 0 {
		t.Errorf("got %v, %v", err, warnings)
	}
}

func TestAllFaultsComeAtOnceInTheOrderOfTheFile(t *testing.T) {
	_, _, err := Parse("f.yaml", []byte(`consumer: a b
engines:
  flow: {kind: htp, url: x, timeout: 0s}
routes:
  - name: r
    match: payload.a +
    key: nope
    engine: other
    message: payload.x + zz
  - name: r
relay: {batch: 0}
retention: {processed: 1d}
`))
	var faults Faults
	if !errors.As(err, &faults) {
		t.Fatal(err)
	}
	var got []string
	for _, fault := range faults {
		got = append(got, fault.Path)
	}
	want := "consumer engines.flow.kind engines.flow.url engines.flow.timeout routes[0].match routes[0].key routes[0].engine " +
		"routes[0].message routes[1].engine routes[1].message routes[1].name relay.batch retention.payload retention.processed"
	if strings.Join(got, " ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, " "), want)
	}
	for i, fault := range faults {
		if fault.Line == 0 || fault.Column == 0 || strings.Contains(fault.Message, "\n") {
			t.Errorf("fault %d: %s", i, fault)
		}
	}
	if lines := strings.Count(err.Error(), "\n") + 1; lines != len(faults) {
		t.Errorf("%d lines for %d faults", lines, len(faults))
	}
}

func TestTextThatIsNoConfigurationIsAFaultWithAPlace(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "f.yaml:1:1: the configuration is empty",
		"\n# only a comment\n":               "f.yaml:1:1: the configuration is empty",
		"a: b: c":                            "f.yaml:1:4: this is not valid YAML: mapping value is not allowed",
		"consumer: 'x":                       "f.yaml:1:11: this is not valid YAML",
		"- a":                                "f.yaml:1:1: this must be a map, not a list",
		"text":                               "f.yaml:1:1: this must be a map, not a value",
		"consumer: a\n---\nconsumer: b":      "a configuration is one YAML document",
		strings.Repeat("[", 200):             "this is not valid YAML",
		"a: " + strings.Repeat("{b: ", 1000): "f.yaml:",
		"a: " + strings.Repeat("[", 150) + strings.Repeat("]", 150): "this nests too deeply",
	} {
		_, _, err := Parse("f.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: got %.200v, want %q", text, err, want)
		}
	}
}

func TestNoFaultRepeatsASecret(t *testing.T) {
	for _, auth := range []string{
		`{kind: bearer, tokenEnv: "hunter2 secret"}`, `{kind: basic, username: u, passwordEnv: "hunter2!"}`,
		`{kind: bearer, token: hunter2}`, `{kind: basic, username: u, password: hunter2}`,
	} {
		_, _, err := Parse("f.yaml", []byte(replace(t, full, `{kind: oidc, audience: "https://flow.example"}`, auth)))
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v", auth, err)
		}
	}
	_, _, err := Parse("f.yaml", []byte(replace(t, full, "https://flow.example/messages", "https://u:hunter2@flow.example/%zz")))
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
}

func TestASentenceHasAnEndWhereThereIsNothingToName(t *testing.T) {
	got := faultsOf(t, "consumer: c\nroutes:\n  - {name: r, engine: process, message: M}\n")
	want := []string{"1:1: engines: the configuration needs at least one engine", `3:15: routes[0].engine: there is no engine "process", and no other; engines names them`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestWhatTheParserSaysOfALineIsExplained(t *testing.T) {
	for text, want := range map[string]string{
		"consumer: c\nengines:\n\tflow: {}\n":                              "3:1: this is not valid YAML: the line is indented with a tab; indent with blanks",
		"consumer:\tc\nengines:\n  flow:\n    kind: \t@x\n":                "this is not valid YAML",
		"consumer: c\nengines:\n  flow:\n    kind: http\n   url: x\n":      "look at the indentation of this line and of the one before",
		"consumer: c\nroutes:\n  - name: r\n    match: a: b\n":             "a text that holds ': ', ' #' or begins with a quote needs quotes around all of it",
		"consumer: c\nroutes:\n  - name: r\n    match: 'a' == payload.b\n": "a text that holds ': ', ' #' or begins with a quote needs quotes around all of it",
	} {
		if got := faultsOf(t, text); len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("%q: got %q, want %s", text, got, want)
		}
	}
}
