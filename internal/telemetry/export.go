package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

const (
	scopeName = "github.com/pubsub-inbox/pubsub-inbox"

	// exportTimeout bounds one export. It goes on behind the answers of requests, as far as the platform gives it CPU.
	exportTimeout = 5 * time.Second
	// maxPoints is how many data points one request to Google's endpoint may hold.
	// https://docs.cloud.google.com/stackdriver/quotas
	maxPoints = 200
	// maxSeries bounds the label sets of one metric; what is beyond is counted together.
	maxSeries = 2000
	// minSpacing is how close together two points of one time series may be: Cloud Monitoring refuses closer ones.
	minSpacing = 5 * time.Second
	// complainEvery is how often a failing export is logged.
	complainEvery = time.Minute
)

// ExportOptions say where a process's numbers and spans go.
type ExportOptions struct {
	MetricsURL, TracesURL string        // OTLP over HTTP, whole URLs; empty: not exported, and nothing is kept
	Interval              time.Duration // between exports
	FirstWait             time.Duration // how long the first export is waited for at least: it makes connections, and gets a token
	SampleRatio           float64       // of requests and attempts that are traced, 0 to 1
	Tenants               []string      // values of the label tenant; nil: no such label

	Consumer, Service, Revision, ProjectID string
	OnCloudRun                             bool
	InstanceID                             string // unique to the process

	Log  *slog.Logger
	Now  func() time.Time
	Rand *rand.Rand // used by nobody else
	// Region asks the platform where this is, once, if no resource attribute says it. Nil: nobody is asked.
	Region func(context.Context) (string, error)
	// Client sends to Google's endpoint, with the workload's identity; see GoogleClient.
	Client *http.Client
}

// Export sends a process's metrics and traces. The zero value sends nothing and counts nothing; so does nil.
type Export struct {
	o       ExportOptions
	in      *instruments
	tracer  trace.Tracer // nil: no traces
	metrics *sdkmetric.MeterProvider
	traces  *sdktrace.TracerProvider
	types   *bounded
	tenants allowed

	mu         sync.Mutex
	running    bool
	last       time.Time // start of the last export; zero: none
	complained time.Time
}

// NewExport makes what is asked for. It talks to nobody: connections and tokens are made by the first export.
func NewExport(o ExportOptions) (*Export, error) {
	e := &Export{o: o, types: newBounded(maxTypes)}
	if len(o.Tenants) > 0 {
		e.tenants = newAllowed(o.Tenants)
	}
	if o.MetricsURL == "" && o.TracesURL == "" {
		return e, nil
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(e.complain))
	res, err := e.resource()
	if err != nil {
		return nil, err
	}
	if o.MetricsURL != "" {
		if err := e.startMetrics(res); err != nil {
			return nil, err
		}
	}
	if o.TracesURL != "" && o.SampleRatio > 0 {
		if err := e.startTraces(res); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// resource names the process. An instance of its own, because Cloud Monitoring takes points of two processes under one
// name for points out of order.
func (e *Export) resource() (*resource.Resource, error) {
	own := []attribute.KeyValue{attribute.String("service.name", e.o.Service)}
	add := func(key, value string) {
		if value != "" {
			own = append(own, attribute.String(key, value))
		}
	}
	add("service.version", e.o.Revision)
	add("gcp.project_id", e.o.ProjectID)
	if e.o.OnCloudRun {
		add("cloud.provider", "gcp")
		add("cloud.platform", "gcp_cloud_run")
	}
	// OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME win, but nothing makes two processes one.
	res, err := resource.Merge(resource.NewSchemaless(own...), resource.Environment())
	if err == nil {
		res, err = resource.Merge(res, resource.NewSchemaless(attribute.String("service.instance.id", e.o.InstanceID)))
	}
	if err != nil {
		return nil, fmt.Errorf("describe the process for telemetry: %w", err)
	}
	return res, nil
}

func (e *Export) startMetrics(res *resource.Resource) error {
	opts := []otlpmetrichttp.Option{otlpmetrichttp.WithEndpointURL(e.o.MetricsURL), otlpmetrichttp.WithTimeout(exportTimeout),
		// The next export carries the same totals: nothing is won by repeating this one.
		otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig{})}
	if google(e.o.MetricsURL) && e.o.Client != nil {
		opts = append(opts, otlpmetrichttp.WithHTTPClient(e.o.Client))
	}
	exporter, err := otlpmetrichttp.New(context.Background(), opts...)
	if err != nil {
		return fmt.Errorf("make the exporter of metrics: %w", err)
	}
	var sent sdkmetric.Exporter = exporter
	if _, known := res.Set().Value("cloud.region"); !known && e.o.Region != nil {
		sent = &located{Exporter: exporter, ask: e.o.Region}
	}
	// Exports are ours to begin, within requests: a timer of the library's would fire when a sleeping instance wakes, right
	// beside them.
	reader := sdkmetric.NewPeriodicReader(sent, sdkmetric.WithInterval(10*365*24*time.Hour), sdkmetric.WithTimeout(exportTimeout),
		sdkmetric.WithMaxExportBatchSize(maxPoints))
	e.metrics = sdkmetric.NewMeterProvider(sdkmetric.WithResource(res), sdkmetric.WithReader(reader), sdkmetric.WithCardinalityLimit(maxSeries))
	e.in, err = newInstruments(e.metrics.Meter(scopeName))
	return err
}

func (e *Export) startTraces(res *resource.Resource) error {
	opts := []otlptracehttp.Option{otlptracehttp.WithEndpointURL(e.o.TracesURL), otlptracehttp.WithTimeout(exportTimeout),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{})}
	if google(e.o.TracesURL) && e.o.Client != nil {
		opts = append(opts, otlptracehttp.WithHTTPClient(e.o.Client))
	}
	exporter, err := otlptracehttp.New(context.Background(), opts...)
	if err != nil {
		return fmt.Errorf("make the exporter of traces: %w", err)
	}
	e.traces = sdktrace.NewTracerProvider(sdktrace.WithResource(res), sdktrace.WithSampler(&sampler{ratio: e.o.SampleRatio, rng: e.o.Rand}),
		sdktrace.WithBatcher(exporter, sdktrace.WithExportTimeout(exportTimeout),
			sdktrace.WithBatchTimeout(24*time.Hour))) // not by its own timer: Flush does it, within a request
	e.tracer = e.traces.Tracer(scopeName)
	return nil
}

// Flush begins an export unless one is under way or the last began less than after ago, and waits for it, but no longer
// than wait, or FirstWait for a first one that is to be waited for. After zero means the configured interval. Who does not begin one does not wait. A failure is logged, once a
// minute at most, and is nobody's error.
func (e *Export) Flush(ctx context.Context, after, wait time.Duration) {
	if e == nil || (e.metrics == nil && e.traces == nil) {
		return
	}
	if after == 0 {
		after = e.o.Interval
	}
	e.mu.Lock()
	now := e.o.Now()
	if e.running || (!e.last.IsZero() && now.Sub(e.last) < after) {
		e.mu.Unlock()
		return
	}
	if e.last.IsZero() && wait > 0 {
		wait = max(wait, e.o.FirstWait)
	}
	e.running, e.last = true, now
	e.mu.Unlock()
	done := make(chan struct{})
	// Not with the request: an export that its end cut off would never get as far as a connection.
	go func(ctx context.Context) {
		defer close(done)
		ctx, cancel := context.WithTimeout(ctx, exportTimeout)
		defer cancel()
		if err := e.force(ctx); err != nil {
			e.complain(err)
		}
		e.mu.Lock()
		e.running = false
		e.mu.Unlock()
	}(context.WithoutCancel(ctx))
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// EndSpacing is the least time between the end of a run and the export before it.
func (e *Export) EndSpacing() time.Duration { return min(minSpacing, e.o.Interval) }

func (e *Export) force(ctx context.Context) error {
	var metrics, traces error
	var both sync.WaitGroup
	if e.metrics != nil {
		both.Go(func() { metrics = e.metrics.ForceFlush(ctx) })
	}
	if e.traces != nil {
		both.Go(func() { traces = e.traces.ForceFlush(ctx) })
	}
	both.Wait()
	return errors.Join(metrics, traces)
}

// Shutdown sends what is left, and ends with ctx. Nothing is counted afterwards.
func (e *Export) Shutdown(ctx context.Context) error {
	if e == nil {
		return nil
	}
	var metrics, traces error
	var both sync.WaitGroup
	if e.metrics != nil {
		both.Go(func() { metrics = e.metrics.Shutdown(ctx) })
	}
	if e.traces != nil {
		both.Go(func() { traces = e.traces.Shutdown(ctx) })
	}
	both.Wait()
	return errors.Join(metrics, traces)
}

// complain logs that an export failed, at most once a minute.
func (e *Export) complain(err error) {
	e.mu.Lock()
	now := e.o.Now()
	quiet := !e.complained.IsZero() && now.Sub(e.complained) < complainEvery
	if !quiet {
		e.complained = now
	}
	e.mu.Unlock()
	if !quiet {
		e.o.Log.Warn("telemetry was not exported; nothing else is affected", Err(err))
	}
}

// located adds the region to what is exported: Google's endpoint wants every point to have a place.
type located struct {
	sdkmetric.Exporter
	ask func(context.Context) (string, error)

	mu     sync.Mutex
	region string
}

func (l *located) Export(ctx context.Context, rm *metricdata.ResourceMetrics) error {
	region, err := l.where(ctx)
	if err != nil {
		return fmt.Errorf("ask where this is: %w", err)
	}
	res, err := resource.Merge(rm.Resource, resource.NewSchemaless(attribute.String("cloud.region", region)))
	if err != nil {
		return err
	}
	there := *rm
	there.Resource = res
	return l.Exporter.Export(ctx, &there)
}

func (l *located) where(ctx context.Context) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.region != "" {
		return l.region, nil
	}
	region, err := l.ask(ctx)
	l.region = region
	return region, err
}

// google reports whether an endpoint is Google's own, which wants a token.
func google(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "https" {
		return false
	}
	host := strings.ToLower(u.Hostname())
	return host == "telemetry.googleapis.com" || (strings.HasPrefix(host, "telemetry.") && strings.HasSuffix(host, ".rep.googleapis.com"))
}
