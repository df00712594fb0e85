package spannerstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/apiv1/spannerpb"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// scanRequest asks for lanes of two routes of one engine, and of a third of another.
func scanRequest(limit int) inbox.ScanRequest {
	engine := inbox.EnginePolicy{Timeout: time.Second, Capacity: 100, Breaker: breaker}
	return inbox.ScanRequest{
		Consumer: consumer, Limit: limit, Lease: lease,
		Routes:  map[string]inbox.RoutePolicy{"r": {Engine: "e"}, "small": {Engine: "e"}, "other": {Engine: "f"}},
		Engines: map[string]inbox.EnginePolicy{"e": engine, "f": engine},
	}
}

func (w *world) find(req inbox.ScanRequest) inbox.Scanned {
	w.t.Helper()
	found, err := w.store.Scan(w.t.Context(), req)
	if err != nil {
		w.t.Fatal(err)
	}
	return found
}

// serve has a relay take the given lanes and leave them without anything to do.
func (w *world) serve(lanes []string) {
	w.t.Helper()
	var served []*spanner.Mutation
	for _, id := range lanes {
		served = append(served, spanner.UpdateMap("Lanes", map[string]any{"LaneId": id, "WokenAt": nil, "DueAt": nil}))
	}
	w.apply(served)
}

func (w *world) apply(mutations []*spanner.Mutation) {
	w.t.Helper()
	if _, err := w.client.Apply(w.t.Context(), mutations, spanner.ApplyAtLeastOnce()); err != nil {
		w.t.Fatal(err)
	}
}

// lanes makes woken lanes without messages: a scan does not look at those.
func (w *world) lanes(n int, change func(i int, lane map[string]any)) {
	w.t.Helper()
	for at := 0; at < n; at += 50 {
		var made []*spanner.Mutation
		for i := at; i < min(n, at+50); i++ {
			id := laneOf(fmt.Sprintf("L-%d", i))
			lane := map[string]any{"LaneId": id, "Consumer": consumer, "CorrelationKey": fmt.Sprintf("L-%d", i),
				"Shard": inbox.LaneShard("r", "", id), "WokenAt": spanner.CommitTimestamp}
			if change != nil {
				change(i, lane)
			}
			made = append(made, spanner.InsertOrUpdateMap("Lanes", lane))
		}
		w.apply(made)
	}
}

func TestABacklogLeavesEveryOtherItsTurn(t *testing.T) {
	tests := []struct {
		name  string
		other func(*inbox.Message)
	}{
		{"another route of the same engine", func(m *inbox.Message) { m.Route = "small" }},
		{"a route of another engine", func(m *inbox.Message) { m.Route = "other" }},
		{"another tenant", func(m *inbox.Message) { m.TenantID = "small" }},
		{"a route that was not configured when it came", func(m *inbox.Message) { m.Route = "" }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.lanes(300, func(_ int, lane map[string]any) { lane["Shard"] = inbox.LaneShard("r", "big", lane["LaneId"].(string)) })
			w.insert("SMALL", 1, tt.other)
			for scan := range 3 {
				found := w.find(scanRequest(20))
				if !found.More {
					t.Fatal("300 lanes are said to be all")
				}
				if at := slices.Index(found.Lanes, laneOf("SMALL")); at >= 0 && at < 10 {
					return
				}
				w.serve(found.Lanes[:10])
				if scan == 2 {
					t.Errorf("the one lane is not among the first ten of a third scan")
				}
			}
		})
	}
}

// A lane that is woken again and again is never among those that were woken longest ago.
func TestALaneThatKeepsReceivingIsMetOnceARound(t *testing.T) {
	const backlog, batch = 120, 10
	w := newWorld(t)
	w.lanes(backlog, nil)
	hot := laneOf("HOT")
	next := backlog
	for scan := range 2 * backlog / batch * 2 {
		w.insert("HOT", scan)
		found := w.find(scanRequest(2 * batch))
		taken := found.Lanes[:min(batch, len(found.Lanes))]
		if slices.Contains(taken, hot) {
			t.Logf("met by scan %d; a backlog of %d is served in %d", scan+1, backlog, backlog/batch)
			return
		}
		w.serve(taken)
		var refill []*spanner.Mutation // a backlog that does not shrink
		for range taken {
			id := laneOf(fmt.Sprintf("L-%d", next))
			refill = append(refill, spanner.InsertOrUpdateMap("Lanes", map[string]any{"LaneId": id, "Consumer": consumer,
				"Shard": inbox.LaneShard("r", "", id), "WokenAt": spanner.CommitTimestamp}))
			next++
		}
		w.apply(refill)
	}
	t.Error("it was not met in the time in which the backlog is served four times")
}

func TestTheLanesOfAnEngineThatCannotBeCalledAreLeftAlone(t *testing.T) {
	for name, state := range map[string]inbox.EngineState{
		"paused":               {Name: "e", PausedAt: time.Now()},
		"behind its breaker":   {Name: "e", OpenUntil: time.Now().Add(time.Hour), Openings: 1, OpenReason: inbox.OpenTechnical},
		"behind another probe": {Name: "e", OpenUntil: time.Now().Add(-time.Hour), Openings: 1, ProbeOwner: "o", ProbeUntil: time.Now().Add(time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.apply([]*spanner.Mutation{spanner.InsertMap("Engines", map[string]any{"Consumer": consumer, "Engine": "e",
				"PausedAt":  spanner.NullTime{Time: state.PausedAt, Valid: !state.PausedAt.IsZero()},
				"OpenUntil": spanner.NullTime{Time: state.OpenUntil, Valid: !state.OpenUntil.IsZero()}, "OpenReason": state.OpenReason,
				"Openings": state.Openings, "ProbeOwner": state.ProbeOwner,
				"ProbeUntil": spanner.NullTime{Time: state.ProbeUntil, Valid: !state.ProbeUntil.IsZero()}})})
			w.lanes(300, nil)
			var messages []*inbox.Message
			for i := range 3 {
				a := arrival(fmt.Sprintf("L-%d", i), 1)
				messages = append(messages, &a.Message)
				w.insert(fmt.Sprintf("L-%d", i), 1)
			}
			w.insert("WELL", 1, func(m *inbox.Message) { m.Route = "other" })
			req := scanRequest(20)
			req.States = map[string]inbox.EngineState{"e": state}
			w.find(req) // the first of a process reads a little more
			w.tap.Reset()
			found := w.find(req)
			if !slices.Contains(found.Lanes, laneOf("WELL")) {
				t.Error("the lane of an engine that is well is not found")
			}
			for _, m := range messages {
				if slices.Contains(found.Lanes, m.LaneID) {
					t.Errorf("lane %s of an engine that cannot be called is found", m.LaneID)
				}
			}
			if rows := w.tap.Rows(); rows > 2*(100+20) {
				t.Errorf("%d rows were read beside 300 lanes of the engine, want a page", rows)
			}
		})
	}
}

// A receive files a lane under the message that it brings. The head of the queue may be of another route.
func TestALaneThatIsFiledUnderAnotherRouteThanItsHeadsIsFound(t *testing.T) {
	w := newWorld(t)
	state := inbox.EngineState{Name: "e", PausedAt: time.Now()}
	w.apply([]*spanner.Mutation{spanner.InsertMap("Engines", map[string]any{"Consumer": consumer, "Engine": "e", "PausedAt": state.PausedAt})})
	w.lanes(250, nil)
	w.insert("MIXED", 1, func(m *inbox.Message) { m.Route = "other" })
	w.insert("MIXED", 2) // of a paused engine
	w.insert("GONE", 1, func(m *inbox.Message) { m.Route = "other" })
	w.insert("GONE", 2, func(m *inbox.Message) { m.Route = "of an older configuration" })
	req := scanRequest(20)
	req.States = map[string]inbox.EngineState{"e": state}
	missing := map[string]bool{laneOf("MIXED"): true, laneOf("GONE"): true}
	for range 12 { // pages of a hundred, each index in its turn
		for _, id := range w.find(req).Lanes {
			delete(missing, id)
		}
	}
	if len(missing) > 0 {
		t.Errorf("%d lanes whose head may be called are never found", len(missing))
	}
}

func TestSuspectsAreSetAsideHoweverManyThereAre(t *testing.T) {
	w := newWorld(t)
	w.lanes(60, func(_ int, lane map[string]any) {
		lane["WokenAt"], lane["DueAt"], lane["Shard"] = nil, time.Now().Add(-time.Minute), inbox.FlowOf("r").Suspects()
	})
	for n := range 30 {
		w.insert(fmt.Sprintf("H-%d", n), 1)
	}
	for range 3 {
		found := w.find(scanRequest(20))
		if len(found.Lanes) < 10 || len(found.Suspects) == 0 {
			t.Fatalf("%d lanes and %d suspects are found, want both", len(found.Lanes), len(found.Suspects))
		}
		for _, id := range found.Lanes[:10] {
			if slices.Contains(found.Suspects, id) {
				t.Errorf("lane %s is a suspect, and among the others", id)
			}
		}
		w.serve(found.Lanes[:10])
	}
}

func TestLanesThatSomebodyHoldsAreLeftOut(t *testing.T) {
	w := newWorld(t)
	w.lanes(40, func(i int, lane map[string]any) {
		if i%2 == 0 { // leased, and woken again
			lane["LeaseOwner"], lane["LeaseUntil"], lane["DueAt"] = "other", time.Now().Add(time.Hour), time.Now().Add(time.Hour)
		}
	})
	for _, limit := range []int{20, 100} { // each flow by itself, and all together
		req := scanRequest(limit)
		ours := laneOf("L-1")
		req.Held = func(id string) bool { return id == ours }
		seen := map[string]bool{}
		for range 40 {
			for _, id := range w.find(req).Lanes {
				seen[id] = true
			}
		}
		for i := range 40 {
			if id := laneOf(fmt.Sprintf("L-%d", i)); seen[id] != (i%2 == 1 && i != 1) {
				t.Errorf("limit %d: lane %d is found: %v", limit, i, seen[id])
			}
		}
	}
}

// What has been served leaves deleted entries in front of those that live: a scan must not walk over them.
func TestAScanBeginsWhereSomethingCanBe(t *testing.T) {
	w := newWorld(t)
	w.insert("WO", 1)
	w.find(scanRequest(20))
	bounded := map[string]int{}
	w.tap.Before("StreamingRead", func(_ context.Context, _ int, req any) error {
		read := req.(*spannerpb.ReadRequest)
		if read.GetIndex() != "LanesWoken" && read.GetIndex() != "LanesDue" {
			return nil
		}
		for _, keys := range read.GetKeySet().GetRanges() {
			if n := len(keys.GetStartClosed().GetValues()); n == 3 {
				bounded[read.GetIndex()]++
			}
		}
		return nil
	})
	found := w.find(scanRequest(20))
	if !slices.Contains(found.Lanes, laneOf("WO")) {
		t.Error("the one lane is not found again")
	}
	for _, index := range []string{"LanesWoken", "LanesDue"} {
		if bounded[index] < 16 {
			t.Errorf("%d ranges of %s begin at a time, want all", bounded[index], index)
		}
	}
}

// A scan with bounds finds what one without them finds, whatever happened before: lanes are woken, rest until a time, become
// due, and are served, in any order, while scans are cut off by their limits.
func TestBoundsHideNothing(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			rng := rand.New(rand.NewPCG(seed, 1))
			routes := []string{"r", "small", "other", ""}
			for range 60 {
				var changes []*spanner.Mutation
				for range rng.IntN(6) {
					id := laneOf(fmt.Sprint(rng.IntN(25)))
					lane := map[string]any{"LaneId": id, "Consumer": consumer}
					lane["Shard"] = inbox.LaneShard(routes[rng.IntN(len(routes))], []string{"", "t1", "t2"}[rng.IntN(3)], id)
					switch rng.IntN(4) {
					case 0:
						lane["WokenAt"] = spanner.CommitTimestamp
					case 1: // as a slow settlement writes it: by now in the past
						lane["WokenAt"], lane["DueAt"] = nil, w.databaseTime().Add(-time.Duration(rng.IntN(9))*time.Minute)
					case 2:
						lane["WokenAt"], lane["DueAt"] = nil, w.databaseTime().Add(time.Duration(rng.IntN(3))*time.Millisecond)
					default:
						lane["WokenAt"], lane["DueAt"] = nil, nil
					}
					changes = append(changes, spanner.InsertOrUpdateMap("Lanes", lane))
				}
				if len(changes) > 0 {
					w.apply(changes)
				}
				w.find(scanRequest([]int{4, 100}[rng.IntN(2)]))
			}
			fresh, _ := w.newStore()
			want, err := fresh.Scan(t.Context(), scanRequest(100))
			if err != nil {
				t.Fatal(err)
			}
			got := w.find(scanRequest(100))
			slices.Sort(want.Lanes)
			slices.Sort(got.Lanes)
			for _, id := range want.Lanes {
				if !slices.Contains(got.Lanes, id) {
					t.Errorf("lane %s is due and is not found", id)
				}
			}
		})
	}
}

func TestAnEarlierTimeThatAPersonHasWrittenIsFoundByAFullScan(t *testing.T) {
	w := newWorld(t)
	w.insert("WO", 1)
	w.find(scanRequest(20))
	w.sql("UPDATE Lanes SET WokenAt = NULL, DueAt = TIMESTAMP '2020-01-01T00:00:00Z' WHERE true", nil)
	req := scanRequest(20)
	req.All = true
	if found := w.find(req); !slices.Contains(found.Lanes, laneOf("WO")) {
		t.Error("it is not found")
	}
}

// takenBy says by which scan a claim would take a lane, beside a backlog that refill keeps up; 0: by none of them.
func (w *world) takenBy(id string, req inbox.ScanRequest, scans int, refill func(taken []string)) int {
	w.t.Helper()
	for scan := range scans {
		found := w.find(req)
		taken := found.Lanes[:min(req.Limit/2, len(found.Lanes))]
		if slices.Contains(taken, id) {
			return scan + 1
		}
		refill(taken)
	}
	return 0
}

func TestWhatIsDueIsTakenBesideBacklogsThatAreWoken(t *testing.T) {
	for _, tt := range []struct{ routes, each, batch, want int }{{1, 40, 1, 40}, {1, 60, 4, 16}, {12, 20, 8, 8}} {
		t.Run(fmt.Sprintf("%d routes of %d lanes, batch %d", tt.routes, tt.each, tt.batch), func(t *testing.T) {
			w := newWorld(t)
			req := scanRequest(2 * tt.batch)
			for i := range tt.routes {
				req.Routes[fmt.Sprint("r", i)] = inbox.RoutePolicy{Engine: "e"}
			}
			w.lanes(tt.routes*tt.each, func(i int, lane map[string]any) {
				lane["Shard"] = inbox.LaneShard(fmt.Sprint("r", i%tt.routes), "", lane["LaneId"].(string))
			})
			retry := laneOf("RETRY")
			w.apply([]*spanner.Mutation{spanner.InsertMap("Lanes", map[string]any{"LaneId": retry, "Consumer": consumer,
				"Shard": inbox.LaneShard("r0", "", retry), "DueAt": time.Now().Add(-time.Second)})})
			by := w.takenBy(retry, req, tt.want, func(taken []string) {
				var again []*spanner.Mutation
				for _, id := range taken {
					again = append(again, spanner.UpdateMap("Lanes", map[string]any{"LaneId": id, "WokenAt": spanner.CommitTimestamp}))
				}
				w.apply(again)
			})
			if by == 0 {
				t.Errorf("the lane whose retry is due is not taken by %d scans", tt.want)
			}
		})
	}
}

// More than a claim takes, and less than a scan reads: the lane that is woken before each scan is always the last.
func TestALaneThatKeepsReceivingIsMetBesideAboutABatch(t *testing.T) {
	w := newWorld(t)
	w.lanes(16, nil)
	hot := laneOf("HOT")
	w.insert("HOT", 0)
	n := 0
	by := w.takenBy(hot, scanRequest(20), 12, func(taken []string) {
		var again []*spanner.Mutation
		for _, id := range taken {
			again = append(again, spanner.UpdateMap("Lanes", map[string]any{"LaneId": id, "WokenAt": spanner.CommitTimestamp}))
		}
		w.apply(again)
		n++
		w.insert("HOT", n)
	})
	if by == 0 {
		t.Error("it is not taken by 12 scans of 16 lanes")
	}
}

// A route may have had a tenant, or have one in another revision's configuration.
func TestALaneInATenantsSlotIsFoundWhateverTheRouteSays(t *testing.T) {
	w := newWorld(t)
	w.insert("WO", 1, func(m *inbox.Message) { m.Route, m.TenantID = "small", "acme" })
	if found := w.find(scanRequest(20)); !slices.Contains(found.Lanes, laneOf("WO")) {
		t.Error("it is not found")
	}
}

func TestTheEndOfAScanIsSaidOnlyWhenStrangersHaveBeenLookedThrough(t *testing.T) {
	w := newWorld(t)
	w.lanes(300, func(_ int, lane map[string]any) { // leased, of a route that is gone
		lane["Shard"], lane["LeaseUntil"] = inbox.LaneShard("gone", "", lane["LaneId"].(string)), time.Now().Add(time.Hour)
	})
	w.insert("KNOWN", 1)
	w.sql("UPDATE Lanes SET Shard = @shard WHERE LaneId = @lane", map[string]any{"lane": laneOf("KNOWN"), "shard": inbox.FlowOf("gone").Last() - 1})
	for range 5 {
		found := w.find(scanRequest(20))
		if slices.Contains(found.Lanes, laneOf("KNOWN")) {
			return
		}
		if !found.More {
			break
		}
	}
	t.Error("a lane whose head may be called is not found, and nothing says that there is more")
}

// That a worker is lost is written down also while its engine is paused: its lease would stay an alert.
func TestALapsedLeaseIsFoundWhileItsEngineIsPaused(t *testing.T) {
	w := newWorld(t)
	w.apply([]*spanner.Mutation{spanner.InsertMap("Engines", map[string]any{"Consumer": consumer, "Engine": "e", "PausedAt": time.Now()})})
	w.insert("WO", 1)
	w.sql("UPDATE Lanes SET WokenAt = NULL, DueAt = @at, LeaseUntil = @at, LeaseOwner = 'dead' WHERE true", map[string]any{"at": time.Now().Add(-time.Minute)})
	req := scanRequest(20)
	req.States = map[string]inbox.EngineState{"e": {Name: "e", PausedAt: time.Now()}}
	for range 20 { // each process begins its look at another place
		w.store, _ = w.newStore()
		if found := w.find(req); !slices.Contains(found.Lanes, laneOf("WO")) {
			t.Fatal("it is not found")
		}
	}
}

// A receive files a lane by its message's route, also between two reads of one scan.
func TestALaneThatIsFiledAnewDuringAScanIsFoundOnce(t *testing.T) {
	w := newWorld(t)
	w.insert("WO", 1)
	moved := false
	w.tap.Before("StreamingRead", func(_ context.Context, _ int, req any) error {
		if read := req.(*spannerpb.ReadRequest); read.Index == "LanesDue" && !moved {
			moved = true
			w.sql("UPDATE Lanes SET WokenAt = NULL, DueAt = TIMESTAMP '2026-03-02T08:00:00Z', Shard = @shard WHERE true",
				map[string]any{"shard": inbox.LaneShard("small", "", laneOf("WO"))})
		}
		return nil
	})
	if found := w.find(scanRequest(20)); !moved || !slices.Equal(found.Lanes, []string{laneOf("WO")}) {
		t.Errorf("moved: %v; found: %q, want the lane once", moved, found.Lanes)
	}
}
