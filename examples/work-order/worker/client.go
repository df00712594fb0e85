package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

var (
	// ErrGone says that Flowable has no such job: completed, failed for good, or its instance is gone.
	ErrGone = errors.New("no such job")
	// ErrNotHeld says that the lock of the job is not this worker's, or not any more.
	ErrNotHeld = errors.New("the job's lock is not this worker's")
)

// maxAnswerBytes is read of an answer. One job with its variables is the longest.
const maxAnswerBytes = 1 << 20

// errTooLong says that an answer has more than maxAnswerBytes.
var errTooLong = fmt.Errorf("the answer has more than %d bytes", maxAnswerBytes)

// Client speaks Flowable's external job API. It is safe for concurrent use.
type Client struct {
	base, username, password string
	http                     *http.Client
}

// NewClient makes a client of the API at base, such as https://flowable.example/external-job-api, with HTTP Basic
// authentication unless username is empty. timeout bounds each call. It fails for a base that is no http URL.
func NewClient(base, username, password string, timeout time.Duration) (*Client, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("flowable's external job API needs an http or https URL")
	}
	if timeout <= 0 {
		return nil, errors.New("flowable's external job API needs a timeout")
	}
	return &Client{base: strings.TrimRight(base, "/"), username: username, password: password,
		http: &http.Client{Timeout: timeout}}, nil
}

// Variable is a process variable, as Flowable writes it.
type Variable struct {
	Name  string          `json:"name"`
	Type  string          `json:"type,omitempty"`
	Value json.RawMessage `json:"value"`
}

// Text is a variable that holds a text.
func Text(name, value string) Variable {
	raw, _ := json.Marshal(value) // a string always marshals
	return Variable{Name: name, Type: "string", Value: raw}
}

// Job is a job that this worker holds.
type Job struct {
	ID                string     `json:"id"`
	ProcessInstanceID string     `json:"processInstanceId"`
	Retries           int        `json:"retries"` // left, this one included
	Variables         []Variable `json:"variables"`
	// TooLong says that the variables are too long to be read, and that there is nothing here but the id.
	TooLong bool `json:"-"`
}

// Acquire locks at most one job of a topic for the worker, and returns it, or nil.
//
// One, because all locks of a batch run from the same moment: the last of twenty jobs would begin with what the others
// have left of it.
func (c *Client) Acquire(ctx context.Context, topic, worker string, lock time.Duration) (*Job, error) {
	var jobs []Job
	answer, err := c.post(ctx, "/acquire/jobs", map[string]any{"topic": topic, "workerId": worker, "lockDuration": iso(lock),
		"numberOfTasks": 1, "scopeType": "bpmn"})
	switch {
	case errors.Is(err, errTooLong):
		// The job is locked all the same, and would be the first to be handed out again.
		id, ok := firstID(answer)
		if !ok {
			return nil, fmt.Errorf("acquire a job of %s: %w", topic, err)
		}
		return &Job{ID: id, TooLong: true}, nil
	case err != nil:
		return nil, fmt.Errorf("acquire a job of %s: %w", topic, err)
	}
	if err := json.Unmarshal(answer, &jobs); err != nil {
		return nil, fmt.Errorf("acquire a job of %s: read the answer: %w", topic, err)
	}
	if len(jobs) == 0 {
		return nil, nil
	}
	return &jobs[0], nil
}

// firstID reads the id of the first job of a list that breaks off. Flowable writes it before the variables.
func firstID(list []byte) (string, bool) {
	dec := json.NewDecoder(bytes.NewReader(list))
	for _, want := range []json.Delim{'[', '{'} {
		if token, err := dec.Token(); err != nil || token != want {
			return "", false
		}
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return "", false
		}
		var value any
		if dec.Decode(&value) != nil {
			return "", false
		}
		if id, ok := value.(string); ok && name == "id" {
			return id, id != ""
		}
	}
	return "", false
}

// Complete completes a job, and sets variables of its process.
func (c *Client) Complete(ctx context.Context, id, worker string, variables ...Variable) error {
	return c.act(ctx, id, "complete", map[string]any{"workerId": worker, "variables": variables})
}

// BPMNError ends a job with an error that the process catches by its code.
func (c *Client) BPMNError(ctx context.Context, id, worker, code string, variables ...Variable) error {
	return c.act(ctx, id, "bpmnError", map[string]any{"workerId": worker, "errorCode": code, "variables": variables})
}

// Fail says that a job could not be done. It has this many retries from now on, the next one not before a time; with 0 it
// becomes a dead-letter job. Of the cause 1000 characters are kept.
func (c *Client) Fail(ctx context.Context, id, worker string, retries int, after time.Duration, cause string) error {
	return c.act(ctx, id, "fail", map[string]any{"workerId": worker, "retries": retries, "retryTimeout": iso(after), "errorMessage": fmt.Sprintf("%.1000s", cause)})
}

// Release gives back every job that the worker holds.
func (c *Client) Release(ctx context.Context, worker string) error {
	if _, err := c.post(ctx, "/unacquire/jobs", map[string]any{"workerId": worker}); err != nil {
		return fmt.Errorf("give back the jobs of %s: %w", worker, err)
	}
	return nil
}

func (c *Client) act(ctx context.Context, id, action string, body map[string]any) error {
	if _, err := c.post(ctx, "/acquire/jobs/"+url.PathEscape(id)+"/"+action, body); err != nil {
		return fmt.Errorf("%s job %s: %w", action, id, err)
	}
	return nil
}

// post returns the answer of a success, and as much of a longer one as may be read, with errTooLong.
func (c *Client) post(ctx context.Context, path string, body map[string]any) ([]byte, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if c.username != "" {
		req.SetBasicAuth(c.username, c.password)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the answer: %w", err)
	case resp.StatusCode > 299 || resp.StatusCode < 200:
		return nil, fault(resp.StatusCode, answer)
	case len(answer) > maxAnswerBytes:
		return answer, errTooLong
	}
	return answer, nil
}

// fault tells what Flowable says of a job from what a proxy or a wrong address says: only Flowable answers with these
// texts. A 403 without them is a user without the right to use the API.
func fault(status int, answer []byte) error {
	var said struct{ Exception string }
	_ = json.Unmarshal(answer, &said) // what is no JSON says nothing
	switch {
	case status == http.StatusNotFound && strings.Contains(strings.ToLower(said.Exception), "external worker job"):
		return fmt.Errorf("%w: %s", ErrGone, said.Exception)
	case (status == http.StatusForbidden || status == http.StatusBadRequest) && strings.Contains(said.Exception, "does not hold a lock"):
		return fmt.Errorf("%w: %s", ErrNotHeld, said.Exception)
	}
	if said.Exception == "" {
		return fmt.Errorf("flowable answers %d", status)
	}
	return fmt.Errorf("flowable answers %d: %.300s", status, said.Exception)
}

// iso writes a duration as Java reads it, in whole milliseconds.
func iso(d time.Duration) string {
	ms := max(d.Milliseconds(), 0)
	return fmt.Sprintf("PT%d.%03dS", ms/1000, ms%1000)
}
