package worker_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/pubsub-inbox/pubsub-inbox/examples/work-order/worker"
)

// fake answers as Flowable 7.2.0 does, word for word, and keeps its jobs as that does. The tests against a real Flowable
// do the same things.
type fake struct {
	*httptest.Server
	mu       sync.Mutex
	jobs     []*fakeJob
	requests []string                                          // action and id, in order
	before   func(w http.ResponseWriter, r *http.Request) bool // true: it has answered
	after    func(r *http.Request) bool                        // true: the answer is lost
}

type fakeJob struct {
	worker.Job
	owner, state string // state: "", completed, refused, dead
	wait         string // the retryTimeout of the last failure
	said         string // the message of the last failure, or the variables of the end
}

func newFake(t *testing.T, jobs ...*fakeJob) *fake {
	f := &fake{jobs: jobs}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func invoiceJob(id, order string, items string) *fakeJob {
	j := &fakeJob{Job: worker.Job{ID: id, ProcessInstanceID: "instance-" + id, Retries: 3}}
	if order != "" {
		j.Variables = append(j.Variables, worker.Text("workOrderId", order))
	}
	if items != "" {
		j.Variables = append(j.Variables, worker.Variable{Name: "completedItems", Type: "long", Value: json.RawMessage(items)})
	}
	return j
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.before != nil && f.before(w, r) {
		return
	}
	status, body := f.handle(r)
	if f.after != nil && f.after(r) {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if body != nil {
		_ = json.NewEncoder(w).Encode(body)
	}
}

func (f *fake) handle(r *http.Request) (int, any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var body struct {
		WorkerID, ErrorMessage, ErrorCode, RetryTimeout, LockDuration, Topic string
		Retries, NumberOfTasks                                               int
		Variables                                                            json.RawMessage
	}
	_ = json.NewDecoder(r.Body).Decode(&body)
	refuse := func(status int, message, format string, args ...any) (int, any) {
		return status, map[string]string{"message": message, "exception": fmt.Sprintf(format, args...)}
	}
	path := strings.TrimPrefix(r.URL.Path, "/external-job-api")
	switch {
	case body.WorkerID == "":
		return refuse(400, "Bad request", "workerId is required")
	case path == "/unacquire/jobs":
		f.requests = append(f.requests, "unacquire")
		for _, j := range f.jobs {
			if j.owner == body.WorkerID {
				j.owner = ""
			}
		}
		return 204, nil
	case path == "/acquire/jobs":
		f.requests = append(f.requests, "acquire")
		if body.Topic != "create-invoice" || body.LockDuration != "PT300.000S" || body.NumberOfTasks != 1 {
			return refuse(400, "Bad request", "unexpected %v", body)
		}
		for _, j := range f.jobs {
			if j.state == "" && j.owner == "" {
				j.owner = body.WorkerID
				return 200, []worker.Job{j.Job}
			}
		}
		return 200, []worker.Job{}
	}
	id, action, ok := strings.Cut(strings.TrimPrefix(path, "/acquire/jobs/"), "/")
	if !ok {
		return 404, map[string]any{"status": 404, "error": "Not Found", "path": r.URL.Path}
	}
	f.requests = append(f.requests, action+" "+id)
	var j *fakeJob
	for _, each := range f.jobs {
		if each.ID == id && each.state == "" {
			j = each
		}
	}
	switch {
	case j == nil:
		return refuse(404, "Not found", "Could not find external worker job with id '%s'.", id)
	case j.owner != body.WorkerID:
		return refuse(403, "Forbidden", "%s does not hold a lock on the requested job", body.WorkerID)
	}
	switch action {
	case "complete":
		j.state, j.said = "completed", string(body.Variables)
	case "bpmnError":
		j.state, j.said = "refused", body.ErrorCode+" "+string(body.Variables)
	case "fail":
		if j.Retries, j.owner, j.wait, j.said = body.Retries, "", body.RetryTimeout, body.ErrorMessage; j.Retries == 0 {
			j.state = "dead"
		}
	}
	return 204, nil
}
