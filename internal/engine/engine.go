// Package engine is the contract between the relay and a workflow engine: what the relay asks, and the verdicts an
// engine's adapter answers with. Each adapter is a package below this one, and passes the suite in enginetest.
//
// An adapter classifies by evidence: bodies, re-queries, history, not by a status code alone. It never retries a
// delivery by itself, never blocks longer than its timeout, and is safe for concurrent use. The relay decides what
// follows from a verdict; an adapter that cannot tell says Technical (the request was surely not acted upon) or Unknown
// (it may have been). Where it has not asked its engine at all it says so (Result.NotAsked): a message that cannot be
// sent says nothing about whether the engine is there.
package engine

import (
	"context"
	"encoding/json"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// Verdict is the outcome of one delivery.
type Verdict = inbox.Verdict

const (
	// Correlated: exactly one instance advanced.
	Correlated = inbox.VerdictCorrelated
	// Duplicate: the engine already has this delivery.
	Duplicate = inbox.VerdictDuplicate
	// HandedOver: the engine has taken the message, but nobody has advanced yet.
	HandedOver = inbox.VerdictHandedOver
	// NotWaiting: nobody waits for it, now. Heals with time if the message has overtaken its process.
	NotWaiting = inbox.VerdictNotWaiting
	// AlreadyThrough: the process is past the point that waits for it.
	AlreadyThrough = inbox.VerdictAlreadyThrough
	// Ambiguous: more than one instance waits for it.
	Ambiguous = inbox.VerdictAmbiguous
	// Vanished: the waiting instance went away between look-up and delivery.
	Vanished = inbox.VerdictVanished
	// Rejected: the engine refuses the message itself, for ever.
	Rejected = inbox.VerdictRejected
	// RetryAfter: the engine asks for this message later. RetryAfter of the result says when.
	RetryAfter = inbox.VerdictRetryAfter
	// Technical: it failed, surely without effect.
	Technical = inbox.VerdictTechnical
	// Throttled: the engine as a whole wants less. RetryAfter of the result may say when.
	Throttled = inbox.VerdictThrottled
	// Unauthorised: the engine refuses us, not the message.
	Unauthorised = inbox.VerdictUnauthorised
	// Unknown: sent, and no definite answer.
	Unknown = inbox.VerdictUnknown
	// Drop: the engine explicitly wants the message closed.
	Drop = inbox.VerdictDrop
	// NotStarted: nothing was sent, because BeforeSend forbade it.
	NotStarted = inbox.VerdictNotStarted
)

// Delivery is one message for one engine.
type Delivery struct {
	InboxID     string // stable over attempts: the idempotency key
	Attempt     int64  // 1 for the first
	Consumer    string
	Route       string
	Message     string // the engine's name of the message
	Key         string // correlation key; may be empty
	Start       bool   // the message starts an instance under Key, unless there is or was one
	MessageType string
	PublishedAt time.Time // zero if unknown
	TraceParent string    // W3C trace context of the publisher; may be empty

	// Variables are exact JSON texts: a number keeps every digit. Nil: the route names none, and the payload goes as it
	// came.
	Variables   map[string]json.RawMessage
	Payload     []byte
	ContentType string // of the payload; may be empty
	// ContentEncoding is the coding that Payload is in, such as gzip; empty: none.
	ContentEncoding string
	// DataRef is gs://bucket/object#generation of what the message refers to; empty: nothing.
	DataRef string

	// BeforeSend is called immediately before the request that delivers is written. Where it answers false nothing may be
	// sent and the verdict is NotStarted. Nil allows.
	BeforeSend func() bool
}

// MaySend asks BeforeSend.
func (d *Delivery) MaySend() bool { return d.BeforeSend == nil || d.BeforeSend() }

// Result is a verdict and its evidence. Code, Detail and Reference are kept on the row: they must hold no payload and no
// secret.
type Result struct {
	Verdict    Verdict
	Code       string        // short and stable, such as "HTTP 409"
	Detail     string        // one sentence for a person
	Reference  string        // what advanced, such as an instance id; or what was found ambiguous
	RetryAfter time.Duration // Throttled, RetryAfter, Technical and Unknown; zero: not said
	// NotAsked: the adapter has found this by itself, and no request of the call got as far as the engine, or was meant to.
	// Whatever the verdict, it says nothing about the engine. A connection or a token that cannot be had is no such finding:
	// there the way to the engine fails, for every message.
	NotAsked bool
}

// Properties are what an engine declares about itself.
type Properties struct {
	// Idempotent: a second delivery under the same inbox id has no second effect.
	Idempotent bool
	// Probe: the engine is a Prober.
	Probe bool
	// Timeout bounds one call of the engine, whichever method.
	Timeout time.Duration
}

// Engine delivers. Implementations are safe for concurrent use.
type Engine interface {
	Properties() Properties
	// Correlate delivers d, once. It returns within the engine's timeout, and earlier when ctx ends; a call cut off after
	// its request was written is Unknown.
	Correlate(ctx context.Context, d Delivery) Result
}

// ProbeOutcome is what a look-up of an earlier delivery found.
type ProbeOutcome string

const (
	// ProbeFound: the delivery had its effect.
	ProbeFound ProbeOutcome = "FOUND"
	// ProbeWaiting: it had none, and an instance still waits for it.
	ProbeWaiting ProbeOutcome = "WAITING"
	// ProbeGone: it left no trace, and nobody waits any more.
	ProbeGone ProbeOutcome = "GONE"
	// ProbeFailed: the look-up itself failed; Result says how (Technical, Throttled or Unauthorised).
	ProbeFailed ProbeOutcome = "FAILED"
)

// Prober is an Engine that can look up what became of a delivery with an unknown outcome.
type Prober interface {
	// Probe looks up an earlier delivery of d. The relay calls it no sooner than twice the timeout after that delivery
	// began, so that no open transaction can still hide it.
	Probe(ctx context.Context, d Delivery) (ProbeOutcome, Result)
}

// Historian is an Engine that can tell "not there yet" from "already through".
type Historian interface {
	// Through reports whether the process has passed the point that waits for d. The verdict of the result is
	// AlreadyThrough, NotWaiting, Duplicate where history shows that d itself was delivered, or a failure of the look-up
	// (Technical, Throttled, Unauthorised).
	Through(ctx context.Context, d Delivery) Result
}
