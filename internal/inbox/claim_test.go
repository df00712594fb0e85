package inbox_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// claiming is what a claim's transaction has read, and what it asks for. Routes r and q go to engine e, s to engine f.
type claiming struct {
	req     inbox.ClaimRequest
	lanes   []inbox.Lane
	queues  map[string][]*inbox.Message
	engines map[string]inbox.EngineState
}

func newClaim() *claiming {
	engine := inbox.EnginePolicy{Timeout: 10 * time.Second, Capacity: 100, Breaker: breaker}
	return &claiming{
		req: inbox.ClaimRequest{
			Consumer: consumer, Owner: "me", Batch: 100, PerLane: 10, Lease: 90 * time.Second, Retention: 75 * day, Alone: true,
			Routes:  map[string]inbox.RoutePolicy{"r": {Engine: "e"}, "q": {Engine: "e"}, "s": {Engine: "f"}, "lost": {Engine: "gone"}},
			Engines: map[string]inbox.EnginePolicy{"e": engine, "f": engine}, Poison: poison,
		},
		queues: map[string][]*inbox.Message{}, engines: map[string]inbox.EngineState{},
	}
}

// lane adds a woken lane of the key's name with the given queue, filed as the head of its queue says.
func (c *claiming) lane(id string, queue ...*inbox.Message) *inbox.Lane {
	for _, m := range queue {
		m.LaneID = id
	}
	c.lanes = append(c.lanes, inbox.Lane{ID: id, Consumer: consumer, Key: "key of " + id, WokenAt: now.Add(-time.Second), LeaseToken: 7})
	c.queues[id] = queue
	if lane := &c.lanes[len(c.lanes)-1]; len(queue) > 0 {
		lane.Shard = inbox.LaneShard(queue[0].Route, queue[0].TenantID, id)
		if queue[0].LostWorkers > 0 {
			lane.Shard = inbox.FlowOf(queue[0].Route).Suspects()
		}
	}
	return &c.lanes[len(c.lanes)-1]
}

func (c *claiming) engine(name string, change func(*inbox.EnginePolicy)) {
	policy := c.req.Engines[name]
	change(&policy)
	c.req.Engines[name] = policy
}

func (c *claiming) plan() inbox.ClaimPlan {
	return inbox.PlanClaim(c.req, now, latest, rand.New(rand.NewPCG(1, 2)), c.lanes, c.queues, c.engines)
}

var sequence int64

// msg is a new message; later ones come after earlier ones.
func msg(id string, changes ...func(*inbox.Message)) *inbox.Message {
	sequence++
	m := &inbox.Message{ID: id, Consumer: consumer, Route: "r", Status: inbox.Received, Sequence: sequence}
	for _, change := range changes {
		change(m)
	}
	return m
}

func route(name string) func(*inbox.Message) { return func(m *inbox.Message) { m.Route = name } }

func retrying(next time.Time) func(*inbox.Message) {
	return func(m *inbox.Message) { m.Status, m.Attempts, m.NextAttemptAt = inbox.Retrying, 2, next }
}

func processing(m *inbox.Message) {
	m.Status, m.Attempts, m.ProcessingStartedAt = inbox.Processing, 3, now.Add(-2*minute)
}

func suspect(m *inbox.Message) {
	m.Status, m.Attempts, m.LostWorkers, m.OutcomeUnknown = inbox.Retrying, 2, 1, true
}

// claimed lists what a plan hands out, as "lane: ids".
func claimed(p inbox.ClaimPlan) []string {
	var got []string
	for _, c := range p.Claimed {
		s := c.Lane.ID + ":"
		for _, m := range c.Messages {
			s += " " + m.ID
		}
		got = append(got, s)
	}
	return got
}

func ids(messages []*inbox.Message) []string {
	var got []string
	for _, m := range messages {
		got = append(got, m.ID)
	}
	return got
}

// written returns the lane as the plan writes it.
func written(t *testing.T, lanes []inbox.Lane, id string) inbox.Lane {
	t.Helper()
	var found []inbox.Lane
	for _, l := range lanes {
		if l.ID == id {
			found = append(found, l)
		}
	}
	if len(found) != 1 {
		t.Fatalf("lane %s is written %d times, want once", id, len(found))
	}
	return found[0]
}

func wantClaimed(t *testing.T, p inbox.ClaimPlan, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, claimed(p)); diff != "" {
		t.Errorf("claimed: %s", diff)
	}
}

func TestAClaimTakesTheLeaseAndRecordsTheAttempts(t *testing.T) {
	c := newClaim()
	first, second := msg("a1"), msg("a2")
	lane := c.lane("a", first, second)
	lane.DueAt, lane.PurgeAt, lane.WhyNotDue = now.Add(-hour), now.Add(day), inbox.WhyHeadWaits
	lane.LeaseOwner, lane.LeaseUntil = "before", now
	p := c.plan()
	wantClaimed(t, p, "a: a1 a2")
	until := latest.Add(90 * time.Second)
	want := inbox.Lane{ID: "a", Consumer: consumer, Key: "key of a", Shard: inbox.LaneShard("r", "", "a"), DueAt: until, LeaseOwner: "me", LeaseToken: 8, LeaseUntil: until}
	if diff := cmp.Diff(want, written(t, p.Lanes, "a")); diff != "" {
		t.Errorf("lane: %s", diff)
	}
	if diff := cmp.Diff(want, p.Claimed[0].Lane); diff != "" {
		t.Errorf("claimed lane: %s", diff)
	}
	for _, m := range []*inbox.Message{first, second} {
		if m.Status != inbox.Processing || m.Attempts != 1 || !m.ProcessingStartedAt.Equal(latest) || !m.NextAttemptAt.IsZero() {
			t.Errorf("%s is %s, attempt %d, since %v; want PROCESSING, 1, %v", m.ID, m.Status, m.Attempts, m.ProcessingStartedAt, latest)
		}
	}
	if diff := cmp.Diff([]string{"a1", "a2"}, ids(p.Messages)); diff != "" {
		t.Errorf("messages to write: %s", diff)
	}
}

func TestAClaimClearsTheTimeOfTheAttempt(t *testing.T) {
	c := newClaim()
	m := msg("a1", retrying(now.Add(-minute)))
	c.lane("a", m)
	c.plan()
	if !m.NextAttemptAt.IsZero() || m.Attempts != 3 {
		t.Errorf("attempt %d, the next at %v; want 3, none", m.Attempts, m.NextAttemptAt)
	}
}

func TestTheTokenGrowsWithEachClaim(t *testing.T) {
	c := newClaim()
	c.lane("a", msg("a1"))
	for want := int64(8); want < 12; want++ {
		p := c.plan()
		lane := p.Claimed[0].Lane
		if lane.LeaseToken != want {
			t.Fatalf("the token is %d, want %d", lane.LeaseToken, want)
		}
		c = newClaim()
		again := c.lane("a", msg("a1"))
		*again = lane
		again.LeaseUntil, again.DueAt = now, now // it ran out
	}
}

func TestLanesThatCannotRunGetTheirReasonAndTheirTime(t *testing.T) {
	tests := []struct {
		name    string
		queue   []*inbox.Message
		change  func(*claiming, *inbox.Lane)
		why     string
		from    time.Duration // DueAt after now, at least
		to      time.Duration // at most; zero with from: no DueAt at all
		unknown string
		purge   time.Time
	}{
		{"the head waits", []*inbox.Message{msg("1", retrying(now.Add(hour))), msg("2")}, nil, inbox.WhyHeadWaits, hour, hour, "", time.Time{}},
		{"the head waits for a moment", []*inbox.Message{msg("1", retrying(now.Add(1)))}, nil, inbox.WhyHeadWaits, 1, 1, "", time.Time{}},
		{"blocked", []*inbox.Message{msg("1", func(m *inbox.Message) { m.Status, m.Blocks, m.Reason = inbox.Parked, true, inbox.Ambiguous }), msg("2")},
			nil, inbox.WhyBlocked, 0, 0, "", time.Time{}},
		{"held", []*inbox.Message{msg("1")}, func(_ *claiming, l *inbox.Lane) { l.HeldBy = "ops" }, inbox.WhyHeld, 0, 0, "", time.Time{}},
		{"held and empty", nil, func(_ *claiming, l *inbox.Lane) { l.HeldBy = "ops" }, inbox.WhyHeld, 0, 0, "", time.Time{}},
		{"empty", nil, nil, "", 0, 0, "", latest.Add(75 * day)},
		{"empty, and of its own", nil, func(_ *claiming, l *inbox.Lane) { l.Key = "" }, "", 0, 0, "", latest},
		{"of a route that this instance lacks", []*inbox.Message{msg("1", route("newer"))}, nil, inbox.WhyRouteUnknown, minute, minute, "newer", time.Time{}},
		{"of an engine that this instance lacks", []*inbox.Message{msg("1", route("lost"))}, nil, inbox.WhyEngineUnknown, minute, minute, "gone", time.Time{}},
		{"of an engine that an operator has paused, filed elsewhere", []*inbox.Message{msg("1")}, func(c *claiming, l *inbox.Lane) {
			l.Shard = 0
			c.engines["e"] = inbox.EngineState{Name: "e", PausedAt: now.Add(-day)}
		}, inbox.WhyEnginePaused, 0, 1, "", time.Time{}},
		{"behind an open breaker, filed elsewhere", []*inbox.Message{msg("1")}, func(c *claiming, l *inbox.Lane) {
			l.Shard = 0
			c.engines["e"] = inbox.EngineState{Name: "e", OpenUntil: now.Add(hour), Openings: 1}
		}, inbox.WhyEnginePaused, 0, 1, "", time.Time{}},
		{"behind a probe, filed elsewhere", []*inbox.Message{msg("1")}, func(c *claiming, l *inbox.Lane) {
			l.Shard = 0
			c.engines["e"] = inbox.EngineState{Name: "e", OpenUntil: now.Add(-1), ProbeOwner: "other", ProbeUntil: now.Add(minute)}
		}, inbox.WhyEnginePaused, 0, 1, "", time.Time{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newClaim()
			lane := c.lane("a", tt.queue...)
			// What an earlier life left: the end of a lease, and of the lane.
			lane.LeaseOwner, lane.LeaseUntil, lane.PurgeAt = "dead", now, now.Add(day)
			if tt.change != nil {
				tt.change(c, lane)
			}
			p := c.plan()
			if len(p.Claimed) != 0 {
				t.Errorf("claimed %v, want nothing", claimed(p))
			}
			got := written(t, p.Lanes, "a")
			if got.WhyNotDue != tt.why || !got.WokenAt.IsZero() || got.LeaseOwner != "" || !got.LeaseUntil.IsZero() || got.LeaseToken != 7 {
				t.Errorf("the lane is %+v; want reason %q, no wake-up, no lease, its token", got, tt.why)
			}
			if !got.PurgeAt.Equal(tt.purge) {
				t.Errorf("purged at %v, want %v", got.PurgeAt, tt.purge)
			}
			switch wait := got.DueAt.Sub(now); {
			case tt.to == 0 && !got.DueAt.IsZero():
				t.Errorf("due at %v, want never", got.DueAt)
			case tt.to != 0 && (wait < tt.from || wait > tt.to):
				t.Errorf("due in %v, want %v to %v", wait, tt.from, tt.to)
			}
			if tt.unknown != "" && !slices.Equal(p.Unknown, []string{tt.unknown}) {
				t.Errorf("unknown: %v, want %s", p.Unknown, tt.unknown)
			}
			if len(p.Messages) != 0 || p.Parked != 0 {
				t.Errorf("messages were changed: %v", ids(p.Messages))
			}
		})
	}
}

// A scan leaves the lanes of an engine that cannot be called where they are filed: so nothing has to be written of them,
// however many there are.
func TestALaneWhoseEngineCannotBeCalledIsLeftWhereItIsFiled(t *testing.T) {
	for name, state := range map[string]inbox.EngineState{
		"paused":               {Name: "e", PausedAt: now.Add(-day)},
		"behind its breaker":   {Name: "e", OpenUntil: now.Add(hour), Openings: 1},
		"behind another probe": {Name: "e", OpenUntil: now.Add(-1), ProbeOwner: "other", ProbeUntil: now.Add(minute)},
	} {
		c := newClaim()
		c.engines["e"] = state
		c.lane("a", msg("1"))
		c.lane("b", msg("2", retrying(now)))
		p := c.plan()
		if len(p.Lanes) != 0 || len(p.Messages) != 0 || len(p.Claimed) != 0 || p.Waiting != 2 {
			t.Errorf("%s: lanes %v and messages %v are written, %d wait; want none and 2", name, p.Lanes, ids(p.Messages), p.Waiting)
		}
		// Filed under another route, it would stand in that route's way.
		c.lanes[0].Shard = inbox.LaneShard("s", "", "a")
		if got := written(t, c.plan().Lanes, "a"); got.Shard != inbox.LaneShard("r", "", "a") {
			t.Errorf("%s: the lane is filed in %d, want the route of its head", name, got.Shard)
		}
	}
}

func TestALaneIsFiledAsItsHeadIs(t *testing.T) {
	c := newClaim()
	tenant := func(m *inbox.Message) { m.TenantID = "acme" }
	c.lane("waits", msg("1", retrying(now.Add(hour)), route("s"), tenant), msg("2")).Shard = inbox.LaneShard("r", "", "waits")
	c.lane("runs", msg("3", route("s")), msg("4")).Shard = inbox.LaneShard("r", "", "runs")
	c.lane("costly", msg("5", suspect), msg("6")).Shard = inbox.LaneShard("r", "", "costly")
	p := c.plan()
	for id, want := range map[string]int64{
		"waits": inbox.LaneShard("s", "acme", "waits"), "runs": inbox.LaneShard("s", "", "runs"), "costly": inbox.FlowOf("r").Suspects(),
	} {
		if got := written(t, p.Lanes, id).Shard; got != want {
			t.Errorf("lane %s is filed in %d, want %d", id, got, want)
		}
	}
	// Once it is called, it is like any other: a definite answer must not leave it behind.
	c = newClaim()
	c.lane("costly", msg("5", suspect), msg("6"))
	if got := written(t, c.plan().Lanes, "costly").Shard; got != inbox.LaneShard("r", "", "costly") {
		t.Errorf("the lane of a suspect that is called is filed in %d, want its place among the others", got)
	}
}

func TestLanesThatAreNotOursAreNotTouched(t *testing.T) {
	c := newClaim()
	c.lane("leased", msg("1")).LeaseUntil = now.Add(1)
	notDue := c.lane("not due", msg("2"))
	notDue.WokenAt, notDue.DueAt = time.Time{}, now.Add(1)
	c.lane("timeless", msg("3")).WokenAt = time.Time{}
	p := c.plan()
	if len(p.Lanes) != 0 || len(p.Claimed) != 0 || len(p.Messages) != 0 {
		t.Errorf("lanes %v, messages %v are written, want none", p.Lanes, ids(p.Messages))
	}
	if p.Leased != 1 {
		t.Errorf("%d lanes are counted as leased, want 1", p.Leased)
	}
}

func TestALaneGivesAsMuchAsItMay(t *testing.T) {
	queue := func(n int, changes ...func(*inbox.Message)) []*inbox.Message {
		var q []*inbox.Message
		for i := range n {
			q = append(q, msg(fmt.Sprintf("%d", i+1), changes...))
		}
		return q
	}
	reopened := func(m *inbox.Message) { m.Reason = inbox.Ambiguous }
	tests := []struct {
		name   string
		queue  []*inbox.Message
		change func(*claiming)
		want   int
	}{
		{"its share", queue(20), nil, 10},
		{"what the batch has room for", queue(20), func(c *claiming) { c.req.Batch = 4 }, 4},
		{"all it has", queue(3), nil, 3},
		{"a head that was tried, alone", append(queue(1, retrying(now)), queue(3)...), nil, 1},
		{"what is new in front of one that was tried", append(queue(2), queue(2, retrying(now))...), nil, 2},
		{"what is new in front of one that was reopened", append(queue(2), queue(2, reopened)...), nil, 2},
		{"nothing behind another engine's message", append(queue(2), queue(2, route("s"))...), nil, 2},
		{"other routes of the same engine", append(queue(2), queue(2, route("q"))...), nil, 4},
		{"nothing behind a route that this instance lacks", append(queue(2), queue(2, route("newer"))...), nil, 2},
		{"one at a time for an engine with neither idempotency nor probe", queue(5), func(c *claiming) {
			c.engine("e", func(p *inbox.EnginePolicy) { p.OneByOne = true })
		}, 1},
		{"one as the probe", queue(5), func(c *claiming) { c.engines["e"] = inbox.EngineState{OpenUntil: now} }, 1},
		{"a message of unknown outcome, alone", append(queue(1, func(m *inbox.Message) { m.OutcomeUnknown = true }), queue(3)...), nil, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newClaim()
			c.lane("a", tt.queue...)
			if tt.change != nil {
				tt.change(c)
			}
			p := c.plan()
			if len(p.Claimed) != 1 || len(p.Claimed[0].Messages) != tt.want {
				t.Errorf("claimed %v, want %d messages", claimed(p), tt.want)
			}
		})
	}
}

func TestTheBatchIsALimitOverAllLanes(t *testing.T) {
	c := newClaim()
	c.req.Batch, c.req.PerLane = 7, 3
	for i := range 5 {
		id := fmt.Sprintf("%c", 'a'+i)
		c.lane(id, msg(id+"1"), msg(id+"2"), msg(id+"3"), msg(id+"4"))
	}
	p := c.plan()
	wantClaimed(t, p, "a: a1 a2 a3", "b: b1 b2 b3", "c: c1")
	if len(p.Lanes) != 3 || p.Busy != 2 {
		t.Errorf("%d lanes are written and %d left, want 3 and 2: what is left stays woken", len(p.Lanes), p.Busy)
	}
}

func TestRoutesTakeTurns(t *testing.T) {
	c := newClaim()
	c.req.Batch, c.req.PerLane = 4, 1
	for _, id := range []string{"r1", "r2", "r3", "r4", "r5"} {
		c.lane(id, msg(id))
	}
	c.lane("q1", msg("q1", route("q")))
	c.lane("q2", msg("q2", route("q")))
	// The deep backlog of route r leaves room for q.
	wantClaimed(t, c.plan(), "r1: r1", "q1: q1", "r2: r2", "q2: q2")
}

func TestTenantsTakeTurns(t *testing.T) {
	c := newClaim()
	c.req.Batch, c.req.PerLane = 4, 1
	of := func(tenant string) func(*inbox.Message) { return func(m *inbox.Message) { m.TenantID = tenant } }
	for _, id := range []string{"a1", "a2", "a3", "a4"} {
		c.lane(id, msg(id, of("a")))
	}
	c.lane("b1", msg("b1", of("b")))
	wantClaimed(t, c.plan(), "a1: a1", "b1: b1", "a2: a2", "a3: a3")
}

func TestEnginesGetTheirShareAndThenWhatIsLeft(t *testing.T) {
	fill := func(c *claiming, route_ string, n int) {
		for i := range n {
			id := fmt.Sprintf("%s%d", route_, i)
			c.lane(id, msg(id, route(route_)))
		}
	}
	tests := []struct {
		name         string
		r, s         int // lanes
		capE, capF   int
		wantE, wantF int
		busy         int
	}{
		{"both have enough", 20, 20, 100, 100, 5, 5, 30},
		{"one has little", 20, 2, 100, 100, 8, 2, 12},
		{"one has no room", 20, 20, 0, 100, 0, 10, 30},
		{"one has room for three", 20, 20, 3, 100, 3, 7, 30},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newClaim()
			c.req.Batch, c.req.PerLane = 10, 1
			c.engine("e", func(p *inbox.EnginePolicy) { p.Capacity = tt.capE })
			c.engine("f", func(p *inbox.EnginePolicy) { p.Capacity = tt.capF })
			fill(c, "r", tt.r)
			fill(c, "s", tt.s)
			p := c.plan()
			got := map[string]int{}
			for _, cl := range p.Claimed {
				got[cl.Messages[0].Route]++
			}
			if got["r"] != tt.wantE || got["s"] != tt.wantF || p.Busy != tt.busy {
				t.Errorf("e got %d, f got %d, %d left; want %d, %d and %d", got["r"], got["s"], p.Busy, tt.wantE, tt.wantF, tt.busy)
			}
			if left := len(p.Lanes) - len(p.Claimed); left != 0 {
				t.Errorf("%d lanes that were left are written, want none", left)
			}
		})
	}
}

// Routes take turns, and an engine with two of them would get two thirds.
func TestTheShareIsTheEnginesNotItsRoutes(t *testing.T) {
	c := newClaim()
	c.req.Batch, c.req.PerLane = 10, 1
	for i := range 20 {
		for _, name := range []string{"r", "q", "s"} {
			id := fmt.Sprintf("%s%d", name, i)
			c.lane(id, msg(id, route(name)))
		}
	}
	got := map[string]int{}
	for _, cl := range c.plan().Claimed {
		got[c.req.Routes[cl.Messages[0].Route].Engine]++
	}
	if got["e"] != 5 || got["f"] != 5 {
		t.Errorf("e got %d and f %d of 10, want 5 each", got["e"], got["f"])
	}
}

func TestAHalfOpenBreakerIsProbedOnceWithWhatHasFailedLeast(t *testing.T) {
	c := newClaim()
	c.engines["e"] = inbox.EngineState{Name: "e", OpenUntil: now, Openings: 3, OpenReason: inbox.OpenTechnical}
	failures := func(n int64) func(*inbox.Message) { return func(m *inbox.Message) { m.TechnicalFailures = n } }
	c.lane("a", msg("a1", retrying(now), failures(9)))
	c.lane("b", msg("b1", retrying(now), failures(2)), msg("b2"))
	c.lane("c", msg("c1", retrying(now), failures(2)))
	c.lane("s", msg("s1", route("s")))
	p := c.plan()
	wantClaimed(t, p, "s: s1", "b: b1")
	if len(p.Engines) != 1 || p.Engines[0].ProbeOwner != "me" || !p.Engines[0].ProbeUntil.Equal(latest.Add(90*time.Second)) || p.Engines[0].Name != "e" {
		t.Errorf("the engines written are %+v, want one probe of e by us, for a lease", p.Engines)
	}
	if p.Engines[0].Openings != 3 || p.Engines[0].OpenReason != inbox.OpenTechnical || !p.Engines[0].OpenUntil.Equal(now) {
		t.Errorf("the probe changed the breaker itself: %+v", p.Engines[0])
	}
	if len(p.Lanes) != 2 || p.Waiting != 2 {
		t.Errorf("%d lanes are written and %d wait, want the two that are claimed and the two behind the probe", len(p.Lanes), p.Waiting)
	}
}

// A probe that is taken and not sent would keep everybody away from the engine for a lease.
func TestAProbeIsNotTakenByWhoCannotBeCalled(t *testing.T) {
	for name, change := range map[string]func(*claiming){
		"no call slot is free": func(c *claiming) { c.engine("e", func(p *inbox.EnginePolicy) { p.Capacity = 0 }) },
		"the batch is full":    func(c *claiming) { c.req.Batch = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			c := newClaim()
			c.lane("s", msg("s1", route("s")))
			c.lane("a", msg("a1"))
			c.engines["e"] = inbox.EngineState{Name: "e", OpenUntil: now}
			change(c)
			p := c.plan()
			wantClaimed(t, p, "s: s1")
			if len(p.Engines) != 0 {
				t.Errorf("the probe is taken: %+v", p.Engines)
			}
		})
	}
}

func TestAProbeWhoseWorkerWasLostIsTakenAgain(t *testing.T) {
	c := newClaim()
	c.engines["e"] = inbox.EngineState{Name: "e", OpenUntil: now.Add(-hour), ProbeOwner: "dead", ProbeUntil: now}
	c.lane("a", msg("a1"))
	p := c.plan()
	wantClaimed(t, p, "a: a1")
	if len(p.Engines) != 1 || p.Engines[0].ProbeOwner != "me" {
		t.Errorf("the engines written are %+v, want a probe of ours", p.Engines)
	}
}

func TestAnOperatorsPauseIsNotProbed(t *testing.T) {
	c := newClaim()
	c.engines["e"] = inbox.EngineState{Name: "e", PausedAt: now.Add(-hour), OpenUntil: now.Add(-hour)}
	c.lane("a", msg("a1"))
	if p := c.plan(); len(p.Claimed) != 0 || len(p.Engines) != 0 {
		t.Errorf("claimed %v, engines written %v; want nothing", claimed(p), p.Engines)
	}
}

func TestALostWorkerIsFoundInTheHeadAndBehindIt(t *testing.T) {
	c := newClaim()
	notWaiting := now.Add(-hour)
	head := msg("1", processing, func(m *inbox.Message) { m.LastNotWaitingAt = notWaiting })
	behind := msg("2", processing, func(m *inbox.Message) { m.FirstFailedAt = now.Add(-day) })
	fresh := msg("3")
	lane := c.lane("a", head, behind, fresh)
	lane.LeaseOwner, lane.LeaseUntil, lane.DueAt = "dead", now, now
	p := c.plan()
	wantClaimed(t, p, "a: 1") // a suspect alone
	if !p.Suspect {
		t.Error("the plan does not say that what it claims is a suspect")
	}
	if diff := cmp.Diff([]string{"1", "2"}, lostIDs(p.Lost)); diff != "" {
		t.Errorf("lost: %s", diff)
	}
	if diff := cmp.Diff([]string{"1", "2"}, ids(p.Messages)); diff != "" {
		t.Errorf("written: %s", diff)
	}
	if head.Status != inbox.Processing || head.Attempts != 4 || head.LostWorkers != 1 || !head.OutcomeUnknown || p.Lost[0].Number != 3 ||
		!head.FirstFailedAt.Equal(now) || !head.LastFailedAt.Equal(now) || !head.LastNotWaitingAt.IsZero() || head.LastErrorCode == "" {
		t.Errorf("the head is %+v", head)
	}
	if behind.Status != inbox.Retrying || behind.Attempts != 3 || behind.LostWorkers != 1 || !behind.OutcomeUnknown ||
		!behind.FirstFailedAt.Equal(now.Add(-day)) || !behind.NextAttemptAt.IsZero() {
		t.Errorf("the message behind is %+v", behind)
	}
	if fresh.Status != inbox.Received || fresh.LostWorkers != 0 {
		t.Errorf("a message that was not claimed is %+v", fresh)
	}
}

func TestTheFifthLostWorkerPoisons(t *testing.T) {
	lost := func(n int64) func(*inbox.Message) { return func(m *inbox.Message) { processing(m); m.LostWorkers = n } }
	t.Run("and the next one goes on", func(t *testing.T) {
		c := newClaim()
		bad := msg("1", lost(4))
		c.lane("a", bad, msg("2"), msg("3"))
		p := c.plan()
		wantClaimed(t, p, "a: 2 3")
		if bad.Status != inbox.Parked || bad.Reason != inbox.Poisoned || bad.LostWorkers != 5 || p.Parked != 1 || p.Suspect {
			t.Errorf("the message is %s/%s after %d lost workers, %d parked", bad.Status, bad.Reason, bad.LostWorkers, p.Parked)
		}
	})
	t.Run("and the lane is blocked where the route says so", func(t *testing.T) {
		c := newClaim()
		c.lane("a", msg("1", lost(4), func(m *inbox.Message) { m.Blocks = true }), msg("2", lost(0)))
		p := c.plan()
		wantClaimed(t, p)
		if got := written(t, p.Lanes, "a"); got.WhyNotDue != inbox.WhyBlocked || !got.DueAt.IsZero() {
			t.Errorf("the lane is %+v, want blocked", got)
		}
		if diff := cmp.Diff([]string{"1", "2"}, lostIDs(p.Lost)); diff != "" {
			t.Errorf("lost: %s", diff)
		}
	})
	t.Run("and what may stand behind it is looked for", func(t *testing.T) {
		c := newClaim()
		c.lane("a", msg("1", lost(4))) // as much of the queue as was read
		got := written(t, c.plan().Lanes, "a")
		if !got.DueAt.Equal(now) || !got.PurgeAt.IsZero() {
			t.Errorf("the lane is %+v, want it due now: its queue may hold more", got)
		}
		c.lanes[0], c.queues["a"] = got, nil
		if got := written(t, c.plan().Lanes, "a"); !got.PurgeAt.Equal(latest.Add(75*day)) || !got.DueAt.IsZero() {
			t.Errorf("the lane is %+v, want it to end: its queue is empty", got)
		}
	})
	t.Run("and a dead letter behind it waits until its twin was looked for", func(t *testing.T) {
		c := newClaim()
		letter := msg("2", func(m *inbox.Message) { m.FromDeadLetter, m.NextAttemptAt = true, now.Add(-minute) })
		c.lane("a", msg("1", lost(4)), letter)
		p := c.plan()
		wantClaimed(t, p)
		got := written(t, p.Lanes, "a")
		if !got.DueAt.Equal(now) {
			t.Errorf("the lane is %+v, want it due now", got)
		}
		c.lanes[0], c.queues["a"] = got, []*inbox.Message{letter} // whose twin a claim reads that finds it at the head
		wantClaimed(t, c.plan(), "a: 2")
	})
	t.Run("the fourth does not", func(t *testing.T) {
		c := newClaim()
		c.lane("a", msg("1", lost(3)))
		wantClaimed(t, c.plan(), "a: 1")
	})
	t.Run("behind the head", func(t *testing.T) {
		c := newClaim()
		behind := msg("2", lost(4))
		c.lane("a", msg("1"), behind, msg("3"))
		p := c.plan()
		wantClaimed(t, p, "a: 1")
		if behind.Status != inbox.Parked || p.Parked != 1 {
			t.Errorf("it is %s, %d parked", behind.Status, p.Parked)
		}
	})
}

func TestSuspectsAreAloneAndTakeTurns(t *testing.T) {
	setUp := func() *claiming {
		c := newClaim()
		c.lane("a", msg("a1", suspect), msg("a2"))
		c.lane("b", msg("b1", suspect))
		c.lane("c", msg("c1"))
		c.lane("d", msg("d1"))
		return c
	}
	t.Run("others first", func(t *testing.T) {
		p := setUp().plan()
		wantClaimed(t, p, "c: c1", "d: d1")
		if p.Suspect || !p.Suspects || p.Busy != 2 {
			t.Errorf("suspect %v, suspects left %v, busy %d; want false, true, 2", p.Suspect, p.Suspects, p.Busy)
		}
	})
	t.Run("then one suspect, and nobody beside it", func(t *testing.T) {
		c := setUp()
		c.req.SuspectsFirst = true
		p := c.plan()
		wantClaimed(t, p, "a: a1")
		if !p.Suspect || !p.Suspects || len(p.Lanes) != 1 {
			t.Errorf("suspect %v, suspects left %v, %d lanes written; want true, true, 1", p.Suspect, p.Suspects, len(p.Lanes))
		}
	})
	t.Run("not while anything else is claimed", func(t *testing.T) {
		c := setUp()
		c.req.Alone, c.req.SuspectsFirst = false, true
		p := c.plan()
		wantClaimed(t, p, "c: c1", "d: d1")
		if p.Suspect || !p.Suspects {
			t.Errorf("suspect %v, suspects left %v; want false, true", p.Suspect, p.Suspects)
		}
	})
	t.Run("at once where there is nobody else", func(t *testing.T) {
		c := newClaim()
		c.lane("a", msg("a1", suspect))
		p := c.plan()
		wantClaimed(t, p, "a: a1")
		if !p.Suspect || p.Suspects {
			t.Errorf("suspect %v, suspects left %v; want true, false", p.Suspect, p.Suspects)
		}
	})
	t.Run("others go on where all suspects wait for their engine", func(t *testing.T) {
		c := setUp()
		c.req.SuspectsFirst = true
		c.lane("s", msg("s1", route("s")))
		c.engines["e"] = inbox.EngineState{Name: "e", OpenUntil: now.Add(hour)}
		p := c.plan()
		wantClaimed(t, p, "s: s1")
		if p.Suspect || p.Suspects {
			t.Errorf("suspect %v, suspects left %v; want neither: they have their time", p.Suspect, p.Suspects)
		}
	})
	t.Run("a suspect may be the probe", func(t *testing.T) {
		c := newClaim()
		c.lane("a", msg("a1", suspect))
		c.engines["e"] = inbox.EngineState{Name: "e", OpenUntil: now}
		p := c.plan()
		wantClaimed(t, p, "a: a1")
		if len(p.Engines) != 1 {
			t.Errorf("engines written: %+v, want the probe", p.Engines)
		}
	})
}

func TestASuspectThatIsLeftLosesItsDeadLease(t *testing.T) {
	c := newClaim()
	lane := c.lane("a", msg("a1", processing))
	lane.LeaseOwner, lane.LeaseUntil = "dead", now
	c.lane("c", msg("c1"))
	p := c.plan()
	wantClaimed(t, p, "c: c1")
	got := written(t, p.Lanes, "a")
	if got.LeaseOwner != "" || !got.DueAt.Equal(now) {
		t.Errorf("the lane is %+v; want no lease, so that a late worker releases nothing, and due now", got)
	}
	if diff := cmp.Diff([]string{"a1"}, lostIDs(p.Lost)); diff != "" {
		t.Errorf("lost: %s", diff)
	}
}

// reopened is a row as the one statement of a repair by hand leaves it.
func reopened(reason inbox.Reason) func(*inbox.Message) {
	return func(m *inbox.Message) {
		m.Status, m.Attempts, m.Reason = inbox.Received, 0, reason
		m.NextAttemptAt, m.FirstFailedAt, m.LastFailedAt = now.Add(day), now.Add(-day), now.Add(-hour)
		m.LastNotWaitingAt, m.PatienceUsed = now.Add(-hour), 23*hour
		m.TechnicalFailures, m.OutageFailures, m.LostWorkers, m.OutcomeUnknown = 19, 3, 4, true
		m.ProcessedAt, m.PurgeAfter = now.Add(-day), now.Add(day)
		m.LastErrorCode, m.EngineReference = "HTTP 409", "instance-1"
	}
}

func TestAMessageReopenedByHandStartsAfresh(t *testing.T) {
	for _, reason := range inbox.Reasons() {
		t.Run(string(reason), func(t *testing.T) {
			c := newClaim()
			m := msg("1", reopened(reason))
			before := *m
			c.lane("a", m, msg("2"))
			before.LaneID = "a"
			p := c.plan()
			want := inbox.Message{
				ID: "1", Consumer: consumer, LaneID: "a", Route: "r", Sequence: m.Sequence, Status: inbox.Processing, Attempts: 1,
				ProcessingStartedAt: latest, OutcomeUnknown: reason != inbox.PossiblyDelivered, LastErrorCode: "HTTP 409", EngineReference: "instance-1",
			}
			if diff := cmp.Diff(want, *m); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(before, p.Before["1"]); diff != "" {
				t.Errorf("the state before, for the audit: %s", diff)
			}
			if diff := cmp.Diff([]string{"1"}, ids(p.Afresh)); diff != "" {
				t.Errorf("afresh: %s", diff)
			}
			if got := ids(p.Messages); slices.Index(got, "1") != 0 || slices.Contains(got[1:], "1") {
				t.Errorf("written: %v, want 1 once", got)
			}
			if p.Suspect {
				t.Error("it is still a suspect")
			}
		})
	}
}

func TestAReopenedMessageWithoutARouteIsParkedAgain(t *testing.T) {
	c := newClaim()
	bare := msg("1", route(""), func(m *inbox.Message) { m.Reason = inbox.NoRoute })
	c.lane("a", bare, msg("2"))
	p := c.plan()
	wantClaimed(t, p, "a: 2")
	if bare.Status != inbox.Parked || bare.Reason != inbox.NoRoute || p.Parked != 1 {
		t.Errorf("it is %s/%s, %d parked; want PARKED/NO_ROUTE, 1", bare.Status, bare.Reason, p.Parked)
	}
	if p.Before["1"].Status != inbox.Received || len(p.Afresh) != 1 {
		t.Errorf("before %+v, afresh %v", p.Before["1"], ids(p.Afresh))
	}
	if len(p.Unknown) != 0 {
		t.Errorf("unknown routes %v, want none", p.Unknown)
	}

	c = newClaim()
	c.lane("a", msg("1", route(""), func(m *inbox.Message) { m.Reason, m.Blocks = inbox.NoRoute, true }), msg("2"))
	if got := written(t, c.plan().Lanes, "a"); got.WhyNotDue != inbox.WhyBlocked {
		t.Errorf("with a blocking one the lane is %+v, want blocked", got)
	}
}

func TestWhatComesBehindTheLanesPositionIsLate(t *testing.T) {
	c := newClaim()
	early, same, later := msg("1"), msg("2"), msg("3")
	wasLate := msg("4", func(m *inbox.Message) { m.Late = true })
	lane := c.lane("a", early, same, later, wasLate)
	lane.Last = same.Position()
	p := c.plan()
	wantClaimed(t, p, "a: 1 2 3 4")
	for m, want := range map[*inbox.Message]bool{early: true, same: false, later: false, wasLate: true} {
		if m.Late != want {
			t.Errorf("message %s is late: %v, want %v", m.ID, m.Late, want)
		}
	}
	if diff := cmp.Diff(same.Position(), written(t, p.Lanes, "a").Last); diff != "" {
		t.Errorf("a claim moved the position: %s", diff)
	}
	c = newClaim()
	first := msg("1", func(m *inbox.Message) { m.Sequence = -5 })
	c.lane("a", first)
	c.plan()
	if first.Late {
		t.Error("the first message of a lane is late")
	}
}

// Time in which nobody could ask about a message is no time in which nobody waited for it.
func TestAPausedEngineUsesNoPatience(t *testing.T) {
	asked := now.Add(-48 * hour)
	for why, kept := range map[string]bool{
		"": true, inbox.WhyHeadWaits: true, inbox.WhyBlocked: true,
		inbox.WhyEnginePaused: false, inbox.WhyHeld: false, inbox.WhyRouteUnknown: false, inbox.WhyEngineUnknown: false,
	} {
		c := newClaim()
		m := msg("1", retrying(now), func(m *inbox.Message) { m.LastNotWaitingAt, m.PatienceUsed = asked, hour })
		c.lane("a", m).WhyNotDue = why
		c.plan()
		if got := m.LastNotWaitingAt.Equal(asked); got != kept {
			t.Errorf("after %q the time of the last answer is kept: %v, want %v", why, got, kept)
		}
		if m.PatienceUsed != hour {
			t.Errorf("after %q the patience used is %v, want 1h", why, m.PatienceUsed)
		}
	}
}

func TestTheSameReadGivesTheSamePlan(t *testing.T) {
	sequence = 0
	build := func() inbox.ClaimPlan {
		sequence = 0
		c := newClaim()
		c.lane("a", msg("1", processing), msg("2"))
		c.lane("b", msg("3", reopened(inbox.Rejected)))
		c.lane("c", msg("4", route("s")))
		c.lane("d")
		c.engines["f"] = inbox.EngineState{Name: "f", OpenUntil: now.Add(hour)}
		return c.plan()
	}
	if diff := cmp.Diff(build(), build()); diff != "" {
		t.Error(diff)
	}
}

func lostIDs(lost []inbox.SettledAttempt) []string {
	var ids []string
	for _, l := range lost {
		ids = append(ids, l.InboxID)
	}
	return ids
}

// Who was refused last is no better probe than who was not, although a refusal of our credentials counts no failure.
func TestTheMessageThatWasRefusedIsNotThePreferredProbe(t *testing.T) {
	c := newClaim()
	c.engines["e"] = inbox.EngineState{Name: "e", OpenReason: inbox.OpenUnauthorised, OpenUntil: now, Failures: 2, LastFailedInboxID: "1"}
	c.lane("a", msg("1", func(m *inbox.Message) { m.LastFailedAt = now.Add(-minute) }))
	c.lane("b", msg("2", func(m *inbox.Message) { m.LastFailedAt = now.Add(-hour) }))
	if diff := cmp.Diff([]string{"b: 2"}, claimed(c.plan())); diff != "" {
		t.Error(diff)
	}
}

// One message's refusal may be about this message alone: the first other one finds out, without waiting for the pause.
func TestARefusalByOneMessageAloneIsDoubted(t *testing.T) {
	state := inbox.EngineState{Name: "e", OpenReason: inbox.OpenUnauthorised, OpenUntil: now.Add(minute), Openings: 3, Failures: 1, LastFailedInboxID: "1"}
	tests := []struct {
		name   string
		state  func(*inbox.EngineState)
		queued []string
		want   []string
	}{
		{"by another one", func(*inbox.EngineState) {}, []string{"1", "2", "3"}, []string{"2"}},
		{"not by itself", func(*inbox.EngineState) {}, []string{"1"}, nil},
		{"not beside a probe", func(e *inbox.EngineState) { e.ProbeOwner, e.ProbeUntil = "other", now.Add(minute) }, []string{"2"}, nil},
		{"not once two were refused", func(e *inbox.EngineState) { e.Failures = 2 }, []string{"3"}, nil},
		{"not where it asks for time", func(e *inbox.EngineState) { e.OpenReason = inbox.OpenThrottled }, []string{"2"}, nil},
		{"not where it fails", func(e *inbox.EngineState) { e.OpenReason = inbox.OpenTechnical }, []string{"2"}, nil},
		{"not where an operator has paused it", func(e *inbox.EngineState) { e.PausedAt = now.Add(-hour) }, []string{"2"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newClaim()
			e := state
			tt.state(&e)
			c.engines["e"] = e
			for _, id := range tt.queued {
				c.lane("lane "+id, msg(id, func(m *inbox.Message) {
					if id == "1" {
						m.LastFailedAt = now.Add(-time.Second)
					}
				}))
			}
			var got []string
			for _, lane := range c.plan().Claimed {
				got = append(got, ids(lane.Messages)...)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAClaimRemembersWhatWasPlanned(t *testing.T) {
	c := newClaim()
	planned := now.Add(-hour)
	c.lane("a", msg("1", retrying(planned)))
	m := c.plan().Claimed[0].Messages[0]
	if !m.PlannedAt.Equal(planned) || !m.NextAttemptAt.IsZero() {
		t.Errorf("planned at %v, next attempt at %v; want %v, none", m.PlannedAt, m.NextAttemptAt, planned)
	}
	back := inbox.Attempt{Message: m}.Settle(inbox.Answer{Verdict: inbox.VerdictNotStarted}, nil).Message
	if !back.NextAttemptAt.Equal(planned) {
		t.Errorf("given back, its next attempt is at %v, want %v", back.NextAttemptAt, planned)
	}
}
