package spannerstore

import (
	"context"
	"fmt"

	"cloud.google.com/go/spanner"
	"golang.org/x/sync/errgroup"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

var queueColumns = []string{"LaneId", "InboxId", "Sequence", "OrderedAt", "ReceivedAt", "Status", "Route", "NextAttemptAt"}

type reader interface {
	ReadWithOptions(ctx context.Context, table string, keys spanner.KeySet, columns []string, opts *spanner.ReadOptions) *spanner.RowIterator
}

// readQueues reads the first messages of each lane's queue in order: perLane(lane) of them at most, with what the index
// stores. One keyed read over all lanes' prefixes serves as long as its limit is not hit; the lanes that it did not reach
// are read one by one.
func readQueues(ctx context.Context, txn reader, lanes []string, perLane func(lane string) int) (map[string][]*inbox.Message, error) {
	queues := make(map[string][]*inbox.Message, len(lanes))
	if len(lanes) == 0 {
		return queues, nil
	}
	var prefixes []spanner.KeySet
	overall := 0
	for _, lane := range lanes {
		prefixes = append(prefixes, spanner.Key{lane, int64(0)}.AsPrefix())
		overall += perLane(lane)
	}
	total, err := readQueue(ctx, txn, spanner.KeySets(prefixes...), overall, func(lane string, m *inbox.Message) {
		if len(queues[lane]) < perLane(lane) {
			queues[lane] = append(queues[lane], m)
		}
	})
	if err != nil {
		return nil, err
	}
	if total < overall {
		return queues, nil
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	read := make([][]*inbox.Message, len(lanes))
	for i, lane := range lanes {
		if len(queues[lane]) >= perLane(lane) {
			read[i] = queues[lane]
			continue
		}
		group.Go(func() error {
			_, err := readQueue(ctx, txn, spanner.Key{lane, int64(0)}.AsPrefix(), perLane(lane), func(_ string, m *inbox.Message) {
				read[i] = append(read[i], m)
			})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for i, lane := range lanes {
		queues[lane] = read[i]
	}
	return queues, nil
}

func readQueue(ctx context.Context, txn reader, keys spanner.KeySet, limit int, add func(lane string, m *inbox.Message)) (int, error) {
	rows := txn.ReadWithOptions(ctx, "Messages", keys, queueColumns, &spanner.ReadOptions{Index: "MessagesByLane", Limit: limit})
	total := 0
	err := rows.Do(func(row *spanner.Row) error {
		m := &inbox.Message{}
		var status string
		var route spanner.NullString
		var next spanner.NullTime
		if err := row.Columns(&m.LaneID, &m.ID, &m.Sequence, &m.OrderedAt, &m.ReceivedAt, &status, &route, &next); err != nil {
			return err
		}
		// What is in a queue and parked is there because it blocks.
		m.Status, m.Route, m.NextAttemptAt = inbox.Status(status), route.StringVal, next.Time
		m.Blocks = m.Status == inbox.Parked
		total++
		add(m.LaneID, m)
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("read the queues of lanes: %w", err)
	}
	return total, nil
}
