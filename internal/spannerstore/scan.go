package spannerstore

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
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

const (
	// sharePerFlow is how many lanes are read at least of a flow whose turn it is. For an engine that lets one probe pass it is
	// all that is read: the claim takes the best of them.
	sharePerFlow = 16
	// strayPage is how many lanes a scan looks at that are filed where no turn is.
	strayPage = 100
	// strangersPerScan is how many lanes of unknown routes a scan hands out: a claim can do nothing but write down why.
	strangersPerScan = 8
	// dueSlack is how far back of the moment a due time may be written at least; a longer lease makes it longer.
	dueSlack = 10 * time.Minute
	// passLimit bounds a read of all due lanes, whatever their marks say.
	passLimit = 5 * time.Second
)

// Scan finds lanes that are due, that nobody holds, and whose engine may be called. It is read-only: a range read in a
// transaction would lock out the receives that write there.
//
// While what is due fits into the limit, a scan reads all flows (see inbox.Flow) together. Where it does not, each flow is
// read for a share of its own: the oldest lanes of the next of its slots, and the next lanes of a walk through all of its
// slots. The walk meets the lane that is woken again and again, and so is never among the oldest. Lanes that are filed under
// an engine that cannot be called, or under a route that the request does not name, are left where they are; strays looks
// through them for those that are filed in the wrong place.
//
// The Store remembers for each consumer where the next scan goes on.
func (s *Store) Scan(ctx context.Context, req inbox.ScanRequest) (inbox.Scanned, error) {
	memory := s.scanMemory(req.Consumer)
	memory.mu.Lock()
	defer memory.mu.Unlock()
	scan := laneScan{ScanRequest: req, store: s, memory: memory}
	found, err := scan.run(ctx)
	if err != nil {
		return inbox.Scanned{}, err
	}
	memory.scans++
	return found, nil
}

// scanMemory is what the scans of a process remember of a consumer.
type scanMemory struct {
	mu     sync.Mutex
	scans  int
	marks  marks
	flows  map[inbox.Flow]*flowMemory
	strays map[scanIndex]position // where the look through strays goes on
}

// flowMemory is where the next visit of a flow goes on.
type flowMemory struct {
	slot    map[scanIndex]int64 // the shard from which on the oldest lanes are read
	walk    position
	shallow bool // the last visit found less than its share
}

// position is a place in an index.
type position struct {
	shard int64
	at    time.Time
}

func (s *Store) scanMemory(consumer string) *scanMemory {
	s.scanning.Lock()
	defer s.scanning.Unlock()
	memory := s.scans[consumer]
	if memory == nil {
		memory = &scanMemory{marks: marks{lasting: true}, flows: map[inbox.Flow]*flowMemory{}, strays: map[scanIndex]position{}}
		s.scans[consumer] = memory
	}
	return memory
}

func (m *scanMemory) flow(flow inbox.Flow) *flowMemory {
	if m.flows[flow] == nil {
		m.flows[flow] = &flowMemory{slot: map[scanIndex]int64{}}
	}
	return m.flows[flow]
}

type scannedLane struct {
	id         string
	shard      int64
	at         time.Time
	leaseUntil time.Time
}

// scannedFlow is a flow whose lanes may be claimed from.
type scannedFlow struct {
	flow   inbox.Flow
	shards []int64 // ascending
	probe  bool    // one lane of it at most can be taken
}

// scans is by what the reads of a scan are known.
var scans = readAs{tag: "inbox-scan"}

type laneScan struct {
	inbox.ScanRequest
	store  *Store
	memory *scanMemory
	clock  inbox.Clock
	now    time.Time     // not after the database's, once the first read is answered
	pass   bool          // read whatever the marks say
	flows  []scannedFlow // ascending
}

func (l *laneScan) run(ctx context.Context) (inbox.Scanned, error) {
	var found inbox.Scanned
	l.clock.Sent = l.store.now()
	if !allClosed(l.States) {
		if err := l.readStates(ctx); err != nil {
			return found, err
		}
	}
	l.choose()
	woken, err := l.scan(ctx, lanesWoken, l.allShards(), position{}, l.Limit)
	if err != nil {
		return found, fmt.Errorf("scan woken lanes: %w", err)
	}
	due, err := l.readDue(ctx)
	if err != nil {
		return found, fmt.Errorf("scan due lanes: %w", err)
	}
	var turns [][]string
	if len(woken) < l.Limit && len(due) < l.Limit {
		turns, found.Suspects = l.together(woken, due)
	} else if turns, found.Suspects, found.More, err = l.each(ctx); err != nil {
		return found, fmt.Errorf("scan the flows: %w", err)
	}
	strays, err := l.strays(ctx, len(turns) == 0)
	if err != nil {
		return found, fmt.Errorf("look for lanes that are filed in the wrong place: %w", err)
	}
	found.Lanes = inTurns(append(turns, strays), l.memory.scans)
	found.Clock, found.States = l.clock, l.States
	return found, nil
}

// readDue reads due lanes. A repair by hand may have given a lane any time: so a scan with All first tries to read all of them,
// whatever their marks say. What such a read passes over may be too much for the time there is.
func (l *laneScan) readDue(ctx context.Context) ([]scannedLane, error) {
	if l.All {
		trying, cancel := context.WithTimeout(ctx, min(passLimit, l.Lease/8)) // about half of the time that a scan has
		l.pass = true
		due, err := l.scan(trying, lanesDue, l.allShards(), position{}, l.Limit)
		l.pass = false
		cancel()
		if err == nil {
			return due, nil
		}
	}
	return l.scan(ctx, lanesDue, l.allShards(), position{}, l.Limit)
}

func allClosed(states map[string]inbox.EngineState) bool {
	for _, state := range states {
		if !state.Closed() {
			return false
		}
	}
	return true
}

func (l *laneScan) readStates(ctx context.Context) error {
	txn := l.store.client.Single()
	states, err := readEngines(ctx, tagged{txn, scans}, l.Consumer)
	if err != nil {
		return err
	}
	l.States = states
	return l.readTime(ctx, txn)
}

// readTime takes the time of the scan's first read.
func (l *laneScan) readTime(ctx context.Context, txn *spanner.ReadOnlyTransaction) error {
	if !l.now.IsZero() {
		return nil
	}
	if err := l.store.readTime(ctx, l.Consumer, &l.clock, txn); err != nil {
		return err
	}
	l.now = l.clock.Earliest(l.clock.Received)
	return nil
}

// choose says which flows have a turn.
func (l *laneScan) choose() {
	room := false
	for name, policy := range l.Engines {
		ok, _ := inbox.Callable(policy, l.States[name], l.now)
		room = room || ok
	}
	if room {
		l.flows = append(l.flows, scannedFlow{flow: inbox.Unsorted, shards: append(inbox.Unsorted.Slots(true), inbox.Unsorted.Suspects())})
	}
	for name, route := range l.Routes {
		policy, known := l.Engines[route.Engine]
		if ok, probe := inbox.Callable(policy, l.States[route.Engine], l.now); known && ok {
			flow := inbox.FlowOf(name)
			l.flows = append(l.flows, scannedFlow{flow: flow, shards: append(flow.Slots(route.Tenants), flow.Suspects()), probe: probe})
		}
	}
	slices.SortFunc(l.flows, func(a, b scannedFlow) int { return cmp.Compare(a.flow, b.flow) })
}

// allShards are those of all flows that have a turn.
func (l *laneScan) allShards() []int64 {
	var all []int64
	for _, flow := range l.flows {
		all = append(all, flow.shards...)
	}
	return all
}

// together sorts what two reads have found of everything that is due.
func (l *laneScan) together(woken, due []scannedLane) (turns [][]string, suspects []string) {
	for _, flow := range l.flows {
		within := func(lanes []scannedLane) (of []scannedLane) {
			for _, lane := range lanes {
				if inbox.FlowAt(lane.shard) == flow.flow {
					of = append(of, lane)
				}
			}
			slices.SortStableFunc(of, func(a, b scannedLane) int { return a.at.Compare(b.at) })
			return of
		}
		lanes, aside := l.sort([][]scannedLane{within(woken), within(due)})
		if flow.probe {
			lanes = lanes[:min(len(lanes), sharePerFlow)]
		}
		turns, suspects = append(turns, lanes), append(suspects, aside...)
	}
	return turns, suspects
}

// each reads each flow for a share of its own.
func (l *laneScan) each(ctx context.Context) (turns [][]string, suspects []string, more bool, err error) {
	deep := 0
	for _, flow := range l.flows {
		if !l.memory.flow(flow.flow).shallow && !flow.probe {
			deep++
		}
	}
	visits := make([]visit, len(l.flows))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for i, flow := range l.flows {
		memory := l.memory.flow(flow.flow)
		share := sharePerFlow
		if !memory.shallow && !flow.probe {
			share = max(share, l.Limit/max(1, deep))
		}
		visits[i] = visit{laneScan: l, scannedFlow: flow, memory: memory, share: share}
		group.Go(func() error { return visits[i].read(ctx) })
	}
	if err := group.Wait(); err != nil {
		return nil, nil, false, err
	}
	for _, v := range visits {
		v.remember()
		// What the walk has met goes first: the next visit goes on behind it.
		lanes, aside := l.sort([][]scannedLane{v.walked}, [][]scannedLane{v.front, v.due})
		turns, suspects = append(turns, lanes), append(suspects, aside...)
		more = more || (len(lanes) > 0 && !v.probe)
	}
	return turns, suspects, more, nil
}

// visit reads one flow. It writes nothing that another visit reads.
type visit struct {
	*laneScan
	scannedFlow
	memory             *flowMemory
	share              int
	front, walked, due []scannedLane
}

func (v *visit) read(ctx context.Context) (err error) {
	if v.front, err = v.oldest(ctx, lanesWoken); err != nil {
		return err
	}
	if len(v.front) > 0 {
		if v.walked, err = v.scan(ctx, lanesWoken, v.shards, v.memory.walk, v.walkShare()); err != nil {
			return err
		}
	}
	v.due, err = v.oldest(ctx, lanesDue)
	return err
}

// walkShare is how many lanes the walk meets in a visit: half of what a claim takes of the flow, which is half of what is read.
func (v *visit) walkShare() int { return max(1, v.share/4) }

// oldest reads the oldest lanes of the flow's next slot, and of those behind it where there is room.
func (v *visit) oldest(ctx context.Context, index scanIndex) ([]scannedLane, error) {
	at, _ := slices.BinarySearch(v.shards, v.memory.slot[index])
	found, err := v.scan(ctx, index, v.shards[at:], position{}, v.share)
	if err != nil || len(found) >= v.share {
		return found, err
	}
	before, err := v.scan(ctx, index, v.shards[:at], position{}, v.share-len(found))
	return append(found, before...), err
}

// remember says where the next visit goes on: behind the last slot that this one has read from.
func (v *visit) remember() {
	for index, found := range map[scanIndex][]scannedLane{lanesWoken: v.front, lanesDue: v.due} {
		if len(found) > 0 {
			v.memory.slot[index] = found[len(found)-1].shard + 1
		}
	}
	v.memory.walk = nextPosition(v.memory.walk, v.walked, v.walkShare())
	v.memory.shallow = len(v.front) < v.share && len(v.due) < v.share
}

// nextPosition is where a walk goes on that has found lanes from a position on.
func nextPosition(from position, found []scannedLane, limit int) position {
	if len(found) < limit {
		return position{} // round
	}
	last := found[len(found)-1]
	next := position{shard: last.shard, at: last.at}
	if next == from {
		next.at = next.at.Add(1) // a page of one moment
	}
	return next
}

// strays looks at a page of the lanes that are filed where no turn is: under an engine that cannot be called now, or under a
// route that the request does not name. It returns those whose head may be called all the same, because a later message of
// another route has filed the lane anew, and some of those that name what is unknown here.
func (l *laneScan) strays(ctx context.Context, idle bool) ([]string, error) {
	known := len(l.Routes) + 1
	index := lanesWoken
	switch turn := l.memory.scans; {
	case len(l.flows) < known && turn%2 == 1, turn%8 == 7:
		index = lanesDue
	case len(l.flows) == known && !idle && turn%8 != 0:
		return nil, nil // everything has a turn: what is left are routes that the configuration has lost
	}
	found, err := l.scan(ctx, index, nil, l.memory.strays[index], strayPage)
	if err != nil {
		return nil, err
	}
	l.memory.strays[index] = nextPosition(l.memory.strays[index], found, strayPage)
	if index == lanesDue {
		found = slices.DeleteFunc(found, func(lane scannedLane) bool { return lane.at.After(l.now) })
	}
	ids, suspects := l.sort([][]scannedLane{found})
	ids = append(ids, suspects...)
	heads, err := readQueues(ctx, l.store.single(scans), ids, func(string) int { return 1 })
	if err != nil {
		return nil, err
	}
	var strays []string
	strangers := 0
	for _, id := range ids {
		if len(heads[id]) == 0 {
			strays = append(strays, id) // it has to end
			continue
		}
		route, ok := l.Routes[heads[id][0].Route]
		policy, known := l.Engines[route.Engine]
		if ok && known {
			if callable, _ := inbox.Callable(policy, l.States[route.Engine], l.now); callable {
				strays = append(strays, id)
			}
		} else if strangers++; strangers <= strangersPerScan {
			strays = append(strays, id)
		}
	}
	return strays, nil
}

// scan reads lanes of shards, ascending, from a position on; of all shards that have no turn where shards is nil. What it finds
// from the marks on moves the marks.
func (l *laneScan) scan(ctx context.Context, index scanIndex, shards []int64, from position, limit int) ([]scannedLane, error) {
	local := l.store.now()
	marked := make([]time.Time, len(shards))
	var keys []spanner.KeySet
	if shards == nil {
		keys = l.gaps(from)
	}
	for i, shard := range shards {
		if shard < from.shard {
			continue
		}
		if !l.pass {
			marked[i] = l.memory.marks.from(markedRange{index.index, l.Consumer, shard}, local)
		}
		start := marked[i]
		if shard == from.shard && from.at.After(start) {
			start = from.at
		}
		keys = append(keys, l.shard(index, shard, start))
	}
	if len(keys) == 0 || limit <= 0 {
		return nil, nil
	}
	txn := l.store.client.Single()
	found, err := readScanned(ctx, tagged{txn, scans}, index, spanner.KeySets(keys...), limit)
	if err != nil {
		return nil, err
	}
	if err := l.readTime(ctx, txn); err != nil {
		return nil, err
	}
	at, err := txn.Timestamp()
	if err != nil {
		return nil, fmt.Errorf("read the database's time: %w", err)
	}
	if from != (position{}) {
		return found, nil
	}
	end := time.Time{} // lanes are woken at the time of a commit
	if index == lanesDue {
		end = at.Add(-max(dueSlack, l.Lease))
	}
	oldest := map[int64]time.Time{}
	for _, lane := range found {
		if _, ok := oldest[lane.shard]; !ok {
			oldest[lane.shard] = lane.at
		}
	}
	for i, shard := range shards {
		if len(found) >= limit && shard > found[limit-1].shard {
			break // the limit was reached before
		}
		l.memory.marks.note(markedRange{index.index, l.Consumer, shard}, marked[i], oldest[shard], end, at, local)
	}
	return found, nil
}

// shard is what an index holds of a shard from a time on: of due times, up to now.
func (l *laneScan) shard(index scanIndex, shard int64, from time.Time) spanner.KeyRange {
	prefix := spanner.Key{l.Consumer, shard}
	keys := spanner.KeyRange{Start: prefix, End: prefix, Kind: spanner.ClosedClosed}
	if !from.IsZero() {
		keys.Start = spanner.Key{l.Consumer, shard, from}
	}
	if index == lanesDue {
		keys.End = spanner.Key{l.Consumer, shard, l.now}
	}
	return keys
}

// gaps are the ranges of shards between those that have a turn, from a position on.
func (l *laneScan) gaps(from position) []spanner.KeySet {
	var gaps []spanner.KeySet
	add := func(first, last int64) {
		if last < max(first, from.shard) {
			return
		}
		keys := spanner.KeyRange{Start: spanner.Key{l.Consumer, max(first, from.shard)}, End: spanner.Key{l.Consumer, last}, Kind: spanner.ClosedClosed}
		if first <= from.shard {
			keys.Start = spanner.Key{l.Consumer, from.shard, from.at}
		}
		gaps = append(gaps, keys)
	}
	next := int64(0)
	for _, flow := range l.flows {
		add(next, flow.flow.First()-1)
		next = flow.flow.Last() + 1
	}
	add(next, math.MaxInt64)
	return gaps
}

func readScanned(ctx context.Context, txn reader, index scanIndex, keys spanner.KeySet, limit int) ([]scannedLane, error) {
	rows := txn.ReadWithOptions(ctx, "Lanes", keys, []string{"LaneId", "Shard", index.column, "LeaseUntil"},
		&spanner.ReadOptions{Index: index.index, Limit: limit})
	var lanes []scannedLane
	err := rows.Do(func(row *spanner.Row) error {
		var lane scannedLane
		var until spanner.NullTime
		if err := row.Columns(&lane.id, &lane.shard, &lane.at, &until); err != nil {
			return err
		}
		lane.leaseUntil = until.Time
		lanes = append(lanes, lane)
		return nil
	})
	return lanes, err
}

// sort leaves out lanes that somebody holds, and sets the suspects aside. One group of lists comes before the next, and the
// lists of a group take turns.
func (l *laneScan) sort(groups ...[][]scannedLane) (lanes, suspects []string) {
	seen := map[string]bool{}
	for _, lists := range groups {
		var turns [][]string
		for _, list := range lists {
			var fresh, lapsed []string
			for _, lane := range list {
				switch {
				case seen[lane.id], lane.leaseUntil.After(l.now), l.Held != nil && l.Held(lane.id):
					continue
				case inbox.SuspectShard(lane.shard):
					suspects = append(suspects, lane.id)
				case !lane.leaseUntil.IsZero():
					lapsed = append(lapsed, lane.id) // its worker is lost: at most as many as a relay has claimed
				default:
					fresh = append(fresh, lane.id)
				}
				seen[lane.id] = true
			}
			turns = append(turns, fresh, lapsed)
		}
		lanes = append(lanes, inTurns(turns, 0)...)
	}
	return lanes, suspects
}

// inTurns takes one of each list after another, beginning with the list of the given number.
func inTurns(lists [][]string, first int) []string {
	var all []string
	for depth, more := 0, true; more; depth++ {
		more = false
		for i := range lists {
			if list := lists[(first+i)%len(lists)]; depth < len(list) {
				all, more = append(all, list[depth]), true
			}
		}
	}
	return all
}
