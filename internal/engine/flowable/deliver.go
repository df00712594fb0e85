package flowable

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/httpcall"
)

func (e *Engine) deliver(ctx context.Context, d engine.Delivery, waiting row, variables []variable) engine.Result {
	body, err := json.Marshal(struct {
		Action      string     `json:"action"`
		MessageName string     `json:"messageName"`
		Variables   []variable `json:"variables"`
	}{"messageEventReceived", d.Message, variables})
	if err != nil {
		return unwritable()
	}
	a, failure := e.call(ctx, http.MethodPut, "/runtime/executions/"+url.PathEscape(waiting.ID), body, d.MaySend)
	if failure != nil {
		return *failure
	}
	if a.Status == http.StatusNoContent {
		return engine.Result{Verdict: engine.Correlated, Code: "HTTP 204", Reference: waiting.instance()}
	}
	if a.Status == http.StatusOK {
		var r row
		if a.Body != nil && !a.HTML() && json.Unmarshal(a.Body, &r) == nil && r.ID == waiting.ID {
			return engine.Result{Verdict: engine.Correlated, Code: "HTTP 200", Reference: waiting.instance()}
		}
		return engine.Result{Verdict: engine.Unknown, Code: "PROTOCOL", Detail: "What answered said success, and not as Flowable does."}
	}
	if i, ours := errorInfo(a); ours {
		switch {
		case i.saysGone(a.Status, waiting.ID, d.Message):
			return engine.Result{Verdict: engine.Vanished, Code: code(a), Reference: waiting.instance(), Detail: "The execution that waited does not wait any more: it moved on between look-up and delivery."}
		case strings.HasPrefix(i.Exception, saysSuspended):
			return suspended(waiting.instance())
		}
	}
	res := e.refused(ctx, d, a)
	if res.Verdict == engine.Vanished {
		res.Reference = waiting.instance()
	}
	return res
}

// unwritable is found after the look-up.
func unwritable() engine.Result {
	return engine.Result{Verdict: engine.Rejected, Code: "request", Detail: "The message cannot be sent: it cannot be written as JSON."}
}

// refused classifies an answer that is no success, of a request that would have had an effect. The look-up before it
// succeeded with the same credentials: a 403 is not about us. And it is Unknown what a 503 or a 429 comes after: whoever
// says it may have lost the engine's answer.
func (e *Engine) refused(ctx context.Context, d engine.Delivery, a httpcall.Answer) engine.Result {
	res := engine.Result{Code: code(a)}
	i, ours := errorInfo(a)
	say := func(v engine.Verdict, detail string) engine.Result {
		res.Verdict, res.Detail = v, detail
		return res
	}
	const brokeOff = "Something on the way to the engine, or the engine itself, broke off; the message may have been handled."
	wait, _ := a.RetryAfter(e.now())
	switch {
	case a.Status == http.StatusUnauthorized, a.Status == http.StatusProxyAuthRequired:
		return say(engine.Unauthorised, refusesUs)
	case a.AsksForLess():
		res.RetryAfter = wait
		return say(engine.Unknown, brokeOff)
	case a.Status == http.StatusRequestEntityTooLarge:
		return say(engine.Rejected, "The message is too large for the engine.")
	case ours && strings.HasPrefix(i.Exception, noEndpoint), !ours && (a.Status == http.StatusNotFound || a.Status == http.StatusMethodNotAllowed):
		res.Code = "BASE_PATH"
		return say(engine.Technical, wrongPath)
	case ours && a.Status == http.StatusBadRequest && i.requestFault() != "":
		return say(engine.Rejected, i.requestFault())
	case ours:
		return e.evidence(ctx, d, res, i)
	case a.Status == http.StatusFound, a.Status == http.StatusSeeOther:
		return say(engine.Unknown, "What answered redirects, perhaps to a login page; redirects are not followed.")
	case a.Status < 400 && a.Status >= 300:
		return say(engine.Technical, "What answered redirects: the URL is not Flowable's own. Redirects are not followed.")
	case a.Status == http.StatusRequestTimeout, a.Status >= 500, a.Status < 300:
		return say(engine.Unknown, brokeOff)
	}
	return say(engine.Technical, "What answered refused, and not as Flowable does.")
}

func code(a httpcall.Answer) string { return "HTTP " + strconv.Itoa(a.Status) }

// evidence decides about a delivery that Flowable says has failed. Its transaction is over: no waiting is needed to see
// what it left. Text and status alone do not tell a failed step from a failure after the commit, nor, when they are
// masked, from a subscription that is gone.
func (e *Engine) evidence(ctx context.Context, d engine.Delivery, res engine.Result, i info) engine.Result {
	outcome, found, waiting := e.lookup(ctx, d)
	switch outcome {
	case engine.ProbeFound:
		found.Verdict = engine.Correlated
		found.Code, found.Detail = res.Code, "The engine said that it failed, but the message has had its effect."
		return found
	case engine.ProbeWaiting:
		if waiting.Suspended {
			return suspended(waiting.instance())
		}
		res.Verdict, res.Reference = engine.Technical, waiting.instance()
		res.Detail = i.failed("The engine failed while it handled the message, which had no effect")
		if strings.Contains(i.Exception, saysConcurrently) {
			// Nobody's failure: two transactions met, and the other one won.
			res.Verdict, res.Code = engine.RetryAfter, "OPTIMISTIC_LOCK"
			res.Detail = "Another transaction changed the process instance at the same time."
		}
	case engine.ProbeGone:
		res.Verdict = engine.Vanished
		res.Detail = i.failed("The delivery failed, and nobody waits for the message any more")
	default:
		res.Verdict = engine.Unknown
		res.Detail = i.failed("The delivery failed, and the engine could not be asked what became of it")
	}
	return res
}
