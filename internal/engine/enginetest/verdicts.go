package enginetest

import (
	"encoding/json"

	"github.com/google/go-cmp/cmp"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
)

// verdictChecks ask whether a verdict is what really happened.
var verdictChecks = []check{
	{name: "what an engine declares is what it is", test: func(f *fixture) {
		e := f.world.Engine(ordinary)
		p := e.Properties()
		if p.Timeout <= 0 {
			f.Errorf("timeout %v, want a positive one", p.Timeout)
		}
		if _, ok := e.(engine.Prober); ok != p.Probe {
			f.Errorf("Properties().Probe is %v, but that the engine is a Prober is %v", p.Probe, ok)
		}
	}},
	{name: "one waiting instance advances once", test: func(f *fixture) {
		f.world.Start(f.key, message)
		f.want(f.correlate(f.Context(), f.world.Engine(ordinary), delivery(f.key)), engine.Correlated)
		f.wantAdvanced(f.key, 1)
	}},
	{name: "nobody waiting is not a success and advances nobody else", test: func(f *fixture) {
		other := newKey()
		f.world.Start(other, message)
		f.want(f.correlate(f.Context(), f.world.Engine(ordinary), delivery(f.key)), engine.NotWaiting)
		f.wantAdvanced(f.key, 0)
		f.wantAdvanced(other, 0)
	}},
	{name: "an instance that waits for another message does not advance", test: func(f *fixture) {
		f.world.Start(f.key, "WorkOrderCancelled")
		f.want(f.correlate(f.Context(), f.world.Engine(ordinary), delivery(f.key)), engine.NotWaiting)
		f.wantAdvanced(f.key, 0)
	}},
	{name: "a message that overtook its process is delivered once the process waits", test: func(f *fixture) {
		e, d := f.world.Engine(ordinary), delivery(f.key)
		f.want(f.correlate(f.Context(), e, d), engine.NotWaiting)
		f.world.Start(f.key, message)
		f.want(f.correlate(f.Context(), e, again(d)), engine.Correlated)
		f.wantAdvanced(f.key, 1)
	}},
	{name: "two waiting instances are ambiguous and neither advances", needs: []Ability{Ambiguity}, test: func(f *fixture) {
		f.world.Start(f.key, message)
		f.world.Start(f.key, message)
		f.want(f.correlate(f.Context(), f.world.Engine(ordinary), delivery(f.key)), engine.Ambiguous)
		f.wantAdvanced(f.key, 0)
	}},
	{name: "a process past the point is already through", needs: []Ability{Passing}, test: func(f *fixture) {
		f.world.Pass(f.key, message)
		e, d := f.world.Engine(ordinary), delivery(f.key)
		before := f.world.Advanced(f.key)
		r := f.correlate(f.Context(), e, d)
		if h, ok := e.(engine.Historian); ok && r.Verdict == engine.NotWaiting {
			r = h.Through(f.Context(), d)
			f.sound(r)
		}
		f.want(r, engine.AlreadyThrough)
		f.wantAdvanced(f.key, before)
	}},
	{name: "history does not take a process that is not there yet for one that is through", test: func(f *fixture) {
		e := f.world.Engine(ordinary)
		r := f.needHistorian(e).Through(f.Context(), delivery(f.key))
		f.sound(r)
		f.want(r, engine.NotWaiting)
		f.wantArrived(f.key, 0)
	}},
	{name: "an instance that goes away in the middle is not advanced", needs: []Ability{Vanishing}, test: func(f *fixture) {
		f.world.Start(f.key, message)
		f.world.Vanish(f.key, message)
		f.want(f.correlate(f.Context(), f.world.Engine(ordinary), delivery(f.key)), engine.Vanished, engine.NotWaiting)
		f.wantAdvanced(f.key, 0)
	}},
	{name: "a suspended instance is neither advanced nor given up", needs: []Ability{Suspension}, test: func(f *fixture) {
		f.world.Start(f.key, message)
		f.world.Suspend(f.key, message)
		f.want(f.correlate(f.Context(), f.world.Engine(ordinary), delivery(f.key)), engine.Technical, engine.RetryAfter, engine.NotWaiting)
		f.wantAdvanced(f.key, 0)
	}},
	{name: "the same delivery again has no second effect", test: func(f *fixture) {
		e, d := f.world.Engine(ordinary), delivery(f.key)
		f.needIdempotent(e)
		f.world.Start(f.key, message)
		f.want(f.correlate(f.Context(), e, d), engine.Correlated)
		// The process may well wait for such a message again, as in a loop. The old one is not meant for it.
		f.world.Start(f.key, message)
		f.want(f.correlate(f.Context(), e, again(d)), engine.Correlated, engine.Duplicate)
		f.wantAdvanced(f.key, 1)
	}},
	{name: "values arrive exactly as they are", test: func(f *fixture) {
		d := delivery(f.key)
		d.Variables = map[string]json.RawMessage{
			"text":   json.RawMessage(`"Zürich <b>&\u0000\"\\ ` + canary + `"`),
			"number": json.RawMessage(`4812`),
			"yes":    json.RawMessage(`true`),
			"list":   json.RawMessage(`["007",7,null,{"a":[]}]`),
			"nested": json.RawMessage(`{"b":{"a":[1,2,{"c":"d"}]},"a":""}`),
		}
		f.arriveExactly(d)
	}},
	{name: "numbers keep every digit", needs: []Ability{ExactNumbers}, test: func(f *fixture) {
		d := delivery(f.key)
		d.Variables = map[string]json.RawMessage{
			"large":  json.RawMessage(`9007199254740993`),
			"long":   json.RawMessage(`0.1000000000000000055`),
			"nested": json.RawMessage(`{"list":[12345678901234567890,1.10,-0]}`),
			"note":   json.RawMessage(`"` + canary + `"`),
		}
		f.arriveExactly(d)
	}},
	{name: "no result holds what an engine repeats of the payload", needs: []Ability{Echo}, test: func(f *fixture) {
		f.world.Start(f.key, message)
		f.world.Set(Echoes)
		f.correlate(f.Context(), f.world.Engine(ordinary), delivery(f.key))
		unnamed := delivery(newKey())
		unnamed.Variables = nil
		f.correlate(f.Context(), f.world.Engine(ordinary), unnamed)
		f.wantAdvanced(f.key, 0)
	}},
}

// arriveExactly delivers d to a waiting instance and compares what the instance was given.
func (f *fixture) arriveExactly(d engine.Delivery) {
	f.Helper()
	f.world.Start(f.key, message)
	f.want(f.correlate(f.Context(), f.world.Engine(ordinary), d), engine.Correlated)
	got := f.world.Variables(f.key)
	for _, name := range sortedNames(d.Variables) {
		if diff := cmp.Diff(string(d.Variables[name]), string(got[name])); diff != "" {
			f.Errorf("variable %s (-sent +arrived):\n%s", name, diff)
		}
	}
}
