package httpcall

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
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

// Headers are header values by name. The values may be secrets, and show themselves no more than a Secret does.
type Headers map[string]string

func (h Headers) String() string {
	return "[" + strings.Join(slices.Sorted(maps.Keys(h)), " ") + "]"
}
func (h Headers) GoString() string           { return h.String() }
func (h Headers) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, h.String()) }
func (h Headers) LogValue() slog.Value       { return slog.StringValue(h.String()) }
func (h Headers) MarshalJSON() ([]byte, error) {
	return json.Marshal(slices.Sorted(maps.Keys(h)))
}
