// Package otlptest is an OTLP collector for tests: it takes metrics and traces over HTTP, and says what it got.
//
// It is as strict as Cloud Monitoring about time series: a point that is not newer than the one before it, or that begins
// earlier, is refused, and so is a request of more than 200 points.
// https://docs.cloud.google.com/stackdriver/quotas
//
// A Collector may be used by many goroutines.
package otlptest

import (
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

const maxPoints = 200

// Series is the last point of one time series.
type Series struct {
	Name, Kind, Unit string
	Labels           map[string]string
	Value            float64 // of a counter or gauge; the sum of a histogram
	Count            uint64  // of a histogram
	Start, Time      uint64  // nanoseconds
	Cumulative       bool    // counters and histograms
	Resource         map[string]string
}

// Span is one span as it came.
type Span struct {
	*tracepb.Span
	Resource map[string]string
}

// Collector is a collector.
type Collector struct {
	URL string

	mu       sync.Mutex
	series   map[string]Series
	spans    []Span
	refused  []string
	requests int
	raw      []byte // everything, as it came
	answer   func(http.ResponseWriter, *http.Request) bool
	changed  chan struct{}
}

// New starts a collector. It ends with the test.
func New(t testing.TB) *Collector {
	t.Helper()
	c := &Collector{series: map[string]Series{}, changed: make(chan struct{})}
	server := httptest.NewServer(c)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	c.URL = server.URL
	return c
}

// Answer has requests answered by f from now on, as long as it reports true. Nil: as a collector does.
func (c *Collector) Answer(f func(http.ResponseWriter, *http.Request) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = f
}

// ServeHTTP takes /v1/metrics and /v1/traces.
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.requests++
	answer := c.answer
	c.signal()
	c.mu.Unlock()
	body, err := read(r)
	if answer != nil && answer(w, r) {
		return
	}
	if err == nil {
		c.mu.Lock()
		c.raw = append(c.raw, body...)
		c.mu.Unlock()
		switch r.URL.Path {
		case "/v1/metrics":
			err = c.takeMetrics(body)
		case "/v1/traces":
			err = c.takeSpans(body)
		default:
			err = fmt.Errorf("path %s", r.URL.Path)
		}
	}
	if err != nil {
		c.mu.Lock()
		c.refused = append(c.refused, err.Error())
		c.signal()
		c.mu.Unlock()
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func read(r *http.Request) ([]byte, error) {
	var from io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, err
		}
		from = unzipped
	}
	return io.ReadAll(from)
}

func (c *Collector) takeMetrics(body []byte) error {
	var request collectormetrics.ExportMetricsServiceRequest
	if err := proto.Unmarshal(body, &request); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.signal()
	points := 0
	var faults []string
	for _, resource := range request.ResourceMetrics {
		res := attributes(resource.GetResource().GetAttributes())
		for _, scope := range resource.ScopeMetrics {
			for _, m := range scope.Metrics {
				for _, s := range seriesOf(m, res) {
					points++
					if fault := c.put(s); fault != "" {
						faults = append(faults, fault)
					}
				}
			}
		}
	}
	if points > maxPoints {
		faults = append(faults, fmt.Sprintf("%d points in one request", points))
	}
	if faults != nil {
		return fmt.Errorf("%s", strings.Join(faults, "; "))
	}
	return nil
}

func (c *Collector) put(s Series) string {
	key := s.Name + "{" + Labels(s.Labels) + "} of " + s.Resource["service.instance.id"]
	if s.Resource["service.instance.id"] == "" {
		return key + ": an instance without a name"
	}
	if before, ok := c.series[key]; ok {
		if s.Time <= before.Time {
			return key + ": not newer than the point before"
		}
		if s.Start < before.Start {
			return key + ": begins earlier than the point before"
		}
		if s.Kind == "counter" && s.Start == before.Start && s.Value < before.Value {
			return key + ": smaller than the point before"
		}
	}
	c.series[key] = s
	return ""
}

func seriesOf(m *metricspb.Metric, resource map[string]string) []Series {
	var all []Series
	one := func(kind string, labels []*commonpb.KeyValue, start, at uint64) Series {
		return Series{Name: m.Name, Kind: kind, Unit: m.Unit, Labels: attributes(labels), Start: start, Time: at, Resource: resource}
	}
	number := func(p *metricspb.NumberDataPoint) float64 {
		if v, ok := p.Value.(*metricspb.NumberDataPoint_AsInt); ok {
			return float64(v.AsInt)
		}
		return p.GetAsDouble()
	}
	for _, p := range m.GetSum().GetDataPoints() {
		s := one("counter", p.Attributes, p.StartTimeUnixNano, p.TimeUnixNano)
		s.Value = number(p)
		s.Cumulative = m.GetSum().AggregationTemporality == metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE
		all = append(all, s)
	}
	for _, p := range m.GetGauge().GetDataPoints() {
		s := one("gauge", p.Attributes, p.StartTimeUnixNano, p.TimeUnixNano)
		s.Value = number(p)
		all = append(all, s)
	}
	for _, p := range m.GetHistogram().GetDataPoints() {
		s := one("histogram", p.Attributes, p.StartTimeUnixNano, p.TimeUnixNano)
		s.Value, s.Count = p.GetSum(), p.Count
		s.Cumulative = m.GetHistogram().AggregationTemporality == metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE
		all = append(all, s)
	}
	return all
}

func (c *Collector) takeSpans(body []byte) error {
	var request collectortrace.ExportTraceServiceRequest
	if err := proto.Unmarshal(body, &request); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.signal()
	for _, resource := range request.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				c.spans = append(c.spans, Span{Span: s, Resource: attributes(resource.GetResource().GetAttributes())})
			}
		}
	}
	return nil
}

func attributes(list []*commonpb.KeyValue) map[string]string {
	all := map[string]string{}
	for _, a := range list {
		switch v := a.Value.GetValue().(type) {
		case *commonpb.AnyValue_StringValue:
			all[a.Key] = v.StringValue
		default:
			all[a.Key] = fmt.Sprint(a.Value)
		}
	}
	return all
}

// signal must be called with the lock held.
func (c *Collector) signal() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// Changed is closed at the next request.
func (c *Collector) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// Requests is how many requests have come, answered or not.
func (c *Collector) Requests() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests
}

// Refused are the reasons for which requests were refused.
func (c *Collector) Refused() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.refused)
}

// Raw is everything that came, to look for what must not have come.
func (c *Collector) Raw() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.raw)
}

// Spans are the spans that came.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// Series are the time series of a metric, "" for all, by name and labels.
func (c *Collector) Series(name string) []Series {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []Series
	for _, s := range c.series {
		if name == "" || s.Name == name {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b Series) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(Labels(a.Labels), Labels(b.Labels)))
	})
	return found
}

// Sum adds up the values of the series of a metric that have these labels (a histogram's counts), over all instances.
func (c *Collector) Sum(name string, labels map[string]string) float64 {
	total := 0.0
	for _, s := range c.Series(name) {
		matches := true
		for k, v := range labels {
			matches = matches && s.Labels[k] == v
		}
		if matches && s.Kind == "histogram" {
			total += float64(s.Count)
		} else if matches {
			total += s.Value
		}
	}
	return total
}

// Labels writes labels in order.
func Labels(labels map[string]string) string {
	var b strings.Builder
	for i, k := range slices.Sorted(maps.Keys(labels)) {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%s=%q", k, labels[k])
	}
	return b.String()
}
