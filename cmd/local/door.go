package main

import (
	"bytes"
	"io"
	"net/http"
	"sync"
)

// door stands before the receive function and can lose an answer: the message is stored, and Pub/Sub does not learn of
// it. That is what a broken connection does; here it happens when it is wanted.
type door struct {
	mu    sync.Mutex
	lose  string // the next answer to a body that contains this is lost
	stray int    // answers lost

	no      string // a body that contains this is refused at /, each time
	refused int64
}

// refuse has every push to / whose body contains text answered 503, as by an endpoint that is down.
func (d *door) refuse(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.no = text
}

func (d *door) refusals() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.refused
}

// loseAnswerTo arms the door for one push whose body contains text.
func (d *door) loseAnswerTo(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lose = text
}

func (d *door) lost() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stray
}

func (d *door) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, "the body broke off", http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		d.mu.Lock()
		refusing := d.no != "" && r.URL.Path == "/" && bytes.Contains(body, []byte(d.no))
		if refusing {
			d.refused++
		}
		losing := d.lose != "" && bytes.Contains(body, []byte(d.lose))
		if losing {
			d.lose = ""
		}
		d.mu.Unlock()
		if refusing {
			http.Error(w, "down, for the demo", http.StatusServiceUnavailable)
			return
		}
		if !losing {
			next.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(&unheard{header: http.Header{}}, r)
		d.mu.Lock()
		d.stray++
		d.mu.Unlock()
		panic(http.ErrAbortHandler) // closes the connection without an answer
	})
}

// unheard takes an answer that goes nowhere.
type unheard struct{ header http.Header }

func (u *unheard) Header() http.Header         { return u.header }
func (u *unheard) Write(p []byte) (int, error) { return len(p), nil }
func (u *unheard) WriteHeader(int)             {}
