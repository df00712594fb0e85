package httpcall

import (
	"fmt"
	"io"
	"log/slog"
)

const redacted = "[redacted]"

// Secret is a text that does not show itself: not through fmt, whatever the verb, nor slog, nor JSON. A conversion to
// string reveals it.
type Secret string

func (Secret) String() string               { return redacted }
func (Secret) GoString() string             { return redacted }
func (Secret) Format(s fmt.State, _ rune)   { _, _ = io.WriteString(s, redacted) }
func (Secret) LogValue() slog.Value         { return slog.StringValue(redacted) }
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
