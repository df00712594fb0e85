package flowable

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
)

// start starts an instance by message, unless there is, or was, one under its business key. Flowable itself does not
// keep business keys unique: what does is that messages of one key are relayed one after another.
func (e *Engine) start(ctx, looking context.Context, d engine.Delivery, variables []variable) engine.Result {
	instance, res := e.started(looking, d)
	switch {
	case res != nil:
		return *res
	case instance != "":
		return engine.Result{Verdict: engine.Duplicate, Code: "BUSINESS_KEY", Reference: instance, Detail: "There is, or was, a process instance under this business key."}
	}
	// Whoever is to be found by the correlation variable must have it.
	v, ok := e.keyVariable(d.Key)
	if !ok {
		return *rejected("KEY", "The correlation key is no "+e.config.Correlation.Type+", which the correlation variable is.")
	}
	variables = append(withoutVariable(variables, v.Name), v)
	body, err := json.Marshal(struct {
		Message     string     `json:"message"`
		BusinessKey string     `json:"businessKey"`
		TenantID    string     `json:"tenantId,omitempty"`
		Variables   []variable `json:"variables"`
	}{d.Message, d.Key, e.config.Tenant, variables})
	if err != nil {
		return *rejected("request", "The message cannot be sent: it cannot be written as JSON.")
	}
	a, failure := e.call(ctx, http.MethodPost, "/runtime/process-instances", body, d.MaySend)
	if failure != nil {
		return *failure
	}
	if a.Status == http.StatusCreated {
		var r row
		if a.Body != nil && !a.HTML() && json.Unmarshal(a.Body, &r) == nil && r.ID != "" {
			return engine.Result{Verdict: engine.Correlated, Code: "HTTP 201", Reference: r.ID}
		}
		return engine.Result{Verdict: engine.Unknown, Code: "PROTOCOL", Detail: "What answered said success, and not as Flowable does."}
	}
	if i, ours := errorInfo(a); ours {
		switch {
		case a.Status == http.StatusBadRequest && strings.HasPrefix(i.Exception, saysNoStart):
			return engine.Result{Verdict: engine.NotWaiting, Code: "NO_START", Detail: "No process is deployed that starts by this message."}
		case strings.HasPrefix(i.Exception, saysCannotStart) && strings.HasSuffix(i.Exception, saysIsSuspended):
			return engine.Result{Verdict: engine.RetryAfter, Code: "SUSPENDED", RetryAfter: suspendedWait, Detail: "The process definition that starts by this message is suspended."}
		}
	}
	return e.refused(ctx, d, a)
}

func (e *Engine) probeStart(ctx context.Context, d engine.Delivery) (engine.ProbeOutcome, engine.Result) {
	instance, res := e.started(ctx, d)
	switch {
	case res != nil && res.Verdict == engine.Rejected:
		return engine.ProbeGone, *res
	case res != nil:
		return engine.ProbeFailed, *res
	case instance != "":
		return engine.ProbeFound, engine.Result{Code: "BUSINESS_KEY", Reference: instance, Detail: "There is, or was, a process instance under this business key."}
	}
	return engine.ProbeWaiting, engine.Result{Code: "WAITING"}
}

// started is the process instance under the business key of d, or empty: a running one, or one that has ended.
func (e *Engine) started(ctx context.Context, d engine.Delivery) (string, *engine.Result) {
	switch {
	case d.Key == "":
		return "", rejected("KEY", "The message has no key: an instance without a business key could be started twice.")
	case e.config.ProcessDefinitionKey == "":
		return "", &engine.Result{Verdict: engine.Technical, Code: "CONFIGURATION", Detail: "To start instances the engine needs a process definition key: other processes may have the same business keys. Nothing was sent."}
	}
	f := filter{ProcessBusinessKey: d.Key, ProcessDefinitionKey: e.config.ProcessDefinitionKey, TenantID: e.config.Tenant, Size: 1}
	for _, path := range []string{processInstances, historicInstances} {
		p, res := e.query(ctx, d, path, f)
		if res != nil {
			return "", res
		}
		if len(p.Data) > 0 {
			if p.Data[0].BusinessKey != d.Key {
				return "", strange() // the filter was not understood
			}
			return p.Data[0].ID, nil
		}
	}
	return "", nil
}
