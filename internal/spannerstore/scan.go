package spannerstore

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"cloud.google.com/go/spanner"
	"golang.org/x/sync/errgroup"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// scanIndex is one of the two sparse indexes that a relay scans.
type scanIndex struct{ index, column string }

var (
	lanesWoken = scanIndex{"LanesWoken", "WokenAt"}
	lanesDue   = scanIndex{"LanesDue", "DueAt"}
)

// Scan finds lanes that are due and that nobody holds: about limit, oldest first, each shard with a share of its own where
// there are more. It is read-only: a range read in a transaction would lock out the receives that write there. It costs
// what is due, not what is stored: two index reads, and where one of them hits its limit a read of each shard.
//
// more reports that there may be lanes beyond those returned. The clock is that of the first read, and of
// the process's latest commit.
func (s *Store) Scan(ctx context.Context, consumer string, limit int, rng *rand.Rand) (lanes []string, clock inbox.Clock, more bool, err error) {
	scan := laneScan{client: s.client, consumer: consumer, limit: limit, rng: rng, as: readAs{tag: "inbox-scan"}}
	clock.Sent = s.now()
	first := s.client.Single()
	woken, err := scan.read(ctx, first, lanesWoken, scan.shards(time.Time{}), limit)
	if err != nil {
		return nil, clock, false, fmt.Errorf("scan woken lanes: %w", err)
	}
	if err := s.readTime(ctx, consumer, &clock, first); err != nil {
		return nil, clock, false, err
	}
	scan.now = clock.Earliest(clock.Received)

	due, err := scan.read(ctx, s.client.Single(), lanesDue, scan.shards(scan.now), limit)
	if err != nil {
		return nil, clock, false, fmt.Errorf("scan due lanes: %w", err)
	}
	oldest := map[string]time.Time{}
	for index, found := range map[scanIndex][]scannedLane{lanesWoken: woken, lanesDue: due} {
		if len(found) >= limit {
			more = true
			if found, err = scan.shardByShard(ctx, index); err != nil {
				return nil, clock, false, fmt.Errorf("scan the shards of %s: %w", index.index, err)
			}
		}
		for _, lane := range scan.free(found) {
			if at, ok := oldest[lane.id]; !ok || lane.at.Before(at) {
				oldest[lane.id] = lane.at
			}
		}
	}
	for id := range oldest {
		lanes = append(lanes, id)
	}
	slices.SortFunc(lanes, func(a, b string) int { return cmp.Or(oldest[a].Compare(oldest[b]), cmp.Compare(a, b)) })
	return lanes, clock, more, nil
}

type scannedLane struct {
	id         string
	at         time.Time
	leaseUntil time.Time
}

type laneScan struct {
	client   *spanner.Client
	consumer string
	limit    int
	rng      *rand.Rand
	now      time.Time
	as       readAs
}

func (l *laneScan) shard(shard int64, until time.Time) spanner.KeyRange {
	prefix := spanner.Key{l.consumer, shard}
	if until.IsZero() {
		return spanner.KeyRange{Start: prefix, End: prefix, Kind: spanner.ClosedClosed}
	}
	return spanner.KeyRange{Start: prefix, End: append(prefix, until), Kind: spanner.ClosedClosed}
}

func (l *laneScan) shards(until time.Time) spanner.KeySet {
	var all []spanner.KeySet
	for shard := range int64(inbox.Shards) {
		all = append(all, l.shard(shard, until))
	}
	return spanner.KeySets(all...)
}

// shardByShard reads each shard, in random order, until it has found its share of lanes that nobody holds.
func (l *laneScan) shardByShard(ctx context.Context, index scanIndex) ([]scannedLane, error) {
	share := (l.limit + inbox.Shards - 1) / inbox.Shards
	found := make([][]scannedLane, inbox.Shards)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for _, shard := range l.rng.Perm(inbox.Shards) {
		group.Go(func() error {
			keys := l.shard(int64(shard), time.Time{})
			if index == lanesDue {
				keys = l.shard(int64(shard), l.now)
			}
			// Leased lanes do not count. There are at most as many as the running relays hold, so that this ends.
			for limit := share; ; limit *= 2 {
				rows, err := l.read(ctx, l.client.Single(), index, keys, limit)
				if err != nil {
					return err
				}
				if free := l.free(rows); len(rows) < limit || len(free) >= share {
					found[shard] = free[:min(share, len(free))]
					return nil
				}
			}
		})
	}
	err := group.Wait()
	return slices.Concat(found...), err
}

// free leaves out what somebody holds.
func (l *laneScan) free(lanes []scannedLane) []scannedLane {
	var free []scannedLane
	for _, lane := range lanes {
		if !lane.leaseUntil.After(l.now) {
			free = append(free, lane)
		}
	}
	return free
}

func (l *laneScan) read(ctx context.Context, txn *spanner.ReadOnlyTransaction, index scanIndex, keys spanner.KeySet, limit int) ([]scannedLane, error) {
	rows := txn.ReadWithOptions(ctx, "Lanes", keys, []string{"LaneId", index.column, "LeaseUntil"},
		l.as.options(&spanner.ReadOptions{Index: index.index, Limit: limit}))
	var lanes []scannedLane
	err := rows.Do(func(row *spanner.Row) error {
		var lane scannedLane
		var until spanner.NullTime
		if err := row.Columns(&lane.id, &lane.at, &until); err != nil {
			return err
		}
		lane.leaseUntil = until.Time
		lanes = append(lanes, lane)
		return nil
	})
	return lanes, err
}
