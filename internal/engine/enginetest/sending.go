package enginetest

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
)

// sendingChecks ask what becomes of a delivery when sending it, or getting its answer, goes wrong.
var sendingChecks = []check{
	{name: "nothing is sent where BeforeSend forbids it", test: func(f *fixture) {
		f.world.Start(f.key, message)
		d := delivery(f.key)
		d.BeforeSend = func() bool { return false }
		f.want(f.correlate(f.Context(), f.world.Engine(ordinary), d), engine.NotStarted)
		f.wantArrived(f.key, 0)
		f.wantAdvanced(f.key, 0)
	}},
	{name: "BeforeSend is asked before anything arrives", test: func(f *fixture) {
		f.world.Start(f.key, message)
		d, asked := delivery(f.key), 0
		d.BeforeSend = func() bool {
			asked++
			f.wantArrived(f.key, 0)
			f.wantAdvanced(f.key, 0)
			return true
		}
		f.want(f.correlate(f.Context(), f.world.Engine(ordinary), d), engine.Correlated)
		if asked == 0 {
			f.Error("BeforeSend was not asked")
		}
		f.wantAdvanced(f.key, 1)
	}},
	{name: "a delivery that was forbidden can be made later", test: func(f *fixture) {
		f.world.Start(f.key, message)
		e, d := f.world.Engine(ordinary), delivery(f.key)
		d.BeforeSend = func() bool { return false }
		f.want(f.correlate(f.Context(), e, d), engine.NotStarted)
		d.BeforeSend = nil
		f.want(f.correlate(f.Context(), e, d), engine.Correlated)
		f.wantAdvanced(f.key, 1)
	}},
	{name: "a call that is cancelled before it begins sends nothing", test: func(f *fixture) {
		f.world.Start(f.key, message)
		ctx, cancel := context.WithCancel(f.Context())
		cancel()
		f.want(f.correlate(ctx, f.world.Engine(ordinary), delivery(f.key)), engine.NotStarted, engine.Technical)
		f.wantArrived(f.key, 0)
		f.wantAdvanced(f.key, 0)
	}},
	{name: "a refused connection is technical and heals", needs: []Ability{Refusal}, test: func(f *fixture) {
		f.world.Start(f.key, message)
		e, d := f.world.Engine(ordinary), delivery(f.key)
		f.world.Set(Refused)
		r := f.correlate(f.Context(), e, d)
		f.want(r, engine.Technical)
		if r.NotAsked {
			f.Error("an engine that cannot be reached is taken for one that was not asked")
		}
		f.wantAdvanced(f.key, 0)
		if p, ok := e.(engine.Prober); ok {
			f.want(f.wantProbe(p, d, engine.ProbeFailed), engine.Technical, engine.Throttled, engine.Unauthorised)
		}
		f.world.Set(Healthy)
		f.want(f.correlate(f.Context(), e, again(d)), engine.Correlated)
		f.wantAdvanced(f.key, 1)
	}},
	{name: "what is found without the engine is not said of the engine", needs: []Ability{Refusal}, test: func(f *fixture) {
		e := f.world.Engine(ordinary)
		f.world.Set(Refused) // whatever is not the connection's failure, the adapter has found by itself
		for name, change := range map[string]func(*engine.Delivery){
			"no key":                    func(d *engine.Delivery) { d.Key = "" },
			"a key without end":         func(d *engine.Delivery) { d.Key = strings.Repeat("x", 10_000) },
			"no message":                func(d *engine.Delivery) { d.Message = "" },
			"a variable of no JSON":     func(d *engine.Delivery) { d.Variables["broken"] = json.RawMessage(`{"a":`) },
			"a payload that is no text": func(d *engine.Delivery) { d.Variables, d.Payload = nil, []byte{0xff, 0x00} },
			"a start without a key":     func(d *engine.Delivery) { d.Start, d.Key = true, "" },
		} {
			d := delivery(newKey())
			change(&d)
			r := f.correlate(f.Context(), e, d)
			if r.Verdict != engine.Technical && r.Verdict != engine.NotStarted && !r.NotAsked {
				f.Errorf("%s: verdict %s (%s) of an engine that cannot be reached", name, r.Verdict, r.Code)
			}
		}
	}},
	{name: "an answer lost after the effect is unknown", needs: []Ability{LostAnswers}, test: func(f *fixture) {
		e, d := f.world.Engine(ordinary), delivery(f.key)
		f.loseAnswer(e, d)
		f.wantArrived(f.key, 1)
	}},
	{name: "a probe finds the effect of a delivery whose answer was lost", needs: []Ability{LostAnswers}, test: func(f *fixture) {
		e, d := f.world.Engine(ordinary), delivery(f.key)
		p := f.needProber(e)
		f.loseAnswer(e, d)
		// One that waits again does not make the first delivery undone.
		f.world.Start(f.key, message)
		f.world.Settle(ordinary)
		f.wantProbe(p, d, engine.ProbeFound)
	}},
	{name: "sending again after a lost answer has no second effect", needs: []Ability{LostAnswers}, test: func(f *fixture) {
		e, d := f.world.Engine(ordinary), delivery(f.key)
		f.needIdempotent(e)
		f.loseAnswer(e, d)
		f.world.Start(f.key, message)
		f.want(f.correlate(f.Context(), e, again(d)), engine.Correlated, engine.Duplicate)
		f.wantAdvanced(f.key, 1)
	}},
	{name: "a kept connection that loses its answer is not used to send again", needs: []Ability{LostAnswers}, test: func(f *fixture) {
		e := f.world.Engine(ordinary)
		first := newKey()
		f.world.Start(first, message)
		f.want(f.correlate(f.Context(), e, delivery(first)), engine.Correlated)
		f.loseAnswer(e, delivery(f.key))
		f.wantArrived(f.key, 1)
	}},
	{name: "a probe tells what still waits from what is gone", test: func(f *fixture) {
		e := f.world.Engine(ordinary)
		p := f.needProber(e)
		f.world.Start(f.key, message)
		f.wantProbe(p, delivery(f.key), engine.ProbeWaiting)
		f.wantProbe(p, delivery(newKey()), engine.ProbeGone)
	}},
	{name: "an engine that does not answer is given up at the timeout, as unknown", needs: []Ability{Hanging}, test: func(f *fixture) {
		f.world.Start(f.key, message)
		f.world.Set(Hangs)
		f.want(f.correlate(f.Context(), f.world.Engine(250*time.Millisecond), delivery(f.key)), engine.Unknown)
		f.wantAdvanced(f.key, 0)
	}},
	{name: "a call that is cancelled after it was sent returns at once, as unknown", needs: []Ability{Hanging}, test: func(f *fixture) {
		f.world.Start(f.key, message)
		f.world.Set(Hangs)
		ctx, cancel := context.WithCancel(f.Context())
		defer cancel()
		awaited := make(chan error, 1)
		go func() {
			err := f.world.Await(ctx, f.key, 1)
			cancel()
			awaited <- err
		}()
		// The timeout is beyond the suite's patience: only the cancellation can end the call.
		f.want(f.correlate(ctx, f.world.Engine(10*patience), delivery(f.key)), engine.Unknown)
		cancel()
		if err := <-awaited; err != nil {
			f.Errorf("the delivery did not arrive: %v", err)
		}
	}},
	{name: "an engine that refuses our credentials refuses us and not the message", needs: []Ability{Locking}, test: func(f *fixture) {
		f.world.Start(f.key, message)
		f.world.Set(Locked)
		e, d := f.world.Engine(ordinary), delivery(f.key)
		f.want(f.correlate(f.Context(), e, d), engine.Unauthorised)
		f.wantAdvanced(f.key, 0)
		f.world.Set(Healthy)
		f.want(f.correlate(f.Context(), e, again(d)), engine.Correlated)
	}},
	{name: "an engine that asks for less says for how long", needs: []Ability{Throttling}, test: func(f *fixture) {
		f.world.Start(f.key, message)
		f.world.Set(Throttled)
		e := f.world.Engine(ordinary)
		r := f.correlate(f.Context(), e, delivery(f.key))
		allowed := []engine.Verdict{engine.Throttled}
		if e.Properties().Probe { // what may come from something on the way proves nothing, and is looked up
			allowed = append(allowed, engine.Unknown)
		}
		f.want(r, allowed...)
		if r.RetryAfter <= 0 {
			f.Errorf("RetryAfter is %v, want the engine's", r.RetryAfter)
		}
		f.wantAdvanced(f.key, 0)
	}},
	{name: "deliveries in parallel do not disturb each other", test: func(f *fixture) {
		e := f.world.Engine(ordinary)
		keys := make([]string, 16)
		for i := range keys {
			keys[i] = newKey()
			f.world.Start(keys[i], message)
		}
		results := make([]engine.Result, len(keys))
		var all sync.WaitGroup
		for i, key := range keys {
			all.Go(func() { results[i] = e.Correlate(f.Context(), delivery(key)) })
		}
		all.Wait()
		for i, key := range keys {
			f.sound(results[i])
			f.want(results[i], engine.Correlated)
			f.wantAdvanced(key, 1)
		}
	}},
	{name: "one delivery made in parallel has one effect", test: func(f *fixture) {
		e := f.world.Engine(ordinary)
		f.needIdempotent(e)
		f.world.Start(f.key, message)
		results := make([]engine.Result, 8)
		var all sync.WaitGroup
		for i := range results {
			all.Go(func() { results[i] = e.Correlate(f.Context(), delivery(f.key)) })
		}
		all.Wait()
		succeeded := 0
		for _, r := range results {
			f.sound(r)
			// Technical: the engine is still working on the other one.
			f.want(r, engine.Correlated, engine.Duplicate, engine.Technical)
			if r.Verdict == engine.Correlated {
				succeeded++
			}
		}
		if succeeded == 0 {
			f.Error("none of them succeeded")
		}
		f.wantAdvanced(f.key, 1)
	}},
}

// loseAnswer makes a delivery have its effect and lose its answer.
func (f *fixture) loseAnswer(e engine.Engine, d engine.Delivery) {
	f.Helper()
	f.world.Start(d.Key, message)
	f.world.Set(LosesAnswers)
	f.want(f.correlate(f.Context(), e, d), engine.Unknown)
	f.world.Set(Healthy)
	f.wantAdvanced(d.Key, 1)
}
