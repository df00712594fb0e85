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
	case s.Status == inbox.Parked && s.Blocks:
		return "needs a person, and blocks its lane until then: " + repair(s)
	case s.Status == inbox.Parked:
		return "needs a person: " + repair(s)
	case s.Status == inbox.Processing && (s.Lane == nil || !s.Lane.Leased(s.At)):
		return "being handled, and its lease has ended: the next relay takes it over"
	case s.Status == inbox.Processing:
		return "being handled"
	}
	held := ""
	if s.Lane != nil && s.Lane.HeldBy != "" {
		held = "held by " + printable(s.Lane.HeldBy)
	}
	for _, ahead := range s.Ahead {
		if ahead.Status == inbox.Parked {
			return both("blocked by "+ahead.ID, held)
		}
	}
	own := ""
	if s.NextAttemptAt.After(s.At) {
		own = "waits for its next attempt at " + moment(s.NextAttemptAt)
	}
	switch n := len(s.Ahead); {
	case held != "":
		return both(held, own)
	case s.MoreAhead:
		return fmt.Sprintf("waits for more than %d messages before it, the first is %s", n, s.Ahead[0].ID)
	case n > 0:
		return fmt.Sprintf("waits for %d before it, the first is %s", n, s.Ahead[0].ID)
	}
	switch waits := waitsForEngine(s); {
	case waits != "":
		return both(waits, own)
	case s.Lane != nil && !s.Lane.Leased(s.At) && s.Lane.WhyNotDue == inbox.WhyRouteUnknown:
		return both("waits for its route: the relay's configuration lacks "+printable(s.Route), own)
	case s.Lane != nil && !s.Lane.Leased(s.At) && s.Lane.WhyNotDue == inbox.WhyEngineUnknown:
		return both("waits for its engine: the relay's configuration lacks that of route "+printable(s.Route), own)
	case own != "":
		return own
	case len(s.Engines) > 0 && (s.Lane == nil || !s.Lane.Leased(s.At)) && lastEngine(s) == "":
		// A lane whose engine is stopped is left as it is: so nothing says that of a message that was never sent.
		var all []string
		for i := range s.Engines {
			all = append(all, stopped(&s.Engines[i], s.At))
		}
		return "waits for a relay; or for its engine, if that is " + strings.Join(all, ", or ")
	}
	return "waits for a relay"
}

// lastEngine is the engine that the message was last sent to; "": none.
func lastEngine(s *spannerstore.Shown) string {
	last := ""
	for _, h := range s.History {
		if h.Engine != "" {
			last = h.Engine
		}
	}
	return last
}

func both(first, second string) string {
	if second == "" {
		return first
	}
	return first + "; " + second
}

// waitsForEngine says which engine the message waits for, and why that is left alone; "": none. Which engine a route has only a
// configuration says: here it is the one that the message was last sent to, or, where a relay has found the lane's engine
// stopped, the one that is.
func waitsForEngine(s *spannerstore.Shown) string {
	last := lastEngine(s)
	found := s.Lane != nil && s.Lane.WhyNotDue == inbox.WhyEnginePaused
	var all []string
	for i := range s.Engines {
		if e := &s.Engines[i]; e.Name == last || last == "" && found {
			all = append(all, stopped(e, s.At))
		}
	}
	switch {
	case len(all) > 0:
		return "waits for " + strings.Join(all, ", or for ")
	case found && !s.Lane.Leased(s.At):
		return "waits for its engine, which was paused, or left alone after failures, when a relay last looked"
	}
	return ""
}

func stopped(e *spannerstore.StoppedEngine, now time.Time) string {
	text := "engine " + printable(e.Name)
	if !e.PausedAt.IsZero() {
		text += " (paused since " + moment(e.PausedAt)
		if e.PausedBy != "" {
			text += " by " + printable(e.PausedBy)
		}
		if e.PausedReason != "" {
			text += ": " + printable(e.PausedReason)
		}
		return text + ")"
	}
	until := "until " + moment(e.OpenUntil)
	if !e.OpenUntil.After(now) {
		until = "and probed with one message at a time since " + moment(e.OpenUntil)
	}
	text += " (left alone " + until
	if about := strings.TrimSpace(e.OpenReason + " " + e.LastError); about != "" {
		text += ": " + printable(about)
	}
	return text + ")"
}

// repair says what a person can do about a parked message. What it says first is a command that does something for it.
func repair(s *spannerstore.Shown) string {
	other := printable(s.ConflictsWith)
	switch {
	case !s.HasPayload:
		return "its payload has been deleted, so that it can only be discarded"
	case s.Reason == inbox.Unreadable:
		return "`inboxctl show --payload` has the request as it came; have the message published again, and discard this one. " +
			"Where a newer version can read it, reroute does"
	case s.Route == "":
		return "correct the routes, then `inboxctl reroute`"
	case s.UnfitOnArrival():
		return "correct its route or the claim's buckets, then `inboxctl reroute`"
	case s.Reason == inbox.DedupeConflict:
		return "compare it with " + other + "; `inboxctl reopen` runs it, too"
	case s.Reason == inbox.DeadLettered && s.ConflictsWith != "":
		return "look whether it is the same message as " + other + "; if not, `inboxctl reopen` runs it"
	case s.Reason == inbox.PossiblyDelivered:
		return "look into the engine; `inboxctl reopen` says that it may be sent again"
	case s.Reason == inbox.ClaimMissing && s.PayloadLocation != "":
		return "`inboxctl reconcile` looks for the object that keeps its payload; then `inboxctl reopen`"
	case s.Reason == inbox.ClaimMissing:
		return "have the object that it refers to written again, then `inboxctl reopen`"
	case s.Reason == inbox.ClaimChanged:
		return "talk to the sender: a corrected message is a new one, and this one is discarded; `inboxctl reopen` looks at the object again"
	case s.Reason == inbox.PayloadTooLarge:
		return "raise the limit of its route or its engine, then `inboxctl reopen`"
	case s.Reason == inbox.DeadLettered:
		return "find out why it was refused; `inboxctl reopen` runs it"
	}
	return "remove the cause, then `inboxctl reopen` tries it again"
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
