package httpengine

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/httpcall"
)

const (
	// ProblemBase and one of the names that Problem knows make a problem type. So do ProblemURN and the name.
	ProblemBase = "https://pubsub-inbox.dev/problems/"
	ProblemURN  = "urn:pubsub-inbox:problem:"
)

// Problem is the verdict that a problem type stands for: ambiguous, already-through, not-waiting, vanished, rejected,
// retry-later, throttled, duplicate and drop.
//
// A type of somebody else's counts too if the last segment of its path, or the last part of its URN, is exactly such a
// name: an engine may have a vocabulary of its own. The exception is duplicate. It closes a message, and "the customer is a
// duplicate" of some framework must not: it counts as a bare name and in our name spaces only.
func Problem(problemType string) (engine.Verdict, bool) {
	base, name := "", problemType
	if i := strings.LastIndexAny(problemType, "/:"); i >= 0 {
		base, name = problemType[:i+1], problemType[i+1:]
	}
	ours := base == "" || base == ProblemBase || base == ProblemURN
	switch name {
	case "ambiguous":
		return engine.Ambiguous, true
	case "already-through":
		return engine.AlreadyThrough, true
	case "not-waiting":
		return engine.NotWaiting, true
	case "vanished":
		return engine.Vanished, true
	case "rejected":
		return engine.Rejected, true
	case "retry-later":
		return engine.RetryAfter, true
	case "throttled":
		return engine.Throttled, true
	case "duplicate":
		return engine.Duplicate, ours
	case "drop":
		return engine.Drop, true
	}
	return "", false
}

// problem is the part of a problem document that is used.
type problem struct {
	Type, Title, Detail string
	RetryAfter          json.RawMessage // seconds
}

func (a *answer) problem() (problem, bool) {
	if a.Media != "application/problem+json" {
		return problem{}, false
	}
	// One member at a time: one of an unexpected type must not hide the others.
	var members map[string]json.RawMessage
	if json.Unmarshal(a.Body, &members) != nil {
		return problem{}, false
	}
	text := func(name string) (s string) { _ = json.Unmarshal(members[name], &s); return s }
	return problem{Type: text("type"), Title: text("title"), Detail: text("detail"), RetryAfter: members["retryAfter"]}, true
}

// lost reports whether the answer is a problem document that cannot be read.
func (a *answer) lost() bool {
	if a.Status < 400 || a.Media != "application/problem+json" {
		return false
	}
	_, readable := a.problem()
	return a.Unread || !readable
}

// retryAfter is the wait an answer asks for: its header's, else the problem's retryAfter seconds. Zero: none, or no
// sensible one.
func (a *answer) retryAfter(p problem, now time.Time) time.Duration {
	if wait, ok := a.RetryAfter(now); ok {
		return wait
	}
	seconds, err := strconv.ParseFloat(scalar(p.RetryAfter), 64)
	if err != nil && !math.IsInf(seconds, 1) {
		return 0
	}
	return httpcall.BoundedSeconds(seconds)
}
