package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/pushmsg"
	"github.com/pubsub-inbox/pubsub-inbox/internal/routing"
	"github.com/pubsub-inbox/pubsub-inbox/internal/spannerstore"
)

func (a *app) rerouteCommand() *cobra.Command {
	var act action
	var file string
	cmd := &cobra.Command{
		Use: "reroute ID...", Short: "Route stored messages again, by a corrected configuration",
		Long: `Route stored messages again: route, type, key, order and lane are evaluated by the configuration over what is stored, and
the message starts afresh in its new place. It keeps its id and its dedupe key. An UNREADABLE message is read again first.

For parked messages, and open ones that no relay holds. Where the configuration would park the message again nothing is
changed, and the reason is said. "-" reads ids from standard input, one a line.

Deploy the configuration to both functions first: a relay that does not know the new route lets its messages wait.`,
		Example: `  inboxctl list --reason NO_ROUTE --json | jq -r .id | inboxctl reroute - --config inbox.yaml --reason "route added"`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.check(&act); err != nil {
				return err
			}
			ids, err := a.ids(args)
			if err != nil {
				return err
			}
			cfg, err := a.configuration(file)
			if err != nil {
				return err
			}
			if cfg == nil {
				return usage("no configuration: give --config FILE, or set INBOX_CONFIG_FILE")
			}
			router, err := routing.New(cfg)
			if err != nil {
				return err
			}
			return a.withStore(cmd, func(store *spannerstore.Store) error {
				return a.each(cmd, ids, func(ctx context.Context, id string) error {
					changed, err := store.Reroute(ctx, spannerstore.Rerouting{
						ID: id, Actor: act.actor, Reason: act.reason, DryRun: act.dryRun,
						Route: func(m inbox.Message, body []byte) (spannerstore.Rerouted, error) {
							return placeAgain(cfg.Consumer, router, m, body)
						},
					})
					if err != nil {
						return err
					}
					a.warnOfLane(changed)
					before, after := &changed.Before, &changed.After
					if after.OutcomeUnknown && before.Route != "" && before.Route != after.Route {
						a.say(id, "warning: the outcome of its last attempt is unknown, and was to be looked up by route %s; if that asks another "+
							"engine than route %s does, the message may be delivered twice", printable(before.Route), printable(after.Route))
					}
					was := "no route"
					if before.Route != "" {
						was = "route " + printable(before.Route)
					}
					lane := "in the same lane"
					if before.LaneID != after.LaneID {
						lane = "in lane " + after.LaneID
					}
					_, err = fmt.Fprintf(a.stdout, "%s: %srerouted from %s to route %s, %s, was %s\n", id, would(act.dryRun), was,
						printable(after.Route), lane, state(before))
					return err
				})
			})
		},
	}
	act.flags(cmd)
	cmd.Flags().StringVar(&file, "config", "", "the configuration file (default: $INBOX_CONFIG_FILE)")
	return cmd
}

// placeAgain is what a receipt would make of the message now, but for its identity.
func placeAgain(consumer string, router *routing.Router, m inbox.Message, body []byte) (spannerstore.Rerouted, error) {
	if m.Consumer != consumer {
		return spannerstore.Rerouted{}, fmt.Errorf("it is a message of consumer %s, and the configuration is that of %s", printable(m.Consumer), consumer)
	}
	to := spannerstore.Rerouted{Message: m}
	if m.Reason == inbox.Unreadable {
		if err := readAgain(&to, body); err != nil {
			return spannerstore.Rerouted{}, err
		}
		body = to.Body
	}
	r := &to.Message
	d := router.Route(routing.Input{MessageID: r.MessageID, OrderingKey: r.OrderingKey, Subscription: r.Subscription,
		PublishTime: r.PublishedAt, Attributes: r.Attributes, Payload: body})
	if d.Park != "" {
		return spannerstore.Rerouted{}, fmt.Errorf("the configuration would park it again: %s, %s", d.Park, d.ParkDetail)
	}
	r.Route, r.Type, r.Version, r.TenantID = d.Route, d.Type, d.Version, d.TenantID
	r.AggregateType, r.CorrelationID, r.CausationID, r.Blocks = d.AggregateType, d.CorrelationID, d.CausationID, d.Blocks
	r.Place(d.Placement())
	return to, nil
}

// readAgain reads the request body that was stored because it could not be read.
func readAgain(to *spannerstore.Rerouted, stored []byte) error {
	e, err := pushmsg.Parse(stored)
	if err != nil {
		return fmt.Errorf("it is still unreadable: %w", err)
	}
	if e.Unreadable != "" {
		return errors.New("it is still unreadable: " + e.Unreadable)
	}
	size := 0
	for name, value := range e.Attributes {
		size += len(name) + len(value)
	}
	if size > inbox.MaxAttributes {
		return fmt.Errorf("it is still unreadable: the attributes take %d bytes; %d are the limit", size, inbox.MaxAttributes)
	}
	to.Content, to.Body = true, e.Data
	for name, value := range e.Attributes {
		if strings.EqualFold(name, "content-type") && len(value) <= 256 {
			to.ContentType = value
		}
	}
	m := &to.Message
	m.OrderingKey, m.PublishedAt, m.TraceParent = e.OrderingKey, e.PublishTime, e.TraceParent()
	m.Attributes, m.ContentSHA256 = e.Attributes, inbox.ContentSHA256(e.Data, e.Attributes)
	m.PayloadSHA256, m.PayloadBytes = inbox.SHA256(e.Data), int64(len(e.Data))
	return nil
}
