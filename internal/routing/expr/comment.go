package expr

import "strings"

// Comments returns the comments of an expression, without their slashes. A // inside a text is none.
func Comments(text string) []string {
	var all []string
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case strings.HasPrefix(text[i:], "//"):
			comment, _, _ := strings.Cut(text[i+2:], "\n") // a carriage return does not end one
			all = append(all, comment)
			i += 2 + len(comment)
		case c == '"' || c == '\'':
			i = afterText(text, i)
		case c == '`':
			if end := strings.IndexByte(text[i+1:], '`'); end >= 0 {
				i += end + 1
			}
			i++
		default:
			i++
		}
	}
	return all
}

// afterText returns the index after the text whose quote is at i.
func afterText(text string, i int) int {
	start := i
	for start > 0 && isWord(text[start-1]) {
		start--
	}
	prefix := strings.ToLower(text[start:i])
	raw := prefix == "r" || prefix == "br"
	quote := text[i : i+1]
	if triple := strings.Repeat(quote, 3); strings.HasPrefix(text[i:], triple) {
		quote = triple
	}
	for i += len(quote); i < len(text); i++ {
		switch {
		case text[i] == '\\' && !raw:
			i++
		case strings.HasPrefix(text[i:], quote):
			return i + len(quote)
		case len(quote) == 1 && text[i] == '\n':
			return i // it has no end, which is a fault of its own
		}
	}
	return len(text)
}

func isWord(c byte) bool {
	return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')
}
