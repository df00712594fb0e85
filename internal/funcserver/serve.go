package funcserver

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/telemetry"
)

// ServeHTTP answers one request; see the package.
func (f *Function) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx := telemetry.WithTrace(r.Context(), r)
	conn := http.NewResponseController(w)
	// On the connection, because net/http itself reads what is left of a body before it sends an answer. Without a body there
	// is nothing to wait for, and the connection is read only to see its client go.
	if r.ContentLength != 0 {
		_ = conn.SetReadDeadline(time.Now().Add(f.o.BodyWithin))
		r.Body = &awaited{r.Body, conn}
	}
	if !f.enter() {
		w.Header().Set("Connection", "close")
		refuse(w, http.StatusServiceUnavailable, "shutting down")
		return
	}
	defer f.leave() // after the answer is on the socket
	if err := f.ready(); err != nil {
		// Only without FUNCTION_TARGET: otherwise the process has refused to start.
		f.o.Logger.LogAttrs(ctx, telemetry.LevelCritical, "not started", slog.String("function", f.o.Name), telemetry.Err(err))
		refuse(w, http.StatusServiceUnavailable, "not started")
		return
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// At the cut the body is not waited for any longer either. A time long past does that.
	stop := context.AfterFunc(f.cut, func() {
		cancel(context.Cause(f.cut))
		_ = conn.SetReadDeadline(time.Unix(1, 0))
	})
	defer stop()

	a := &answer{header: http.Header{}}
	r = r.WithContext(ctx)
	f.call(a, r)
	f.answered(r, cmp.Or(a.status, http.StatusOK))
	if f.draining.Err() != nil {
		a.header.Set("Connection", "close")
	}
	a.send(w)
	_ = conn.Flush()
}

// awaited is the body of a request, up to its end: then what the request does may take longer than its body.
type awaited struct {
	io.ReadCloser
	conn *http.ResponseController
}

// Read lifts the deadline with the last byte.
func (b *awaited) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.conn.SetReadDeadline(time.Time{})
	}
	return n, err
}

// call runs the handler. If it does not return, its answer is thrown away for a 500.
func (f *Function) call(a *answer, r *http.Request) {
	returned := false
	defer func() {
		if returned {
			return
		}
		// nil: the handler has ended its goroutine (runtime.Goexit). net/http's connection goes with it.
		v := recover()
		telemetry.LogPanic(r.Context(), f.o.Logger, "request to "+f.o.Name, v, debug.Stack())
		*a = answer{header: http.Header{}}
		refuse(a, http.StatusInternalServerError, "internal error")
	}()
	f.handler.ServeHTTP(a, r)
	returned = true
}

// answered tells whoever wants to know. Whatever goes wrong there, the answer stands.
func (f *Function) answered(r *http.Request, status int) {
	if f.o.Answered == nil {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			telemetry.LogPanic(r.Context(), f.o.Logger, "after a request to "+f.o.Name, v, debug.Stack())
		}
	}()
	f.o.Answered(r, status)
}

func refuse(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text+"\n")
}

// answer holds back what a handler writes. It is no http.Flusher and has no Unwrap, on purpose: by either a handler could
// send a status early.
type answer struct {
	header http.Header
	status int // 0: not set
	sent   http.Header
	body   bytes.Buffer
}

func (a *answer) Header() http.Header { return a.header }

// WriteHeader keeps the first final status, and the headers as they are then, like net/http.
func (a *answer) WriteHeader(status int) {
	if a.status != 0 || (status >= 100 && status < 200) {
		return
	}
	a.status, a.sent = status, a.header.Clone()
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if a.status == http.StatusNoContent || a.status == http.StatusNotModified {
		return 0, http.ErrBodyNotAllowed
	}
	return a.body.Write(p)
}

// send writes everything, with its length: so one flush completes the response.
func (a *answer) send(w http.ResponseWriter) {
	a.WriteHeader(http.StatusOK)
	maps.Copy(w.Header(), a.sent)
	if c := a.header.Values("Connection"); len(c) > 0 {
		w.Header()["Connection"] = c
	}
	if a.status != http.StatusNoContent && a.status != http.StatusNotModified {
		w.Header().Set("Content-Length", strconv.Itoa(a.body.Len()))
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body.Bytes())
}
