package spannerstore

import (
	"context"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// Sweep looks at the next slice of at most limit open rows and wakes each lane that has forgotten one: a lane that is
// missing, or whose time is later than its head allows, unless it is leased, held or blocked. It uses single-use reads
// and one single-use commit, which also moves the cursor: a wake-up is always safe. It reports how many lanes it woke.
func (s *Store) Sweep(ctx context.Context, consumer string, limit int) (int, error) {
	cursor, err := s.sweepCursor(ctx, consumer)
	if err != nil {
		return 0, err
	}
	rows, now, err := s.sweepSlice(ctx, consumer, cursor, limit)
	if err != nil {
		return 0, err
	}
	next := sweepPosition{}
	if len(rows) == limit {
		last := rows[len(rows)-1]
		next = sweepPosition{shard: last.shard, receivedAt: last.message.ReceivedAt, inboxID: last.message.ID}
	} else if !cursor.start() && len(rows) < limit {
		// Wrapped: what is left of the limit goes to the beginning.
		more, _, err := s.sweepSlice(ctx, consumer, sweepPosition{}, limit-len(rows))
		if err != nil {
			return 0, err
		}
		if rows = append(rows, more...); len(more) > 0 {
			last := more[len(more)-1]
			next = sweepPosition{shard: last.shard, receivedAt: last.message.ReceivedAt, inboxID: last.message.ID}
		}
	}
	forgotten, err := s.forgottenLanes(ctx, rows, now)
	if err != nil {
		return 0, err
	}
	if len(forgotten) == 0 && next == cursor {
		return 0, nil
	}
	mutations := []*spanner.Mutation{spanner.InsertOrUpdate("Relays",
		[]string{"Consumer", "SweepShard", "SweepReceivedAt", "SweepInboxId"},
		[]any{consumer, spanner.NullInt64{Int64: next.shard, Valid: !next.start()}, nullTime(next.receivedAt), nullString(next.inboxID)})}
	for _, m := range forgotten {
		mutations = append(mutations, wakeLane(m))
	}
	if err := s.commitOnce(ctx, sweeps.tag, mutations, spanner.Priority(sweeps.priority)); err != nil {
		return 0, fmt.Errorf("wake %d forgotten lanes: %w", len(forgotten), err)
	}
	return len(forgotten), nil
}

// sweeps is by what the reads of a sweep are known.
var sweeps = readAs{"inbox-sweep", priorityLow}

type sweepPosition struct {
	shard      int64
	receivedAt time.Time
	inboxID    string
}

func (p sweepPosition) start() bool { return p.inboxID == "" }

type sweptRow struct {
	shard   int64
	message *inbox.Message
}

func (s *Store) sweepCursor(ctx context.Context, consumer string) (sweepPosition, error) {
	row, err := s.client.Single().ReadRowWithOptions(ctx, "Relays", spanner.Key{consumer}, []string{"SweepShard", "SweepReceivedAt", "SweepInboxId"}, sweeps.options(nil))
	if spanner.ErrCode(err) == codes.NotFound {
		return sweepPosition{}, nil
	}
	if err != nil {
		return sweepPosition{}, fmt.Errorf("read the sweep's cursor: %w", err)
	}
	var shard spanner.NullInt64
	var at spanner.NullTime
	var id spanner.NullString
	if err := row.Columns(&shard, &at, &id); err != nil {
		return sweepPosition{}, fmt.Errorf("read the sweep's cursor: %w", err)
	}
	return sweepPosition{shard: shard.Int64, receivedAt: at.Time, inboxID: id.StringVal}, nil
}

func (s *Store) sweepSlice(ctx context.Context, consumer string, from sweepPosition, limit int) ([]sweptRow, time.Time, error) {
	keys := spanner.KeyRange{Start: spanner.Key{consumer}, End: spanner.Key{consumer}, Kind: spanner.ClosedClosed}
	if !from.start() {
		keys.Start, keys.Kind = spanner.Key{consumer, from.shard, from.receivedAt, from.inboxID}, spanner.OpenClosed
	}
	local := s.now()
	txn := s.client.Single()
	rows := txn.ReadWithOptions(ctx, "Messages", keys, []string{"InboxId", "OpenShard", "ReceivedAt", "Status", "LaneId", "NextAttemptAt"},
		sweeps.options(&spanner.ReadOptions{Index: "MessagesOpen", Limit: limit}))
	var swept []sweptRow
	err := rows.Do(func(row *spanner.Row) error {
		m := &inbox.Message{Consumer: consumer}
		r := sweptRow{message: m}
		var status string
		var next spanner.NullTime
		if err := row.Columns(&m.ID, &r.shard, &m.ReceivedAt, &status, &m.LaneID, &next); err != nil {
			return err
		}
		m.Status, m.NextAttemptAt = inbox.Status(status), next.Time
		swept = append(swept, r)
		return nil
	})
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("read open messages: %w", err)
	}
	now, err := txn.Timestamp()
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("read the database's time: %w", err)
	}
	s.noteSwept(consumer, from, swept, limit, now, local)
	return swept, now, nil
}

// noteSwept tells the marks of the shards that a slice has seen from their beginning. A sweep itself begins at no mark: it is
// what finds rows that are open again, with their old times, once a run and not with each look at the gauges.
func (s *Store) noteSwept(consumer string, from sweepPosition, swept []sweptRow, limit int, read, local time.Time) {
	oldest := map[int64]time.Time{}
	for _, r := range swept {
		if at, ok := oldest[r.shard]; !ok || r.message.ReceivedAt.Before(at) {
			oldest[r.shard] = r.message.ReceivedAt
		}
	}
	for shard := range int64(inbox.Shards) {
		if !from.start() && shard <= from.shard {
			continue
		}
		if len(swept) == limit && shard > swept[limit-1].shard {
			break
		}
		s.opened.note(markedRange{openIndex.name, consumer, shard}, time.Time{}, oldest[shard], time.Time{}, read, local)
	}
}

// forgottenLanes returns one message of each lane that has to be woken, with what a lane row is made of.
func (s *Store) forgottenLanes(ctx context.Context, rows []sweptRow, now time.Time) ([]*inbox.Message, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	var ids []string
	open := map[string][]*inbox.Message{}
	for _, r := range rows {
		if open[r.message.LaneID] == nil {
			ids = append(ids, r.message.LaneID)
		}
		open[r.message.LaneID] = append(open[r.message.LaneID], r.message)
	}
	lanes, err := readLanes(ctx, s.single(sweeps), ids)
	if err != nil {
		return nil, err
	}
	var suspicious []string
	for _, id := range ids {
		lane, ok := lanes[id]
		if !ok || inbox.MayBeForgotten(lane, open[id], now) {
			suspicious = append(suspicious, id)
		}
	}
	queues, err := readQueues(ctx, s.single(sweeps), suspicious, func(string) int { return 1 })
	if err != nil {
		return nil, err
	}
	var heads []string
	for _, id := range suspicious {
		if _, ok := lanes[id]; ok && len(queues[id]) > 0 && !inbox.Forgotten(lanes[id], queues[id][0], now) {
			continue
		}
		if len(queues[id]) > 0 {
			heads = append(heads, queues[id][0].ID)
		}
	}
	if len(heads) == 0 {
		return nil, nil
	}
	full, err := readControl(ctx, s.single(sweeps), heads)
	if err != nil {
		return nil, err
	}
	var forgotten []*inbox.Message
	for _, m := range full {
		forgotten = append(forgotten, m)
	}
	return forgotten, nil
}
