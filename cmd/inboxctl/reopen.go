package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pubsub-inbox/pubsub-inbox/internal/claimcheck"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/spannerstore"
)

func (a *app) reopenCommand() *cobra.Command {
	var act action
	var force bool
	cmd := &cobra.Command{
		Use: "reopen ID...", Short: "Let parked messages be tried again",
		Long: `Let parked messages be tried again: each is the same row, from its first attempt, in its old place in the order. Its
message name and variables are evaluated anew by the route as it is now. Key, order and route stay; reroute evaluates those.

A message that is POSSIBLY_DELIVERED is sent again, on your word that it may be.

Refused: what is open, or being handled; what is finished (--force: it runs a second time, if its payload is still there);
what has no route. "-" reads ids from standard input, one a line.

The object that keeps the payload of a finished message is on its way out, and nothing takes that back: --force makes it
anew, as another generation, before the message is reopened.`,
		Example: `  inboxctl reopen 0123456789abcdef0123456789abcdef --reason "the process definition is fixed"
  inboxctl list --reason NO_WAITING_INSTANCE --json | jq -r .id | inboxctl reopen - --reason "instances are started"`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.check(&act); err != nil {
				return err
			}
			ids, err := a.ids(args)
			if err != nil {
				return err
			}
			return a.withStoreAndObjects(cmd, func(store *spannerstore.Store, objects *claimcheck.Store) error {
				return a.each(cmd, ids, func(ctx context.Context, id string) error {
					changed, err := store.Reopen(ctx, spannerstore.Reopening{ID: id, Actor: act.actor, Reason: act.reason, Force: force, DryRun: act.dryRun,
						Renew: func(ctx context.Context, location string) (string, error) { return renew(ctx, objects, location) }})
					if err == nil && act.dryRun && changed.Before.Status.Finished() {
						err = mayRenew(ctx, objects, changed.Before.PayloadLocation)
					}
					if err != nil {
						return err
					}
					a.warnOfLane(changed)
					before := &changed.Before
					if before.Status == inbox.Parked && before.Attempts == 0 && before.Reason == inbox.Contract {
						a.say(id, "warning: it was parked when it arrived; a reopen keeps the key and order that it was stored with, reroute evaluates them again")
					}
					if before.Reason == inbox.PossiblyDelivered {
						a.say(id, "warning: it may have been delivered already; it will be sent again")
					}
					_, err = fmt.Fprintf(a.stdout, "%s: %s%s, was %s after %s\n", id, would(act.dryRun), "reopened", state(before), attempts(before.Attempts))
					return err
				})
			})
		},
	}
	act.flags(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "reopen finished messages, too: they run a second time")
	return cmd
}

// renew makes the object anew that keeps a finished message's payload.
func renew(ctx context.Context, objects *claimcheck.Store, location string) (string, error) {
	o, err := inbox.ParseLocation(location)
	if err != nil {
		return "", &spannerstore.RefusedError{Why: fmt.Sprintf("where its payload is cannot be read: %v", err)}
	}
	renewed, err := objects.Renew(ctx, o)
	if err != nil {
		return "", objectError(o, err)
	}
	return renewed.Location(), nil
}

// mayRenew says what renew would be refused for, and changes nothing.
func mayRenew(ctx context.Context, objects *claimcheck.Store, location string) error {
	if location == "" {
		return nil
	}
	o, err := inbox.ParseLocation(location)
	if err != nil {
		return &spannerstore.RefusedError{Why: fmt.Sprintf("where its payload is cannot be read: %v", err)}
	}
	_, err = equal(ctx, objects, o)
	return objectError(o, err)
}

// warnOfLane says what about its lane a person may not expect.
func (a *app) warnOfLane(c spannerstore.Changed) {
	if c.Late {
		a.say(c.After.ID, "warning: later messages of its lane are through already; it will run after them, and be marked late")
	}
	if c.Lane != nil && c.Lane.HeldBy != "" {
		a.say(c.After.ID, "warning: its lane is held by %s; it waits until that ends", printable(c.Lane.HeldBy))
	}
}

func would(dryRun bool) string {
	if dryRun {
		return "would be "
	}
	return ""
}

func state(m *inbox.Message) string {
	if m.Reason != "" {
		return string(m.Status) + "/" + string(m.Reason)
	}
	return string(m.Status)
}

func attempts(n int64) string {
	if n == 1 {
		return "1 attempt"
	}
	return fmt.Sprintf("%d attempts", n)
}
