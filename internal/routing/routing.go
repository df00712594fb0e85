package routing

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/config"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/routing/expr"
)

// Input is what a route is chosen by.
type Input struct {
	MessageID    string
	OrderingKey  string
	Subscription string
	PublishTime  time.Time // zero: unknown
	Attributes   map[string]string
	Payload      []byte
	Claim        *Claim // at an attempt: the object that the message refers to
}

// Claim is an object that a message refers to, as it was found.
type Claim struct {
	inbox.Object
	ContentType string
	Content     []byte // nil: it was not read
}

func (in *Input) expr() *expr.Input {
	made := expr.NewInput(expr.Message{
		ID: in.MessageID, PublishTime: in.PublishTime, OrderingKey: in.OrderingKey, Subscription: in.Subscription,
	}, in.Attributes, in.Payload)
	if c := in.Claim; c != nil {
		made.SetClaim(expr.Claim{URI: c.Pinned(), Bucket: c.Bucket, Object: c.Name, Generation: strconv.FormatInt(c.Generation, 10),
			Bytes: c.Bytes, SHA256: c.SHA256, ContentType: c.ContentType, Payload: c.Content})
	}
	return made
}

// Decision is what the configuration says about a message. Every text fits its column.
type Decision struct {
	Route         string // empty exactly when Park is NO_ROUTE
	Type          string
	Version       string
	TenantID      string
	AggregateType string
	CorrelationID string
	CausationID   string

	Key      string // empty: a lane of its own; so has a message with OrderNone, whatever its key
	KeySpace string
	Order    inbox.OrderKind
	Sequence int64

	DedupeKey     string       // empty: transport identity
	ConsumerScope bool         // the dedupe key is unique in the consumer, not only in the subscription
	Claim         inbox.Object // what the message refers to; zero: nothing
	Process       bool         // a dead letter of this route runs by itself
	Blocks        bool         // while parked it keeps its lane closed

	Park       inbox.Reason // empty, CONTRACT or NO_ROUTE
	ParkDetail string       // names the expression and the fault, never a value
}

// Placement is what the decision says about lane and order.
func (d Decision) Placement() inbox.Placement {
	return inbox.Placement{Key: d.Key, KeySpace: d.KeySpace, Order: d.Order, Sequence: d.Sequence}
}

// Call is what an attempt sends.
type Call struct {
	Engine  string
	Message string
	// Variables are exact JSON texts. Nil: the route names none, and the payload goes as it came.
	Variables map[string]json.RawMessage
}

// ContractError says why a message does not fit its route. It holds no value of the message.
type ContractError struct {
	Detail string
}

// Error returns the detail.
func (e *ContractError) Error() string { return e.Detail }

// ErrUnknownRoute says that this configuration lacks the route.
var ErrUnknownRoute = errors.New("this configuration has no such route")

// Router decides. It is safe for concurrent use.
type Router struct {
	routes []*route
	byName map[string]*route
}

// route is a config.Route with its programs; a nil program is an absent expression.
type route struct {
	config.Route
	match     *expr.Program
	texts     []text
	key       *expr.Program
	dedupe    *expr.Program
	sequence  *expr.Program
	message   *expr.Program
	variables []*expr.Program
	claim     claim
	versions  map[string]bool
}

// text is a descriptive expression and where its value goes.
type text struct {
	name    string
	program *expr.Program
	into    func(d *Decision) *string
}

// New compiles the routes of a configuration.
func New(cfg *config.Config) (*Router, error) {
	r := &Router{byName: map[string]*route{}}
	var faults []error
	for i := range cfg.Routes {
		compiled, err := compile(cfg.Routes[i])
		if err != nil {
			faults = append(faults, fmt.Errorf("route %q: %w", cfg.Routes[i].Name, err))
			continue
		}
		r.routes = append(r.routes, compiled)
		r.byName[compiled.Name] = compiled
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return r, nil
}

func compile(from config.Route) (*route, error) {
	r := &route{Route: from}
	var faults []error
	program := func(name string, e config.Expr, use expr.Use) *expr.Program {
		if e.Absent() {
			return nil
		}
		p, err := e.Program(use)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", name, err))
		}
		return p
	}
	r.match = program("match", from.Match, expr.ForMatch)
	for _, t := range []struct {
		name string
		from config.Expr
		into func(d *Decision) *string
	}{
		{"type", from.Type, func(d *Decision) *string { return &d.Type }},
		{"version", from.Version, func(d *Decision) *string { return &d.Version }},
		{"tenant", from.Tenant, func(d *Decision) *string { return &d.TenantID }},
		{"aggregateType", from.AggregateType, func(d *Decision) *string { return &d.AggregateType }},
		{"correlationId", from.CorrelationID, func(d *Decision) *string { return &d.CorrelationID }},
		{"causationId", from.CausationID, func(d *Decision) *string { return &d.CausationID }},
	} {
		if p := program(t.name, t.from, expr.ForText); p != nil {
			r.texts = append(r.texts, text{t.name, p, t.into})
		}
	}
	r.key = program("key", from.Key, expr.ForKey)
	r.dedupe = program("dedupe", from.Dedupe, expr.ForKey)
	r.sequence = program("sequence", from.Sequence, expr.ForSequence)
	r.message = program("message", from.Message.Expr, expr.ForText)
	for _, v := range from.Variables {
		r.variables = append(r.variables, program("variables."+v.Name, v.Expr, expr.ForVariable))
	}
	if c := from.Claim; c != nil {
		r.claim = claim{
			reference: program("claim.reference", c.Reference, expr.ForText), bucket: program("claim.bucket", c.Bucket, expr.ForText),
			object: program("claim.object", c.Object, expr.ForText), generation: program("claim.generation", c.Generation, expr.ForText),
			sha256: program("claim.sha256", c.SHA256, expr.ForText),
		}
	}
	if len(from.Versions) > 0 {
		r.versions = map[string]bool{}
		for _, version := range from.Versions {
			r.versions[version] = true
		}
	}
	return r, errors.Join(faults...)
}

// Lookup returns a route of the configuration.
func (r *Router) Lookup(route string) (config.Route, bool) {
	if found, ok := r.byName[route]; ok {
		return found.Route, true
	}
	return config.Route{}, false
}
