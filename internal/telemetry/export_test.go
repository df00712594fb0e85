package telemetry

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/telemetry/otlptest"
)

const patience = 3 * time.Minute

// testClock moves only when it is told to.
type testClock struct {
	mu sync.Mutex
	at time.Time
}

func (c *testClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *testClock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func newTestExport(t *testing.T, c *otlptest.Collector, change func(*ExportOptions)) (*Export, *testClock, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	clock := &testClock{at: time.Unix(1_800_000_000, 0)}
	o := ExportOptions{MetricsURL: c.URL + "/v1/metrics", TracesURL: c.URL + "/v1/traces", SampleRatio: 1, Interval: 10 * time.Second,
		Consumer: "orders", Service: "receive", InstanceID: "instance-1", Log: slog.New(slog.NewTextHandler(&log, nil)), Now: clock.now,
		Rand: rand.New(rand.NewPCG(1, 2))}
	if change != nil {
		change(&o)
	}
	e, err := NewExport(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = e.Shutdown(ctx)
	})
	return e, clock, &log
}

// Ten thousand keys, ids and types of publishers' choice make no more series than the table allows.
func TestTenThousandKeysMakeABoundedNumberOfSeries(t *testing.T) {
	c := otlptest.New(t)
	e, _, _ := newTestExport(t, c, nil)
	receive, relay := NewReceive(e, []string{"r"}), NewRelay(e, map[string]string{"r": "e"})
	const messages = 10_000
	for i := range messages {
		m := &inbox.Message{ID: fmt.Sprintf("id-%d", i), Route: "r", Key: fmt.Sprintf("key-%d", i), Type: fmt.Sprintf("type-%d", i), TenantID: fmt.Sprintf("tenant-%d", i),
			Status: inbox.Received, PayloadBytes: 1, PayloadSHA256: fmt.Sprint(i)}
		receive.Stored(t.Context(), m, 1)
		done := *m
		done.Status = inbox.Processed
		relay.Settled(t.Context(), inbox.SettlePlan{Settled: []inbox.Result{{Message: &done, Engine: "e", Type: m.Type, TenantID: m.TenantID}}})
	}
	e.Flush(t.Context(), 0, patience)
	for _, name := range []string{"inbox_received_total", "inbox_processed_total"} {
		series := c.Series(name)
		if len(series) != maxTypes+1 {
			t.Errorf("%s has %d series, want %d", name, len(series), maxTypes+1)
		}
		if got := c.Sum(name, nil); got != messages {
			t.Errorf("%s adds up to %v, want %d", name, got, messages)
		}
	}
	if got := len(c.Series("")); got > 2*(maxTypes+1)+20 {
		t.Errorf("%d series in all", got)
	}
	for _, s := range c.Series("") {
		for label, value := range s.Labels {
			if strings.Contains(value, "key-") || strings.Contains(value, "id-") || strings.Contains(value, "tenant-") {
				t.Errorf("%s has the label %s=%q", s.Name, label, value)
			}
		}
	}
	if refused := c.Refused(); len(refused) > 0 {
		t.Errorf("the collector has refused: %v", refused)
	}
	if got := c.Sum("inbox_equal_payloads_total", nil); got != 0 {
		t.Errorf("%v equal payloads, and none was", got)
	}
}

func TestEqualPayloadsAreRememberedUpToABound(t *testing.T) {
	var p payloads
	if p.add("r", "first") || !p.add("r", "first") || p.add("other", "first") {
		t.Error("a payload is known once it was there, by route")
	}
	for i := range maxHashes {
		p.add("r", fmt.Sprint(i))
	}
	if len(p.ring) != maxHashes || len(p.seen) > maxHashes {
		t.Errorf("%d payloads are remembered in %d entries, want %d at most", len(p.ring), len(p.seen), maxHashes)
	}
	if p.add("r", "first") {
		t.Error("what was long ago is remembered")
	}
}

// Two processes under one name are what Cloud Monitoring refuses: the test's collector does too, so that a test with it
// means something.
func TestOneNameForTwoInstancesIsRefused(t *testing.T) {
	c := otlptest.New(t)
	first, _, _ := newTestExport(t, c, nil)
	NewReceive(first, nil).Refused(400)
	second, _, _ := newTestExport(t, c, nil)
	NewReceive(second, nil).Refused(400)
	second.Flush(t.Context(), 0, patience)
	first.Flush(t.Context(), 0, patience)
	if len(c.Refused()) == 0 {
		t.Error("the collector takes two instances for one")
	}
}

// A cold instance's first export makes a connection. Behind the answer it has no CPU for that.
func TestTheFirstExportIsWaitedForLonger(t *testing.T) {
	c := otlptest.New(t)
	arrived, release := make(chan struct{}), make(chan struct{})
	c.Answer(func(http.ResponseWriter, *http.Request) bool {
		close(arrived)
		<-release
		return false
	})
	e, clock, _ := newTestExport(t, c, func(o *ExportOptions) { o.TracesURL, o.FirstWait = "", patience })
	NewReceive(e, nil).Refused(400)
	flushed := make(chan struct{})
	go func() {
		defer close(flushed)
		e.Flush(t.Context(), 0, time.Nanosecond)
	}()
	<-arrived
	select {
	case <-flushed:
		t.Error("the first export is not waited for")
	default:
	}
	close(release)
	<-flushed
	if got := c.Sum("inbox_refused_requests_total", nil); got != 1 {
		t.Errorf("%v refused requests were exported when the wait ended, want 1", got)
	}
	// The next one is not.
	again, end := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(end) })
	c.Answer(func(http.ResponseWriter, *http.Request) bool {
		close(again)
		<-end
		return true
	})
	clock.move(time.Hour)
	e.Flush(t.Context(), 0, time.Nanosecond)
	<-again
}

func TestAFlushIsBegunOnceInAnIntervalAndWaitedForWithinItsBound(t *testing.T) {
	c := otlptest.New(t)
	arrived, release := make(chan struct{}, 100), make(chan struct{})
	t.Cleanup(func() { close(release) })
	c.Answer(func(_ http.ResponseWriter, r *http.Request) bool {
		arrived <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
		}
		return true
	})
	e, clock, _ := newTestExport(t, c, func(o *ExportOptions) { o.TracesURL = "" })
	NewReceive(e, nil).Refused(400)
	e.Flush(t.Context(), 0, time.Millisecond) // begins it, and does not wait
	select {
	case <-arrived:
	case <-time.After(patience):
		t.Fatal("nothing was sent: an export must not end with the wait for it")
	}
	clock.move(time.Hour)
	for range 100 {
		e.Flush(t.Context(), 0, patience) // one is under way: nobody begins another, and nobody waits
	}
	if got := c.Requests(); got != 1 {
		t.Errorf("%d exports were begun, want 1", got)
	}
}

func TestAnExportWithinTheIntervalIsNotBegun(t *testing.T) {
	c := otlptest.New(t)
	e, clock, _ := newTestExport(t, c, func(o *ExportOptions) { o.TracesURL = "" })
	receive := NewReceive(e, nil)
	receive.Refused(400)
	for _, step := range []struct {
		move time.Duration
		want int
	}{{0, 1}, {time.Second, 1}, {8 * time.Second, 1}, {time.Second, 2}, {10 * time.Second, 3}} {
		clock.move(step.move)
		e.Flush(t.Context(), 0, patience)
		if got := c.Requests(); got != step.want {
			t.Errorf("%d exports, want %d", got, step.want)
		}
	}
}

// C065: a failing export is one warning a minute.
func TestAFailingExportIsLoggedOnceAMinute(t *testing.T) {
	c := otlptest.New(t)
	c.Answer(func(w http.ResponseWriter, _ *http.Request) bool {
		http.Error(w, "no", http.StatusForbidden)
		return true
	})
	e, clock, log := newTestExport(t, c, func(o *ExportOptions) { o.TracesURL = "" })
	NewReceive(e, nil).Refused(400)
	for range 12 { // two minutes
		e.Flush(t.Context(), 0, patience)
		clock.move(10 * time.Second)
	}
	if got := strings.Count(log.String(), "telemetry was not exported"); got != 2 {
		t.Errorf("%d warnings in two minutes, want 2:\n%s", got, log)
	}
}

func TestTheSamplerFollowsNobodyFromOutside(t *testing.T) {
	remote := func(id byte, flags trace.TraceFlags) trace.SpanContext {
		return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{15: id}, SpanID: trace.SpanID{7: 1}, TraceFlags: flags, Remote: true})
	}
	for _, c := range []struct {
		name   string
		parent trace.SpanContext
		min    int
		max    int
	}{
		{"no parent", trace.SpanContext{}, 50, 200},
		{"a stranger who wants all", remote(1, trace.FlagsSampled), 50, 200},
		{"a stranger who wants none", remote(255, 0), 50, 200},
		{"our own sampled span", remote(1, trace.FlagsSampled).WithRemote(false), 1000, 1000},
		{"our own span that is not sampled", remote(1, 0).WithRemote(false), 0, 0},
	} {
		s := &sampler{ratio: 0.1, rng: rand.New(rand.NewPCG(1, 2))}
		kept := 0
		for range 1000 {
			ctx := trace.ContextWithSpanContext(t.Context(), c.parent)
			if s.ShouldSample(sdktrace.SamplingParameters{ParentContext: ctx}).Decision == sdktrace.RecordAndSample {
				kept++
			}
		}
		if kept < c.min || kept > c.max {
			t.Errorf("%s: %d of 1000 are kept, want from %d to %d", c.name, kept, c.min, c.max)
		}
	}
}

func TestOnlyGooglesOwnEndpointGetsAToken(t *testing.T) {
	for endpoint, want := range map[string]bool{
		"https://telemetry.googleapis.com/v1/metrics": true, "https://telemetry.googleapis.com:443/v1/metrics": true,
		"https://telemetry.europe-west3.rep.googleapis.com/v1/traces": true,
		"http://telemetry.googleapis.com/v1/metrics":                  false, "https://telemetry.googleapis.com.example/v1/metrics": false,
		"https://collector.example/v1/metrics": false, "http://localhost:4318/v1/metrics": false,
	} {
		if got := google(endpoint); got != want {
			t.Errorf("google(%q) = %v, want %v", endpoint, got, want)
		}
	}
}

func TestThePlaceIsAskedForOnceAndStandsInTheResource(t *testing.T) {
	c := otlptest.New(t)
	asked := 0
	e, clock, _ := newTestExport(t, c, func(o *ExportOptions) {
		o.TracesURL = ""
		o.OnCloudRun = true
		o.Region = func(context.Context) (string, error) { asked++; return "europe-west3", nil }
	})
	receive := NewReceive(e, nil)
	for range 3 {
		receive.Refused(400)
		e.Flush(t.Context(), 0, patience)
		clock.move(time.Minute)
	}
	got := c.Series("inbox_refused_requests_total")
	if asked != 1 || len(got) != 1 || got[0].Resource["cloud.region"] != "europe-west3" || got[0].Resource["cloud.platform"] != "gcp_cloud_run" || got[0].Value != 3 {
		t.Errorf("asked %d times, got %+v", asked, got)
	}
}

// What is off costs nothing and must not fail.
func TestNothingIsCountedWhereNothingIsExported(t *testing.T) {
	e, err := NewExport(ExportOptions{Consumer: "c", Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	receive, relay := NewReceive(e, []string{"r"}), NewRelay(e, map[string]string{"r": "e"})
	m := &inbox.Message{Status: inbox.Parked, Reason: inbox.DedupeConflict, PayloadBytes: 1}
	ctx, ended := receive.Begin(t.Context(), "")
	receive.Stored(ctx, m, 1)
	receive.Known(ctx, m, 1)
	receive.DeadLetter("stored")
	receive.Committed(ctx, 1)
	receive.Refused(400)
	ended(true)
	ctx, context, done := relay.Attempt(t.Context(), m, "e", "publisher's")
	relay.Called(ctx, "e", "v", 1)
	relay.Claimed(ctx, inbox.ClaimPlan{Messages: []*inbox.Message{m}}, 1)
	relay.Settled(ctx, inbox.SettlePlan{Settled: []inbox.Result{{Message: m}}})
	relay.SettledIn(ctx, 1)
	relay.Ran(ctx, true, 1)
	done("v")
	if context != "publisher's" {
		t.Errorf("the engine would get %q, want the publisher's context", context)
	}
	reporter, err := NewReporter(e, nil, inbox.ReportRequest{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	reporter.Report(t.Context())
	reporter.Export(t.Context())
	e.Flush(t.Context(), 0, patience)
	if err := e.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if receive.payloads.ring != nil {
		t.Error("payloads are remembered for nobody")
	}
}

func TestWhatIsInfoAndComesTooOftenIsLeftOutAndCounted(t *testing.T) {
	var b bytes.Buffer
	log := NewLogger(&b, Options{Sample: true})
	at := time.Unix(1_800_000_000, 0)
	write := func(level slog.Level, message string, n int) {
		for range n {
			r := slog.NewRecord(at, level, message, 0)
			_ = log.Handler().Handle(t.Context(), r)
		}
	}
	counts := func() map[string]int {
		got := map[string]int{}
		for _, e := range entries(t, &b) {
			got[e["message"].(string)]++
		}
		return got
	}
	write(slog.LevelInfo, "busy", crowdLimit+30)
	write(slog.LevelInfo, "quiet", 3)
	write(LevelNotice, "notice", crowdLimit+30)
	write(slog.LevelWarn, "warning", crowdLimit+30)
	write(slog.LevelError, "error", crowdLimit+30)
	got := counts()
	if got["busy"] != crowdLimit || got["quiet"] != 3 || got["notice"] != crowdLimit+30 || got["warning"] != crowdLimit+30 || got["error"] != crowdLimit+30 {
		t.Errorf("written are %v", got)
	}
	b.Reset()
	at = at.Add(crowdWindow)
	write(slog.LevelInfo, "busy", 2)
	after := entries(t, &b)
	if len(after) != 2 || after[0]["leftOut"] != 30.0 || after[1]["leftOut"] != nil {
		t.Errorf("in the next window: %v, want two, the first of which says what was left out", after)
	}
}
