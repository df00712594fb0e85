package httpengine

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
)

// answer is what came back, with as much of its body as may be read.
type answer struct {
	status int
	header http.Header
	media  string // media type, lower case, without parameters
	body   []byte // nil unless all of it is there
	page   bool   // the body begins as a web page does, whatever its media type says
	cut    bool   // the body broke off
}

const maxReferenceBytes = 256

// read takes an answer in, and reports whether the connection is fit for another request. A body longer than limit is
// neither used nor waited for.
func read(resp *http.Response, limit int64) (answer, bool) {
	a := answer{status: resp.StatusCode, header: resp.Header}
	a.media, _, _ = mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode < 200 {
		// 101: what follows is no HTTP any more.
		_ = resp.Body.Close()
		return a, false
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	_ = resp.Body.Close()
	a.cut = err != nil
	start := strings.ToLower(string(bytes.TrimLeft(body[:min(len(body), 256)], "\ufeff \t\r\n")))
	a.page = strings.HasPrefix(start, "<!doctype html") || strings.HasPrefix(start, "<html")
	whole := err == nil && int64(len(body)) <= limit // then the body's end has been seen, and the connection is free
	encoding := resp.Header.Get("Content-Encoding")
	if whole && (encoding == "" || strings.EqualFold(encoding, "identity")) {
		a.body = body
	}
	return a, whole && !resp.Close
}

func (a *answer) html() bool {
	return a.page || a.media == "text/html" || a.media == "application/xhtml+xml"
}

func (a *answer) json() bool {
	return a.media == "application/json" || strings.HasPrefix(a.media, "application/") && strings.HasSuffix(a.media, "+json")
}

// reference is the engine's own name of what advanced, or of what was found: the header Inbox-Reference, else the member
// reference or instanceId of a JSON body, else the Location of something created, without its query. Only the header is
// surely meant for us; of the others nothing is taken that was in the delivery.
func (a *answer) reference(s scrubber) string {
	if r := a.header.Get("Inbox-Reference"); r != "" {
		return identifier(r)
	}
	if a.json() {
		var members struct{ Reference, InstanceID json.RawMessage }
		if json.Unmarshal(a.body, &members) == nil {
			for _, raw := range []json.RawMessage{members.Reference, members.InstanceID} {
				if r := s.reference(identifier(scalar(raw))); r != "" {
					return r
				}
			}
		}
	}
	if a.status == http.StatusCreated || a.status == http.StatusAccepted {
		if u, err := url.Parse(a.header.Get("Location")); err == nil {
			u.User, u.RawQuery, u.Fragment = nil, "", ""
			return s.reference(identifier(u.String()))
		}
	}
	return ""
}

// scalar is the text of a JSON string or number.
func scalar(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var number json.Number
	if json.Unmarshal(raw, &number) == nil {
		return number.String()
	}
	return ""
}

// identifier is s if it looks like one.
func identifier(s string) string {
	if len(s) > maxReferenceBytes || !visible(s) {
		return ""
	}
	return s
}
