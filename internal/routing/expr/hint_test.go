package expr

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestACommonMistakeIsToldWhatToWrite(t *testing.T) {
	const hyphen = `a subtraction; a name with a hyphen is read by `
	for text, want := range map[string]string{
		`attributes.ce-type == "x"`:                        `1:1 attributes.ce-type is ` + hyphen + `attributes["ce-type"], and asked for by "ce-type" in attributes`,
		`"ä" == attributes.ce-id`:                          `1:8 attributes.ce-id is ` + hyphen + `attributes["ce-id"], and asked for by "ce-id" in attributes`,
		"payload.a == 1\n  && payload.order.work-id-x > 2": `2:6 payload.order.work-id-x is ` + hyphen + `payload.order["work-id-x"], and asked for by "work-id-x" in payload.order`,
		`has(attributes.ce-id)`:                            `1:5 attributes.ce-id is`,
		`has(attributes["ce-id"])`:                         `argument to has() macro; it asks for a field, as in has(payload.id); write "ce-id" in attributes for a name in quotes`,
		`attributes.a = "b"`:                               `'= '; write == to compare`,
		`attributes.a === "b"`:                             `'= '; write == to compare`,
		`payload.a is null`:                                `; write == to compare`,
		`payload.a == 1 and payload.b == 2`:                `; write && for and`,
		`payload.a & payload.b`:                            `; write && for and`,
		`payload.a OR payload.b`:                           `; write || for or`,
		`payload.a | payload.b`:                            `; write || for or`,
		`not payload.a`:                                    `; write ! for not`,
		`payload.b && (not payload.a)`:                     `; write ! for not`,
		`attributes.a == “b”`:                              `; write straight quotes, " or '`,
		`attributes.a == ‘b’`:                              `; write straight quotes, " or '`,
		`attributes.a == 1`:                                `; attributes are texts: write the other side as a text, such as "1", or convert the attribute, as in int(attributes.n)`,
		`2.5 < attributes.a`:                               `; attributes are texts`,
		`attributes.a == true`:                             `; attributes are texts`,
		`payload.a + nope`:                                 `undeclared reference to 'nope'; expressions see`,
	} {
		_, err := Compile(text, ForMatch)
		var syntax *SyntaxError
		if !errors.As(err, &syntax) {
			t.Errorf("%s: got %v", text, err)
			continue
		}
		if got := fmt.Sprintf("%d:%d %s", syntax.Line, syntax.Column, syntax.Message); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", text, err, want)
		}
		if strings.Contains(want, hyphen) && strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: more than one fault: %v", text, err)
		}
	}
	for _, text := range []string{`payload.a-payload.b > 1`, `attributes["ce-type"] == "x"`, `"attributes.ce-type" == attributes.a`, `"ce-id" in attributes`} {
		if _, err := Compile(text, ForMatch); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}
