package wiring

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/config"
	"github.com/pubsub-inbox/pubsub-inbox/internal/funcserver"
	"github.com/pubsub-inbox/pubsub-inbox/internal/telemetry"
)

// Process is what telemetry says of a function's process.
type Process struct {
	Service            string // the name where the environment has no other
	Consumer, Revision string
	ProjectID          string
	OnCloudRun         bool
}

const (
	// firstExport is what a cold export needs about: a connection, and a token.
	firstExport = time.Second
	// shutdownExport bounds the last export: what the platform leaves after the last request is little.
	shutdownExport = 2 * time.Second
)

// Export makes the export of a function's metrics and traces, and has what is left sent when the process ends.
func Export(f *funcserver.Function, lookup config.Lookup, env *config.TelemetryEnv, p Process, log *slog.Logger) (*telemetry.Export, error) {
	service, _ := lookup(config.EnvService)
	options := telemetry.ExportOptions{
		MetricsURL: env.MetricsURL, TracesURL: env.TracesURL, Interval: env.Interval, FirstWait: firstExport, SampleRatio: env.SampleRatio, Tenants: env.Tenants,
		Consumer: p.Consumer, Service: cmp.Or(service, p.Service), Revision: p.Revision, ProjectID: p.ProjectID, OnCloudRun: p.OnCloudRun,
		InstanceID: NewID(), Log: log, Now: time.Now, Rand: NewRand(), Client: telemetry.GoogleClient(),
	}
	if p.OnCloudRun {
		options.Region = telemetry.Region
	}
	export, err := telemetry.NewExport(options)
	if err != nil {
		return nil, err
	}
	f.OnShutdown("telemetry", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, shutdownExport)
		defer cancel()
		return export.Shutdown(ctx)
	})
	return export, nil
}

// IsHealth reports whether a request asks after the process's health.
func IsHealth(r *http.Request) bool { return r.URL.Path == LivePath || r.URL.Path == ReadyPath }
