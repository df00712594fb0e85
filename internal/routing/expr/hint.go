package expr

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/common"
)

// explained makes faults of what CEL says about a text, with what to write instead where a mistake is a common one.
func explained(text string, issues []*common.Error) []error {
	var all []error
	hyphen := hyphenated(text)
	for _, e := range issues {
		message := strings.TrimSpace(e.Message)
		if hyphen != nil && hyphen.explains(message) {
			if !hyphen.said {
				all = append(all, hyphen.fault)
				hyphen.said = true
			}
			continue
		}
		all = append(all, &SyntaxError{e.Location.Line(), e.Location.Column() + 1, message + hint(text, message)})
	}
	return all
}

// hyphen is a selection such as attributes.ce-type, which to CEL is a subtraction.
type hyphen struct {
	fault *SyntaxError
	parts []string // behind the first hyphen
	said  bool
}

var hyphenPattern = regexp.MustCompile(`\b(?:attributes|payload|message|claim)((?:\.[A-Za-z_]\w*)*?)\.([A-Za-z_]\w*(?:-[A-Za-z_]\w*)+)`)

func hyphenated(text string) *hyphen {
	at := hyphenPattern.FindStringSubmatchIndex(text)
	if at == nil {
		return nil
	}
	whole, name := text[at[0]:at[1]], text[at[4]:at[5]]
	parts := strings.Split(name, "-")[1:]
	if slices.ContainsFunc(parts, func(part string) bool { return slices.Contains(roots, part) }) {
		return nil // a subtraction it is
	}
	of := strings.TrimSuffix(whole, "."+name)
	before := text[:at[0]]
	line := before[strings.LastIndex(before, "\n")+1:]
	message := fmt.Sprintf("%s is a subtraction; a name with a hyphen is read by %s[%q], and asked for by %q in %s", whole, of, name, name, of)
	return &hyphen{parts: parts,
		fault: &SyntaxError{strings.Count(before, "\n") + 1, utf8.RuneCountInString(line) + 1, message}}
}

// explains reports whether CEL's message is about the selection.
func (h *hyphen) explains(message string) bool {
	for _, part := range h.parts {
		if strings.HasPrefix(message, "undeclared reference to '"+part+"'") {
			return true
		}
	}
	return strings.Contains(message, "'_-_'") || strings.Contains(message, "argument to has()")
}

var (
	leadingNot    = regexp.MustCompile(`(?:^|[(&|])\s*not\b`)
	textAndNumber = regexp.MustCompile(`applied to '\((?:string, (?:int|uint|double|bool)|(?:int|uint|double|bool), string)\)'`)
	wrongWord     = regexp.MustCompile(`^Syntax error: (?:mismatched|extraneous) input '(and|or|is|AND|OR|IS)'`)
)

func hint(text, message string) string {
	word := ""
	if m := wrongWord.FindStringSubmatch(message); m != nil {
		word = strings.ToLower(m[1])
	}
	_, token, _ := strings.Cut(message, "token recognition error at: '")
	switch {
	case strings.HasPrefix(message, "undeclared reference to"):
		return "; expressions see message, attributes, payload and hash(), those of message and variables also claim, and a constant text needs quotes of its own, " +
			`as in '"Order"'`
	case word == "and" || strings.HasPrefix(token, "&"):
		return "; write && for and"
	case word == "or" || strings.HasPrefix(token, "|"):
		return "; write || for or"
	case word == "is", strings.HasPrefix(token, "="):
		return "; write == to compare"
	case strings.HasPrefix(message, "Syntax error: mismatched input") && leadingNot.MatchString(text):
		return "; write ! for not"
	case token != "" && strings.ContainsAny(token[:min(len(token), utf8.UTFMax)], "“”„‟‘’‚‛«»"):
		return `; write straight quotes, " or '`
	case strings.Contains(message, "argument to has()"):
		return `; it asks for a field, as in has(payload.id); write "ce-id" in attributes for a name in quotes`
	case textAndNumber.MatchString(message) && strings.Contains(text, "attributes"):
		return `; attributes are texts: write the other side as a text, such as "1", or convert the attribute, as in int(attributes.n)`
	}
	return ""
}
