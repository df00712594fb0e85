package httpcall

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
)

const (
	MaxDetailBytes = 500
	maxSourceBytes = 4 << 10 // of a title or a detail; a longer one is no sentence
	maxScrubBytes  = 1 << 20 // of a body that is looked through for values
	minValueBytes  = 4       // a shorter value ("42", "EUR") says nothing, and is in every other sentence
	omitted        = "[...]"
)

// Scrubber takes the values of a delivery out of what the engine says, because what it says is kept and shown, and
// payloads must not be. The correlation key may stay: it is a column of the row.
type Scrubber struct {
	Delivery engine.Delivery
}

// Sentence is a problem's title and detail on one line, bounded, without values of the delivery.
func (s Scrubber) Sentence(title, detail string) string {
	parts := make([]string, 0, 2)
	for _, part := range []string{title, detail} {
		if part = oneLine(s.clean(part)); part != "" && !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	return cut(strings.Join(parts, ": "), MaxDetailBytes)
}

// Reference is r unless it repeats a value of the delivery.
func (s Scrubber) Reference(r string) string {
	if r == "" {
		return ""
	}
	values, ok := s.values()
	if !ok || slices.ContainsFunc(values, func(v string) bool { return strings.TrimPrefix(r, "/") == v }) {
		return ""
	}
	return r
}

// clean replaces each value of the delivered body in text. Where it cannot look, nothing is left.
func (s Scrubber) clean(text string) string {
	if text == "" || len(text) > maxSourceBytes {
		return ""
	}
	values, ok := s.values()
	if !ok {
		return ""
	}
	for _, value := range values {
		text = strings.ReplaceAll(text, value, omitted)
	}
	return text
}

// values are the texts in the delivered body that could be recognised in a sentence, longest first, so that one that
// holds another is replaced whole.
func (s Scrubber) values() ([]string, bool) {
	d := s.Delivery
	size := len(d.Payload)
	if d.Variables != nil {
		size = 0
		for _, raw := range d.Variables {
			size += len(raw)
		}
	}
	if size > maxScrubBytes {
		return nil, false
	}
	var values []string
	add := func(v string) {
		if len(v) >= minValueBytes && v != d.Key && v != d.Message && v != d.InboxID {
			values = append(values, v)
		}
	}
	switch {
	case d.Variables != nil:
		for _, raw := range d.Variables {
			leaves(raw, add)
		}
	case json.Valid(d.Payload):
		leaves(d.Payload, add)
	case utf8.Valid(d.Payload):
		for word := range strings.FieldsFuncSeq(string(d.Payload), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
			add(word)
		}
	default:
		return nil, false
	}
	slices.SortFunc(values, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b))
	})
	return slices.Compact(values), true
}

// leaves calls add with each string and number of a JSON text, but not with the names of members.
func leaves(raw []byte, add func(string)) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	type level struct{ object, name bool }
	var stack []level
	for {
		token, err := dec.Token()
		if err != nil {
			return
		}
		top := len(stack) - 1
		isName := top >= 0 && stack[top].object && stack[top].name
		if top >= 0 && stack[top].object {
			if delim, ok := token.(json.Delim); !ok || delim == '{' || delim == '[' {
				stack[top].name = !stack[top].name
			}
		}
		switch token := token.(type) {
		case json.Delim:
			switch token {
			case '{':
				stack = append(stack, level{object: true, name: true})
			case '[':
				stack = append(stack, level{})
			default:
				stack = stack[:top]
			}
		case json.Number:
			add(token.String())
		case string:
			if !isName {
				add(token)
			}
		}
	}
}

// oneLine makes s valid UTF-8 without control characters, its white space single blanks.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r) || unicode.Is(unicode.Bidi_Control, r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	return strings.Join(strings.Fields(s), " ")
}

// cut shortens s to at most n bytes, at a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	n -= len("…")
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
