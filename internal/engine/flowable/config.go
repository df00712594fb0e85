package flowable

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/httpcall"
)

const (
	// DefaultTimeout bounds a call when Config.Timeout is zero.
	DefaultTimeout = 10 * time.Second
	// DefaultMaxAnswerBytes is read of an answer's body when Config.MaxAnswerBytes is zero. The longest answer is the
	// BPMN of a process, when history is asked about an instance that still runs.
	DefaultMaxAnswerBytes = 1 << 20
)

// Config describes one Flowable, and the process in it that waits. The zero values of Timeout and MaxAnswerBytes mean
// their defaults.
type Config struct {
	Name    string // in error texts
	BaseURL string // of the REST API, such as http://host:8080/flowable-rest/service or http://host:8080/process-api
	Timeout time.Duration
	Auth    Auth
	Headers httpcall.Headers // sent with each request; none of those this package sets itself

	// ProcessDefinitionKey narrows the search to one process, in all its versions. Needed to start instances.
	ProcessDefinitionKey string
	// Tenant narrows the search to one tenant. Empty: all are searched, and two of them are ambiguous.
	Tenant string
	// Correlation is the process variable that holds the correlation key. A business key does not serve: Flowable's REST API
	// finds by it the process instance, and not the execution in it that waits.
	Correlation Correlation
	// VariableTypes are Flowable's types of variables, by name, where the JSON text is not to decide.
	VariableTypes  map[string]string
	MaxAnswerBytes int64
}

// Correlation names the process variable that holds the correlation key. Its type matters: to Flowable the text "7" and
// the number 7 are different values.
type Correlation struct {
	Variable string
	Type     string // one of CorrelationTypes; empty: string
}

// CorrelationTypes are the types that a correlation variable can have: those that Flowable compares exactly.
var CorrelationTypes = []string{"string", "integer", "long", "short", "uuid"}

// VariableTypes are the types that a variable can be given.
var VariableTypes = []string{
	"string", "integer", "short", "long", "double", "boolean", "bigDecimal", "bigInteger", "json", "uuid", "date", "instant",
	"localDate", "localDateTime",
}

// AuthKind is how Flowable knows us.
type AuthKind string

const (
	AuthNone   AuthKind = "none" // also the empty kind
	AuthBasic  AuthKind = "basic"
	AuthBearer AuthKind = "bearer"
)

// Auth is how Flowable knows us, with what that takes.
type Auth struct {
	Kind     AuthKind
	Username string          // basic
	Password httpcall.Secret // basic
	Token    httpcall.Secret // bearer
}

func (c Config) withDefaults() Config {
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.MaxAnswerBytes == 0 {
		c.MaxAnswerBytes = DefaultMaxAnswerBytes
	}
	if c.Auth.Kind == "" {
		c.Auth.Kind = AuthNone
	}
	if c.Correlation.Type == "" {
		c.Correlation.Type = "string"
	}
	c.BaseURL = strings.TrimRight(c.BaseURL, "/")
	return c
}

// validate reports all faults of c at once. No text of a fault holds a secret.
func (c Config) validate() (*url.URL, error) {
	var faults []error
	fault := func(setting, format string, args ...any) {
		faults = append(faults, engine.Misset(setting, format, args...))
	}

	// url.Parse repeats what it could not read.
	base, err := url.Parse(c.BaseURL)
	switch {
	case err != nil:
		fault("url", "cannot be read")
	case base.Scheme != "http" && base.Scheme != "https":
		fault("url", "the scheme must be http or https")
	case base.Hostname() == "":
		fault("url", "has no host")
	case base.User != nil:
		fault("url", "must not hold a user; use auth")
	case base.RawQuery != "" || base.Fragment != "":
		fault("url", "must end with its path")
	}
	if c.Timeout < 0 {
		fault("timeout", "must be positive")
	}
	if c.MaxAnswerBytes < 1 {
		fault("maxAnswerBytes", "must be at least 1")
	}
	switch a := c.Auth; a.Kind {
	case AuthNone:
	case AuthBasic:
		if a.Username == "" || strings.ContainsAny(a.Username, ":\r\n\x00") {
			fault("auth.username", "basic needs a username, without a colon")
		}
	case AuthBearer:
		if a.Token == "" || strings.ContainsFunc(string(a.Token), func(r rune) bool { return r <= ' ' || r > '~' }) {
			fault("auth.tokenEnv", "bearer needs a token, of visible ASCII characters")
		}
	default:
		fault("auth.kind", "%q is none of none, basic, bearer", a.Kind)
	}
	faults = append(faults, c.Headers.Faults(c.Auth.Kind != AuthNone, nil)...)
	if c.Correlation.Variable == "" {
		fault("correlation.variable", "this needs the name of the process variable that holds the key")
	}
	if !slices.Contains(CorrelationTypes, c.Correlation.Type) {
		fault("correlation.type", "%q is none of %s", c.Correlation.Type, strings.Join(CorrelationTypes, ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(c.VariableTypes)) {
		if !slices.Contains(VariableTypes, c.VariableTypes[name]) {
			fault("variableTypes."+name, "%q is none of %s", c.VariableTypes[name], strings.Join(VariableTypes, ", "))
		}
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("flowable engine %q: %w", c.Name, errors.Join(faults...))
	}
	return base, nil
}

// authorization is the header's value; empty: none.
func (a Auth) authorization() string {
	switch a.Kind {
	case AuthBasic:
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(a.Username+":"+string(a.Password)))
	case AuthBearer:
		return "Bearer " + string(a.Token)
	}
	return ""
}
