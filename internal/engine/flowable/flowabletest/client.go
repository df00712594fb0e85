package flowabletest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
)

// Client uses the REST API as a person or a test would: with every right, and a failed test where something fails.
type Client struct {
	t    testing.TB
	base string
}

// Client is a client of the server for t.
func (s *Server) Client(t testing.TB) *Client { return &Client{t: t, base: s.URL()} }

// Variable is a process variable.
type Variable struct {
	Name  string          `json:"name"`
	Type  string          `json:"type,omitempty"`
	Value json.RawMessage `json:"value"`
}

// Text is a variable that holds a text.
func Text(name, value string) Variable {
	raw, _ := json.Marshal(value)
	return Variable{Name: name, Type: "string", Value: raw}
}

// Do makes a request, and decodes the answer into into unless that is nil. It returns status and body as they came.
func (c *Client) Do(method, path string, body, into any) (int, []byte) {
	c.t.Helper()
	var in io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			c.t.Fatal(err)
		}
		in = bytes.NewReader(raw)
	}
	return c.send(method, path, "application/json", in, into)
}

func (c *Client) send(method, path, media string, body io.Reader, into any) (int, []byte) {
	c.t.Helper()
	status, raw, err := send(context.Background(), method, c.base+path, media, body)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	if into != nil {
		if status > 299 {
			c.t.Fatalf("%s %s: status %d: %.500s", method, path, status, raw)
		}
		if err := json.Unmarshal(raw, into); err != nil {
			c.t.Fatalf("%s %s: %v: %.500s", method, path, err, raw)
		}
	}
	return status, raw
}

// Deploy deploys a BPMN file for a tenant, or for none.
func (c *Client) Deploy(name, tenant string, bpmn []byte) {
	c.t.Helper()
	c.deploy(name+".bpmn20.xml", tenant, bpmn)
}

func (c *Client) deploy(file, tenant string, content []byte) {
	c.t.Helper()
	if err := deploy(context.Background(), c.base, file, tenant, content); err != nil {
		c.t.Fatal(err)
	}
}

// StartProcess starts an instance and returns its id.
func (c *Client) StartProcess(key, businessKey, tenant string, variables ...Variable) string {
	c.t.Helper()
	body := map[string]any{"processDefinitionKey": key, "businessKey": businessKey, "variables": variables}
	if tenant != "" {
		body["tenantId"] = tenant
	}
	var got struct{ ID string }
	c.Do(http.MethodPost, "/runtime/process-instances", body, &got)
	return got.ID
}

// Waiting are the executions that wait for a message, of one instance or, with an empty id, of all.
func (c *Client) Waiting(message, instance string) []string {
	c.t.Helper()
	body := map[string]any{"messageEventSubscriptionName": message, "size": 1000}
	if instance != "" {
		body["processInstanceId"] = instance
	}
	var page struct{ Data []struct{ ID string } }
	c.Do(http.MethodPost, "/query/executions", body, &page)
	ids := make([]string, len(page.Data))
	for i, e := range page.Data {
		ids[i] = e.ID
	}
	return ids
}

// Deliver sends a message to an execution past the inbox, and returns what Flowable says.
func (c *Client) Deliver(execution, message string, variables ...Variable) (int, []byte) {
	c.t.Helper()
	return c.Do(http.MethodPut, "/runtime/executions/"+execution,
		map[string]any{"action": "messageEventReceived", "messageName": message, "variables": variables}, nil)
}

// Suspend suspends an instance, Activate wakes it.
func (c *Client) Suspend(instance string)  { c.action(instance, "suspend") }
func (c *Client) Activate(instance string) { c.action(instance, "activate") }

func (c *Client) action(instance, action string) {
	c.t.Helper()
	var got struct{ ID string }
	c.Do(http.MethodPut, "/runtime/process-instances/"+instance, map[string]any{"action": action}, &got)
}

// Delete deletes a running instance.
func (c *Client) Delete(instance string) {
	c.t.Helper()
	if status, raw := c.Do(http.MethodDelete, "/runtime/process-instances/"+instance, nil, nil); status != http.StatusNoContent {
		c.t.Fatalf("deleting an instance: status %d: %.300s", status, raw)
	}
}

// Count is the total of a query.
func (c *Client) Count(path string, filter map[string]any) int {
	c.t.Helper()
	var page struct{ Total int }
	if filter == nil {
		c.Do(http.MethodGet, path, nil, &page)
	} else {
		c.Do(http.MethodPost, path, filter, &page)
	}
	return page.Total
}

// Finished is how many times an activity of an instance has been completed.
func (c *Client) Finished(instance, activity string) int {
	c.t.Helper()
	return c.Count(fmt.Sprintf("/history/historic-activity-instances?processInstanceId=%s&activityId=%s&finished=true", instance, activity), nil)
}

// Variables are the variables of an instance in history, by name.
func (c *Client) Variables(instance string) map[string]Variable {
	c.t.Helper()
	var page struct{ Data []struct{ Variable Variable } }
	c.Do(http.MethodGet, "/history/historic-variable-instances?size=1000&processInstanceId="+instance, nil, &page)
	byName := map[string]Variable{}
	for _, v := range page.Data {
		byName[v.Variable.Name] = v.Variable
	}
	return byName
}
