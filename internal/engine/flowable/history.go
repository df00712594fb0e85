package flowable

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
)

// Through implements engine.Historian. Where history has the marker of d itself, the verdict is Duplicate.
func (e *Engine) Through(ctx context.Context, d engine.Delivery) engine.Result {
	ctx, cancel := context.WithTimeout(ctx, e.config.Timeout)
	defer cancel()
	none := engine.Result{Verdict: engine.NotWaiting, Code: "NONE", Detail: "History knows of no process instance that is past this message."}
	if d.Start {
		return none
	}
	instance, res := e.marked(ctx, d)
	switch {
	case res != nil:
		return *res
	case instance != "":
		return engine.Result{Verdict: engine.Duplicate, Code: "MARKER", Reference: instance, Detail: "The process instance has the marker of this message: it was delivered before."}
	}
	instances, res := e.known(ctx, d)
	if res != nil {
		return *res
	}
	var past *engine.Result
	for _, r := range instances {
		passed, res := e.passed(ctx, d, r)
		switch {
		case res != nil:
			return *res
		case !passed && r.EndTime == "":
			// This one may still come to wait.
			none.Reference = r.ID
			none.Detail = "Process instance " + r.ID + " runs, and is not known to have waited for this message."
			return none
		case past != nil:
		case passed:
			past = &engine.Result{Verdict: engine.AlreadyThrough, Code: "THROUGH", Reference: r.ID, Detail: "Process instance " + r.ID + " is past the point that waits for this message."}
		case e.config.ProcessDefinitionKey != "":
			past = &engine.Result{Verdict: engine.AlreadyThrough, Code: "ENDED", Reference: r.ID, Detail: "Process instance " + r.ID + " has ended, and is not known to have waited for this message."}
		}
	}
	if past != nil {
		return *past
	}
	return none
}

// known are the process instances that have, or had, the correlation key: by variable, and by business key where the
// process is known whose keys these are. The latest first.
func (e *Engine) known(ctx context.Context, d engine.Delivery) ([]row, *engine.Result) {
	f, res := e.correlation(d, filter{Sort: "startTime", Order: "desc"}, historicInstances)
	if res != nil {
		return nil, res
	}
	p, res := e.query(ctx, historicInstances, f)
	if res != nil || e.config.ProcessDefinitionKey == "" {
		return p.Data, res
	}
	f.Variables, f.ProcessBusinessKey = nil, d.Key
	byKey, res := e.query(ctx, historicInstances, f)
	if res != nil {
		return nil, res
	}
	rows := p.Data
	for _, r := range byKey.Data {
		if r.BusinessKey == d.Key && !slices.ContainsFunc(rows, func(o row) bool { return o.ID == r.ID }) {
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// passed reports whether history has an activity of the instance, finished, that waited for d's message.
func (e *Engine) passed(ctx context.Context, d engine.Delivery, r row) (bool, *engine.Result) {
	waits, res := e.waitsOf(ctx, r.ProcessDefinitionID)
	if res != nil {
		return false, res
	}
	for _, activity := range waits[d.Message] {
		n, res := e.activities(ctx, url.Values{"processInstanceId": {r.ID}, "activityId": {activity}, "finished": {"true"}})
		if res != nil || n > 0 {
			return n > 0, res
		}
	}
	return false, nil
}

// models are the waiting activities of process definitions, which do not change once they are deployed.
type models struct {
	mu   sync.Mutex
	byID map[string]map[string][]string // definition to message to activities
}

func (e *Engine) waitsOf(ctx context.Context, definition string) (map[string][]string, *engine.Result) {
	e.waits.mu.Lock()
	waits, ok := e.waits.byID[definition]
	e.waits.mu.Unlock()
	if ok || definition == "" {
		return waits, nil
	}
	a, res := e.look(ctx, http.MethodGet, "/repository/process-definitions/"+url.PathEscape(definition)+"/resourcedata", nil)
	switch {
	case res != nil && res.Code == "HTTP 404":
		return nil, nil // deleted meanwhile
	case res != nil:
		return nil, res
	}
	waits, processes, err := waitingActivities(a.Body)
	// What is taken for it once is believed from then on: it must be all of the definition's BPMN.
	if key := e.config.ProcessDefinitionKey; err != nil || len(processes) == 0 || key != "" && !slices.Contains(processes, key) {
		return nil, strange()
	}
	e.waits.mu.Lock()
	defer e.waits.mu.Unlock()
	if e.waits.byID == nil {
		e.waits.byID = map[string]map[string][]string{}
	}
	e.waits.byID[definition] = waits
	return waits, nil
}

// waitingActivities reads BPMN: which activities wait for which message, and which processes there are. Of a boundary event
// it is the activity that it is attached to: history knows the event only if it happened. An event whose message is an
// expression is none: which message it waited for, history does not know.
func waitingActivities(bpmn []byte) (waiting map[string][]string, processes []string, err error) {
	names := map[string]string{} // of messages, by id
	type wait struct{ activity, ref string }
	var waits []wait
	var open []xml.StartElement
	attribute := func(e xml.StartElement, name string) string {
		for _, a := range e.Attr {
			if a.Name.Local == name && a.Name.Space == "" {
				return a.Value
			}
		}
		return ""
	}
	dec := xml.NewDecoder(bytes.NewReader(bpmn))
	dec.Strict = false
	// Ids and names that are ASCII read the same in every encoding that BPMN comes in.
	dec.CharsetReader = func(_ string, in io.Reader) (io.Reader, error) { return in, nil }
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read BPMN: %w", err)
		}
		switch t := token.(type) {
		case xml.StartElement:
			if len(open) == 0 && t.Name.Local != "definitions" {
				return nil, nil, errors.New("read BPMN: the document is no definitions")
			}
			if len(open) == 1 && t.Name.Local == "process" {
				processes = append(processes, attribute(t, "id"))
			}
			if t.Name.Local == "message" {
				names[attribute(t, "id")] = attribute(t, "name")
			}
			if t.Name.Local == "messageEventDefinition" && len(open) > 0 {
				event, ref := open[len(open)-1], attribute(t, "messageRef")
				switch event.Name.Local {
				case "intermediateCatchEvent":
					waits = append(waits, wait{attribute(event, "id"), ref})
				case "startEvent":
					// That of an event subprocess. The process's own starts instances, and none waits at it.
					if len(open) > 1 && open[len(open)-2].Name.Local == "subProcess" {
						waits = append(waits, wait{attribute(event, "id"), ref})
					}
				case "boundaryEvent":
					waits = append(waits, wait{attribute(event, "id"), ref}, wait{attribute(event, "attachedToRef"), ref})
				}
			}
			open = append(open, t.Copy())
		case xml.EndElement:
			open = open[:max(len(open)-1, 0)]
		}
	}
	byMessage := map[string][]string{}
	for _, w := range waits {
		name, ok := names[w.ref]
		if !ok {
			_, local, _ := strings.Cut(w.ref, ":")
			if name, ok = names[local]; !ok {
				name = w.ref // Flowable takes a reference to nothing as the name itself
			}
		}
		byMessage[name] = append(byMessage[name], w.activity)
	}
	return byMessage, processes, nil
}
