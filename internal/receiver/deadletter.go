package receiver

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/pushmsg"
)

// The attributes that Pub/Sub adds to a message that it moves to a dead-letter topic.
// https://docs.cloud.google.com/pubsub/docs/dead-letter-topics
const (
	deadLetterPrefix = "CloudPubSubDeadLetterSource"
	sourceAttempts   = deadLetterPrefix + "DeliveryCount"
	sourceName       = deadLetterPrefix + "Subscription"
	sourceProject    = deadLetterPrefix + "SubscriptionProject"
	sourcePublished  = deadLetterPrefix + "TopicPublishTime"
)

// DeadLetterMark is an attribute that every message has which Pub/Sub has moved to a dead-letter topic, and that it keeps when
// it is published again with its attributes.
const DeadLetterMark = sourceName

// ReceiveDeadLetter stores a message of a dead-letter topic as the message that it was: of its source subscription, with its
// own publish time, and without the attributes that Pub/Sub has added. Its own id is gone; what it is recognised by is a
// business key, or the id that it has now.
//
// It is PARKED as DEAD_LETTERED, or where its route says so waits to be processed, unless it may be one that an earlier
// delivery has stored: then it is parked beside that. Errors are those of Receive.
func (r *Receiver) ReceiveDeadLetter(ctx context.Context, body []byte) (Outcome, error) {
	letter, err := pushmsg.Parse(body)
	if err != nil {
		return "", err
	}
	return r.receiveLetter(ctx, letter, body)
}

func (r *Receiver) receiveLetter(ctx context.Context, letter *pushmsg.Envelope, body []byte) (Outcome, error) {
	ctx, ended := r.observer().Begin(ctx, letter.TraceParent())
	a, original := r.deadLetter(letter, body)
	outcome, err := r.storeDeadLetter(ctx, a, original, body)
	ended(err == nil)
	if err != nil {
		err = &MessageError{InboxID: a.Message.ID, MessageID: letter.MessageID, Subscription: original.Subscription, Err: err}
	}
	return outcome, err
}

func (r *Receiver) storeDeadLetter(ctx context.Context, a *inbox.Arrival, e *pushmsg.Envelope, body []byte) (Outcome, error) {
	m := &a.Message
	twin, err := r.Store.Twin(ctx, m)
	if err != nil {
		return "", err
	}
	if twin.Found() && m.Reason != inbox.Unreadable {
		m.AsTwin(twin)
	}
	outcome, err := r.store(ctx, a, e, body)
	if err == nil {
		r.observer().DeadLetter(string(outcome))
		// Each dead letter is one line, whatever became of it: somebody has to find out why it was refused so often.
		r.Log.LogAttrs(ctx, slog.LevelError, "dead letter", slog.String("inboxId", m.ID), slog.String("outcome", string(outcome)),
			slog.String("messageId", e.MessageID), slog.String("subscription", m.Subscription),
			slog.Int64("sourceAttempts", m.SourceAttempts), slog.String("route", m.Route), slog.String("conflictsWith", m.ConflictsWith))
	}
	return outcome, err
}

// deadLetter makes a row of a dead letter, and the envelope that it once came in.
func (r *Receiver) deadLetter(letter *pushmsg.Envelope, body []byte) (*inbox.Arrival, *pushmsg.Envelope) {
	e := *letter
	e.Attributes = WithoutSource(letter.Attributes)
	source := sourceSubscription(letter.Attributes)
	if source != "" {
		e.Subscription, e.PublishTime = source, PublishedFirst(letter, r.Now())
	}
	attempts, err := strconv.ParseInt(letter.Attributes[sourceAttempts], 10, 64)
	if err != nil || attempts < 0 {
		attempts = 0
	}
	if why := Unstorable(&e); why != "" {
		a := r.safeForm(&e, body, why)
		r.address(&a.Message, &e, attempts, false)
		return a, &e
	}
	d := r.decide(&e)
	other := e
	other.MessageID += "?"
	if d.DedupeKey != r.decide(&other).DedupeKey {
		d.DedupeKey = "" // it holds the message's id, which is another one than the message was published with
	}
	a := r.arrivalBy(&e, d)
	m := &a.Message
	business := d.DedupeKey != ""
	m.Contents = inbox.Contents(e.Data, e.Attributes, r.TraceAttributes...)
	r.address(m, &e, attempts, business)
	if m.PublishedAt.IsZero() && d.Order != inbox.OrderReceived && !letter.PublishTime.IsZero() {
		m.OrderedAt = letter.PublishTime
	}
	// Without an id of its own and without siblings there is nothing to recognise it by, should it have been stored; and one
	// that does not say where it comes from has siblings nowhere.
	_, _, siblings := m.TwinWindow()
	if d.Process && source != "" && m.Status == inbox.Received && (business || siblings) {
		moved, now := letter.PublishTime, r.Now().UTC()
		if moved.IsZero() || moved.After(now) {
			moved = now
		}
		m.NextAttemptAt = moved.Add(inbox.DeadLetterWait)
		return a, &e
	}
	detail := fmt.Sprintf("refused %d times by its subscription's endpoint, or never answered in time", attempts)
	if m.Reason != "" {
		detail = fmt.Sprintf("%s; %s: %s", detail, m.Reason, m.LastErrorMessage)
	}
	m.Arrive(inbox.DeadLettered, detail)
	return a, &e
}

// address gives a dead letter its identity: a business key, or the id that it has now.
func (r *Receiver) address(m *inbox.Message, e *pushmsg.Envelope, attempts int64, business bool) {
	m.FromDeadLetter, m.SourceAttempts = true, attempts
	m.TransportKey = inbox.DeadLetterKey(r.Consumer, e.Subscription, e.MessageID)
	if business {
		return
	}
	own := m.LaneID == inbox.OwnLaneID(r.Consumer, m.ID)
	m.ID = inbox.ID(inbox.DeadLetterIdentity, r.Consumer, e.Subscription, e.MessageID)
	if own {
		m.LaneID = inbox.OwnLaneID(r.Consumer, m.ID)
	}
}

// sourceSubscription is the full name of the subscription that gave the message up; empty if the message does not say.
func sourceSubscription(attributes map[string]string) string {
	name, project := attributes[sourceName], attributes[sourceProject]
	switch {
	case name == "" || strings.HasPrefix(name, "projects/"):
		return inbox.Text(name, inbox.MaxTransport)
	case project == "":
		return ""
	}
	return inbox.Text("projects/"+project+"/subscriptions/"+name, inbox.MaxTransport)
}

// PublishedFirst is when the message of a dead letter was published, before it was moved to the dead-letter topic; zero:
// unknown. The attribute is a text that whoever may publish to that topic can set, so what it says is bounded: a message is
// published before it is moved (now, where that time is not said), but for the difference of two clocks. A time to come
// would make every later message of the lane a late one.
func PublishedFirst(letter *pushmsg.Envelope, now time.Time) time.Time {
	at, err := time.Parse(time.RFC3339Nano, letter.Attributes[sourcePublished])
	moved := letter.PublishTime
	if moved.IsZero() {
		moved = now
	}
	if at = at.UTC(); err != nil || at.Year() < 1 || at.Year() > 9999 || at.After(moved.Add(clockDifference)) {
		return time.Time{}
	}
	return at
}

// clockDifference is by how much two of Pub/Sub's clocks may differ.
const clockDifference = time.Minute

// WithoutSource returns attributes without those that Pub/Sub has added to a dead letter.
func WithoutSource(attributes map[string]string) map[string]string {
	own := make(map[string]string, len(attributes))
	for name, value := range attributes {
		if !strings.HasPrefix(name, deadLetterPrefix) {
			own[name] = value
		}
	}
	return own
}
