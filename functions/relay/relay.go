// Package relay is the HTTP function "Relay": Cloud Scheduler calls it every minute, and it takes stored messages in key
// order to their engines. See package relayer for what it does; here it is put together, checked at start, and ended in
// order (package funcserver).
package relay

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/claimcheck"
	"github.com/pubsub-inbox/pubsub-inbox/internal/config"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/funcserver"
	"github.com/pubsub-inbox/pubsub-inbox/internal/relayer"
	"github.com/pubsub-inbox/pubsub-inbox/internal/routing"
	"github.com/pubsub-inbox/pubsub-inbox/internal/spannerstore"
	"github.com/pubsub-inbox/pubsub-inbox/internal/telemetry"
	"github.com/pubsub-inbox/pubsub-inbox/internal/wiring"
)

// Name is the function's entry point.
const Name = "Relay"

var function = funcserver.Register(Options(os.LookupEnv, os.Stderr))

// Main serves this function alone.
func Main(host, port string) { function.Main(host, port) }

// Options puts the function together. Its settings come from lookup, its log goes to w.
func Options(lookup config.Lookup, w io.Writer) funcserver.Options {
	// The environment's faults are Build's to report; the logger takes what is there.
	env, _ := config.LoadRelayEnv(lookup)
	log := telemetry.NewLogger(w, telemetry.Options{ProjectID: env.ProjectID, Revision: env.Revision})
	return funcserver.Options{Name: Name, Lookup: lookup, Logger: log, Build: func(f *funcserver.Function) (http.Handler, error) {
		env, envErr := config.LoadRelayEnv(lookup)
		cfg, cfgErr := config.Load(lookup)
		if err := errors.Join(envErr, cfgErr); err != nil {
			return nil, err
		}
		for _, warning := range cfg.Warnings {
			log.Warn("configuration", "warning", warning.String())
		}
		router, err := routing.New(cfg)
		if err != nil {
			return nil, err
		}
		engines, err := wiring.Engines(cfg, lookup)
		if err != nil {
			return nil, err
		}
		auth, err := wiring.Auth(env.AuthMode, env.Audience, env.ServiceAccounts, env.OnCloudRun)
		if err != nil {
			return nil, err
		}
		// One relayer a process: its call slots and its turns are shared by all runs.
		relay := funcserver.NewLazy(func(ctx context.Context) (*relayer.Relayer, error) {
			store, err := spannerstore.Open(ctx, env.Database, time.Now, wiring.NewID)
			if err != nil {
				return nil, err
			}
			f.OnShutdown("spanner", func(context.Context) error { store.Close(); return nil })
			objects := claimcheck.New(env.PayloadBucket)
			f.OnShutdown("cloud storage", func(context.Context) error { return objects.Close() })
			checkEngines(ctx, engines, log)
			return relayer.New(relayer.FromConfig(cfg, env.Revision), relayer.Deps{Store: store, Objects: objects, Router: router, Engines: engines,
				Log: log, Now: time.Now, After: time.After, NewID: wiring.NewID, Rand: wiring.NewRand}), nil
		})
		return wiring.Endpoint(relayer.Handler(relay.Get, f.Draining().Done(), f.Cut().Done()), auth, log), nil
	}}
}

// checkEngines logs what an engine that can be asked finds wrong with itself, such as too little history to look anything
// up in. It is asked with the first run, not at start: an engine that is down must not stop a deployment.
func checkEngines(ctx context.Context, engines map[string]engine.Engine, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var checks sync.WaitGroup
	for name, e := range engines {
		if checker, ok := e.(interface {
			Check(context.Context) []string
		}); ok {
			checks.Go(func() {
				for _, wrong := range checker.Check(ctx) {
					log.WarnContext(ctx, "engine check", "engine", name, "wrong", wrong)
				}
			})
		}
	}
	checks.Wait()
}
