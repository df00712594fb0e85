package relayer

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/routing"
)

// worker calls the messages of one lane, one after another.
type worker struct {
	*run
	lane *activeLane
	load *loader
}

// work answers for each message of the lane exactly once, whatever happens. It must not touch what the run's loop owns.
func (w worker) work(ctx context.Context) {
	started := true
	for i, m := range w.lane.messages {
		// What is behind a message that could not be started, or that stays in front, waits for its turn.
		var res inbox.Result
		if started {
			res = w.one(ctx, m, i == 0)
			started = res.Message.Status.Finished() || (res.Message.Status == inbox.Parked && !res.Message.Blocks)
		} else {
			res = w.notStarted(m)
		}
		select {
		case w.results <- laneResult{lane: w.lane, result: res}:
		case <-w.over: // the run has broken off: the lease ends, and whoever claims then asks
			return
		}
	}
}

func (w worker) notStarted(m *inbox.Message) inbox.Result {
	return w.attempt(m, w.Now()).Settle(inbox.Answer{Verdict: engine.NotStarted}, nil)
}

// attempt is the attempt at m that began at started and ends now, on the local clock.
func (w worker) attempt(m *inbox.Message, started time.Time) inbox.Attempt {
	policy := w.Routes[m.Route]
	local := w.Now()
	return inbox.Attempt{Message: m, Engine: policy.Engine, Owner: w.owner, Revision: w.Revision,
		Retry:   inbox.RetryPolicy{Patience: policy.Patience, Min: policy.RetryMin, Max: policy.RetryMax},
		Timeout: w.Engines[policy.Engine].Properties().Timeout,
		Started: w.lane.clock.Latest(started), Ended: w.lane.clock.Latest(local)}
}

// one takes one message through its engine.
func (w worker) one(ctx context.Context, m *inbox.Message, first bool) inbox.Result {
	policy := w.Routes[m.Route]
	eng := w.Engines[policy.Engine]
	waiting, cancel := stopWith(ctx, w.stopping)
	defer cancel()
	if err := w.slots.acquire(waiting, policy.Engine, first); err != nil {
		return w.notStarted(m)
	}
	defer w.slots.release(policy.Engine)
	if !w.mayStart(eng) {
		return w.notStarted(m)
	}
	reading, done := w.whileLeased(ctx)
	content, ok, err := w.load.get(reading, m)
	done()
	if err != nil {
		w.Log.ErrorContext(ctx, "loading a message failed", "inboxId", m.ID, "error", err)
		return w.finish(m, w.Now(), notAsked("LOAD", "its payload could not be read from the database"))
	}
	if !ok {
		return w.notStarted(m) // deleted by hand: there is nothing to settle either
	}
	if out, ok := w.fetch(ctx, m, &content); !ok {
		return w.finish(m, w.Now(), out)
	}
	started := w.Now()
	ctx, traceParent, ended := w.Observer.Attempt(ctx, m, policy.Engine, content.TraceParent)
	content.TraceParent = traceParent
	out := w.correlate(ctx, eng, m, content)
	if out.Verdict != engine.NotStarted {
		ended(string(out.Verdict))
	}
	res := w.finish(m, started, out)
	res.Type, res.TenantID = content.Type, content.TenantID
	return res
}

func (w worker) finish(m *inbox.Message, started time.Time, ans inbox.Answer) inbox.Result {
	return w.attempt(m, started).Settle(ans, w.Rand())
}

// answered is what an engine has answered.
func answered(res engine.Result) inbox.Answer {
	return inbox.Answer{Verdict: res.Verdict, Code: res.Code, Detail: res.Detail, Reference: res.Reference, RetryAfter: res.RetryAfter,
		NotAsked: res.NotAsked}
}

// notAsked is a failure of our own: it is tried again with backoff, so that it cannot spin.
func notAsked(code, detail string) inbox.Answer {
	return inbox.Answer{Verdict: engine.Technical, Code: code, Detail: detail, NotAsked: true}
}

// parked is a finding that needs a person, made without the engine.
func parked(reason inbox.Reason, code, detail string) inbox.Answer {
	return inbox.Answer{Verdict: engine.Rejected, Code: code, Detail: detail, Reason: reason, NotAsked: true}
}

// mayStart reports whether a call may begin: nothing starts that its lease might not outlast.
func (w worker) mayStart(eng engine.Engine) bool {
	return !w.stopped() && !w.Now().Add(2*eng.Properties().Timeout).After(w.lane.leaseEnds)
}

// whileLeased returns the context of what a message needs before its call: it ends with the lease.
func (w worker) whileLeased(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, min(readLimit, w.lane.leaseEnds.Sub(w.Now())))
}

func (w worker) correlate(ctx context.Context, eng engine.Engine, m *inbox.Message, content inbox.Content) inbox.Answer {
	if !content.HasBody {
		return parked(inbox.ClaimMissing, "PAYLOAD_GONE", "the payload has been deleted")
	}
	input := routing.Input{
		MessageID: content.MessageID, OrderingKey: content.OrderingKey, Subscription: content.Subscription,
		PublishTime: content.PublishedAt, Attributes: content.Attributes, Payload: content.Body,
	}
	if out, ok := w.claim(ctx, m, &input); !ok {
		return out
	}
	call, err := w.Router.Call(m.Route, input, content.Type, content.Version)
	var contract *routing.ContractError
	if errors.As(err, &contract) {
		return parked(inbox.Contract, "CONTRACT", contract.Detail)
	}
	if err != nil {
		w.Log.ErrorContext(ctx, "evaluating a route failed", "inboxId", m.ID, "route", m.Route, "error", err)
		return notAsked("ROUTE", "its route could not be evaluated")
	}
	delivery := engine.Delivery{
		InboxID: m.ID, Attempt: m.Attempts, Consumer: w.Consumer, Route: m.Route, Message: call.Message, Key: m.Key,
		Start:       w.Routes[m.Route].Start,
		MessageType: content.Type, PublishedAt: content.PublishedAt, TraceParent: content.TraceParent,
		Variables: call.Variables, Payload: content.Body, ContentType: content.ContentType,
		ContentEncoding: inbox.ContentEncoding(content.Attributes),
		BeforeSend:      func() bool { return w.mayStart(eng) },
	}
	if c := input.Claim; c != nil {
		delivery.DataRef = c.Pinned()
		if c.Content != nil && delivery.Variables == nil {
			delivery.Payload, delivery.ContentType, delivery.ContentEncoding = c.Content, c.ContentType, ""
		}
	}
	if !w.mayStart(eng) {
		// Everything before this may have been slow. The adapter asks once more just before it sends.
		return inbox.Answer{Verdict: engine.NotStarted}
	}
	if m.OutcomeUnknown {
		if out, done := w.probe(ctx, eng, delivery); done {
			return out
		}
	}
	res := w.call(ctx, eng, m, delivery)
	if res.Verdict == engine.Vanished && w.mayStart(eng) {
		// The waiting instance may just have moved: one look more, then a person. That nobody waits now is what "vanished"
		// means, and no reason to have patience.
		if again := w.call(ctx, eng, m, delivery); again.Verdict != engine.NotWaiting && again.Verdict != engine.NotStarted {
			res = again
		}
	}
	if res.Verdict == engine.NotWaiting {
		if a := w.attempt(m, w.Now()); a.PatienceEnds(res.Code) {
			return w.patienceEnded(ctx, eng, delivery, res)
		}
	}
	return answered(res)
}

func (w worker) call(ctx context.Context, eng engine.Engine, m *inbox.Message, d engine.Delivery) engine.Result {
	began := w.Now()
	res := eng.Correlate(ctx, d)
	if res.Verdict != engine.NotStarted {
		w.Observer.Called(ctx, w.Routes[m.Route].Engine, string(res.Verdict), w.Now().Sub(began))
	}
	return res
}

// probe decides about a message that may have been delivered. It reports done unless the message is to be sent (again).
func (w worker) probe(ctx context.Context, eng engine.Engine, d engine.Delivery) (inbox.Answer, bool) {
	prober, ok := eng.(engine.Prober)
	if !ok || !eng.Properties().Probe {
		if eng.Properties().Idempotent {
			return inbox.Answer{}, false
		}
		return parked(inbox.PossiblyDelivered, "UNKNOWN_OUTCOME",
			"an earlier delivery had an unknown outcome, and the engine can neither be asked nor take it twice"), true
	}
	found, res := prober.Probe(ctx, d)
	switch found {
	case engine.ProbeFound:
		res.Verdict = engine.Duplicate
	case engine.ProbeWaiting:
		return inbox.Answer{}, false
	case engine.ProbeGone:
		return inbox.Answer{Verdict: engine.Rejected, Code: res.Code, Detail: res.Detail, Reference: res.Reference, NotAsked: res.NotAsked,
			Reason: inbox.PossiblyDelivered}, true
	}
	return answered(res), true
}

// patienceEnded looks into history before a message is parked for want of an instance.
func (w worker) patienceEnded(ctx context.Context, eng engine.Engine, d engine.Delivery, res engine.Result) inbox.Answer {
	historian, ok := eng.(engine.Historian)
	if !ok {
		return answered(res)
	}
	// However little of the lease is left: it only reads, and an answer that comes too late changes nothing.
	switch through := historian.Through(ctx, d); through.Verdict {
	case engine.NotWaiting:
		return answered(res)
	default:
		return answered(through)
	}
}

// stopWith returns a context that ends with ctx or when stop is closed.
func stopWith(ctx context.Context, stop <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		select {
		case <-stop:
			cancel()
		case <-done:
		case <-ctx.Done():
		}
	}()
	var once sync.Once
	return ctx, func() { once.Do(func() { close(done) }); cancel() }
}
