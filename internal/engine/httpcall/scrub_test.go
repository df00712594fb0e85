package httpcall

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
)

func TestAProblemsWordsAreKeptWithoutThePayload(t *testing.T) {
	variables := func(raw string) engine.Delivery {
		return engine.Delivery{Key: "order-4711", Message: "Done", InboxID: "id-1", Variables: map[string]json.RawMessage{"v": json.RawMessage(raw)}}
	}
	payload := func(raw string) engine.Delivery { return engine.Delivery{Key: "order-4711", Payload: []byte(raw)} }
	tests := []struct {
		name, title, detail string
		d                   engine.Delivery
		want                string
	}{
		{"both", "Ambiguous", "2 instances wait.", variables("1"), "Ambiguous: 2 instances wait."},
		{"the same twice", "Conflict", "Conflict", variables("1"), "Conflict"},
		{"one line", "a\r\nb", "c\u2028d\x00\x1b[31m\te", variables("1"), "a b: c d [31m e"},
		{"invalid bytes", "a\xffb", "", variables("1"), "a\uFFFDb"},
		{"a text of the payload", "", "Bad name Müller.", variables(`{"name":"Müller"}`), "Bad name [...]."},
		{"a number of the payload", "", "Bad amount 123456.78.", variables(`[123456.78]`), "Bad amount [...]."},
		{"a text in a text", "", "Bad abcdef.", variables(`["abcd","abcdef"]`), "Bad [...]."},
		{"the name of a variable stays", "", "amount is missing", variables(`{"amount":1}`), "amount is missing"},
		{"a value beside a name", "", "alpha beta", variables(`{"alpha":{"beta":"beta"},"x":["alpha"]}`), "[...] [...]"},
		{"the key stays", "", "order-4711 is ambiguous", variables(`"order-4711"`), "order-4711 is ambiguous"},
		{"what says nothing stays", "", "EUR 42", variables(`["EUR",42]`), "EUR 42"},
		{"a payload of JSON", "", "Bad Müller", payload(`{"name":"Müller"}`), "Bad [...]"},
		{"a payload of words", "", "Bad Müller", payload("name=Müller;"), "Bad [...]"},
		{"a payload of bytes", "", "Bad thing", payload("\x00\xff"), ""},
		{"a payload too large to look through", "", "Bad thing", payload(`"` + strings.Repeat("x", maxScrubBytes) + `"`), ""},
		{"no sentence", "", strings.Repeat("x", maxSourceBytes+1), variables("1"), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := (Scrubber{Delivery: tt.d}).Sentence(tt.title, tt.detail); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestADetailIsBoundedAtACharacter(t *testing.T) {
	got := Scrubber{}.Sentence("x"+strings.Repeat("ü", 1000), "")
	if len(got) > MaxDetailBytes || len(got) < MaxDetailBytes-5 || !utf8.ValidString(got) || !strings.HasSuffix(got, "…") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}
