package flowable

import (
	"context"
	"net/http"
	"net/url"
)

// Check asks Flowable what a start of the inbox wants to know, and returns a sentence for each thing that is wrong: that
// it cannot be reached, or not by us; that the process is not deployed; that less history is kept than audit. History is
// judged by the latest instance that runs, or is in it: where there is none, nothing is said of it.
func (e *Engine) Check(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, e.config.Timeout)
	defer cancel()
	if _, res := e.look(ctx, http.MethodGet, "/management/engine", nil); res != nil {
		return []string{res.Code + ": " + res.Detail}
	}
	var faults []string
	if key := e.config.ProcessDefinitionKey; key != "" {
		v := url.Values{"key": {key}, "latest": {"true"}, "size": {"1"}}
		if e.config.Tenant != "" {
			v.Set("tenantId", e.config.Tenant)
		}
		switch p, res := e.ask(ctx, http.MethodGet, "/repository/process-definitions?"+v.Encode(), nil, 1); {
		case res != nil:
			return []string{res.Code + ": " + res.Detail}
		case *p.Total == 0:
			return []string{"There is no process definition with the key " + key + ": nobody will wait for a message."}
		}
	}
	witness, res := e.witness(ctx)
	if res == nil && witness != "" {
		var kept bool
		if kept, res = e.keepsHistory(ctx, witness); res == nil && !kept {
			faults = append(faults, "The engine keeps less history than audit: a delivery whose answer is lost cannot be looked up once its instance has ended, and its message is parked as POSSIBLY_DELIVERED; a process that has ended is started again by a second message.")
		}
	}
	if res != nil {
		faults = append(faults, res.Code+": "+res.Detail)
	}
	return faults
}
