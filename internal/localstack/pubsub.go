package localstack

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators"
	"github.com/pubsub-inbox/pubsub-inbox/internal/receiver"
)

const (
	// deliveryAttempts is the fewest that Pub/Sub takes: what is refused reaches the dead-letter topic within seconds.
	deliveryAttempts = 5
	ackDeadline      = 30 // seconds; longer than the receive function ever takes
)

// makeSubscriptions makes the topics and the two push subscriptions.
func (s *Stack) makeSubscriptions(ctx context.Context, suffix string, shared bool) error {
	client, err := s.PubSub(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	s.Topic = "projects/" + project + "/topics/events" + suffix
	s.DeadLetterTopic = "projects/" + project + "/topics/events-dead-letter" + suffix
	s.Subscription = "projects/" + project + "/subscriptions/inbox" + suffix
	s.DeadLetterSubscription = "projects/" + project + "/subscriptions/events-dead-letter" + suffix
	if shared {
		s.onStop("the topics and subscriptions", s.deleteSubscriptions)
	}
	for _, topic := range []string{s.Topic, s.DeadLetterTopic} {
		if _, err := client.TopicAdminClient.CreateTopic(ctx, &pubsubpb.Topic{Name: topic}); err != nil {
			return fmt.Errorf("make %s: %w", topic, err)
		}
	}
	for _, subscription := range []*pubsubpb.Subscription{
		{
			Name: s.DeadLetterSubscription, Topic: s.DeadLetterTopic, AckDeadlineSeconds: ackDeadline,
			PushConfig: &pubsubpb.PushConfig{PushEndpoint: s.ReceiveURL + receiver.DeadLetterPath},
			RetryPolicy: &pubsubpb.RetryPolicy{
				MinimumBackoff: durationpb.New(time.Second), MaximumBackoff: durationpb.New(10 * time.Second)},
		},
		{
			// Not ordered: with ordering and a dead-letter policy the emulator stops after the fifth refusal.
			Name: s.Subscription, Topic: s.Topic, AckDeadlineSeconds: ackDeadline,
			PushConfig: &pubsubpb.PushConfig{PushEndpoint: s.ReceiveURL},
			RetryPolicy: &pubsubpb.RetryPolicy{
				MinimumBackoff: durationpb.New(time.Second), MaximumBackoff: durationpb.New(10 * time.Second)},
			DeadLetterPolicy: &pubsubpb.DeadLetterPolicy{DeadLetterTopic: s.DeadLetterTopic, MaxDeliveryAttempts: deliveryAttempts},
		},
	} {
		if _, err := client.SubscriptionAdminClient.CreateSubscription(ctx, subscription); err != nil {
			return fmt.Errorf("make %s: %w", subscription.Name, err)
		}
	}
	return nil
}

// deleteSubscriptions keeps an emulator that goes on from pushing to nobody.
func (s *Stack) deleteSubscriptions() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	client, err := s.PubSub(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	var errs []error
	for _, name := range []string{s.Subscription, s.DeadLetterSubscription} {
		errs = append(errs, client.SubscriptionAdminClient.DeleteSubscription(ctx, &pubsubpb.DeleteSubscriptionRequest{Subscription: name}))
	}
	for _, name := range []string{s.Topic, s.DeadLetterTopic} {
		errs = append(errs, client.TopicAdminClient.DeleteTopic(ctx, &pubsubpb.DeleteTopicRequest{Topic: name}))
	}
	return errors.Join(errs...)
}

// PubSub returns a client of the stack's Pub/Sub. The caller closes it.
func (s *Stack) PubSub(ctx context.Context) (*pubsub.Client, error) {
	client, err := pubsub.NewClient(ctx, s.Project, emulators.ClientOptions(s.PubSubEmulatorHost)...)
	if err != nil {
		return nil, fmt.Errorf("connect to the Pub/Sub emulator at %s: %w", s.PubSubEmulatorHost, err)
	}
	return client, nil
}
