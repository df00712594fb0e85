package relayer_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
)

// remembering is an engine that can be asked about its history.
type remembering struct {
	*scripted
	asked atomic.Int64
}

func (r *remembering) Through(context.Context, engine.Delivery) engine.Result {
	r.asked.Add(1)
	return engine.Result{Verdict: engine.AlreadyThrough, Code: "THROUGH"}
}

// The shortest lease that the configuration allows leaves, after a look-up that takes a while, too little for another call.
// History is asked all the same.
func TestPatienceDoesNotEndUnaskedOnAShortLease(t *testing.T) {
	w := newWorld(t)
	route := w.cfg.Routes["r"]
	route.Patience = time.Nanosecond
	w.cfg.Routes["r"] = route
	w.cfg.Lease = 22 * time.Second
	var passed atomic.Int64
	e := &remembering{scripted: &scripted{w: w, name: "e", props: engine.Properties{Idempotent: true, Timeout: 10 * time.Second},
		answer: func(context.Context, engine.Delivery) engine.Result {
			passed.Add(int64(2500 * time.Millisecond))
			return engine.Result{Verdict: engine.NotWaiting, Code: "NONE"}
		}}}
	id := w.insert("k", 1)
	w.insert("l", 1)
	now := func() time.Time { return time.Now().Add(time.Duration(passed.Load())) }
	w.once(w.relayWith(w.store, now, map[string]engine.Engine{"e": e}))
	w.sql("UPDATE Messages SET NextAttemptAt = NULL WHERE true", nil)
	w.sql("UPDATE Lanes SET DueAt = TIMESTAMP '2020-01-01T00:00:00Z' WHERE true", nil)
	w.once(w.relayWith(w.store, now, map[string]engine.Engine{"e": e}))
	if w.status(id) != "PARKED/ALREADY_THROUGH" || e.asked.Load() == 0 {
		t.Errorf("%s, history was asked %d times", w.status(id), e.asked.Load())
	}
}
