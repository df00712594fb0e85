package httpengine

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/httpcall"
)

// Deps are what an Engine uses of the world. Each zero value means the real thing.
type Deps struct {
	Now    func() time.Time // for dates in answers, and the age of idle connections
	Tokens TokenSource      // for oidc
	TLS    *tls.Config
	Dial   func(ctx context.Context, network, address string) (net.Conn, error)
}

// Engine is an engine.Engine that delivers by HTTP.
type Engine struct {
	config Config
	target *url.URL
	deps   Deps
	client *httpcall.Client
}

var _ engine.Engine = (*Engine)(nil)

// New reports all faults of the configuration at once. It connects to nothing.
func New(config Config, deps Deps) (*Engine, error) {
	config = config.withDefaults()
	target, err := config.validate()
	if err != nil {
		return nil, err
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	if deps.Tokens == nil && config.Auth.Kind == AuthOIDC {
		deps.Tokens = newGoogleTokens(config.Auth.Audience)
	}
	return &Engine{config: config, target: target, deps: deps,
		client: httpcall.New(target, config.Idempotent, httpcall.Deps{Now: deps.Now, TLS: deps.TLS, Dial: deps.Dial})}, nil
}

// Properties implements engine.Engine.
func (e *Engine) Properties() engine.Properties {
	return engine.Properties{Idempotent: e.config.Idempotent, Timeout: e.config.Timeout}
}

// Close gives the kept connections back. Calls that come later are Technical.
func (e *Engine) Close() error {
	e.client.Close()
	return nil
}

// Correlate implements engine.Engine.
func (e *Engine) Correlate(ctx context.Context, d engine.Delivery) engine.Result {
	req, err := e.newRequest(d)
	if err != nil {
		return engine.Result{Verdict: engine.Rejected, Code: "request", Detail: "The message cannot be sent: " + err.Error() + ".", NotAsked: true}
	}
	bounded, cancel := context.WithTimeout(ctx, e.config.Timeout)
	defer cancel()

	if e.deps.Tokens != nil && e.config.Auth.Kind == AuthOIDC {
		token, err := e.deps.Tokens.Token(bounded)
		if err != nil {
			return noToken(ctx, err)
		}
		if token == "" || !visible(token) {
			return engine.Result{Verdict: engine.Technical, Code: codeToken, Detail: "The ID token that was given to us is none."}
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	got, failure := e.client.Do(bounded, req, e.config.MaxAnswerBytes, d.MaySend)
	if failure != nil {
		return *failure
	}
	return e.classify(answer{got}, d)
}

func noToken(ctx context.Context, err error) engine.Result {
	if errors.Is(ctx.Err(), context.Canceled) {
		return *httpcall.Unsent(ctx, err)
	}
	if _, ok := errors.AsType[*TokenRefusal](err); ok {
		return engine.Result{Verdict: engine.Unauthorised, Code: codeToken, Detail: "This workload gets no ID token for the engine's audience: check its service account. Nothing was sent."}
	}
	return engine.Result{Verdict: engine.Technical, Code: codeToken, Detail: "The ID token could not be fetched. Nothing was sent."}
}
