package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pubsub-inbox/pubsub-inbox/internal/claimcheck"
	"github.com/pubsub-inbox/pubsub-inbox/internal/config"
	"github.com/pubsub-inbox/pubsub-inbox/internal/receiver"
	"github.com/pubsub-inbox/pubsub-inbox/internal/routing"
	"github.com/pubsub-inbox/pubsub-inbox/internal/spannerstore"
)

const (
	// A batch is pulled under one lease, and is through, or given up, well before that ends. So no message of it comes to
	// somebody else meanwhile, and after a crash all come again after five minutes at most.
	drainLease = 5 * time.Minute
	drainBatch = 4 * time.Minute
	// drainParallel bounds how many messages are stored at a time.
	drainParallel = 8
	// maxBatch keeps the requests that name all messages of a batch inside Pub/Sub's 512 KiB.
	maxBatch = 500
	// ackTries bounds how often an acknowledgement is repeated that Pub/Sub could not do at the moment.
	ackTries = 3
)

type drainFlags struct {
	subscription, project, config string
	batch, max                    int
	wait                          time.Duration
	json, any                     bool
}

func (a *app) drainCommand() *cobra.Command {
	f := drainFlags{wait: 10 * time.Second}
	cmd := &cobra.Command{
		Use: "drain --subscription NAME", Short: "Store the messages of a dead-letter subscription", Args: cobra.NoArgs,
		Long: `Pull a dead-letter topic's pull subscription until it is empty, and store each message as POST /dead-letter of the receive
function does: as the message that it was, PARKED as DEAD_LETTERED, or waiting to be processed where its route says so.
What has its row already is known, and changes nothing.

Only what is committed, or known, is acknowledged. A message that cannot be stored does not hold up the others: it is left
in the subscription, is said with its cause, and makes the exit code 1. So is a message that was stored and whose
acknowledgement was refused, as happens on a subscription with exactly-once delivery: it comes again, and is known then.
To run it again does no harm at any time.

A message that Pub/Sub has not moved to a dead-letter topic is left too, unless --any takes it: a wrong name must not empty
somebody else's subscription.

A batch is held for five minutes, and worked on for four; all of it is in memory. After a crash its messages come again by
themselves. There is no dry run: to look at a message is to pull it, which counts as a delivery.

It ends when nothing has come for --wait, or after --max messages. Not every message is in reach at every moment: one that
somebody else has pulled comes again when its deadline ends.`,
		Example: `  inboxctl drain --subscription orders-dead-letter-pull --project my-project --config inbox.yaml
  inboxctl drain --subscription projects/my-project/subscriptions/orders-dead-letter-pull --max 10 --json`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.drain(cmd, f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.subscription, "subscription", "", "the pull subscription: its name, or projects/P/subscriptions/NAME (required)")
	flags.StringVar(&f.project, "project", "", "its project (default: $GOOGLE_CLOUD_PROJECT)")
	flags.StringVar(&f.config, "config", "", "the configuration file (default: $INBOX_CONFIG_FILE)")
	flags.IntVar(&f.batch, "batch", 100, "pull at most so many at a time")
	flags.IntVar(&f.max, "max", 0, "stop after so many messages; 0: when the subscription is empty")
	flags.Var(durationFlag{&f.wait}, "wait", "it is empty when nothing has come for so long")
	flags.BoolVar(&f.any, "any", false, "take messages, too, that do not say that they are dead letters")
	flags.BoolVar(&f.json, "json", false, "one JSON object a line: each message, and the summary")
	return cmd
}

var (
	subscriptionName = regexp.MustCompile(`^projects/[^/\s]+/subscriptions/[^/\s]+$`)
	shortName        = regexp.MustCompile(`^[^/\s]+$`)
)

func (a *app) subscription(f drainFlags) (string, error) {
	name, project := strings.TrimSpace(f.subscription), f.project
	if project == "" {
		project, _ = a.lookup(config.EnvProject)
	}
	switch {
	case name == "":
		return "", usage("--subscription is missing: the pull subscription of the dead-letter topic")
	case subscriptionName.MatchString(name):
		return name, nil
	case !shortName.MatchString(name):
		return "", usage("--subscription is %q; it must be a name, or projects/P/subscriptions/NAME", name)
	case project == "":
		return "", usage("--subscription is a short name: give --project, or set %s, or write projects/P/subscriptions/%s", config.EnvProject, name)
	}
	return "projects/" + project + "/subscriptions/" + name, nil
}

func (a *app) drain(cmd *cobra.Command, f drainFlags) error {
	subscription, err := a.subscription(f)
	switch {
	case err != nil:
		return err
	case f.batch < 1 || f.batch > maxBatch:
		return usage("--batch is %d; it must be from 1 to %d", f.batch, maxBatch)
	case f.max < 0:
		return usage("--max is %d; it must be at least 0", f.max)
	case f.wait <= 0 || f.wait > time.Minute:
		return usage("--wait must be more than 0 and at most 1m")
	}
	cfg, router, err := a.routes(f.config)
	if err != nil {
		return err
	}
	return a.withStoreAndObjects(cmd, func(store *spannerstore.Store, objects *claimcheck.Store) error {
		client, err := pubsub.NewSubscriptionAdminClient(cmd.Context(), a.pubsubOptions...)
		if err != nil {
			return &elsewhereError{error: fmt.Errorf("connect to Pub/Sub: %w", err)}
		}
		defer client.Close()
		d := &drainer{app: a, cmd: cmd, flags: f, client: client, subscription: subscription,
			inserted: map[string]bool{}, failed: map[string]bool{}, unacknowledged: map[string]bool{}}
		d.receiver = receiver.Receiver{Consumer: cfg.Consumer, Router: router, Store: store, Threshold: cfg.ClaimCheck.Threshold,
			Buckets: cfg.ClaimCheck.Buckets, TraceAttributes: cfg.TraceAttributes, Now: a.now,
			Log: slog.New(slog.DiscardHandler), // what it has to say of a message is in the report
		}
		if objects.Bucket() != "" {
			d.receiver.Objects = objects
		}
		err = d.run(cmd.Context())
		if err := errors.Join(d.summary(), err); err != nil {
			return err
		}
		return d.failure()
	})
}

// routes returns the configuration, which must be there, and its router.
func (a *app) routes(file string) (*config.Config, *routing.Router, error) {
	cfg, err := a.configuration(file)
	if err != nil {
		return nil, nil, err
	}
	if cfg == nil {
		return nil, nil, usage("no configuration: give --config FILE, or set INBOX_CONFIG_FILE")
	}
	router, err := routing.New(cfg)
	return cfg, router, err
}

// drainer is one drain under way.
type drainer struct {
	*app
	cmd          *cobra.Command
	flags        drainFlags
	client       *pubsub.SubscriptionAdminClient
	subscription string
	receiver     receiver.Receiver

	pulled   int
	inserted map[string]bool // rows of this run
	counts   struct{ inserted, duplicates, inRun int }
	// By message id: one that comes a second time within the run is counted once, as what became of it in the end.
	failed, unacknowledged map[string]bool
	leases                 []string // of what was left
}

// letter is a pulled message and what became of it.
type letter struct {
	received *pubsubpb.ReceivedMessage
	row      *noting
	outcome  receiver.Outcome
	err      error
	ackErr   error
}

func (d *drainer) run(ctx context.Context) (err error) {
	// Given back at the end, not at once: within this run it would only come again and fail again.
	defer func() { err = errors.Join(err, d.giveBack()) }()
	for d.flags.max == 0 || d.pulled < d.flags.max {
		batch, err := d.pull(ctx)
		if err != nil {
			return err
		}
		if len(batch) == 0 {
			return nil
		}
		d.pulled += len(batch)
		if err := d.work(ctx, batch); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return errors.New("told to end; the subscription may hold more")
		}
	}
	return nil
}

// pull waits for messages. None: nothing has come for --wait.
func (d *drainer) pull(ctx context.Context) ([]*letter, error) {
	size := d.flags.batch
	if d.flags.max > 0 {
		size = min(size, d.flags.max-d.pulled)
	}
	waiting, cancel := context.WithTimeout(ctx, d.flags.wait)
	defer cancel()
	for {
		answer, err := d.client.Pull(waiting, &pubsubpb.PullRequest{Subscription: d.subscription, MaxMessages: int32(size)})
		switch {
		case ctx.Err() != nil:
			return nil, errors.New("told to end; the subscription may hold more")
		case err != nil && waiting.Err() == nil && status.Code(err) != codes.DeadlineExceeded:
			return nil, d.explainPull(err)
		case len(answer.GetReceivedMessages()) > 0:
			letters := make([]*letter, len(answer.GetReceivedMessages()))
			for i, m := range answer.GetReceivedMessages() {
				letters[i] = &letter{received: m}
			}
			return letters, nil
		case waiting.Err() != nil:
			return nil, nil
		}
		pause(waiting, min(d.flags.wait/10, time.Second)) // an empty answer is no proof, and may come at once
	}
}

// pause waits for a time, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	waiting, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-waiting.Done()
}

func (d *drainer) explainPull(err error) error {
	hint := ""
	switch status.Code(err) {
	case codes.NotFound:
		hint = "Is " + d.subscription + " there? `gcloud pubsub subscriptions list` shows the names."
	case codes.FailedPrecondition, codes.InvalidArgument:
		hint = "Is " + d.subscription + " a pull subscription? What a push subscription delivers goes to POST /dead-letter."
	case codes.PermissionDenied, codes.Unauthenticated:
		hint = "Log in with `gcloud auth application-default login`, and let a role such as roles/pubsub.subscriber on " + d.subscription + " be granted to you."
	}
	return &elsewhereError{fmt.Errorf("pull from %s: %w", d.subscription, err), hint}
}

// work stores a batch, acknowledges what is committed, and reports each.
func (d *drainer) work(ctx context.Context, batch []*letter) error {
	working, cancel := context.WithTimeout(ctx, drainBatch)
	defer cancel()
	if err := d.hold(working, batch); err != nil {
		fmt.Fprintf(d.stderr, "the messages of a batch could not be held, and may come to somebody else too: %v\n", err)
	}
	var all errgroup.Group
	all.SetLimit(drainParallel)
	for _, l := range batch {
		all.Go(func() error {
			d.store(working, l)
			return nil
		})
	}
	_ = all.Wait()
	// Also when told to end: what is committed need not come again.
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainLease-drainBatch)
	defer cancel()
	d.acknowledge(ending, batch)
	for _, l := range batch {
		if id := l.row.id(); l.err == nil && l.outcome == receiver.Stored {
			d.inserted[id] = true
		}
	}
	for _, l := range batch {
		if err := d.report(l); err != nil {
			return err
		}
	}
	return nil
}

// hold makes sure that nobody else gets the batch while it is worked on.
func (d *drainer) hold(ctx context.Context, batch []*letter) error {
	ids := make([]string, len(batch))
	for i, l := range batch {
		ids[i] = l.received.GetAckId()
	}
	return d.client.ModifyAckDeadline(ctx, &pubsubpb.ModifyAckDeadlineRequest{Subscription: d.subscription, AckIds: ids,
		AckDeadlineSeconds: int32(drainLease / time.Second)})
}

func (d *drainer) store(ctx context.Context, l *letter) {
	l.row = &noting{Store: d.receiver.Store}
	r := d.receiver
	r.Store = l.row
	if _, ok := l.received.GetMessage().GetAttributes()[receiver.DeadLetterMark]; !ok && !d.flags.any {
		l.err = errNoDeadLetter
		return
	}
	body, err := pushBody(d.subscription, l.received)
	if err == nil {
		one, cancel := d.within(d.cmd, time.Minute)
		stop := context.AfterFunc(ctx, cancel)
		l.outcome, err = r.ReceiveDeadLetter(one, body)
		stop()
		cancel()
	}
	l.err = err
}

var errNoDeadLetter = errors.New("it does not say that it is a dead letter; is this the dead-letter topic's subscription? --any takes it all the same")

// pushBody is the push that would have brought the message. https://docs.cloud.google.com/pubsub/docs/push
func pushBody(subscription string, r *pubsubpb.ReceivedMessage) ([]byte, error) {
	type message struct {
		Attributes  map[string]string `json:"attributes,omitempty"`
		Data        []byte            `json:"data,omitempty"`
		MessageID   string            `json:"messageId"`
		OrderingKey string            `json:"orderingKey,omitempty"`
		PublishTime string            `json:"publishTime,omitempty"`
	}
	m := r.GetMessage()
	push := struct {
		DeliveryAttempt int32   `json:"deliveryAttempt,omitempty"`
		Message         message `json:"message"`
		Subscription    string  `json:"subscription"`
	}{r.GetDeliveryAttempt(), message{m.GetAttributes(), m.GetData(), m.GetMessageId(), m.GetOrderingKey(), ""}, subscription}
	if at := m.GetPublishTime(); at.IsValid() {
		push.Message.PublishTime = at.AsTime().Format(time.RFC3339Nano)
	}
	body, err := json.Marshal(push)
	if err != nil {
		return nil, fmt.Errorf("write message %s as a push: %w", m.GetMessageId(), err)
	}
	return body, nil
}

// acknowledge says which messages need not come again: those that are committed or known, and no others.
func (d *drainer) acknowledge(ctx context.Context, batch []*letter) {
	open := map[string]*letter{}
	for _, l := range batch {
		if l.err == nil {
			open[l.received.GetAckId()] = l
		}
	}
	for try := 1; len(open) > 0; try++ {
		err := d.client.Acknowledge(ctx, &pubsubpb.AcknowledgeRequest{Subscription: d.subscription, AckIds: slices.Sorted(maps.Keys(open))})
		if err == nil {
			return
		}
		open = refusedAcks(open, err)
		if try == ackTries || ctx.Err() != nil {
			return
		}
		if len(open) > 0 {
			pause(ctx, time.Duration(try)*200*time.Millisecond)
		}
		for _, l := range open {
			l.ackErr = nil
		}
	}
}

// refusedAcks notes the causes on those letters that an answer refuses, and returns those that may be tried again.
//
// With exactly-once delivery the details of the error say which of them, and why; the others are acknowledged. Without
// details it is all of them. https://docs.cloud.google.com/pubsub/docs/exactly-once-delivery
func refusedAcks(sent map[string]*letter, err error) map[string]*letter {
	var detailed interface{ Metadata() map[string]string }
	reasons := map[string]string{}
	if errors.As(err, &detailed) {
		reasons = detailed.Metadata()
	}
	temporary := slices.Contains([]codes.Code{codes.DeadlineExceeded, codes.ResourceExhausted, codes.Aborted, codes.Internal, codes.Unavailable},
		status.Code(err))
	again := map[string]*letter{}
	named := false
	for id := range sent {
		_, ok := reasons[id]
		named = named || ok
	}
	for id, l := range sent {
		switch reason, ok := reasons[id]; {
		case ok:
			l.ackErr = errors.New(reason)
			if strings.HasPrefix(reason, "TRANSIENT_") {
				again[id] = l
			}
		case !named || temporary:
			l.ackErr = err
			if temporary {
				again[id] = l
			}
		}
	}
	return again
}

// giveBack lets what could not be stored come again at once, for the run after its cause is mended. If it fails, the messages
// come again when their lease ends.
func (d *drainer) giveBack() error {
	if len(d.leases) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.cmd.Context()), 10*time.Second)
	defer cancel()
	for ids := range slices.Chunk(d.leases, maxBatch) {
		err := d.client.ModifyAckDeadline(ctx, &pubsubpb.ModifyAckDeadlineRequest{Subscription: d.subscription, AckIds: ids})
		if err != nil {
			fmt.Fprintf(d.stderr, "what was not stored comes again in five minutes, not at once: %v\n", err)
			return nil
		}
	}
	return nil
}
