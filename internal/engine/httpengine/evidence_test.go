package httpengine

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
)

func readCase(t *testing.T, name string, into any) {
	t.Helper()
	raw, err := os.ReadFile("testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatal(err)
	}
}

// TestC093: gateways, ingresses and frameworks answer in their own name, in every format. None of them brings a message to a
// person, whichever status it chooses.
func TestC093(t *testing.T) {
	var cases []struct {
		From    string
		Status  int
		Headers map[string]string
		Body    string
	}
	readCase(t, "C093", &cases)
	for _, c := range cases {
		for _, status := range []int{c.Status, 400, 404, 410, 412, 413, 415, 422} {
			for _, idempotent := range []bool{true, false} {
				e := newEngine(t, answering(t, func(w http.ResponseWriter, r *http.Request) {
					for name, value := range c.Headers {
						w.Header().Set(name, value)
					}
					w.WriteHeader(status)
					_, _ = io.WriteString(w, c.Body)
				}), func(c *Config) { c.Idempotent = idempotent })
				if r := e.Correlate(t.Context(), aDelivery()); r.Verdict != engine.Technical || r.Detail == "" {
					t.Errorf("%s, as %d: %s (%s), want %s", c.From, status, r.Verdict, r.Detail, engine.Technical)
				}
			}
		}
	}
}

// Who owns an engine that has no problem documents says which of its statuses are to be believed.
func TestAStatusIsBelievedWhereTheConfigurationSaysSo(t *testing.T) {
	statuses := map[string]engine.Verdict{"404": engine.NotWaiting, "400": engine.Rejected, "410": engine.AlreadyThrough, "412": engine.Vanished,
		"429": engine.Throttled, "503": engine.Throttled}
	for status, want := range statuses {
		url := answering(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			var code int
			_, _ = fmt.Sscan(status, &code)
			w.WriteHeader(code)
		})
		r := newEngine(t, url, notIdempotent, func(c *Config) { c.Statuses = statuses }).Correlate(t.Context(), aDelivery())
		if r.Verdict != want || want == engine.Throttled && r.RetryAfter != 7*time.Second {
			t.Errorf("%s: %s, after %v; want %s", status, r.Verdict, r.RetryAfter, want)
		}
	}
}

// TestC089: a gateway answers 503 in its own name when it has lost the answer of an engine that has acted.
func TestC089(t *testing.T) {
	var c struct {
		Answer struct {
			Status  int
			Headers map[string]string
			Body    string
		}
	}
	readCase(t, "C089", &c)
	tests := []struct {
		name       string
		status     int
		retryAfter string
		body       string
		idempotent bool
		want       engine.Verdict
	}{
		{"as it was", c.Answer.Status, "", c.Answer.Body, false, engine.Unknown},
		{"with a time", c.Answer.Status, "3", c.Answer.Body, false, engine.Unknown},
		{"429", 429, "3", c.Answer.Body, false, engine.Unknown},
		{"in a gateway's problem document", c.Answer.Status, "3", `{"type":"about:blank","status":503}`, false, engine.Unknown},
		{"in the engine's problem document", c.Answer.Status, "3", `{"type":"urn:pubsub-inbox:problem:throttled"}`, false, engine.Throttled},
		{"429, in the engine's problem document", 429, "3", `{"type":"https://engine.example/errors/throttled"}`, false, engine.Throttled},
		{"to an engine that takes it again", c.Answer.Status, "3", c.Answer.Body, true, engine.Throttled},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			url := answering(t, func(w http.ResponseWriter, _ *http.Request) {
				for name, value := range c.Answer.Headers {
					w.Header().Set(name, value)
				}
				if strings.HasPrefix(tt.body, "{") {
					w.Header().Set("Content-Type", problemJSON)
				}
				if tt.retryAfter != "" {
					w.Header().Set("Retry-After", tt.retryAfter)
				}
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			})
			r := newEngine(t, url, func(c *Config) { c.Idempotent = tt.idempotent }).Correlate(t.Context(), aDelivery())
			wait := time.Duration(0)
			if tt.retryAfter != "" {
				wait = 3 * time.Second
			}
			if r.Verdict != tt.want || r.RetryAfter != wait {
				t.Errorf("%s, after %v (%s); want %s, after %v", r.Verdict, r.RetryAfter, r.Detail, tt.want, wait)
			}
		})
	}
}

func compressed(t *testing.T, make func(io.Writer) io.WriteCloser, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := make(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func asGzip(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }
func asZlib(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }
func asFlate(w io.Writer) io.WriteCloser {
	z, _ := flate.NewWriter(w, flate.DefaultCompression)
	return z
}

func asUTF16(text string, order func(uint16) []byte) string {
	var b bytes.Buffer
	for _, unit := range utf16.Encode([]rune(text)) {
		b.Write(order(unit))
	}
	return b.String()
}

func bigEndian(u uint16) []byte    { return []byte{byte(u >> 8), byte(u)} }
func littleEndian(u uint16) []byte { return []byte{byte(u), byte(u >> 8)} }

// A problem document is the same in each encoding that it can be sent in.
func TestAProblemIsReadInItsEncoding(t *testing.T) {
	const problem = `{"type":"urn:pubsub-inbox:problem:ambiguous","title":"Größe: zwei"}`
	latin := strings.NewReplacer("ö", "\xf6", "ß", "\xdf").Replace(problem)
	tests := []struct {
		name, encoding, charset, body string
	}{
		{"as it is", "", "", problem},
		{"identity", "identity", "", problem},
		{"a byte order mark", "", "", "\ufeff" + problem},
		{"gzip", "gzip", "", compressed(t, asGzip, problem)},
		{"gzip by its old name", "x-gzip", "", compressed(t, asGzip, problem)},
		{"gzip in capitals", "GZIP", "", compressed(t, asGzip, problem)},
		{"gzip and a byte order mark", "gzip", "utf-8", compressed(t, asGzip, "\ufeff"+problem)},
		{"deflate", "deflate", "", compressed(t, asZlib, problem)},
		{"deflate without its frame", "deflate", "", compressed(t, asFlate, problem)},
		{"twice", "deflate, gzip", "", compressed(t, asGzip, compressed(t, asZlib, problem))},
		{"UTF-8, named", "", `"UTF-8"`, problem},
		{"UTF-8, under a wrong name", "", "iso-8859-1", problem},
		{"Latin-1", "", "ISO-8859-1", latin},
		{"Windows", "", "windows-1252", latin},
		{"Latin-9", "", "iso-8859-15", latin},
		{"UTF-16 with a mark", "", "utf-16", asUTF16("\ufeff"+problem, bigEndian)},
		{"UTF-16 with the other mark", "", "", asUTF16("\ufeff"+problem, littleEndian)},
		{"UTF-16, big first", "", "utf-16be", asUTF16(problem, bigEndian)},
		{"UTF-16, little first", "", "UTF-16LE", asUTF16(problem, littleEndian)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			media := problemJSON
			if tt.charset != "" {
				media += "; charset=" + tt.charset
			}
			url := answering(t, func(w http.ResponseWriter, r *http.Request) {
				if tt.encoding != "" {
					w.Header().Set("Content-Encoding", tt.encoding)
				}
				respond(404, media, tt.body)(w, r)
			})
			r := newEngine(t, url).Correlate(t.Context(), aDelivery())
			if r.Verdict != engine.Ambiguous || r.Detail != "Größe: zwei" {
				t.Errorf("%s (%s), want %s (Größe: zwei)", r.Verdict, r.Detail, engine.Ambiguous)
			}
		})
	}
}

// What cannot be read is no evidence, not even of what the configuration makes of its status.
func TestWhatCannotBeReadIsNoEvidence(t *testing.T) {
	const problem = `{"type":"urn:pubsub-inbox:problem:not-waiting"}`
	statuses := func(c *Config) {
		c.MaxAnswerBytes = 1000
		c.Statuses = map[string]engine.Verdict{"404": engine.NotWaiting, "409": engine.Duplicate, "4xx": engine.Rejected}
	}
	for name, answer := range map[string]struct{ encoding, length, body string }{
		"cut off":                 {"", "Content-Length: 1000\r\n", problem[:20]},
		"an unknown encoding":     {"br", "", problem},
		"gzip that is none":       {"gzip", "", problem},
		"gzip that is cut off":    {"gzip", "", compressed(t, asGzip, problem)[:20]},
		"gzip without end":        {"gzip", "", compressed(t, asGzip, problem+strings.Repeat(" ", 2000))},
		"too long":                {"", "", problem + strings.Repeat(" ", 2000)},
		"no JSON":                 {"", "", problem[:20]},
		"nothing":                 {"", "Content-Length: 0\r\n", ""},
		"bytes that are no text":  {"", "", "\x80\x81\x82"},
		"JSON, but no object":     {"", "", `["not-waiting"]`},
		"a charset nobody writes": {"", "", "\x00\x00\xfe\xff" + problem},
	} {
		for _, status := range []int{404, 409, 422} {
			encoding := ""
			if answer.encoding != "" {
				encoding = "Content-Encoding: " + answer.encoding + "\r\n"
			}
			w := newWire(t, sayAndClose(fmt.Sprintf("HTTP/1.1 %d No\r\nContent-Type: %s\r\n%s%sConnection: close\r\n\r\n%s", status, problemJSON, encoding, answer.length, answer.body)))
			if r := newEngine(t, w.url, statuses).Correlate(t.Context(), aDelivery()); r.Verdict != engine.Technical {
				t.Errorf("%s, %d: %s (%s), want %s", name, status, r.Verdict, r.Detail, engine.Technical)
			}
		}
	}
}

// A login page is one in every encoding.
func TestACompressedPageIsAPage(t *testing.T) {
	var calls atomic.Int64
	url := answering(t, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		w.Header().Set("Content-Encoding", "gzip")
		respond(200, "application/json", compressed(t, asGzip, "<!doctype html><title>Login</title>"))(w, r)
	})
	if r := newEngine(t, url).Correlate(t.Context(), aDelivery()); r.Verdict != engine.Technical || calls.Load() != 1 {
		t.Errorf("%s (%s) after %d calls, want %s", r.Verdict, r.Detail, calls.Load(), engine.Technical)
	}
}
