package main

import (
	"bytes"
	"io"
	"net/http"
	"sync"
)

// wall stands before an engine, as a web application firewall does: it looks into bodies, and refuses what it does not like
// with a page and 403, whoever sends it.
type wall struct {
	mu      sync.Mutex
	no      string // a body that contains this is refused; empty: none is
	refused int
}

// refuse has every request whose body contains text answered 403.
func (w *wall) refuse(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.no = text
}

func (w *wall) refusals() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused
}

func (w *wall) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		w.mu.Lock()
		refusing := w.no != "" && bytes.Contains(body, []byte(w.no))
		if refusing {
			w.refused++
		}
		w.mu.Unlock()
		if !refusing {
			next.ServeHTTP(rw, r)
			return
		}
		rw.Header().Set("Content-Type", "text/html; charset=utf-8")
		rw.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(rw, "<!doctype html><title>Request blocked</title>\n")
	})
}
