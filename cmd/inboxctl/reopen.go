package main

import (
	"context"
	"fmt"
	"slices"
	"time"

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
what has no route, or did not fit its route when it arrived. "-" reads ids from standard input, one a line.

Messages of one lane are reopened together, in one transaction, whatever the order of the ids: a relay that runs meanwhile
takes them in the lane's order. Of more than 500 the earlier ones come first. Where one fails, those behind it are not tried.
What a person may not expect, such as later messages that are through already, is said before anything is done.

The object that keeps the payload of a finished message is on its way out, and nothing takes that back: --force makes it
anew, as another generation, before the message is reopened.`,
		Example: `  inboxctl reopen 0123456789abcdef0123456789abcdef --reason "the process definition is fixed"
  inboxctl list --reason NO_WAITING_INSTANCE --limit 0 --json | jq -r .id | inboxctl reopen - --reason "instances are started"`,
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
				return a.reopen(cmd, store, objects, ids, spannerstore.Reopening{Actor: act.actor, Reason: act.reason, Force: force, DryRun: act.dryRun,
					Renew: func(ctx context.Context, location string) (string, error) { return renew(ctx, objects, location) }})
			})
		},
	}
	act.flags(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "reopen finished messages, too: they run a second time")
	return cmd
}

// reopen reopens messages lane by lane, those of a lane by their positions and together, whatever the order of the ids. Of more
// than one transaction has room for, the earlier ones are reopened first.
func (a *app) reopen(cmd *cobra.Command, store *spannerstore.Store, objects *claimcheck.Store, ids []string, r spannerstore.Reopening) error {
	ctx, cancel := a.within(cmd, time.Minute)
	lanes, err := store.InLanes(ctx, ids)
	cancel()
	if err != nil {
		return err
	}
	var together []group
	for i, lane := range lanes {
		for chunk := range slices.Chunk(lane, spannerstore.MaxReopened) {
			together = append(together, group{ids: chunk, lane: i})
		}
	}
	return a.eachGroup(cmd, together, func(ctx context.Context, ids []string) []error {
		planned, done := r, r
		planned.IDs, planned.DryRun, done.IDs = ids, true, ids
		answers := store.Reopen(ctx, planned)
		late := map[string]bool{}
		for i := range answers {
			if c := &answers[i].Changed; answers[i].Err == nil {
				late[answers[i].ID] = c.Late
				a.warnOfLane(*c)
				a.warnOfDelivery(&c.Before)
			}
		}
		if !r.DryRun {
			answers = store.Reopen(ctx, done)
		}
		errs := make([]error, len(ids))
		for i := range answers {
			id, before := ids[i], &answers[i].Changed.Before
			errs[i] = answers[i].Err
			if errs[i] == nil && r.DryRun && before.Status.Finished() {
				errs[i] = mayRenew(ctx, objects, before.PayloadLocation)
			}
			if errs[i] != nil {
				continue
			}
			if answers[i].Changed.Late && !late[id] { // it has become so in between
				a.warnOfLane(answers[i].Changed)
			}
			_, errs[i] = fmt.Fprintf(a.stdout, "%s: %sreopened, was %s after %s\n", id, would(r.DryRun), state(before), attempts(before.Attempts))
		}
		return errs
	})
}

// warnOfDelivery says that a message may be heard twice.
func (a *app) warnOfDelivery(before *inbox.Message) {
	if before.Reason == inbox.PossiblyDelivered {
		a.say(before.ID, "warning: it may have been delivered already; it will be sent again")
	}
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
		a.say(c.Before.ID, "warning: later messages of its lane are through already; it will run after them, and be marked late")
	}
	if c.Lane != nil && c.Lane.HeldBy != "" {
		a.say(c.Before.ID, "warning: its lane is held by %s; it waits until that ends", printable(c.Lane.HeldBy))
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
