package httpcall

import (
	"bytes"
	"io"
	"math"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Answer is what came back, with as much of its body as may be read.
type Answer struct {
	Status int
	Header http.Header
	Media  string // media type, lower case, without parameters
	Body   []byte // decoded, as UTF-8 without a byte order mark; nil unless all of it is there and can be read
	Page   bool   // the body begins as a web page does, whatever its media type says
	Cut    bool   // the body broke off before its end
	Unread bool   // there is a body, or ought to be, and it cannot be read: cut, too long, or in an encoding that is not known here
}

// read takes an answer in, and reports whether the connection is fit for another request. A body longer than limit is
// neither used nor waited for.
func read(resp *http.Response, limit int64) (Answer, bool) {
	a := Answer{Status: resp.StatusCode, Header: resp.Header}
	media, parameters, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	a.Media = media
	if resp.StatusCode < 200 {
		// 101: what follows is no HTTP any more.
		_ = resp.Body.Close()
		return a, false
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	_ = resp.Body.Close()
	whole := err == nil && int64(len(body)) <= limit // then the body's end has been seen, and the connection is free
	plain, readable := decoded(resp.Header, body, limit)
	if readable {
		plain = text(plain, parameters["charset"])
		start := strings.ToLower(string(bytes.TrimLeft(plain[:min(len(plain), 256)], " \t\r\n")))
		a.Page = strings.HasPrefix(start, "<!doctype html") || strings.HasPrefix(start, "<html")
	}
	a.Cut = err != nil && !(readable && complete(plain))
	a.Unread = !readable || a.Cut || int64(len(body)) > limit
	if !a.Unread {
		a.Body = plain
	}
	return a, whole && !resp.Close
}

// HTML reports whether the answer is a web page: some proxy's, login's or framework's, not an engine's.
func (a *Answer) HTML() bool {
	return a.Page || a.Media == "text/html" || a.Media == "application/xhtml+xml"
}

// JSON reports whether the answer says that its body is JSON of some kind.
func (a *Answer) JSON() bool {
	return a.Media == "application/json" || strings.HasPrefix(a.Media, "application/") && strings.HasSuffix(a.Media, "+json")
}

// AsksForLess reports whether the status asks for less. Of a request that can have an effect it proves nothing: a gateway
// answers so where it has lost the answer of an engine that has acted, and with a Retry-After of its own. An adapter that
// has no better evidence, and no engine that takes a repetition for one, calls it Unknown.
func (a *Answer) AsksForLess() bool {
	return a.Status == http.StatusTooManyRequests || a.Status == http.StatusServiceUnavailable
}

// MaxRetryAfter bounds what an engine can ask for; the relay has a bound of its own, which is lower.
const MaxRetryAfter = 24 * time.Hour

// RetryAfter is the wait that the answer's header asks for, in seconds or as a date, and whether there is such a header.
// Zero: no sensible one. A date counts from the answer's own Date, so that a wrong clock on either side does no harm.
func (a *Answer) RetryAfter(now time.Time) (time.Duration, bool) {
	text := strings.TrimSpace(a.Header.Get("Retry-After"))
	if text == "" {
		return 0, false
	}
	if seconds, ok := digits(text); ok {
		return BoundedSeconds(seconds), true
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0, true
	}
	if date, err := http.ParseTime(a.Header.Get("Date")); err == nil {
		now = date
	}
	return min(max(at.Sub(now), 0), MaxRetryAfter), true
}

// digits reads a number of digits alone, as long as it may be.
func digits(s string) (float64, bool) {
	if strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	f, _ := strconv.ParseFloat(s, 64) // too large: +Inf
	return f, true
}

// BoundedSeconds is a wait of so many seconds. It converts after it has bounded: the other way round overflows.
func BoundedSeconds(s float64) time.Duration {
	if !(s > 0) || math.IsNaN(s) {
		return 0
	}
	return time.Duration(min(s, MaxRetryAfter.Seconds()) * float64(time.Second))
}
