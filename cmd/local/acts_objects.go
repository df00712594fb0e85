package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"cloud.google.com/go/storage"

	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators"
)

// reports is the bucket of the demo's publisher. The configuration names it.
const reports = "demo-reports"

// givenUp publishes what the endpoint refuses each time: that takes Pub/Sub a while, so it begins first and is told last.
func (s *story) givenUp(ctx context.Context) (*message, error) {
	s.title("0. One message is refused by the endpoint, as if that were down, each time that it comes: see act 14")
	s.orders.Start("order-1014", "PaymentReceived")
	s.door.refuse("order-1014-1")
	m, err := s.publish(ctx, "through the dead-letter topic; reopened", event{"PaymentReceived", "order-1014-1", "order-1014", 80},
		want{status: processed, attempts: 1, deliveries: 1, engineSaw: "200"})
	if err == nil {
		m.letter = "order-1014-1"
	}
	return m, err
}

func (s *story) large(ctx context.Context) error {
	s.title("12. A report of 9 MB is kept beside its row, and goes the path of every other message")
	s.orders.Start("order-1012", "ReportReady")
	report := fmt.Appendf(nil, `{"orderId": "order-1012", "lines": "%s"}`, bytes.Repeat([]byte("4812 items; "), 750_000))
	m, err := s.publishData(ctx, "a report of 9 MB", event{"ReportReady", "order-1012-1", "order-1012", 0}, report, once)
	if err != nil {
		return err
	}
	if err := s.stored(ctx, m); err != nil {
		return err
	}
	s.say("            its %d bytes are %s", len(report), m.row.location)
	s.expect(m.row.location != "", "the report of 9 MB is kept in its row")
	if err := s.relayUntil(ctx, "the engine has it", is(processed, m)); err != nil {
		return err
	}
	s.engineGot(m, report)
	s.inOrder(s.orders, "order-1012", "ReportReady")
	return nil
}

func (s *story) referred(ctx context.Context) error {
	s.title("13. A message refers to a report that is not there yet: it waits for the object, and no longer than its patience")
	s.orders.Start("order-1013", "ReportReferred")
	// A Cloud Storage server that was there before this demo may have an earlier one's.
	name := fmt.Sprintf("order-1013/%d.json", time.Now().UnixNano())
	data := fmt.Appendf(nil, `{"orderId": "order-1013", "report": "gs://%s/%s"}`, reports, name)
	m, err := s.publishData(ctx, "refers to a report that comes late", event{"ReportReferred", "order-1013-1", "order-1013", 0}, data,
		want{status: processed, attempts: -1, deliveries: 1, engineSaw: "200"})
	if err != nil {
		return err
	}
	if err := s.stored(ctx, m); err != nil {
		return err
	}
	if err := s.relayUntil(ctx, "the report is missed", is(retrying, m)); err != nil {
		return err
	}
	s.say("missing     %s: RETRYING, and the engine is not called", m.row.code)
	s.expect(m.row.code == "CLAIM_MISSING", "the message that refers to a missing report has the error %s, want CLAIM_MISSING", m.row.code)
	report := []byte(`{"lines": 4812}`)
	if err := s.upload(ctx, name, report); err != nil {
		return err
	}
	s.say("uploaded    gs://%s/%s", reports, name)
	if err := s.relayUntil(ctx, "the engine has the report", is(processed, m)); err != nil {
		return err
	}
	s.engineGot(m, report)
	s.inOrder(s.orders, "order-1013", "ReportReferred")
	return nil
}

func (s *story) deadLetter(ctx context.Context, m *message) error {
	s.title("14. What Pub/Sub has given up comes back through the dead-letter topic")
	if err := s.stored(ctx, m); err != nil {
		return err
	}
	s.say("            it was refused %d times, moved to the dead-letter topic, pushed to /dead-letter, and is itself again", m.row.sourceAttempts)
	s.expect(m.row.status == parked && m.row.reason == "DEAD_LETTERED", "the dead letter is %s, want PARKED/DEAD_LETTERED", m.row.state())
	s.expect(s.door.refusals() == m.row.sourceAttempts, "the door has refused it %d times, the row says %d", s.door.refusals(), m.row.sourceAttempts)
	if _, err := s.runInboxctl(ctx, "reopen", m.row.id, "--reason", "the endpoint is up again"); err != nil {
		return err
	}
	if err := s.relayUntil(ctx, "the reopened message is delivered", is(processed, m)); err != nil {
		return err
	}
	s.say("engine      got %v", s.inOrder(s.orders, "order-1014", "PaymentReceived"))
	return nil
}

// engineGot compares what the engine was sent with what was published or uploaded.
func (s *story) engineGot(m *message, want []byte) {
	for _, d := range s.orders.History() {
		if d.InboxID == m.row.id && d.Advanced != "" {
			s.expect(bytes.Equal(d.Body, want), "the engine got %d bytes for %s, want the %d of the report", len(d.Body), m.key, len(want))
			s.say("engine      got its %d bytes", len(d.Body))
			return
		}
	}
	s.expect(false, "the engine got nothing for %s", m.key)
}

// upload writes an object, as the publisher's own system would.
func (s *story) upload(ctx context.Context, name string, content []byte) (err error) {
	client, err := storage.NewClient(ctx, emulators.StorageClientOptions(s.stack.StorageEmulatorHost)...)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", s.stack.StorageEmulatorHost, err)
	}
	defer client.Close()
	w := client.Bucket(reports).Object(name).NewWriter(ctx)
	if _, err := io.Copy(w, bytes.NewReader(content)); err != nil {
		return fmt.Errorf("upload %s: %w", name, err)
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("upload %s: %w", name, err)
	}
	return nil
}
