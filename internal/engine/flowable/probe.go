package flowable

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
)

// MarkerPrefix begins the name of the variable that each delivery sets, in the same transaction as its effect. There is
// one name for each message: a single one would be overwritten by the next.
const MarkerPrefix = "inboxMsg_"

func marker(d engine.Delivery) variable {
	value, _ := json.Marshal(d.InboxID)
	return variable{Name: MarkerPrefix + d.InboxID, Type: "string", Value: value}
}

// Probe implements engine.Prober.
func (e *Engine) Probe(ctx context.Context, d engine.Delivery) (engine.ProbeOutcome, engine.Result) {
	ctx, cancel := context.WithTimeout(ctx, e.config.Timeout)
	defer cancel()
	if d.Start {
		return e.probeStart(ctx, d)
	}
	outcome, res, _ := e.lookup(ctx, d)
	if outcome != engine.ProbeWaiting {
		return outcome, res
	}
	// An instance waits, and no delivery is on record. That proves something only where a record would have been kept: the
	// delivery may have gone to another instance that has ended since.
	kept, failure := e.keepsHistory(ctx, d, res.Reference)
	switch {
	case failure != nil:
		return engine.ProbeFailed, *failure
	case !kept:
		return engine.ProbeGone, engine.Result{Code: "NO_HISTORY", Reference: res.Reference,
			Detail: "The engine keeps less history than audit: whether an earlier delivery had its effect cannot be told."}
	}
	return outcome, res
}

// lookup says what became of a delivery whose transaction is over. The reference is the instance that has the marker, or
// that waits; of that one the execution is returned too.
func (e *Engine) lookup(ctx context.Context, d engine.Delivery) (engine.ProbeOutcome, engine.Result, row) {
	instance, res := e.marked(ctx, d)
	switch {
	case res != nil:
		return engine.ProbeFailed, *res, row{}
	case instance != "":
		return engine.ProbeFound, engine.Result{Code: "MARKER", Reference: instance, Detail: "The process instance has the marker of this message."}, row{}
	}
	waiting, res := e.find(ctx, d)
	switch {
	case res == nil:
		return engine.ProbeWaiting, engine.Result{Code: "WAITING", Reference: waiting.instance()}, waiting
	case res.Verdict == engine.Ambiguous:
		// Not delivered, as far as anybody knows; the next delivery finds them and says so.
		return engine.ProbeWaiting, engine.Result{Code: "WAITING"}, row{}
	case res.Verdict == engine.NotWaiting:
		return engine.ProbeGone, engine.Result{Code: "GONE", Detail: "No process instance has the marker of this message, and none waits for it."}, row{}
	case res.Verdict == engine.Rejected:
		return engine.ProbeGone, *res, row{}
	}
	return engine.ProbeFailed, *res, row{}
}

// marked is the process instance that has the marker of d, or empty. Running instances are asked first, whose variables
// are there whatever history is kept, and as soon as the transaction ends; then those that have ended. This order misses
// none that ends in between.
func (e *Engine) marked(ctx context.Context, d engine.Delivery) (string, *engine.Result) {
	v := marker(d)
	v.Operation = "equals"
	for _, path := range []string{processInstances, historicInstances} {
		p, res := e.query(ctx, d, path, filter{Variables: []variable{v}, Size: 1})
		if res != nil {
			return "", res
		}
		if len(p.Data) > 0 {
			return p.Data[0].ID, nil
		}
	}
	return "", nil
}

// keepsHistory reports whether variables of this instance are kept in history: they are from the level on from which
// activities are. An instance that waits has activities.
func (e *Engine) keepsHistory(ctx context.Context, d engine.Delivery, instance string) (bool, *engine.Result) {
	if instance == "" {
		return true, nil // ambiguous: it is not sent again anyway
	}
	n, res := e.activities(ctx, d, url.Values{"processInstanceId": {instance}})
	return n > 0, res
}

// activities counts activities in history.
func (e *Engine) activities(ctx context.Context, d engine.Delivery, v url.Values) (int64, *engine.Result) {
	v.Set("size", "1")
	p, res := e.ask(ctx, d, http.MethodGet, "/history/historic-activity-instances?"+v.Encode(), nil, 1)
	if res != nil {
		return 0, res
	}
	return *p.Total, nil
}
