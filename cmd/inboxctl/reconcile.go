package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pubsub-inbox/pubsub-inbox/internal/claimcheck"
	"github.com/pubsub-inbox/pubsub-inbox/internal/config"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/spannerstore"
)

const (
	// slice is how many objects or rows are looked at together; a cursor stands between two slices.
	slice = 200
	// reconcileParallel bounds the requests to Cloud Storage under way.
	reconcileParallel = 8
	reconcileTimeout  = 5 * time.Minute
)

type reconcileFlags struct {
	act        action
	mend, json bool
	limit      int
	after      string
	minAge     time.Duration

	imports                             bool
	route, bucket, prefix, subscription string
	createdAfter                        string
	since                               time.Time // what it says
	config                              string
}

func (a *app) reconcileCommand() *cobra.Command {
	f := reconcileFlags{minAge: 24 * time.Hour}
	cmd := &cobra.Command{
		Use: "reconcile", Short: "Compare the bucket with the database, and mend what is left over", Args: cobra.NoArgs,
		Long: `Compare the bucket for payloads (PAYLOAD_BUCKET) with the database, both ways, and with --mend mend what can be mended.
Without --mend nothing is changed.

  orphan    an object without a row, or whose row keeps its payload elsewhere, older than --min-age: a receive died between
            upload and commit, or a payload was replaced. Mended: marked for deletion
  unmarked  a finished message's object that is not marked for deletion. Mended: marked, from when the message finished
  marked    an open or parked message's object that is marked for deletion. Mended: made anew, unmarked
  replaced  an open or parked message names a generation that is gone, and one with the same content is there. Mended: made
            anew, and the message names it
  missing   an open or parked message whose object is gone. Nothing mends that (exit code 1)
  changed   an open or parked message whose object is gone, with other content in its place. Nothing mends that (exit code 1)
  foreign   a name in the bucket that is not ours. Never touched

Nothing is deleted here: what is marked, the bucket's lifecycle deletes, counting the days since the mark. The bucket must
belong to this database alone: to another one's rows it is blind, and would take their objects for orphans. Run it more
often than those days: a message that comes late can have its object marked in the moment in which it is stored.

With --import, objects in a sender's bucket that no message has announced become messages of a route, as the notification
of Cloud Storage about the object (OBJECT_FINALIZE, JSON_API_V1) would have come. The route needs a claim, and a dedupe that
gives the notification's own key: by it a notification that comes late is known. It must not read message or
attributes.eventTime, which nobody can know. Announced is an object that some message of the consumer refers to, in this
generation or without naming one. Objects that the route does not match are counted, and left alone. One whose identity
another generation has, because the dedupe does not read the generation, is a finding that nothing here mends (exit code 1).

--created-after says from when on objects are looked at: the beginning of the outage, say. Older ones are counted, and left
alone. It is required: an import is a repair of something, and the more is looked at, the more can be wrong. Objects of which
the message may have been handled and deleted since are left alone in any case, and counted as forgotten: those older than
retention.processed, and those older than a shorter retention that was in force before. The relays write down each change.

--limit bounds how many objects and rows are looked at; what is printed after --after goes on from there.`,
		Example: `  inboxctl reconcile
  inboxctl reconcile --mend --reason "weekly clean-up" --limit 100000
  inboxctl reconcile --import --route report-uploaded --config inbox.yaml --created-after 2026-03-02 --prefix 2026/
  inboxctl reconcile --import --route report-uploaded --config inbox.yaml --created-after 2026-03-02T08:00:00Z --mend --reason "the topic was missing on Monday"`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.reconcile(cmd, f) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.mend, "mend", false, "do it, instead of saying what would be done")
	f.act.who(cmd, "why; it is written down (required with --mend)")
	flags.IntVar(&f.limit, "limit", 10_000, "look at so many objects and rows at most")
	flags.StringVar(&f.after, "after", "", "go on where an earlier run has ended: what that has printed")
	flags.Var(durationFlag{&f.minAge}, "min-age", "leave younger objects alone: they may be on their way")
	flags.BoolVar(&f.json, "json", false, "one JSON object a line: each finding, and the summary")
	flags.BoolVar(&f.imports, "import", false, "make messages of objects in a sender's bucket that none has announced")
	flags.StringVar(&f.route, "route", "", "with --import: the route of the messages (required)")
	flags.StringVar(&f.bucket, "bucket", "", "with --import: the sender's bucket (default: the only one in claimCheck.buckets)")
	flags.StringVar(&f.prefix, "prefix", "", "with --import: only objects whose names begin so")
	flags.StringVar(&f.createdAfter, "created-after", "", "with --import: only objects created since that `time`, 2026-03-02 or 2026-03-02T08:00:00Z (required)")
	flags.StringVar(&f.subscription, "subscription", "", "with --import: the push subscription of the notifications, projects/P/subscriptions/NAME (required unless the route has scope: consumer)")
	flags.StringVar(&f.config, "config", "", "with --import: the configuration file (default: $INBOX_CONFIG_FILE)")
	return cmd
}

func (a *app) reconcile(cmd *cobra.Command, f reconcileFlags) error {
	if err := a.checkReconcile(cmd, &f); err != nil {
		return err
	}
	return a.withStoreAndObjects(cmd, func(store *spannerstore.Store, objects *claimcheck.Store) error {
		r := &reconciler{app: a, cmd: cmd, flags: f, store: store, objects: objects}
		walk := r.payloads
		if f.imports {
			i, err := r.importer()
			if err != nil {
				return err
			}
			walk = i.walk
		} else if objects.Bucket() == "" {
			return usage("no bucket: set %s to the one that keeps payloads", config.EnvPayloadBucket)
		}
		if err := r.cursor.parse(f); err != nil {
			return err
		}
		err := walk()
		if err := errors.Join(r.summary(), err); err != nil {
			return err
		}
		if r.counts.failed > 0 {
			return errReported
		}
		return nil
	})
}

func (a *app) checkReconcile(cmd *cobra.Command, f *reconcileFlags) error {
	switch {
	case f.limit < 1:
		return usage("--limit is %d; it must be at least 1", f.limit)
	case f.imports && f.route == "":
		return usage("--import needs --route: the route that the messages are to have")
	case f.imports && f.subscription != "" && !subscriptionName.MatchString(f.subscription):
		return usage("--subscription is %q; it must be projects/P/subscriptions/NAME", f.subscription)
	}
	for _, name := range []string{"route", "bucket", "prefix", "subscription", "created-after"} {
		if !f.imports && cmd.Flags().Changed(name) {
			return usage("--%s goes with --import only", name)
		}
	}
	if f.imports {
		var err error
		if f.since, err = createdAfter(f.createdAfter); err != nil {
			return err
		}
	}
	if f.mend {
		return a.check(&f.act)
	}
	return nil
}

// createdAfter reads --created-after.
func createdAfter(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, usage("--import needs --created-after: from when on objects are looked at, such as the beginning of the outage")
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	return time.Time{}, usage("--created-after is %q; write it as 2026-03-02 (UTC) or 2026-03-02T08:00:00Z", text)
}

// The phases of a walk, in their order. Rows come after objects, so that an object that is marked here while its message is
// being stored is found by the same run.
const (
	phaseObjects = "objects"
	phaseOpen    = "open"
	phaseParked  = "parked"
	phaseImport  = "import"
	phaseEnd     = ""
)

// cursor says where a walk stands: behind what.
type cursor struct {
	Phase string             `json:"p"`
	Name  string             `json:"n,omitempty"` // of an object
	Row   spannerstore.Place `json:"r,omitzero"`
}

func (c *cursor) text() string {
	text, _ := json.Marshal(c) // strings, numbers and a time
	return base64.RawURLEncoding.EncodeToString(text)
}

func (c *cursor) parse(f reconcileFlags) error {
	*c = cursor{Phase: phaseObjects}
	if f.imports {
		c.Phase = phaseImport
	}
	if f.after == "" {
		return nil
	}
	text, err := base64.RawURLEncoding.DecodeString(strings.TrimSpace(f.after))
	if *c = (cursor{}); err == nil {
		err = json.Unmarshal(text, c)
	}
	switch known := slices.Contains([]string{phaseObjects, phaseOpen, phaseParked, phaseImport}, c.Phase); {
	case err != nil || !known:
		return usage("--after is %q; it must be what an earlier run has printed", f.after)
	case f.imports != (c.Phase == phaseImport):
		return usage("--after is of a run with --import, or without it; this run is the other one")
	}
	return nil
}

// reconciler is one run.
type reconciler struct {
	*app
	cmd     *cobra.Command
	flags   reconcileFlags
	store   *spannerstore.Store
	objects *claimcheck.Store
	cursor  cursor
	looked  int // at objects and rows
	counts  struct{ objects, rows, young, findings, mended, failed, unmatched, forgotten, before int }
}

// payloads compares the bucket with the database.
func (r *reconciler) payloads() error {
	return r.walk(func(ctx context.Context, limit int) error {
		switch r.cursor.Phase {
		case phaseObjects:
			last, err := r.sliceOfObjects(ctx, limit)
			if err == nil {
				r.cursor = cursor{Phase: phaseObjects, Name: last}
				if last == "" {
					r.cursor = cursor{Phase: phaseOpen}
				}
			}
			return err
		case phaseOpen:
			last, err := r.sliceOfRows(ctx, limit, r.store.OpenHoldings)
			if err == nil {
				r.cursor = cursor{Phase: phaseOpen, Row: last}
				if last.ID == "" {
					r.cursor = cursor{Phase: phaseParked}
				}
			}
			return err
		}
		last, err := r.sliceOfRows(ctx, limit, r.store.ParkedHoldings)
		if err == nil {
			r.cursor = cursor{Phase: phaseParked, Row: last}
			if last.ID == "" {
				r.cursor = cursor{Phase: phaseEnd}
			}
		}
		return err
	})
}

// walk takes slice after slice, until the end or the limit. --timeout bounds each slice.
func (r *reconciler) walk(next func(ctx context.Context, limit int) error) error {
	for r.cursor.Phase != phaseEnd && r.looked < r.flags.limit {
		if r.cmd.Context().Err() != nil {
			return errors.New("told to end")
		}
		ctx, cancel := r.within(r.cmd, reconcileTimeout)
		err := next(ctx, min(slice, r.flags.limit-r.looked))
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// list reads a slice of a bucket.
func (r *reconciler) list(ctx context.Context, bucket, prefix string, limit int) ([]inbox.FoundObject, string, error) {
	var found []inbox.FoundObject
	last, err := r.objects.List(ctx, bucket, prefix, r.cursor.Name, limit, func(o inbox.FoundObject) error {
		found = append(found, o)
		return nil
	})
	r.looked += len(found)
	r.counts.objects += len(found)
	if err != nil {
		hint := ""
		if errors.Is(err, inbox.ErrObjectForbidden) {
			hint = "Let a role such as roles/storage.objectUser on gs://" + bucket + " be granted to you."
		}
		return nil, "", &elsewhereError{err, hint}
	}
	return found, last, nil
}
