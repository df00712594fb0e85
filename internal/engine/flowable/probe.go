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
	outcome, res, _ := e.lookup(ctx, d)
	if outcome != engine.ProbeWaiting {
		return outcome, res
	}
	// No delivery is on record. That proves something only where a record would have been kept: the instance that had it may
	// have ended since.
	witness, kept := res.Reference, false
	var failure *engine.Result
	if witness == "" { // a start, or several wait
		witness, failure = e.witness(ctx)
	}
	if failure == nil && witness != "" {
		kept, failure = e.keepsHistory(ctx, witness)
	}
	switch {
	case failure != nil:
		return engine.ProbeFailed, *failure
	case !kept:
		return engine.ProbeGone, engine.Result{Code: "NO_HISTORY", Reference: res.Reference,
			Detail: "The engine is not known to keep history of level audit: whether an earlier delivery had its effect cannot be told."}
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
	if d.Start {
		outcome, res := e.lookupStart(ctx, d)
		return outcome, res, row{}
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
		res.NotAsked = false // the marker was asked for before
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
		p, res := e.query(ctx, path, filter{Variables: []variable{v}, Size: 1})
		if res != nil {
			return "", res
		}
		if len(p.Data) > 0 {
			return p.Data[0].ID, nil
		}
	}
	return "", nil
}

// witness is an instance of the process by which it can be told what history is kept: the latest that runs, else the
// latest in history. Empty: there is none.
func (e *Engine) witness(ctx context.Context) (string, *engine.Result) {
	f := filter{ProcessDefinitionKey: e.config.ProcessDefinitionKey, TenantID: e.config.Tenant, Sort: "startTime", Order: "desc", Size: 1}
	for _, path := range []string{processInstances, historicInstances} {
		p, res := e.query(ctx, path, f)
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
// activities are. An instance that runs, or has run, has activities.
func (e *Engine) keepsHistory(ctx context.Context, instance string) (bool, *engine.Result) {
	n, res := e.activities(ctx, url.Values{"processInstanceId": {instance}})
	return n > 0, res
}

// activities counts activities in history.
func (e *Engine) activities(ctx context.Context, v url.Values) (int64, *engine.Result) {
	v.Set("size", "1")
	p, res := e.ask(ctx, http.MethodGet, "/history/historic-activity-instances?"+v.Encode(), nil, 1)
	if res != nil {
		return 0, res
	}
	return *p.Total, nil
}
