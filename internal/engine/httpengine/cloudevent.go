package httpengine

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/httpcall"
)

// newRequest builds the one request of a delivery, but for an ID token. The error says what about the delivery cannot be
// sent; it holds no value.
func (e *Engine) newRequest(d engine.Delivery) (*http.Request, error) {
	if d.InboxID == "" || d.Message == "" {
		return nil, fmt.Errorf("the delivery has no inbox id or no message name")
	}
	body, contentType, err := bodyOf(d)
	if err != nil {
		return nil, err
	}
	header := make(http.Header, 20+len(e.config.Headers))
	for name, value := range e.config.Headers {
		header.Set(name, value)
	}
	if header.Get("Accept") == "" {
		header.Set("Accept", "application/json, application/problem+json")
	}
	if header.Get("User-Agent") == "" {
		header.Set("User-Agent", "pubsub-inbox")
	}
	header.Set("Accept-Encoding", "identity")
	header.Set("Content-Type", contentType)
	if d.Variables == nil && d.ContentEncoding != "" {
		if codings.MatchString(d.ContentEncoding) {
			header.Set("Content-Encoding", d.ContentEncoding)
		} else {
			header.Set("Content-Type", "application/octet-stream") // a type without its coding would be a lie
		}
	}
	header.Set("Idempotency-Key", quoted(d.InboxID))
	switch e.config.Auth.Kind {
	case AuthBasic:
		pair := e.config.Auth.Username + ":" + string(e.config.Auth.Password)
		header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(pair)))
	case AuthBearer:
		header.Set("Authorization", "Bearer "+string(e.config.Auth.Token))
	}

	attribute := func(name, value string) { header.Set("Ce-"+name, encodeValue(value)) }
	attribute("Specversion", "1.0")
	attribute("Id", d.InboxID)
	attribute("Source", e.config.Source)
	attribute("Type", d.Message)
	attribute("Inboxattempt", strconv.FormatInt(d.Attempt, 10))
	if !d.PublishedAt.IsZero() {
		attribute("Time", d.PublishedAt.UTC().Format(time.RFC3339Nano))
	}
	if d.Key != "" {
		attribute("Subject", d.Key)
		attribute("Partitionkey", d.Key)
		attribute("Correlationid", d.Key)
	}
	if d.DataRef != "" {
		// https://github.com/cloudevents/spec/blob/main/cloudevents/extensions/dataref.md
		attribute("Dataref", d.DataRef)
	}
	if validTraceParent(d.TraceParent) {
		header.Set("Traceparent", d.TraceParent)
		attribute("Traceparent", d.TraceParent)
	}

	target := *e.target
	return &http.Request{
		Method:        http.MethodPost,
		URL:           &target,
		Host:          e.target.Host,
		Header:        header,
		Body:          httpcall.Body(body),
		ContentLength: int64(len(body)),
	}, nil
}

// codings is a list of content codings, as the header takes it. https://www.rfc-editor.org/rfc/rfc9110#field.content-encoding
var codings = regexp.MustCompile("^[a-z0-9!#$%&'*+.^_`|~-]+( *, *[a-z0-9!#$%&'*+.^_`|~-]+)*$")

// bodyOf is what is sent as the event's data, and its media type.
func bodyOf(d engine.Delivery) ([]byte, string, error) {
	if d.Variables == nil {
		return d.Payload, payloadType(d), nil
	}
	var b bytes.Buffer
	b.WriteByte('{')
	for i, name := range slices.Sorted(maps.Keys(d.Variables)) {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := writeJSONString(&b, name); err != nil {
			return nil, "", fmt.Errorf("the name of a variable cannot be written as JSON")
		}
		b.WriteByte(':')
		// The raw text goes as it is: decoding and encoding it again would round its numbers.
		switch raw := d.Variables[name]; {
		case raw == nil:
			b.WriteString("null")
		case !json.Valid(raw):
			return nil, "", fmt.Errorf("the text of a variable is not JSON")
		default:
			b.Write(raw)
		}
	}
	b.WriteByte('}')
	return b.Bytes(), "application/json", nil
}

func writeJSONString(b *bytes.Buffer, s string) error {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return err
	}
	b.Truncate(b.Len() - 1) // Encode ends the line
	return nil
}

// payloadType is the payload's own media type where it can be said in a header. A CloudEvents media type would turn the
// request into one in structured mode, and is replaced by what the bytes are.
func payloadType(d engine.Delivery) string {
	if d.ContentType != "" && httpcall.ValidFieldValue(d.ContentType) {
		media, _, err := mime.ParseMediaType(d.ContentType)
		if err == nil && strings.Contains(media, "/") && !strings.HasPrefix(media, "application/cloudevents") {
			return d.ContentType
		}
	}
	if json.Valid(d.Payload) {
		return "application/json"
	}
	return "application/octet-stream"
}

// encodeValue encodes an attribute as the CloudEvents HTTP binding asks for: what is not printable ASCII, and space,
// quote and percent sign, as the percent-encoded bytes of its UTF-8 form.
func encodeValue(s string) string {
	const hex = "0123456789ABCDEF"
	s = strings.ToValidUTF8(s, "\uFFFD")
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); i++ {
		if c := s[i]; c <= ' ' || c > '~' || c == '"' || c == '%' {
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// quoted is s as a string of structured fields, which holds printable ASCII only.
func quoted(s string) string {
	return `"` + strings.ReplaceAll(encodeValue(s), `\`, `\\`) + `"`
}

// validTraceParent accepts version 00 of the W3C header: the publisher's text goes into our header only as exactly that.
func validTraceParent(s string) bool {
	if len(s) != 55 || s[:3] != "00-" || s[35] != '-' || s[52] != '-' {
		return false
	}
	for _, part := range []string{s[3:35], s[36:52], s[53:]} {
		if strings.Trim(part, "0123456789abcdef") != "" {
			return false
		}
	}
	return strings.Trim(s[3:35], "0") != "" && strings.Trim(s[36:52], "0") != ""
}

// visible reports whether s is printable ASCII without spaces.
func visible(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}
