package config

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

func TestCompareNamesEachChangeAndWhatItDoesToRowsInFlight(t *testing.T) {
	second := full + ""
	for name, c := range map[string]struct {
		old, new string
		want     []string
	}{
		"nothing":  {"", "", nil},
		"consumer": {"consumer: orders", "consumer: bills", []string{"consumer: orders becomes bills. The consumer is part of every id"}},
		"match": {`match: attributes.eventType == "Completed"`, "match: payload.done", []string{
			`route completed: match: attributes.eventType == "Completed" becomes payload.done. Messages are routed otherwise from now on`}},
		"scope":    {"scope: consumer", "scope: subscription", []string{"route completed: scope: consumer becomes subscription. The scope is part of the id"}},
		"dedupe":   {"    dedupe: attributes.eventId\n", "", []string{"route completed: dedupe: attributes.eventId becomes the message id. The dedupe key is the id"}},
		"key":      {"key: payload.orderId", "key: payload.customerId", []string{"route completed: key: payload.orderId becomes payload.customerId. New messages go into other lanes"}},
		"keySpace": {"keySpace: orders", "keySpace: bills", []string{"route completed: keySpace: orders becomes bills. New messages go into other lanes"}},
		"order": {"    order: sequence\n    sequence: payload.revision\n", "", []string{
			"route completed: order: sequence becomes published. New messages go into other lanes"}},
		"sequence": {"sequence: payload.revision", "sequence: payload.version", []string{
			"route completed: sequence: payload.revision becomes payload.version. New messages are placed among the stored ones"}},
		"engine":     {"    engine: flow\n", "    engine: flow2\n", []string{"route completed: engine: flow becomes flow2. Stored messages go to the new engine"}},
		"url":        {"https://flow.example/messages", "https://b.example/messages?key=a", []string{"engines.flow.url: https://flow.example/messages becomes https://b.example/messages?.... Stored messages go there"}},
		"timeout":    {"    timeout: 10s", "    timeout: 20s", []string{"engines.flow.timeout: 10s becomes 20s. Attempts from now on are cut off after it"}},
		"idempotent": {"    idempotent: true\n", "", []string{"engines.flow.idempotent: true becomes false. A message whose outcome is unknown is judged by it"}},
		"statuses": {`{"409": already_through}`, `{"409": drop, "404": vanished}`, []string{"engines.flow.statuses.404: now vanished. Answers from now on are read by it",
			"engines.flow.statuses.409: already_through becomes drop. Answers"}},
		"a header, whose value is not repeated": {"X-Source: inbox", "X-Source: other", []string{"engines.flow.headers.X-Source. Attempts from now on are sent with it"}},
		"message":                               {"OrderCompleted", "OrderDone", []string{"route completed: message: OrderCompleted becomes OrderDone. Stored messages are sent under it"}},
		"a variable":                            {"{items: payload.items}", "{items: payload.lines, n: payload.n}", []string{"route completed: variables.items: payload.items becomes payload.lines. Stored messages are sent with it", "route completed: variables.n: now payload.n. Stored"}},
		"no variables":                          {"    variables: {items: payload.items}\n", "", []string{"route completed: variables: {items} becomes the payload as it came. Stored"}},
		"variables of none":                     {"{items: payload.items}", "{}", []string{"route completed: variables.items: no longer payload.items. Stored"}},
		"version":                               {"version: attributes.version", "version: attributes.v", []string{"route completed: version: attributes.version becomes attributes.v. Stored messages keep the version of their row"}},
		"versions":                              {`["1"]`, `["1", "2"]`, []string{"route completed: versions: 1 becomes 1, 2. Stored messages are held to it"}},
		"a schema":                              {"    patience", "    schema: {type: object}\n    patience", []string{"route completed: schema: now the one in the file. Stored messages are held to it"}},
		"patience and retry":                    {"24h\n    retry: {min: 10s, max: 10m}", "1h\n    retry: {min: 20s, max: 11m}", []string{"route completed: patience: 1d becomes 1h. The next answer", "route completed: retry.min: 10s becomes 20s. Waits", "route completed: retry.max: 10m becomes 11m. Waits"}},
		"parked":                                {"parked: block", "parked: pass", []string{"route completed: parked: block becomes pass. It is kept on the row"}},
		"poison":                                {"failures: 20", "failures: 2", []string{"relay.poison.failures: 20 becomes 2. The counts of stored messages stay"}},
		"what only describes, and how much is done": {"type: attributes.eventType\n", "tenant: attributes.tenant\n", nil},
		"a renamed route": {"- name: completed", "- name: done", []string{
			"route done: added. Messages that it takes", "route completed: removed. Its open rows wait, with an alert"}},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(second, c.old, c.new, 1)
			if c.new == "    engine: flow2\n" {
				text = strings.Replace(text, "routes:", "  flow2: {kind: http, url: \"https://b.example\", idempotent: true}\nroutes:", 1)
			}
			var got []string
			for _, change := range Compare(parse(t, full), parse(t, text)) {
				got = append(got, change.String())
			}
			if len(got) != len(c.want) {
				t.Fatalf("got %q, want %q", got, c.want)
			}
			for i := range got {
				if !strings.HasPrefix(got[i], c.want[i]) || !strings.HasSuffix(got[i], ".") {
					t.Errorf("got %q, want %q", got[i], c.want[i])
				}
			}
		})
	}
}

func TestCompareSeesThatTheFirstRouteThatMatchesIsAnother(t *testing.T) {
	const a, b = "  - {name: a, match: payload.a, engine: flow, message: A}\n", "  - {name: b, match: payload.b, engine: flow, message: B}\n"
	head, _, _ := strings.Cut(minimal, "  - name")
	changes := Compare(parse(t, head+a+b), parse(t, head+b+a))
	if len(changes) != 1 || !strings.HasPrefix(changes[0].String(), "routes: [a b] becomes [b a]. The first route that matches wins") {
		t.Errorf("got %v", changes)
	}
}

func TestCompareSeesWhatBecomesOfDocumentsThatAreWaitedFor(t *testing.T) {
	without := replace(t, full, "relay: {", "claimCheck: {buckets: [aaa]}\nrelay: {")
	with := replace(t, without, "    patience", "    claim: {reference: payload.report, read: true}\n    patience")
	for name, c := range map[string]struct{ old, new, want string }{
		"no more":        {with, without, "route completed: claim: no longer payload.report. Stored messages that wait for their object are sent without it"},
		"from now on":    {without, with, "route completed: claim: now payload.report. Stored messages are held to it"},
		"not read":       {with, replace(t, with, ", read: true", ""), "route completed: claim.read: true becomes false. Stored messages follow"},
		"another":        {with, replace(t, with, "payload.report", "payload.url"), "route completed: claim.reference: payload.report becomes payload.url. Stored messages keep the object"},
		"another bucket": {with, replace(t, with, "[aaa]", "[bbb]"), "claimCheck.buckets: aaa becomes bbb. Stored messages are held to it"},
	} {
		changes := Compare(parse(t, c.old), parse(t, c.new))
		if len(changes) != 1 || !strings.HasPrefix(changes[0].String(), c.want) {
			t.Errorf("%s: got %v, want %s", name, changes, c.want)
		}
	}
}

func TestCompareSeesThatAnEngineIsGone(t *testing.T) {
	const other = "  other: {kind: http, url: \"https://b.example\", idempotent: true}\nroutes:"
	changes := Compare(parse(t, replace(t, minimal, "routes:", other)), parse(t, minimal))
	if len(changes) != 1 || !strings.HasPrefix(changes[0].String(), "engines.other. What an operator has paused") {
		t.Errorf("got %v", changes)
	}
	if changes = Compare(parse(t, minimal), parse(t, replace(t, minimal, "routes:", other))); len(changes) != 0 {
		t.Errorf("a new engine: got %v", changes)
	}
}

func TestCompareSeesAnotherSchemaUnderTheSameName(t *testing.T) {
	folder := t.TempDir()
	text := minimal + "    schema: order.json\n"
	read := func(schema string) *Config {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, "order.json"), []byte(schema), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, _, err := Parse(filepath.Join(folder, "inbox.yaml"), []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	old, same, other := read(`{"type": "object"}`), read(` { "type" : "object" } `), read(`{"type": "array"}`)
	if changes := Compare(old, same); len(changes) != 0 {
		t.Errorf("the same: got %v", changes)
	}
	if changes := Compare(old, other); len(changes) != 1 || !strings.HasPrefix(changes[0].String(), "route completed: schema. Stored messages are held to it") {
		t.Errorf("another: got %v", changes)
	}
}

// fieldsOf calls yield with each field of the configuration's types: its key in settings, its path in the file as the
// documentation writes it, and how to find it in a configuration of one engine and one route. whole says that the field has
// fields of its own.
func fieldsOf(t reflect.Type, path string, find func(*Config) reflect.Value, yield func(key, path string, whole bool, find func(*Config) reflect.Value)) {
	for i := range t.NumField() {
		field := t.Field(i)
		if !field.IsExported() {
			continue
		}
		key := t.Name() + "." + field.Name
		at := path
		if s := settings[key]; s.path != "" {
			at = join(path, s.path)
		}
		inner := func(cfg *Config) reflect.Value { return find(cfg).Field(i) }
		switch field.Type {
		case reflect.TypeFor[map[string]Engine]():
			yield(key, at, true, inner)
			fieldsOf(reflect.TypeFor[Engine](), at+".NAME", inner, yield)
		case reflect.TypeFor[[]Route]():
			yield(key, at, true, inner)
			fieldsOf(reflect.TypeFor[Route](), at+"[]", func(cfg *Config) reflect.Value { return reflect.ValueOf(&cfg.Routes[0]).Elem() }, yield)
		case reflect.TypeFor[*Claim]():
			yield(key, at, true, inner)
			fieldsOf(reflect.TypeFor[Claim](), at, func(cfg *Config) reflect.Value { return inner(cfg).Elem() }, yield)
		case reflect.TypeFor[Expr](), reflect.TypeFor[Message](), reflect.TypeFor[[]Warning]():
			yield(key, at, false, inner)
		default:
			yield(key, at, field.Type.Kind() == reflect.Struct, inner)
			if field.Type.Kind() == reflect.Struct {
				fieldsOf(field.Type, at, inner, yield)
			}
		}
	}
}

// TestNoSettingIsForgotten walks the configuration's types: each field says what a change of it does to messages in flight,
// or why it does nothing, is told of by Compare, and has the name that the documentation gives it.
func TestNoSettingIsForgotten(t *testing.T) {
	text, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `((?:consumer|engines|routes|retention|relay|claimCheck|traceAttributes)\\b[^`]*)` \\|").FindAllStringSubmatch(string(text), -1) {
		documented[m[1]] = true
	}
	seen, paths := map[string]bool{}, map[string]bool{}
	fieldsOf(reflect.TypeFor[Config](), "", func(cfg *Config) reflect.Value { return reflect.ValueOf(cfg).Elem() },
		func(key, path string, whole bool, find func(*Config) reflect.Value) {
			s, ok := settings[key]
			seen[key], paths[path] = true, true
			switch {
			case !ok:
				t.Errorf("%s: what does a change of it do to messages in flight? Say so in settings", key)
				return
			case s.effect != "" && s.nothing != "", !whole && s.effect == "" && s.nothing == "", whole && (s.effect != "" || s.nothing != ""):
				t.Errorf("%s: it has an effect, or a reason why it has none, or fields of its own", key)
			case s.path != "" && !documented[path]:
				t.Errorf("%s: configuration.md has no setting %s", key, path)
			}
			if whole || strings.HasPrefix(path, "engines.") || key == "Route.Name" {
				return
			}
			changes := Compare(one(find, 0), one(find, 1))
			switch {
			case s.nothing != "" && len(changes) > 0:
				t.Errorf("%s: got %v, want nothing", key, changes)
			case s.effect != "" && (len(changes) != 1 || changes[0].Effect != s.effect):
				t.Errorf("%s: got %v, want %s", key, changes, s.effect)
			}
		})
	for key := range settings {
		if !seen[key] {
			t.Errorf("there is no field %s", key)
		}
	}
	for path := range documented {
		if !paths[path] && path != "engines.NAME.correlation" {
			t.Errorf("no field stands for the setting %s", path)
		}
	}
	// An engine stands in a map, and cannot be changed where it is.
	for i := range reflect.TypeFor[Engine]().NumField() {
		cfgs := [2]*Config{}
		for n := range cfgs {
			e := Engine{Name: "e"}
			fill(reflect.ValueOf(&e).Elem().Field(i), n)
			cfgs[n] = &Config{Engines: map[string]Engine{"e": e}}
		}
		field := reflect.TypeFor[Engine]().Field(i)
		if changes := Compare(cfgs[0], cfgs[1]); (len(changes) == 0) != (field.Name == "Name") {
			t.Errorf("Engine.%s: got %v", field.Name, changes)
		}
	}
}

// one is a configuration of one engine and one route, with the nth value in a field.
func one(find func(*Config) reflect.Value, n int) *Config {
	cfg := &Config{Engines: map[string]Engine{"e": {}}, Routes: []Route{{Claim: &Claim{}}}}
	fill(find(cfg), n)
	return cfg
}

// fill puts the nth value into v, and into all of its fields.
func fill(v reflect.Value, n int) {
	text := []string{"a", "b"}[n]
	switch v.Interface().(type) {
	case Expr:
		v.Set(reflect.ValueOf(Expr{Text: text}))
	case Message:
		v.Set(reflect.ValueOf(Message{Literal: text}))
	case *Schema:
		v.Set(reflect.ValueOf(&Schema{document: text}))
	case []Variable:
		v.Set(reflect.ValueOf([]Variable{{Name: "v", Expr: Expr{Text: text}}}))
	case []Warning:
		v.Set(reflect.ValueOf([]Warning{{Message: text}}))
	case []string:
		v.Set(reflect.ValueOf([]string{text}))
	case map[string]string:
		v.Set(reflect.ValueOf(map[string]string{"k": text}))
	default:
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				fill(v.Field(i), n)
			}
		case reflect.Bool:
			v.SetBool(n == 1)
		case reflect.Int, reflect.Int64:
			v.SetInt(int64(n))
		default:
			v.SetString(text)
		}
	}
}

func parse(t *testing.T, text string) *Config {
	t.Helper()
	cfg, _, err := Parse("f.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}
