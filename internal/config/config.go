package config

import (
	"strconv"
	"strings"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/routing/expr"
)

// Config is one deployment's configuration: one consumer, its engines and its routes. It is read-only once parsed.
type Config struct {
	Consumer   string
	Engines    map[string]Engine
	Routes     []Route // the first that matches
	Retention  Retention
	Relay      Relay
	ClaimCheck ClaimCheck
	// TraceAttributes are further attributes that are no part of a message's content. See inbox.TransportAttribute.
	TraceAttributes []string

	// Warnings are those of Parse, for the start to log.
	Warnings []Warning
	// Hints are limits that a configuration is within reach of. They are for who writes it, and not for the log.
	Hints []Warning

	file   string
	places places
}

// Engine is a workflow engine that routes deliver to.
type Engine struct {
	Name    string
	Kind    string
	URL     string
	Timeout time.Duration // one call
	// Idempotent: a second delivery under the same inbox id has no second effect.
	Idempotent bool
	// Probe: the engine can look up what became of an earlier delivery.
	Probe   bool
	Auth    Auth
	Headers map[string]string // static; never a secret
	// Statuses overrides what an HTTP status means: "409" or "4xx" to a verdict in lower case. Verdict looks it up.
	Statuses       map[string]string
	MaxAnswerBytes int64
	Flowable       Flowable // of kind flowable
}

// Flowable is what only an engine of kind flowable has.
type Flowable struct {
	// ProcessDefinitionKey narrows the search to one process; empty: all. A route that starts instances needs it.
	ProcessDefinitionKey string
	// Tenant narrows the search to one tenant; empty: all.
	Tenant              string
	CorrelationVariable string // the process variable that holds a message's key
	CorrelationType     string // its type; empty: string
	// VariableTypes are Flowable's types of variables, by name, where the value is not to decide.
	VariableTypes map[string]string
}

// Auth is how an engine is called. Secrets are never in the file, only the names of the environment variables that hold
// them.
type Auth struct {
	Kind        string // none, basic, bearer or oidc
	Username    string // basic
	PasswordEnv string // basic
	TokenEnv    string // bearer
	Audience    string // oidc
}

// The kinds of Auth.
const (
	AuthNone   = "none"
	AuthBasic  = "basic"
	AuthBearer = "bearer"
	AuthOIDC   = "oidc"
)

// The kinds of engines.
const (
	KindHTTP     = "http"
	KindFlowable = "flowable"
)

// Verdict returns what Statuses says about an HTTP status; the exact status goes before its class.
func (e Engine) Verdict(status int) (engine.Verdict, bool) {
	text := strconv.Itoa(status)
	for _, key := range []string{text, text[:1] + "xx"} {
		if verdict, ok := e.Statuses[key]; ok {
			return engine.Verdict(strings.ToUpper(verdict)), true
		}
	}
	return "", false
}

// Route says what a message means. Absent expressions have an empty text.
type Route struct {
	Name string
	Line int // of the route's name, for messages; 0 if the configuration was not parsed

	Match         Expr // absent: always
	Type          Expr
	Version       Expr
	Tenant        Expr
	AggregateType Expr
	CorrelationID Expr
	CausationID   Expr
	Key           Expr
	KeySpace      string
	Dedupe        Expr // absent: the message id
	Scope         Scope
	Order         inbox.OrderKind
	Sequence      Expr // exactly where Order is sequence

	Engine  string
	Message Message
	Start   bool // the message starts an instance, instead of waking one
	// Variables in the order of the file. Nil: the route names none, and the payload goes as it came. Empty: none are sent.
	Variables []Variable
	Schema    *Schema  // nil: none
	Versions  []string // accepted versions, as texts; empty: all

	Claim      *Claim // nil: its messages refer to no object
	DeadLetter DeadLetter

	Patience time.Duration // how long "nobody waits for it" is tried again
	Retry    Retry
	Parked   Parking
}

// Blocks reports whether a parked message of the route keeps its lane closed.
func (r *Route) Blocks() bool { return r.Parked == ParkedBlock }

// Scope says where a dedupe key is unique.
type Scope string

// The scopes.
const (
	ScopeSubscription Scope = "subscription"
	ScopeConsumer     Scope = "consumer" // for ids that are unique everywhere
)

// Parking says what a parked message does to its lane.
type Parking string

// The ways to park.
const (
	ParkedPass  Parking = "pass"  // later messages go by
	ParkedBlock Parking = "block" // the lane stays closed
)

// ClaimCheck says what is kept in Cloud Storage, and what may be read from it.
type ClaimCheck struct {
	Threshold int64    // bytes; a larger payload is kept in PAYLOAD_BUCKET
	Buckets   []string // that a sender may refer to
}

// Claim says how a message refers to an object in Cloud Storage: by a URI, or by bucket and object.
type Claim struct {
	Reference  Expr // gs://bucket/object, with or without #generation
	Bucket     Expr
	Object     Expr
	Generation Expr  // absent: the one that is there when the message is first attempted
	SHA256     Expr  // in hex
	Read       bool  // the object is read and checked before the engine is called; otherwise the engine is told of it
	MaxBytes   int64 // that are read
}

// DeadLetter says what becomes of a route's messages that come through the dead-letter topic.
type DeadLetter string

// The ways to treat a dead letter.
const (
	DeadLetterPark    DeadLetter = "park"    // a person decides
	DeadLetterProcess DeadLetter = "process" // it runs after a wait, unless it may have been stored before
)

// Retry bounds the wait between attempts.
type Retry struct {
	Min time.Duration
	Max time.Duration
}

// Message is the engine's name of the message: a literal, or an expression if it refers to attributes, payload or
// message. Exactly one is set.
type Message struct {
	Literal string
	Expr    Expr
}

// Variable is one variable of a delivery.
type Variable struct {
	Name string
	Expr Expr
}

// Expr is a CEL expression and where it stands. The zero Expr is an absent one.
type Expr struct {
	Text   string
	Line   int // 0 if the configuration was not parsed
	Column int

	program *expr.Program
}

// Absent reports whether there is no expression.
func (e Expr) Absent() bool { return e.Text == "" }

// Program returns the compiled expression, compiling it if the configuration was built by hand.
func (e Expr) Program(use expr.Use) (*expr.Program, error) {
	if e.program != nil {
		return e.program, nil
	}
	return expr.Compile(e.Text, use)
}

// Retention says how long finished messages are kept.
type Retention struct {
	Processed time.Duration // the dedupe memory: it outlives every way a message can come back
	Payload   time.Duration
	WaysBack  WaysBack
}

// WaysBack are the times in which a message can come back.
type WaysBack struct {
	Subscription time.Duration
	DeadLetter   time.Duration
	Replay       time.Duration
}

// Sum is the longest time after which a message can still come back: the ways follow one another.
func (w WaysBack) Sum() time.Duration { return w.Subscription + w.DeadLetter + w.Replay }

// Relay bounds the relay's work.
type Relay struct {
	Budget      time.Duration // of one run
	Poll        time.Duration // between two scans that find nothing
	Parallel    int           // lanes at a time
	Batch       int           // messages a claim
	Lease       time.Duration
	Poison      Poison
	LostWorkers int // after so many lost workers a message is poisoned
	Breaker     Breaker
}

// Poison says when one message that fails while its engine answers others is given up.
type Poison struct {
	Failures int
	Over     time.Duration
}

// Breaker says when an engine as a whole is left alone.
type Breaker struct {
	Failures int
}

// Default returns the settings that hold where the file says nothing.
func Default() Config {
	return Config{
		Engines: map[string]Engine{},
		Retention: Retention{
			Processed: 75 * day,
			Payload:   14 * day,
			// 31 days are the longest retention of a subscription.
			WaysBack: WaysBack{Subscription: 31 * day, DeadLetter: 31 * day, Replay: 7 * day},
		},
		Relay: Relay{
			Budget: 50 * time.Second, Poll: time.Second, Parallel: 16, Batch: 100, Lease: 90 * time.Second,
			Poison: Poison{Failures: 20, Over: day}, LostWorkers: 5, Breaker: Breaker{Failures: 5},
		},
		ClaimCheck: ClaimCheck{Threshold: 1 << 20},
	}
}

// DefaultEngine returns an engine's settings where the file says nothing.
func DefaultEngine() Engine {
	return Engine{Timeout: 10 * time.Second, Auth: Auth{Kind: AuthNone}, MaxAnswerBytes: 1 << 20}
}

// DefaultRoute returns a route's settings where the file says nothing.
func DefaultRoute() Route {
	return Route{
		Scope: ScopeSubscription, Order: inbox.OrderPublished, Parked: ParkedPass, DeadLetter: DeadLetterPark,
		Patience: day, Retry: Retry{Min: 10 * time.Second, Max: 10 * time.Minute},
	}
}

// DefaultClaim returns a claim's settings where the file says nothing.
func DefaultClaim() Claim { return Claim{MaxBytes: 16 << 20} }

const day = 24 * time.Hour
