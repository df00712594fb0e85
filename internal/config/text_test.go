package config

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
)

// faultsOf returns the faults of a text, one a line, without the file's name.
func faultsOf(t *testing.T, text string) []string {
	t.Helper()
	_, _, err := Parse("f.yaml", []byte(text))
	var faults Faults
	if err != nil && !errors.As(err, &faults) {
		t.Fatal(err)
	}
	var all []string
	for _, f := range faults {
		all = append(all, strings.TrimPrefix(f.String(), "f.yaml:"))
	}
	return all
}

func caseOf(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const swallowedFault = ": the rest of this expression is a comment: YAML makes one line of these, and // reaches to its end; write the " +
	"expression as a block that begins with |, or take the comment out"

func TestC096ACommentThatSwallowsAnExpressionIsAFault(t *testing.T) {
	want := []string{"7:36: routes[0].match" + swallowedFault, "13:40: routes[1].match" + swallowedFault}
	if diff := cmp.Diff(want, faultsOf(t, caseOf(t, "C096.yaml"))); diff != "" {
		t.Error(diff)
	}
}

func TestACommentMaySwallowNothingOfAnySetting(t *testing.T) {
	const expression = "attributes.a // one\n        + attributes.b"
	for name, style := range map[string]string{
		"folded": ">\n        " + expression, "folded, without its end": ">-\n        " + expression, "plain": expression,
		"plain, from the next line": "\n        " + expression, "double quoted": `"` + expression + `"`, "single quoted": `'` + expression + `'`,
		"a comment that stands first": ">-\n        // which\n        attributes.a + attributes.b",
		"in the middle":               ">-\n        attributes.a\n        // and\n        + attributes.b",
		"beside a text with slashes":  ">-\n        attributes.a + '//' // one\n        + attributes.b",
		"a quoted one with an escape": "\"attributes.a + \\\"x\\\" // \\\"one\\\"\n        + attributes.b\"",
		"a folded paragraph":          ">-\n        attributes.a // one\n        + 'x'\n\n        + attributes.b",
	} {
		for _, setting := range []string{"match: ", "type: ", "version: ", "tenant: ", "aggregateType: ", "correlationId: ", "causationId: ", "key: ",
			"dedupe: ", "order: sequence\n    sequence: ", "variables:\n      x: ", "message: ", "claim: ", "claim:\n      sha256: "} {
			text := minimal
			if setting == "message: " {
				text = replace(t, text, "    message: OrderCompleted\n", "")
			}
			found := 0
			for _, f := range faultsOf(t, text+"    "+setting+style+"\n") {
				if strings.HasSuffix(f, swallowedFault) {
					found++
				} else if !strings.Contains(f, "claim") {
					t.Errorf("%s, %s: %s", name, setting, f)
				}
			}
			if found != 1 {
				t.Errorf("%s, %s: %d faults of a comment, want one", name, setting, found)
			}
		}
	}
	for name, style := range map[string]string{
		"a block":                          "|\n        attributes.a // one\n        + attributes.b // two",
		"one line":                         "attributes.a // one",
		"the last line":                    ">-\n        attributes.a\n        + attributes.b // two",
		"the last line, quoted":            "\"attributes.a\n        + attributes.b // \\\"two\\\"\"",
		"slashes in a text":                ">-\n        attributes.a + 'https://x'\n        + attributes.b",
		"slashes in a quoted text":         "'attributes.a + ''https://x''\n        + attributes.b'",
		"an escaped line break, quoted":    "\"attributes.a // one\\n + attributes.b\"",
		"a paragraph that ends a comment":  ">-\n        attributes.a // one\n\n        + attributes.b",
		"more indented lines stay as such": ">-\n        attributes.a +\n          attributes.b // one\n        ",
	} {
		if faults := faultsOf(t, minimal+"    key: "+style+"\n"); len(faults) > 0 {
			t.Errorf("%s: got %v", name, faults)
		}
	}
}

const tagFault = "anchors, aliases and tags are not read here: an expression that begins with ! needs quotes around all of it"

func TestC097AnExpressionThatBeginsWithAnExclamationMarkNeedsQuotes(t *testing.T) {
	want := []string{"6:12: routes[0].match: " + tagFault}
	if diff := cmp.Diff(want, faultsOf(t, caseOf(t, "C097.yaml"))); diff != "" {
		t.Error(diff)
	}
}

func TestAMarkOfYAMLIsOneFaultAndHidesNoOther(t *testing.T) {
	other := func(sign string) string {
		return "anchors, aliases and tags are not read here: write the value out; a text that begins with " + sign + " needs quotes around all of it"
	}
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"with an operator":    {minimal + "    match: !payload.done && attributes.a == 'b'\n    nope: 1\n", []string{"8:12: routes[0].match: " + tagFault, `9:5: routes[0].nope: there is no setting "nope" here`}},
		"with brackets":       {minimal + "    match: !(payload.a || payload.b)\n    key: zz\n", []string{"8:12: routes[0].match: " + tagFault, "9:10: routes[0].key: undeclared reference to 'zz'"}},
		"with braces":         {minimal + "    match: !has({\"a\": 1}.a)\n", []string{"8:12: " + tagFault}},
		"with a text":         {minimal + "    match: !attributes.a.startsWith('x: y')\n", []string{"8:12: " + tagFault}},
		"in a flow map":       {"consumer: c\nengines: {e: {kind: http, url: \"https://e.example\", idempotent: true}}\nroutes:\n  - {name: r, match: !has(attributes.a), engine: e, message: M}\n", []string{"4:22: routes[0].match: " + tagFault}},
		"from the next line":  {minimal + "    match:\n      !has(attributes.a)\n      && payload.b\n", []string{"9:7: routes[0].match: " + tagFault}},
		"a variable":          {minimal + "    variables:\n      a: !payload.a\n      b: payload.b\n", []string{"9:10: routes[0].variables.a: " + tagFault}},
		"two of them":         {minimal + "    match: !payload.a\n    key: !payload.b\n", []string{"8:12: routes[0].match: " + tagFault, "9:10: routes[0].key: " + tagFault}},
		"a required setting":  {replace(t, minimal, "engine: flow", "engine: !flow"), []string{"6:13: routes[0].engine: " + tagFault}},
		"the name of a route": {replace(t, minimal, "name: completed", "name: &completed x"), []string{"5:11: routes[0].name: " + other("&")}},
		"a whole engine": {replace(t, minimal, `{kind: http, url: "https://flow.example/messages", idempotent: true}`, "*other"),
			[]string{"3:9: engines.flow: " + other("*")}},
		"an item":            {minimal + "    version: attributes.v\n    versions: [*one, \"2\"]\n", []string{"9:16: routes[0].versions[0]: " + other("*")}},
		"inside of a schema": {minimal + "    schema:\n      type: !object\n", []string{"9:13: " + tagFault}},
		"a key":              {minimal + "    !key: payload.a\n", []string{"8:5: " + tagFault}},
		"an anchor of a map": {"consumer: c\nengines: &all\n  flow: {kind: http}\n", []string{"2:10: " + other("&")}},
		"everything":         {"!x\n", []string{"1:1: " + tagFault}},
		"none":               {minimal + "    match: |\n      !has(attributes.a)\n      && !payload.b\n    key: payload.a + \"!x\"\n    # !has(x)\n", nil},
		"quoted":             {minimal + "    match: '!has(attributes.a)'\n    type: \"*a\"\n", []string{"9:12: routes[0].type: "}},
	} {
		t.Run(name, func(t *testing.T) {
			got := faultsOf(t, c.text)
			if len(got) != len(c.want) {
				t.Fatalf("got %q, want %q", got, c.want)
			}
			for i := range got {
				if !strings.HasPrefix(got[i], c.want[i]) {
					t.Errorf("got %q, want %q", got[i], c.want[i])
				}
			}
		})
	}
}

func TestC098AByteOrderMarkIsNotThere(t *testing.T) {
	for _, name := range []string{"C098a.yaml", "C098b.yaml"} {
		text := caseOf(t, name)
		if name == "C098a.yaml" && !strings.HasPrefix(text, "\ufeff") || name == "C098b.yaml" && !strings.HasPrefix(caseOf(t, "C098b.schema.json"), "\ufeff") {
			t.Fatalf("%s: the case has lost its mark", name)
		}
		cfg, warnings, err := Parse("testdata/"+name, []byte(text))
		if err != nil || cfg.Consumer != "c" || len(warnings) > 0 {
			t.Errorf("%s: got %v, %v", name, warnings, err)
		}
	}
	if got := faultsOf(t, "\ufeffconsumer: c\nengines: x\nroutes: y\n"); len(got) == 0 || !strings.HasPrefix(got[0], "2:1: engines: ") {
		t.Errorf("places after a mark: got %q", got)
	}
}

func TestAnotherEncodingIsNamed(t *testing.T) {
	units := utf16.Encode([]rune("\ufeff" + minimal))
	for name, order := range map[string]binary.AppendByteOrder{"little": binary.LittleEndian, "big": binary.BigEndian} {
		for _, from := range []int{0, 1} { // with the mark, and without
			var text []byte
			for _, u := range units[from:] {
				text = order.AppendUint16(text, u)
			}
			if got := faultsOf(t, string(text)); len(got) != 1 || got[0] != "1:1: this text is encoded in UTF-16; save it as UTF-8" {
				t.Errorf("%s endian, from %d: got %q", name, from, got)
			}
		}
	}
	if got := faultsOf(t, "\xff\xfe\x00\x00a\x00\x00\x00"); len(got) != 1 || got[0] != "1:1: this text is encoded in UTF-32; save it as UTF-8" {
		t.Errorf("got %q", got)
	}
	latin := replace(t, minimal, "name: completed", "name: completed\n    match: attributes.city == 'M\xfcnchen'")
	if got := faultsOf(t, latin); len(got) != 1 || got[0] != "6:33: this text is not encoded in UTF-8 from here on; save it as UTF-8" {
		t.Errorf("got %q", got)
	}
	file := t.TempDir() + "/schema.json"
	if err := os.WriteFile(file, []byte("\xff\xfe{\x00}\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := "8:5: routes[0].schema: the schema cannot be read: line 1, column 1: this text is encoded in UTF-16; save it as UTF-8"
	if got := faultsOf(t, minimal+fmt.Sprintf("    schema: %q\n", file)); len(got) != 1 || got[0] != want {
		t.Errorf("got %q", got)
	}
}
