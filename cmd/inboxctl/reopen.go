package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

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
what has no route. "-" reads ids from standard input, one a line.`,
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
			return a.withStore(cmd, func(store *spannerstore.Store) error {
				return a.each(cmd, ids, func(ctx context.Context, id string) error {
					changed, err := store.Reopen(ctx, spannerstore.Reopening{ID: id, Actor: act.actor, Reason: act.reason, Force: force, DryRun: act.dryRun})
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
