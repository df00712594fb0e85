// Package relay is the HTTP function "Relay": Cloud Scheduler calls it every minute, and it takes stored messages in key
// order to their engines. See package relayer for what it does; here it is put together, checked at start, and ended in
// order (package funcserver).
package relay

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/claimcheck"
	"github.com/pubsub-inbox/pubsub-inbox/internal/config"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/funcserver"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/relayer"
	"github.com/pubsub-inbox/pubsub-inbox/internal/routing"
	"github.com/pubsub-inbox/pubsub-inbox/internal/spannerstore"
	"github.com/pubsub-inbox/pubsub-inbox/internal/telemetry"
	"github.com/pubsub-inbox/pubsub-inbox/internal/wiring"
)

// Name is the function's entry point.
const Name = "Relay"

// flushWait is how long a run's answer waits for its last export at most.
const flushWait = 2 * time.Second

var function = funcserver.Register(Options(os.LookupEnv, os.Stderr))

// Main serves this function alone.
func Main(host, port string) { function.Main(host, port) }

// Options puts the function together. Its settings come from lookup, its log goes to w.
func Options(lookup config.Lookup, w io.Writer) funcserver.Options {
	// The environment's faults are Build's to report; the logger takes what is there.
	env, _ := config.LoadRelayEnv(lookup)
	observe, _ := config.LoadTelemetryEnv(lookup)
	log := telemetry.NewLogger(w, telemetry.Options{ProjectID: env.ProjectID, Revision: env.Revision, Level: observe.LogLevel, Sample: true})
	var watch *telemetry.Relay // made by Build, as ending is
	var ending context.Context
	answered := func(r *http.Request, _ int) {
		// A process that is told to end exports at its end: its time is too short to do it twice.
		if watch != nil && ending.Err() == nil && !wiring.IsHealth(r) {
			watch.Flush(r.Context(), watch.EndSpacing(), flushWait)
		}
	}
	return funcserver.Options{Name: Name, Lookup: lookup, Logger: log, Answered: answered, Build: func(f *funcserver.Function) (http.Handler, error) {
		ending = f.Draining()
		env, envErr := config.LoadRelayEnv(lookup)
		observe, observeErr := config.LoadTelemetryEnv(lookup)
		cfg, cfgErr := config.Load(lookup)
		if err := errors.Join(envErr, observeErr, cfgErr); err != nil {
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
		export, err := wiring.Export(f, lookup, observe, wiring.Process{Service: "pubsub-inbox-relay", Consumer: cfg.Consumer,
			Revision: env.Revision, ProjectID: env.ProjectID, OnCloudRun: env.OnCloudRun}, log)
		if err != nil {
			return nil, err
		}
		settings := relayer.FromConfig(cfg, env.Revision)
		routes := map[string]string{}
		for name, route := range settings.Routes {
			routes[name] = route.Engine
		}
		watch = telemetry.NewRelay(export, routes)
		store := funcserver.NewLazy(func(ctx context.Context) (*spannerstore.Store, error) {
			return wiring.Store(ctx, lookup, env.Database, "", time.Now)
		})
		f.OnShutdown("spanner", func(context.Context) error {
			if s, ok := store.Made(); ok {
				s.Close()
			}
			return nil
		})
		objects := claimcheck.New(env.PayloadBucket)
		f.OnShutdown("cloud storage", func(context.Context) error { return objects.Close() })
		// One relayer a process: its call slots and its turns are shared by all runs.
		relay := funcserver.NewLazy(func(ctx context.Context) (*relayer.Relayer, error) {
			s, err := store.Get(ctx)
			if err != nil {
				return nil, err
			}
			reporter, err := telemetry.NewReporter(export, s, inbox.ReportRequest{Consumer: cfg.Consumer, Lease: settings.Lease,
				Routes: slices.Sorted(maps.Keys(settings.Routes)), MaxOpen: telemetry.MaxOpen, MaxParked: telemetry.MaxParked},
				slices.Sorted(maps.Keys(engines)))
			if err != nil {
				return nil, err
			}
			checkEngines(ctx, engines, log)
			return relayer.New(settings, relayer.Deps{Store: s, Objects: objects, Router: router, Engines: engines, Log: log, Now: time.Now,
				After: time.After, NewID: wiring.NewID, Rand: wiring.NewRand, Observer: watch, Reporter: reporter}), nil
		})
		checks := map[string]func(context.Context) error{
			"spanner": func(ctx context.Context) error {
				s, err := store.Get(ctx)
				if err != nil {
					return err
				}
				return s.Ready(ctx, cfg.Consumer)
			},
			"keys": auth.Ready,
		}
		if env.PayloadBucket != "" {
			checks["storage"] = objects.Ready
		}
		get := func(ctx context.Context) (*relayer.Relayer, error) {
			r, err := relay.Get(ctx)
			if err != nil {
				log.ErrorContext(ctx, "the relay is not ready", "error", err)
				watch.Ran(ctx, false, 0)
			}
			return r, err
		}
		endpoint := wiring.Endpoint(relayer.Handler(get, f.Draining().Done(), f.Cut().Done()), auth, log)
		return wiring.Health(endpoint, time.Now, log, checks), nil
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
