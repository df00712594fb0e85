package flowable

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/httpcall"
)

// pageSize is how many rows a query asks for: what is named as evidence. It decides nothing: total does.
const pageSize = 10

// row is what is used of an execution or a process instance.
type row struct {
	ID                  string `json:"id"`
	ProcessInstanceID   string `json:"processInstanceId"`
	ProcessDefinitionID string `json:"processDefinitionId"`
	BusinessKey         string `json:"businessKey"`
	TenantID            string `json:"tenantId"`
	Suspended           bool   `json:"suspended"`
	EndTime             string `json:"endTime"`
}

// instance is the process instance of an execution.
func (r row) instance() string {
	if r.ProcessInstanceID != "" {
		return r.ProcessInstanceID
	}
	return r.ID
}

// page is an answer to a query. Its data is one page of the rows, ten by default; total counts them all.
type page struct {
	Data  []row  `json:"data"`
	Total *int64 `json:"total"`
}

// variable is a variable in a query, or one that is set.
type variable struct {
	Name      string          `json:"name"`
	Operation string          `json:"operation,omitempty"`
	Type      string          `json:"type,omitempty"`
	Value     json.RawMessage `json:"value"`
}

// filter is the body of a query. Flowable ignores members that it does not know, and then finds everything: their names
// are those of its request classes, and a test asks a real Flowable about each.
type filter struct {
	ProcessInstanceID            string     `json:"processInstanceId,omitempty"`
	ProcessDefinitionKey         string     `json:"processDefinitionKey,omitempty"`
	ProcessBusinessKey           string     `json:"processBusinessKey,omitempty"`
	MessageEventSubscriptionName string     `json:"messageEventSubscriptionName,omitempty"`
	ProcessInstanceVariables     []variable `json:"processInstanceVariables,omitempty"` // of executions: the instance's, not the execution's own
	Variables                    []variable `json:"variables,omitempty"`                // of process instances
	TenantID                     string     `json:"tenantId,omitempty"`
	Sort                         string     `json:"sort,omitempty"`
	Order                        string     `json:"order,omitempty"`
	Size                         int        `json:"size"`
}

const (
	executions        = "/query/executions"
	processInstances  = "/query/process-instances"
	historicInstances = "/query/historic-process-instances"
)

// query asks for rows. The page it returns has a total, and as much data as total and size demand.
func (e *Engine) query(ctx context.Context, path string, f filter) (page, *engine.Result) {
	if f.Size == 0 {
		f.Size = pageSize
	}
	body, err := json.Marshal(f)
	if err != nil {
		return page{}, &engine.Result{Verdict: engine.Technical, Code: "request", Detail: "The query cannot be written. Nothing was sent."}
	}
	return e.ask(ctx, http.MethodPost, path, body, f.Size)
}

// ask makes a request that changes nothing.
func (e *Engine) ask(ctx context.Context, method, path string, body []byte, size int) (page, *engine.Result) {
	a, res := e.look(ctx, method, path, body)
	if res != nil {
		return page{}, res
	}
	var p page
	if json.Unmarshal(a.Body, &p) != nil || p.Total == nil || !p.plausible(size) {
		return page{}, strange()
	}
	for _, r := range p.Data {
		if r.ID == "" {
			return page{}, strange()
		}
	}
	return p, nil
}

// plausible reports whether data can be a page of total rows. It may be shorter than it could: rows go away between the
// statement that counts and the one that lists.
func (p page) plausible(size int) bool {
	rows, total := int64(len(p.Data)), *p.Total
	if total == 0 {
		return rows == 0
	}
	return rows > 0 && rows <= min(total, int64(size))
}

func strange() *engine.Result {
	return &engine.Result{Verdict: engine.Technical, Code: "PROTOCOL", Detail: "What answered a query did not answer as Flowable does: is the URL that of its REST API?"}
}

// look makes a request that changes nothing, and returns its answer if that is a success.
func (e *Engine) look(ctx context.Context, method, path string, body []byte) (httpcall.Answer, *engine.Result) {
	a, failure := e.call(ctx, method, path, body, nil)
	if failure != nil {
		if failure.Verdict == engine.Unknown {
			// The request was sent, and had no effect to be unsure of.
			failure.Verdict = engine.Technical
			failure.Detail = "A query of the engine got no answer. Nothing was delivered."
		}
		return a, failure
	}
	if a.Status == http.StatusOK && a.Body != nil && !a.HTML() {
		return a, nil
	}
	res := engine.Result{Verdict: engine.Technical, Code: "HTTP " + strconv.Itoa(a.Status), Detail: "The engine failed to answer a query."}
	info, ours := errorInfo(a)
	switch {
	case a.Status == http.StatusUnauthorized, a.Status == http.StatusForbidden, a.Status == http.StatusProxyAuthRequired:
		res.Verdict, res.Detail = engine.Unauthorised, refusesUs
	case a.AsksForLess():
		res.Verdict, res.Detail = engine.Throttled, "The engine asks for less."
		res.RetryAfter, _ = a.RetryAfter(e.now())
	case a.Status == http.StatusNotFound && !ours, strings.HasPrefix(info.Exception, noEndpoint):
		res.Code, res.Detail = "BASE_PATH", wrongPath
	case a.Status == http.StatusOK:
		return a, strange()
	case ours:
		res.Detail = info.failed("The engine failed to answer a query")
	}
	return a, &res
}

const (
	refusesUs = "The engine refuses us: check the credentials, and whether they have the privilege access-rest-api."
	wrongPath = "There is no REST API of Flowable at this URL: its path is wrong."
)

// correlation is the filter's part that compares the correlation key.
func (e *Engine) correlation(d engine.Delivery, f filter, path string) (filter, *engine.Result) {
	f.ProcessDefinitionKey, f.TenantID = e.config.ProcessDefinitionKey, e.config.Tenant
	if d.Key == "" {
		return f, rejected("KEY", "The message has no correlation key: nobody can be found by it.")
	}
	v, res := e.keyVariable(d.Key)
	if res != nil {
		return f, res
	}
	v.Operation = "equals"
	if path == executions {
		f.ProcessInstanceVariables = []variable{v}
	} else {
		f.Variables = []variable{v}
	}
	return f, nil
}

// rejected is what the adapter finds wrong with a delivery by itself.
func rejected(code, detail string) *engine.Result {
	return &engine.Result{Verdict: engine.Rejected, Code: code, Detail: detail, NotAsked: true}
}

// find is the one execution that waits for d.
func (e *Engine) find(ctx context.Context, d engine.Delivery) (row, *engine.Result) {
	f, res := e.correlation(d, filter{MessageEventSubscriptionName: d.Message}, executions)
	if res != nil {
		return row{}, res
	}
	p, res := e.query(ctx, executions, f)
	if res != nil {
		return row{}, res
	}
	return e.judge(p)
}

// judge takes total for what it is. Where a tenant is configured, rows of others are not counted, if an engine should
// list them all the same.
func (e *Engine) judge(p page) (row, *engine.Result) {
	total, rows := *p.Total, p.Data
	if e.config.Tenant != "" {
		rows = slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return r.TenantID != "" && r.TenantID != e.config.Tenant })
		total -= int64(len(p.Data) - len(rows))
	}
	switch {
	case total == 0:
		return row{}, &engine.Result{Verdict: engine.NotWaiting, Code: "NONE", Detail: "No execution waits for this message and key."}
	case total > 1:
		return row{}, ambiguous(total, rows)
	case len(rows) != 1:
		return row{}, strange()
	}
	return rows[0], nil
}

// ambiguous keeps the count, and the executions that a person has to choose from.
func ambiguous(total int64, rows []row) *engine.Result {
	var ids, instances []string
	for _, r := range rows {
		ids = append(ids, r.ID)
		if i := r.ProcessInstanceID; i != "" && !slices.Contains(instances, i) {
			instances = append(instances, i)
		}
	}
	detail := strconv.FormatInt(total, 10) + " executions wait for this message and key"
	switch {
	case int64(len(rows)) < total:
		detail += "; the first " + strconv.Itoa(len(rows)) + " are named"
	case len(instances) == 1:
		detail += ", all of process instance " + instances[0]
	case len(instances) > 1:
		detail += ", of process instances " + strings.Join(instances, " ")
	}
	return &engine.Result{Verdict: engine.Ambiguous, Code: "AMBIGUOUS", Reference: strings.Join(ids, " "), Detail: detail + "."}
}
