// Package wiring puts the parts of a function together: what both functions, the command line and the local stack need
// in the same way. It holds no rule of its own.
package wiring

import (
	"cmp"
	"crypto/rand"
	"errors"
	"log/slog"
	"maps"
	"math"
	"math/big"
	mathrand "math/rand/v2"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/pubsub-inbox/pubsub-inbox/internal/config"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/flowable"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/httpcall"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/httpengine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/pushauth"
)

// NewID returns a new random id of 36 characters.
func NewID() string { return uuid.NewString() }

// NewRand returns a generator with a random seed.
func NewRand() *mathrand.Rand {
	seed := func() uint64 {
		n, err := rand.Int(rand.Reader, new(big.Int).SetUint64(math.MaxUint64))
		if err != nil {
			return 0 // crypto/rand does not fail; jitter needs no secrecy
		}
		return n.Uint64()
	}
	return mathrand.New(mathrand.NewPCG(seed(), seed()))
}

// Engines makes the adapters that a configuration names. Secrets are read from the environment variables that it names.
// The error is config.Faults, with those of all engines.
func Engines(cfg *config.Config, lookup config.Lookup) (map[string]engine.Engine, error) {
	engines := make(map[string]engine.Engine, len(cfg.Engines))
	var faults config.Faults
	for _, name := range slices.Sorted(maps.Keys(cfg.Engines)) {
		made, err := newEngine(cfg, name, cfg.Engines[name], lookup)
		if err != nil {
			faults = append(faults, placed(cfg, "engines."+name, err)...)
			continue
		}
		engines[name] = made
	}
	if len(faults) > 0 {
		slices.SortStableFunc(faults, func(a, b config.Fault) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
		return nil, faults
	}
	return engines, nil
}

// placed finds where in the file the faults of an engine are.
func placed(cfg *config.Config, path string, err error) config.Faults {
	var setting *engine.SettingError
	switch joined := err.(type) {
	case *engine.SettingError:
		return config.Faults{cfg.Fault(path+"."+joined.Setting, joined.Message)}
	case interface{ Unwrap() []error }:
		var all config.Faults
		for _, err := range joined.Unwrap() {
			all = append(all, placed(cfg, path, err)...)
		}
		return all
	case interface{ Unwrap() error }:
		var several interface{ Unwrap() []error }
		if errors.As(err, &setting) || errors.As(err, &several) {
			return placed(cfg, path, joined.Unwrap())
		}
	}
	return config.Faults{cfg.Fault(path, err.Error())}
}

func newEngine(cfg *config.Config, name string, e config.Engine, lookup config.Lookup) (engine.Engine, error) {
	password, err := secret(lookup, "auth.passwordEnv", e.Auth.PasswordEnv)
	if err != nil {
		return nil, err
	}
	token, err := secret(lookup, "auth.tokenEnv", e.Auth.TokenEnv)
	if err != nil {
		return nil, err
	}
	switch e.Kind {
	case config.KindFlowable:
		return flowable.New(flowable.Config{
			Name: name, BaseURL: e.URL, Timeout: e.Timeout,
			Auth:    flowable.Auth{Kind: flowable.AuthKind(e.Auth.Kind), Username: e.Auth.Username, Password: password, Token: token},
			Headers: e.Headers, MaxAnswerBytes: e.MaxAnswerBytes,
			ProcessDefinitionKey: e.Flowable.ProcessDefinitionKey, Tenant: e.Flowable.Tenant,
			Correlation:   flowable.Correlation{Variable: e.Flowable.CorrelationVariable, Type: e.Flowable.CorrelationType},
			VariableTypes: e.Flowable.VariableTypes,
		}, flowable.Deps{})
	case config.KindHTTP:
		statuses := map[string]engine.Verdict{}
		for status, verdict := range e.Statuses {
			statuses[status] = engine.Verdict(strings.ToUpper(verdict))
		}
		return httpengine.New(httpengine.Config{
			Name: name, URL: e.URL, Timeout: e.Timeout, Idempotent: e.Idempotent,
			Auth: httpengine.Auth{Kind: httpengine.AuthKind(e.Auth.Kind), Username: e.Auth.Username, Password: password,
				Token: token, Audience: e.Auth.Audience},
			Headers: e.Headers, Statuses: statuses, MaxAnswerBytes: e.MaxAnswerBytes, Source: "urn:pubsub-inbox:" + cfg.Consumer,
		}, httpengine.Deps{})
	}
	return nil, engine.Misset("kind", "%q has no adapter in this build", e.Kind)
}

func secret(lookup config.Lookup, setting, variable string) (httpcall.Secret, error) {
	if variable == "" {
		return "", nil
	}
	value, ok := lookup(variable)
	if !ok || value == "" {
		return "", engine.Misset(setting, "the environment variable %s, which holds a secret, is not set", variable)
	}
	return httpcall.Secret(value), nil
}

// Endpoint puts the checks that every request passes before a handler: its path (404 but for / and paths), its method (405) and its caller
// (401, 403, or 503 where Google's keys are out of reach). The function's framework serves every path.
func Endpoint(next http.Handler, auth *pushauth.Authenticator, log *slog.Logger, paths ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" && r.URL.Path != "" && !slices.Contains(paths, r.URL.Path) {
			http.Error(w, "no such path", http.StatusNotFound)
			return
		}
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "POST only", http.StatusMethodNotAllowed)
			return
		}
		if err := auth.Check(r.Context(), r); err != nil {
			status := pushauth.Status(err)
			log.WarnContext(r.Context(), "caller refused", "status", status, "error", err)
			http.Error(w, http.StatusText(status), status)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Auth makes the check of a function's callers.
func Auth(mode config.AuthMode, audience string, emails []string, onCloudRun bool) (*pushauth.Authenticator, error) {
	return pushauth.New(pushauth.Config{Mode: pushauth.Mode(mode), Audience: audience, Emails: emails, OnCloudRun: onCloudRun})
}
