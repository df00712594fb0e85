package config

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"
)

// TextError says that a file is no text that is read here, and where that shows.
type TextError struct {
	Line, Column int
	message      string
}

// Error returns the message.
func (e *TextError) Error() string { return e.message }

// PlainText returns a text as if it had no byte order mark, which editors on Windows write. The error is a *TextError.
func PlainText(text []byte) ([]byte, error) {
	text, marked := bytes.CutPrefix(text, []byte("\ufeff"))
	encoding := ""
	switch {
	case marked:
	case bytes.HasPrefix(text, []byte{0xFF, 0xFE, 0, 0}), bytes.HasPrefix(text, []byte{0, 0, 0xFE, 0xFF}):
		encoding = "UTF-32"
	case bytes.HasPrefix(text, []byte{0xFF, 0xFE}), bytes.HasPrefix(text, []byte{0xFE, 0xFF}),
		len(text) > 1 && (text[0] == 0) != (text[1] == 0):
		encoding = "UTF-16"
	}
	if encoding != "" {
		return nil, &TextError{1, 1, fmt.Sprintf("this text is encoded in %s; save it as UTF-8", encoding)}
	}
	line, column := 1, 1
	for rest := text; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		switch {
		case r == utf8.RuneError && size == 1:
			return nil, &TextError{line, column, "this text is not encoded in UTF-8 from here on; save it as UTF-8"}
		case r == '\n':
			line, column = line+1, 1
		default:
			column++
		}
		rest = rest[size:]
	}
	return text, nil
}

// textFault places what PlainText says.
func (r *reader) textFault(err error) {
	var wrong *TextError
	if errors.As(err, &wrong) {
		r.faultAt(wrong.Line, wrong.Column, "", wrong.message)
	}
}
