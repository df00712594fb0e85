package config

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTelemetryIsOffWhereNoEndpointIsSet(t *testing.T) {
	want := &TelemetryEnv{Interval: 10 * time.Second, SampleRatio: 0.01}
	got, err := LoadTelemetryEnv(lookup(nil))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTheEnvironmentSaysWhereTelemetryGoes(t *testing.T) {
	const all = "OTEL_EXPORTER_OTLP_ENDPOINT"
	for name, c := range map[string]struct {
		env  map[string]string
		want TelemetryEnv
	}{
		"one endpoint for all": {map[string]string{all: " https://telemetry.googleapis.com/ "},
			TelemetryEnv{MetricsURL: "https://telemetry.googleapis.com/v1/metrics", TracesURL: "https://telemetry.googleapis.com/v1/traces", SampleRatio: 0.01}},
		"an endpoint of its own": {map[string]string{all: "http://a:4318", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://b/traces"},
			TelemetryEnv{MetricsURL: "http://a:4318/v1/metrics", TracesURL: "http://b/traces", SampleRatio: 0.01}},
		"disabled":        {map[string]string{all: "http://a", "OTEL_SDK_DISABLED": "true"}, TelemetryEnv{SampleRatio: 0.01}},
		"one signal only": {map[string]string{all: "http://a", "OTEL_TRACES_EXPORTER": "none"}, TelemetryEnv{MetricsURL: "http://a/v1/metrics", SampleRatio: 0.01}},
		"sampling":        {map[string]string{"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.25"}, TelemetryEnv{SampleRatio: 0.25}},
		"no sampling":     {map[string]string{"OTEL_TRACES_SAMPLER": "always_off", "OTEL_TRACES_SAMPLER_ARG": "0.25"}, TelemetryEnv{}},
		"the rest": {map[string]string{"OTEL_METRIC_EXPORT_INTERVAL": "30000", "INBOX_METRIC_TENANTS": "a, b,,a", "INBOX_LOG_LEVEL": "WARN"},
			TelemetryEnv{Interval: 30 * time.Second, Tenants: []string{"a", "b"}, LogLevel: slog.LevelWarn, SampleRatio: 0.01}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.want.Interval == 0 {
				c.want.Interval = 10 * time.Second
			}
			got, err := LoadTelemetryEnv(lookup(c.env))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestEachFaultOfTelemetrysEnvironmentIsNamed(t *testing.T) {
	_, err := LoadTelemetryEnv(lookup(map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "user:secret@collector", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_METRICS_EXPORTER": "prometheus",
		"OTEL_METRIC_EXPORT_INTERVAL": "10s", "OTEL_TRACES_SAMPLER": "parentbased_always_on", "OTEL_TRACES_SAMPLER_ARG": "2",
		"INBOX_METRIC_TENANTS": strings.Repeat("x", 129) + strings.Repeat(",t", 1) + manyTenants(), "INBOX_LOG_LEVEL": "loud",
	}))
	if err == nil {
		t.Fatal("no fault is found")
	}
	for _, want := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT must be an http or https URL", `OTEL_EXPORTER_OTLP_PROTOCOL is "grpc"`,
		`OTEL_METRICS_EXPORTER is "prometheus"`, `OTEL_METRIC_EXPORT_INTERVAL is "10s"`, `OTEL_TRACES_SAMPLER is "parentbased_always_on"`,
		`OTEL_TRACES_SAMPLER_ARG is "2"`, "INBOX_METRIC_TENANTS holds a name of 129 bytes", "INBOX_METRIC_TENANTS names 52 tenants", `INBOX_LOG_LEVEL is "loud"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no fault says %q:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("a fault quotes what may be a secret: %v", err)
	}
}

func manyTenants() string {
	var b strings.Builder
	for i := range 50 {
		b.WriteString("," + strings.Repeat("t", i+2))
	}
	return b.String()
}
