package expr

import (
	"time"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

// Message is what expressions see as message.
type Message struct {
	ID           string
	PublishTime  time.Time // zero: absent
	OrderingKey  string
	Subscription string
}

// The fields of message, in the order of the documentation.
var messageFields = []string{"id", "publishTime", "orderingKey", "subscription"}

// Claim is what expressions see as claim: the object that a message refers to.
type Claim struct {
	URI         string // with the generation
	Bucket      string
	Object      string
	Generation  string
	Bytes       int64
	SHA256      string // empty: the sender does not say
	ContentType string
	Payload     []byte // nil: it was not read
}

var claimFields = []string{"uri", "bucket", "object", "generation", "bytes", "sha256", "contentType", "payload"}

// Input is one message, decoded once for all its expressions. Not for concurrent use.
type Input struct {
	message    map[string]any
	attributes map[string]string
	raw        []byte
	payload    ref.Val
	unread     string // why the payload is no JSON
	empty      bool
	claim      map[string]any // nil: there is none
}

// SetClaim adds the object that the message refers to.
func (in *Input) SetClaim(c Claim) {
	content := &Input{raw: c.Payload}
	in.claim = map[string]any{"uri": c.URI, "bucket": c.Bucket, "object": c.Object, "generation": c.Generation, "bytes": c.Bytes,
		"sha256": c.SHA256, "contentType": c.ContentType, "payload": content.root()}
}

// NewInput returns the input of a message. It keeps attributes and payload, which must not change meanwhile.
func NewInput(m Message, attributes map[string]string, payload []byte) *Input {
	message := map[string]any{"id": m.ID, "orderingKey": m.OrderingKey, "subscription": m.Subscription}
	if !m.PublishTime.IsZero() {
		message["publishTime"] = types.Timestamp{Time: m.PublishTime}
	}
	if attributes == nil {
		attributes = map[string]string{}
	}
	return &Input{message: message, attributes: attributes, raw: payload, empty: len(payload) == 0}
}

// JSON reports whether the payload is one JSON value that expressions see.
func (in *Input) JSON() bool {
	in.root()
	return in.raw != nil
}

// Unread says, in the words of a sentence, why expressions do not see the payload; empty: they do.
func (in *Input) Unread() string {
	in.root()
	return in.unread
}

// Empty reports whether the message has no payload at all, as one that is all attributes.
func (in *Input) Empty() bool { return in.empty }

// Document is the text of the JSON value that expressions see: unpacked, and without a byte order mark. Nil: there is none.
func (in *Input) Document() []byte {
	in.root()
	return in.raw
}

func (in *Input) root() ref.Val {
	if in.payload != nil {
		return in.payload
	}
	in.raw, in.unread = readable(in.raw, in.attributes)
	if in.raw == nil {
		in.payload = types.NullValue
		return in.payload
	}
	start := skipSpace(in.raw, 0)
	in.raw = in.raw[start:skipValue(in.raw, start)]
	in.payload = decode(in.raw)
	return in.payload
}

// ResolveName implements interpreter.Activation.
func (in *Input) ResolveName(name string) (any, bool) {
	switch name {
	case "attributes":
		return in.attributes, true
	case "payload":
		return in.root(), true
	case "message":
		return in.message, true
	case "claim":
		return in.claim, in.claim != nil
	}
	return nil, false
}

// Parent implements interpreter.Activation.
func (in *Input) Parent() interpreter.Activation { return nil }
