package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/emulatortest"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/rpctap"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/spannerstore"
)

// columns reads several columns of a message as texts.
func (w *world) columns(id string, names ...string) map[string]string {
	w.t.Helper()
	got := map[string]string{}
	for _, name := range names {
		got[name] = w.text("Messages", id, name)
	}
	return got
}

func TestReopenStartsAfreshInTheOldPlace(t *testing.T) {
	w := newWorld(t)
	id := w.parked("WO-1", inbox.NoWaitingInstance)
	w.apply(spanner.Delete("Lanes", spanner.Key{inbox.LaneID(consumer, "", inbox.OrderPublished, "WO-1")}))
	place := []string{"LaneId", "Sequence", "OrderedAt", "ReceivedAt", "Route", "DedupeKey", "TransportKey", "EngineReference", "LastErrorCode", "LastErrorMessage"}
	before := w.columns(id, place...)
	got := w.ok("reopen", id, "--reason", "  instances are started\n", "--actor", "bob")
	if want := id + ": reopened, was PARKED/NO_WAITING_INSTANCE after 3 attempts\n"; got.out != want || got.stderr != "" {
		t.Errorf("it says %q and %q, want %q", got.out, got.stderr, want)
	}
	if diff := cmp.Diff(before, w.columns(id, place...)); diff != "" {
		t.Errorf("place and old error (-before +after):\n%s", diff)
	}
	want := map[string]string{"Status": "RECEIVED", "Reason": "<null>", "Attempts": "0", "TechnicalFailures": "0", "OutageFailures": "0", "LostWorkers": "0",
		"PatienceUsed": "0", "NextAttemptAt": "<null>", "FirstFailedAt": "<null>", "LastFailedAt": "<null>", "ProcessedAt": "<null>", "PurgeAfter": "<null>"}
	names := []string{}
	for name := range want {
		names = append(names, name)
	}
	if diff := cmp.Diff(want, w.columns(id, names...)); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
	if got := w.text("Lanes", before["LaneId"], "WokenAt"); got == "<null>" || got == "<none>" {
		t.Errorf("the lane is not woken: %s", got)
	}
	shown, err := w.store.Show(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if len(shown.Audit) != 1 {
		t.Fatalf("%d audit entries, want 1", len(shown.Audit))
	}
	entry := shown.Audit[0]
	if entry.Actor != "bob" || entry.Action != "reopen" || entry.Reason != "instances are started" || entry.OccurredAt.IsZero() {
		t.Errorf("audit: %+v", entry)
	}
	for _, want := range []string{`"status":"PARKED"`, `"reason":"NO_WAITING_INSTANCE"`, `"attempts":3`, `"lastErrorMessage":"nobody waits"`} {
		if !strings.Contains(compact(entry.Before), want) {
			t.Errorf("audit, before: no %s in %s", want, compact(entry.Before))
		}
	}
	if got := compact(entry.After); !strings.Contains(got, `"status":"RECEIVED"`) {
		t.Errorf("audit, after: %s", got)
	}
}

func TestReopenOfAPossiblyDeliveredMessageIsThePersonsWord(t *testing.T) {
	w := newWorld(t)
	for reason, want := range map[inbox.Reason]string{inbox.PossiblyDelivered: "false", inbox.Poisoned: "true"} {
		id := w.parked("", reason)
		w.update("Messages", map[string]any{"InboxId": id, "OutcomeUnknown": true})
		got := w.ok("reopen", id, "--reason", "looked it up")
		if unknown := w.text("Messages", id, "OutcomeUnknown"); unknown != want {
			t.Errorf("%s: OutcomeUnknown is %s, want %s", reason, unknown, want)
		}
		if strings.Contains(got.stderr, "sent again") != (reason == inbox.PossiblyDelivered) {
			t.Errorf("%s: %q", reason, got.stderr)
		}
	}
}

func TestReopenRefuses(t *testing.T) {
	w := newWorld(t)
	ids := everyStatus(w)
	ids["no route"] = w.insert(row{arrival: func(m *inbox.Message) { m.Status, m.Reason, m.Route = inbox.Parked, inbox.NoRoute, "" }})
	ids["unreadable"] = w.insert(row{arrival: func(m *inbox.Message) { m.Status, m.Reason, m.Route = inbox.Parked, inbox.Unreadable, "" }})
	ids["unfit"] = w.insert(row{arrival: func(m *inbox.Message) { m.Status, m.Reason = inbox.Parked, inbox.Contract }})
	ids["bodiless"] = w.finished("", "PROCESSED")
	ids["parked, bodiless"] = w.parked("", inbox.Rejected)
	w.apply(spanner.Delete("Payloads", spanner.Key{ids["bodiless"]}), spanner.Delete("Payloads", spanner.Key{ids["parked, bodiless"]}))
	for _, test := range []struct {
		name, id string
		args     []string
		want     string
	}{
		{"what was never attempted is open", "RECEIVED", nil, "already open"},
		{"what waits for its next attempt is open", "RETRYING", nil, "already open"},
		{"what is open stays so by force", "RETRYING", []string{"--force"}, "already open"},
		{"what is being handled", "PROCESSING", nil, "being handled right now"},
		{"what is being handled, by force too", "PROCESSING", []string{"--force"}, "being handled right now"},
		{"what is correlated", "PROCESSED", nil, "finished (PROCESSED)"},
		{"what is discarded", "DISCARDED", nil, "finished (DISCARDED)"},
		{"what is finished and has no payload any more", "bodiless", []string{"--force"}, "payload has been deleted"},
		{"what is parked and has no payload any more", "parked, bodiless", nil, "payload has been deleted"},
		{"what has no route", "no route", nil, "use reroute"},
		{"what was unreadable", "unreadable", nil, "use reroute"},
		{"what did not fit its route when it came", "unfit", nil, "use reroute"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w.t = t
			before := w.columns(ids[test.id], "Status", "Attempts", "PurgeAfter", "NextAttemptAt")
			got := w.refused(1, test.want, append([]string{"reopen", ids[test.id], "--reason", "x"}, test.args...)...)
			if got.out != "" || !strings.HasPrefix(got.stderr, ids[test.id]+": refused: ") {
				t.Errorf("it says %q and %q", got.out, got.stderr)
			}
			if diff := cmp.Diff(before, w.columns(ids[test.id], "Status", "Attempts", "PurgeAfter", "NextAttemptAt")); diff != "" {
				t.Errorf("a refusal changed the message:\n%s", diff)
			}
		})
	}
	w.t = t
	if n := w.count("SELECT COUNT(*) FROM Audit"); n != 0 {
		t.Errorf("%d audit entries of actions that were refused", n)
	}
	for _, test := range []struct{ name, reason string }{{"no reason", ""}, {"a blank reason", " \t\n"}} {
		t.Run(test.name, func(t *testing.T) {
			w.t = t
			w.refused(2, "--reason is missing", "reopen", ids["PARKED"], "--reason", test.reason)
		})
	}
	w.t = t
	got := w.refused(1, "already open", "reopen", ids["RECEIVED"], ids["PARKED"], "--reason", "x")
	if !strings.Contains(got.out, ids["PARKED"]+": reopened") {
		t.Errorf("one that is refused keeps the others from being reopened: %q", got.out)
	}
}

func TestReopenByForceKeepsThePayload(t *testing.T) {
	w := newWorld(t)
	for _, status := range []string{"PROCESSED", "DISCARDED"} {
		id := w.finished("", status)
		w.ok("reopen", id, "--reason", "the engine lost it", "--force")
		got := w.columns(id, "Status", "ProcessedAt", "PurgeAfter", "PurgeAt")
		if diff := cmp.Diff(map[string]string{"Status": "RECEIVED", "ProcessedAt": "<null>", "PurgeAfter": "<null>", "PurgeAt": "<null>"}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", status, diff)
		}
		if purge := w.text("Payloads", id, "PurgeAt"); purge != "<null>" {
			t.Errorf("%s: the payload is still to be deleted at %s", status, purge)
		}
	}
	if n := w.count("SELECT COUNT(*) FROM Audit WHERE Action = 'reopen-forced'"); n != 2 {
		t.Errorf("%d audit entries say that it was by force, want 2", n)
	}
}

func TestReopenWarns(t *testing.T) {
	w := newWorld(t)
	id := w.parked("WO-1", inbox.NoWaitingInstance)
	later := w.finished("WO-1", "PROCESSED")
	shown, err := w.store.Show(t.Context(), later)
	if err != nil {
		t.Fatal(err)
	}
	w.update("Lanes", map[string]any{"LaneId": shown.LaneID, "LastSequence": shown.Sequence, "LastOrderedAt": shown.OrderedAt,
		"LastReceivedAt": shown.ReceivedAt, "LastInboxId": shown.ID, "HeldBy": "eve"})
	got := w.ok("reopen", id, "--reason", "x", "--dry-run")
	for _, want := range []string{id + ": warning: later messages of its lane are through already", id + ": warning: its lane is held by eve"} {
		if !strings.Contains(got.stderr, want) {
			t.Errorf("no %q in %q", want, got.stderr)
		}
	}
	if !strings.Contains(got.out, "would be reopened") || w.text("Messages", id, "Status") != "PARKED" || w.count("SELECT COUNT(*) FROM Audit") != 0 {
		t.Errorf("a dry run says %q, and leaves the message %s", got.out, w.text("Messages", id, "Status"))
	}
	w.refused(1, "already open", "reopen", "--dry-run", "--reason", "x", w.insert(row{}))
}

func TestReopenOfTwoOperatorsAtOnce(t *testing.T) {
	w := newWorld(t)
	id := w.parked("", inbox.Rejected)
	const operators = 4
	answers := make([]answer, operators)
	var all sync.WaitGroup
	for i := range operators {
		options := emulatortest.ClientOptions(t)
		all.Go(func() { answers[i] = runWith(t, options, w.env, "", "reopen", id, "--reason", "x") })
	}
	all.Wait()
	won := 0
	for _, got := range answers {
		switch {
		case got.code == 0:
			won++
		case !strings.Contains(got.stderr, "already open"):
			t.Errorf("one that lost says %q", got.stderr)
		}
	}
	if entries := w.count("SELECT COUNT(*) FROM Audit"); won != 1 || entries != 1 {
		t.Errorf("%d of %d won, with %d audit entries; want 1 and 1", won, operators, entries)
	}
}

// TestReopenMeetsAnotherBetweenReadAndCommit holds one operator's commit while another's is done.
func TestReopenMeetsAnotherBetweenReadAndCommit(t *testing.T) {
	w := newWorld(t)
	id := w.parked("", inbox.Rejected)
	gate := w.tap.HoldNth("Commit", 1)
	slow := make(chan answer, 1)
	go func() { slow <- w.run("reopen", id, "--reason", "slow") }()
	if err := gate.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	quick := make(chan answer, 1)
	options := emulatortest.ClientOptions(t)
	go func() { quick <- runWith(t, options, w.env, "", "reopen", id, "--reason", "quick") }()
	// The emulator lets one wait for the other, Spanner aborts one: either way one wins.
	select {
	case got := <-quick:
		quick <- got
	case <-time.After(300 * time.Millisecond):
	}
	gate.Release()
	a, b := <-slow, <-quick
	if a.code+b.code != 1 || !strings.Contains(a.stderr+b.stderr, "already open") || w.count("SELECT COUNT(*) FROM Audit") != 1 {
		t.Errorf("slow: %+v, quick: %+v", a, b)
	}
}

func TestReopenAndTheWorkerWhoseLeaseEnded(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	id := w.insert(row{key: "WO-1"})
	lane := w.text("Messages", id, "LaneId")
	clock := inbox.Clock{Read: time.Now().Add(time.Minute), Sent: time.Now(), Received: time.Now()}
	req := inbox.ClaimRequest{Consumer: consumer, Owner: "run-1", LaneIDs: []string{lane}, Batch: 1, PerLane: 1, Lease: time.Minute, Retention: time.Hour,
		Routes: map[string]inbox.RoutePolicy{"r": {Engine: "e"}}, Engines: map[string]inbox.EnginePolicy{"e": {Capacity: 1}},
		Poison: inbox.PoisonPolicy{LostWorkers: 5}}
	plan, err := w.store.Claim(ctx, req, clock, rand.New(rand.NewPCG(1, 1)))
	if err != nil || len(plan.Claimed) != 1 {
		t.Fatalf("claim: %+v, %v", plan, err)
	}
	w.refused(1, "being handled", "reopen", id, "--reason", "too early")
	// The worker is lost for good; a person parks the message by hand, and reopens it.
	w.update("Messages", map[string]any{"InboxId": id, "Status": "PARKED", "Reason": "POISONED"})
	w.ok("reopen", id, "--reason", "repaired")
	late := *plan.Claimed[0].Messages[0]
	late.Status, late.Attempts, late.NextAttemptAt = inbox.Retrying, 5, time.Now().Add(8*time.Minute)
	_, err = w.store.Settle(ctx, inbox.SettleRequest{Consumer: consumer, Retention: time.Hour, PayloadRetention: time.Hour, Lanes: []inbox.LaneSettlement{{
		Lane: plan.Claimed[0].Lane, Release: true, Results: []inbox.Result{{Message: &late, Number: 1, Verdict: "TECHNICAL"}}}}}, clock)
	if err != nil {
		t.Fatal(err)
	}
	got := w.columns(id, "Status", "Attempts", "NextAttemptAt")
	if diff := cmp.Diff(map[string]string{"Status": "RECEIVED", "Attempts": "0", "NextAttemptAt": "<null>"}, got); diff != "" {
		t.Errorf("the late worker undid the repair (-want +got):\n%s", diff)
	}
}

func TestReopenRunsAgainWhenItsTransactionIsAborted(t *testing.T) {
	w := newWorld(t)
	id := w.parked("", inbox.Rejected)
	w.tap.FailNth("Commit", 1, rpctap.Error(codes.Aborted))
	got := w.ok("reopen", id, "--reason", "x")
	if n := w.count("SELECT COUNT(*) FROM Audit"); w.tap.Count("Commit") != 2 || n != 1 || strings.Count(got.out, "reopened") != 1 {
		t.Errorf("%d commits, %d audit entries, want 2 and 1; it says %q", w.tap.Count("Commit"), n, got.out)
	}
}

func TestReopenSaysThatItsOutcomeIsUnknown(t *testing.T) {
	w := newWorld(t)
	id := w.parked("", inbox.Rejected)
	w.tap.LoseNth("Commit", 1, rpctap.Error(codes.Internal))
	w.refused(1, "the outcome is unknown", "reopen", id, "--reason", "x")
	w.refused(1, "already open", "reopen", id, "--reason", "x")
}

// afterCommits looks at which messages are open, in their order, after each commit of the program.
func (w *world) afterCommits(ids []string) *[]string {
	states := &[]string{}
	w.tap.After("Commit", func(_ context.Context, _ int, _, _ any, err error) error {
		state := ""
		for _, id := range ids {
			state += map[bool]string{true: "o", false: "-"}[w.text("Messages", id, "Status") == "RECEIVED"]
		}
		*states = append(*states, state)
		return err
	})
	return states
}

// The ids come in any order, as list prints them by time of receipt. A relay that runs meanwhile must not find a later message
// of a key while an earlier one of the set is parked.
func TestReopenKeepsTheOrderOfAKey(t *testing.T) {
	w := newWorld(t)
	first, second, third := w.parked("WO-1", inbox.DeadLettered), w.parked("WO-1", inbox.DeadLettered), w.parked("WO-1", inbox.DeadLettered)
	other := w.parked("WO-2", inbox.DeadLettered)
	open := w.insert(row{key: "WO-1"})
	states := w.afterCommits([]string{first, second, third, other})
	w.stdin = strings.Join([]string{third, open, other, first, unknownID, second}, "\n")
	got := w.refused(1, open+": refused: already open", "reopen", "-", "--reason", "outage")
	if diff := cmp.Diff([]string{"ooo-", "oooo"}, *states); diff != "" {
		t.Errorf("open after each commit (-want +got):\n%s", diff)
	}
	var order []string
	for line := range strings.Lines(got.out) {
		id, _, _ := strings.Cut(line, ":")
		order = append(order, id)
	}
	if diff := cmp.Diff([]string{first, second, third, other}, order); diff != "" {
		t.Errorf("it says (-want +got):\n%s", diff)
	}
	if n := w.count("SELECT COUNT(*) FROM Audit"); n != 4 || !strings.Contains(got.stderr, "no message with id "+unknownID) {
		t.Errorf("%d audit entries; it says %q", n, got.stderr)
	}
}

func TestReopenWarnsBeforeItDoesAnything(t *testing.T) {
	w := newWorld(t)
	id := w.parked("WO-1", inbox.PossiblyDelivered)
	w.update("Lanes", map[string]any{"LaneId": w.text("Messages", id, "LaneId"), "HeldBy": "eve"})
	w.tap.FailNth("Commit", 1, rpctap.Error(codes.PermissionDenied))
	got := w.refused(1, "its lane is held by eve", "reopen", id, "--reason", "x")
	if warned, failed := strings.Index(got.stderr, "will be sent again"), strings.Index(got.stderr, "PermissionDenied"); warned < 0 || failed < warned {
		t.Errorf("it says %q", got.stderr)
	}
}

// Of more messages than one transaction has room for, the earlier ones come first; where they fail, the later ones stay.
func TestAGroupThatFailsKeepsThoseBehindIt(t *testing.T) {
	a := &app{stderr: io.Discard, lookup: func(string) (string, bool) { return "", false }}
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	var tried []string
	err := a.eachGroup(cmd, []group{{ids: []string{"a1"}, lane: 1}, {ids: []string{"a2"}, lane: 1}, {ids: []string{"a3"}, lane: 1}, {ids: []string{"b1"}, lane: 2}},
		func(_ context.Context, ids []string) []error {
			tried = append(tried, ids...)
			switch ids[0] {
			case "a1":
				return []error{&spannerstore.RefusedError{Why: "already open"}} // it is out of the way
			case "a2":
				return []error{errors.New("out of reach")}
			}
			return []error{nil}
		})
	if diff := cmp.Diff([]string{"a1", "a2", "b1"}, tried); diff != "" || !errors.Is(err, errReported) {
		t.Errorf("%v; tried (-want +got):\n%s", err, diff)
	}
}

// A person who ends the program knows why it has ended.
func TestReopenThatIsToldToEndBlamesNobody(t *testing.T) {
	w := newWorld(t)
	w.env["SPANNER_EMULATOR_HOST"] = "set"
	ctx, cancel := context.WithCancel(t.Context())
	var ids []string
	for range 3 {
		ids = append(ids, w.parked("", inbox.Rejected))
	}
	w.tap.Before("Commit", func(call context.Context, _ int, _ any) error {
		cancel()
		return call.Err()
	})
	var out, stderr bytes.Buffer
	a := &app{now: time.Now, options: append(emulatortest.ClientOptions(t), w.tap.Options()...), stdin: strings.NewReader(""), stdout: &out, stderr: &stderr,
		lookup: func(name string) (string, bool) { value, ok := w.env[name]; return value, ok }}
	code := a.run(ctx, append([]string{"reopen", "--reason", "x"}, ids...))
	if code != 1 || !strings.Contains(stderr.String(), "told to end; 2 messages were not tried") || strings.Contains(stderr.String(), "does an emulator answer there") {
		t.Errorf("exit code %d: %q", code, stderr.String())
	}
}

// Between the look at a finished message's object and the transaction, another operator or reconcile can have the row name a
// newer generation. Then the reopen is refused, and the row names the generation that was made last.
func TestReopenByForceOfAPayloadThatMovesMeanwhile(t *testing.T) {
	w := newWorldWithBucket(t)
	id, o := w.finishedKept([]byte("x"))
	newer := o
	newer.Generation++
	answers := w.store.Reopen(t.Context(), spannerstore.Reopening{IDs: []string{id}, Actor: "bob", Reason: "x", Force: true,
		Renew: func(context.Context, string) (string, error) {
			w.update("Messages", map[string]any{"InboxId": id, "PayloadLocation": newer.Location()})
			made := newer
			made.Generation++
			return made.Location(), nil
		}})
	var refused *spannerstore.RefusedError
	if !errors.As(answers[0].Err, &refused) || !strings.Contains(refused.Why, "moved meanwhile") {
		t.Errorf("it is %v", answers[0].Err)
	}
	if got := w.columns(id, "Status", "PayloadLocation"); got["Status"] != "PROCESSED" || got["PayloadLocation"] != newer.Location() {
		t.Errorf("it leaves %v", got)
	}
}

// Two by force: the one that comes second finds the message open. The generation that the row names then went with the making
// of its own, so the row names that.
func TestReopenByForceThatLosesLeavesItsGeneration(t *testing.T) {
	w := newWorldWithBucket(t)
	id, o := w.finishedKept([]byte("x"))
	made := o
	made.Generation += 2
	answers := w.store.Reopen(t.Context(), spannerstore.Reopening{IDs: []string{id}, Actor: "bob", Reason: "x", Force: true,
		Renew: func(context.Context, string) (string, error) {
			w.update("Messages", map[string]any{"InboxId": id, "Status": "RECEIVED"})
			return made.Location(), nil
		}})
	if err := answers[0].Err; err == nil || !strings.Contains(err.Error(), "already open") {
		t.Errorf("it is %v", err)
	}
	if got := w.text("Messages", id, "PayloadLocation"); got != made.Location() {
		t.Errorf("the row names %s, want %s", got, made.Location())
	}
}

func TestDiscardClosesWhatIsParkedAndWakesTheLaneThatItBlocked(t *testing.T) {
	w := newWorld(t)
	until := time.Now().Add(time.Hour).UTC()
	discard := func(id string) error {
		_, err := w.store.Discard(t.Context(), spannerstore.Discarding{ID: id, Actor: "bob", Reason: "x", At: time.Now(), Until: until})
		return err
	}
	for status, id := range everyStatus(w) {
		var refused *spannerstore.RefusedError
		if err := discard(id); (err == nil) != (status == "PARKED") || (err != nil && !errors.As(err, &refused)) {
			t.Errorf("%s: %v", status, err)
		}
		if want := map[bool]string{true: "DISCARDED", false: status}[status == "PARKED"]; w.text("Messages", id, "Status") != want {
			t.Errorf("what was %s is %s", status, w.text("Messages", id, "Status"))
		}
	}
	for _, blocks := range []bool{true, false} {
		id := w.insert(row{arrival: func(m *inbox.Message) { m.Blocks = blocks }, after: map[string]any{"Status": "PARKED", "Reason": "REJECTED"}})
		lane := w.text("Messages", id, "LaneId")
		w.update("Lanes", map[string]any{"LaneId": lane, "WokenAt": spanner.NullTime{}})
		if err := discard(id); err != nil {
			t.Fatal(err)
		}
		if woken := w.text("Lanes", lane, "WokenAt") != "<null>"; woken != blocks {
			t.Errorf("it blocked: %t; its lane is woken: %t", blocks, woken)
		}
	}
}
