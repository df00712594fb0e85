package flowable

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"unicode/utf8"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
)

// start starts an instance by message, unless d has started one, or there is, or was, one under its business key. Flowable
// itself does not keep business keys unique: what does is that messages of one key are relayed one after another.
func (e *Engine) start(ctx, looking context.Context, d engine.Delivery, variables []variable) engine.Result {
	switch outcome, found, _ := e.lookup(looking, d); outcome {
	case engine.ProbeFound:
		found.Verdict = engine.Duplicate
		return found
	case engine.ProbeWaiting:
	default:
		return found
	}
	if res := e.startable(looking, d); res != nil {
		return *res
	}
	body, err := json.Marshal(struct {
		Message     string     `json:"message"`
		BusinessKey string     `json:"businessKey"`
		TenantID    string     `json:"tenantId,omitempty"`
		Variables   []variable `json:"variables"`
	}{d.Message, d.Key, e.config.Tenant, variables})
	if err != nil {
		return unwritable()
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
	return e.refused(ctx, d, a)
}

// startable makes sure that d starts an instance of the configured process. Business keys are looked up there: under one
// of another process nothing would be found, and a second message would start another instance.
func (e *Engine) startable(ctx context.Context, d engine.Delivery) *engine.Result {
	// As Flowable itself looks for the definition: without a tenant only among those that have none. It deploys no two that
	// start by one message.
	v := url.Values{"eventType": {"message"}, "eventName": {d.Message}, "withoutProcessInstanceId": {"true"}, "size": {"1"}}
	if e.config.Tenant != "" {
		v.Set("tenantId", e.config.Tenant)
	} else {
		v.Set("withoutTenantId", "true")
	}
	p, res := e.ask(ctx, http.MethodGet, "/runtime/event-subscriptions?"+v.Encode(), nil, 1)
	switch {
	case res != nil:
		return res
	case len(p.Data) == 0:
		return &engine.Result{Verdict: engine.NotWaiting, Code: "NO_START", Detail: "No process is deployed that starts by this message."}
	case p.Data[0].ProcessInstanceID != "" || p.Data[0].ProcessDefinitionID == "":
		return strange() // the filter was not understood
	}
	id := p.Data[0].ProcessDefinitionID
	a, res := e.look(ctx, http.MethodGet, "/repository/process-definitions/"+url.PathEscape(id), nil)
	if res != nil {
		return res
	}
	var definition struct {
		ID, Key   string
		Suspended bool
	}
	switch {
	case json.Unmarshal(a.Body, &definition) != nil || definition.ID != id:
		return strange()
	case definition.Key != e.config.ProcessDefinitionKey:
		return &engine.Result{Verdict: engine.Technical, Code: "CONFIGURATION", Detail: "The message starts the process " + definition.Key +
			", and the engine's processDefinitionKey is " + e.config.ProcessDefinitionKey + ". Nothing was sent."}
	case definition.Suspended:
		return &engine.Result{Verdict: engine.RetryAfter, Code: "SUSPENDED", RetryAfter: suspendedWait, Detail: "The process definition that starts by this message is suspended."}
	}
	return nil
}

// lookupStart says what became of a start whose transaction is over and that has left no marker.
func (e *Engine) lookupStart(ctx context.Context, d engine.Delivery) (engine.ProbeOutcome, engine.Result) {
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

// maxBusinessKey is how many characters a business key of Flowable has at most.
const maxBusinessKey = 255

// startsUnder says why nothing can be started, or looked up, under the key of d.
func (e *Engine) startsUnder(d engine.Delivery) *engine.Result {
	switch {
	case d.Key == "":
		return rejected("KEY", "The message has no key: an instance without a business key could be started twice.")
	case utf8.RuneCountInString(d.Key) > maxBusinessKey:
		return rejected("KEY", "The key has more than 255 characters, which is the most that a business key of Flowable can have.")
	case e.config.ProcessDefinitionKey == "":
		return &engine.Result{Verdict: engine.Technical, Code: "CONFIGURATION", NotAsked: true,
			Detail: "To start instances the engine needs a process definition key: other processes may have the same business keys. Nothing was sent."}
	}
	return nil
}

// started is the process instance under the business key of d, or empty: a running one, or one that has ended.
func (e *Engine) started(ctx context.Context, d engine.Delivery) (string, *engine.Result) {
	if problem := e.startsUnder(d); problem != nil {
		problem.NotAsked = false // the marker was asked for before
		return "", problem
	}
	f := filter{ProcessBusinessKey: d.Key, ProcessDefinitionKey: e.config.ProcessDefinitionKey, TenantID: e.config.Tenant, Size: 1}
	for _, path := range []string{processInstances, historicInstances} {
		p, res := e.query(ctx, path, f)
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
