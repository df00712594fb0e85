package enginetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
)

const (
	message = "WorkOrderCompleted"
	// canary is in each delivery's payload and variables, and must be in no result.
	canary = "CANARY-7f3a9b41c2"
	// patience is how long a call may take that ought to return by itself. Only a fault waits for it.
	patience = 30 * time.Second
	// ordinary is a timeout that does not matter: nothing in the check is slow.
	ordinary = 10 * time.Second
)

// lastKey makes keys differ between checks, worlds and repetitions.
var lastKey atomic.Int64

// fixture is what one check works with.
type fixture struct {
	testing.TB
	world World
	key   string
}

func newFixture(t testing.TB, w World) *fixture {
	return &fixture{TB: t, world: w, key: newKey()}
}

func newKey() string { return fmt.Sprintf("order-%d", lastKey.Add(1)) }

// delivery is the first attempt of a message for key; the same key gives the same inbox id.
func delivery(key string) engine.Delivery {
	id := sha256.Sum256([]byte(key))
	return engine.Delivery{
		InboxID:     hex.EncodeToString(id[:16]),
		Attempt:     1,
		Consumer:    "conformance",
		Route:       "work-order-completed",
		Message:     message,
		Key:         key,
		MessageType: message,
		PublishedAt: time.Date(2026, 3, 2, 8, 15, 30, 0, time.UTC),
		Variables:   map[string]json.RawMessage{"note": json.RawMessage(`"` + canary + `"`)},
		Payload:     []byte(`{"note":"` + canary + `"}`),
		ContentType: "application/json",
	}
}

func again(d engine.Delivery) engine.Delivery {
	d.Attempt++
	return d
}

// correlate delivers, and checks what holds for every result.
func (f *fixture) correlate(ctx context.Context, e engine.Engine, d engine.Delivery) engine.Result {
	f.Helper()
	r, ok := f.within(func() engine.Result { return e.Correlate(ctx, d) })
	if !ok {
		f.Fatalf("Correlate has not returned after %v", patience)
	}
	f.sound(r)
	return r
}

// within runs call, and gives up on it after the suite's patience.
func (f *fixture) within(call func() engine.Result) (engine.Result, bool) {
	done := make(chan engine.Result, 1)
	go func() { done <- call() }()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case r := <-done:
		return r, true
	case <-timer.C:
		return engine.Result{}, false
	}
}

// verdicts are those a Correlate can have.
var verdicts = []engine.Verdict{
	engine.Correlated, engine.Duplicate, engine.HandedOver, engine.NotWaiting, engine.AlreadyThrough, engine.Ambiguous,
	engine.Vanished, engine.Rejected, engine.RetryAfter, engine.Technical, engine.Throttled, engine.Unauthorised,
	engine.Unknown, engine.Drop, engine.NotStarted,
}

// engineOnly are the verdicts that nobody but the engine can give.
var engineOnly = []engine.Verdict{
	engine.Correlated, engine.Duplicate, engine.HandedOver, engine.AlreadyThrough, engine.Ambiguous, engine.Vanished,
	engine.Throttled, engine.Unknown, engine.Drop,
}

// sound checks what holds for every result: a verdict of the contract, a code, one line, and no payload.
func (f *fixture) sound(r engine.Result) {
	f.Helper()
	if !slices.Contains(verdicts, r.Verdict) {
		f.Errorf("verdict %q is none of the contract's", r.Verdict)
	}
	if r.Code == "" && r.Verdict != engine.Correlated {
		f.Errorf("a result %s has no code", r.Verdict)
	}
	for name, text := range map[string]string{"code": r.Code, "detail": r.Detail, "reference": r.Reference} {
		if strings.Contains(text, canary) {
			f.Errorf("the %s of a result holds payload: %q", name, text)
		}
		if strings.ContainsAny(text, "\r\n") {
			f.Errorf("the %s of a result is more than one line: %q", name, text)
		}
	}
	if r.NotAsked && slices.Contains(engineOnly, r.Verdict) {
		f.Errorf("verdict %s without having asked the engine", r.Verdict)
	}
	if r.RetryAfter < 0 {
		f.Errorf("a result asks for a wait of %v", r.RetryAfter)
	}
}

// want fails unless the result has one of the verdicts.
func (f *fixture) want(r engine.Result, allowed ...engine.Verdict) {
	f.Helper()
	if !slices.Contains(allowed, r.Verdict) {
		f.Errorf("verdict %s (%s: %s), want %v", r.Verdict, r.Code, r.Detail, allowed)
	}
}

// wantAdvanced asks the world, not the engine.
func (f *fixture) wantAdvanced(key string, want int) {
	f.Helper()
	if got := f.world.Advanced(key); got != want {
		f.Errorf("instances of %s advanced %d times, want %d", key, got, want)
	}
}

func (f *fixture) wantArrived(key string, want int) {
	f.Helper()
	if got := f.world.Arrived(key); got != want {
		f.Errorf("%d deliveries of %s arrived, want %d", got, key, want)
	}
}

func (f *fixture) needIdempotent(e engine.Engine) {
	f.Helper()
	if !e.Properties().Idempotent {
		f.Skip("the engine does not declare to be idempotent")
	}
}

func (f *fixture) needProber(e engine.Engine) engine.Prober {
	f.Helper()
	p, ok := e.(engine.Prober)
	if !ok {
		f.Skip("the engine does not declare a probe")
	}
	return p
}

func (f *fixture) needHistorian(e engine.Engine) engine.Historian {
	f.Helper()
	h, ok := e.(engine.Historian)
	if !ok {
		f.Skip("the engine does not look into history")
	}
	return h
}

// wantProbe looks up what became of d.
func (f *fixture) wantProbe(p engine.Prober, d engine.Delivery, want engine.ProbeOutcome) engine.Result {
	f.Helper()
	arrived, advanced := f.world.Arrived(d.Key), f.world.Advanced(d.Key)
	got, r := p.Probe(f.Context(), d)
	if got != want {
		f.Errorf("the probe says %s (%s: %s), want %s", got, r.Code, r.Detail, want)
	}
	f.wantArrived(d.Key, arrived)
	f.wantAdvanced(d.Key, advanced)
	return r
}

func sortedNames(m map[string]json.RawMessage) []string { return slices.Sorted(maps.Keys(m)) }
