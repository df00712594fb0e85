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
	case engine.Technical, engine.Throttled, engine.RetryAfter, engine.Unknown:
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
	v, configured := engine.Verdict(""), false
	if a.Status >= 200 && a.Status <= 599 {
		v, configured = e.config.verdictFor(a.Status)
	}
	// The evidence that would tell "nobody waits" from "several wait" was under way and is lost: no status stands for it.
	if a.lost() && (!configured && speaks(a.Status) || configured && ends(v)) {
		return engine.Technical, "The engine refused, and its reason cannot be read: it broke off, is too long, or is in an encoding that is not known here."
	}
	if configured {
		return v, "The configuration maps this status to " + string(v) + "."
	}
	return e.byStatus(a)
}

// ends reports whether a verdict finishes a message, brings it to a person, or uses up its patience.
func ends(v engine.Verdict) bool {
	switch v {
	case engine.RetryAfter, engine.Technical, engine.Throttled, engine.Unauthorised, engine.Unknown:
		return false
	}
	return true
}

// speaks reports whether a status is one in which an engine would refuse a message, or say that nobody waits. So do gateways,
// ingresses, frameworks without a route and servers that expect TLS, in their own name and in every format.
func speaks(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusGone, http.StatusPreconditionFailed,
		http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return true
	}
	return false
}

// byStatus is the default mapping.
func (e *Engine) byStatus(a answer) (engine.Verdict, string) {
	if speaks(a.Status) {
		if a.HTML() {
			return engine.Technical, "A web page says so, not an engine: is the URL right, and the engine there?"
		}
		return engine.Technical, "This status does not say that it is the engine's own: an engine answers with a problem document, or has the status under statuses in the configuration. Is the URL right, and the engine there?"
	}
	if a.AsksForLess() {
		if !e.config.Idempotent {
			return engine.Unknown, "The engine, or something in front of it, asks for less; whether the engine has acted before is not said."
		}
		return engine.Throttled, "The engine asks for less."
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
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired:
		return engine.Unauthorised, "The engine refuses us, or something in front of it refuses this message: credentials and their rights, or a firewall's rule."
	case http.StatusRequestTimeout:
		return e.unsure(), "The engine gave up reading or handling the request."
	case http.StatusConflict:
		return engine.Technical, "A delivery of this message is still being worked on, or collided with another."
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
