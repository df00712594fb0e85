package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"cloud.google.com/go/pubsub/v2"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/spannerstore"
	"github.com/pubsub-inbox/pubsub-inbox/internal/wiring"
)

// marker is the attribute that says to everybody what this message is.
const marker = "pubsub-inbox-smoke"

// probe is one message and the way that it should take.
type probe struct {
	Consumer, Topic, Subscription string
	Attributes                    map[string]string
	Data                          []byte
	Every                         time.Duration // between two looks at the database
}

// store is what is asked of the inbox.
type store interface {
	Find(ctx context.Context, ids []string, transportKey string) ([]inbox.Known, error)
	Show(ctx context.Context, id string) (spannerstore.Shown, error)
	Discard(ctx context.Context, d spannerstore.Discarding) (spannerstore.Changed, error)
}

// smoke sends the probe and sees it through.
func smoke(ctx context.Context, w io.Writer, s store, p probe) error {
	messageID, err := publish(ctx, p)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "published    %s as message %s\n", p.Topic, messageID)
	id, err := p.arrival(ctx, s, messageID)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "stored       %s\n", id)
	shown, err := p.end(ctx, s, id)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "finished     %s%s\n", shown.Status, because(shown.Reason))
	if shown.Status != inbox.Parked {
		return nil // its retention deletes it
	}
	if _, err := s.Discard(ctx, spannerstore.Discarding{
		ID: id, Actor: "smoke", Reason: "smoke test", At: shown.At, Until: shown.At}); err != nil {
		return err
	}
	fmt.Fprintf(w, "cleaned up   %s\n", inbox.Discarded)
	return nil
}

func publish(ctx context.Context, p probe) (string, error) {
	parts := strings.Split(p.Topic, "/")
	if len(parts) != 4 || parts[0] != "projects" || parts[2] != "topics" {
		return "", fmt.Errorf("the topic is %q; it must be projects/P/topics/T", p.Topic)
	}
	client, err := pubsub.NewClient(ctx, parts[1])
	if err != nil {
		return "", fmt.Errorf("connect to Pub/Sub: %w", err)
	}
	defer client.Close()
	attributes := map[string]string{marker: wiring.NewID()}
	for name, value := range p.Attributes {
		attributes[name] = value
	}
	publisher := client.Publisher(p.Topic)
	defer publisher.Stop()
	id, err := publisher.Publish(ctx, &pubsub.Message{Data: p.Data, Attributes: attributes}).Get(ctx)
	if err != nil {
		return "", fmt.Errorf("publish to %s: %w", p.Topic, err)
	}
	return id, nil
}

// arrival waits for the message's row.
func (p probe) arrival(ctx context.Context, s store, messageID string) (id string, err error) {
	key := inbox.TransportKey(p.Consumer, p.Subscription, messageID)
	err = p.poll(ctx, func() (bool, error) {
		known, err := s.Find(ctx, nil, key)
		if err != nil || len(known) == 0 {
			return false, err
		}
		id = known[0].ID
		return true, nil
	})
	if err != nil {
		return "", fmt.Errorf("message %s has no row of consumer %s: is it pushed by %s, and what does the receive function's log say? %w",
			messageID, p.Consumer, p.Subscription, err)
	}
	return id, nil
}

// end waits until the relay, or the receive function, has nothing more to do for it.
func (p probe) end(ctx context.Context, s store, id string) (shown spannerstore.Shown, err error) {
	err = p.poll(ctx, func() (bool, error) {
		found, err := s.Show(ctx, id)
		if err != nil {
			return false, err
		}
		shown = found
		return shown.Status.Finished() || shown.Status == inbox.Parked, nil
	})
	switch {
	case err != nil:
		return shown, fmt.Errorf("message %s is stored, and still %s: does the relay run, and does a route take a message that its engine does not answer? %w",
			id, shown.Status, err)
	case shown.Status == inbox.Parked && shown.Reason != inbox.NoRoute:
		return shown, fmt.Errorf("message %s is stored, and parked%s: the route %q takes it; give --attribute and --data of one that its engine answers, or none that a route takes",
			id, because(shown.Reason), shown.Route)
	}
	return shown, nil
}

// poll asks until it is done, or the time is over. An error is asked again for: a new deployment has grants on their way.
func (p probe) poll(ctx context.Context, done func() (bool, error)) error {
	tick := time.NewTicker(p.Every)
	defer tick.Stop()
	for {
		ok, err := done()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

func because(r inbox.Reason) string {
	if r == "" {
		return ""
	}
	return " as " + string(r)
}
