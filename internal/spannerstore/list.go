package spannerstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"cloud.google.com/go/spanner"
	"golang.org/x/sync/errgroup"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// Filter says which messages a list shows. The zero value of each field shows all.
type Filter struct {
	Consumer  string
	Statuses  []inbox.Status
	Reason    inbox.Reason // that a message is parked for: goes with no status, or with PARKED
	Route     string
	Lanes     []string      // the lanes of a key; nil: not by key
	OlderThan time.Duration // received at least that long ago, by the database's clock
	// Stuck: PROCESSING, and the lease that should bring them on has ended. A relay takes them over; if it does not, no
	// relay runs.
	Stuck bool
	Limit int // at least 1
	// Scan bounds how many rows one read looks at, of an index or of the table in id order; at least Limit + 1.
	Scan int
}

// lists is by what the reads of a list are known.
var lists = readAs{"inbox-list", priorityMedium}

// Listing is what a list found, by time of receipt and id.
type Listing struct {
	Rows []Row
	More bool // more match than the limit allows
	// Bounded: a read ended at Scan, so that rows that match may be missing.
	Bounded bool
}

// List reads messages at one moment. Open rows come from MessagesOpen, parked ones from MessagesParked, those of lanes
// from MessagesByLane; finished rows are in no index by time: without lanes a slice of the table in id order is looked
// at. What the limit cuts off is the newest, finished rows first.
func (s *Store) List(ctx context.Context, f Filter) (Listing, error) {
	txn := s.snapshot(lists)
	defer txn.Close()
	l := &lister{Filter: f, txn: txn}
	l.Scan = max(f.Scan, f.Limit+1)
	if f.Stuck {
		l.Statuses = []inbox.Status{inbox.Processing}
	}
	if f.Reason != "" && len(f.Statuses) == 0 {
		l.Statuses = []inbox.Status{inbox.Parked}
	}
	if f.OlderThan > 0 || f.Stuck {
		now, err := snapshotTime(ctx, txn)
		if err != nil {
			return Listing{}, fmt.Errorf("list messages: %w", err)
		}
		l.now = now
	}
	listing, err := l.list(ctx)
	if err != nil {
		return Listing{}, fmt.Errorf("list messages: %w", err)
	}
	return listing, nil
}

// snapshotTime makes the first read of txn, and returns the moment that it and all later ones show.
func snapshotTime(ctx context.Context, txn *snapshot) (time.Time, error) {
	if err := txn.Query(ctx, spanner.Statement{SQL: "SELECT 1"}).Do(func(*spanner.Row) error { return nil }); err != nil {
		return time.Time{}, fmt.Errorf("read the database's time: %w", err)
	}
	return txn.Timestamp()
}

// lister is one list under way.
type lister struct {
	Filter
	txn     *snapshot
	now     time.Time
	bounded bool
}

// candidate is what an index says of a row.
type candidate struct {
	id, laneID string
	receivedAt time.Time
}

func (l *lister) list(ctx context.Context) (Listing, error) {
	urgent, finished, err := l.candidates(ctx)
	if err != nil {
		return Listing{}, err
	}
	byReceipt := func(a, b candidate) int {
		return cmp.Or(a.receivedAt.Compare(b.receivedAt), cmp.Compare(a.id, b.id))
	}
	slices.SortFunc(urgent, byReceipt)
	slices.SortFunc(finished, byReceipt)
	all := append(urgent, finished...)
	listing := Listing{Bounded: l.bounded, More: len(all) > l.Limit}
	all = all[:min(len(all), l.Limit)]
	slices.SortFunc(all, byReceipt)
	ids := make([]string, len(all))
	for i, c := range all {
		ids[i] = c.id
	}
	rows, err := readRows(ctx, l.txn, ids)
	if err != nil {
		return Listing{}, err
	}
	for _, id := range ids {
		if row, ok := rows[id]; ok {
			listing.Rows = append(listing.Rows, row)
		}
	}
	return listing, nil
}

func (l *lister) candidates(ctx context.Context) (urgent, finished []candidate, err error) {
	if l.Lanes != nil {
		urgent, err = l.ofLanes(ctx)
		return urgent, nil, err
	}
	if l.wants(inbox.Received, inbox.Processing, inbox.Retrying) {
		found, err := l.fromIndex(ctx, openIndex)
		if err != nil {
			return nil, nil, err
		}
		urgent = found
	}
	if l.wants(inbox.Parked) {
		found, err := l.fromIndex(ctx, parkedIndex)
		if err != nil {
			return nil, nil, err
		}
		urgent = append(urgent, found...)
	}
	if l.Stuck {
		if urgent, err = l.withoutLease(ctx, urgent); err != nil {
			return nil, nil, err
		}
	}
	if l.wants(inbox.Processed, inbox.Discarded) {
		finished, err = l.finished(ctx)
	}
	return urgent, finished, err
}

func (l *lister) wants(statuses ...inbox.Status) bool {
	return len(l.Statuses) == 0 || slices.ContainsFunc(statuses, func(s inbox.Status) bool { return slices.Contains(l.Statuses, s) })
}

// before is the last time of receipt that is old enough; zero: all are.
func (l *lister) before() time.Time {
	if l.OlderThan <= 0 {
		return time.Time{}
	}
	return l.now.Add(-l.OlderThan)
}

// oldestIndex is an index whose second column splits each consumer's rows into groups that are ordered by time of receipt.
type oldestIndex struct {
	name   string
	group  string // its second column
	lane   bool   // it stores LaneId
	status inbox.Status
}

var (
	openIndex   = oldestIndex{name: "MessagesOpen", group: "OpenShard", lane: true}
	parkedIndex = oldestIndex{name: "MessagesParked", group: "ParkedReason", status: inbox.Parked}
)

// fromIndex returns the oldest rows of an index that match, at most one over the limit of each group. A read over all of
// it is enough unless there are too many, or the time of receipt or the reason decide: then the groups are found by
// reading one row of each, and each is read from its oldest row on.
func (l *lister) fromIndex(ctx context.Context, index oldestIndex) ([]candidate, error) {
	whole := l.OlderThan <= 0 && l.Reason == ""
	if whole {
		found, complete, err := l.read(ctx, index, within(l.prefix()))
		if err != nil || complete {
			return found, err
		}
	}
	groups, err := distinct(ctx, l.txn, index.name, []string{"Consumer", index.group}, l.prefix())
	if err != nil {
		return nil, err
	}
	var ranges []spanner.KeySet
	for _, group := range groups {
		if l.Reason != "" && group[1] != string(l.Reason) {
			continue
		}
		keys := within(group)
		if before := l.before(); !before.IsZero() {
			keys.End = append(slices.Clone(group), before)
		}
		ranges = append(ranges, keys)
	}
	if len(ranges) == 0 {
		return nil, nil
	}
	if !whole {
		found, complete, err := l.read(ctx, index, spanner.KeySets(ranges...))
		if err != nil || complete {
			return found, err
		}
	}
	each := make([][]candidate, len(ranges))
	ended := make([]bool, len(ranges))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i, keys := range ranges {
		group.Go(func() (err error) {
			each[i], ended[i], err = l.read(ctx, index, keys)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for i, found := range each {
		if !ended[i] && len(found) <= l.Limit {
			l.bounded = true
		}
	}
	return slices.Concat(each...), nil
}

func (l *lister) prefix() spanner.Key {
	if l.Consumer == "" {
		return spanner.Key{}
	}
	return spanner.Key{l.Consumer}
}

// within returns the range of all keys that begin with prefix.
func within(prefix spanner.Key) spanner.KeyRange {
	return spanner.KeyRange{Start: prefix, End: prefix, Kind: spanner.ClosedClosed}
}

// read returns the rows of an index that match, and whether it has seen all of keys. It stops at one over the limit.
func (l *lister) read(ctx context.Context, index oldestIndex, keys spanner.KeySet) (found []candidate, complete bool, err error) {
	columns := []string{"InboxId", "ReceivedAt", "Route"}
	if index.lane {
		columns = append(columns, "LaneId", "Status")
	}
	limit, enough := l.Limit+1, l.Limit+1
	if l.Route != "" || (index.lane && len(l.Statuses) > 0) {
		limit = l.Scan
	}
	if l.Stuck {
		enough = limit // which of them match shows later
	}
	read := 0
	err = l.scan(ctx, keys, columns, spanner.ReadOptions{Index: index.name, Limit: limit}, func(row *spanner.Row) (bool, error) {
		read++
		var c candidate
		var route spanner.NullString
		status := string(index.status)
		into := []any{&c.id, &c.receivedAt, &route}
		if index.lane {
			into = append(into, &c.laneID, &status)
		}
		if err := row.Columns(into...); err != nil {
			return false, err
		}
		if l.wants(inbox.Status(status)) && (l.Route == "" || l.Route == route.StringVal) {
			found = append(found, c)
		}
		return len(found) < enough, nil
	})
	return found, read < limit && len(found) < enough, err
}

// finished looks at a slice of the table in id order.
func (l *lister) finished(ctx context.Context) ([]candidate, error) {
	var found []candidate
	read := 0
	limit := l.Scan
	columns := []string{"InboxId", "Consumer", "ReceivedAt", "Status", "Route"}
	err := l.scan(ctx, spanner.AllKeys(), columns, spanner.ReadOptions{Limit: limit}, func(row *spanner.Row) (bool, error) {
		read++
		var c candidate
		var consumer, status string
		var route spanner.NullString
		if err := row.Columns(&c.id, &consumer, &c.receivedAt, &status, &route); err != nil {
			return false, err
		}
		before := l.before()
		if inbox.Status(status).Finished() && l.wants(inbox.Status(status)) && (l.Consumer == "" || l.Consumer == consumer) &&
			(l.Route == "" || l.Route == route.StringVal) && (before.IsZero() || !c.receivedAt.After(before)) {
			found = append(found, c)
		}
		return len(found) <= l.Limit, nil
	})
	l.bounded = l.bounded || read == limit
	return found, err
}

// ofLanes returns the rows of lanes that match, whatever their status.
func (l *lister) ofLanes(ctx context.Context) ([]candidate, error) {
	if len(l.Lanes) == 0 {
		return nil, nil
	}
	var prefixes []spanner.KeySet
	for _, lane := range l.Lanes {
		prefixes = append(prefixes, spanner.Key{lane}.AsPrefix())
	}
	var found []candidate
	read := 0
	limit := l.Scan
	columns := []string{"InboxId", "LaneId", "ReceivedAt", "Status", "Route"}
	options := spanner.ReadOptions{Index: "MessagesByLane", Limit: limit}
	err := l.scan(ctx, spanner.KeySets(prefixes...), columns, options, func(row *spanner.Row) (bool, error) {
		read++
		var c candidate
		var status string
		var route spanner.NullString
		if err := row.Columns(&c.id, &c.laneID, &c.receivedAt, &status, &route); err != nil {
			return false, err
		}
		before := l.before()
		if l.wants(inbox.Status(status)) && (l.Route == "" || l.Route == route.StringVal) && (before.IsZero() || !c.receivedAt.After(before)) {
			found = append(found, c)
		}
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	l.bounded = l.bounded || read == limit
	if l.Reason != "" {
		if found, err = l.withReason(ctx, found); err != nil {
			return nil, err
		}
	}
	if l.Stuck {
		return l.withoutLease(ctx, found)
	}
	return found, nil
}

// withReason keeps those that are parked for the reason: the lanes' index does not store it.
func (l *lister) withReason(ctx context.Context, candidates []candidate) ([]candidate, error) {
	if len(candidates) == 0 {
		return nil, nil
	}
	ids := make([]string, len(candidates))
	for i, c := range candidates {
		ids[i] = c.id
	}
	has := map[string]bool{}
	err := l.scan(ctx, keySet(ids), []string{"InboxId", "Reason"}, spanner.ReadOptions{}, func(row *spanner.Row) (bool, error) {
		var id string
		var reason spanner.NullString
		err := row.Columns(&id, &reason)
		has[id] = reason.StringVal == string(l.Reason)
		return true, err
	})
	return slices.DeleteFunc(candidates, func(c candidate) bool { return !has[c.id] }), err
}

// withoutLease keeps those whose lane nobody holds any more.
func (l *lister) withoutLease(ctx context.Context, candidates []candidate) ([]candidate, error) {
	if len(candidates) == 0 {
		return nil, nil
	}
	var ids []string
	for _, c := range candidates {
		ids = append(ids, c.laneID)
	}
	slices.Sort(ids)
	lanes, err := readLanes(ctx, l.txn, slices.Compact(ids))
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(candidates, func(c candidate) bool {
		lane, ok := lanes[c.laneID]
		return ok && lane.Leased(l.now)
	}), nil
}

var errEnough = errors.New("enough rows")

// scan reads rows of Messages until next says that it has enough.
func (l *lister) scan(ctx context.Context, keys spanner.KeySet, columns []string, options spanner.ReadOptions, next func(*spanner.Row) (bool, error)) error {
	rows := l.txn.ReadWithOptions(ctx, "Messages", keys, columns, &options)
	err := rows.Do(func(row *spanner.Row) error {
		more, err := next(row)
		if err == nil && !more {
			err = errEnough
		}
		return err
	})
	if err != nil && !errors.Is(err, errEnough) {
		return fmt.Errorf("read %s of messages: %w", cmp.Or(options.Index, "the table"), err)
	}
	return nil
}

// distinct returns the different values of an index's first columns, reading one row of each. within is a prefix of them.
func distinct(ctx context.Context, txn reader, index string, columns []string, prefix spanner.Key) ([]spanner.Key, error) {
	var found []spanner.Key
	keys := within(prefix)
	for {
		var key spanner.Key
		rows := txn.ReadWithOptions(ctx, "Messages", keys, columns, &spanner.ReadOptions{Index: index, Limit: 1})
		err := rows.Do(func(row *spanner.Row) error {
			for i := range columns {
				var text string
				if err := row.Column(i, &text); err == nil {
					key = append(key, text)
					continue
				}
				var number int64
				if err := row.Column(i, &number); err != nil {
					return err
				}
				key = append(key, number)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read the groups of %s: %w", index, err)
		}
		if key == nil {
			return found, nil
		}
		found = append(found, key)
		keys.Start, keys.Kind = key, spanner.OpenClosed
	}
}

// LanesOfKey searches the first lanes of the table, at most limit of them, for those of a key, whatever their key space and
// order, of one consumer or, where that is empty, of all. complete says that there are no more than those.
func (s *Store) LanesOfKey(ctx context.Context, consumer, key string, limit int) (lanes []string, complete bool, err error) {
	read := 0
	rows := s.client.Single().ReadWithOptions(ctx, "Lanes", spanner.AllKeys(), []string{"LaneId", "Consumer", "CorrelationKey"},
		&spanner.ReadOptions{Limit: limit + 1, RequestTag: "inbox-list"})
	err = rows.Do(func(row *spanner.Row) error {
		var id, of string
		var known spanner.NullString
		if err := row.Columns(&id, &of, &known); err != nil {
			return err
		}
		if read++; read <= limit && known.StringVal == key && (consumer == "" || consumer == of) {
			lanes = append(lanes, id)
		}
		return nil
	})
	if err != nil {
		return nil, false, fmt.Errorf("search lanes for a key: %w", err)
	}
	return lanes, read <= limit, nil
}

// maxSampled is how many rows of the table Consumers looks at.
const maxSampled = 100

// Consumers returns the consumers that have open or parked rows, a relay's entry, or a row in a small sample of the table.
// One that has few finished rows beside many of others may be missing.
func (s *Store) Consumers(ctx context.Context) ([]string, error) {
	txn := s.snapshot(lists)
	defer txn.Close()
	seen := map[string]bool{}
	for _, index := range []string{openIndex.name, parkedIndex.name} {
		keys, err := distinct(ctx, txn, index, []string{"Consumer"}, spanner.Key{})
		if err != nil {
			return nil, fmt.Errorf("look for consumers: %w", err)
		}
		for _, key := range keys {
			seen[key[0].(string)] = true
		}
	}
	for table, limit := range map[string]int{"Relays": 0, "Messages": maxSampled} {
		rows := txn.ReadWithOptions(ctx, table, spanner.AllKeys(), []string{"Consumer"}, &spanner.ReadOptions{Limit: limit})
		err := rows.Do(func(row *spanner.Row) error {
			var consumer string
			err := row.Columns(&consumer)
			seen[consumer] = true
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("look for consumers: %w", err)
		}
	}
	consumers := make([]string, 0, len(seen))
	for consumer := range seen {
		consumers = append(consumers, consumer)
	}
	slices.Sort(consumers)
	return consumers, nil
}
