package spannerstore_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/spanner/apiv1/spannerpb"

	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/rpctap"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/spannerstore"
)

// asked is what a request says of itself.
type asked struct {
	method, table, tag string
	priority           spannerpb.RequestOptions_Priority
	columns            []string
}

// listen notes what is asked from now on; the function returned says what it was, and begins anew.
func listen(tap *rpctap.Tap) func() []asked {
	var mu sync.Mutex
	var all []asked
	for _, method := range []string{"StreamingRead", "ExecuteStreamingSql", "ExecuteSql", "Commit"} {
		tap.Before(method, func(_ context.Context, _ int, req any) error {
			r := req.(interface {
				GetRequestOptions() *spannerpb.RequestOptions
			}).GetRequestOptions()
			a := asked{method: method, tag: r.GetRequestTag() + r.GetTransactionTag(), priority: r.GetPriority()}
			if read, ok := req.(*spannerpb.ReadRequest); ok {
				a.table, a.columns = read.GetTable(), read.GetColumns()
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, a)
			return nil
		})
	}
	return func() []asked {
		mu.Lock()
		defer mu.Unlock()
		was := all
		all = nil
		return was
	}
}

func TestEachRequestHasATagAndWhoMayWaitALowerPriority(t *testing.T) {
	w := newWorld(t)
	heard := listen(w.tap)
	ctx := t.Context()
	check := func(operation string, want spannerpb.RequestOptions_Priority, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", operation, err)
		}
		requests := heard()
		if len(requests) == 0 {
			t.Errorf("%s asks for nothing: this test does not see it", operation)
		}
		for _, a := range requests {
			if a.tag == "" {
				t.Errorf("%s: a %s of %s has no tag", operation, a.method, a.table)
			}
			if a.priority != want {
				t.Errorf("%s: a %s of %s has the priority %v, want %v", operation, a.method, a.table, a.priority, want)
			}
		}
	}
	const high, medium, low = spannerpb.RequestOptions_PRIORITY_UNSPECIFIED, spannerpb.RequestOptions_PRIORITY_MEDIUM, spannerpb.RequestOptions_PRIORITY_LOW

	a := arrival("WO", 1)
	check("insert", high, w.store.Insert(ctx, a))
	_, err := w.store.Find(ctx, []string{a.Message.ID}, a.Message.TransportKey)
	check("find", high, err)
	check("redelivery", high, w.store.AddRedelivery(ctx, inbox.Redelivery{InboxID: a.Message.ID, MessageID: "1"}))
	_, err = w.store.Twin(ctx, &inbox.Message{ID: "t", Consumer: consumer, LaneID: laneOf("WO"), FromDeadLetter: true,
		PublishedAt: time.Unix(1_700_000_000, 0), OrderedAt: time.Unix(1_700_000_000, 0)})
	check("twin", high, err)
	check("ready", high, w.store.Ready(ctx, consumer))
	w.sql("UPDATE Lanes SET WokenAt = NULL WHERE true", nil) // forgotten, so that the sweep goes all the way
	_, err = w.store.Sweep(ctx, consumer, 10)
	check("sweep", low, err)
	lanes, clock := w.scan(w.store)
	check("scan", high, nil)
	plan, err := w.store.Claim(ctx, claimRequest("owner", lanes), clock, random())
	check("claim", high, err)
	_, err = w.store.Load(ctx, []string{a.Message.ID})
	check("load", high, err)
	_, err = w.store.Settle(ctx, settlement(plan, "done"), clock)
	check("settle", high, err)
	_, err = w.store.Report(ctx, inbox.ReportRequest{Consumer: consumer, Routes: []string{"r"}, Lease: lease,
		MaxOpen: 1, MaxParked: 1})
	check("report", low, err)

	w.insert("P", 1, func(m *inbox.Message) { m.Status, m.Reason = inbox.Parked, inbox.Poisoned })
	w.insert("P", 2)
	for name, filter := range map[string]spannerstore.Filter{
		"list": {Limit: 1}, "list by age": {Limit: 1, OlderThan: time.Hour}, "list of a reason": {Limit: 1, Reason: inbox.Poisoned},
		"list of lanes": {Limit: 1, Lanes: []string{laneOf("P")}}, "list of what is stuck": {Limit: 1, Stuck: true, Lanes: []string{laneOf("P")}},
	} {
		_, err = w.store.List(ctx, filter)
		check(name, medium, err)
	}
	_, err = w.store.Consumers(ctx)
	check("consumers", medium, err)
	_, err = w.store.Show(ctx, a.Message.ID)
	check("show", medium, err)
	_, err = w.store.Rows(ctx, []string{a.Message.ID})
	check("rows", medium, err)
	_, err = w.store.Holdings(ctx, []string{a.Message.ID})
	check("holdings", low, err)
	_, _, err = w.store.OpenHoldings(ctx, spannerstore.Place{}, 10)
	check("open holdings", low, err)
	_, _, err = w.store.ParkedHoldings(ctx, spannerstore.Place{}, 10)
	check("parked holdings", low, err)
	_, err = w.store.Announced(ctx, consumer, []inbox.Object{{Bucket: "b", Name: "n"}})
	check("announced", medium, err)
	ids := []string{arrival("P", 1).Message.ID}
	_, err = w.store.InLanes(ctx, ids)
	check("lanes of what is to be reopened", medium, err)
	check("dry reopen", medium, w.store.Reopen(ctx, spannerstore.Reopening{IDs: ids, Actor: "a", Reason: "r", DryRun: true})[0].Err)
}

// settlement settles all of a claim as done.
func settlement(plan inbox.ClaimPlan, verdict string) inbox.SettleRequest {
	req := inbox.SettleRequest{Consumer: consumer, Retention: 75 * 24 * time.Hour, PayloadRetention: 14 * 24 * time.Hour,
		Breakers: map[string]inbox.BreakerPolicy{"e": breaker}, Poison: poison}
	for _, claimed := range plan.Claimed {
		lane := inbox.LaneSettlement{Lane: claimed.Lane, Release: true}
		for _, m := range claimed.Messages {
			after := *m
			after.Status = inbox.Processed
			lane.Results = append(lane.Results, inbox.Result{Message: &after, Number: m.Attempts, Verdict: verdict, Engine: "e",
				Attempt: &inbox.AttemptRecord{Number: m.Attempts, Verdict: verdict, Engine: "e", Owner: claimed.Lane.LeaseOwner}})
		}
		req.Lanes = append(req.Lanes, lane)
	}
	return req
}

func TestASettlementReadsNothingOfALaneThatReceivesWrite(t *testing.T) {
	w := newWorld(t)
	heard := listen(w.tap)
	// What a receive writes of a lane: all but its key.
	written := map[string]bool{"Consumer": true, "CorrelationKey": true, "Shard": true, "WokenAt": true, "PurgeAt": true}
	w.insert("WO", 1)
	plan, clock := w.claim(w.store, "owner")
	heard()
	if _, err := w.store.Settle(t.Context(), settlement(plan, "done"), clock); err != nil {
		t.Fatal(err)
	}
	reads := 0
	for _, a := range heard() {
		if a.table != "Lanes" {
			continue
		}
		reads++
		if i := slices.IndexFunc(a.columns, func(c string) bool { return written[c] }); i >= 0 {
			t.Errorf("it reads %s, which a receive writes", a.columns[i])
		}
	}
	if reads == 0 {
		t.Error("it reads no lane: this test shows nothing")
	}
	var purge, woken time.Time
	w.query("SELECT COALESCE(PurgeAt, TIMESTAMP_SECONDS(0)), COALESCE(WokenAt, TIMESTAMP_SECONDS(0)) FROM Lanes", nil, &purge, &woken)
	if purge.Unix() == 0 || woken.Unix() != 0 {
		t.Errorf("the empty lane ends at %v, woken at %v", purge, woken)
	}
}

// A query that forces an index whose rows are those with a value must say that it wants those only: Spanner refuses it where
// it cannot see that by itself. The emulator takes all.
func TestAForcedPartialIndexHasItsPredicate(t *testing.T) {
	schema, err := os.ReadFile("../../migrations/schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	partial := map[string][]string{}
	for _, found := range regexp.MustCompile(`(?m)^CREATE (?:UNIQUE )?INDEX (\w+) ON .* WHERE (.*);$`).FindAllStringSubmatch(string(schema), -1) {
		partial[found[1]] = strings.Split(found[2], " AND ")
	}
	if len(partial) < 5 {
		t.Fatalf("%d partial indexes in the schema", len(partial))
	}
	forced := 0
	err = filepath.WalkDir("../..", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." {
			return err
		}
		if d.IsDir() || strings.HasSuffix(path, "_test.go") || !slices.Contains([]string{".go", ".md", ".sql", ".sh", ".tf"}, filepath.Ext(path)) {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, at := range regexp.MustCompile(`FORCE_INDEX\s*=\s*(\w+)\}`).FindAllSubmatchIndex(text, -1) {
			index := string(text[at[2]:at[3]])
			// Up to the end of its SELECT, wherever that is written.
			rest, _, _ := strings.Cut(string(text[at[1]:]), "UNION")
			rest = rest[:min(len(rest), 600)]
			if end := regexp.MustCompile("[`;\"]").FindStringIndex(rest); end != nil {
				rest = rest[:end[0]]
			}
			for _, predicate := range partial[index] {
				forced++
				if !strings.Contains(rest, strings.TrimSpace(predicate)) {
					t.Errorf("%s forces %s without %q", path, index, predicate)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if forced == 0 {
		t.Error("no statement forces a partial index: this test shows nothing")
	}
}
