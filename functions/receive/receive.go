// Package receive is the HTTP function "Receive": Pub/Sub pushes each message to it, and it answers 2xx only once a row
// is committed. See package receiver for what it does; here it is put together, checked at start, and ended in order
// (package funcserver).
package receive

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/claimcheck"
	"github.com/pubsub-inbox/pubsub-inbox/internal/config"
	"github.com/pubsub-inbox/pubsub-inbox/internal/funcserver"
	"github.com/pubsub-inbox/pubsub-inbox/internal/receiver"
	"github.com/pubsub-inbox/pubsub-inbox/internal/routing"
	"github.com/pubsub-inbox/pubsub-inbox/internal/spannerstore"
	"github.com/pubsub-inbox/pubsub-inbox/internal/telemetry"
	"github.com/pubsub-inbox/pubsub-inbox/internal/wiring"
)

// Name is the function's entry point.
const Name = "Receive"

// flushWait is how long an answer waits for an export at most, once in an interval.
const flushWait = 150 * time.Millisecond

var function = funcserver.Register(Options(os.LookupEnv, os.Stderr))

// Main serves this function alone.
func Main(host, port string) { function.Main(host, port) }

// Options puts the function together. Its settings come from lookup, its log goes to w.
func Options(lookup config.Lookup, w io.Writer) funcserver.Options {
	// The environment's faults are Build's to report; the logger takes what is there.
	env, _ := config.LoadReceiveEnv(lookup)
	observe, _ := config.LoadTelemetryEnv(lookup)
	log := telemetry.NewLogger(w, telemetry.Options{ProjectID: env.ProjectID, Revision: env.Revision, Level: observe.LogLevel, Sample: true})
	var watch *telemetry.Receive // made by Build
	answered := func(r *http.Request, status int) {
		if watch == nil || wiring.IsHealth(r) {
			return
		}
		if status >= http.StatusMultipleChoices {
			watch.Refused(status)
		}
		watch.Flush(r.Context(), 0, flushWait)
	}
	return funcserver.Options{Name: Name, Lookup: lookup, Logger: log, Answered: answered, Build: func(f *funcserver.Function) (http.Handler, error) {
		env, envErr := config.LoadReceiveEnv(lookup)
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
		auth, err := wiring.Auth(env.AuthMode, env.Audience, env.ServiceAccounts, env.OnCloudRun)
		if err != nil {
			return nil, err
		}
		export, err := wiring.Export(f, lookup, observe, wiring.Process{Service: "pubsub-inbox-receive", Consumer: cfg.Consumer,
			Revision: env.Revision, ProjectID: env.ProjectID, OnCloudRun: env.OnCloudRun}, log)
		if err != nil {
			return nil, err
		}
		routes := make([]string, 0, len(cfg.Routes))
		for _, route := range cfg.Routes {
			routes = append(routes, route.Name)
		}
		watch = telemetry.NewReceive(export, routes)
		store := funcserver.NewLazy(func(ctx context.Context) (*spannerstore.Store, error) {
			return wiring.Store(ctx, lookup, env.Database, "", time.Now)
		})
		f.OnShutdown("spanner", func(context.Context) error {
			if s, ok := store.Made(); ok {
				s.Close()
			}
			return nil
		})
		// Without a bucket there is nowhere to keep large payloads: then they are refused, beyond what a row can hold.
		var objects receiver.Objects
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
			kept := claimcheck.New(env.PayloadBucket)
			f.OnShutdown("cloud storage", func(context.Context) error { return kept.Close() })
			objects, checks["storage"] = kept, kept.Ready
		}
		get := func(ctx context.Context) (*receiver.Receiver, error) {
			s, err := store.Get(ctx)
			if err != nil {
				return nil, err
			}
			return &receiver.Receiver{Consumer: cfg.Consumer, Revision: env.Revision, Store: s, Router: router, Objects: objects,
				Threshold: cfg.ClaimCheck.Threshold, Buckets: cfg.ClaimCheck.Buckets, TraceAttributes: cfg.TraceAttributes,
				Log: log, Now: time.Now, Observer: watch}, nil
		}
		endpoint := wiring.Endpoint(receiver.Handler(get, log), auth, log, receiver.DeadLetterPath)
		return wiring.Health(endpoint, time.Now, log, checks), nil
	}}
}
