package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/pubsub-inbox/pubsub-inbox/internal/claimcheck"
	"github.com/pubsub-inbox/pubsub-inbox/internal/config"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/pushmsg"
	"github.com/pubsub-inbox/pubsub-inbox/internal/receiver"
	"github.com/pubsub-inbox/pubsub-inbox/internal/routing"
	"github.com/pubsub-inbox/pubsub-inbox/internal/spannerstore"
)

func (a *app) rerouteCommand() *cobra.Command {
	var act action
	var file string
	cmd := &cobra.Command{
		Use: "reroute ID...", Short: "Route stored messages again, by a corrected configuration",
		Long: `Route stored messages again: route, type, key, order and lane are evaluated by the configuration over what is stored, and
the message starts afresh in its new place. An UNREADABLE message is read again first.

It takes the identity that its new route gives it, so that the same event, published again, is known: where the route has a
dedupe key that the message was not stored with, the message gets another id, and all that is known of it goes along. Refused
where another message has that identity: the event has come again. A route without a dedupe leaves the identity as it is.

What the message refers to is evaluated again, too: a generation of that object that the relay has noted is forgotten.
A payload that an object keeps is read from there; one that is read again goes where its size belongs.

For parked messages, and open ones that no relay holds. Where the configuration would park the message again nothing is
changed, and the reason is said. "-" reads ids from standard input, one a line.

All are looked at first, and what a person may not expect is said. Then those that are to share a lane are rerouted in the
order that they will have there, whatever the order of the ids; where one fails, those behind it are not tried.

Deploy the configuration to both functions first: a relay that does not know the new route lets its messages wait.`,
		Example: `  inboxctl list --reason NO_ROUTE --limit 0 --json | jq -r .id | inboxctl reroute - --config inbox.yaml --reason "route added"`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.check(&act); err != nil {
				return err
			}
			ids, err := a.ids(args)
			if err != nil {
				return err
			}
			cfg, router, err := a.routes(file)
			if err != nil {
				return err
			}
			return a.withStoreAndObjects(cmd, func(store *spannerstore.Store, objects *claimcheck.Store) error {
				r := rerouter{app: a, store: store, objects: objects, cfg: cfg, router: router, act: act}
				return r.run(cmd, ids)
			})
		},
	}
	act.flags(cmd)
	cmd.Flags().StringVar(&file, "config", "", "the configuration file (default: $INBOX_CONFIG_FILE)")
	return cmd
}

// rerouter is one run of the command.
type rerouter struct {
	*app
	store   *spannerstore.Store
	objects *claimcheck.Store
	cfg     *config.Config
	router  *routing.Router
	act     action
}

// run looks at all messages first, and says what a person may not expect. Then it reroutes those that are to share a lane in
// the order that they will have there, so that a relay that runs meanwhile takes them in it.
func (r *rerouter) run(cmd *cobra.Command, ids []string) error {
	lanes := map[string]int{}
	var planned []spannerstore.Changed
	err := r.each(cmd, ids, func(ctx context.Context, id string) error {
		changed, err := r.reroute(ctx, id, true)
		if err != nil {
			return err
		}
		r.warn(&changed)
		if r.act.dryRun {
			return r.report(&changed)
		}
		if _, ok := lanes[changed.After.LaneID]; !ok {
			lanes[changed.After.LaneID] = len(lanes)
		}
		planned = append(planned, changed)
		return nil
	})
	if r.act.dryRun || cmd.Context().Err() != nil {
		return err
	}
	slices.SortStableFunc(planned, func(a, b spannerstore.Changed) int {
		return cmp.Or(cmp.Compare(lanes[a.After.LaneID], lanes[b.After.LaneID]), a.After.Position().Compare(b.After.Position()))
	})
	groups := make([]group, len(planned))
	for i := range planned {
		groups[i] = group{ids: []string{planned[i].Before.ID}, lane: lanes[planned[i].After.LaneID]}
	}
	return cmp.Or(r.eachGroup(cmd, groups, func(ctx context.Context, ids []string) []error {
		changed, err := r.reroute(ctx, ids[0], false)
		if err == nil {
			r.finishOld(ctx, r.objects, changed)
			err = r.report(&changed)
		}
		return []error{err}
	}), err)
}

func (r *rerouter) reroute(ctx context.Context, id string, dry bool) (spannerstore.Changed, error) {
	return r.store.Reroute(ctx, spannerstore.Rerouting{
		ID: id, Actor: r.act.actor, Reason: r.act.reason, DryRun: dry,
		Route: func(m inbox.Message, body []byte) (spannerstore.Rerouted, error) {
			to, err := placeAgain(r.cfg, r.router, m, body)
			size := len(to.Body)
			if !to.Content && to.Message.ID != m.ID {
				size = len(body)
			}
			if err == nil && r.objects.Bucket() == "" && size > inbox.MaxInlinePayload {
				err = fmt.Errorf("its payload has %d bytes, too many for its row; set %s to the bucket that keeps such payloads",
					size, config.EnvPayloadBucket)
			}
			return to, err
		},
		Load: func(ctx context.Context, m inbox.Message) ([]byte, error) {
			return readPayload(ctx, r.objects, m.PayloadLocation, m.PayloadSHA256)
		},
		Keep: func(ctx context.Context, to spannerstore.Rerouted) (string, error) {
			return keep(ctx, r.objects, r.cfg.ClaimCheck.Threshold, to)
		},
	})
}

// warn says what a person may not expect of the message.
func (r *rerouter) warn(c *spannerstore.Changed) {
	before, after := &c.Before, &c.After
	r.warnOfLane(*c)
	r.warnOfDelivery(before)
	if after.OutcomeUnknown && before.Route != "" && before.Route != after.Route {
		r.say(before.ID, "warning: the outcome of its last attempt is unknown, and was to be looked up by route %s; if that asks another "+
			"engine than route %s does, the message may be delivered twice", printable(before.Route), printable(after.Route))
	}
}

func (r *rerouter) report(c *spannerstore.Changed) error {
	before, after := &c.Before, &c.After
	was := "no route"
	if before.Route != "" {
		was = "route " + printable(before.Route)
	}
	lane := "in the same lane"
	if before.LaneID != after.LaneID {
		lane = "in lane " + after.LaneID
	}
	if before.ID != after.ID {
		lane += ", under the id " + after.ID + " of its new identity"
	}
	_, err := fmt.Fprintf(r.stdout, "%s: %srerouted from %s to route %s, %s, was %s\n", before.ID, would(r.act.dryRun), was,
		printable(after.Route), lane, state(before))
	return err
}

// keep puts a payload that is too large for its row into the bucket, as an object of its message's own.
func keep(ctx context.Context, objects *claimcheck.Store, threshold int64, to spannerstore.Rerouted) (string, error) {
	if objects.Bucket() == "" || int64(len(to.Body)) <= threshold {
		return "", nil
	}
	m := &to.Message
	o, err := objects.Put(ctx, m.ID, m.PayloadSHA256, to.Body, to.ContentType)
	if errors.Is(err, inbox.ErrObjectFinished) { // left by an earlier try, and marked since
		o, err = objects.Renew(ctx, o)
	}
	if err != nil {
		return "", &elsewhereError{error: err}
	}
	return o.Location(), nil
}

// finishOld marks the object that kept a payload which has been replaced.
func (a *app) finishOld(ctx context.Context, objects *claimcheck.Store, c spannerstore.Changed) {
	before, after := c.Before.PayloadLocation, c.After.PayloadLocation
	if before == "" || before == after {
		return
	}
	old, err := inbox.ParseLocation(before)
	if err == nil {
		err = objects.Finish(ctx, old, a.now())
	}
	if err != nil {
		a.say(c.After.ID, "warning: the object that kept its payload before was not marked for deletion; `inboxctl reconcile` does it: %v", err)
	}
}

// placeAgain is what a receipt would make of the message now. Without a dedupe key it keeps the identity that it has.
func placeAgain(cfg *config.Config, router *routing.Router, m inbox.Message, body []byte) (spannerstore.Rerouted, error) {
	if m.Consumer != cfg.Consumer {
		return spannerstore.Rerouted{}, fmt.Errorf("it is a message of consumer %s, and the configuration is that of %s", printable(m.Consumer), cfg.Consumer)
	}
	to := spannerstore.Rerouted{Message: m}
	if m.Reason == inbox.Unreadable {
		if err := readAgain(cfg, &to, body); err != nil {
			return spannerstore.Rerouted{}, err
		}
		body = to.Body
	}
	r := &to.Message
	in := routing.Input{MessageID: r.MessageID, OrderingKey: r.OrderingKey, Subscription: r.Subscription,
		PublishTime: r.PublishedAt, Attributes: r.Attributes, Payload: body}
	d := router.Route(in)
	if d.Park != "" {
		return spannerstore.Rerouted{}, fmt.Errorf("the configuration would park it again: %s, %s", d.Park, d.ParkDetail)
	}
	if !allowed(cfg, d.Claim) {
		return spannerstore.Rerouted{}, fmt.Errorf("the configuration would park it again: %s, claim: its bucket is none of those in claimCheck.buckets", inbox.Contract)
	}
	if r.FromDeadLetter && d.DedupeKey != "" {
		in.MessageID += "?"
		if d.DedupeKey != router.Route(in).DedupeKey {
			d.DedupeKey = "" // it holds the message's id, which is another one than the message was published with
		}
	}
	if d.DedupeKey != "" {
		r.Identify(d.DedupeKey, d.ConsumerScope)
	}
	place(r, d)
	return to, nil
}

// allowed reports whether the configuration lets a sender refer to the object. No object: it is.
func allowed(cfg *config.Config, o inbox.Object) bool {
	return o.IsZero() || slices.Contains(cfg.ClaimCheck.Buckets, o.Bucket)
}

// place gives a message what its route says of it.
func place(m *inbox.Message, d routing.Decision) {
	m.Route, m.Type, m.Version, m.TenantID = d.Route, d.Type, d.Version, d.TenantID
	m.AggregateType, m.CorrelationID, m.CausationID, m.Blocks = d.AggregateType, d.CorrelationID, d.CausationID, d.Blocks
	m.Claim = d.Claim
	m.Place(d.Placement())
}

// readAgain reads the request body that was stored because it could not be read.
func readAgain(cfg *config.Config, to *spannerstore.Rerouted, stored []byte) error {
	e, err := pushmsg.Parse(stored)
	if err != nil {
		return fmt.Errorf("it is still unreadable: %w", err)
	}
	if why := receiver.Unstorable(e); why != "" {
		return errors.New("it is still unreadable: " + why)
	}
	to.Content, to.Body, to.ContentType = true, e.Data, receiver.ContentType(e.Attributes)
	m := &to.Message
	m.OrderingKey, m.PublishedAt, m.TraceParent = e.OrderingKey, e.PublishTime, e.TraceParent()
	if m.FromDeadLetter {
		// As the receipt of a dead letter does; its identity stays.
		if at := receiver.PublishedFirst(e, m.ReceivedAt); !at.IsZero() {
			m.PublishedAt = at
		}
		e.Attributes = receiver.WithoutSource(e.Attributes)
	}
	m.Attributes, m.ContentSHA256 = e.Attributes, inbox.ContentSHA256(e.Data, e.Attributes, cfg.TraceAttributes...)
	m.PayloadSHA256, m.PayloadBytes = inbox.SHA256(e.Data), int64(len(e.Data))
	return nil
}
