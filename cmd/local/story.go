package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"cloud.google.com/go/pubsub/v2"

	"github.com/pubsub-inbox/pubsub-inbox/internal/relayer"
)

const (
	// stepTimeout bounds each wait. It is long because a busy machine is slow, and nothing waits for it to pass.
	stepTimeout = 2 * time.Minute
	pollEvery   = 25 * time.Millisecond
)

// message is something that was published or pushed, and what is to become of it.
type message struct {
	what string // what the demo shows with it
	key  string
	id   string // Pub/Sub's

	letter string // its event id, if it comes through the dead-letter topic

	want want
	row  *row // as last read; nil: none of its own
}

type event struct {
	eventType, eventID, key string
	amount                  int
}

// publish publishes an event to the topic, for real, and files it with what is to become of it.
func (s *story) publish(ctx context.Context, what string, e event, want want) (*message, error) {
	return s.publishData(ctx, what, e, fmt.Appendf(nil, `{"orderId": %q, "amount": %d}`, e.key, e.amount), want)
}

func (s *story) publishData(ctx context.Context, what string, e event, data []byte, want want) (*message, error) {
	// The order is that of the publish times, and the emulator's have whole milliseconds: each gets one of its own.
	err := s.until(ctx, "the clock goes on", func() (bool, error) { return time.Now().UnixMilli() > s.lastPublish, nil })
	if err != nil {
		return nil, err
	}
	id, err := s.topic.Publish(ctx, &pubsub.Message{
		Data:       data,
		Attributes: map[string]string{"eventType": e.eventType, "eventId": e.eventID},
	}).Get(ctx)
	if err != nil {
		return nil, fmt.Errorf("publish %s for %s: %w", e.eventType, e.key, err)
	}
	s.lastPublish = time.Now().UnixMilli()
	s.say("published   %s for %s (event %s, message %s)", e.eventType, e.key, e.eventID, id)
	m := &message{what: what, key: e.key, id: id, want: want}
	s.messages = append(s.messages, m)
	return m, nil
}

// push posts a body to the receive function, as Pub/Sub does, and expects 204.
func (s *story) push(ctx context.Context, body map[string]any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.stack.ReceiveURL, strings.NewReader(string(text)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf("a push was answered %s (%s), want 204: stored", resp.Status, strings.TrimSpace(string(answer)))
	}
	return nil
}

// stored waits until each message has a row.
func (s *story) stored(ctx context.Context, messages ...*message) error {
	err := s.until(ctx, "Pub/Sub has pushed them and they are stored", func() (bool, error) {
		if err := s.look(ctx); err != nil {
			return false, err
		}
		for _, m := range messages {
			if m.row == nil {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	for _, m := range messages {
		s.say("stored      message %s as %s: %s", m.id, m.row.id, m.row.state())
	}
	return nil
}

// relay asks for one run, and says what it did.
func (s *story) relay(ctx context.Context) (relayer.Summary, error) {
	summary, err := s.stack.Relay(ctx)
	if err != nil {
		return summary, fmt.Errorf("run the relay: %w", err)
	}
	if summary.Claimed > 0 || summary.Parked > 0 {
		var did []string
		for _, count := range []struct {
			what string
			n    int
		}{{"claimed", summary.Claimed}, {"processed", summary.Processed}, {"retrying", summary.Retrying}, {"parked", summary.Parked},
			{"released", summary.Released}} {
			if count.n > 0 {
				did = append(did, fmt.Sprintf("%s %d", count.what, count.n))
			}
		}
		s.say("relay run   %s", strings.Join(did, ", "))
	}
	return summary, s.look(ctx)
}

// relayUntil asks for runs until ok.
func (s *story) relayUntil(ctx context.Context, what string, ok func() bool) error {
	return s.until(ctx, what, func() (bool, error) {
		_, err := s.relay(ctx)
		return ok(), err
	})
}

// until waits for ok. It fails when that takes longer than a working system ever does.
func (s *story) until(ctx context.Context, what string, ok func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stepTimeout, fmt.Errorf("waited %s until %s; it did not come to that", stepTimeout, what))
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		done, err := ok()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil || done {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// is returns a condition on all messages' rows.
func is(status string, messages ...*message) func() bool {
	return func() bool {
		for _, m := range messages {
			if m.row == nil || m.row.status != status {
				return false
			}
		}
		return true
	}
}
