package config

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The environment variables of telemetry. Those that begin with OTEL are OpenTelemetry's own; its library reads further
// ones by itself.
const (
	EnvOTLPEndpoint        = "OTEL_EXPORTER_OTLP_ENDPOINT"
	EnvOTLPMetricsEndpoint = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
	EnvOTLPTracesEndpoint  = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	EnvOTLPProtocol        = "OTEL_EXPORTER_OTLP_PROTOCOL"
	EnvOTelDisabled        = "OTEL_SDK_DISABLED"
	EnvMetricsExporter     = "OTEL_METRICS_EXPORTER"
	EnvTracesExporter      = "OTEL_TRACES_EXPORTER"
	EnvExportInterval      = "OTEL_METRIC_EXPORT_INTERVAL"
	EnvTracesSampler       = "OTEL_TRACES_SAMPLER"
	EnvTracesSamplerArg    = "OTEL_TRACES_SAMPLER_ARG"
	EnvMetricTenants       = "INBOX_METRIC_TENANTS"
	EnvLogLevel            = "INBOX_LOG_LEVEL"
)

const (
	defaultExportInterval = 10 * time.Second
	defaultSampleRatio    = 0.01
	maxTenants            = 50
	maxTenant             = 128 // bytes
)

// TelemetryEnv is what the environment says of logs, metrics and traces.
type TelemetryEnv struct {
	MetricsURL, TracesURL string        // OTLP over HTTP; empty: not exported
	Interval              time.Duration // between exports
	SampleRatio           float64       // of what is traced, 0 to 1
	Tenants               []string      // values of the label tenant; none: no such label
	LogLevel              slog.Level
}

// LoadTelemetryEnv reads and validates it, and joins every fault. What could be read is returned with the faults.
func LoadTelemetryEnv(lookup Lookup) (*TelemetryEnv, error) {
	get := func(name string) string {
		value, _ := lookup(name)
		return strings.TrimSpace(value)
	}
	e := &TelemetryEnv{Interval: defaultExportInterval, SampleRatio: defaultSampleRatio}
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }

	endpoint := func(own, exporter, path string) string {
		switch kind := get(exporter); kind {
		case "", "otlp":
		case "none":
			return ""
		default:
			fault("%s is %q; it must be otlp or none", exporter, kind)
		}
		name, value := own, get(own) // as it stands; the one for all gets the path of the signal
		if value == "" {
			if name, value = EnvOTLPEndpoint, get(EnvOTLPEndpoint); value != "" {
				value = strings.TrimSuffix(value, "/") + path
			}
		}
		if value == "" {
			return ""
		}
		if u, err := url.Parse(value); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			fault("%s must be an http or https URL", name) // not quoted: it may hold a secret
			return ""
		}
		return value
	}
	if disabled, _ := strconv.ParseBool(get(EnvOTelDisabled)); !disabled {
		e.MetricsURL = endpoint(EnvOTLPMetricsEndpoint, EnvMetricsExporter, "/v1/metrics")
		e.TracesURL = endpoint(EnvOTLPTracesEndpoint, EnvTracesExporter, "/v1/traces")
	}
	if protocol := get(EnvOTLPProtocol); protocol != "" && protocol != "http/protobuf" {
		fault("%s is %q; http/protobuf is the one that is spoken here", EnvOTLPProtocol, protocol)
	}
	if text := get(EnvExportInterval); text != "" {
		ms, err := strconv.ParseInt(text, 10, 32)
		if err != nil || ms <= 0 {
			fault("%s is %q; it must be a number of milliseconds above 0", EnvExportInterval, text)
		} else {
			e.Interval = time.Duration(ms) * time.Millisecond
		}
	}
	if text := get(EnvTracesSamplerArg); text != "" {
		ratio, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(ratio) || ratio < 0 || ratio > 1 {
			fault("%s is %q; it must be a ratio from 0 to 1", EnvTracesSamplerArg, text)
		} else {
			e.SampleRatio = ratio
		}
	}
	switch kind := get(EnvTracesSampler); kind {
	case "", "traceidratio", "parentbased_traceidratio":
	case "always_off", "parentbased_always_off":
		e.SampleRatio = 0
	case "always_on":
		e.SampleRatio = 1
	default:
		fault("%s is %q; it must be traceidratio, always_on or always_off: a publisher's own decision is not followed", EnvTracesSampler, kind)
	}
	for _, tenant := range strings.Split(get(EnvMetricTenants), ",") {
		if tenant = strings.TrimSpace(tenant); tenant != "" && !slices.Contains(e.Tenants, tenant) {
			e.Tenants = append(e.Tenants, tenant)
		}
		if len(tenant) > maxTenant {
			fault("%s holds a name of %d bytes; %d are the limit", EnvMetricTenants, len(tenant), maxTenant)
		}
	}
	if len(e.Tenants) > maxTenants {
		fault("%s names %d tenants; %d are the limit: each is a time series of its own", EnvMetricTenants, len(e.Tenants), maxTenants)
	}
	if text := get(EnvLogLevel); text != "" {
		switch level := strings.ToLower(text); level {
		case "debug", "info", "warn", "error":
			_ = e.LogLevel.UnmarshalText([]byte(level)) // one of its own names
		default:
			fault("%s is %q; it must be debug, info, warn or error", EnvLogLevel, text)
		}
	}
	return e, errors.Join(faults...)
}
