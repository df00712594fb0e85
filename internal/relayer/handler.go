package relayer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
)

// Handler serves the relay's endpoint. Cloud Scheduler calls it (POST /, every minute) with its token, which the handler
// around it has checked; an operator may. A run may overlap with others.
//
//	200  the run did its part; the body is its Summary
//	400  the body is neither empty nor a JSON object that holds nothing but "once", true or false
//	503  the body did not come in time; or the store failed: the Summary says what was done before. The next run goes on
//
// stop ends when the process is told to end: nothing new is begun then. cut ends when calls under way have had their time.
// A caller that goes away stops the run too, but cuts nothing off: what the engine was sent deserves its answer.
func Handler(get func(context.Context) (*Relayer, error), stop, cut <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		once, err := readAsk(http.MaxBytesReader(w, r.Body, maxAsk))
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			http.Error(w, "the request body did not come in time", http.StatusServiceUnavailable)
			return
		case err != nil:
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		relayer, err := get(r.Context())
		if err != nil {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		summary, err := relayer.Run(r.Context(), once, stop, cut)
		status := http.StatusOK
		if err != nil && !errors.Is(err, context.Canceled) {
			status = http.StatusServiceUnavailable
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(summary) // the run is done, whether or not its caller still listens
	})
}

// maxAsk bounds the body of a request for a run, in bytes.
const maxAsk = 64 << 10

// readAsk reads what a run is asked for. The error says what the body must be, and quotes nothing of it; where it could not
// be read, it is the cause.
func readAsk(from io.Reader) (once bool, err error) {
	const want = `the body must be empty, or {"once": true} or {"once": false}`
	body, err := io.ReadAll(from)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return false, fmt.Errorf("%s; it has more than %d bytes", want, tooLarge.Limit)
	case err != nil:
		return false, fmt.Errorf("the request body broke off: %w", err)
	case len(bytes.TrimSpace(body)) == 0:
		return false, nil
	}
	// Into a map, because encoding/json finds the fields of a struct in any letter case.
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil || members == nil {
		return false, fmt.Errorf("%s; it is not one JSON object", want)
	}
	for name, value := range members {
		switch text := string(value); {
		case name != "once":
			return false, fmt.Errorf("%s; it has a member of another name", want)
		case text != "true" && text != "false":
			return false, fmt.Errorf(`%s; "once" is neither true nor false`, want)
		default:
			once = text == "true"
		}
	}
	return once, nil
}
