package inbox_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// settling is what a settlement's transaction has read, and what it is to write.
type settling struct {
	req     inbox.SettleRequest
	lanes   map[string]inbox.Lane
	stored  map[string]inbox.Stored
	queues  map[string][]*inbox.Message
	engines map[string]inbox.EngineState
	again   bool
}

func newSettle() *settling {
	return &settling{
		req: inbox.SettleRequest{Consumer: consumer, Retention: 75 * day, PayloadRetention: 14 * day, Poison: poison,
			Breakers: map[string]inbox.BreakerPolicy{"e": breaker, "f": breaker}},
		lanes: map[string]inbox.Lane{}, stored: map[string]inbox.Stored{}, queues: map[string][]*inbox.Message{},
		engines: map[string]inbox.EngineState{},
	}
}

func (s *settling) plan() inbox.SettlePlan {
	return inbox.PlanSettle(s.req, now, latest, s.lanes, s.stored, s.queues, s.engines, s.again)
}

// done makes the result of an attempt that ended so.
func done(m *inbox.Message, status inbox.Status) inbox.Result {
	after := *m
	after.Status = status
	kind := inbox.EngineAnswered
	r := inbox.Result{Message: &after, Number: m.Attempts, Engine: "e", Verdict: "VERDICT", StartedAt: now.Add(-time.Second), EndedAt: now,
		Event: inbox.EngineEvent{Kind: kind, InboxID: m.ID, Owner: "me"}}
	if status != inbox.Processed {
		r.Attempt = &inbox.AttemptRecord{Number: m.Attempts, Verdict: "VERDICT", Engine: "e", Owner: "me"}
	}
	return r
}

// lane adds a lane under our lease, with what it holds in its queue: those under way and those behind. results are ours,
// the last of the lane if release is set.
func (s *settling) lane(id string, release bool, queue []*inbox.Message, results ...inbox.Result) {
	lane := inbox.Lane{ID: id, Consumer: consumer, Key: "key of " + id, LeaseOwner: "me", LeaseToken: 8, LeaseUntil: now.Add(minute),
		DueAt: now.Add(minute)}
	s.req.Lanes = append(s.req.Lanes, inbox.LaneSettlement{Lane: lane, Results: results, Release: release})
	lane.WokenAt = now.Add(-time.Second) // something arrived meanwhile
	s.lanes[id] = lane
	for _, m := range queue {
		s.stored[m.ID] = inbox.Stored{Status: m.Status, Attempts: m.Attempts}
	}
	s.queues[id] = queue
}

func (s *settling) found(id string, change func(*inbox.Lane)) {
	lane := s.lanes[id]
	change(&lane)
	s.lanes[id] = lane
}

func underWay(id string, changes ...func(*inbox.Message)) *inbox.Message {
	return msg(id, append([]func(*inbox.Message){processing}, changes...)...)
}

func TestASettlementWritesTheResultAndEndsTheLease(t *testing.T) {
	s := newSettle()
	m := underWay("1")
	s.lane("a", true, []*inbox.Message{m}, done(m, inbox.Processed))
	p := s.plan()
	if len(p.Messages) != 1 || len(p.Settled) != 1 || len(p.Late) != 0 || len(p.Attempts) != 0 {
		t.Fatalf("written %v, settled %d, late %v, attempts %d; want one message, and no Attempts row for a first success",
			ids(p.Messages), len(p.Settled), p.Late, len(p.Attempts))
	}
	if got := p.Messages[0]; !got.ProcessedAt.Equal(latest) || !got.PurgeAfter.Equal(latest.Add(75*day)) || got.Status != inbox.Processed {
		t.Errorf("the message is %s since %v until %v", got.Status, got.ProcessedAt, got.PurgeAfter)
	}
	if p.Settled[0].Message != p.Messages[0] {
		t.Error("what is reported as settled is not what is written")
	}
	want := inbox.Lane{ID: "a", Consumer: consumer, Key: "key of a", LeaseToken: 8, Last: m.Position(), PurgeAt: latest.Add(75 * day),
		WokenAt: now.Add(-time.Second)}
	if diff := cmp.Diff(want, written(t, p.Lanes, "a")); diff != "" {
		t.Errorf("lane: %s", diff)
	}
	if m.Status != inbox.Processing || !m.ProcessedAt.IsZero() {
		t.Error("the plan changed what it was given: a transaction that runs twice would not plan anew")
	}
}

func TestEachGuardAloneKeepsALateResultOut(t *testing.T) {
	tests := []struct {
		name   string
		change func(*settling)
		late   bool // an Attempts row is kept
		lane   bool // the lane is still ours
	}{
		{"another owner", func(s *settling) { s.found("a", func(l *inbox.Lane) { l.LeaseOwner = "other" }) }, true, false},
		{"no owner", func(s *settling) { s.found("a", func(l *inbox.Lane) { l.LeaseOwner = "" }) }, true, false},
		{"a later token", func(s *settling) { s.found("a", func(l *inbox.Lane) { l.LeaseToken = 9 }) }, true, false},
		{"a token from the start", func(s *settling) { s.found("a", func(l *inbox.Lane) { l.LeaseToken = 1 }) }, true, false},
		{"another status", func(s *settling) { s.stored["1"] = inbox.Stored{Status: inbox.Retrying, Attempts: 3} }, true, true},
		{"a finished one", func(s *settling) { s.stored["1"] = inbox.Stored{Status: inbox.Processed, Attempts: 3} }, true, true},
		{"another attempt", func(s *settling) { s.stored["1"] = inbox.Stored{Status: inbox.Processing, Attempts: 4} }, true, true},
		{"an attempt before", func(s *settling) { s.stored["1"] = inbox.Stored{Status: inbox.Processing, Attempts: 2} }, true, true},
		{"the lane is gone", func(s *settling) { delete(s.lanes, "a") }, true, false},
		{"the row is gone", func(s *settling) { delete(s.stored, "1"); s.queues["a"] = nil }, false, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSettle()
			m := underWay("1")
			s.lane("a", true, []*inbox.Message{m}, done(m, inbox.Processed))
			tt.change(s)
			p := s.plan()
			if len(p.Messages) != 0 || len(p.Settled) != 0 {
				t.Errorf("written %v, settled %d; want nothing", ids(p.Messages), len(p.Settled))
			}
			var late []string
			if tt.late {
				late = []string{"1"}
			}
			if diff := cmp.Diff(late, p.Late); diff != "" {
				t.Errorf("late: %s", diff)
			}
			if len(p.Attempts) != len(late) {
				t.Fatalf("%d Attempts rows, want %d", len(p.Attempts), len(late))
			}
			if tt.late {
				want := inbox.SettledAttempt{InboxID: "1", Late: true, AttemptRecord: inbox.AttemptRecord{Number: 3, StartedAt: now.Add(-time.Second),
					EndedAt: now, Verdict: "VERDICT", Engine: "e", Owner: "me"}}
				if diff := cmp.Diff(want, p.Attempts[0]); diff != "" {
					t.Errorf("the late attempt: %s", diff)
				}
			}
			if got := len(p.Lanes) == 1; got != tt.lane {
				t.Errorf("the lane is written: %v, want %v", got, tt.lane)
			}
			for _, l := range p.Lanes {
				if !l.Last.IsZero() {
					t.Errorf("the position moved to %v", l.Last)
				}
			}
		})
	}
}

func TestALateFailureKeepsItsOwnRecord(t *testing.T) {
	s := newSettle()
	m := underWay("1")
	r := done(m, inbox.Retrying)
	r.Attempt.ErrorCode, r.Attempt.Revision = "HTTP 500", "rev-1"
	s.lane("a", true, []*inbox.Message{m}, r)
	s.found("a", func(l *inbox.Lane) { l.LeaseToken++ })
	p := s.plan()
	want := []inbox.SettledAttempt{{InboxID: "1", Late: true, AttemptRecord: *r.Attempt}}
	if diff := cmp.Diff(want, p.Attempts); diff != "" {
		t.Error(diff)
	}
}

func TestASecondTryFindsWhatTheFirstHasWritten(t *testing.T) {
	setUp := func(stored inbox.Stored) *settling {
		s := newSettle()
		m := underWay("1")
		s.lane("a", true, []*inbox.Message{m}, done(m, inbox.Processed))
		s.found("a", func(l *inbox.Lane) { l.LeaseOwner = "" }) // the first try released it
		s.stored["1"] = stored
		s.again = true
		return s
	}
	p := setUp(inbox.Stored{Status: inbox.Processed, Attempts: 3}).plan()
	if len(p.Settled) != 1 || len(p.Late) != 0 || len(p.Attempts) != 0 || len(p.Messages) != 0 || len(p.Lanes) != 0 {
		t.Errorf("settled %d, late %v, attempts %d, written %v and %d lanes; want it settled, and nothing written",
			len(p.Settled), p.Late, len(p.Attempts), ids(p.Messages), len(p.Lanes))
	}
	for name, stored := range map[string]inbox.Stored{
		"another status":  {Status: inbox.Parked, Attempts: 3},
		"another attempt": {Status: inbox.Processed, Attempts: 4},
	} {
		if p := setUp(stored).plan(); len(p.Settled) != 0 || len(p.Late) != 1 {
			t.Errorf("%s: settled %d, late %v; want it late", name, len(p.Settled), p.Late)
		}
	}
	first := setUp(inbox.Stored{Status: inbox.Processed, Attempts: 3})
	first.again = false
	if p := first.plan(); len(p.Settled) != 0 || len(p.Late) != 1 {
		t.Errorf("at a first try what stands there is somebody else's: settled %d, late %v", len(p.Settled), p.Late)
	}
	// Where the first try was not committed, the second writes.
	s := newSettle()
	m := underWay("1")
	s.lane("a", true, []*inbox.Message{m}, done(m, inbox.Processed))
	s.again = true
	if p := s.plan(); len(p.Messages) != 1 || len(p.Lanes) != 1 {
		t.Errorf("written %v and %d lanes, want both", ids(p.Messages), len(p.Lanes))
	}
}

func TestAReleasedLaneIsDueAsItsQueueWillBe(t *testing.T) {
	waits := retrying(now.Add(hour))
	tests := []struct {
		name   string
		behind []*inbox.Message
		result func(*inbox.Message) inbox.Result
		change func(*settling)
		due    time.Time
		why    string
		purge  time.Time
		more   bool
	}{
		{"the next is new", []*inbox.Message{msg("2")}, nil, nil, now, "", time.Time{}, true},
		{"the next waits", []*inbox.Message{msg("2", waits), msg("3")}, nil, nil, now.Add(hour), inbox.WhyHeadWaits, time.Time{}, false},
		{"the next blocks", []*inbox.Message{msg("2", func(m *inbox.Message) { m.Status, m.Blocks = inbox.Parked, true }), msg("3")},
			nil, nil, time.Time{}, inbox.WhyBlocked, time.Time{}, false},
		{"the next was claimed by a worker that was lost", []*inbox.Message{underWay("2")}, nil, nil, now, "", time.Time{}, true},
		{"nothing is left", nil, nil, nil, time.Time{}, "", latest.Add(75 * day), false},
		{"nothing is left of a message's own lane", nil, nil, func(s *settling) { s.found("a", func(l *inbox.Lane) { l.Key = "" }) },
			time.Time{}, "", latest, false},
		{"nothing is left of a held lane", nil, nil, func(s *settling) { s.found("a", func(l *inbox.Lane) { l.HeldBy = "ops" }) },
			time.Time{}, "", time.Time{}, false},
		{"it waits itself", []*inbox.Message{msg("2")}, func(m *inbox.Message) inbox.Result {
			r := done(m, inbox.Retrying)
			r.Message.NextAttemptAt = now.Add(minute)
			return r
		}, nil, now.Add(minute), inbox.WhyHeadWaits, time.Time{}, false},
		{"it is parked, and lets others by", []*inbox.Message{msg("2")},
			func(m *inbox.Message) inbox.Result { return done(m, inbox.Parked) }, nil, now, "", time.Time{}, true},
		{"it is parked, and blocks", []*inbox.Message{msg("2")}, func(m *inbox.Message) inbox.Result {
			r := done(m, inbox.Parked)
			r.Message.Blocks = true
			return r
		}, nil, time.Time{}, inbox.WhyBlocked, time.Time{}, false},
		{"it was given back", nil, func(m *inbox.Message) inbox.Result { return done(m, inbox.Received) }, nil, now, "", time.Time{}, true},
		{"it is discarded", nil, func(m *inbox.Message) inbox.Result { return done(m, inbox.Discarded) }, nil, time.Time{}, "", latest.Add(75 * day), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSettle()
			m := underWay("1")
			if tt.result == nil {
				tt.result = func(m *inbox.Message) inbox.Result { return done(m, inbox.Processed) }
			}
			s.lane("a", true, append([]*inbox.Message{m}, tt.behind...), tt.result(m))
			if tt.change != nil {
				tt.change(s)
			}
			p := s.plan()
			got := written(t, p.Lanes, "a")
			if !got.DueAt.Equal(tt.due) || got.WhyNotDue != tt.why || !got.PurgeAt.Equal(tt.purge) {
				t.Errorf("due %v, %q, purged %v; want %v, %q, %v", got.DueAt, got.WhyNotDue, got.PurgeAt, tt.due, tt.why, tt.purge)
			}
			if got.LeaseOwner != "" || !got.LeaseUntil.IsZero() || got.LeaseToken != 8 {
				t.Errorf("the lease is %q until %v with token %d; want none, and the token kept", got.LeaseOwner, got.LeaseUntil, got.LeaseToken)
			}
			if p.More != tt.more {
				t.Errorf("more: %v, want %v", p.More, tt.more)
			}
		})
	}
}

func TestALaneIsKeptUntilItsLastResult(t *testing.T) {
	s := newSettle()
	m, next := underWay("1"), underWay("2")
	s.lane("a", false, []*inbox.Message{m, next}, done(m, inbox.Processed))
	p := s.plan()
	got := written(t, p.Lanes, "a")
	want := s.lanes["a"]
	want.Last = m.Position()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the lease changed: %s", diff)
	}
	if p.More {
		t.Error("a lane that is not released says that there is more")
	}
	// A lane of which nothing was settled is not written either.
	s.stored["1"] = inbox.Stored{Status: inbox.Processing, Attempts: 9}
	if p := s.plan(); len(p.Lanes) != 0 {
		t.Errorf("lanes written: %+v, want none", p.Lanes)
	}
}

func TestThePositionMovesForwardOnly(t *testing.T) {
	early, middle, later := underWay("1"), underWay("2"), underWay("3")
	tests := []struct {
		name   string
		last   inbox.Position
		result []inbox.Result
		want   inbox.Position
	}{
		{"the first", inbox.Position{}, []inbox.Result{done(early, inbox.Processed)}, early.Position()},
		{"forward", early.Position(), []inbox.Result{done(later, inbox.Processed)}, later.Position()},
		{"a late one", later.Position(), []inbox.Result{done(middle, inbox.Processed)}, later.Position()},
		{"several, in any order", early.Position(), []inbox.Result{done(later, inbox.Processed), done(middle, inbox.Discarded)}, later.Position()},
		{"not by what is parked", early.Position(), []inbox.Result{done(later, inbox.Parked)}, early.Position()},
		{"not by what waits", early.Position(), []inbox.Result{done(later, inbox.Retrying)}, early.Position()},
		{"by what an engine discards", early.Position(), []inbox.Result{done(later, inbox.Discarded)}, later.Position()},
	}
	for _, tt := range tests {
		s := newSettle()
		s.lane("a", true, []*inbox.Message{early, middle, later}, tt.result...)
		s.found("a", func(l *inbox.Lane) { l.Last = tt.last })
		if diff := cmp.Diff(tt.want, written(t, s.plan().Lanes, "a").Last); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

func TestOnlyWhatIsFinishedMayBePurged(t *testing.T) {
	for _, status := range inbox.Statuses() {
		s := newSettle()
		m := underWay("1")
		s.lane("a", true, []*inbox.Message{m}, done(m, status))
		if got := !s.plan().Messages[0].PurgeAfter.IsZero(); got != status.Finished() {
			t.Errorf("%s has a time after which it may go: %v, want %v", status, got, status.Finished())
		}
	}
}

func technical(m *inbox.Message) inbox.Result {
	r := done(m, inbox.Retrying)
	r.Technical, r.Event.Kind = true, inbox.EngineFailed
	r.Message.NextAttemptAt = now.Add(minute)
	return r
}

func TestPoisonIsDecidedByWhatTheEngineAnsweredOthersMeanwhile(t *testing.T) {
	worn := func(m *inbox.Message) {
		m.TechnicalFailures, m.FirstFailedAt, m.LastFailedAt = 19, now.Add(-25*hour), now.Add(-hour)
	}
	tests := []struct {
		name   string
		others func(s *settling)
		result func(*inbox.Message) inbox.Result
		want   inbox.Status
		count  int64
	}{
		{"an answer in the same settlement", func(s *settling) {
			other := underWay("other")
			s.lane("z", true, []*inbox.Message{other}, done(other, inbox.Processed)) // after it, and counted all the same
		}, technical, inbox.Parked, 20},
		{"an answer before", func(s *settling) {
			s.engines["e"] = inbox.EngineState{Name: "e", LastAnsweredAt: now.Add(-minute), LastAnsweredInboxID: "other"}
		}, technical, inbox.Parked, 20},
		{"an answer of another engine", func(s *settling) {
			s.engines["f"] = inbox.EngineState{Name: "f", LastAnsweredAt: now.Add(-minute), LastAnsweredInboxID: "other"}
		}, technical, inbox.Retrying, 20},
		{"no answer", func(*settling) {}, technical, inbox.Retrying, 20},
		{"a failure that is the engine's own", func(s *settling) {
			s.engines["e"] = inbox.EngineState{Name: "e", LastAnsweredAt: now.Add(-minute), LastAnsweredInboxID: "other"}
		}, func(m *inbox.Message) inbox.Result { r := technical(m); r.Technical = false; return r }, inbox.Retrying, 19},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSettle()
			m := underWay("1", worn)
			s.lane("a", true, []*inbox.Message{m, msg("2")}, tt.result(m))
			tt.others(s)
			p := s.plan()
			i := slices.IndexFunc(p.Messages, func(m *inbox.Message) bool { return m.ID == "1" })
			got := p.Messages[i]
			if got.Status != tt.want || got.TechnicalFailures != tt.count {
				t.Errorf("it is %s after %d failures, want %s after %d", got.Status, got.TechnicalFailures, tt.want, tt.count)
			}
			lane := written(t, p.Lanes, "a")
			switch tt.want {
			case inbox.Parked:
				if got.Reason != inbox.Poisoned || !got.NextAttemptAt.IsZero() {
					t.Errorf("reason %q, next attempt %v; want POISONED, none", got.Reason, got.NextAttemptAt)
				}
				if !lane.DueAt.Equal(now) {
					t.Errorf("the lane is due at %v, want now: the one behind goes on", lane.DueAt)
				}
			default:
				if !lane.DueAt.Equal(now.Add(minute)) {
					t.Errorf("the lane is due at %v, want its head's next attempt", lane.DueAt)
				}
			}
			if m.TechnicalFailures != 19 {
				t.Error("the plan changed what it was given")
			}
		})
	}
}

func TestAnswersAreHeardBeforeFailures(t *testing.T) {
	s := newSettle()
	var results []inbox.Result
	var queue []*inbox.Message
	for _, id := range []string{"1", "2", "3"} {
		m := underWay(id)
		queue = append(queue, m)
		results = append(results, technical(m))
	}
	ok := underWay("4")
	s.lane("a", true, append(queue, ok), append(results, done(ok, inbox.Processed))...)
	p := s.plan()
	if len(p.Engines) != 1 || p.Engines[0].Name != "e" {
		t.Fatalf("engines written: %+v, want e once", p.Engines)
	}
	if e := p.Engines[0]; e.Failures != 3 || e.OpenUntil.IsZero() || e.LastAnsweredInboxID != "4" {
		t.Errorf("the engine is %+v; want the answer forgotten by no failure, and the failures by no answer", e)
	}
	if p.Closed {
		t.Error("a breaker that opened counts as closed")
	}
}

func TestAnEventCountsOnceHoweverOftenItsSettlementIsTried(t *testing.T) {
	s := newSettle()
	for _, id := range []string{"1", "2"} {
		m := underWay(id)
		s.lane(id, true, []*inbox.Message{m}, technical(m))
	}
	first := s.plan()
	if len(first.Engines) != 1 || first.Engines[0].Failures != 2 {
		t.Fatalf("engines written: %+v, want two failures", first.Engines)
	}
	// It was committed, and its answer got lost.
	s.again = true
	s.engines["e"] = first.Engines[0]
	for _, m := range first.Messages {
		s.stored[m.ID] = inbox.Stored{Status: m.Status, Attempts: m.Attempts}
		s.found(m.ID, func(l *inbox.Lane) { l.LeaseOwner = "" })
	}
	if second := s.plan(); len(second.Engines) != 0 || len(second.Settled) != 2 {
		t.Errorf("engines written: %+v, settled %d; want none, and both", second.Engines, len(second.Settled))
	}
	// It was not.
	s.engines["e"] = inbox.EngineState{}
	for _, id := range []string{"1", "2"} {
		s.stored[id] = inbox.Stored{Status: inbox.Processing, Attempts: 3}
	}
	if third := s.plan(); len(third.Engines) != 1 || third.Engines[0].Failures != 2 {
		t.Errorf("engines written: %+v, want two failures", third.Engines)
	}
}

func TestABreakerThatClosesIsReported(t *testing.T) {
	s := newSettle()
	m := underWay("1")
	s.engines["e"] = inbox.EngineState{Name: "e", OpenUntil: now.Add(-1), OpenReason: inbox.OpenTechnical, Openings: 2, ProbeOwner: "me", ProbeUntil: now.Add(minute)}
	s.lane("a", true, []*inbox.Message{m}, done(m, inbox.Processed))
	p := s.plan()
	if !p.Closed || len(p.Engines) != 1 || !p.Engines[0].OpenUntil.IsZero() || p.Engines[0].ProbeOwner != "" {
		t.Errorf("closed %v, engines %+v; want true, a closed one", p.Closed, p.Engines)
	}
}

func TestAProbeThatWasNotSentGivesItsPlaceBack(t *testing.T) {
	silent := func(m *inbox.Message) inbox.Result {
		r := done(m, inbox.Received)
		r.Attempt, r.Event.Kind, r.Verdict = nil, inbox.EngineSilent, ""
		return r
	}
	s := newSettle()
	m := underWay("1")
	s.engines["e"] = inbox.EngineState{Name: "e", OpenUntil: now.Add(-1), ProbeOwner: "me", ProbeUntil: now.Add(minute)}
	s.lane("a", true, []*inbox.Message{m}, silent(m))
	p := s.plan()
	if len(p.Engines) != 1 || p.Engines[0].ProbeOwner != "" || p.Engines[0].OpenUntil.IsZero() {
		t.Errorf("engines %+v; want it open, with room for a probe", p.Engines)
	}
	// Without a probe, what was not sent says nothing.
	s.engines["e"] = inbox.EngineState{Name: "e"}
	if p := s.plan(); len(p.Engines) != 0 {
		t.Errorf("engines written: %+v, want none", p.Engines)
	}
}

// What an engine did is true whoever holds the lane by now.
func TestALateWorkersAnswerStillSpeaksForItsEngine(t *testing.T) {
	s := newSettle()
	m := underWay("1")
	s.lane("a", true, []*inbox.Message{m}, done(m, inbox.Processed))
	s.found("a", func(l *inbox.Lane) { l.LeaseToken++ })
	if p := s.plan(); len(p.Engines) != 1 || p.Engines[0].LastAnsweredInboxID != "1" {
		t.Errorf("engines written: %+v, want the answer", p.Engines)
	}
}

func TestOneLanesTroubleIsNotAnothers(t *testing.T) {
	s := newSettle()
	lost, kept := underWay("1"), underWay("2")
	s.lane("a", true, []*inbox.Message{lost}, done(lost, inbox.Processed))
	s.lane("b", true, []*inbox.Message{kept}, done(kept, inbox.Processed))
	s.found("a", func(l *inbox.Lane) { l.LeaseOwner = "other" })
	p := s.plan()
	if diff := cmp.Diff([]string{"2"}, ids(p.Messages)); diff != "" {
		t.Errorf("written: %s", diff)
	}
	if diff := cmp.Diff([]string{"1"}, p.Late); diff != "" {
		t.Errorf("late: %s", diff)
	}
	if len(p.Lanes) != 1 || p.Lanes[0].ID != "b" {
		t.Errorf("lanes written: %+v, want b", p.Lanes)
	}
}

// The answer to the first commit was lost: what it wrote is counted now, and its object marked, with a time.
func TestWhatAnEarlierTryHasFinishedHasItsTime(t *testing.T) {
	s := newSettle()
	m := &inbox.Message{ID: "a", LaneID: "l", Status: inbox.Processing, Attempts: 1}
	s.lane("l", true, []*inbox.Message{m}, done(m, inbox.Processed))
	s.stored["a"] = inbox.Stored{Status: inbox.Processed, Attempts: 1}
	s.again = true
	plan := s.plan()
	if len(plan.Settled) != 1 || !plan.Settled[0].Message.ProcessedAt.Equal(latest) {
		t.Errorf("settled %+v", plan.Settled)
	}
}

func TestWhatWasNotStartedIsNoLateResult(t *testing.T) {
	s := newSettle()
	m := &inbox.Message{ID: "a", LaneID: "l", Status: inbox.Processing, Attempts: 1}
	given := done(m, inbox.Received)
	given.Verdict, given.Attempt = "", nil
	s.lane("l", true, []*inbox.Message{m}, given)
	s.stored["a"] = inbox.Stored{Status: inbox.Retrying, Attempts: 2}
	if plan := s.plan(); len(plan.Late) != 0 || len(plan.Attempts) != 0 {
		t.Errorf("late %v, attempts %v", plan.Late, plan.Attempts)
	}
}

// refusal is the result of a call that was answered with a refusal of our credentials.
func refusal(m *inbox.Message) inbox.Result {
	r := done(m, inbox.Retrying)
	r.Technical, r.Refused = true, true
	r.Message.NextAttemptAt = now.Add(minute)
	r.Event = inbox.EngineEvent{Kind: inbox.EngineRefusedUs, InboxID: m.ID, Owner: "me", LastFailedAt: m.LastFailedAt}
	return r
}

func TestWhoIsRefusedIsDecidedByWhoIsAccepted(t *testing.T) {
	failing := func(m *inbox.Message) {
		m.TechnicalFailures, m.FirstFailedAt, m.LastFailedAt = poison.Failures-1, now.Add(-2*day), now.Add(-hour)
	}
	tests := []struct {
		name   string
		change func(*inbox.Message)
		engine inbox.EngineState
		others bool // one is accepted in the same settlement, after the refusal
		want   inbox.Status
		opens  bool
	}{
		{"nobody is accepted", func(*inbox.Message) {}, inbox.EngineState{}, false, inbox.Retrying, true},
		{"others were accepted just now", func(*inbox.Message) {}, inbox.EngineState{LastAnsweredAt: now.Add(-time.Second), LastAnsweredInboxID: "other"},
			false, inbox.Retrying, false},
		{"another one is accepted with it", func(*inbox.Message) {}, inbox.EngineState{}, true, inbox.Retrying, false},
		{"it was refused too often among others", failing, inbox.EngineState{LastAnsweredAt: now.Add(-minute), LastAnsweredInboxID: "other"},
			false, inbox.Parked, false},
		{"it was refused as often, and now all are", failing, inbox.EngineState{LastAnsweredAt: now.Add(-2 * hour), LastAnsweredInboxID: "other"},
			false, inbox.Retrying, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSettle()
			m := underWay("1", tt.change)
			s.engines["e"] = tt.engine
			queue, results := []*inbox.Message{m}, []inbox.Result{refusal(m)}
			if tt.others {
				other := underWay("2")
				ok := done(other, inbox.Processed)
				ok.EndedAt = now.Add(time.Second)
				queue, results = append(queue, other), append(results, ok)
			}
			s.lane("a", true, queue, results...)
			p := s.plan()
			got := p.Messages[0]
			if got.Status != tt.want {
				t.Errorf("it becomes %s/%s, want %s", got.Status, got.Reason, tt.want)
			}
			if opens := !p.Engines[0].OpenUntil.IsZero(); opens != tt.opens {
				t.Errorf("the breaker opens: %v, want %v", opens, tt.opens)
			}
			attempts, failures, records := m.Attempts, m.TechnicalFailures+1, 1
			if tt.opens { // it is the engine's: the attempt is given back, and only its time says that it was there
				attempts, failures, records = m.Attempts-1, m.TechnicalFailures, 0
			}
			if got.Attempts != attempts || got.TechnicalFailures != failures || len(p.Attempts) != records || !got.LastFailedAt.Equal(latest) {
				t.Errorf("%d attempts, %d failures, %d records, last failed at %v; want %d, %d, %d, now", got.Attempts, got.TechnicalFailures,
					len(p.Attempts), got.LastFailedAt, attempts, failures, records)
			}
			if tt.opens && !got.NextAttemptAt.IsZero() {
				t.Errorf("it waits until %v beside its engine's pause", got.NextAttemptAt)
			}
		})
	}
}

// Failures are in a row where no answer came between them, in whatever order a settlement lists them.
func TestTheOrderOfCallsDecidesWhatIsInARow(t *testing.T) {
	s := newSettle()
	var queue []*inbox.Message
	var results []inbox.Result
	for i, id := range []string{"1", "2", "ok", "3"} {
		m := underWay(id)
		r := technical(m)
		if id == "ok" {
			r = done(m, inbox.Processed)
		}
		r.EndedAt = now.Add(time.Duration(i) * time.Second)
		queue, results = append(queue, m), append(results, r)
	}
	slices.Reverse(results)
	s.lane("a", true, queue, results...)
	if e := s.plan().Engines[0]; e.Failures != 1 || !e.OpenUntil.IsZero() {
		t.Errorf("%d failures in a row, open until %v; want 1, closed", e.Failures, e.OpenUntil)
	}
}
