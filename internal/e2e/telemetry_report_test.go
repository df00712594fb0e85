package e2e_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/rpctap"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/spannerstore"
	"github.com/pubsub-inbox/pubsub-inbox/internal/telemetry"
	"github.com/pubsub-inbox/pubsub-inbox/internal/telemetry/otlptest"
	"github.com/pubsub-inbox/pubsub-inbox/internal/wiring"
)

func reportRequest() inbox.ReportRequest {
	return inbox.ReportRequest{Consumer: relayConsumer, Routes: []string{relayRoute}, Lease: 10 * time.Minute,
		MaxOpen: 1000, MaxParked: 100}
}

// standing stores rows of every kind that a report tells of, beside finished ones.
func (w *relayWorld) standing(finished int) {
	w.t.Helper()
	var all []message
	for n := range finished {
		all = append(all, message{key: fmt.Sprintf("DONE-%d", n%50), n: n, status: inbox.Processed})
	}
	w.load(all, 50)
	w.sql("UPDATE Lanes SET WokenAt = NULL WHERE TRUE", nil)
	w.load([]message{{key: "DUE-1", n: 1}, {key: "DUE-2", n: 1}, {key: "LEASED", n: 1}, {key: "EXPIRED", n: 1}, {key: "STRANGE", n: 1},
		{key: "WAITS", n: 1, status: inbox.Retrying, due: time.Now().Add(time.Hour)}}, 1)
	for _, m := range []message{{key: "HELD", n: 1}, {key: "BLOCKED", n: 1, status: inbox.Parked}, {key: "PARKED", n: 1, status: inbox.Parked}} {
		w.load([]message{m}, 1)
	}
	for _, statement := range []string{
		"UPDATE Messages SET Reason = 'AMBIGUOUS' WHERE Status = 'PARKED'",
		"UPDATE Messages SET Reason = 'REJECTED', Blocks = TRUE WHERE CorrelationKey = 'BLOCKED'",
		"UPDATE Messages SET Route = 'gone' WHERE CorrelationKey = 'STRANGE'",
		"UPDATE Lanes SET WhyNotDue = 'BLOCKED', WokenAt = NULL WHERE CorrelationKey = 'BLOCKED'",
		"UPDATE Lanes SET HeldBy = 'somebody', WokenAt = NULL WHERE CorrelationKey = 'HELD'",
		"UPDATE Messages SET Status = 'PROCESSING', Attempts = 1, ProcessingStartedAt = TIMESTAMP_SUB(CURRENT_TIMESTAMP(), INTERVAL 10 SECOND) WHERE CorrelationKey = 'LEASED'",
		"UPDATE Messages SET Status = 'PROCESSING', Attempts = 1, ProcessingStartedAt = TIMESTAMP_SUB(CURRENT_TIMESTAMP(), INTERVAL 300 MINUTE) WHERE CorrelationKey = 'EXPIRED'",
		"UPDATE Lanes SET WokenAt = NULL, LeaseOwner = 'o', LeaseUntil = TIMESTAMP_ADD(CURRENT_TIMESTAMP(), INTERVAL 9 MINUTE), DueAt = TIMESTAMP_ADD(CURRENT_TIMESTAMP(), INTERVAL 9 MINUTE) WHERE CorrelationKey = 'LEASED'",
		"UPDATE Lanes SET WokenAt = NULL, LeaseOwner = 'o', LeaseUntil = TIMESTAMP_SUB(CURRENT_TIMESTAMP(), INTERVAL 200 MINUTE), DueAt = TIMESTAMP_SUB(CURRENT_TIMESTAMP(), INTERVAL 200 MINUTE) WHERE CorrelationKey = 'EXPIRED'",
	} {
		w.sql(statement, nil)
	}
	_, err := w.client.Apply(w.t.Context(), []*spanner.Mutation{
		spanner.InsertMap("Engines", map[string]any{"Consumer": relayConsumer, "Engine": relayEngine, "PausedAt": time.Now()}),
		// Another consumer's rows are nobody's business.
		spanner.InsertMap("Lanes", map[string]any{"LaneId": "other", "Consumer": "other", "Shard": 3, "WokenAt": spanner.CommitTimestamp}),
	}, spanner.ApplyAtLeastOnce())
	if err != nil {
		w.t.Fatal(err)
	}
}

// Gauges are served by indexes: a report reads what it tells of, and not one finished row.
func TestAReportReadsOnlyWhatItTells(t *testing.T) {
	t.Parallel()
	rows := map[int]int{}
	for _, finished := range []int{0, 500} {
		w := newRelayWorld(t)
		w.standing(finished)
		store, tap := w.store(time.Now)
		got, err := store.Report(t.Context(), reportRequest())
		if err != nil {
			t.Fatal(err)
		}
		rows[finished] = tap.Rows()
		t.Logf("beside %d finished rows: %d rows in %v", finished, tap.Rows(), tap.Counts())
		want := inbox.Report{Open: 7, Parked: map[inbox.Reason]int{"AMBIGUOUS": 1, "REJECTED": 1}, UnknownRoute: 1,
			Lanes: inbox.LaneCounts{Due: 4, Leased: 1, Blocked: 1, Held: 1}}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(inbox.Report{}, "At", "OldestOpen", "OldestProcessing", "OldestExpiredLease", "Engines")); diff != "" {
			t.Errorf("report beside %d finished rows (-want +got):\n%s", finished, diff)
		}
		// C034: the age of a lease that nobody takes over is its own, not the message's.
		for name, age := range map[string]struct{ got, least, most time.Duration }{
			"oldest processing":    {got.OldestProcessing, 300 * time.Minute, 360 * time.Minute},
			"oldest expired lease": {got.OldestExpiredLease, 200 * time.Minute, 260 * time.Minute},
			"oldest open":          {got.OldestOpen, 1, 60 * time.Minute},
		} {
			if age.got < age.least || age.got > age.most {
				t.Errorf("%s: %v, want from %v to %v", name, age.got, age.least, age.most)
			}
		}
		if got.Engines[relayEngine].PausedAt.IsZero() {
			t.Error("the engine's pause is not reported")
		}
	}
	// 1 engine, 7 open rows, 2 of them once more for their start, 2 parked ones; of the lanes 3 woken, 2 with a lease (due),
	// 2 that stand still.
	if rows[0] != 19 || rows[500] != rows[0] {
		t.Errorf("a report reads %d rows beside 0 finished ones and %d beside 500, want 19 both times", rows[0], rows[500])
	}
}

// Beyond its limits a report says so, reads no more than they allow, and still finds the oldest.
func TestAReportIsBounded(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	w.load([]message{{key: "OLDEST", n: 1}}, 1)
	messages, _ := backlog("WO", 200, 1)
	w.load(messages, 50)
	var parked []message
	for n := range 60 {
		parked = append(parked, message{key: fmt.Sprint("P", n), n: n, status: inbox.Parked})
	}
	w.load(parked, 50)
	w.sql("UPDATE Messages SET Reason = IF(MOD(Sequence, 2) = 0, 'AMBIGUOUS', 'REJECTED') WHERE Status = 'PARKED'", nil)
	w.sql("UPDATE Messages SET Reason = 'REJECTED' WHERE CorrelationKey IN ('P1', 'P2', 'P3')", nil)
	store, tap := w.store(time.Now)
	req := reportRequest()
	req.MaxOpen, req.MaxParked = 64, 20
	got, err := store.Report(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if got.Open != 64 || !got.OpenCapped || got.Parked["AMBIGUOUS"] != 20 || got.Parked["REJECTED"] != 3 || got.Lanes.Due != 64 {
		t.Errorf("got %+v", got)
	}
	// Twice the limit of open rows, lanes and parked ones, and the two groups of those.
	if most := 2*req.MaxOpen + 1 + 2*req.MaxOpen + 3*req.MaxParked + 2; tap.Rows() > most {
		t.Errorf("%d rows are read, want %d at most", tap.Rows(), most)
	}
	oldest := w.texts("SELECT CAST(MIN(ReceivedAt) AS STRING) FROM Messages WHERE CorrelationKey = 'OLDEST'")
	if at := got.At.Add(-got.OldestOpen); len(oldest) != 1 || at.UTC().Format("2006-01-02 15:04:05.000") != w.texts("SELECT FORMAT_TIMESTAMP('%E4Y-%m-%d %H:%M:%E3S', MIN(ReceivedAt), 'UTC') FROM Messages WHERE CorrelationKey = 'OLDEST'")[0] {
		t.Errorf("the oldest open row was received at %v, want %v", at, oldest)
	}
}

// clock is a local clock that a test moves.
type movedClock struct {
	mu sync.Mutex
	at time.Time
}

func (c *movedClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *movedClock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// reporterOf is one process that reports.
func (w *relayWorld) reporterOf(name string, c *otlptest.Collector, clock *movedClock) (*telemetry.Export, *telemetry.Reporter, *rpctap.Tap) {
	w.t.Helper()
	export, err := telemetry.NewExport(telemetry.ExportOptions{MetricsURL: c.URL + "/v1/metrics", Interval: time.Nanosecond, Consumer: relayConsumer,
		Service: "relay", InstanceID: name, Log: slog.New(slog.DiscardHandler), Now: clock.now, Rand: wiring.NewRand()})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = export.Shutdown(context.Background()) })
	store, tap := w.store(time.Now)
	reporter, err := telemetry.NewReporter(export, store, reportRequest(), []string{relayEngine})
	if err != nil {
		w.t.Fatal(err)
	}
	return export, reporter, tap
}

var _ telemetry.ReportStore = (*spannerstore.Store)(nil)

// Of several processes one reports; when it is gone, another does, and the old one's values do not stay beside the new.
func TestGaugesHaveOneWriterAndChangeHands(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	w.load([]message{{key: "A", n: 1}}, 1)
	c := otlptest.New(t)
	clock := &movedClock{at: time.Now()}
	first, firstReports, _ := w.reporterOf("first", c, clock)
	second, secondReports, secondTap := w.reporterOf("second", c, clock)
	const gauge = "inbox_open_messages"
	by := func() map[string]float64 {
		got := map[string]float64{}
		for _, s := range c.Series(gauge) {
			got[s.Resource["service.instance.id"]] = s.Value
		}
		return got
	}
	flush := func() {
		clock.move(time.Millisecond)
		first.Flush(t.Context(), 0, patience)
		second.Flush(t.Context(), 0, patience)
	}
	firstReports.Report(t.Context())
	secondReports.Report(t.Context())
	flush()
	if diff := cmp.Diff(map[string]float64{"first": 1}, by()); diff != "" {
		t.Errorf("writers of the gauges (-want +got):\n%s", diff)
	}
	if got := secondTap.Counts()["Commit"]; got != 0 {
		t.Errorf("who does not get the lease commits %d times, want never", got)
	}
	if got := w.texts("SELECT ReporterOwner FROM Relays"); !slices.Equal(got, []string{"first"}) {
		t.Errorf("the lease is held by %v, want first", got)
	}
	// The first ends without a word; its lease runs out.
	w.sql("UPDATE Relays SET ReporterUntil = TIMESTAMP_SUB(CURRENT_TIMESTAMP(), INTERVAL 1 SECOND) WHERE TRUE", nil)
	w.load([]message{{key: "B", n: 1}}, 1)
	clock.move(time.Minute)
	secondReports.Report(t.Context())
	before := c.Series(gauge)
	flush()
	if diff := cmp.Diff(map[string]float64{"first": 1, "second": 2}, by()); diff != "" {
		t.Errorf("writers of the gauges (-want +got):\n%s", diff)
	}
	for _, s := range c.Series(gauge) {
		if s.Resource["service.instance.id"] == "first" && s.Time != before[0].Time {
			t.Error("a process whose lease has run out goes on writing")
		}
	}
	// A reason that is gone is written as zero.
	zeros := map[string]float64{}
	for _, s := range c.Series("inbox_parked_messages") {
		if s.Resource["service.instance.id"] == "second" {
			zeros[s.Labels["reason"]] = s.Value
		}
	}
	if got := slices.Sorted(maps.Keys(zeros)); len(got) != len(inbox.Reasons()) {
		t.Errorf("parked messages are written for %v, want every reason", got)
	}
}

// C034: before its lease ends a claimed message is nobody's fault; afterwards its age shows, until somebody takes it over.
func TestC034AnExpiredLeaseShows(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	w.load([]message{{key: "WO-7", n: 1}, {key: "WO-7", n: 2}, {key: "WO-7", n: 3}}, 1)
	store, _ := w.store(time.Now)
	claim := inbox.ClaimRequest{Consumer: relayConsumer, Owner: "dies", Batch: 1, PerLane: 1, Lease: w.lease, Retention: time.Hour,
		Routes: map[string]inbox.RoutePolicy{relayRoute: {Engine: relayEngine}}, Engines: map[string]inbox.EnginePolicy{relayEngine: {Timeout: time.Second, Capacity: 1}}}
	found, err := store.Scan(t.Context(), inbox.ScanRequest{Consumer: relayConsumer, Limit: 10, Routes: claim.Routes, Engines: claim.Engines, Lease: w.lease})
	if err != nil {
		t.Fatal(err)
	}
	claim.LaneIDs = found.Lanes
	if _, err := store.Claim(t.Context(), claim, found.Clock, wiring.NewRand()); err != nil {
		t.Fatal(err)
	}
	report := func() inbox.Report {
		t.Helper()
		r, err := store.Report(t.Context(), reportRequest())
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := report(); r.OldestExpiredLease != 0 || r.Lanes.Leased != 1 || r.Lanes.Due != 0 {
		t.Errorf("before the lease's end: %+v, want one leased lane and no expired lease", r)
	}
	w.lapse()
	if r := report(); r.OldestExpiredLease < time.Minute || r.Lanes.Leased != 0 || r.Lanes.Due != 1 {
		t.Errorf("after it: %+v, want a lease that ended a minute ago, and a due lane", r)
	}
	w.once(w.relay(store, time.Now, w.engine(nil)))
	if r := report(); r.OldestExpiredLease != 0 || r.Open != 0 || r.OldestOpen != 0 || r.OldestProcessing != 0 {
		t.Errorf("after the next run: %+v, want nothing open", r)
	}
	if got := w.texts("SELECT CAST(LostWorkers AS STRING) FROM Messages WHERE LostWorkers > 0"); len(got) != 0 {
		t.Errorf("lost workers that are still counted: %v; a definite answer ends that", got)
	}
	if got := w.texts("SELECT Verdict FROM Attempts"); !slices.Contains(got, inbox.VerdictLost) {
		t.Errorf("the attempts are %v, want the lost one", got)
	}
}

func TestHeldLanesAreCountedHoweverManyAreBlocked(t *testing.T) {
	w := newRelayWorld(t)
	for n, stands := range []string{"NULL, 'BLOCKED'", "NULL, 'BLOCKED'", "NULL, 'BLOCKED'", "'alice', NULL"} {
		w.sql(fmt.Sprintf("INSERT INTO Lanes (LaneId, Consumer, Shard, HeldBy, WhyNotDue) VALUES ('%d', @consumer, 0, %s)", n, stands),
			map[string]any{"consumer": reportRequest().Consumer})
	}
	store, _ := w.store(time.Now)
	req := reportRequest()
	req.MaxOpen = 2
	got, err := store.Report(t.Context(), req)
	if err != nil || got.Lanes.Blocked != 2 || got.Lanes.Held != 1 {
		t.Errorf("%+v, %v", got.Lanes, err)
	}
}
