package httpengine

import (
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/httpcall"
)

// answer is what came back.
type answer struct{ httpcall.Answer }

const maxReferenceBytes = 256

// reference is the engine's own name of what advanced, or of what was found: the header Inbox-Reference, else the member
// reference or instanceId of a JSON body, else the Location of something created, without its query. Only the header is
// surely meant for us; of the others nothing is taken that was in the delivery.
func (a *answer) reference(s httpcall.Scrubber) string {
	if r := a.Header.Get("Inbox-Reference"); r != "" {
		return identifier(r)
	}
	if a.JSON() {
		var members struct{ Reference, InstanceID json.RawMessage }
		if json.Unmarshal(a.Body, &members) == nil {
			for _, raw := range []json.RawMessage{members.Reference, members.InstanceID} {
				if r := s.Reference(identifier(scalar(raw))); r != "" {
					return r
				}
			}
		}
	}
	if a.Status == http.StatusCreated || a.Status == http.StatusAccepted {
		if u, err := url.Parse(a.Header.Get("Location")); err == nil {
			u.User, u.RawQuery, u.Fragment = nil, "", ""
			return s.Reference(identifier(u.String()))
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
