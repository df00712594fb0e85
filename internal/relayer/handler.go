package relayer

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
)

// Handler serves the relay's endpoint. Cloud Scheduler calls it (POST /, every minute) with its token, which the handler
// around it has checked; an operator may. A run may overlap with others.
//
//	200  the run did its part; the body is its Summary
//	400  the body is neither empty nor {"once": true|false}
//	503  the store failed; the Summary says what was done before. The next run goes on
//
// stop ends when the process is told to end: nothing new is begun then. cut ends when calls under way have had their time.
// A caller that goes away stops the run too, but cuts nothing off: what the engine was sent deserves its answer.
func Handler(get func(context.Context) (*Relayer, error), stop, cut <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var ask struct {
			Once bool `json:"once"`
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
		if err == nil && len(body) > 0 {
			err = json.Unmarshal(body, &ask)
		}
		if err != nil {
			http.Error(w, `the body must be empty, or a JSON object such as {"once": true}`, http.StatusBadRequest)
			return
		}
		relayer, err := get(r.Context())
		if err != nil {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		summary, err := relayer.Run(r.Context(), ask.Once, stop, cut)
		status := http.StatusOK
		if err != nil && !errors.Is(err, context.Canceled) {
			status = http.StatusServiceUnavailable
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(summary) // the run is done, whether or not its caller still listens
	})
}
