package flowable

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/httpcall"
)

// Deps are what an Engine uses of the world. Each zero value means the real thing.
type Deps struct {
	Now  func() time.Time
	TLS  *tls.Config
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Engine is an engine.Engine that delivers into Flowable.
type Engine struct {
	config Config
	now    func() time.Time
	client *httpcall.Client
	waits  models
}

var (
	_ engine.Engine    = (*Engine)(nil)
	_ engine.Prober    = (*Engine)(nil)
	_ engine.Historian = (*Engine)(nil)
)

// New reports all faults of the configuration at once. It connects to nothing.
func New(config Config, deps Deps) (*Engine, error) {
	config = config.withDefaults()
	base, err := config.validate()
	if err != nil {
		return nil, err
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	// Connections are kept although Flowable is not idempotent: a delivery follows its query at once, on a connection that
	// has just worked.
	client := httpcall.New(base, true, httpcall.Deps{Now: deps.Now, TLS: deps.TLS, Dial: deps.Dial})
	return &Engine{config: config, now: deps.Now, client: client}, nil
}

// Properties implements engine.Engine.
func (e *Engine) Properties() engine.Properties {
	return engine.Properties{Probe: true, Timeout: e.config.Timeout}
}

// Close gives the kept connections back. Calls that come later are Technical.
func (e *Engine) Close() error {
	e.client.Close()
	return nil
}

// Correlate implements engine.Engine.
func (e *Engine) Correlate(ctx context.Context, d engine.Delivery) engine.Result {
	variables, problem := e.variables(d)
	if problem == nil {
		problem = e.addressed(d)
	}
	if problem != nil {
		return *problem
	}
	bounded, cancel := context.WithTimeout(ctx, e.config.Timeout)
	defer cancel()
	// The look-up may take half of the time: what is sent must be given time to answer.
	looking, stop := context.WithTimeout(bounded, e.config.Timeout/2)
	defer stop()
	if d.Start {
		return e.start(bounded, looking, d, variables)
	}
	waiting, res := e.find(looking, d)
	if res != nil {
		return *res
	}
	if waiting.Suspended {
		return suspended(waiting.ProcessInstanceID)
	}
	return e.deliver(bounded, d, waiting, variables)
}

// addressed says what is wrong with a delivery that nobody could be found, or started, by.
func (e *Engine) addressed(d engine.Delivery) *engine.Result {
	if d.Start {
		return e.startsUnder(d)
	}
	_, problem := e.correlation(d, filter{}, executions)
	return problem
}

// suspendedWait is how long a suspended instance is left alone: a person suspended it, and a person will wake it.
const suspendedWait = time.Minute

func suspended(instance string) engine.Result {
	return engine.Result{Verdict: engine.RetryAfter, Code: "SUSPENDED", RetryAfter: suspendedWait, Reference: instance,
		Detail: "The process instance that waits for this message is suspended."}
}

// call makes one request of the REST API.
func (e *Engine) call(ctx context.Context, method, path string, body []byte, maySend func() bool) (httpcall.Answer, *engine.Result) {
	// The base and the path are escaped texts, and stay so.
	target, err := url.Parse(e.config.BaseURL + path)
	if err != nil {
		return httpcall.Answer{}, &engine.Result{Verdict: engine.Technical, Code: "url", Detail: "The request's address cannot be made. Nothing was sent."}
	}
	header := make(http.Header, 8+len(e.config.Headers))
	for name, value := range e.config.Headers {
		header.Set(name, value)
	}
	if value := e.config.Auth.authorization(); value != "" {
		header.Set("Authorization", value)
	}
	if header.Get("Accept") == "" {
		header.Set("Accept", "application/json, */*;q=0.5")
	}
	if header.Get("User-Agent") == "" {
		header.Set("User-Agent", "pubsub-inbox")
	}
	header.Set("Accept-Encoding", "identity")
	if body != nil {
		header.Set("Content-Type", "application/json")
	}
	req := &http.Request{Method: method, URL: target, Host: target.Host, Header: header, Body: httpcall.Body(body), ContentLength: int64(len(body))}
	return e.client.Do(ctx, req, e.config.MaxAnswerBytes, maySend)
}
