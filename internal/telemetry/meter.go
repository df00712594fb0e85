package telemetry

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// instruments are those of the table. A nil *instruments counts nothing.
type instruments struct {
	counters   map[*Metric]metric.Int64Counter
	histograms map[*Metric]metric.Float64Histogram
	gauges     map[*Metric]metric.Float64ObservableGauge
	observed   []metric.Observable
}

func newInstruments(meter metric.Meter) (*instruments, error) {
	in := &instruments{counters: map[*Metric]metric.Int64Counter{}, histograms: map[*Metric]metric.Float64Histogram{},
		gauges: map[*Metric]metric.Float64ObservableGauge{}}
	for _, m := range all {
		var err error
		switch m.Kind {
		case Counter:
			in.counters[m], err = meter.Int64Counter(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Meaning))
		case Histogram:
			in.histograms[m], err = meter.Float64Histogram(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Meaning),
				metric.WithExplicitBucketBoundaries(m.buckets...))
		case Gauge:
			var gauge metric.Float64ObservableGauge
			gauge, err = meter.Float64ObservableGauge(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Meaning))
			in.gauges[m] = gauge
			in.observed = append(in.observed, gauge)
		}
		if err != nil {
			return nil, fmt.Errorf("make the metric %s: %w", m.Name, err)
		}
	}
	return in, nil
}

// labels pairs a metric's labels with their values. extra is for tenant.
func (m *Metric) labels(values []string, extra ...attribute.KeyValue) metric.MeasurementOption {
	set := make([]attribute.KeyValue, 0, len(values)+len(extra))
	for i, name := range m.Labels[:min(len(m.Labels), len(values))] {
		value := values[i]
		if value == "" {
			value = none
		}
		set = append(set, attribute.String(name, value))
	}
	return metric.WithAttributeSet(attribute.NewSet(append(set, extra...)...))
}

func (in *instruments) add(m *Metric, n int64, values ...string) { in.addWith(m, n, nil, values...) }

func (in *instruments) addWith(m *Metric, n int64, extra []attribute.KeyValue, values ...string) {
	if in != nil {
		in.counters[m].Add(context.Background(), n, m.labels(values, extra...))
	}
}

// record is given the context of the measurement: a sampled span in it becomes an exemplar.
func (in *instruments) record(ctx context.Context, m *Metric, v float64, values ...string) {
	if in != nil {
		in.histograms[m].Record(context.WithoutCancel(ctx), max(v, 0), m.labels(values))
	}
}
