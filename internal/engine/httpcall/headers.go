package httpcall

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
)

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

// reserved headers are HTTP's: of the connection, of the body, or of what is understood of an answer.
var reserved = []string{
	"Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Expect", "Host", "Keep-Alive",
	"Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// Faults are the headers that cannot be sent with each request. authorised says that the adapter sends Authorization
// itself, own which other headers, by their canonical names, it does; nil: none. No fault holds a value.
func (h Headers) Faults(authorised bool, own func(canonical string) bool) []error {
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(h)) {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !validToken(name):
			faults = append(faults, engine.Misset("headers."+name, "%q is no header name", name))
		case slices.Contains(reserved, canonical), own != nil && own(canonical):
			faults = append(faults, engine.Misset("headers."+name, "%s is set by the inbox; remove it", name))
		case canonical == "Authorization" && authorised:
			faults = append(faults, engine.Misset("headers."+name, "Authorization is set by auth; remove it"))
		case !ValidFieldValue(h[name]):
			faults = append(faults, engine.Misset("headers."+name, "the value has characters that no header can hold"))
		}
	}
	return faults
}

// validToken reports whether s is a token of RFC 9110, such as a header's name.
func validToken(s string) bool {
	const marks = "!#$%&'*+-.^_`|~"
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && !strings.ContainsRune(marks, r)
	})
}

// ValidFieldValue reports whether s can be a header's value as it is.
func ValidFieldValue(s string) bool {
	return strings.TrimSpace(s) == s && !strings.ContainsFunc(s, func(r rune) bool { return r != '\t' && (r < ' ' || r > '~') })
}
