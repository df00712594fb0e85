package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/pubsub-inbox/pubsub-inbox/internal/config"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/receiver"
)

// Outcomes in the report.
const (
	drainInserted   = "inserted"
	drainDuplicate  = "duplicate"
	drainDuplicated = "duplicateInRun"
	drainFailed     = "failed"
)

// drained is what the report says of a message.
type drained struct {
	MessageID       string `json:"messageId"`
	InboxID         string `json:"inboxId,omitempty"`
	Outcome         string `json:"outcome"`
	Status          string `json:"status,omitempty"` // of a row that was inserted
	Reason          string `json:"reason,omitempty"`
	ConflictsWith   string `json:"conflictsWith,omitempty"`
	DeliveryAttempt int32  `json:"deliveryAttempt,omitempty"`
	Acknowledged    bool   `json:"acknowledged"`
	Error           string `json:"error,omitempty"`
}

func (d *drainer) report(l *letter) error {
	m := drained{MessageID: l.received.GetMessage().GetMessageId(), InboxID: l.row.id(), DeliveryAttempt: l.received.GetDeliveryAttempt(),
		Acknowledged: l.err == nil && l.ackErr == nil}
	delete(d.failed, m.MessageID)
	delete(d.unacknowledged, m.MessageID)
	text := ""
	switch {
	case l.err != nil:
		m.Outcome, m.InboxID, m.Error = drainFailed, "", l.err.Error()
		d.failed[m.MessageID] = true
		d.leases = append(d.leases, l.received.GetAckId())
		d.say(printable(m.MessageID), "not stored, and left in the subscription: %v", d.explainStore(l.err))
	case l.outcome == receiver.Stored:
		row := l.row.inserted
		m.Outcome, m.Status, m.Reason, m.ConflictsWith = drainInserted, string(row.Status), string(row.Reason), row.ConflictsWith
		d.counts.inserted++
		text = fmt.Sprintf("stored as %s, %s", m.InboxID, state(row))
	case d.inserted[m.InboxID]:
		m.Outcome = drainDuplicated
		d.counts.inRun++
		text = fmt.Sprintf("known since this run: %s", m.InboxID)
	default:
		m.Outcome = drainDuplicate
		d.counts.duplicates++
		text = fmt.Sprintf("known: %s", m.InboxID)
	}
	if l.err == nil && l.ackErr != nil {
		m.Error = l.ackErr.Error()
		d.unacknowledged[m.MessageID] = true
		d.say(printable(m.MessageID), "its row is committed, and its acknowledgement was refused: %v. It comes again, and is known then", l.ackErr)
	}
	if d.flags.json {
		return d.line(m)
	}
	if text == "" {
		return nil
	}
	_, err := fmt.Fprintf(d.stdout, "%s: %s\n", printable(m.MessageID), text)
	return err
}

// explainStore says what to do about a message that could not be stored.
func (d *drainer) explainStore(err error) error {
	if errors.Is(err, receiver.ErrTooLarge) && d.receiver.Objects == nil {
		return fmt.Errorf("%w; set %s to the bucket that keeps such payloads", err, config.EnvPayloadBucket)
	}
	return d.explain(err)
}

func (d *drainer) line(v any) error {
	lines := json.NewEncoder(d.stdout)
	lines.SetEscapeHTML(false)
	return lines.Encode(v)
}

func (d *drainer) summary() error {
	type summary struct {
		Pulled          int `json:"pulled"`
		Inserted        int `json:"inserted"`
		Duplicates      int `json:"duplicates"`
		DuplicatesInRun int `json:"duplicatesInRun"`
		Failed          int `json:"failed"`
		NotAcknowledged int `json:"notAcknowledged"`
	}
	s := summary{d.pulled, d.counts.inserted, d.counts.duplicates, d.counts.inRun, len(d.failed), len(d.unacknowledged)}
	if d.flags.json {
		return d.line(struct {
			Summary summary `json:"summary"`
		}{s})
	}
	_, err := fmt.Fprintf(d.stdout, "%s: pulled %d, inserted %d, duplicates %d and %d within this run, failed %d, not acknowledged %d\n", d.subscription,
		s.Pulled, s.Inserted, s.Duplicates, s.DuplicatesInRun, s.Failed, s.NotAcknowledged)
	return err
}

func (d *drainer) failure() error {
	if len(d.failed)+len(d.unacknowledged) > 0 {
		return errReported
	}
	return nil
}

// noting is the store of one message. It notes which row the message has.
type noting struct {
	receiver.Store
	inserted *inbox.Message
	known    string
}

func (n *noting) Insert(ctx context.Context, a *inbox.Arrival) error {
	err := n.Store.Insert(ctx, a)
	if err == nil {
		m := a.Message
		n.inserted = &m
	}
	return err
}

func (n *noting) Find(ctx context.Context, ids []string, transportKey string) ([]inbox.Known, error) {
	known, err := n.Store.Find(ctx, ids, transportKey)
	if err == nil && len(known) > 0 {
		n.known = known[0].ID
	}
	return known, err
}

func (n *noting) AddRedelivery(ctx context.Context, d inbox.Redelivery) error {
	n.known = d.InboxID // the one that it was taken for
	return n.Store.AddRedelivery(ctx, d)
}

// id is that of the message's row, empty where there is none.
func (n *noting) id() string {
	if n.inserted != nil {
		return n.inserted.ID
	}
	return n.known
}
