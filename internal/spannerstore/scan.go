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
	// strayPage is how many lanes a scan looks at that are filed where no turn is, and strayPages how many such pages where
	// there is nothing else to do.
	strayPage  = 100
	strayPages = 10
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
// While what is due fits into half of the limit, a scan reads all flows (see inbox.Flow) together. Where it does not, each flow
// is read for a share of its own: the oldest lanes of the next of its slots, and the next lanes of a walk through all of its
// slots. The walk meets the lane that is woken again and again, and so is never among the oldest. Lanes that are filed under an
// engine that may not be called, or under a route that the request does not name, are left where they are; misfiled and
// strangers look through them.
//
// The Store remembers for each consumer where the next scan goes on. Half of the limit is what a claim may take.
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
	first  inbox.Flow             // the flow whose turn is next where there are too many
	strays map[scanIndex]position // where the look at strangers goes on
	rested map[scanIndex]position // where the look at the flows without a turn goes on
}

// flowMemory is where the next visit of a flow goes on.
type flowMemory struct {
	visits  int
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
		memory = &scanMemory{marks: marks{lasting: true}, flows: map[inbox.Flow]*flowMemory{}, strays: map[scanIndex]position{}, rested: map[scanIndex]position{}}
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
	flows  []scannedFlow // that have a turn, ascending
	all    []inbox.Flow  // ascending
	rested []int64       // shards of flows whose engine may not be called, ascending
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
	woken, err := l.everything(ctx, lanesWoken)
	if err != nil {
		return found, fmt.Errorf("scan woken lanes: %w", err)
	}
	due, err := l.everything(ctx, lanesDue)
	if err != nil {
		return found, fmt.Errorf("scan due lanes: %w", err)
	}
	var turns [][]string
	if len(woken)+len(due) <= l.Limit/2 {
		turns, found.Suspects = l.together(woken, due)
	} else if turns, found.Suspects, found.More, err = l.each(ctx); err != nil {
		return found, fmt.Errorf("scan the flows: %w", err)
	}
	idle := len(found.Suspects) == 0 && len(slices.Concat(turns...)) == 0
	misfiled, err := l.misfiled(ctx, idle)
	if err != nil {
		return found, fmt.Errorf("look for lanes that are filed in the wrong place: %w", err)
	}
	strangers, more, err := l.strangers(ctx, idle)
	if err != nil {
		return found, fmt.Errorf("look for lanes of unknown routes: %w", err)
	}
	found.Lanes, found.More = inTurns(append(turns, misfiled, strangers), l.memory.scans), found.More || more
	found.Clock, found.States = l.clock, l.States
	return found, nil
}

// everything reads what is due of all flows that have a turn. A repair by hand may have given a lane any time: so a scan with All
// first tries to read whatever the marks say. What such a read passes over may be too much for the time there is.
func (l *laneScan) everything(ctx context.Context, index scanIndex) ([]scannedLane, error) {
	if l.All {
		trying, cancel := context.WithTimeout(ctx, min(passLimit, l.Lease/16)) // a quarter of the time that a scan has
		l.pass = true
		found, err := l.scan(trying, index, l.allShards(), position{}, l.Limit)
		l.pass = false
		cancel()
		if err == nil {
			return found, nil
		}
	}
	return l.scan(ctx, index, l.allShards(), position{}, l.Limit)
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

// choose says which flows have a turn. Those of an engine without a free call slot have none now, and soon will.
func (l *laneScan) choose() {
	room := false
	for name, policy := range l.Engines {
		ok, _ := inbox.Callable(policy, l.States[name], l.clock.Read)
		room = room || ok
	}
	l.all = append(l.all, inbox.Unsorted)
	if room {
		l.flows = append(l.flows, scannedFlow{flow: inbox.Unsorted, shards: append(inbox.Unsorted.Slots(), inbox.Unsorted.Suspects())})
	}
	for name, route := range l.Routes {
		flow := inbox.FlowOf(name)
		l.all = append(l.all, flow)
		policy, known := l.Engines[route.Engine]
		state := l.States[route.Engine]
		ok, probe := inbox.Callable(policy, state, l.clock.Read)
		shards := flow.Slots()
		if !state.OpenUntil.After(l.clock.Read) {
			shards = append(shards, flow.Suspects()) // else another message may be tried, in its turn
		}
		switch {
		case known && ok:
			l.flows = append(l.flows, scannedFlow{flow: flow, shards: shards, probe: probe})
		case !known || policy.Capacity > 0:
			l.rested = append(l.rested, append(flow.Slots(), flow.Suspects())...)
		}
	}
	slices.Sort(l.all)
	slices.Sort(l.rested)
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
		lanes, aside := l.sort(0, within(woken), within(due))
		if flow.probe {
			lanes = lanes[:min(len(lanes), sharePerFlow)]
		}
		turns, suspects = append(turns, lanes), append(suspects, aside...)
	}
	return turns, suspects
}

// each reads each flow for a share of its own; where there are more flows than lanes in a claim, as many flows as that.
func (l *laneScan) each(ctx context.Context) (turns [][]string, suspects []string, more bool, err error) {
	flows, batch := l.flows, max(1, l.Limit/2)
	if len(flows) > batch {
		at, _ := slices.BinarySearchFunc(flows, l.memory.first, func(f scannedFlow, first inbox.Flow) int { return cmp.Compare(f.flow, first) })
		flows = append(slices.Clone(flows[at:]), flows[:at]...)[:batch]
		l.memory.first = flows[batch-1].flow + 1
		more = true
	}
	deep := 0
	for _, flow := range flows {
		if !l.memory.flow(flow.flow).shallow && !flow.probe {
			deep++
		}
	}
	visits := make([]visit, len(flows))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for i, flow := range flows {
		memory := l.memory.flow(flow.flow)
		visits[i] = visit{laneScan: l, scannedFlow: flow, memory: memory, taken: max(1, batch/max(1, deep)), share: sharePerFlow}
		if !memory.shallow && !flow.probe {
			visits[i].share = max(sharePerFlow, l.Limit/max(1, deep))
		}
		group.Go(func() error { return visits[i].read(ctx) })
	}
	if err := group.Wait(); err != nil {
		return nil, nil, false, err
	}
	for _, v := range visits {
		lanes, aside := v.sort(v.memory.visits, v.walked, v.front, v.due)
		v.remember(lanes)
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
	share              int // lanes to read of each kind
	taken              int // lanes of the flow that a claim takes, as far as can be foreseen
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

// walkShare is how many lanes the walk meets in a visit: half of what a claim takes of the flow.
func (v *visit) walkShare() int { return max(1, v.taken/2) }

// oldest reads the oldest lanes of the flow's next slot, and of those behind it where there is room.
func (v *visit) oldest(ctx context.Context, index scanIndex) ([]scannedLane, error) {
	at, _ := slices.BinarySearch(v.shards, v.memory.slot[index])
	found, err := v.free(ctx, index, v.shards[at:], v.share)
	if err != nil || len(found) >= v.share {
		return found, err
	}
	before, err := v.free(ctx, index, v.shards[:at], v.share-len(found))
	return append(found, before...), err
}

// free reads lanes that nobody holds. Those that somebody holds do not count: there are at most as many as the running relays
// have claimed, so that this ends.
func (v *visit) free(ctx context.Context, index scanIndex, shards []int64, share int) ([]scannedLane, error) {
	for limit := share; ; limit *= 2 {
		rows, err := v.scan(ctx, index, shards, position{}, limit)
		if err != nil {
			return nil, err
		}
		free := slices.DeleteFunc(slices.Clone(rows), v.held)
		if len(rows) < limit || len(free) >= share {
			return free[:min(share, len(free))], nil
		}
	}
}

// remember says where the next visit goes on: behind what a claim takes of this one's lanes.
func (v *visit) remember(lanes []string) {
	taken := map[string]bool{}
	for _, id := range lanes[:min(v.taken, len(lanes))] {
		taken[id] = true
	}
	for index, found := range map[scanIndex][]scannedLane{lanesWoken: v.front, lanesDue: v.due} {
		if i := slices.IndexFunc(found, func(lane scannedLane) bool { return taken[lane.id] }); i >= 0 {
			v.memory.slot[index] = found[i].shard + 1
		}
	}
	walked := 0
	for walked < len(v.walked) && (taken[v.walked[walked].id] || !slices.Contains(lanes, v.walked[walked].id)) {
		walked++
	}
	v.memory.walk = nextPosition(v.memory.walk, v.walked[:walked], walked == len(v.walked) && walked < v.walkShare())
	v.memory.visits++
	v.memory.shallow = len(v.front) < v.share && len(v.due) < v.share
}

// nextPosition is where a walk goes on that has met lanes from a position on. end: there are no more.
func nextPosition(from position, met []scannedLane, end bool) position {
	switch {
	case end:
		return position{}
	case len(met) == 0:
		return from
	}
	last := met[len(met)-1]
	next := position{shard: last.shard, at: last.at}
	if next == from {
		next.at = next.at.Add(1) // a page of one moment
	}
	return next
}

// misfiled looks at a page of the lanes that are filed under an engine that may not be called. It returns those whose head may
// be called all the same, because a later message of another route has filed the lane anew, and those whose lease has run out:
// that their worker is lost has to be written down.
func (l *laneScan) misfiled(ctx context.Context, idle bool) ([]string, error) {
	if len(l.rested) == 0 {
		return nil, nil
	}
	indexes := []scanIndex{lanesWoken, lanesDue}
	if !idle {
		indexes = indexes[l.memory.scans%2:][:1]
	}
	var misfiled []string
	for _, index := range indexes {
		from, ok := l.memory.rested[index]
		if !ok { // a process that lives for one scan must not look at the same page as the one before
			from = position{shard: l.rested[int(l.now.UnixNano()/1000)%len(l.rested)]}
		}
		found, err := l.scan(ctx, index, l.rested, from, strayPage)
		if err != nil {
			return nil, err
		}
		l.memory.rested[index] = nextPosition(from, found, len(found) < strayPage)
		if !ok && len(found) < strayPage { // a few lanes are all met, wherever the look began
			before, err := l.scan(ctx, index, l.rested, position{}, strayPage-len(found))
			if err != nil {
				return nil, err
			}
			for _, lane := range before {
				if lane.shard < from.shard {
					found = append(found, lane)
				}
			}
		}
		var ids []string
		for _, lane := range found {
			switch {
			case l.held(lane):
			case !lane.leaseUntil.IsZero():
				misfiled = append(misfiled, lane.id)
			default:
				ids = append(ids, lane.id)
			}
		}
		heads, err := l.heads(ctx, ids)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			if head := heads[id]; head == nil || l.mayCall(head) {
				misfiled = append(misfiled, id)
			}
		}
	}
	return misfiled, nil
}

// strangers looks at lanes that are filed under a route that the request does not name: the configuration has lost the route, or
// does not have it yet. The head may be of another route; otherwise a claim can do no more than write down why the lane waits,
// which a few at a time are enough for. It is a rare case: so it is looked at now and then, and where there is nothing else to
// do, until the end. more says that the end is not reached.
func (l *laneScan) strangers(ctx context.Context, idle bool) (strangers []string, more bool, err error) {
	if !idle && l.memory.scans%8 != 0 {
		return nil, false, nil
	}
	unknown := 0
	for _, index := range []scanIndex{lanesWoken, lanesDue} {
		for page := 0; ; page++ {
			from := l.memory.strays[index]
			found, err := l.scan(ctx, index, nil, from, strayPage)
			if err != nil {
				return nil, false, err
			}
			l.memory.strays[index] = nextPosition(from, found, len(found) < strayPage)
			var ids []string
			for _, lane := range found {
				if !l.held(lane) && (index != lanesDue || !lane.at.After(l.now)) {
					ids = append(ids, lane.id)
				}
			}
			heads, err := l.heads(ctx, ids)
			if err != nil {
				return nil, false, err
			}
			for _, id := range ids {
				head := heads[id]
				if head == nil || l.mayCall(head) {
					strangers = append(strangers, id)
				} else if _, ok := l.Routes[head.Route]; !ok {
					if unknown++; unknown <= strangersPerScan {
						strangers = append(strangers, id)
					}
				}
			}
			if len(found) < strayPage {
				break
			}
			if !idle || page+1 == strayPages {
				more = more || idle
				break
			}
		}
	}
	return strangers, more, nil
}

// heads are the first messages of lanes' queues.
func (l *laneScan) heads(ctx context.Context, lanes []string) (map[string]*inbox.Message, error) {
	queues, err := readQueues(ctx, l.store.single(scans), lanes, func(string) int { return 1 })
	if err != nil {
		return nil, err
	}
	heads := map[string]*inbox.Message{}
	for id, queue := range queues {
		if len(queue) > 0 {
			heads[id] = queue[0]
		}
	}
	return heads, nil
}

func (l *laneScan) mayCall(head *inbox.Message) bool {
	route, ok := l.Routes[head.Route]
	policy, known := l.Engines[route.Engine]
	callable, _ := inbox.Callable(policy, l.States[route.Engine], l.clock.Read)
	return ok && known && callable
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

// gaps are the ranges of shards between those of the request's routes, from a position on.
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
	for _, flow := range l.all {
		add(next, flow.First()-1)
		next = flow.Last() + 1
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

// held reports whether somebody has the lane at work.
func (l *laneScan) held(lane scannedLane) bool {
	return lane.leaseUntil.After(l.now) || (l.Held != nil && l.Held(lane.id))
}

// sort leaves out lanes that somebody holds, and sets the suspects aside. The lists take turns, beginning with the one of the
// given number.
func (l *laneScan) sort(first int, lists ...[]scannedLane) (lanes, suspects []string) {
	seen := map[string]bool{}
	turns := make([][]string, len(lists), len(lists)+1)
	var lapsed []string
	for i, list := range lists {
		for _, lane := range list {
			switch {
			case seen[lane.id], l.held(lane):
				continue
			case inbox.SuspectShard(lane.shard):
				suspects = append(suspects, lane.id)
			case !lane.leaseUntil.IsZero():
				lapsed = append(lapsed, lane.id) // its worker is lost: at most as many as a relay has claimed
			default:
				turns[i] = append(turns[i], lane.id)
			}
			seen[lane.id] = true
		}
	}
	return inTurns(append(turns, lapsed), first), suspects
}

// inTurns takes one of each list after another, beginning with the list of the given number. What several lists have comes
// once: a receive may file a lane anew between two reads of a scan.
func inTurns(lists [][]string, first int) []string {
	var all []string
	seen := map[string]bool{}
	for depth, more := 0, true; more; depth++ {
		more = false
		for i := range lists {
			list := lists[(first+i)%len(lists)]
			if depth >= len(list) {
				continue
			}
			more = true
			if id := list[depth]; !seen[id] {
				seen[id] = true
				all = append(all, id)
			}
		}
	}
	return all
}
