package httpengine

import (
	"context"
	"errors"
	"net/http"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials/idtoken"
	"cloud.google.com/go/compute/metadata"
)

// codeToken is the code of results without an ID token.
const codeToken = "token"

// TokenSource gives ID tokens. It is asked before each delivery and caches by itself, and is safe for concurrent use. An
// error that is a TokenRefusal is our set-up's fault; any other may heal.
type TokenSource interface {
	Token(ctx context.Context) (string, error)
}

// TokenRefusal is an error that says this workload gets no token, however often it asks.
type TokenRefusal struct{ Err error }

func (r *TokenRefusal) Error() string { return "no ID token for this workload: " + r.Err.Error() }
func (r *TokenRefusal) Unwrap() error { return r.Err }

// googleTokens gives the ID tokens of the workload's own service account.
type googleTokens struct {
	audience string
	// turn is held while a token is asked for: a lock that a context can give up waiting for.
	turn        chan struct{}
	credentials *auth.Credentials
}

func newGoogleTokens(audience string) *googleTokens {
	return &googleTokens{audience: audience, turn: make(chan struct{}, 1)}
}

func (g *googleTokens) Token(ctx context.Context) (string, error) {
	select {
	case g.turn <- struct{}{}:
		defer func() { <-g.turn }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if g.credentials == nil {
		c, err := idtoken.NewCredentials(&idtoken.Options{Audience: g.audience})
		if err != nil {
			return "", &TokenRefusal{Err: err}
		}
		g.credentials = c
	}
	token, err := g.credentials.Token(ctx)
	if err != nil {
		if refused(err) {
			return "", &TokenRefusal{Err: err}
		}
		return "", err
	}
	return token.Value, nil
}

// refused tells an answer that will stay the same from one that may not.
func refused(err error) bool {
	status := 0
	if answer, ok := errors.AsType[*auth.Error](err); ok && answer.Response != nil {
		status = answer.Response.StatusCode
	}
	if answer, ok := errors.AsType[*metadata.Error](err); ok {
		status = answer.Code
	}
	_, undefined := errors.AsType[metadata.NotDefinedError](err)
	return undefined || status == http.StatusBadRequest || status == http.StatusUnauthorized ||
		status == http.StatusForbidden || status == http.StatusNotFound
}
