package telemetry

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

const (
	// reportEvery is how often the gauges are read while a relay runs.
	reportEvery = 30 * time.Second
	// reportLease is how long a process may say that its gauges are the ones. It outlasts the pause between two runs of a
	// relay that is called every minute, so that the next run of the same process goes on, and is short enough for
	// another process to follow soon.
	reportLease = 45 * time.Second
	// exportEvery is how often a run exports while it lasts.
	exportEvery = 20 * time.Second
	// reportLimit bounds one report, lease included.
	reportLimit = 10 * time.Second

	// MaxOpen and MaxParked are how many rows a report counts: open ones, and parked ones of one reason.
	MaxOpen   = 10_000
	MaxParked = 1_000
)

// ReportStore reads the table for a report. See spannerstore.Store.
type ReportStore interface {
	// TakeReporter takes or renews the right to report. Where another has it, wait says for how long.
	TakeReporter(ctx context.Context, consumer, owner string, lease time.Duration) (held bool, wait time.Duration, err error)
	Report(ctx context.Context, req inbox.ReportRequest) (inbox.Report, error)
}

// Reporter keeps the gauges of one process. They are exported only while the process holds the reporter's lease: of all
// processes of a consumer one at a time, so that no two write at once. After a change the last value of the one before can
// still be seen for some minutes, as with every series that ends.
type Reporter struct {
	e       *Export
	store   ReportStore
	req     inbox.ReportRequest
	engines []string

	turn sync.Mutex // one report at a time
	next time.Time  // when another report is due

	mu    sync.Mutex
	held  inbox.Report
	until time.Time // of the lease, on the local clock; zero: not held
	seen  map[inbox.Reason]bool
}

// NewReporter returns the reporter of a relay function. engines are the configured ones.
func NewReporter(e *Export, store ReportStore, req inbox.ReportRequest, engines []string) (*Reporter, error) {
	r := &Reporter{e: e, store: store, req: req, engines: engines, seen: map[inbox.Reason]bool{}}
	for _, reason := range inbox.Reasons() {
		r.seen[reason] = true
	}
	if e.in == nil {
		return r, nil
	}
	if _, err := e.metrics.Meter(scopeName).RegisterCallback(r.observe, e.in.observed...); err != nil {
		return nil, fmt.Errorf("register the gauges: %w", err)
	}
	return r, nil
}

// Report brings the gauges up to date if that is due and nobody else does it. It says when to come back.
func (r *Reporter) Report(ctx context.Context) time.Duration {
	if r.e.in == nil || !r.turn.TryLock() {
		return exportEvery
	}
	defer r.turn.Unlock()
	if wait := r.next.Sub(r.e.o.Now()); wait > 0 {
		return min(wait, exportEvery)
	}
	ctx, cancel := context.WithTimeout(ctx, reportLimit)
	defer cancel()
	began := r.e.o.Now()
	r.next = began.Add(reportEvery)
	held, wait, err := r.store.TakeReporter(ctx, r.e.o.Consumer, r.e.o.InstanceID, reportLease)
	if err == nil && !held {
		r.hold(inbox.Report{}, time.Time{})
		r.next = began.Add(max(min(wait, reportEvery), time.Second))
		return min(r.next.Sub(began), exportEvery)
	}
	var report inbox.Report
	if err == nil {
		report, err = r.store.Report(ctx, r.req)
	}
	if err != nil {
		// What was read last is exported until its lease ends; then the gauges are missing, which is an alert of its own.
		if ctx.Err() == nil || r.e.o.Now().Sub(began) >= reportLimit {
			r.e.o.Log.ErrorContext(ctx, "the gauges were not read", Err(err))
		}
		return exportEvery
	}
	r.hold(report, began.Add(reportLease))
	return exportEvery
}

// Export sends what there is, while a run lasts.
func (r *Reporter) Export(ctx context.Context) { r.e.Flush(ctx, max(exportEvery, r.e.o.Interval), 0) }

func (r *Reporter) hold(report inbox.Report, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held, r.until = report, until
	for reason := range report.Parked {
		r.seen[reason] = true
	}
}

func (r *Reporter) observe(_ context.Context, o metric.Observer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.e.o.Now().Before(r.until) {
		return nil
	}
	consumer := r.e.o.Consumer
	set := func(m *Metric, v float64, values ...string) {
		o.ObserveFloat64(r.e.in.gauges[m], v, m.labels(append([]string{consumer}, values...)))
	}
	flag := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	is := r.held
	set(oldestOpenAge, is.OldestOpen.Seconds())
	set(oldestProcessingAge, is.OldestProcessing.Seconds())
	set(oldestExpiredLeaseAge, is.OldestExpiredLease.Seconds())
	set(openMessages, float64(is.Open), strconv.FormatBool(is.OpenCapped))
	set(unknownRoutes, float64(is.UnknownRoute))
	for reason := range r.seen {
		set(parkedMessages, float64(is.Parked[reason]), string(reason))
	}
	for _, engine := range r.engines {
		state := is.Engines[engine]
		open := !state.OpenUntil.IsZero()
		set(enginePaused, flag(!state.PausedAt.IsZero() || (open && state.OpenReason == inbox.OpenUnauthorised)), engine)
		set(engineBreaker, flag(open), engine)
	}
	set(lanes, float64(is.Lanes.Due), "due")
	set(lanes, float64(is.Lanes.Leased), "leased")
	set(lanes, float64(is.Lanes.Blocked), "blocked")
	set(lanes, float64(is.Lanes.Held), "held")
	return nil
}
