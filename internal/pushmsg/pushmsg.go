// Package pushmsg reads the body of a wrapped Pub/Sub push: https://docs.cloud.google.com/pubsub/docs/push.
//
// It promises that a body with a message id gives an envelope, whatever else is wrong with it: what cannot be decoded
// makes the envelope Unreadable, whole, so that the receiver can store and acknowledge it. No half of an unreadable
// message is given out, because half a message must not run. Any other body gives a NotAPushError whose sentence names
// the setting that most likely caused it. Every text of a readable envelope is the sender's, character for character:
// encoding/json would put U+FFFD for what it cannot decode and match member names in any letter case, and either could
// make one message out of two. Neither a sentence nor Unreadable contains a payload or an attribute value.
//
// It does not promise that the message came from Pub/Sub, that the payload is of any format, or that attributes keep to
// Pub/Sub's quotas (only their number is bounded, for memory's sake). A name that occurs twice in a JSON object has its
// last value. A byte order mark before the JSON is ignored.
//
// Parse does no I/O, knows no clock and allocates little more than the decoded payload: the raw message is a part of the
// body it was given, so that body must not change afterwards. Everything here may be called concurrently; an Envelope is
// not changed once it is returned.
package pushmsg

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// Envelope is one wrapped push.
//
// Subscription, MessageID and OrderingKey are always valid UTF-8 of at most inbox.MaxTransport bytes. A subscription or
// message id that cannot be kept as it is makes the envelope unreadable and is replaced by "sha256:" and the hash of its
// JSON text: a cut or repaired one could be another message's. One that begins with "sha256:" is replaced as well, so
// that no sender can choose the id of an unreadable message.
type Envelope struct {
	Subscription    string // empty: not said
	MessageID       string // never empty
	OrderingKey     string
	DeliveryAttempt int64             // 0: not said. Approximate: information only
	PublishTime     time.Time         // UTC; zero: unknown (absent, not RFC 3339, or outside the years 1 to 9999)
	Attributes      map[string]string // nil if and only if unreadable
	Data            []byte            // decoded exactly once, empty when absent; nil if and only if unreadable
	RawMessage      []byte            // the `message` member as it came; a part of the body
	Unreadable      string            // why the message could not be decoded, and where; never a value. Empty: readable
}

// NotAPushError says that no row can be made of a body: there is no message id to store it under.
type NotAPushError struct {
	Sentence string // for a person: what is wrong and which setting is likely the cause; no text of the body
}

func (e *NotAPushError) Error() string { return e.Sentence }

const (
	sentenceEmpty = "empty body, not a wrapped push: a subscription with payload unwrapping (no_wrapper) sends this " +
		"for a message without data; switch payload unwrapping off"
	sentenceInvalidJSON = "invalid JSON at line %d, column %d (byte %d), not a wrapped push: a subscription with " +
		"payload unwrapping (no_wrapper) sends data that is not JSON like this; switch payload unwrapping off"
	sentenceNoMessage = "no member \"message\", not a wrapped push: the subscription probably has payload unwrapping " +
		"(no_wrapper) switched on; switch it off"
	sentenceMessageKind = "member \"message\" is %s, not an object, so this is not a wrapped push: the subscription " +
		"probably has payload unwrapping (no_wrapper) switched on; switch it off"
	sentenceNoID = "message id missing: neither messageId nor message_id is a text or a number. A Pub/Sub push always " +
		"has one; if this is the publisher's own data, the subscription has payload unwrapping (no_wrapper) switched on: " +
		"switch it off"
	sentenceCloudEvent = "CloudEvents envelope is not supported; use a push subscription of Pub/Sub, not Eventarc"
	sentenceBackground = "legacy background event (eventId, resource, data) is not supported: it is what a function of " +
		"the first generation gets; use a push subscription of Pub/Sub"
)

const (
	// maxAttributes is ten times Pub/Sub's quota. A map of very many tiny attributes takes many times their bytes.
	maxAttributes = 1000
	// maxNameShown bounds an attribute's name in Unreadable, in bytes before quoting.
	maxNameShown = 64
	// maxTimeJSON is several times the longest time in escapes: an error of time.Parse has two copies of its input.
	maxTimeJSON  = 512
	digestPrefix = "sha256:"
)

// Parse reads the body of a push. Every error is a *NotAPushError.
func Parse(body []byte) (*Envelope, error) {
	body = bytes.TrimPrefix(body, []byte("\uFEFF"))
	top := bytes.Trim(body, " \t\r\n")
	if len(top) == 0 {
		return nil, &NotAPushError{sentenceEmpty}
	}
	if !json.Valid(body) {
		return nil, invalidJSON(body)
	}
	if top[0] != '{' {
		return nil, &NotAPushError{sentenceNoMessage}
	}
	push := readPush(top)
	if push.message == nil {
		return nil, &NotAPushError{push.withoutMessage()}
	}
	if push.message[0] != '{' {
		return nil, &NotAPushError{fmt.Sprintf(sentenceMessageKind, kind(push.message))}
	}
	message := readMessage(push.message)
	id := message.identity()
	if id == nil {
		return nil, &NotAPushError{sentenceNoID}
	}

	e := &Envelope{
		DeliveryAttempt: attempt(push.deliveryAttempt),
		PublishTime:     firstTime(message.publishTime, message.publishTimeSnake),
		RawMessage:      push.message,
	}
	var f faults
	e.MessageID = f.messageID(id)
	// Without a subscription the row has an empty scope, which is better than no row.
	if !absent(push.subscription) {
		e.Subscription = f.identifier("subscription", push.subscription)
	}
	e.OrderingKey = f.orderingKey(message.orderingKey, message.orderingKeySnake)
	e.Attributes = f.attributes(message.attributes)
	e.Data = f.data(message.data)
	if len(f) > 0 {
		e.Unreadable = strings.Join(f, "; ")
		e.Attributes, e.Data = nil, nil
	}
	return e, nil
}

// invalidJSON gives only the position of the syntax error: its text quotes a character of the body.
func invalidJSON(body []byte) error {
	offset := int64(len(body))
	var syntax *json.SyntaxError
	if errors.As(json.Unmarshal(body, new(json.RawMessage)), &syntax) {
		offset = min(offset, max(0, syntax.Offset-1))
	}
	before := body[:offset]
	line := 1 + bytes.Count(before, []byte("\n"))
	column := len(before) - bytes.LastIndexByte(before, '\n')
	return &NotAPushError{fmt.Sprintf(sentenceInvalidJSON, line, column, offset)}
}

// pushMembers holds the raw members of the body that matter.
type pushMembers struct {
	message, subscription, deliveryAttempt []byte
	// What other envelopes have, to tell their senders which one it is.
	specVersion, eventID, resource, data, context []byte
}

func readPush(object []byte) pushMembers {
	var p pushMembers
	for name, value := range members(object) {
		switch string(asciiName(name)) {
		case "message":
			p.message = value
		case "subscription":
			p.subscription = value
		case "deliveryAttempt":
			p.deliveryAttempt = value
		case "specversion":
			p.specVersion = value
		case "eventId":
			p.eventID = value
		case "resource":
			p.resource = value
		case "data":
			p.data = value
		case "context":
			p.context = value
		}
	}
	return p
}

func (p pushMembers) withoutMessage() string {
	switch {
	case p.specVersion != nil:
		return sentenceCloudEvent
	case p.data != nil && p.eventID != nil && p.resource != nil,
		p.data != nil && p.context != nil && p.context[0] == '{' && readPush(p.context).eventID != nil:
		return sentenceBackground
	default:
		return sentenceNoMessage
	}
}

// messageMembers holds the raw members of `message` that matter. Pub/Sub sends two of them in two spellings, emulators in one.
type messageMembers struct {
	data, attributes              []byte
	messageID, messageIDSnake     []byte
	publishTime, publishTimeSnake []byte
	orderingKey, orderingKeySnake []byte
}

func readMessage(object []byte) messageMembers {
	var m messageMembers
	for name, value := range members(object) {
		switch string(asciiName(name)) {
		case "data":
			m.data = value
		case "attributes":
			m.attributes = value
		case "messageId":
			m.messageID = value
		case "message_id":
			m.messageIDSnake = value
		case "publishTime":
			m.publishTime = value
		case "publish_time":
			m.publishTimeSnake = value
		case "orderingKey":
			m.orderingKey = value
		case "ordering_key":
			m.orderingKeySnake = value
		}
	}
	return m
}

// identity returns the JSON text of the message id, or nil. A spelling that holds no id does not hide the other one.
func (m messageMembers) identity() []byte {
	for _, raw := range [][]byte{m.messageID, m.messageIDSnake} {
		if !absent(raw) && (kind(raw) == kindString || kind(raw) == kindNumber) {
			return raw
		}
	}
	return nil
}

// faults collects why a message is unreadable. Its methods return what can be kept.
type faults []string

func (f *faults) add(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

// messageID reads a message id. A number is taken as it is written: a float64 would make one id of two.
func (f *faults) messageID(raw []byte) string {
	switch {
	case kind(raw) != kindNumber:
		return f.identifier("message id", raw)
	case len(raw) > inbox.MaxTransport:
		f.add("message id is longer than %d bytes", inbox.MaxTransport)
		return digestPrefix + inbox.SHA256(raw)
	default:
		return string(raw)
	}
}

// identifier reads a text that is a part of the message's identity.
func (f *faults) identifier(what string, raw []byte) string {
	text, fault := shortText(raw)
	if fault == "" && strings.HasPrefix(text, digestPrefix) {
		fault = fmt.Sprintf("begins with %q", digestPrefix)
	}
	if fault == "" {
		return text
	}
	f.add("%s %s", what, fault)
	return digestPrefix + inbox.SHA256(raw)
}

func (f *faults) orderingKey(camel, snake []byte) string {
	raw := camel
	if absent(raw) {
		raw = snake
	}
	if absent(raw) {
		return ""
	}
	text, fault := shortText(raw)
	if fault != "" {
		f.add("ordering key %s", fault)
	}
	return text
}

func (f *faults) attributes(raw []byte) map[string]string {
	attributes := make(map[string]string)
	if raw == nil || kind(raw) == kindNull {
		return attributes
	}
	if kind(raw) != kindObject {
		f.add("attributes is %s, not an object", kind(raw))
		return nil
	}
	for rawName, rawValue := range members(raw) {
		name, ok := decodeString(rawName)
		if !ok {
			f.add("the name of attribute %s is not valid Unicode", shown(string(rawName[1:len(rawName)-1])))
			return nil
		}
		if kind(rawValue) != kindString {
			f.add("attribute %s is %s, not a string", shown(name), kind(rawValue))
			return nil
		}
		value, ok := decodeString(rawValue)
		if !ok {
			f.add("the value of attribute %s is not valid Unicode", shown(name))
			return nil
		}
		attributes[name] = value
		if len(attributes) > maxAttributes {
			f.add("more than %d attributes", maxAttributes)
			return nil
		}
	}
	return attributes
}

func (f *faults) data(raw []byte) []byte {
	if raw == nil || kind(raw) == kindNull {
		return []byte{}
	}
	if kind(raw) != kindString {
		f.add("data is %s, not a string", kind(raw))
		return nil
	}
	data, bad := decodeBase64(raw[1 : len(raw)-1])
	if data == nil {
		f.add("data is not base64 at byte %d", bad)
	}
	return data
}

// shortText reads a string that goes into a column of inbox.MaxTransport.
func shortText(raw []byte) (text, fault string) {
	if kind(raw) != kindString {
		return "", "is " + kind(raw) + ", not a string"
	}
	text, ok := decodeString(raw)
	switch {
	case !ok:
		return "", "is not valid Unicode"
	case len(text) > inbox.MaxTransport:
		return "", fmt.Sprintf("is longer than %d bytes", inbox.MaxTransport)
	default:
		return text, ""
	}
}

// shown returns an attribute's name fit for a column and a log: plain ASCII and short.
func shown(name string) string {
	if len(name) > maxNameShown {
		return strconv.QuoteToASCII(name[:maxNameShown]) + " (cut)"
	}
	return strconv.QuoteToASCII(name)
}

// attempt reads a delivery attempt. It decides nothing, so what is no count is no fault either.
func attempt(raw []byte) int64 {
	n, err := strconv.ParseInt(string(bytes.Trim(raw[:min(len(raw), 32)], `"`)), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// firstTime returns the first value that is a time. An unknown time is zero and no fault: emulators send "" or nothing.
func firstTime(values ...[]byte) time.Time {
	for _, raw := range values {
		if absent(raw) || kind(raw) != kindString || len(raw) > maxTimeJSON {
			continue
		}
		text, _ := decodeString(raw)
		t, err := time.Parse(time.RFC3339Nano, text)
		// Spanner's range, which an offset can leave.
		if t = t.UTC(); err == nil && t.Year() >= 1 && t.Year() <= 9999 {
			return t
		}
	}
	return time.Time{}
}
