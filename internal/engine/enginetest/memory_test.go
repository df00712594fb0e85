package enginetest

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
)

// fault is how the adapter under test is wrong.
type fault struct {
	alwaysCorrelated, firstOfTwo, anyKey, anyMessage, wakesSuspended, forgetful, twice, remembersRefusals bool
	doesNotAsk, asksAfter, ignoresContext, lostIsTechnical, resends, refusedIsUnknown, lockedIsRejected   bool
	noRetryAfter, rounds, leaks, probesWaiting, probesBySending, alwaysThrough, neverThrough              bool
	noTimeout, undeclaredProbe, mixesUp, answersAlone, outageNotAsked                                     bool
}

// memory is a world without a network, and its adapter.
type memory struct {
	t     testing.TB
	fault fault
	lacks map[Ability]string

	mu        sync.Mutex
	outage    Outage
	instances []*instance
	vanishing map[string]bool
	advanced  map[string]int
	arrived   map[string]int
	news      chan struct{}
	known     map[string]engine.Result
	variables map[string]map[string]json.RawMessage
	lastKey   string
}

type instance struct {
	key, message    string
	suspended, past bool
}

func newMemory(t testing.TB, f *fault) *memory {
	m := &memory{
		t: t, outage: Healthy, vanishing: map[string]bool{}, advanced: map[string]int{}, arrived: map[string]int{},
		news: make(chan struct{}), known: map[string]engine.Result{}, variables: map[string]map[string]json.RawMessage{},
	}
	if f != nil {
		m.fault = *f
	}
	return m
}

func (m *memory) Lacks() map[Ability]string { return m.lacks }

func (m *memory) Engine(timeout time.Duration) engine.Engine {
	return &adapter{memory: m, timeout: timeout}
}

func (m *memory) locked(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

func (m *memory) Start(key, message string) {
	m.locked(func() { m.instances = append(m.instances, &instance{key: key, message: message}) })
}

func (m *memory) Pass(key, message string) {
	m.locked(func() { m.instances = append(m.instances, &instance{key: key, message: message, past: true}) })
}

func (m *memory) Vanish(key, _ string) { m.locked(func() { m.vanishing[key] = true }) }

func (m *memory) Suspend(key, _ string) {
	m.locked(func() {
		for _, i := range m.instances {
			i.suspended = i.suspended || i.key == key
		}
	})
}

func (m *memory) Set(o Outage) { m.locked(func() { m.outage = o }) }

func (m *memory) Advanced(key string) (n int) { m.locked(func() { n = m.advanced[key] }); return n }
func (m *memory) Arrived(key string) (n int)  { m.locked(func() { n = m.arrived[key] }); return n }

func (m *memory) Variables(key string) (v map[string]json.RawMessage) {
	m.locked(func() { v = m.variables[key] })
	return v
}

func (m *memory) Settle(time.Duration) {}

func (m *memory) Await(ctx context.Context, key string, n int) error {
	for {
		m.mu.Lock()
		arrived, news := m.arrived[key], m.news
		m.mu.Unlock()
		if arrived >= n {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// find is who waits for d.
func (m *memory) find(d engine.Delivery) (waiting []*instance, past bool) {
	for _, i := range m.instances {
		if (i.key != d.Key && !m.fault.anyKey) || (i.message != d.Message && !m.fault.anyMessage) {
			continue
		}
		if i.past {
			past = true
		} else {
			waiting = append(waiting, i)
		}
	}
	return waiting, past
}

// handle is the engine's side of a delivery.
func (m *memory) handle(d engine.Delivery) engine.Result {
	if r, ok := m.known[d.InboxID]; ok && !m.fault.forgetful {
		return r
	}
	r := m.decide(d)
	if r.Verdict == engine.Correlated || m.fault.remembersRefusals {
		m.known[d.InboxID] = r
	}
	return r
}

func (m *memory) decide(d engine.Delivery) engine.Result {
	waiting, _ := m.find(d)
	switch {
	case len(waiting) == 0:
		return engine.Result{Verdict: engine.NotWaiting, Code: "none"}
	case len(waiting) > 1 && !m.fault.firstOfTwo:
		return engine.Result{Verdict: engine.Ambiguous, Code: "many"}
	case waiting[0].suspended && !m.fault.wakesSuspended:
		return engine.Result{Verdict: engine.Technical, Code: "suspended"}
	case m.vanishing[d.Key]:
		waiting[0].past = true
		return engine.Result{Verdict: engine.Vanished, Code: "gone"}
	}
	waiting[0].past = true
	key := waiting[0].key
	if m.fault.mixesUp && m.lastKey != "" {
		key = m.lastKey
	}
	m.lastKey = waiting[0].key
	m.advanced[key]++
	m.variables[key] = d.Variables
	return engine.Result{Verdict: engine.Correlated, Code: "ok"}
}

// adapter is the engine.Engine.
type adapter struct {
	*memory
	timeout time.Duration
}

func (a *adapter) Properties() engine.Properties {
	p := engine.Properties{Idempotent: true, Probe: !a.fault.undeclaredProbe, Timeout: a.timeout}
	if a.fault.noTimeout {
		p.Timeout = 0
	}
	return p
}

func (a *adapter) Correlate(ctx context.Context, d engine.Delivery) engine.Result {
	if a.fault.alwaysCorrelated {
		return engine.Result{Verdict: engine.Correlated}
	}
	if ctx.Err() != nil && !a.fault.ignoresContext {
		return engine.Result{Verdict: engine.NotStarted, Code: "cancelled"}
	}
	if d.Key == "" {
		return engine.Result{Verdict: engine.Rejected, Code: "key", NotAsked: !a.fault.answersAlone}
	}
	var outage Outage
	a.locked(func() { outage = a.outage })
	if outage == Refused {
		if a.fault.refusedIsUnknown {
			return engine.Result{Verdict: engine.Unknown, Code: "refused"}
		}
		return engine.Result{Verdict: engine.Technical, Code: "refused", NotAsked: a.fault.outageNotAsked}
	}
	if !a.fault.doesNotAsk && !a.fault.asksAfter && !d.MaySend() {
		return engine.Result{Verdict: engine.NotStarted, Code: "forbidden"}
	}
	r := a.send(ctx, d)
	if a.fault.resends && r.Verdict == engine.Unknown || a.fault.twice {
		r = a.send(ctx, d)
		a.locked(func() { a.advanced[d.Key]++ })
	}
	if a.fault.asksAfter {
		d.MaySend()
	}
	return r
}

func (a *adapter) send(ctx context.Context, d engine.Delivery) engine.Result {
	if a.fault.rounds {
		d.Variables = rounded(d.Variables)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.arrived[d.Key]++
	close(a.news)
	a.news = make(chan struct{})
	switch a.outage {
	case Hangs:
		a.mu.Unlock()
		timer := time.NewTimer(a.timeout)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
		a.mu.Lock()
		return engine.Result{Verdict: engine.Unknown, Code: "timeout"}
	case Locked:
		if a.fault.lockedIsRejected {
			return engine.Result{Verdict: engine.Rejected, Code: "locked"}
		}
		return engine.Result{Verdict: engine.Unauthorised, Code: "locked"}
	case Throttled:
		if a.fault.noRetryAfter {
			return engine.Result{Verdict: engine.Throttled, Code: "throttled"}
		}
		return engine.Result{Verdict: engine.Throttled, Code: "throttled", RetryAfter: time.Minute}
	case Echoes:
		if a.fault.leaks {
			return engine.Result{Verdict: engine.Rejected, Code: "echo", Detail: string(d.Payload)}
		}
		return engine.Result{Verdict: engine.Rejected, Code: "echo"}
	case LosesAnswers:
		a.handle(d)
		if a.fault.lostIsTechnical {
			return engine.Result{Verdict: engine.Technical, Code: "lost"}
		}
		return engine.Result{Verdict: engine.Unknown, Code: "lost"}
	}
	return a.handle(d)
}

// rounded is what decoding into float64 makes of numbers.
func rounded(variables map[string]json.RawMessage) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for name, raw := range variables {
		var v any
		_ = json.Unmarshal(raw, &v)
		text, _ := json.Marshal(v)
		out[name] = json.RawMessage(strings.TrimSpace(string(text)))
	}
	return out
}

func (a *adapter) Probe(ctx context.Context, d engine.Delivery) (engine.ProbeOutcome, engine.Result) {
	if a.fault.probesBySending {
		a.send(ctx, d)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.outage == Refused {
		return engine.ProbeFailed, engine.Result{Verdict: engine.Technical, Code: "refused"}
	}
	waiting, _ := a.find(d)
	_, known := a.known[d.InboxID]
	switch {
	case known && !a.fault.probesWaiting:
		return engine.ProbeFound, engine.Result{}
	case len(waiting) > 0:
		return engine.ProbeWaiting, engine.Result{}
	}
	return engine.ProbeGone, engine.Result{}
}

func (a *adapter) Through(_ context.Context, d engine.Delivery) engine.Result {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, past := a.find(d)
	if (past || a.fault.alwaysThrough) && !a.fault.neverThrough {
		return engine.Result{Verdict: engine.AlreadyThrough, Code: "past"}
	}
	return engine.Result{Verdict: engine.NotWaiting, Code: "none"}
}
