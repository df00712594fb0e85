// Package receiver stores pushed messages. It answers 2xx if and only if a row for the delivery is committed, now or
// earlier; the status is the last thing that it writes, and nothing of a request outlives its answer.
//
// Before the answer stands only what can fail technically. Whatever arrives in an envelope with an id is stored: what is
// unreadable, unroutable or contradictory as PARKED, with a reason. What is no push at all is refused (400), and left to
// Pub/Sub's dead-letter topic.
//
// A Receiver is safe for concurrent use. A new message costs one round trip to the store, a redelivery at most three.
package receiver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/pushmsg"
	"github.com/pubsub-inbox/pubsub-inbox/internal/routing"
)

// Store is what the receiver needs of the ledger.
type Store interface {
	// Insert answers inbox.ErrExists where the message or the push has its row, and inbox.ErrRefused where the database
	// would never take these values; any other error is technical or of unknown outcome.
	Insert(ctx context.Context, a *inbox.Arrival) error
	Find(ctx context.Context, ids []string, transportKey string) ([]inbox.Known, error)
	AddRedelivery(ctx context.Context, d inbox.Redelivery) error
	// Twin looks for a row of m's lane that may be the same event: of its subscription, publish time and content.
	Twin(ctx context.Context, m *inbox.Message) (inbox.Twin, error)
}

// Objects keeps payloads that are too large for a row. See claimcheck.Store.
type Objects interface {
	// Put answers inbox.ErrObjectFinished, with the object, where it is there and marked for deletion.
	Put(ctx context.Context, inboxID, sha256 string, body []byte, contentType string) (inbox.Object, error)
	Renew(ctx context.Context, o inbox.Object) (inbox.Object, error)
}

// Router decides where a message belongs.
type Router interface {
	Route(in routing.Input) routing.Decision
}

// Observer is told what becomes of deliveries, for numbers and traces. Its methods return at once, and are called from many
// goroutines.
type Observer interface {
	// Begin is told of a push that has been read, with its publisher's W3C trace context or "". What it returns is called
	// once, when the push has its row or has none.
	Begin(ctx context.Context, traceParent string) (context.Context, func(stored bool))
	// Stored is told of a new row, and Known of a delivery whose row was there, each with the broker's count of delivery
	// attempts, 0 if it is unknown.
	Stored(ctx context.Context, m *inbox.Message, attempt int64)
	Known(ctx context.Context, m *inbox.Message, attempt int64)
	// DeadLetter is told of a message of the dead-letter topic that has its row, besides.
	DeadLetter(outcome string)
	// Committed is told how long a commit took, whatever came of it.
	Committed(ctx context.Context, took time.Duration)
}

// unobserved stands in where nobody watches.
type unobserved struct{}

func (unobserved) Begin(ctx context.Context, _ string) (context.Context, func(bool)) {
	return ctx, func(bool) {}
}
func (unobserved) Stored(context.Context, *inbox.Message, int64) {}
func (unobserved) Known(context.Context, *inbox.Message, int64)  {}
func (unobserved) DeadLetter(string)                             {}
func (unobserved) Committed(context.Context, time.Duration)      {}

// Receiver records pushes of one consumer.
type Receiver struct {
	Consumer string
	Revision string // of this deployment, kept with redeliveries
	Store    Store
	Router   Router
	// Objects keeps payloads of more than Threshold bytes. Nil: all are kept in their rows, up to inbox.MaxInlinePayload.
	Objects   Objects
	Threshold int64
	// Buckets are those that a sender may refer to.
	Buckets []string
	// TraceAttributes are further attributes that are no part of a message's content. See inbox.TransportAttribute.
	TraceAttributes []string
	Log             *slog.Logger
	Now             func() time.Time // stands in for an unknown publish time, bounds what a dead letter says of its times, and is read for durations
	// Observer may be nil.
	Observer Observer
}

func (r *Receiver) observer() Observer {
	if r.Observer == nil {
		return unobserved{}
	}
	return r.Observer
}

// Outcome is what became of a delivery that has its row.
type Outcome string

const (
	Stored Outcome = "stored" // a new row, RECEIVED or PARKED
	Repeat Outcome = "known"  // its row was there
)

// ErrTooLarge: the payload is over what the inbox stores.
var ErrTooLarge = errors.New("the payload is over the size limit")

// MessageError is an error about a push whose ids are known.
type MessageError struct {
	InboxID, MessageID, Subscription string
	Err                              error
}

func (e *MessageError) Error() string { return e.Err.Error() }

// Unwrap returns the error itself.
func (e *MessageError) Unwrap() error { return e.Err }

// Receive stores one push; one that carries a dead letter as ReceiveDeadLetter does. With a nil error a row for the delivery is committed. Errors: *pushmsg.NotAPushError,
// ErrTooLarge; anything else is technical, or of unknown outcome. All but the first are a *MessageError.
func (r *Receiver) Receive(ctx context.Context, body []byte) (Outcome, error) {
	envelope, err := pushmsg.Parse(body)
	if err != nil {
		return "", err
	}
	if _, ok := envelope.Attributes[DeadLetterMark]; ok {
		plain, err := r.storedAsPlain(ctx, envelope)
		if err != nil {
			return "", err
		}
		if !plain {
			return r.receiveLetter(ctx, envelope, body)
		}
	}
	ctx, ended := r.observer().Begin(ctx, envelope.TraceParent())
	a := r.arrival(envelope, body)
	outcome, err := r.store(ctx, a, envelope, body)
	ended(err == nil)
	if err != nil {
		err = &MessageError{InboxID: a.Message.ID, MessageID: envelope.MessageID, Subscription: envelope.Subscription, Err: err}
	}
	return outcome, err
}

// storedAsPlain reports whether a push that carries a dead letter has its row already as a message like any other. A push that
// owns a row keeps it.
func (r *Receiver) storedAsPlain(ctx context.Context, e *pushmsg.Envelope) (bool, error) {
	m := r.transport(e).Message
	known, err := r.Store.Find(ctx, []string{m.ID}, m.TransportKey)
	if err != nil {
		return false, &MessageError{InboxID: m.ID, MessageID: e.MessageID, Subscription: e.Subscription, Err: err}
	}
	return own(known, &m) != nil, nil
}

func (r *Receiver) store(ctx context.Context, a *inbox.Arrival, envelope *pushmsg.Envelope, body []byte) (Outcome, error) {
	outcome, err := r.record(ctx, a, envelope)
	if errors.Is(err, inbox.ErrRefused) {
		// The values are checked and cut before; if the database refuses one all the same, a redelivery would meet the same
		// refusal, and so would the dead-letter topic. So it is kept in a form that cannot be refused.
		// The database's text is not logged: it can quote the value ("Could not parse ... as an integer").
		r.Log.WarnContext(ctx, "the database refused a message; it is kept in raw form", "inboxId", a.Message.ID,
			"messageId", envelope.MessageID, "subscription", envelope.Subscription)
		safe := r.safeForm(envelope, body, "the database refused its values")
		if a.Message.FromDeadLetter {
			r.address(&safe.Message, envelope, a.Message.SourceAttempts, false)
		}
		outcome, err = r.record(ctx, safe, envelope)
	}
	return outcome, err
}

// record inserts the arrival, or finds the row that it belongs to.
func (r *Receiver) record(ctx context.Context, a *inbox.Arrival, e *pushmsg.Envelope) (Outcome, error) {
	err := r.insert(ctx, a)
	switch {
	case err == nil:
		r.stored(ctx, &a.Message, e)
		return Stored, nil
	case !errors.Is(err, inbox.ErrExists):
		return "", err
	}
	return r.repeated(ctx, a, e)
}

// insert stores the arrival; a large payload first, so that a crash leaves an object without a row, and never a row without
// its object. An object of its name that is marked for deletion is one whose message has finished: then the row is there, or
// was, and is looked for before a new generation is made.
func (r *Receiver) insert(ctx context.Context, a *inbox.Arrival) error {
	if r.Objects == nil || int64(len(a.Body)) <= r.Threshold {
		if len(a.Body) > inbox.MaxInlinePayload {
			return ErrTooLarge
		}
		return r.commit(ctx, a)
	}
	m := a.Message
	if m.Reason == inbox.Unreadable {
		// The raw request holds the delivery attempt, so that every redelivery would upload a different object.
		known, err := r.Store.Find(ctx, []string{m.ID}, m.TransportKey)
		if err != nil {
			return err
		}
		if own(known, &m) != nil {
			return fmt.Errorf("message %s: %w", m.ID, inbox.ErrExists)
		}
	}
	o, err := r.Objects.Put(ctx, m.ID, m.PayloadSHA256, a.Body, a.ContentType)
	if errors.Is(err, inbox.ErrObjectFinished) {
		known, findErr := r.Store.Find(ctx, []string{m.ID}, m.TransportKey)
		if findErr != nil {
			return findErr
		}
		if own(known, &m) != nil {
			return fmt.Errorf("message %s: %w", m.ID, inbox.ErrExists)
		}
		o, err = r.Objects.Renew(ctx, o)
	}
	if err != nil {
		return err
	}
	m.PayloadLocation = o.Location()
	return r.commit(ctx, &inbox.Arrival{Message: m, ContentType: a.ContentType})
}

func (r *Receiver) commit(ctx context.Context, a *inbox.Arrival) error {
	began := r.Now()
	err := r.Store.Insert(ctx, a)
	r.observer().Committed(ctx, r.Now().Sub(began))
	return err
}

// repeated decides about a push whose identity is taken: its own row again, or another content under the same identity,
// which is stored beside it, once.
func (r *Receiver) repeated(ctx context.Context, a *inbox.Arrival, e *pushmsg.Envelope) (Outcome, error) {
	m := &a.Message
	same := r.contents(e)
	conflict := *a
	conflict.Message.ID = inbox.ConflictID(m.Consumer, m.Scope, m.DedupeKey, m.ContentSHA256)
	for range 2 { // a second look where another delivery of the same conflict came first
		known, err := r.Store.Find(ctx, []string{m.ID, conflict.Message.ID}, m.TransportKey)
		if err != nil {
			return "", err
		}
		owner := own(known, m)
		if owner == nil {
			return "", fmt.Errorf("message %s exists and is not to be found: it may be on its way out", m.ID)
		}
		for _, k := range append([]inbox.Known{*owner}, known...) {
			if slices.Contains(same, k.ContentSHA256) || k.AnnouncedBy(m) {
				return Repeat, r.redelivered(ctx, m, k, e)
			}
		}
		r.contradict(&conflict, a, *owner)
		err = r.insert(ctx, &conflict)
		switch {
		case err == nil:
			r.stored(ctx, &conflict.Message, e)
			return Stored, nil
		case !errors.Is(err, inbox.ErrExists):
			return "", err
		}
	}
	return "", fmt.Errorf("message %s: its conflicting content exists and is not to be found", m.ID)
}

// contents are the hashes under which a row may have kept this message: as it was read, and in raw form. Which of them it
// was can differ between two deliveries: where the database refused a value once, where a commit that looked refused was
// executed after all, or where an earlier revision could not read what this one can, or had another list of attributes that
// are no content.
func (r *Receiver) contents(e *pushmsg.Envelope) []string {
	raw := inbox.SHA256(e.RawMessage)
	if e.Unreadable != "" {
		return []string{raw}
	}
	return append(inbox.Contents(e.Data, e.Attributes, r.TraceAttributes...), raw)
}

// own returns the row that the push owns: by its transport key, whatever identity the row has, else by its identity.
func own(known []inbox.Known, m *inbox.Message) *inbox.Known {
	var byID *inbox.Known
	for i, k := range known {
		if k.TransportKey == m.TransportKey && m.TransportKey != "" {
			return &known[i]
		}
		if k.ID == m.ID {
			byID = &known[i]
		}
	}
	return byID
}

// contradict makes c the row that keeps a's content beside the row that owns the identity. Where the push's own transport
// key is what is taken (an emulator's ids start again at 1), the row has none.
func (r *Receiver) contradict(c, a *inbox.Arrival, owner inbox.Known) {
	m := &c.Message
	m.ArriveBeside(owner.ID)
	if owner.TransportKey == m.TransportKey {
		m.TransportKey = ""
	}
	if a.Message.LaneID == inbox.OwnLaneID(r.Consumer, a.Message.ID) {
		m.LaneID = inbox.OwnLaneID(r.Consumer, m.ID)
	}
}

// redelivered counts a delivery that changes nothing. A failure there changes nothing either.
func (r *Receiver) redelivered(ctx context.Context, m *inbox.Message, owner inbox.Known, e *pushmsg.Envelope) error {
	r.observer().Known(ctx, m, e.DeliveryAttempt)
	r.Log.InfoContext(ctx, "message known", "inboxId", owner.ID, "messageId", e.MessageID, "subscription", e.Subscription,
		"route", m.Route, "deliveries", owner.Deliveries+2)
	if owner.Deliveries >= inbox.MaxDeliveries {
		return nil
	}
	err := r.Store.AddRedelivery(ctx, inbox.Redelivery{InboxID: owner.ID, MessageID: inbox.Text(e.MessageID, inbox.MaxTransport),
		Attempt: e.DeliveryAttempt, Subscription: inbox.Text(e.Subscription, inbox.MaxTransport), Revision: r.Revision})
	if err != nil {
		r.Log.WarnContext(ctx, "a redelivery was not counted", "inboxId", owner.ID, "error", err)
	}
	return nil
}

func (r *Receiver) stored(ctx context.Context, m *inbox.Message, e *pushmsg.Envelope) {
	r.observer().Stored(ctx, m, e.DeliveryAttempt)
	level := slog.LevelInfo
	if m.Status == inbox.Parked {
		level = slog.LevelWarn
	}
	r.Log.Log(ctx, level, "message stored", "inboxId", m.ID, "status", string(m.Status), "reason", string(m.Reason),
		"detail", m.LastErrorMessage, "messageId", e.MessageID, "subscription", e.Subscription, "route", m.Route)
}

// arrival makes a row of an envelope. Every value fits its column.
func (r *Receiver) arrival(e *pushmsg.Envelope, body []byte) *inbox.Arrival {
	if why := Unstorable(e); why != "" {
		return r.safeForm(e, body, why)
	}
	return r.arrivalBy(e, r.decide(e))
}

// Unstorable says why a message cannot be kept as a message, but only as the request that it came in.
func Unstorable(e *pushmsg.Envelope) string {
	if e.Unreadable != "" {
		return e.Unreadable
	}
	size := 0
	for name, value := range e.Attributes {
		size += len(name) + len(value)
	}
	if size > inbox.MaxAttributes {
		return fmt.Sprintf("the attributes take %d bytes; %d are the limit", size, inbox.MaxAttributes)
	}
	return ""
}

func (r *Receiver) decide(e *pushmsg.Envelope) routing.Decision {
	return r.Router.Route(routing.Input{MessageID: e.MessageID, OrderingKey: e.OrderingKey, Subscription: e.Subscription,
		PublishTime: e.PublishTime, Attributes: e.Attributes, Payload: e.Data})
}

func (r *Receiver) arrivalBy(e *pushmsg.Envelope, d routing.Decision) *inbox.Arrival {
	a := r.transport(e)
	m := &a.Message
	a.Body = e.Data
	a.ContentType = ContentType(e.Attributes)
	m.Attributes, m.TraceParent = e.Attributes, e.TraceParent()
	m.ContentSHA256 = inbox.ContentSHA256(e.Data, e.Attributes, r.TraceAttributes...)
	m.PayloadSHA256, m.PayloadBytes = inbox.SHA256(e.Data), int64(len(e.Data))
	m.Route, m.Type, m.Version, m.TenantID = d.Route, d.Type, d.Version, d.TenantID
	m.AggregateType, m.CorrelationID, m.CausationID = d.AggregateType, d.CorrelationID, d.CausationID
	m.Blocks = d.Blocks
	if d.DedupeKey != "" {
		m.Scope, m.DedupeKey = inbox.Text(e.Subscription, inbox.MaxTransport), d.DedupeKey
		scope := e.Subscription
		if d.ConsumerScope {
			m.Scope, scope = r.Consumer, r.Consumer
		}
		m.ID = inbox.ID(inbox.BusinessIdentity, r.Consumer, scope, d.DedupeKey)
	}
	m.Place(d.Placement())
	m.Claim = d.Claim
	if !d.Claim.IsZero() && !slices.Contains(r.Buckets, d.Claim.Bucket) && d.Park == "" {
		d.Park, d.ParkDetail = inbox.Contract, "claim: its bucket is none of those in claimCheck.buckets"
	}
	m.Arrive(d.Park, d.ParkDetail)
	return a
}

// transport begins a row with what the transport says: its own identity, and a lane of its own.
func (r *Receiver) transport(e *pushmsg.Envelope) *inbox.Arrival {
	m := inbox.Message{
		ID:           inbox.ID(inbox.TransportIdentity, r.Consumer, e.Subscription, e.MessageID),
		Consumer:     r.Consumer,
		Scope:        inbox.Text(e.Subscription, inbox.MaxTransport),
		DedupeKey:    inbox.Text(e.MessageID, inbox.MaxDedupeKey),
		TransportKey: inbox.TransportKey(r.Consumer, e.Subscription, e.MessageID),
		Subscription: inbox.Text(e.Subscription, inbox.MaxTransport),
		MessageID:    inbox.Text(e.MessageID, inbox.MaxTransport),
		OrderingKey:  inbox.Text(e.OrderingKey, inbox.MaxTransport),
		PublishedAt:  e.PublishTime,
		OrderedAt:    e.PublishTime,
	}
	m.Arrive("", "")
	if m.OrderedAt.IsZero() {
		m.OrderedAt = r.Now().UTC()
	}
	m.LaneID = inbox.OwnLaneID(r.Consumer, m.ID)
	return &inbox.Arrival{Message: m}
}

// safeForm keeps the request body as it came, parked under the transport's identity. Its content is the raw message
// member: the delivery attempt around it changes.
func (r *Receiver) safeForm(e *pushmsg.Envelope, body []byte, why string) *inbox.Arrival {
	a := r.transport(e)
	a.Body, a.ContentType = body, "application/json"
	a.Message.Arrive(inbox.Unreadable, why)
	a.Message.ContentSHA256 = inbox.SHA256(e.RawMessage)
	a.Message.PayloadSHA256, a.Message.PayloadBytes = inbox.SHA256(body), int64(len(body))
	return a
}

// ContentType takes the payload's type from the attribute that the CloudEvents Pub/Sub binding and many publishers use.
// https://github.com/cloudevents/spec/blob/main/cloudevents/bindings/http-protocol-binding.md
func ContentType(attributes map[string]string) string {
	if value := inbox.Attribute(attributes, "content-type"); len(value) <= 256 {
		return value
	}
	return ""
}
