package httpengine

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/httpcall"
)

const problemJSON = "application/problem+json"

// respond answers with one status, media type and body.
func respond(status int, media, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if media != "" {
			w.Header().Set("Content-Type", media)
		} else {
			w.Header()["Content-Type"] = nil // none, not a guessed one
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestEachStatusHasItsVerdict(t *testing.T) {
	less := []int{429, 503}
	unsure := []int{203, 205, 206, 207, 208, 226, 302, 303, 408, 500, 502, 504, 506, 507, 520, 524, 599}
	want := map[int]engine.Verdict{
		200: engine.Correlated, 201: engine.Correlated, 204: engine.Correlated, 202: engine.HandedOver,
		300: engine.Technical, 301: engine.Technical, 304: engine.Technical, 307: engine.Technical, 308: engine.Technical,
		401: engine.Unauthorised, 403: engine.Unauthorised, 407: engine.Unauthorised,
		400: engine.Technical, 404: engine.Technical, 410: engine.Technical, 412: engine.Technical, 413: engine.Technical, 415: engine.Technical,
		422: engine.Technical,
		402: engine.Technical, 405: engine.Technical, 406: engine.Technical, 409: engine.Technical, 411: engine.Technical,
		418: engine.Technical, 423: engine.Technical, 425: engine.Technical, 431: engine.Technical, 451: engine.Technical,
		501: engine.Technical, 505: engine.Technical, 511: engine.Technical,
	}
	for _, idempotent := range []bool{true, false} {
		for _, status := range unsure {
			want[status] = engine.Unknown
			if idempotent {
				want[status] = engine.Technical
			}
		}
		for _, status := range less {
			want[status] = engine.Unknown
			if idempotent {
				want[status] = engine.Throttled
			}
		}
		for status, verdict := range want {
			t.Run(fmt.Sprintf("%d idempotent %v", status, idempotent), func(t *testing.T) {
				url := answering(t, respond(status, "", ""))
				e := newEngine(t, url, func(c *Config) { c.Idempotent = idempotent })
				r := e.Correlate(t.Context(), aDelivery())
				if r.Verdict != verdict || r.Code != fmt.Sprintf("HTTP %d", status) {
					t.Errorf("got %s %s, want %s", r.Verdict, r.Code, verdict)
				}
				if r.Detail == "" && verdict != engine.Correlated {
					t.Error("no detail")
				}
			})
		}
	}
}

func TestEvidenceBeatsTheStatus(t *testing.T) {
	const of = ProblemBase
	typed := func(name string) string { return `{"type":"` + name + `"}` }
	tests := []struct {
		name        string
		status      int
		media, body string
		want        engine.Verdict
	}{
		{"400 for none", 400, problemJSON, typed(of + "not-waiting"), engine.NotWaiting},
		{"400 for many", 400, problemJSON, typed(of + "ambiguous"), engine.Ambiguous},
		{"400 for a bad variable", 400, problemJSON, typed(of + "rejected"), engine.Rejected},
		{"400 for none, by URN", 400, problemJSON, typed(ProblemURN + "not-waiting"), engine.NotWaiting},
		{"409 for many", 409, problemJSON, typed(of + "ambiguous"), engine.Ambiguous},
		{"409 for many, in a vocabulary of the engine's own", 409, problemJSON + "; charset=utf-8", typed("https://engine.example/errors/ambiguous"), engine.Ambiguous},
		{"409 for many, as a relative reference", 409, "Application/Problem+JSON", typed("ambiguous"), engine.Ambiguous},
		{"409 for an unknown reason", 409, problemJSON, typed("about:blank"), engine.Technical},
		{"409 for a name that only ends so", 409, problemJSON, typed("https://engine.example/errors/unambiguous"), engine.Technical},
		{"409 for a name in the query", 409, problemJSON, typed("https://engine.example/errors?x=ambiguous"), engine.Technical},
		{"409 for a name in the fragment", 409, problemJSON, typed("https://engine.example/errors#ambiguous"), engine.Technical},
		{"409 for a name in another case", 409, problemJSON, typed(of + "Ambiguous"), engine.Technical},
		{"409 for the base alone", 409, problemJSON, typed(of), engine.Technical},
		{"409 with the type in plain JSON", 409, "application/json", typed(of + "ambiguous"), engine.Technical},
		{"404 for one that is through", 404, problemJSON, typed(of + "already-through"), engine.AlreadyThrough},
		{"404 for one that went away", 404, problemJSON, typed(of + "vanished"), engine.Vanished},
		{"409 for a duplicate", 409, problemJSON, typed(of + "duplicate"), engine.Duplicate},
		{"409 for a duplicate of somebody else's", 409, problemJSON, typed("https://crm.example/problems/duplicate"), engine.Technical},
		{"409 for a duplicate, by its bare name", 409, problemJSON, typed("duplicate"), engine.Duplicate},
		{"503 with a word about this message", 503, problemJSON, typed("retry-later"), engine.RetryAfter},
		{"500 with a word about this message", 500, problemJSON, typed("ambiguous"), engine.Technical},
		{"422 for one to drop", 422, problemJSON, typed(of + "drop"), engine.Drop},
		{"422 for somebody else's drop", 422, problemJSON, typed("urn:bank:drop"), engine.Drop},
		{"422 for later", 422, problemJSON, typed(of + "retry-later"), engine.RetryAfter},
		{"401 with a problem", 401, problemJSON, typed("about:blank"), engine.Unauthorised},
		{"500 with a problem is still a failure", 500, problemJSON, typed(of + "drop"), engine.Technical},
		{"200 with a problem is no success", 200, problemJSON, typed(of + "duplicate"), engine.Technical},
		{"a problem that is no JSON", 400, problemJSON, "{", engine.Technical},
		{"a problem that is no object", 400, problemJSON, `["ambiguous"]`, engine.Technical},
		{"429 for one that says that nothing was done", 429, problemJSON, typed(of + "throttled"), engine.Throttled},
		{"503 for one that says that nothing was done", 503, problemJSON, typed("throttled"), engine.Throttled},
		{"a type that is no text", 409, problemJSON, `{"type":{"a":1},"title":7}`, engine.Technical},
		{"a login page", 200, "text/html", "<html>login</html>", engine.Technical},
		{"a login page as 202", 202, "text/html; charset=utf-8", "<html>login</html>", engine.Technical},
		{"a login page that says it is JSON", 200, "application/json", "\ufeff\n<!DOCTYPE html><title>Login</title>", engine.Technical},
		{"a login page that does not say what it is", 200, "", "<HTML>login</HTML>", engine.Technical},
		{"a page that is not there", 404, "text/html", "<html>404</html>", engine.Technical},
		{"a page that is gone", 410, "text/html", "<html>410</html>", engine.Technical},
		{"a plain 404", 404, "text/plain", "nobody", engine.Technical},
		{"a bare 404", 404, "", "", engine.Technical},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := newEngine(t, answering(t, respond(tt.status, tt.media, tt.body)))
			if r := e.Correlate(t.Context(), aDelivery()); r.Verdict != tt.want {
				t.Errorf("got %s %s (%s), want %s", r.Verdict, r.Code, r.Detail, tt.want)
			}
		})
	}
}

func TestAnEngineThatIsNotIdempotentMayHaveActedBehindALoginPage(t *testing.T) {
	e := newEngine(t, answering(t, respond(200, "text/html", "<html>login</html>")), notIdempotent)
	if r := e.Correlate(t.Context(), aDelivery()); r.Verdict != engine.Unknown {
		t.Errorf("got %s, want %s", r.Verdict, engine.Unknown)
	}
}

// One status for "nobody waits", "several wait" and "bad variable", as Camunda 7 has it (case C058): problem types tell
// them apart, what is not understood is tried again and never a success.
func TestOneStatusForEverythingIsToldApart(t *testing.T) {
	camunda := func(c *Config) { c.Statuses = map[string]engine.Verdict{"400": engine.Technical} }
	tests := []struct {
		name        string
		status      int
		media, body string
		want        engine.Verdict
	}{
		{"none", 400, problemJSON, `{"type":"urn:pubsub-inbox:problem:not-waiting","title":"No process definition or execution matches the parameters"}`, engine.NotWaiting},
		{"many", 400, problemJSON, `{"type":"urn:pubsub-inbox:problem:ambiguous","title":"2 executions match the correlation keys"}`, engine.Ambiguous},
		{"bad variable", 400, problemJSON, `{"type":"urn:pubsub-inbox:problem:rejected","title":"Unsupported value type"}`, engine.Rejected},
		{"a text nobody knows", 400, "application/json", `{"type":"RestException","message":"Cannot correlate message: something new"}`, engine.Technical},
		{"a problem nobody knows", 400, problemJSON, `{"type":"https://engine.example/new","title":"New"}`, engine.Technical},
		{"a collision", 500, "application/json", `{"type":"RestException","message":"ENGINE-03005"}`, engine.Technical},
		{"credentials", 401, "application/json", `{}`, engine.Unauthorised},
		{"a login page", 200, "text/html", "<html>login</html>", engine.Technical},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := newEngine(t, answering(t, respond(tt.status, tt.media, tt.body)), camunda)
			if r := e.Correlate(t.Context(), aDelivery()); r.Verdict != tt.want {
				t.Errorf("got %s %s (%s), want %s", r.Verdict, r.Code, r.Detail, tt.want)
			}
		})
	}
}

func TestTheConfigurationBeatsTheDefaults(t *testing.T) {
	statuses := func(c *Config) {
		c.Statuses = map[string]engine.Verdict{
			"2xx": engine.HandedOver, "200": engine.Correlated, "4xx": engine.NotWaiting, "409": engine.Duplicate,
			"5xx": engine.Throttled, "303": engine.Correlated,
		}
	}
	for status, want := range map[int]engine.Verdict{
		200: engine.Correlated, 201: engine.HandedOver, 203: engine.HandedOver, 303: engine.Correlated, 302: engine.Technical,
		400: engine.NotWaiting, 401: engine.NotWaiting, 409: engine.Duplicate, 500: engine.Throttled,
	} {
		e := newEngine(t, answering(t, respond(status, "text/html", "<html>")), statuses)
		if r := e.Correlate(t.Context(), aDelivery()); r.Verdict != want {
			t.Errorf("%d: %s, want %s", status, r.Verdict, want)
		}
	}
	e := newEngine(t, answering(t, respond(409, problemJSON, `{"type":"`+ProblemBase+`ambiguous"}`)), statuses)
	if r := e.Correlate(t.Context(), aDelivery()); r.Verdict != engine.Ambiguous {
		t.Errorf("a problem type: %s, want %s", r.Verdict, engine.Ambiguous)
	}
}

func TestAWaitIsReadBoundedAndNeverNegative(t *testing.T) {
	now := time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)
	date := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	tests := []struct {
		name, header, date, body string
		want                     time.Duration
	}{
		{name: "seconds", header: "120", want: 2 * time.Minute},
		{name: "no seconds", header: "0", want: 0},
		{name: "seconds beyond the bound", header: "864000", want: httpcall.MaxRetryAfter},
		{name: "seconds beyond any number", header: strings.Repeat("9", 400), want: httpcall.MaxRetryAfter},
		{name: "a negative number", header: "-5", want: 0},
		{name: "a fraction", header: "1.5", want: 0},
		{name: "a text", header: "soon", want: 0},
		{name: "a date, against our clock", header: date(90 * time.Second), want: 90 * time.Second},
		{name: "a date, against the answer's clock", header: date(3600 * time.Second), date: date(3590 * time.Second), want: 10 * time.Second},
		{name: "a date in the past", header: date(-time.Hour), want: 0},
		{name: "a date far away", header: "Fri, 31 Dec 9999 23:59:59 GMT", want: httpcall.MaxRetryAfter},
		{name: "the problem's seconds", body: `{"retryAfter":30}`, want: 30 * time.Second},
		{name: "the problem's fraction", body: `{"retryAfter":0.5}`, want: 500 * time.Millisecond},
		{name: "the problem's text", body: `{"retryAfter":"30"}`, want: 30 * time.Second},
		{name: "the problem's endless wait", body: `{"retryAfter":1e999}`, want: httpcall.MaxRetryAfter},
		{name: "the problem's negative wait", body: `{"retryAfter":-1}`, want: 0},
		{name: "the problem's nonsense", body: `{"retryAfter":{"a":"NaN"}}`, want: 0},
		{name: "not a number", body: `{"retryAfter":"NaN"}`, want: 0},
		{name: "the header before the problem", header: "5", body: `{"retryAfter":30}`, want: 5 * time.Second},
		{name: "nothing", want: 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := answer{httpcall.Answer{Status: 429, Header: http.Header{}, Media: problemJSON, Body: []byte(tt.body)}}
			if tt.header != "" {
				a.Header.Set("Retry-After", tt.header)
			}
			if tt.date != "" {
				a.Header.Set("Date", tt.date)
			}
			p, _ := a.problem()
			if got := a.retryAfter(p, now); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestAWaitBelongsToTheVerdictsThatWait(t *testing.T) {
	waiting := []engine.Verdict{engine.Technical, engine.Throttled, engine.RetryAfter}
	for _, tt := range []struct {
		status int
		body   string
	}{{429, ""}, {503, ""}, {500, ""}, {425, ""}, {409, ""}, {422, `{"type":"` + ProblemBase + `retry-later"}`}, {200, ""}, {404, ""}, {401, ""}} {
		url := answering(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "7")
			respond(tt.status, problemJSON, tt.body)(w, r)
		})
		r := newEngine(t, url).Correlate(t.Context(), aDelivery())
		want := time.Duration(0)
		if slices.Contains(waiting, r.Verdict) {
			want = 7 * time.Second
		}
		if r.RetryAfter != want {
			t.Errorf("%d (%s): %v, want %v", tt.status, r.Verdict, r.RetryAfter, want)
		}
	}
}

func TestALongAnswerIsClassifiedByItsStatusAlone(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	_, _ = z.Write(make([]byte, 10<<20))
	_ = z.Close()
	long := `{"type":"` + ProblemBase + `drop","title":"` + strings.Repeat("x", DefaultMaxAnswerBytes) + `"}`
	for name, handler := range map[string]http.HandlerFunc{
		"a long problem": respond(409, problemJSON, long),
		"a bomb": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			respond(409, problemJSON, bomb.String())(w, r)
		},
	} {
		r := newEngine(t, answering(t, handler)).Correlate(t.Context(), aDelivery())
		if r.Verdict != engine.Technical || strings.Contains(r.Detail, "xx") {
			t.Errorf("%s: %s %.80q", name, r.Verdict, r.Detail)
		}
	}
}

func TestTheBoundOfAnAnswerIsExact(t *testing.T) {
	body := `{"type":"` + ProblemBase + `ambiguous"}`
	for _, tt := range []struct {
		limit int
		want  engine.Verdict
	}{{len(body), engine.Ambiguous}, {len(body) - 1, engine.Technical}} {
		w := newWire(t, say(fmt.Sprintf("HTTP/1.1 409 Conflict\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", problemJSON, len(body), body)))
		e := newEngine(t, w.url, func(c *Config) { c.MaxAnswerBytes = int64(tt.limit) })
		for range 2 {
			if r := e.Correlate(t.Context(), aDelivery()); r.Verdict != tt.want {
				t.Errorf("limit %d: %s, want %s", tt.limit, r.Verdict, tt.want)
			}
		}
		// A connection whose answer was not read to its end is not used again.
		want := map[engine.Verdict]int{engine.Ambiguous: 1, engine.Technical: 2}[tt.want]
		if connections, _ := w.seen(); connections != want {
			t.Errorf("limit %d: %d connections, want %d", tt.limit, connections, want)
		}
	}
}
