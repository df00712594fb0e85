package inbox

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"slices"
	"strings"
)

// IdentityKind says what a message's id is made of. Kinds never collide: the kind is part of the hash.
type IdentityKind string

const (
	// TransportIdentity is the subscription and the message id: a redelivery finds its row, a republish does not.
	TransportIdentity IdentityKind = "transport"
	// BusinessIdentity is the route's dedupe key: a republish finds its row too.
	BusinessIdentity IdentityKind = "business"
	// ConflictIdentity is a taken identity and the content that contradicts it: each content is kept once.
	ConflictIdentity IdentityKind = "conflict"
	// DeadLetterIdentity is the source subscription and the id of the dead-letter message.
	DeadLetterIdentity IdentityKind = "dead-letter"
	// ReplayIdentity is an operation id: an intended second run.
	ReplayIdentity IdentityKind = "replay"
)

// ID returns the InboxId: the first 16 bytes, in hex, of SHA-256 over the length-prefixed parts.
// Callers must not pass an empty key: two messages without an id would become one.
func ID(kind IdentityKind, consumer, scope, key string) string {
	return digest(string(kind), consumer, scope, key)
}

// ConflictID returns the id of the row that keeps a contradicting content beside the row that owns the identity.
func ConflictID(consumer, scope, key, contentSHA256 string) string {
	return digest(string(ConflictIdentity), consumer, scope, key, contentSHA256)
}

// Identify gives m the identity that a dedupe key names, in its subscription or in its whole consumer. A row that keeps what
// contradicts that very identity has its own (ConflictID), and keeps it. Place comes after: a lane of its own is named by
// the id.
func (m *Message) Identify(dedupeKey string, consumerScope bool) {
	scope := m.Subscription
	if consumerScope {
		scope = m.Consumer
	}
	if m.ID == ConflictID(m.Consumer, scope, dedupeKey, m.ContentSHA256) {
		return
	}
	m.ID, m.Scope, m.DedupeKey = ID(BusinessIdentity, m.Consumer, scope, dedupeKey), scope, dedupeKey
}

// TransportKey identifies a push whatever identity its row has: a push that owns a row finds it again.
func TransportKey(consumer, subscription, messageID string) string {
	return digest("transport-key", consumer, subscription, messageID)
}

// DeadLetterKey identifies a dead letter whatever identity its row has, as TransportKey does a push. The same letter may be
// pushed, and pulled from another subscription of the dead-letter topic; its id is the topic's.
func DeadLetterKey(consumer, sourceSubscription, messageID string) string {
	return digest("dead-letter-key", consumer, sourceSubscription, messageID)
}

// OrderKind says what decides the order inside a lane.
type OrderKind string

const (
	OrderPublished OrderKind = "published" // publish time
	OrderReceived  OrderKind = "received"  // commit timestamp of the receive
	OrderSequence  OrderKind = "sequence"  // an expression of the route
	OrderNone      OrderKind = "none"      // no order: a lane of its own
)

// LaneID identifies a lane: all routes of a consumer share lanes, unless their key space or order kind differs.
func LaneID(consumer, keySpace string, order OrderKind, key string) string {
	return digest("lane", consumer, keySpace, string(order), key)
}

// OwnLaneID identifies the lane of a message without a key.
func OwnLaneID(consumer, inboxID string) string {
	return digest("own-lane", consumer, inboxID)
}

// ContentSHA256 is the hash that tells an exact redelivery from a contradiction: of the data, and of the attributes but for
// those of the transport (TransportAttribute).
func ContentSHA256(data []byte, attributes map[string]string, trace ...string) string {
	names := contentNames(attributes, func(name string) bool { return TransportAttribute(name, trace...) })
	return contentSHA256(data, attributes, names)
}

// Contents returns the hashes under which a row may have kept this content: ContentSHA256 first, then those of other lists
// of trace attributes that a row may have been stored under. An attribute that was content then stands in its hash with the
// value of its delivery, which a redelivery of that message has too.
func Contents(data []byte, attributes map[string]string, trace ...string) []string {
	var hashes []string
	var seen [][]string
	for _, transport := range []func(name string) bool{
		func(name string) bool { return TransportAttribute(name, trace...) },
		func(name string) bool { return TransportAttribute(name) }, // before the configuration named more
		fewTransportAttributes,
	} {
		names := contentNames(attributes, transport)
		if slices.ContainsFunc(seen, func(other []string) bool { return slices.Equal(names, other) }) {
			continue // a payload is hashed no more often than it must be
		}
		seen = append(seen, names)
		hashes = append(hashes, contentSHA256(data, attributes, names))
	}
	return hashes
}

func contentSHA256(data []byte, attributes map[string]string, names []string) string {
	h := sha256.New()
	writeLength(h, len(data))
	h.Write(data) // not through a string: that would be two copies of a payload
	for _, name := range names {
		writePart(h, name)
		writePart(h, attributes[name])
	}
	return hex.EncodeToString(h.Sum(nil))
}

func contentNames(attributes map[string]string, transport func(name string) bool) []string {
	names := make([]string, 0, len(attributes))
	for name := range attributes {
		if !transport(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// SHA256 returns the hex SHA-256 of b.
func SHA256(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// TransportAttribute reports whether an attribute is set by the transport for one delivery, or by a tracer for one publish,
// and so is no part of a message's content: what Pub/Sub adds to a dead letter, what its client libraries set, and trace
// context under the names of the usual tracers, in any letter case and with underscores for hyphens. trace names more; a
// name that ends in * stands for all that begin so.
//
// https://docs.cloud.google.com/pubsub/docs/dead-letter-topics
func TransportAttribute(name string, trace ...string) bool {
	if strings.HasPrefix(name, "CloudPubSubDeadLetterSource") {
		return true
	}
	folded := foldName(name)
	matches := func(pattern string) bool {
		begin, all := strings.CutSuffix(foldName(pattern), "*")
		return folded == begin || all && strings.HasPrefix(folded, begin)
	}
	return slices.ContainsFunc(traceAttributes, matches) || slices.ContainsFunc(trace, matches)
}

// traceAttributes are those of W3C, Zipkin, Google Cloud, gRPC, AWS, Datadog, Sentry, Jaeger, New Relic, Elastic, OpenTracing
// and Dynatrace.
var traceAttributes = []string{
	"googclient-*", "traceparent", "tracestate", "baggage", "b3", "x-b3-*", "x-cloud-trace-context", "grpc-trace-bin", "x-amzn-trace-id",
	"x-datadog-*", "dd-pathway-ctx*", "sentry-trace", "uber-trace-id", "uberctx-*", "newrelic", "elastic-apm-traceparent", "ot-tracer-*",
	"ot-baggage-*", "x-dynatrace",
}

func foldName(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }

// fewTransportAttributes is TransportAttribute as rows were stored by that know no other tracer than W3C's.
func fewTransportAttributes(name string) bool {
	return strings.HasPrefix(name, "CloudPubSubDeadLetterSource") || strings.HasPrefix(name, "googclient_") ||
		name == "traceparent" || name == "tracestate"
}

func digest(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		writePart(h, part)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

func writePart(h hash.Hash, part string) {
	writeLength(h, len(part))
	h.Write([]byte(part))
}

func writeLength(h hash.Hash, n int) {
	var length [8]byte
	binary.BigEndian.PutUint64(length[:], uint64(n))
	h.Write(length[:])
}
