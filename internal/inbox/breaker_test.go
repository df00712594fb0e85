package inbox_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

var breaker = inbox.BreakerPolicy{Failures: 3, Min: 10 * time.Second, Max: 2 * minute}

func failed(id string) inbox.EngineEvent {
	return inbox.EngineEvent{Kind: inbox.EngineFailed, InboxID: id, Owner: "other", Error: "HTTP 500"}
}

func throttled(id string, after time.Duration) inbox.EngineEvent {
	return inbox.EngineEvent{Kind: inbox.EngineThrottled, InboxID: id, Owner: "other", RetryAfter: after, Error: "HTTP 503"}
}

func refused(id string) inbox.EngineEvent {
	return inbox.EngineEvent{Kind: inbox.EngineRefusedUs, InboxID: id, Owner: "other", Error: "HTTP 401"}
}

func answered(id string) inbox.EngineEvent {
	return inbox.EngineEvent{Kind: inbox.EngineAnswered, InboxID: id, Owner: "other"}
}

func by(owner string, ev inbox.EngineEvent) inbox.EngineEvent { ev.Owner = owner; return ev }

// halfOpen is an engine whose waiting time is over, with a probe under way.
func halfOpen(reason string, openings int64) inbox.EngineState {
	return inbox.EngineState{Name: "e", Failures: 3, LastFailedInboxID: "c", OpenReason: reason, OpenUntil: now.Add(-time.Second),
		Openings: openings, ProbeOwner: "prober", ProbeUntil: now.Add(minute)}
}

func TestTheBreakerGoesThroughItsStates(t *testing.T) {
	open := func(reason string, wait time.Duration, openings int64) inbox.EngineState {
		return inbox.EngineState{OpenReason: reason, OpenUntil: now.Add(wait), Openings: openings}
	}
	openFor := func(wait time.Duration) inbox.EngineState {
		s := open(inbox.OpenTechnical, wait, 1)
		s.Failures, s.LastFailedInboxID = 3, "c"
		return s
	}
	closed := inbox.EngineState{}
	tests := []struct {
		name   string
		state  inbox.EngineState
		events []inbox.EngineEvent
		want   inbox.EngineState // OpenReason, OpenUntil, Openings and the probe are compared
	}{
		{"failures of different messages open it", closed, []inbox.EngineEvent{failed("a"), failed("b"), failed("c")},
			open(inbox.OpenTechnical, 10*time.Second, 1)},
		{"one fewer does not", closed, []inbox.EngineEvent{failed("a"), failed("b")}, closed},
		{"one message does not, however often", closed, []inbox.EngineEvent{failed("a"), failed("a"), failed("a"), failed("a")}, closed},
		{"an answer between them starts the count anew", closed,
			[]inbox.EngineEvent{failed("a"), failed("b"), answered("c"), failed("d"), failed("e")}, closed},
		{"throttling counts as a failure", closed, []inbox.EngineEvent{failed("a"), throttled("b", 0), failed("c")},
			open(inbox.OpenTechnical, 10*time.Second, 1)},
		{"throttling that says for how long opens it at once", closed, []inbox.EngineEvent{throttled("a", 7*time.Second)},
			open(inbox.OpenThrottled, 7*time.Second, 1)},
		{"throttling that says nothing does not", closed, []inbox.EngineEvent{throttled("a", 0)}, closed},
		{"a refusal of our credentials opens it at once", closed, []inbox.EngineEvent{refused("a")},
			open(inbox.OpenUnauthorised, 10*time.Second, 1)},
		{"calls under way do not push it further", closed,
			[]inbox.EngineEvent{failed("a"), failed("b"), failed("c"), failed("d"), failed("e"), failed("f"), failed("g")},
			open(inbox.OpenTechnical, 10*time.Second, 1)},
		{"nor do they where it refuses us", closed, []inbox.EngineEvent{refused("a"), refused("b"), refused("c"), failed("d")},
			open(inbox.OpenUnauthorised, 10*time.Second, 1)},
		{"the longest time an engine asks for is kept, and is one opening", closed,
			[]inbox.EngineEvent{throttled("a", 5*time.Second), throttled("b", 9*time.Second), throttled("c", 7*time.Second)},
			open(inbox.OpenThrottled, 9*time.Second, 1)},
		{"an engine that asks for less than the backoff gets the backoff", closed,
			[]inbox.EngineEvent{failed("a"), failed("b"), throttled("c", time.Second)}, open(inbox.OpenTechnical, 10*time.Second, 1)},
		{"a refusal while it is open for another reason is the reason", openFor(5 * time.Second), []inbox.EngineEvent{refused("a")},
			open(inbox.OpenUnauthorised, 20*time.Second, 2)},
		{"and does not shorten the time that it asked for", closed, []inbox.EngineEvent{throttled("a", minute), refused("b")},
			open(inbox.OpenUnauthorised, minute, 2)},
		{"the probe's success closes it", halfOpen(inbox.OpenTechnical, 4), []inbox.EngineEvent{by("prober", answered("a"))}, closed},
		{"anybody's success closes it", halfOpen(inbox.OpenTechnical, 4), []inbox.EngineEvent{answered("a")}, closed},
		{"success closes it before its time", openFor(minute), []inbox.EngineEvent{answered("a")}, closed},
		{"the probe's failure opens it for longer", halfOpen(inbox.OpenTechnical, 1), []inbox.EngineEvent{by("prober", failed("a"))},
			open(inbox.OpenTechnical, 20*time.Second, 2)},
		{"also where the probe is the message that failed last", halfOpen(inbox.OpenTechnical, 1),
			[]inbox.EngineEvent{by("prober", failed("c"))}, open(inbox.OpenTechnical, 20*time.Second, 2)},
		{"for longer and longer, up to a bound", halfOpen(inbox.OpenTechnical, 60), []inbox.EngineEvent{by("prober", failed("a"))},
			open(inbox.OpenTechnical, 2*minute, 61)},
		{"a probe that is refused", halfOpen(inbox.OpenUnauthorised, 1), []inbox.EngineEvent{by("prober", refused("a"))},
			open(inbox.OpenUnauthorised, 20*time.Second, 2)},
		{"a probe that is throttled is one opening", halfOpen(inbox.OpenTechnical, 1),
			[]inbox.EngineEvent{by("prober", throttled("a", minute))}, open(inbox.OpenThrottled, minute, 2)},
		{"a probe that finds it failing where it refused us", halfOpen(inbox.OpenUnauthorised, 1),
			[]inbox.EngineEvent{by("prober", failed("a"))}, open(inbox.OpenTechnical, 20*time.Second, 2)},
		{"a failure seen after the waiting time opens it again", halfOpen(inbox.OpenTechnical, 1), []inbox.EngineEvent{failed("a")},
			open(inbox.OpenTechnical, 20*time.Second, 2)},
		{"a probe that was not sent gives its place back", halfOpen(inbox.OpenTechnical, 1),
			[]inbox.EngineEvent{{Kind: inbox.EngineSilent, Owner: "prober"}}, inbox.EngineState{OpenReason: inbox.OpenTechnical,
				OpenUntil: now.Add(-time.Second), Openings: 1}},
		{"another one that was not sent does not", halfOpen(inbox.OpenTechnical, 1),
			[]inbox.EngineEvent{{Kind: inbox.EngineSilent, Owner: "other"}}, halfOpen(inbox.OpenTechnical, 1)},
		{"nobody is not the probe", openFor(minute), []inbox.EngineEvent{{Kind: inbox.EngineSilent}}, openFor(minute)},
		{"a failure of nobody's is not the probe's", openFor(minute), []inbox.EngineEvent{by("", failed("a"))}, openFor(minute)},
		{"an unknown event changes nothing", halfOpen(inbox.OpenTechnical, 1), []inbox.EngineEvent{{Kind: 99, Owner: "prober"}},
			halfOpen(inbox.OpenTechnical, 1)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.state
			for _, ev := range tt.events {
				before := got
				var changed bool
				got, changed = got.Apply(ev, now, breaker)
				if got != before && !changed {
					t.Errorf("%+v changed the state without saying so", ev)
				}
			}
			got = inbox.EngineState{OpenReason: got.OpenReason, OpenUntil: got.OpenUntil, Openings: got.Openings,
				ProbeOwner: got.ProbeOwner, ProbeUntil: got.ProbeUntil}
			want := inbox.EngineState{OpenReason: tt.want.OpenReason, OpenUntil: tt.want.OpenUntil, Openings: tt.want.Openings,
				ProbeOwner: tt.want.ProbeOwner, ProbeUntil: tt.want.ProbeUntil}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWhatWasNotSentChangesNothingButItsProbe(t *testing.T) {
	tests := []struct {
		state inbox.EngineState
		owner string
		want  bool
	}{
		{halfOpen(inbox.OpenTechnical, 1), "prober", true},
		{halfOpen(inbox.OpenTechnical, 1), "other", false},
		{halfOpen(inbox.OpenTechnical, 1), "", false},
		{inbox.EngineState{}, "other", false},
		{inbox.EngineState{}, "", false},
	}
	for _, tt := range tests {
		if _, got := tt.state.Apply(inbox.EngineEvent{Kind: inbox.EngineSilent, Owner: tt.owner}, now, breaker); got != tt.want {
			t.Errorf("by %q, with a probe of %q: changed %v, want %v", tt.owner, tt.state.ProbeOwner, got, tt.want)
		}
	}
}

func TestAnAnswerIsRememberedAndFailuresForgotten(t *testing.T) {
	state := halfOpen(inbox.OpenTechnical, 3)
	paused := now.Add(-hour)
	state.PausedAt = paused
	got, changed := state.Apply(answered("z"), now, breaker)
	want := inbox.EngineState{Name: "e", PausedAt: paused, LastAnsweredAt: now, LastAnsweredInboxID: "z"}
	if diff := cmp.Diff(want, got); diff != "" || !changed {
		t.Errorf("changed %v; %s", changed, diff)
	}
	if got.Closed() {
		t.Error("an operator's pause ended with an answer")
	}
}

func TestTheLastErrorIsKept(t *testing.T) {
	for _, ev := range []inbox.EngineEvent{failed("a"), throttled("a", 0), refused("a")} {
		if got, _ := (inbox.EngineState{}).Apply(ev, now, breaker); got.LastErrorMessage != ev.Error {
			t.Errorf("kept %q, want %q", got.LastErrorMessage, ev.Error)
		}
	}
}

func TestAProbeHoldsItsPlaceForItsLease(t *testing.T) {
	e := inbox.EngineState{ProbeUntil: now.Add(1)}
	if !e.Probing(now) || e.Probing(now.Add(1)) {
		t.Error("a probe holds its place until its time, and no longer")
	}
}

var poison = inbox.PoisonPolicy{Failures: 20, Over: day, LostWorkers: 5}

func TestFailuresPoisonOnlyBesideAnswersToOthers(t *testing.T) {
	const every = 2 * hour
	tests := []struct {
		name     string
		answered func(at time.Time) inbox.EngineState // what the engine did before the failure at that time
		want     int                                  // failures until poisoned; 0: never
	}{
		{"an outage", func(time.Time) inbox.EngineState { return inbox.EngineState{} }, 0},
		{"an engine that answered once, long ago", func(time.Time) inbox.EngineState {
			return inbox.EngineState{LastAnsweredAt: now.Add(-hour), LastAnsweredInboxID: "other"}
		}, 0},
		{"an engine that answers others meanwhile", func(at time.Time) inbox.EngineState {
			return inbox.EngineState{LastAnsweredAt: at.Add(-minute), LastAnsweredInboxID: "other"}
		}, 20},
		{"an engine that answers others in the same moment", func(at time.Time) inbox.EngineState {
			return inbox.EngineState{LastAnsweredAt: at, LastAnsweredInboxID: "other"}
		}, 20},
		{"an engine that answers this message only", func(at time.Time) inbox.EngineState {
			return inbox.EngineState{LastAnsweredAt: at.Add(-minute), LastAnsweredInboxID: "m"}
		}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := &inbox.Message{ID: "m"}
			got := 0
			for n := 1; n <= 100 && got == 0; n++ {
				at := now.Add(time.Duration(n) * every)
				if inbox.CountFailure(m, tt.answered(at), poison, at) {
					got = n
				}
			}
			if got != tt.want {
				t.Errorf("poisoned at failure %d, want %d", got, tt.want)
			}
			if first := now.Add(every); !m.FirstFailedAt.Equal(first) {
				t.Errorf("the first failure is at %v, want %v", m.FirstFailedAt, first)
			}
		})
	}
}

func TestManyFailuresWithinADayDoNotPoison(t *testing.T) {
	m := &inbox.Message{ID: "m"}
	at := now
	for n := 1; ; n++ {
		at = at.Add(20 * time.Minute)
		engine := inbox.EngineState{LastAnsweredAt: at, LastAnsweredInboxID: "other"}
		if inbox.CountFailure(m, engine, poison, at) {
			if since := at.Sub(m.FirstFailedAt); since < day || since > day+hour {
				t.Errorf("poisoned %v after the first failure, want a day", since)
			}
			return
		}
		if n > 100 {
			t.Fatal("never poisoned")
		}
	}
}

func TestAnOutageInTheMiddleDoesNotCount(t *testing.T) {
	m := &inbox.Message{ID: "m"}
	at, engine := now, inbox.EngineState{LastAnsweredInboxID: "other"}
	fail := func(n int, answers bool) {
		t.Helper()
		for range n {
			at = at.Add(2 * hour)
			if answers {
				engine.LastAnsweredAt = at
			}
			if inbox.CountFailure(m, engine, poison, at) {
				t.Fatalf("poisoned at failure %d", m.TechnicalFailures)
			}
		}
	}
	fail(19, true)
	fail(500, false)
	if m.OutageFailures != 500 || m.TechnicalFailures != 519 {
		t.Errorf("%d of %d failures are the outage's, want 500 of 519", m.OutageFailures, m.TechnicalFailures)
	}
	at = at.Add(2 * hour)
	engine.LastAnsweredAt = at
	if !inbox.CountFailure(m, engine, poison, at) {
		t.Error("the twentieth failure beside answers did not poison it")
	}
}

func TestAnOutageDoesNotPoisonWhatHasFailedOftenBefore(t *testing.T) {
	m := &inbox.Message{ID: "m", TechnicalFailures: 30, FirstFailedAt: now.Add(-23 * hour), LastFailedAt: now.Add(-hour)}
	if inbox.CountFailure(m, inbox.EngineState{}, poison, now.Add(2*hour)) {
		t.Error("poisoned by a failure that is the outage's")
	}
}

// Tests and operators set the columns instead of waiting for a day.
func TestBackdatedColumnsCount(t *testing.T) {
	engine := inbox.EngineState{LastAnsweredAt: now, LastAnsweredInboxID: "other"}
	base := inbox.Message{ID: "m", TechnicalFailures: 19, FirstFailedAt: now.Add(-25 * hour), LastFailedAt: now.Add(-hour)}
	tests := []struct {
		name   string
		change func(*inbox.Message)
		want   bool
	}{
		{"19 failures and a day", func(*inbox.Message) {}, true},
		{"18 failures", func(m *inbox.Message) { m.TechnicalFailures = 18 }, false},
		{"less than a day", func(m *inbox.Message) { m.FirstFailedAt = now.Add(-23 * hour) }, false},
		{"exactly a day", func(m *inbox.Message) { m.FirstFailedAt = now.Add(-day) }, true},
		{"one of them an outage's", func(m *inbox.Message) { m.OutageFailures = 1 }, false},
		{"no time of the last failure", func(m *inbox.Message) { m.LastFailedAt = time.Time{} }, true},
		{"no time at all", func(m *inbox.Message) { m.FirstFailedAt, m.LastFailedAt = time.Time{}, time.Time{} }, false},
		{"nobody was answered since the last failure", func(m *inbox.Message) { m.LastFailedAt = now }, false},
	}
	for _, tt := range tests {
		m := base
		tt.change(&m)
		if got := inbox.CountFailure(&m, engine, poison, now); got != tt.want {
			t.Errorf("%s: poisoned %v, want %v", tt.name, got, tt.want)
		}
	}
}

// A firewall answers 403 to one text, as an engine does to wrong credentials; a tenant's quota answers 429 with a time, as
// an overload does. What others are answered tells them apart.
func TestARefusalOfOneMessageAmongOthersIsNoRefusalOfUs(t *testing.T) {
	before := func(d time.Duration, ev inbox.EngineEvent) inbox.EngineEvent {
		ev.LastFailedAt = now.Add(-d)
		return ev
	}
	accepted := func(d time.Duration, id string) inbox.EngineState {
		return inbox.EngineState{LastAnsweredAt: now.Add(-d), LastAnsweredInboxID: id}
	}
	tests := []struct {
		name   string
		state  inbox.EngineState
		events []inbox.EngineEvent
		open   bool
	}{
		{"refused among others", accepted(time.Second, "other"), []inbox.EngineEvent{refused("a")}, false},
		{"refused where nobody was ever accepted", inbox.EngineState{}, []inbox.EngineEvent{refused("a")}, true},
		{"refused long after others", accepted(2*minute, "other"), []inbox.EngineEvent{refused("a")}, true},
		{"refused after it was accepted itself", accepted(time.Second, "a"), []inbox.EngineEvent{refused("a")}, true},
		{"refused again, others accepted since", accepted(hour, "other"), []inbox.EngineEvent{before(2*hour, refused("a"))}, false},
		{"refused again, nobody accepted since", accepted(time.Second, "other"), []inbox.EngineEvent{before(time.Second, refused("a"))}, true},
		{"two refused among others", accepted(time.Second, "other"), []inbox.EngineEvent{refused("a"), refused("b")}, false},
		{"as many in a row as any outage has", accepted(time.Second, "other"), []inbox.EngineEvent{refused("a"), refused("b"), refused("c")}, true},
		{"as many, one accepted among them", accepted(time.Second, "other"),
			[]inbox.EngineEvent{refused("a"), refused("b"), answered("c"), refused("d")}, false},
		{"throttled for the first time is believed", accepted(time.Second, "other"), []inbox.EngineEvent{throttled("a", minute)}, true},
		{"throttled again, others answered since", accepted(hour, "other"), []inbox.EngineEvent{before(2*hour, throttled("a", minute))}, false},
		{"throttled again, nobody answered since", accepted(hour, "other"), []inbox.EngineEvent{before(hour, throttled("a", minute))}, true},
		{"refused as the probe", func() inbox.EngineState {
			s := halfOpen(inbox.OpenUnauthorised, 1)
			s.LastAnsweredAt, s.LastAnsweredInboxID = now.Add(-time.Second), "other"
			return s
		}(), []inbox.EngineEvent{by("prober", before(hour, refused("a")))}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.state
			for _, ev := range tt.events {
				got, _ = got.Apply(ev, now, breaker)
			}
			if got.OpenUntil.After(now) != tt.open {
				t.Errorf("open until %v (%s), want open: %v", got.OpenUntil, got.OpenReason, tt.open)
			}
			if got.ProbeOwner != "" {
				t.Error("the probe keeps its place")
			}
		})
	}
}
