package demoengine

import (
	"crypto/sha256"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// problemBase is httpengine.ProblemBase. It stands here again because an engine knows the documents, not our packages.
const problemBase = "https://pubsub-inbox.dev/problems/"

const maxBodyBytes = 64 << 20

// answer is what a delivery is answered with.
type answer struct {
	status    int
	reference string
	problem   string
	detail    string
	wait      time.Duration
}

func refusal(status int, problem, detail string) answer {
	return answer{status: status, problem: problem, detail: detail}
}

// ServeHTTP takes deliveries: POST to / or /events. It expects each to come again, under the same Idempotency-Key, when
// its answer did not arrive.
func (e *Engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/" && r.URL.Path != "/events" {
		// A page, not a problem: it must not be mistaken for "nobody waits".
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, "<!doctype html><title>No such page</title>\n")
		return
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		write(w, refusal(http.StatusMethodNotAllowed, "", "Deliveries are POST requests."))
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	if err != nil {
		write(w, refusal(http.StatusRequestEntityTooLarge, "rejected", "The body is too large, or broke off."))
		return
	}
	d := e.arrive(r.Header, body)

	e.mu.Lock()
	outage, latency, snapshot := e.outage, e.latency, *d
	e.mu.Unlock()
	if latency != nil {
		latency(r.Context(), snapshot)
	}
	switch outage {
	case Unavailable:
		e.answer(w, d, e.less(http.StatusServiceUnavailable))
	case Throttling:
		e.answer(w, d, e.less(http.StatusTooManyRequests))
	case Locked:
		e.answer(w, d, answer{status: http.StatusUnauthorized})
	case Echoing:
		e.answer(w, d, refusal(http.StatusUnprocessableEntity, "rejected", "Cannot handle "+string(body)))
	case Hanging:
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	case Closing:
		panic(http.ErrAbortHandler)
	case LosingAnswers:
		e.handle(d)
		panic(http.ErrAbortHandler)
	default:
		e.answer(w, d, e.handle(d))
	}
}

// less asks for less, and says that nothing has happened.
func (e *Engine) less(status int) answer {
	a := refusal(status, "throttled", "Nothing was done: later, please.")
	a.wait = e.options.RetryAfter
	return a
}

// arrive writes a request down before anything else happens to it.
func (e *Engine) arrive(h http.Header, body []byte) *Delivery {
	d := &Delivery{
		Key:         attribute(h, "Ce-Subject"),
		InboxID:     idempotencyKey(h),
		Message:     attribute(h, "Ce-Type"),
		ContentType: h.Get("Content-Type"),
		Body:        body,
		Start:       e.options.Now(),
	}
	d.Attempt, _ = strconv.ParseInt(attribute(h, "Ce-Inboxattempt"), 10, 64)
	if json.Unmarshal(body, &d.Variables) != nil {
		d.Variables = nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.history = append(e.history, d)
	return d
}

// handle delivers, unless it has already.
func (e *Engine) handle(d *Delivery) answer {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer func() { d.End = e.options.Now() }()
	if e.options.Forgetful || d.InboxID == "" {
		return e.deliver(d)
	}
	digest := sha256.Sum256([]byte(d.Key + "\x00" + d.Message + "\x00" + string(d.Body)))
	if seen, ok := e.known[d.InboxID]; ok {
		if seen.digest != digest {
			return refusal(http.StatusUnprocessableEntity, "rejected", "This Idempotency-Key was used for another delivery.")
		}
		return seen.answer
	}
	a := e.deliver(d)
	if d.Advanced != "" {
		e.known[d.InboxID] = memory{digest: digest, answer: a}
	}
	return a
}

func (e *Engine) answer(w http.ResponseWriter, d *Delivery, a answer) {
	e.mu.Lock()
	d.Status = a.status
	if d.End.IsZero() {
		d.End = e.options.Now()
	}
	e.mu.Unlock()
	write(w, a)
}

func write(w http.ResponseWriter, a answer) {
	if a.wait > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(int64((a.wait+time.Second-1)/time.Second), 10))
	}
	document := map[string]any{"reference": a.reference}
	w.Header().Set("Content-Type", "application/json")
	if a.status >= 300 {
		w.Header().Set("Content-Type", "application/problem+json")
		document = map[string]any{"type": "about:blank", "title": http.StatusText(a.status), "status": a.status}
		if a.problem != "" {
			document["type"] = problemBase + a.problem
		}
		if a.detail != "" {
			document["detail"] = a.detail
		}
	}
	w.WriteHeader(a.status)
	_ = json.NewEncoder(w).Encode(document)
}

// attribute reads a CloudEvents attribute, which is percent-encoded.
func attribute(h http.Header, name string) string {
	text := h.Get(name)
	if decoded, err := url.PathUnescape(text); err == nil {
		return decoded
	}
	return text
}

// idempotencyKey is the header's quoted string, or the event's id where there is none.
func idempotencyKey(h http.Header) string {
	text := h.Get("Idempotency-Key")
	if inner, ok := strings.CutPrefix(text, `"`); ok {
		inner = strings.TrimSuffix(inner, `"`)
		return strings.NewReplacer(`\\`, `\`, `\"`, `"`).Replace(inner)
	}
	if text != "" {
		return text
	}
	return attribute(h, "Ce-Id")
}
