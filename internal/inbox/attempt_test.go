package inbox_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

var (
	callBegan = time.Date(2026, 3, 2, 8, 15, 30, 0, time.UTC)
	callEnded = callBegan.Add(time.Second)
)

// tried is a message at its third attempt, and the attempt.
func tried(changes ...func(*inbox.Attempt, *inbox.Message)) inbox.Attempt {
	m := &inbox.Message{ID: "m", Status: inbox.Processing, Attempts: 3, ProcessingStartedAt: callBegan}
	a := inbox.Attempt{Message: m, Engine: "e", Owner: "me", Timeout: 5 * time.Second, Started: callBegan, Ended: callEnded,
		Retry: inbox.RetryPolicy{Patience: 24 * time.Hour, Min: 10 * time.Second, Max: 10 * time.Minute}}
	for _, change := range changes {
		change(&a, m)
	}
	return a
}

func seeded() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

func between(t *testing.T, what string, got, low, high time.Duration) {
	t.Helper()
	if got < low || got > high {
		t.Errorf("%s: %v, want %v to %v", what, got, low, high)
	}
}

func TestEachVerdictHasItsNextState(t *testing.T) {
	tests := []struct {
		verdict   inbox.Verdict
		status    inbox.Status
		reason    inbox.Reason
		event     inbox.EngineEventKind
		low, high time.Duration // of the wait after the call; zero: none
		record    bool          // an Attempts row is kept
		technical bool          // counts towards poison
		unknown   bool          // the outcome
		attempts  int64
	}{
		{inbox.VerdictCorrelated, inbox.Processed, "", inbox.EngineAnswered, 0, 0, false, false, false, 3},
		{inbox.VerdictDuplicate, inbox.Processed, "", inbox.EngineAnswered, 0, 0, false, false, false, 3},
		{inbox.VerdictHandedOver, inbox.Processed, "", inbox.EngineAnswered, 0, 0, false, false, false, 3},
		{inbox.VerdictNotWaiting, inbox.Retrying, "", inbox.EngineAnswered, 20 * time.Second, 40 * time.Second, true, false, false, 3},
		{inbox.VerdictAlreadyThrough, inbox.Parked, inbox.AlreadyThrough, inbox.EngineAnswered, 0, 0, true, false, false, 3},
		{inbox.VerdictAmbiguous, inbox.Parked, inbox.Ambiguous, inbox.EngineAnswered, 0, 0, true, false, false, 3},
		{inbox.VerdictVanished, inbox.Parked, inbox.Vanished, inbox.EngineAnswered, 0, 0, true, false, false, 3},
		{inbox.VerdictRejected, inbox.Parked, inbox.Rejected, inbox.EngineAnswered, 0, 0, true, false, false, 3},
		{inbox.VerdictRetryAfter, inbox.Retrying, "", inbox.EngineAnswered, 10 * time.Second, 10 * time.Second, true, false, false, 3},
		{inbox.VerdictTechnical, inbox.Retrying, "", inbox.EngineFailed, 5 * time.Second, 10 * time.Second, true, true, false, 3},
		{inbox.VerdictThrottled, inbox.Retrying, "", inbox.EngineThrottled, 5 * time.Second, 10 * time.Second, true, true, false, 3},
		{inbox.VerdictUnauthorised, inbox.Retrying, "", inbox.EngineRefusedUs, 5 * time.Second, 10 * time.Second, true, true, false, 3},
		{inbox.VerdictUnknown, inbox.Retrying, "", inbox.EngineFailed, 9 * time.Second, 10 * time.Second, true, true, true, 3},
		{inbox.VerdictDrop, inbox.Discarded, "", inbox.EngineAnswered, 0, 0, true, false, false, 3},
		{inbox.VerdictNotStarted, inbox.Retrying, "", inbox.EngineSilent, 0, 0, false, false, false, 2},
		{"SOMETHING_NEW", inbox.Retrying, "", inbox.EngineFailed, 5 * time.Second, 10 * time.Second, true, true, false, 3},
	}
	for _, tt := range tests {
		t.Run(string(tt.verdict), func(t *testing.T) {
			a := tried()
			before := *a.Message
			got := a.Settle(inbox.Answer{Verdict: tt.verdict, Code: "CODE", Detail: "a sentence", Reference: "instance-1"}, seeded())
			m := got.Message
			if m.Status != tt.status || m.Reason != tt.reason {
				t.Errorf("it becomes %s/%s, want %s/%s", m.Status, m.Reason, tt.status, tt.reason)
			}
			if got.Event.Kind != tt.event || got.Event.InboxID != "m" || got.Event.Owner != "me" {
				t.Errorf("the event is %+v, want kind %d of m by us", got.Event, tt.event)
			}
			if tt.high == 0 && !m.NextAttemptAt.IsZero() {
				t.Errorf("the next attempt is at %v, want none set", m.NextAttemptAt)
			} else if tt.high != 0 {
				between(t, "the wait", m.NextAttemptAt.Sub(callEnded), tt.low, tt.high)
			}
			if got.Technical != tt.technical || m.OutcomeUnknown != tt.unknown || m.Attempts != tt.attempts {
				t.Errorf("technical %v, outcome unknown %v, attempts %d; want %v, %v, %d", got.Technical, m.OutcomeUnknown, m.Attempts,
					tt.technical, tt.unknown, tt.attempts)
			}
			if m.HandedOver != (tt.verdict == inbox.VerdictHandedOver) || m.EngineReference != "instance-1" {
				t.Errorf("handed over %v, reference %q", m.HandedOver, m.EngineReference)
			}
			if got.Number != 3 || got.Engine != "e" || !got.StartedAt.Equal(callBegan) || !got.EndedAt.Equal(callEnded) {
				t.Errorf("the result is of attempt %d at %s, %v to %v", got.Number, got.Engine, got.StartedAt, got.EndedAt)
			}
			var want *inbox.AttemptRecord
			if tt.record {
				want = &inbox.AttemptRecord{Number: 3, StartedAt: callBegan, EndedAt: callEnded, Verdict: string(tt.verdict), ErrorCode: "CODE",
					ErrorMessage: "a sentence", Engine: "e", Owner: "me"}
				if m.LastErrorCode != "CODE" || m.LastErrorMessage != "a sentence" {
					t.Errorf("the last error is %q %q", m.LastErrorCode, m.LastErrorMessage)
				}
			}
			if diff := cmp.Diff(want, got.Attempt); diff != "" {
				t.Errorf("attempt: %s", diff)
			}
			if diff := cmp.Diff(before, *a.Message); diff != "" {
				t.Errorf("the claimed message changed: %s", diff)
			}
		})
	}
}

func TestASuccessLeavesNoTraceOfEarlierErrors(t *testing.T) {
	a := tried(func(_ *inbox.Attempt, m *inbox.Message) {
		m.OutcomeUnknown, m.Reason, m.LastErrorCode, m.LastErrorMessage = true, inbox.Ambiguous, "HTTP 500", "it failed"
	})
	m := a.Settle(inbox.Answer{Verdict: inbox.VerdictDuplicate}, seeded()).Message
	if m.OutcomeUnknown || m.Reason != "" || m.LastErrorCode != "" || m.LastErrorMessage != "" {
		t.Errorf("left: unknown %v, reason %q, error %q %q", m.OutcomeUnknown, m.Reason, m.LastErrorCode, m.LastErrorMessage)
	}
}

func TestAnErrorWithoutACodeIsCalledByItsVerdict(t *testing.T) {
	if got := tried().Settle(inbox.Answer{Verdict: inbox.VerdictTechnical}, seeded()).Message.LastErrorCode; got != "TECHNICAL" {
		t.Errorf("got %q, want TECHNICAL", got)
	}
}

// While an earlier delivery may have had its effect, "nobody waits" and "already through" may be that effect.
func TestAnUnknownOutcomeTurnsSomeReasonsIntoAQuestion(t *testing.T) {
	for verdict, want := range map[inbox.Verdict]inbox.Reason{
		inbox.VerdictAlreadyThrough: inbox.PossiblyDelivered,
		inbox.VerdictNotWaiting:     inbox.PossiblyDelivered, // patience is over
		inbox.VerdictAmbiguous:      inbox.Ambiguous,
		inbox.VerdictVanished:       inbox.Vanished,
		inbox.VerdictRejected:       inbox.Rejected,
	} {
		a := tried(func(a *inbox.Attempt, m *inbox.Message) { m.OutcomeUnknown, a.Retry.Patience = true, 0 })
		m := a.Settle(inbox.Answer{Verdict: verdict}, seeded()).Message
		if m.Status != inbox.Parked || m.Reason != want || !m.OutcomeUnknown {
			t.Errorf("%s: %s/%s, outcome unknown %v; want PARKED/%s, true", verdict, m.Status, m.Reason, m.OutcomeUnknown, want)
		}
		if !m.FirstFailedAt.Equal(callEnded) || !m.LastFailedAt.Equal(callEnded) {
			t.Errorf("%s: failed %v to %v, want %v", verdict, m.FirstFailedAt, m.LastFailedAt, callEnded)
		}
	}
}

func TestPatienceIsAddedUpBetweenAnswers(t *testing.T) {
	const h = time.Hour
	tests := []struct {
		name         string
		used         time.Duration
		last         time.Duration // before now; zero: the last answer was another one
		patience     time.Duration
		wantUsed     time.Duration
		parked       bool
		low, high    time.Duration
		patienceOver bool // as the relay asks before it looks into history
	}{
		{"the first answer uses none", 0, 0, 24 * h, 0, false, 20 * time.Second, 40 * time.Second, false},
		{"the time since the last one is used", 2 * h, h, 24 * h, 3 * h, false, 20 * time.Second, 40 * time.Second, false},
		{"an outage between is not", 2 * h, 0, 24 * h, 2 * h, false, 20 * time.Second, 40 * time.Second, false},
		{"it ends", 23 * h, h, 24 * h, 24 * h, true, 0, 0, true},
		{"it ends late", 23 * h, 5 * h, 24 * h, 28 * h, true, 0, 0, true},
		{"no patience at all", 0, 0, 0, 0, true, 0, 0, true},
		{"the last try comes when it ends", 23*h + 59*time.Minute + 50*time.Second, 5 * time.Second, 24 * h, 24*h - 5*time.Second, false,
			5 * time.Second, 5 * time.Second, false},
		{"though not in the same moment", 24*h - 2*time.Millisecond, time.Millisecond, 24 * h, 24*h - time.Millisecond, false,
			10 * time.Millisecond, 10 * time.Millisecond, false},
		{"a clock that went back uses none", 2 * h, -h, 24 * h, 2 * h, false, 20 * time.Second, 40 * time.Second, false},
		{"it ended before the configuration changed", 5 * h, 0, 4 * h, 5 * h, true, 0, 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := tried(func(a *inbox.Attempt, m *inbox.Message) {
				m.PatienceUsed, a.Retry.Patience = tt.used, tt.patience
				if tt.last != 0 {
					m.LastNotWaitingAt = callEnded.Add(-tt.last)
				}
			})
			if got := a.PatienceEnds(""); got != tt.patienceOver {
				t.Errorf("patience ends: %v, want %v", got, tt.patienceOver)
			}
			m := a.Settle(inbox.Answer{Verdict: inbox.VerdictNotWaiting}, seeded()).Message
			if m.PatienceUsed != tt.wantUsed || !m.LastNotWaitingAt.Equal(callEnded) {
				t.Errorf("used %v since %v, want %v since %v", m.PatienceUsed, m.LastNotWaitingAt, tt.wantUsed, callEnded)
			}
			if parked := m.Status == inbox.Parked && m.Reason == inbox.NoWaitingInstance; parked != tt.parked {
				t.Errorf("it becomes %s/%s, want parked: %v", m.Status, m.Reason, tt.parked)
			}
			if !tt.parked {
				between(t, "the wait", m.NextAttemptAt.Sub(callEnded), tt.low, tt.high)
			}
		})
	}
}

func TestEveryOtherAnswerStopsTheClockOfPatience(t *testing.T) {
	for _, v := range []inbox.Verdict{inbox.VerdictTechnical, inbox.VerdictThrottled, inbox.VerdictUnknown, inbox.VerdictRetryAfter, inbox.VerdictAmbiguous} {
		a := tried(func(_ *inbox.Attempt, m *inbox.Message) {
			m.PatienceUsed, m.LastNotWaitingAt = time.Hour, callEnded.Add(-time.Hour)
		})
		m := a.Settle(inbox.Answer{Verdict: v}, seeded()).Message
		if !m.LastNotWaitingAt.IsZero() || m.PatienceUsed != time.Hour {
			t.Errorf("%s: used %v since %v, want 1h, and no clock running", v, m.PatienceUsed, m.LastNotWaitingAt)
		}
	}
}

func TestNotWaitingBacksOffByAttemptsAndIsBounded(t *testing.T) {
	for attempts, want := range map[int64]time.Duration{1: 10 * time.Second, 2: 20 * time.Second, 4: 80 * time.Second, 7: 10 * time.Minute, 1 << 40: 10 * time.Minute} {
		a := tried(func(_ *inbox.Attempt, m *inbox.Message) { m.Attempts = attempts })
		m := a.Settle(inbox.Answer{Verdict: inbox.VerdictNotWaiting}, seeded()).Message
		between(t, fmt.Sprintf("the wait after attempt %d", attempts), m.NextAttemptAt.Sub(callEnded), want/2, want)
	}
}

func TestAnEngineMayAskForTimeWithinBounds(t *testing.T) {
	const h = time.Hour
	tests := []struct {
		name                       string
		verdict                    inbox.Verdict
		asked, retryMin, retryMax_ time.Duration
		low, high                  time.Duration // of the message's wait
		event                      time.Duration // what the engine's breaker is told
	}{
		{"not said", inbox.VerdictRetryAfter, 0, 10 * time.Second, 10 * time.Minute, 10 * time.Second, 10 * time.Second, 0},
		{"less than the least", inbox.VerdictRetryAfter, time.Second, 10 * time.Second, 10 * time.Minute, 10 * time.Second, 10 * time.Second, time.Second},
		{"in between", inbox.VerdictRetryAfter, 30 * time.Minute, 10 * time.Second, 10 * time.Minute, 30 * time.Minute, 30 * time.Minute, 30 * time.Minute},
		{"an hour at most", inbox.VerdictRetryAfter, 24 * h, 10 * time.Second, 10 * time.Minute, h, h, h},
		{"or as long as the route would wait", inbox.VerdictRetryAfter, 24 * h, 10 * time.Second, 6 * h, 6 * h, 6 * h, 6 * h},
		{"a negative time", inbox.VerdictRetryAfter, -h, 10 * time.Second, 10 * time.Minute, 10 * time.Second, 10 * time.Second, -h},
		{"throttled, not said", inbox.VerdictThrottled, 0, 10 * time.Second, 10 * time.Minute, 5 * time.Second, 10 * time.Second, 0},
		{"throttled, less than the backoff", inbox.VerdictThrottled, time.Second, 10 * time.Second, 10 * time.Minute, 5 * time.Second, 10 * time.Second, time.Second},
		{"throttled, more", inbox.VerdictThrottled, 5 * time.Minute, 10 * time.Second, 10 * time.Minute, 5 * time.Minute, 5 * time.Minute, 5 * time.Minute},
		{"throttled, too much", inbox.VerdictThrottled, 24 * h, 10 * time.Second, 10 * time.Minute, h, h, h},
		{"technical, with a time", inbox.VerdictTechnical, 5 * time.Minute, 10 * time.Second, 10 * time.Minute, 5 * time.Minute, 5 * time.Minute, 5 * time.Minute},
		{"technical, too much", inbox.VerdictTechnical, 24 * h, 10 * time.Second, 10 * time.Minute, h, h, h},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := tried(func(a *inbox.Attempt, _ *inbox.Message) { a.Retry.Min, a.Retry.Max = tt.retryMin, tt.retryMax_ })
			got := a.Settle(inbox.Answer{Verdict: tt.verdict, RetryAfter: tt.asked}, seeded())
			between(t, "the wait", got.Message.NextAttemptAt.Sub(callEnded), tt.low, tt.high)
			if got.Event.RetryAfter != tt.event {
				t.Errorf("the breaker is told %v, want %v", got.Event.RetryAfter, tt.event)
			}
		})
	}
}

// What keeps a message from being asked after its planned time, for however long, uses no patience: nobody has said
// meanwhile that nobody waits.
func TestPatienceCountsNoMoreThanThePlannedWait(t *testing.T) {
	const h = time.Hour
	tests := []struct {
		name          string
		last, planned time.Duration // before the answer
		want          time.Duration
	}{
		{"asked when it was planned", 10 * time.Minute, 0, 10 * time.Minute},
		{"asked a day later", 25 * h, 25*h - 10*time.Minute, 10 * time.Minute},
		{"asked before its time, by a person", 10 * time.Minute, -10 * time.Minute, 10 * time.Minute},
		{"a plan that is older than the answer", h, 2 * h, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := tried(func(a *inbox.Attempt, m *inbox.Message) {
				m.LastNotWaitingAt, m.PlannedAt = callEnded.Add(-tt.last), callEnded.Add(-tt.planned)
			})
			if got := a.Settle(inbox.Answer{Verdict: inbox.VerdictNotWaiting}, seeded()).Message; got.PatienceUsed != tt.want || got.Status != inbox.Retrying {
				t.Errorf("used %v, %s; want %v, RETRYING", got.PatienceUsed, got.Status, tt.want)
			}
		})
	}
}

// The failure itself is counted when it is stored: what others were answered meanwhile decides what it is.
func TestTechnicalFailuresAreCountedWhereTheyAreStored(t *testing.T) {
	for _, v := range []inbox.Verdict{inbox.VerdictTechnical, inbox.VerdictUnknown, inbox.VerdictThrottled, inbox.VerdictUnauthorised} {
		a := tried(func(_ *inbox.Attempt, m *inbox.Message) { m.TechnicalFailures = 5 })
		got := a.Settle(inbox.Answer{Verdict: v}, seeded())
		if got.Message.TechnicalFailures != 5 || !got.Technical {
			t.Errorf("%s: %d failures, technical %v; want 5, true", v, got.Message.TechnicalFailures, got.Technical)
		}
		between(t, "the wait of the sixth failure", got.Message.NextAttemptAt.Sub(callEnded), 160*time.Second, 320*time.Second)
	}
}

func TestAnUnknownOutcomeIsNotLookedUpBeforeTwiceTheTimeout(t *testing.T) {
	tests := []struct {
		name    string
		timeout time.Duration
		took    time.Duration
		low     time.Duration // after the call began
		high    time.Duration
	}{
		{"a long timeout decides", time.Minute, time.Minute, 2 * time.Minute, 2 * time.Minute},
		{"also where the call broke at once", time.Minute, 0, 2 * time.Minute, 2 * time.Minute},
		{"the backoff decides where it is longer", time.Second, time.Second, 6 * time.Second, 11 * time.Second},
		{"nothing is left to wait for", time.Second, time.Hour, time.Hour + 5*time.Second, time.Hour + 10*time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := tried(func(a *inbox.Attempt, _ *inbox.Message) { a.Timeout, a.Ended = tt.timeout, callBegan.Add(tt.took) })
			m := a.Settle(inbox.Answer{Verdict: inbox.VerdictUnknown}, seeded()).Message
			between(t, "the next attempt, after the call began", m.NextAttemptAt.Sub(callBegan), tt.low, tt.high)
			if !m.OutcomeUnknown || m.Status != inbox.Retrying {
				t.Errorf("outcome unknown %v, %s", m.OutcomeUnknown, m.Status)
			}
		})
	}
}

func TestWhatWasNotHandledIsGivenBackAsItWas(t *testing.T) {
	tests := []struct {
		name   string
		change func(*inbox.Message)
		want   inbox.Status
	}{
		{"a first attempt", func(m *inbox.Message) { m.Attempts = 1 }, inbox.Received},
		{"a later one", func(m *inbox.Message) { m.Attempts = 2 }, inbox.Retrying},
		{"a first one after an unknown outcome", func(m *inbox.Message) { m.Attempts, m.OutcomeUnknown = 1, true }, inbox.Retrying},
		{"a first one after a lost worker", func(m *inbox.Message) { m.Attempts, m.LostWorkers = 1, 1 }, inbox.Retrying},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			asked, planned := callEnded.Add(-time.Hour), callBegan.Add(-time.Second)
			a := tried(func(_ *inbox.Attempt, m *inbox.Message) {
				m.LastNotWaitingAt, m.PatienceUsed, m.TechnicalFailures, m.FirstFailedAt = asked, time.Minute, 4, asked
				m.LastErrorCode, m.LastErrorMessage, m.PlannedAt = "HTTP 404", "nobody waits", planned
				tt.change(m)
			})
			want := *a.Message
			want.Status, want.Attempts, want.NextAttemptAt = tt.want, want.Attempts-1, planned
			got := a.Settle(inbox.Answer{Verdict: inbox.VerdictNotStarted}, nil) // nothing random about it
			if diff := cmp.Diff(want, *got.Message); diff != "" {
				t.Error(diff)
			}
			if got.Attempt != nil || got.Technical {
				t.Errorf("attempt %+v, technical %v; want neither", got.Attempt, got.Technical)
			}
		})
	}
}

// Whatever its verdict, a finding that is the adapter's own says nothing about the engine: neither that it is there, nor
// that the worker who found it would survive a call.
func TestWhatAnAdapterFindsWithoutItsEngineIsSilentAboutIt(t *testing.T) {
	for _, v := range []inbox.Verdict{inbox.VerdictRejected, inbox.VerdictNotWaiting, inbox.VerdictTechnical, inbox.VerdictCorrelated, inbox.VerdictUnauthorised} {
		a := tried(func(_ *inbox.Attempt, m *inbox.Message) { m.LostWorkers = 3 })
		got := a.Settle(inbox.Answer{Verdict: v, NotAsked: true}, seeded())
		if got.Event.Kind != inbox.EngineSilent || got.Message.LostWorkers != 3 {
			t.Errorf("%s: the event is of kind %d and %d workers are lost, want %d, 3", v, got.Event.Kind, got.Message.LostWorkers, inbox.EngineSilent)
		}
	}
}

func TestOnlyADefiniteAnswerClearsTheSuspicion(t *testing.T) {
	for v, cleared := range map[inbox.Verdict]bool{
		inbox.VerdictCorrelated: true, inbox.VerdictDuplicate: true, inbox.VerdictHandedOver: true, inbox.VerdictNotWaiting: true, inbox.VerdictAlreadyThrough: true,
		inbox.VerdictAmbiguous: true, inbox.VerdictVanished: true, inbox.VerdictRejected: true, inbox.VerdictRetryAfter: true, inbox.VerdictDrop: true,
		inbox.VerdictTechnical: false, inbox.VerdictThrottled: false, inbox.VerdictUnauthorised: false, inbox.VerdictUnknown: false, inbox.VerdictNotStarted: false,
	} {
		a := tried(func(_ *inbox.Attempt, m *inbox.Message) { m.LostWorkers = 3 })
		if got := a.Settle(inbox.Answer{Verdict: v}, seeded()).Message.LostWorkers; (got == 0) != cleared {
			t.Errorf("%s leaves %d lost workers, want cleared: %v", v, got, cleared)
		}
	}
}

func TestAnEarlierReferenceSurvivesAnAnswerWithoutOne(t *testing.T) {
	a := tried(func(_ *inbox.Attempt, m *inbox.Message) { m.EngineReference = "instance-1" })
	if got := a.Settle(inbox.Answer{Verdict: inbox.VerdictTechnical}, seeded()).Message.EngineReference; got != "instance-1" {
		t.Errorf("the reference is %q, want instance-1", got)
	}
}
