package httpengine

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
)

const (
	// DefaultTimeout bounds a call when Config.Timeout is zero.
	DefaultTimeout = 10 * time.Second
	// DefaultMaxAnswerBytes is read of an answer's body when Config.MaxAnswerBytes is zero.
	DefaultMaxAnswerBytes = 64 << 10
	mostAnswerBytes       = 16 << 20
	// DefaultSource is the CloudEvents source when Config.Source is empty.
	DefaultSource = "urn:pubsub-inbox"
)

// Config describes one engine. The zero values of Timeout, MaxAnswerBytes and Source mean their defaults.
type Config struct {
	Name           string // in error texts
	URL            string // http or https; no user, no fragment
	Timeout        time.Duration
	Idempotent     bool // the engine honours Idempotency-Key
	Auth           Auth
	Headers        Headers                   // sent with each request; none of those this package sets itself
	Statuses       map[string]engine.Verdict // "409" or "4xx"; a status beats its class
	MaxAnswerBytes int64                     // of a longer body no more is read, and its text is not used
	Source         string                    // CloudEvents source: a URI reference that names this inbox
}

// AuthKind is how the engine knows us.
type AuthKind string

const (
	AuthNone   AuthKind = "none" // also the empty kind
	AuthBasic  AuthKind = "basic"
	AuthBearer AuthKind = "bearer"
	AuthOIDC   AuthKind = "oidc" // an ID token signed by Google, for Audience
)

// Auth is how the engine knows us, with what that takes.
type Auth struct {
	Kind     AuthKind
	Username string // basic
	Password Secret // basic
	Token    Secret // bearer
	Audience string // oidc
}

// reserved headers are this package's own, beside those that are HTTP's.
var reserved = []string{"Idempotency-Key", "Traceparent", "X-Idempotency-Key"}

// withDefaults is c with its defaults filled in.
func (c Config) withDefaults() Config {
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.MaxAnswerBytes == 0 {
		c.MaxAnswerBytes = DefaultMaxAnswerBytes
	}
	if c.Source == "" {
		c.Source = DefaultSource
	}
	if c.Auth.Kind == "" {
		c.Auth.Kind = AuthNone
	}
	return c
}

// validate reports all faults of c at once. No text of a fault holds a header's value or a secret.
func (c Config) validate() (*url.URL, error) {
	var faults []error
	fault := func(setting, format string, args ...any) {
		faults = append(faults, engine.Misset(setting, format, args...))
	}

	// A URL may carry a secret in its query, and url.Parse repeats what it could not read.
	target, err := url.Parse(c.URL)
	switch {
	case err != nil:
		fault("url", "cannot be read")
	case target.Scheme != "http" && target.Scheme != "https":
		fault("url", "the scheme must be http or https")
	case target.Hostname() == "":
		fault("url", "has no host")
	case target.User != nil:
		fault("url", "must not hold a user; use auth")
	case target.Fragment != "":
		fault("url", "must not have a fragment")
	case !visible(target.Host):
		fault("url", "the host must be ASCII (punycode)")
	}
	if c.Timeout < 0 {
		fault("timeout", "must be positive")
	}
	if c.MaxAnswerBytes < 0 || c.MaxAnswerBytes > mostAnswerBytes {
		fault("maxAnswerBytes", "must be from 1 to %d", mostAnswerBytes)
	}
	if _, err := url.Parse(c.Source); err != nil {
		fault("source", "is no URI reference")
	}
	faults = append(faults, c.Auth.faults()...)
	faults = append(faults, c.Headers.Faults(c.Auth.Kind != AuthNone, func(canonical string) bool {
		return slices.Contains(reserved, canonical) || strings.HasPrefix(canonical, "Ce-")
	})...)
	faults = append(faults, c.statusFaults()...)
	if len(faults) > 0 {
		return nil, fmt.Errorf("http engine %q: %w", c.Name, errors.Join(faults...))
	}
	return target, nil
}

func (a Auth) faults() []error {
	switch a.Kind {
	case AuthNone:
	case AuthBasic:
		if a.Username == "" || strings.ContainsAny(a.Username, ":\r\n\x00") {
			return []error{engine.Misset("auth.username", "basic needs a username, without a colon")}
		}
	case AuthBearer:
		if a.Token == "" || !visible(string(a.Token)) {
			return []error{engine.Misset("auth.tokenEnv", "bearer needs a token, of visible ASCII characters")}
		}
	case AuthOIDC:
		if a.Audience == "" {
			return []error{engine.Misset("auth.audience", "oidc needs an audience")}
		}
	default:
		return []error{engine.Misset("auth.kind", "%q is none of none, basic, bearer, oidc", a.Kind)}
	}
	return nil
}

// statusFaults also refuses what could close messages nobody has handled: a whole class of refusals, or any server
// error, as success.
func (c Config) statusFaults() []error {
	closing := []engine.Verdict{engine.Correlated, engine.Duplicate, engine.HandedOver, engine.Drop}
	open := []engine.Verdict{
		engine.NotWaiting, engine.AlreadyThrough, engine.Ambiguous, engine.Vanished, engine.Rejected, engine.RetryAfter,
		engine.Technical, engine.Throttled, engine.Unauthorised, engine.Unknown,
	}
	var faults []error
	for _, key := range slices.Sorted(maps.Keys(c.Statuses)) {
		verdict := c.Statuses[key]
		class, isClass := strings.CutSuffix(key, "xx")
		code, err := strconv.Atoi(key)
		switch {
		case isClass && (len(class) != 1 || class < "2" || class > "5"),
			!isClass && (err != nil || len(key) != 3 || code < 200 || code > 599):
			faults = append(faults, engine.Misset("statuses."+key, "this is neither a status from 200 to 599 nor a class from 2xx to 5xx"))
		case slices.Contains(open, verdict):
		case !slices.Contains(closing, verdict):
			faults = append(faults, engine.Misset("statuses."+key, "%q is no verdict an answer can have", verdict))
		case isClass && class != "2", key[0] == '5':
			faults = append(faults, engine.Misset("statuses."+key, "%s must not be %s: it would close messages that nobody has handled", key, strings.ToLower(string(verdict))))
		}
	}
	return faults
}

// verdictFor is the configured verdict of a status.
func (c Config) verdictFor(status int) (engine.Verdict, bool) {
	text := strconv.Itoa(status)
	if v, ok := c.Statuses[text]; ok {
		return v, true
	}
	v, ok := c.Statuses[text[:1]+"xx"]
	return v, ok
}
