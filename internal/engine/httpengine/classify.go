package httpengine

import (
	"net/http"
	"strconv"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/httpcall"
)

// classify is the verdict of an answer. See the package's documentation for its rules.
func (e *Engine) classify(a answer, d engine.Delivery) engine.Result {
	p, _ := a.problem()
	s := httpcall.Scrubber{Delivery: d}
	r := engine.Result{Code: "HTTP " + strconv.Itoa(a.Status), Reference: a.reference(s)}
	r.Verdict, r.Detail = e.verdict(a, p)
	if text := s.Sentence(p.Title, p.Detail); text != "" {
		r.Detail = text
	}
	switch r.Verdict {
	case engine.Technical, engine.Throttled, engine.RetryAfter:
		r.RetryAfter = a.retryAfter(p, e.deps.Now())
	}
	return r
}

func (e *Engine) verdict(a answer, p problem) (engine.Verdict, string) {
	// A plain 503 is the engine's; one with a problem of ours is about this message. Other 5xx are failures, whatever they say.
	if a.Status >= 400 && a.Status <= 499 || a.Status == http.StatusServiceUnavailable {
		if v, ok := Problem(p.Type); ok {
			return v, "The engine answered with the problem " + string(v) + "."
		}
	}
	if a.Status >= 200 && a.Status <= 599 {
		if v, ok := e.config.verdictFor(a.Status); ok {
			return v, "The configuration maps this status to " + string(v) + "."
		}
	}
	// The evidence that would tell "nobody waits" from "several wait" was under way and is lost.
	if a.Cut && a.Media == "application/problem+json" && parks(a.Status) {
		return engine.Technical, "The engine refused, and its reason broke off."
	}
	return e.byStatus(a)
}

// parks reports whether a status by itself can bring a message to a person.
func parks(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusGone, http.StatusPreconditionFailed,
		http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return true
	}
	return false
}

// byStatus is the default mapping.
func (e *Engine) byStatus(a answer) (engine.Verdict, string) {
	if a.HTML() {
		switch a.Status {
		case http.StatusNotFound, http.StatusGone, http.StatusPreconditionFailed:
			return engine.Technical, "A web page says so, not an engine: is the URL right, and the engine there?"
		}
	}
	switch a.Status {
	case http.StatusOK, http.StatusCreated, http.StatusNoContent:
		if a.HTML() {
			return e.unsure(), "A web page is no engine's success: is this a login page?"
		}
		if a.Media == "application/problem+json" {
			return e.unsure(), "The answer says success and problem at once."
		}
		return engine.Correlated, ""
	case http.StatusAccepted:
		if a.HTML() {
			return e.unsure(), "A web page is no engine's success: is this a login page?"
		}
		return engine.HandedOver, "The engine has taken the message; that an instance advanced it does not say."
	case http.StatusFound, http.StatusSeeOther:
		return e.unsure(), "The engine redirects, perhaps to a login page; redirects are not followed."
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return engine.Rejected, "The engine refuses this message."
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired:
		return engine.Unauthorised, "The engine refuses us: check the credentials and their rights."
	case http.StatusNotFound:
		return engine.NotWaiting, "Nobody waits for this message."
	case http.StatusRequestTimeout:
		return e.unsure(), "The engine gave up reading or handling the request."
	case http.StatusConflict:
		return engine.Technical, "A delivery of this message is still being worked on, or collided with another."
	case http.StatusGone:
		return engine.AlreadyThrough, "The process is past the point that waits for this message."
	case http.StatusPreconditionFailed:
		return engine.Vanished, "The waiting instance went away meanwhile."
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return engine.Throttled, "The engine asks for less."
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported, http.StatusNetworkAuthenticationRequired:
		return engine.Technical, "What answers at the URL cannot take deliveries."
	}
	switch a.Status / 100 {
	case 2:
		return e.unsure(), "This kind of success does not say that the engine itself handled the message."
	case 3:
		return engine.Technical, "The engine redirects: the configured URL is not its own. Redirects are not followed."
	case 4:
		return engine.Technical, "The engine refused, in a way that says nothing about the process."
	}
	return e.unsure(), "The engine failed while it handled the message."
}

// unsure is the verdict where the message may have been acted upon and nothing says that it was.
func (e *Engine) unsure() engine.Verdict {
	if e.config.Idempotent {
		return engine.Technical
	}
	return engine.Unknown
}
