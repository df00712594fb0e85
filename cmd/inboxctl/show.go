package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/spf13/cobra"

	"github.com/pubsub-inbox/pubsub-inbox/internal/claimcheck"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/spannerstore"
)

func (a *app) showCommand() *cobra.Command {
	var asJSON, payload bool
	cmd := &cobra.Command{
		Use: "show ID...", Short: "Show all that is known of messages",
		Long: `Show all that is known of messages: where each stands and why, its lane, its attempts, its redeliveries, and what
operators have done to it. --json prints the same objects as list. --payload writes the payload of one message, byte for
byte, and nothing else, also where an object keeps it; what a sender refers to is no payload of ours, and is not read.
"-" reads ids from standard input, one a line.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := a.ids(args)
			if err != nil {
				return err
			}
			if asJSON && payload {
				return usage("--json and --payload exclude each other")
			}
			if payload && len(ids) != 1 {
				return usage("--payload takes one id: nothing would separate the bytes of several")
			}
			return a.withStore(cmd, func(store *spannerstore.Store) error {
				switch {
				case payload:
					return a.withObjects(func(objects *claimcheck.Store) error {
						return a.each(cmd, ids, func(ctx context.Context, id string) error { return a.showPayload(ctx, store, objects, id) })
					})
				case asJSON:
					return a.showJSON(cmd, store, ids)
				}
				first := true
				return a.each(cmd, ids, func(ctx context.Context, id string) error {
					shown, err := store.Show(ctx, id)
					if err != nil {
						return err
					}
					if !first {
						fmt.Fprintln(a.stdout)
					}
					first = false
					return a.print(&shown)
				})
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line")
	cmd.Flags().BoolVar(&payload, "payload", false, "the payload's bytes, and nothing else")
	return cmd
}

func (a *app) showPayload(ctx context.Context, store *spannerstore.Store, objects *claimcheck.Store, id string) error {
	contents, err := store.Load(ctx, []string{id})
	if err != nil {
		return err
	}
	content, ok := contents[id]
	switch {
	case !ok:
		return inbox.ErrNotFound
	case content.PayloadLocation != "":
		if content.Body, err = readPayload(ctx, objects, content.PayloadLocation, content.PayloadSHA256); err != nil {
			return err
		}
	case !content.HasBody:
		return errors.New("its payload has been deleted")
	}
	_, err = a.stdout.Write(content.Body)
	return err
}

func (a *app) showJSON(cmd *cobra.Command, store *spannerstore.Store, ids []string) error {
	ctx, cancel := a.within(cmd, time.Minute)
	defer cancel()
	rows, err := store.Rows(ctx, ids)
	if err != nil {
		return err
	}
	var found []spannerstore.Row
	for _, id := range ids {
		if row, ok := rows[id]; ok {
			found = append(found, row)
			continue
		}
		a.fault(id, inbox.ErrNotFound)
		err = errReported
	}
	return errors.Join(printJSON(a.stdout, found), err)
}

// page is a text of names and values.
type page struct{ *tabwriter.Writer }

func (p page) line(name, format string, args ...any) {
	fmt.Fprintf(p.Writer, "%s\t%s\n", name, fmt.Sprintf(format, args...))
}

// text leaves out what is empty.
func (p page) text(name, value string) {
	if value != "" {
		p.line(name, "%s", printable(value))
	}
}

func (p page) time(name string, t time.Time) {
	if !t.IsZero() {
		p.line(name, "%s", moment(t))
	}
}

func (a *app) print(s *spannerstore.Shown) error {
	p := page{tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)}
	m := &s.Message
	p.line("message", "%s", m.ID)
	p.line("status", "%s", printable(state(m)))
	p.line("", "%s", standing(s))
	p.text("last error", strings.TrimSpace(m.LastErrorCode+" "+m.LastErrorMessage))

	p.line("\nidentity", "")
	p.text("consumer", m.Consumer)
	p.text("scope", m.Scope)
	p.text("dedupe key", m.DedupeKey)
	p.text("transport key", m.TransportKey)
	p.text("subscription", m.Subscription)
	p.text("message id", m.MessageID)
	p.text("ordering key", m.OrderingKey)
	p.time("published", m.PublishedAt)
	p.time("received", m.ReceivedAt)
	p.line("deliveries", "%d", s.Deliveries)
	if m.FromDeadLetter {
		p.line("source attempts", "%d, before it went to the dead-letter topic", m.SourceAttempts)
	}
	p.text("replay of", m.ReplayOf)
	p.text("conflicts with", m.ConflictsWith)

	p.line("\nmeaning", "")
	p.text("route", m.Route)
	p.text("type", m.Type)
	p.text("version", m.Version)
	p.text("tenant", m.TenantID)
	p.text("aggregate type", m.AggregateType)
	p.text("correlation id", m.CorrelationID)
	p.text("causation id", m.CausationID)
	p.text("trace parent", m.TraceParent)
	for _, name := range slices.Sorted(maps.Keys(m.Attributes)) {
		p.line("attribute "+printable(name), "%s", printable(m.Attributes[name]))
	}
	p.line("payload", "%s", payloadState(s))
	p.text("payload sha256", m.PayloadSHA256)
	if !m.Claim.IsZero() {
		p.text("refers to", m.Claim.Pinned())
		p.text("refers to sha256", m.Claim.SHA256)
	}
	p.text("content sha256", m.ContentSHA256)

	p.line("\nhandling", "")
	p.line("attempts", "%d (technical failures %d, of those in outages %d; lost workers %d)", m.Attempts, m.TechnicalFailures, m.OutageFailures, m.LostWorkers)
	p.line("outcome unknown", "%t", m.OutcomeUnknown)
	p.line("handed over", "%t", m.HandedOver)
	p.line("late", "%t", m.Late)
	p.line("blocks if parked", "%t", m.Blocks)
	p.line("patience used", "%s", m.PatienceUsed)
	p.text("engine reference", m.EngineReference)
	p.time("attempt began", m.ProcessingStartedAt)
	p.time("next attempt", m.NextAttemptAt)
	p.time("last not waiting", m.LastNotWaitingAt)
	p.time("first failed", m.FirstFailedAt)
	p.time("last failed", m.LastFailedAt)
	p.time("processed", m.ProcessedAt)
	if m.Status.Finished() {
		p.time("kept until", m.PurgeAfter)
	}

	p.line("\nlane", "%s", m.LaneID)
	p.text("key", m.Key)
	p.line("position", "sequence %d, ordered at %s", m.Sequence, moment(m.OrderedAt))
	for i, line := range laneState(s) {
		p.line([]string{"state", ""}[min(i, 1)], "%s", line)
	}

	for _, h := range s.History {
		late := ""
		if h.Late {
			late = ", came after its lease"
		}
		p.line(fmt.Sprintf("\nattempt %d", h.Number), "%s%s", printable(h.Verdict), late)
		p.time("began", h.StartedAt)
		p.time("ended", h.EndedAt)
		p.text("error", strings.TrimSpace(h.ErrorCode+" "+h.ErrorMessage))
		p.text("engine", h.Engine)
		p.text("owner", h.Owner)
		p.text("revision", h.Revision)
	}
	for _, d := range s.Redeliveries {
		p.line("\nredelivery", "%s", moment(d.ReceivedAt))
		p.text("message id", d.MessageID)
		p.text("subscription", d.Subscription)
		if d.Attempt > 0 {
			p.line("delivery attempt", "%d", d.Attempt)
		}
		p.text("revision", d.Revision)
	}
	for _, e := range s.Audit {
		p.line("\n"+printable(e.Action), "%s", moment(e.OccurredAt))
		p.text("by", e.Actor)
		p.text("because", e.Reason)
		p.text("before", compact(e.Before))
		p.text("after", compact(e.After))
	}
	return p.Flush()
}

func compact(state spanner.NullJSON) string {
	if !state.Valid {
		return ""
	}
	var text strings.Builder
	line := json.NewEncoder(&text)
	line.SetEscapeHTML(false)
	if err := line.Encode(state.Value); err != nil {
		return ""
	}
	return strings.TrimSuffix(text.String(), "\n")
}

func payloadState(s *spannerstore.Shown) string {
	about := fmt.Sprintf("%d bytes", s.PayloadBytes)
	if s.ContentType != "" {
		about += ", " + printable(s.ContentType)
	}
	switch {
	case s.PayloadLocation != "":
		return about + ", in " + printable(s.PayloadLocation)
	case !s.HasPayload:
		return about + ", deleted"
	case !s.PayloadPurgeAt.IsZero():
		return about + ", kept until " + moment(s.PayloadPurgeAt)
	}
	return about
}

// standing says in a sentence what the message waits for.
func standing(s *spannerstore.Shown) string {
	switch {
	case s.Status == inbox.Processed:
		return "done"
	case s.Status == inbox.Discarded:
		return "closed without being correlated"
	case s.Status == inbox.Parked && s.Route == "":
		return "needs a person: correct the routes, then `inboxctl reroute`"
	case s.Status == inbox.Parked && s.Blocks:
		return "needs a person, and blocks its lane until then: `inboxctl reopen` tries it again"
	case s.Status == inbox.Parked:
		return "needs a person: `inboxctl reopen` tries it again"
	case s.Status == inbox.Processing && (s.Lane == nil || !s.Lane.Leased(s.At)):
		return "being handled, and its lease has ended: the next relay takes it over"
	case s.Status == inbox.Processing:
		return "being handled"
	}
	for _, ahead := range s.Ahead {
		if ahead.Status == inbox.Parked {
			return "blocked by " + ahead.ID
		}
	}
	switch n := len(s.Ahead); {
	case s.Lane != nil && s.Lane.HeldBy != "":
		return "held by " + printable(s.Lane.HeldBy)
	case s.MoreAhead:
		return fmt.Sprintf("waits for more than %d messages before it, the first is %s", n, s.Ahead[0].ID)
	case n > 0:
		return fmt.Sprintf("waits for %d before it, the first is %s", n, s.Ahead[0].ID)
	case s.NextAttemptAt.After(s.At):
		return "waits for its next attempt at " + moment(s.NextAttemptAt)
	}
	return "waits for a relay"
}

// laneState says in words what the lane's row says.
func laneState(s *spannerstore.Shown) []string {
	lane := s.Lane
	if lane == nil {
		if s.Status.Open() {
			return []string{"it has no row; the next sweep makes one"}
		}
		return []string{"it has no row: nothing waits in it"}
	}
	var lines []string
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	if lane.HeldBy != "" {
		say("held by %s: %s", printable(lane.HeldBy), printable(s.HeldReason))
	}
	switch {
	case lane.Leased(s.At):
		say("leased by %s until %s (token %d)", printable(lane.LeaseOwner), moment(lane.LeaseUntil), lane.LeaseToken)
	case lane.LeaseOwner != "":
		say("the lease of %s ended at %s (token %d)", printable(lane.LeaseOwner), moment(lane.LeaseUntil), lane.LeaseToken)
	}
	due := "with a wake-up"
	if !lane.DueAt.IsZero() {
		due = "at " + moment(lane.DueAt)
	}
	switch lane.WhyNotDue {
	case "":
	case inbox.WhyHeadWaits:
		say("its first message waits for its next attempt, %s", due)
	case inbox.WhyBlocked:
		say("%s", blockedBy(s))
	case inbox.WhyHeld:
		if lane.HeldBy == "" {
			say("it was held when a relay last looked")
		}
	case inbox.WhyEnginePaused:
		say("its engine is paused, or left alone after failures; looked at again %s", due)
	case inbox.WhyRouteUnknown:
		say("the relay's configuration lacks the route of its first message; looked at again %s", due)
	case inbox.WhyEngineUnknown:
		say("the relay's configuration lacks the engine of its first message; looked at again %s", due)
	default:
		say("%s, looked at again %s", printable(lane.WhyNotDue), due)
	}
	switch {
	case !lane.WokenAt.IsZero():
		say("woken at %s; the next relay looks at it", moment(lane.WokenAt))
	case !lane.DueAt.IsZero() && !lane.Leased(s.At) && !lane.DueAt.After(s.At):
		say("due since %s; the next relay looks at it", moment(lane.DueAt))
	}
	if !lane.Last.IsZero() {
		say("its last finished message is %s", lane.Last.InboxID)
	}
	if len(lines) == 0 {
		say("nothing waits in it")
	}
	return lines
}

// blockedBy names the message that keeps the lane closed.
func blockedBy(s *spannerstore.Shown) string {
	if s.Status == inbox.Parked && s.Blocks && len(s.Ahead) == 0 {
		return "blocked by this message"
	}
	for _, ahead := range s.Ahead {
		if ahead.Status == inbox.Parked {
			return "blocked by " + ahead.ID
		}
	}
	return "it was blocked when a relay last looked"
}
