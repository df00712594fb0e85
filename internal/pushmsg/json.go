package pushmsg

import (
	"bytes"
	"encoding/json"
	"iter"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// The functions of this file take JSON that json.Valid has accepted, and give out parts of it without copying:
// encoding/json copies each json.RawMessage, which for a payload of megabytes on two levels is twice the body.

// The kinds of a JSON value, worded for a sentence.
const (
	kindObject  = "an object"
	kindArray   = "an array"
	kindString  = "a string"
	kindNumber  = "a number"
	kindBoolean = "a boolean"
	kindNull    = "null"
)

func kind(value []byte) string {
	switch value[0] {
	case '{':
		return kindObject
	case '[':
		return kindArray
	case '"':
		return kindString
	case 't', 'f':
		return kindBoolean
	case 'n':
		return kindNull
	default:
		return kindNumber
	}
}

// absent reports whether a member is missing, null or an empty string: senders use all three for "not set".
func absent(value []byte) bool {
	return value == nil || string(value) == "null" || string(value) == `""`
}

// members yields the members of an object in their order: the name with its quotes, and the value.
func members(object []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		i := 1
		for {
			i = skip(object, i, ", \t\r\n")
			if object[i] == '}' {
				return
			}
			end := valueEnd(object, i)
			name := object[i:end]
			i = skip(object, end, ": \t\r\n")
			end = valueEnd(object, i)
			if !yield(name, object[i:end:end]) {
				return
			}
			i = end
		}
	}
}

func skip(b []byte, i int, characters string) int {
	for strings.IndexByte(characters, b[i]) >= 0 {
		i++
	}
	return i
}

// valueEnd returns the index after the value that begins at i. It keeps no stack, so nesting costs nothing.
func valueEnd(b []byte, i int) int {
	switch b[i] {
	case '"':
		return stringEnd(b, i)
	case '{', '[':
		for depth := 0; ; i++ {
			switch b[i] {
			case '"':
				i = stringEnd(b, i) - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
		}
	default:
		return i + bytes.IndexAny(b[i:], ",} \t\r\n") // never -1: values are looked for in objects only
	}
}

func stringEnd(b []byte, i int) int {
	for i++; b[i] != '"'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// asciiName returns the name of a member without its quotes and escapes. A name that is not ASCII comes out garbled, but
// never as one of ours. encoding/json would allocate some hundred bytes for each of a body's names.
func asciiName(quoted []byte) []byte {
	name := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(name, '\\') < 0 {
		return name
	}
	plain := make([]byte, 0, 16)
	for len(name) > 0 {
		c, width := character(name)
		plain, name = append(plain, c), name[width:]
	}
	return plain
}

const notASCII = 0x80

// character returns the first character of the inside of a JSON string, or notASCII, and the bytes it takes.
func character(s []byte) (c byte, width int) {
	if s[0] != '\\' {
		return min(s[0], notASCII), 1
	}
	switch s[1] {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		return byte(min(hex4(s[2:]), notASCII)), 6
	default:
		return s[1], 2
	}
}

// hex4 reads the four digits of a \u escape, which json.Valid has checked.
func hex4(s []byte) rune {
	n, _ := strconv.ParseUint(string(s[:4]), 16, 32)
	return rune(n)
}

// decodeString returns the text of a quoted JSON string, or false if encoding/json would have to change it: it puts
// U+FFFD for invalid UTF-8 and for half a surrogate pair, and so makes one text of two.
func decodeString(quoted []byte) (string, bool) {
	inner := quoted[1 : len(quoted)-1]
	if !utf8.Valid(inner) {
		return "", false
	}
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner), true
	}
	var text string
	if halfPair(inner) || json.Unmarshal(quoted, &text) != nil {
		return "", false
	}
	return text, true
}

// halfPair reports whether the inside of a JSON string has a UTF-16 surrogate escape without its other half.
func halfPair(s []byte) bool {
	for i := 0; i < len(s); {
		switch {
		case s[i] != '\\':
			i++
		case s[i+1] != 'u':
			i += 2
		case !utf16.IsSurrogate(hex4(s[i+2:])):
			i += 6
		default:
			next := i + 6
			if !bytes.HasPrefix(s[next:], []byte(`\u`)) ||
				utf16.DecodeRune(hex4(s[i+2:]), hex4(s[next+2:])) == utf8.RuneError {
				return true
			}
			i = next + 6
		}
	}
	return false
}
