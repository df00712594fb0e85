package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/pubsub-inbox/pubsub-inbox/internal/config"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/spannerstore"
)

// maxListed bounds what one list holds in memory.
const maxListed = 100_000

type listFlags struct {
	statuses                     []string
	reason, route, key, consumer string
	config                       string
	olderThan                    time.Duration
	stuck, json                  bool
	limit, scan                  int
}

func (a *app) listCommand() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use: "list", Short: "List messages, the oldest first", Args: cobra.NoArgs,
		Long: `List messages, the oldest first. Without filters all are listed: open, parked and finished ones.

Open and parked messages are found by indexes. Finished ones are in no index by time: without --key a bounded slice of
the table (--scan), in the order of ids, is looked at. A list that is not complete says so on standard error, and by exit code
3, unless the bound that cut it off was given: --limit N, --scan N. --limit 0 lists all that match.

--key finds the lanes of a key. With a configuration its consumer, key spaces and order kinds are used; without one, the
key space without a name, of --consumer or of every consumer found, and besides a slice of the lanes (--scan) is searched for
the key. Messages of routes with "order: none" have lanes of their own, which no key leads to.`,
		Example: `  inboxctl list --status PARKED --older-than 24h
  inboxctl list --reason NO_WAITING_INSTANCE --limit 0 --json | jq -r .id
  inboxctl list --key WO-4711
  inboxctl list --stuck`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.list(cmd, f) },
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.statuses, "status", nil, "RECEIVED, PROCESSING, RETRYING, PROCESSED, PARKED or DISCARDED; repeat it or use commas")
	flags.StringVar(&f.reason, "reason", "", "parked for this reason, such as NO_ROUTE")
	flags.StringVar(&f.route, "route", "", "of this route")
	flags.StringVar(&f.key, "key", "", "of this correlation key")
	flags.StringVar(&f.consumer, "consumer", "", "of this consumer (default: that of the configuration, else all)")
	flags.Var(durationFlag{&f.olderThan}, "older-than", "received at least that long ago: 10m, 24h, 75d")
	flags.Var(durationFlag{&f.olderThan}, "age", "the same as --older-than")
	flags.BoolVar(&f.stuck, "stuck", false, "being handled, and the lease has ended: a relay is to take them over")
	flags.IntVar(&f.limit, "limit", 1000, "at most so many; 0: all")
	flags.IntVar(&f.scan, "scan", 10_000, "look at so many rows at most where no index decides")
	flags.StringVar(&f.config, "config", "", "a configuration file (default: $INBOX_CONFIG_FILE)")
	flags.BoolVar(&f.json, "json", false, "one JSON object a line")
	complete(cmd, "status", inbox.Statuses())
	complete(cmd, "reason", inbox.Reasons())
	return cmd
}

func complete[T ~string](cmd *cobra.Command, flag string, values []T) {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = string(v)
	}
	// It fails only for a flag that is not there.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

func (a *app) list(cmd *cobra.Command, f listFlags) error {
	filter, err := f.filter()
	if err != nil {
		return err
	}
	if f.key == "" && cmd.Flags().Changed("key") {
		return usage("--key is empty; a message without a key has a lane of its own: list without --key, or show it by its id")
	}
	var cfg *config.Config
	// An emergency must not wait for a correct file: it is read only where it says something.
	if consumerGiven := cmd.Flags().Changed("consumer"); !consumerGiven || f.key != "" {
		if cfg, err = a.configuration(f.config); err != nil {
			return fmt.Errorf("%w\nWithout a configuration: unset %s and %s, and give --consumer", err, config.EnvFile, config.EnvText)
		}
		if cfg != nil && !consumerGiven {
			filter.Consumer = cfg.Consumer
		}
	}
	return a.withStore(cmd, func(store *spannerstore.Store) error {
		ctx, cancel := a.within(cmd, time.Minute)
		defer cancel()
		if f.key != "" {
			consumers := []string{filter.Consumer}
			if filter.Consumer == "" {
				if consumers, err = store.Consumers(ctx); err != nil {
					return err
				}
				fmt.Fprintf(a.stderr, "looked at the consumers that were found: %s; --consumer names others\n", printable(strings.Join(consumers, ", ")))
			}
			filter.Lanes = lanesOf(cfg, consumers, f.key)
		}
		unsearched := false
		if f.key != "" && cfg == nil {
			// Which key spaces there are, only a configuration says; the lanes themselves know their keys.
			found, complete, err := store.LanesOfKey(ctx, filter.Consumer, f.key, f.scan)
			if err != nil {
				return err
			}
			unsearched = !complete
			filter.Lanes = append(filter.Lanes, found...)
			slices.Sort(filter.Lanes)
			filter.Lanes = slices.Compact(filter.Lanes)
		}
		listing, err := store.List(ctx, filter)
		if err != nil {
			return err
		}
		incomplete := unsearched || listing.Bounded
		if err := a.printList(listing.Rows, f.json, incomplete); err != nil {
			return err
		}
		given := cmd.Flags().Changed
		cut := unsearched || listing.Bounded && !given("scan") || listing.More && (f.limit == 0 || !given("limit"))
		if listing.More {
			number := fmt.Sprintf("%d messages match", filter.Limit)
			if filter.Limit == 1 {
				number = "one message matches"
			}
			fmt.Fprintf(a.stderr, "more than %s; --limit raises the number (0: all), filters narrow the list\n", number)
		}
		if unsearched {
			fmt.Fprintf(a.stderr, "not complete: key spaces are named by a configuration, and without one %d lanes were searched for the key; "+
				"there are more. Give --config, or raise --scan\n", f.scan)
		}
		if listing.Bounded {
			fmt.Fprintf(a.stderr, "not complete: %d rows were looked at, and there are more; messages that match may be missing. "+
				"List by --key, show a message by its id, or raise --scan\n", max(f.scan, filter.Limit+1))
		}
		if cut {
			return errIncomplete
		}
		return nil
	})
}

func (f *listFlags) filter() (spannerstore.Filter, error) {
	filter := spannerstore.Filter{Consumer: f.consumer, Route: f.route, OlderThan: f.olderThan, Stuck: f.stuck, Limit: f.limit, Scan: f.scan}
	if f.limit == 0 {
		filter.Limit = maxListed
	}
	for _, text := range f.statuses {
		status := inbox.Status(strings.ToUpper(strings.TrimSpace(text)))
		if !slices.Contains(inbox.Statuses(), status) {
			return filter, usage("--status %q is none of %v", text, inbox.Statuses())
		}
		filter.Statuses = append(filter.Statuses, status)
	}
	filter.Reason = inbox.Reason(strings.ToUpper(f.reason))
	onlyParked := !slices.ContainsFunc(filter.Statuses, func(s inbox.Status) bool { return s != inbox.Parked })
	switch {
	case f.limit < 0 || f.limit > maxListed:
		return filter, usage("--limit is %d; it must be from 1 to %d, or 0 for all", f.limit, maxListed)
	case f.scan < 1:
		return filter, usage("--scan is %d; it must be at least 1", f.scan)
	case filter.Reason != "" && !slices.Contains(inbox.Reasons(), filter.Reason):
		return filter, usage("--reason %q is none of %v", f.reason, inbox.Reasons())
	case filter.Reason != "" && !onlyParked:
		return filter, usage("--reason goes with parked messages only; leave --status out")
	case f.stuck && (len(filter.Statuses) > 0 || filter.Reason != ""):
		return filter, usage("--stuck lists messages in PROCESSING; leave --status and --reason out")
	}
	return filter, nil
}

// lanesOf returns every lane that messages of the key can be in, those of an earlier configuration too as far as it named
// no other key spaces.
func lanesOf(cfg *config.Config, consumers []string, key string) []string {
	spaces := []string{""}
	if cfg != nil {
		for i := range cfg.Routes {
			spaces = append(spaces, cfg.Routes[i].KeySpace)
		}
	}
	slices.Sort(spaces)
	lanes := []string{}
	for _, consumer := range consumers {
		for _, space := range slices.Compact(spaces) {
			for _, order := range []inbox.OrderKind{inbox.OrderPublished, inbox.OrderReceived, inbox.OrderSequence} {
				lanes = append(lanes, inbox.LaneID(consumer, space, order, key))
			}
		}
	}
	return lanes
}

func (a *app) printList(rows []spannerstore.Row, asJSON, incomplete bool) error {
	if asJSON {
		return printJSON(a.stdout, rows)
	}
	if len(rows) == 0 {
		if !incomplete {
			fmt.Fprintln(a.stderr, "no messages")
		}
		return nil
	}
	table := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tSTATUS\tREASON\tTYPE\tROUTE\tKEY\tATTEMPTS\tRECEIVED")
	for _, r := range rows {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.ID, r.Status, printable(string(r.Reason)), printable(r.Type), printable(r.Route),
			printable(r.Key), strconv.FormatInt(r.Attempts, 10), r.ReceivedAt.UTC().Format(time.RFC3339))
	}
	return table.Flush()
}

// jsonRow is a message as one JSON object. Every member is always there but the last two; null: there is none.
type jsonRow struct {
	ID                string            `json:"id"`
	Consumer          string            `json:"consumer"`
	Scope             string            `json:"scope"`
	Subscription      *string           `json:"subscription"`
	MessageID         *string           `json:"messageId"`
	DedupeKey         string            `json:"dedupeKey"`
	Type              *string           `json:"type"`
	Route             *string           `json:"route"`
	Key               *string           `json:"key"`
	Status            string            `json:"status"`
	Reason            *string           `json:"reason"`
	Attempts          int64             `json:"attempts"`
	TechnicalFailures int64             `json:"technicalFailures"`
	LostWorkers       int64             `json:"lostWorkers"`
	OutcomeUnknown    bool              `json:"outcomeUnknown"`
	Late              bool              `json:"late"`
	HandedOver        bool              `json:"handedOver"`
	ReceivedAt        *time.Time        `json:"receivedAt"`
	PublishedAt       *time.Time        `json:"publishedAt"`
	NextAttemptAt     *time.Time        `json:"nextAttemptAt"`
	ProcessedAt       *time.Time        `json:"processedAt"`
	PayloadBytes      int64             `json:"payloadBytes"`
	PayloadSHA256     string            `json:"payloadSha256"`
	PayloadLocation   *string           `json:"payloadLocation"` // of our own object, else what the sender refers to
	Attributes        map[string]string `json:"attributes"`
	Deliveries        int64             `json:"deliveries"`
	LastErrorCode     *string           `json:"lastErrorCode"`
	LastErrorMessage  *string           `json:"lastErrorMessage"`
	EngineReference   *string           `json:"engineReference"`
	ReplayOf          *string           `json:"replayOf"`
	ConflictsWith     *string           `json:"conflictsWith"`

	LaneID              string     `json:"laneId"`
	OrderingKey         *string    `json:"orderingKey"`
	Version             *string    `json:"version"`
	TenantID            *string    `json:"tenantId"`
	AggregateType       *string    `json:"aggregateType"`
	CorrelationID       *string    `json:"correlationId"`
	CausationID         *string    `json:"causationId"`
	TraceParent         *string    `json:"traceParent"`
	Sequence            int64      `json:"sequence"`
	OrderedAt           *time.Time `json:"orderedAt"`
	Blocks              bool       `json:"blocks"`
	ProcessingStartedAt *time.Time `json:"processingStartedAt"`
	FirstFailedAt       *time.Time `json:"firstFailedAt"`
	LastFailedAt        *time.Time `json:"lastFailedAt"`
	ContentSHA256       string     `json:"contentSha256"`

	ClaimReference string `json:"claimReference,omitempty"` // gs://bucket/object#generation
	SourceAttempts *int64 `json:"sourceAttempts,omitempty"` // exactly where it is a dead letter
}

func printJSON(w io.Writer, rows []spannerstore.Row) error {
	lines := json.NewEncoder(w)
	lines.SetEscapeHTML(false)
	for i := range rows {
		if err := lines.Encode(toJSON(&rows[i])); err != nil {
			return err
		}
	}
	return nil
}

func toJSON(r *spannerstore.Row) jsonRow {
	text := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	at := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		t = t.UTC()
		return &t
	}
	attributes := r.Attributes
	if attributes == nil {
		attributes = map[string]string{}
	}
	reference := ""
	if !r.Claim.IsZero() {
		reference = r.Claim.Pinned()
	}
	location := r.PayloadLocation
	if location == "" {
		location = reference
	}
	var attempts *int64
	if r.FromDeadLetter {
		attempts = &r.SourceAttempts
	}
	return jsonRow{
		ID: r.ID, Consumer: r.Consumer, Scope: r.Scope, Subscription: text(r.Subscription), MessageID: text(r.MessageID),
		DedupeKey: r.DedupeKey, Type: text(r.Type), Route: text(r.Route), Key: text(r.Key), Status: string(r.Status),
		Reason: text(string(r.Reason)), Attempts: r.Attempts, TechnicalFailures: r.TechnicalFailures, LostWorkers: r.LostWorkers,
		OutcomeUnknown: r.OutcomeUnknown, Late: r.Late, HandedOver: r.HandedOver, ReceivedAt: at(r.ReceivedAt),
		PublishedAt: at(r.PublishedAt), NextAttemptAt: at(r.NextAttemptAt), ProcessedAt: at(r.ProcessedAt),
		PayloadBytes: r.PayloadBytes, PayloadSHA256: r.PayloadSHA256, PayloadLocation: text(location),
		Attributes: attributes, Deliveries: r.Deliveries, LastErrorCode: text(r.LastErrorCode),
		LastErrorMessage: text(r.LastErrorMessage), EngineReference: text(r.EngineReference), ReplayOf: text(r.ReplayOf),
		ConflictsWith: text(r.ConflictsWith),
		LaneID:        r.LaneID, OrderingKey: text(r.OrderingKey), Version: text(r.Version), TenantID: text(r.TenantID),
		AggregateType: text(r.AggregateType), CorrelationID: text(r.CorrelationID), CausationID: text(r.CausationID),
		TraceParent: text(r.TraceParent), Sequence: r.Sequence, OrderedAt: at(r.OrderedAt), Blocks: r.Blocks,
		ProcessingStartedAt: at(r.ProcessingStartedAt), FirstFailedAt: at(r.FirstFailedAt), LastFailedAt: at(r.LastFailedAt),
		ContentSHA256: r.ContentSHA256, ClaimReference: reference, SourceAttempts: attempts,
	}
}
