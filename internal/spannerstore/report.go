package spannerstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"cloud.google.com/go/spanner"
	"golang.org/x/sync/errgroup"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// reporterLimit bounds the transaction that takes the reporter's lease. It is well below what a claim may take.
const reporterLimit = 1500 * time.Millisecond

// TakeReporter takes or renews the right to report on a consumer, until lease from now. Where another owner has it, held
// is false and wait says for how long it still has. It writes only what it takes: one read, and one read-write
// transaction for the owner.
func (s *Store) TakeReporter(ctx context.Context, consumer, owner string, lease time.Duration) (held bool, wait time.Duration, err error) {
	var clock inbox.Clock
	clock.Sent = s.now()
	single := s.client.Single()
	has, until, err := readReporter(ctx, single, consumer)
	if err == nil {
		err = s.readTime(ctx, consumer, &clock, single)
	}
	if err != nil {
		return false, 0, fmt.Errorf("read the reporter's lease: %w", err)
	}
	if left := until.Sub(clock.Earliest(s.now())); has != owner && left > 0 {
		return false, left, nil
	}
	// It holds up claims and settlements of the process: so it is short, or tried again later.
	ctx, cancel := context.WithTimeout(ctx, reporterLimit)
	defer cancel()
	_, err = s.write(ctx, "inbox-report", func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
		held, wait = false, 0
		has, until, err := readReporter(ctx, txn, consumer)
		if err != nil {
			return err
		}
		local := s.now()
		if left := until.Sub(clock.Earliest(local)); has != owner && left > 0 {
			wait = left
			return nil
		}
		held = true
		return txn.BufferWrite([]*spanner.Mutation{spanner.InsertOrUpdate("Relays", []string{"Consumer", "ReporterOwner", "ReporterUntil"},
			[]any{consumer, owner, clock.Latest(local).Add(lease)})})
	})
	if err != nil {
		return false, 0, fmt.Errorf("take the reporter's lease: %w", err)
	}
	return held, wait, nil
}

func readReporter(ctx context.Context, txn reader, consumer string) (owner string, until time.Time, err error) {
	rows := txn.ReadWithOptions(ctx, "Relays", spanner.Key{consumer}, []string{"ReporterOwner", "ReporterUntil"}, reports.options(nil))
	err = rows.Do(func(row *spanner.Row) error {
		var o spanner.NullString
		var u spanner.NullTime
		err := row.Columns(&o, &u)
		owner, until = o.StringVal, u.Time
		return err
	})
	return owner, until, err
}

// Report reads the state of a consumer's rows at one moment: its engines, the oldest and the number of its open rows
// (MessagesOpen), its parked rows (MessagesParked), its lanes (LanesWoken, LanesDue, LanesStopped), and of the rows that
// are being processed since when they are. It reads only what it counts, and lanes that are due within a lease, each index
// up to a limit and where that is hit its shards or reasons in addition; finished rows are in none of these indexes.
func (s *Store) Report(ctx context.Context, req inbox.ReportRequest) (inbox.Report, error) {
	local := s.now()
	single := s.client.Single()
	engines, err := readEngines(ctx, tagged{single, reports}, req.Consumer)
	if err != nil {
		return inbox.Report{}, err
	}
	now, err := single.Timestamp()
	if err != nil {
		return inbox.Report{}, fmt.Errorf("read the database's time: %w", err)
	}
	r := &reporting{ReportRequest: req, client: s.client, marks: &s.opened, now: now, local: local}
	r.report = inbox.Report{At: now, Engines: engines, Parked: map[inbox.Reason]int{}}
	if err := r.open(ctx); err != nil {
		return inbox.Report{}, fmt.Errorf("report open messages: %w", err)
	}
	if err := r.parked(ctx); err != nil {
		return inbox.Report{}, fmt.Errorf("report parked messages: %w", err)
	}
	if err := r.lanes(ctx); err != nil {
		return inbox.Report{}, fmt.Errorf("report lanes: %w", err)
	}
	return r.report, nil
}

// reports is by what the reads of a report are known.
var reports = readAs{"inbox-report", priorityLow}

// reporting is one report under way. All of its reads are of the same moment.
type reporting struct {
	inbox.ReportRequest
	client *spanner.Client
	marks  *marks    // of MessagesOpen
	now    time.Time // of all reads
	local  time.Time // a local reading from before them
	report inbox.Report
}

func (r *reporting) at() *spanner.ReadOnlyTransaction {
	return r.client.Single().WithTimestampBound(spanner.ReadTimestamp(r.now))
}

// ReadWithOptions makes it a reader: each read is a single-use one of its own.
func (r *reporting) ReadWithOptions(ctx context.Context, table string, keys spanner.KeySet, columns []string, opts *spanner.ReadOptions) *spanner.RowIterator {
	return r.at().ReadWithOptions(ctx, table, keys, columns, reports.options(opts))
}

func (r *reporting) since(at time.Time) time.Duration { return max(0, r.now.Sub(at)) }

type openRow struct {
	id         string
	shard      int64
	receivedAt time.Time
	processing bool
	route      string
}

func (r *reporting) open(ctx context.Context) error {
	all := make([]int64, inbox.Shards)
	for shard := range all {
		all[shard] = int64(shard)
	}
	rows, err := r.openRows(ctx, all, r.MaxOpen+1)
	if err != nil {
		return err
	}
	r.report.Open = len(rows)
	if len(rows) > r.MaxOpen {
		// In the index the shards stand one after another: the oldest rows are at the beginning of each.
		r.report.Open, r.report.OpenCapped = r.MaxOpen, true
		if rows, err = r.openShards(ctx); err != nil {
			return err
		}
	}
	var processing []string
	for _, row := range rows {
		r.report.OldestOpen = max(r.report.OldestOpen, r.since(row.receivedAt))
		if row.processing {
			processing = append(processing, row.id)
		}
		if !slices.Contains(r.Routes, row.route) {
			r.report.UnknownRoute++
		}
	}
	if len(processing) == 0 {
		return nil
	}
	started := r.ReadWithOptions(ctx, "Messages", keySet(processing), []string{"ProcessingStartedAt"}, reports.options(nil))
	return started.Do(func(row *spanner.Row) error {
		var at spanner.NullTime
		err := row.Columns(&at)
		if at.Valid {
			r.report.OldestProcessing = max(r.report.OldestProcessing, r.since(at.Time))
		}
		return err
	})
}

// openRows reads shards, ascending, each from its mark on: a row that was parked and is open again may be behind it, until the
// next sweep has found it.
func (r *reporting) openRows(ctx context.Context, shards []int64, limit int) ([]openRow, error) {
	var found []openRow
	var ranges []spanner.KeySet
	from := make([]time.Time, len(shards))
	for i, shard := range shards {
		from[i] = r.marks.from(markedRange{openIndex.name, r.Consumer, shard}, r.local)
		keys := within(spanner.Key{r.Consumer, shard})
		if !from[i].IsZero() {
			keys.Start = spanner.Key{r.Consumer, shard, from[i]}
		}
		ranges = append(ranges, keys)
	}
	rows := r.ReadWithOptions(ctx, "Messages", spanner.KeySets(ranges...), []string{"InboxId", "OpenShard", "ReceivedAt", "Status", "Route"},
		&spanner.ReadOptions{Index: "MessagesOpen", Limit: limit})
	err := rows.Do(func(row *spanner.Row) error {
		var o openRow
		var status string
		var route spanner.NullString
		if err := row.Columns(&o.id, &o.shard, &o.receivedAt, &status, &route); err != nil {
			return err
		}
		o.processing, o.route = inbox.Status(status) == inbox.Processing, route.StringVal
		found = append(found, o)
		return nil
	})
	if err != nil {
		return nil, err
	}
	oldest := map[int64]time.Time{}
	for _, row := range found {
		if at, ok := oldest[row.shard]; !ok || row.receivedAt.Before(at) {
			oldest[row.shard] = row.receivedAt
		}
	}
	for i, shard := range shards {
		if len(found) == limit && shard > found[limit-1].shard {
			break // the read ended before it
		}
		r.marks.note(markedRange{openIndex.name, r.Consumer, shard}, from[i], oldest[shard], time.Time{}, r.now, r.local)
	}
	return found, nil
}

func (r *reporting) openShards(ctx context.Context) ([]openRow, error) {
	each := make([][]openRow, inbox.Shards)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for shard := range inbox.Shards {
		group.Go(func() (err error) {
			each[shard], err = r.openRows(ctx, []int64{int64(shard)}, max(1, r.MaxOpen/inbox.Shards))
			return err
		})
	}
	err := group.Wait()
	return slices.Concat(each...), err
}

func (r *reporting) parked(ctx context.Context) error {
	prefix := spanner.Key{r.Consumer}
	counts, total, err := r.parkedRows(ctx, within(prefix), r.MaxParked)
	if err != nil {
		return err
	}
	if total < r.MaxParked {
		r.report.Parked = counts
		return nil
	}
	reasons, err := distinct(ctx, r, parkedIndex.name, []string{"Consumer", parkedIndex.group}, prefix)
	if err != nil {
		return err
	}
	for _, reason := range reasons {
		counts, _, err := r.parkedRows(ctx, within(reason), r.MaxParked)
		if err != nil {
			return err
		}
		for reason, n := range counts {
			r.report.Parked[reason] = n
		}
	}
	return nil
}

func (r *reporting) parkedRows(ctx context.Context, keys spanner.KeySet, limit int) (counts map[inbox.Reason]int, total int, err error) {
	counts = map[inbox.Reason]int{}
	rows := r.ReadWithOptions(ctx, "Messages", keys, []string{parkedIndex.group}, &spanner.ReadOptions{Index: parkedIndex.name, Limit: limit})
	err = rows.Do(func(row *spanner.Row) error {
		var reason string
		err := row.Columns(&reason)
		counts[inbox.Reason(reason)]++
		total++
		return err
	})
	return counts, total, err
}

func (r *reporting) lanes(ctx context.Context) error {
	woken, err := readScanned(ctx, r, lanesWoken, within(spanner.Key{r.Consumer}), r.MaxOpen)
	if err != nil {
		return fmt.Errorf("read woken lanes: %w", err)
	}
	due, err := r.due(ctx)
	if err != nil {
		return fmt.Errorf("read due lanes: %w", err)
	}
	waiting, leased := map[string]bool{}, map[string]bool{}
	for _, lane := range append(woken, due...) {
		switch {
		case lane.leaseUntil.After(r.now):
			leased[lane.id] = true
		case !lane.at.After(r.now):
			waiting[lane.id] = true
		}
		if !lane.leaseUntil.IsZero() {
			r.report.OldestExpiredLease = max(r.report.OldestExpiredLease, r.since(lane.leaseUntil))
		}
	}
	r.report.Lanes.Due, r.report.Lanes.Leased = min(len(waiting), r.MaxOpen), min(len(leased), r.MaxOpen)
	for why, count := range map[string]*int{inbox.StoppedBlocked: &r.report.Lanes.Blocked, inbox.StoppedHeld: &r.report.Lanes.Held} {
		stopped := r.ReadWithOptions(ctx, "Lanes", within(spanner.Key{r.Consumer, why}), []string{"LaneId"},
			&spanner.ReadOptions{Index: "LanesStopped", Limit: r.MaxOpen})
		err := stopped.Do(func(*spanner.Row) error { *count++; return nil })
		if err != nil {
			return err
		}
	}
	return nil
}

// due reads lanes that are due, and leased ones, which are due when their lease ends. Where there are too many, it reads
// some of each flow. What a clock was late by when a lease was promised comes on top.
func (r *reporting) due(ctx context.Context) ([]scannedLane, error) {
	until := r.now.Add(r.Lease + r.Lease/4)
	var flows []spanner.KeySet
	for _, route := range append([]string{""}, r.Routes...) {
		flow := inbox.FlowOf(route)
		var shards []spanner.KeySet
		for _, shard := range append(flow.Slots(), flow.Suspects()) {
			shards = append(shards, spanner.KeyRange{Start: spanner.Key{r.Consumer, shard}, End: spanner.Key{r.Consumer, shard, until}, Kind: spanner.ClosedClosed})
		}
		flows = append(flows, spanner.KeySets(shards...))
	}
	found, err := readScanned(ctx, r, lanesDue, spanner.KeySets(flows...), r.MaxOpen)
	if err != nil || len(found) < r.MaxOpen {
		return found, err
	}
	each := make([][]scannedLane, len(flows))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for i, flow := range flows {
		group.Go(func() (err error) {
			each[i], err = readScanned(ctx, r, lanesDue, flow, max(1, r.MaxOpen/len(flows)))
			return err
		})
	}
	err = group.Wait()
	return slices.Concat(append(each, found)...), err
}
