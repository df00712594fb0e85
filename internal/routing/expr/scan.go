package expr

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// MaxDepth bounds the nesting of a payload. Values are decoded where they are selected, so each level reads its text
// again: without a bound a small, deep payload would cost its depth times its size.
const MaxDepth = 256

// validJSON reports whether b is one JSON value, in UTF-8, of bounded depth.
func validJSON(b []byte) bool {
	// encoding/json replaces invalid UTF-8 quietly: two keys would become one.
	return len(b) > 0 && utf8.Valid(b) && depth(b) <= MaxDepth && json.Valid(b)
}

// depth counts brackets outside strings; b need not be valid.
func depth(b []byte) int {
	deepest, now := 0, 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			i = skipString(b, i) - 1
		case '{', '[':
			now++
			deepest = max(deepest, now)
		case '}', ']':
			now--
		}
	}
	return deepest
}

// The functions below read valid JSON only; on anything else they end, but tell nonsense.

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the index after the string that begins at i.
func skipString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}

// skipValue returns the index after the value that begins at i.
func skipValue(b []byte, i int) int {
	if i >= len(b) {
		return len(b)
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		level := 0
		for ; i < len(b); i++ {
			switch b[i] {
			case '"':
				i = skipString(b, i) - 1
			case '{', '[':
				level++
			case '}', ']':
				if level--; level == 0 {
					return i + 1
				}
			}
		}
		return len(b)
	}
	for ; i < len(b); i++ {
		switch b[i] {
		case ',', ']', '}', ' ', '\n', '\t', '\r':
			return i
		}
	}
	return len(b)
}

// members calls yield with the quoted key and the value of each member of the object b, until it returns false.
func members(b []byte, yield func(key, value []byte) bool) {
	i := skipSpace(b, 1)
	for i < len(b) && b[i] == '"' {
		end := skipString(b, i)
		key := b[i:end]
		i = skipSpace(b, skipSpace(b, end)+1) // the colon
		end = skipValue(b, i)
		if i >= len(b) || !yield(key, b[i:end]) {
			return
		}
		i = skipSpace(b, end)
		if i >= len(b) || b[i] != ',' {
			return
		}
		i = skipSpace(b, i+1)
	}
}

// nextElement returns the element of a list that begins at or after i, and the index after it; nil at the end.
func nextElement(b []byte, i int) (element []byte, after int) {
	i = skipSpace(b, i)
	if i >= len(b) || b[i] == ']' {
		return nil, i
	}
	end := skipValue(b, i)
	if end == i {
		return nil, i
	}
	element = b[i:end]
	if end = skipSpace(b, end); end < len(b) && b[end] == ',' {
		end++
	}
	return element, end
}

// unquote decodes a quoted string. whole is false if it holds half a surrogate pair, which no UTF-8 text can.
func unquote(quoted []byte) (s string, whole bool) {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1]), true
	}
	if err := json.Unmarshal(quoted, &s); err != nil {
		return "", false
	}
	return s, !halfPair(quoted)
}

func isName(quoted []byte, name string) bool {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1:len(quoted)-1]) == name
	}
	s, _ := unquote(quoted)
	return s == name
}

// halfPair reports whether an escape is a surrogate without its other half.
func halfPair(quoted []byte) bool {
	for i := 0; i < len(quoted); i++ {
		if quoted[i] != '\\' {
			continue
		}
		i++
		r, ok := escapedRune(quoted[i:])
		if !ok {
			continue
		}
		i += 4
		switch {
		case r >= 0xDC00 && r < 0xE000:
			return true
		case r >= 0xD800 && r < 0xDC00:
			if i+2 >= len(quoted) || quoted[i+1] != '\\' {
				return true
			}
			low, ok := escapedRune(quoted[i+2:])
			if !ok || low < 0xDC00 || low >= 0xE000 {
				return true
			}
			i += 6
		}
	}
	return false
}

// escapedRune reads uXXXX.
func escapedRune(b []byte) (rune, bool) {
	if len(b) < 5 || b[0] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range b[1:5] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}
