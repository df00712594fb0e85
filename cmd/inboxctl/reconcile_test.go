package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/storage"
	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// found returns kind and message, or object where there is none, of what a reconcile reports.
func found(t *testing.T, got answer) []string {
	t.Helper()
	all := []string{}
	for _, o := range objects(t, got.out) {
		kind, ok := o["finding"].(string)
		if !ok {
			continue
		}
		about, ok := o["inboxId"].(string)
		if !ok {
			about = o["object"].(string)
		}
		all = append(all, kind+" "+about)
	}
	slices.Sort(all)
	return all
}

// leftovers are one of each kind that reconcile tells apart, and one of each that is as it should be.
type leftovers struct {
	orphan, elsewhere, renewed, unmarked, byHand, marked, markedParked, replaced, missing, changed string
	old                                                                                            map[string]inbox.Object
}

func newLeftovers(w *world) *leftovers {
	l := &leftovers{old: map[string]inbox.Object{}}
	put := func(name string) func(id string, o inbox.Object) string {
		return func(id string, o inbox.Object) string { l.old[name] = o; return id }
	}
	parked := map[string]any{"Status": "PARKED", "Reason": "REJECTED", "Attempts": 1}
	processed := map[string]any{"Status": "PROCESSED", "ProcessedAt": time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)}

	// As it should be.
	w.insert(row{})
	w.insertKept([]byte("open"), nil)
	w.insertKept([]byte("parked"), parked)
	w.finishedKept([]byte("finished"))

	l.orphan = strings.Repeat("0", 32) + "/" + inbox.SHA256([]byte("orphan"))
	w.bucket.Write(l.orphan, []byte("orphan"), nil)
	// Marked already: it is on its way.
	w.bucket.Write(strings.Repeat("1", 32)+"/"+inbox.SHA256([]byte("x")), []byte("x"), func(o *storage.Writer) { o.CustomTime = time.Now() })
	w.bucket.Write("somebody's/file", []byte("x"), nil)

	id, o := w.insertKept([]byte("replaced by another payload"), nil)
	l.elsewhere, l.old["elsewhere"] = id, o
	w.update("Messages", map[string]any{"InboxId": id, "PayloadLocation": nil})

	l.renewed = put("renewed")(w.finishedKept([]byte("made anew by a reopen that failed")))
	if _, err := w.objects.Renew(w.t.Context(), l.old["renewed"]); err != nil {
		w.t.Fatal(err)
	}
	l.unmarked = put("unmarked")(w.insertKept([]byte("the relay did not mark it"), processed))
	l.byHand = put("byHand")(w.insertKept([]byte("closed by hand"), map[string]any{"Status": "DISCARDED"}))

	l.marked = put("marked")(w.insertKept([]byte("marked by mistake"), nil))
	w.finish(l.old["marked"], time.Now())
	l.markedParked = put("markedParked")(w.insertKept([]byte("marked, and parked"), parked))
	w.finish(l.old["markedParked"], time.Now())
	l.replaced = put("replaced")(w.insertKept([]byte("the same content"), nil))
	w.bucket.Write(l.old["replaced"].Name, []byte("the same content"), nil)
	l.missing = put("missing")(w.insertKept([]byte("gone"), nil))
	w.bucket.Delete(l.old["missing"].Name)
	l.changed = put("changed")(w.insertKept([]byte("one content"), parked))
	w.bucket.Write(l.old["changed"].Name, []byte("two content"), nil)
	return l
}

func (l *leftovers) want(bucket string) []string {
	want := []string{"orphan gs://" + bucket + "/" + l.orphan, "foreign gs://" + bucket + "/somebody's/file", "orphan " + l.elsewhere, "orphan " + l.renewed,
		"unmarked " + l.unmarked, "unmarked " + l.byHand, "marked " + l.marked, "marked " + l.markedParked, "replaced " + l.replaced,
		"missing " + l.missing, "changed " + l.changed}
	return want
}

// sameObjects compares orphans by their name: their generation is not known here.
func sameObjects(got []string) []string {
	for i := range got {
		if strings.Contains(got[i], "gs://") {
			got[i], _, _ = strings.Cut(got[i], "#")
		}
	}
	slices.Sort(got)
	return got
}

func TestReconcileFindsAndMends(t *testing.T) {
	w := newWorldWithBucket(t)
	l := newLeftovers(w)
	w.later()
	want := l.want(w.bucket.Name)
	slices.Sort(want)

	w.bucket.Calls()
	got := w.run("reconcile", "--json")
	if got.code != 1 { // for what nothing mends
		t.Errorf("exit code %d: %s", got.code, got.stderr)
	}
	if diff := cmp.Diff(want, sameObjects(found(t, got))); diff != "" {
		t.Errorf("found (-want +got):\n%s", diff)
	}
	for _, call := range w.bucket.Calls() {
		if !strings.HasPrefix(call, "GET ") {
			t.Errorf("a dry run does %s", call)
		}
	}
	if n := w.count("SELECT COUNT(*) FROM Audit"); n != 0 {
		t.Errorf("a dry run leaves %d audit entries", n)
	}
	if sum := summary(t, got); sum["mended"] != 0.0 || sum["failed"] != 2.0 || sum["after"] != nil {
		t.Errorf("summary: %v", sum)
	}

	got = w.run("reconcile", "--json", "--mend", "--reason", "weekly", "--actor", "bob")
	if diff := cmp.Diff(want, sameObjects(found(t, got))); diff != "" {
		t.Errorf("found (-want +got):\n%s", diff)
	}
	if sum := summary(t, got); sum["mended"] != 8.0 || got.code != 1 {
		t.Errorf("exit code %d, summary: %v\n%s", got.code, sum, got.out)
	}
	for _, id := range []string{l.marked, l.markedParked, l.replaced} {
		w.agrees(id)
		if n := w.count(fmt.Sprintf("SELECT COUNT(*) FROM Audit WHERE InboxId = '%s' AND Action = 'reconcile' AND Actor = 'bob' AND Reason = 'weekly'", id)); n != 1 {
			t.Errorf("%d audit entries of %s", n, id)
		}
	}
	for _, name := range []string{l.orphan, l.old["elsewhere"].Name, l.old["renewed"].Name, l.old["unmarked"].Name, l.old["byHand"].Name} {
		if attrs := w.live(name); attrs == nil || attrs.CustomTime.IsZero() {
			t.Errorf("%s is not marked: %+v", name, attrs)
		}
	}
	if at := w.live(l.old["unmarked"].Name).CustomTime; !at.Equal(time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)) {
		t.Errorf("a finished message's object is marked at %s, not when the message finished", at)
	}
	if !w.live("somebody's/file").CustomTime.IsZero() {
		t.Error("a file that is not ours was touched")
	}
	if n := w.count("SELECT COUNT(*) FROM Audit"); n != 3 {
		t.Errorf("%d audit entries, want those of the 3 rows that were changed", n)
	}

	// Nothing is left but what nothing mends.
	left := []string{"foreign gs://" + w.bucket.Name + "/somebody's/file", "missing " + l.missing, "changed " + l.changed}
	slices.Sort(left)
	if diff := cmp.Diff(left, sameObjects(found(t, w.run("reconcile", "--json")))); diff != "" {
		t.Errorf("after it (-want +got):\n%s", diff)
	}
	text := w.refused(1, "", "reconcile")
	for _, want := range []string{"missing " + l.old["missing"].Pinned() + " (message " + l.missing + ", RECEIVED): it is gone", "foreign gs://", "3 findings, 0 mended, 2 that nothing has mended"} {
		if !strings.Contains(text.out, want) {
			t.Errorf("no %q in:\n%s", want, text.out)
		}
	}
}

func TestReconcileLeavesYoungObjectsAlone(t *testing.T) {
	w := newWorldWithBucket(t)
	w.bucket.Write(strings.Repeat("0", 32)+"/"+inbox.SHA256([]byte("x")), []byte("x"), nil)
	id, o := w.insertKept([]byte("finished"), map[string]any{"Status": "PROCESSED", "ProcessedAt": time.Now()})
	got := w.ok("reconcile", "--json", "--mend", "--reason", "x")
	if diff := cmp.Diff([]string{"unmarked " + id}, found(t, got)); diff != "" {
		t.Errorf("found (-want +got):\n%s", diff)
	}
	if sum := summary(t, got); sum["young"] != 1.0 {
		t.Errorf("summary: %v", sum)
	}
	if w.live(o.Name).CustomTime.IsZero() {
		t.Error("what belongs to a finished message need not grow old")
	}
	if got := found(t, w.ok("reconcile", "--json", "--min-age", "0s")); len(got) != 1 {
		t.Errorf("with --min-age 0s: %v", got)
	}
}

func TestReconcileGoesOnWhereItHasEnded(t *testing.T) {
	w := newWorldWithBucket(t)
	l := newLeftovers(w)
	w.later()
	want := l.want(w.bucket.Name)
	slices.Sort(want)
	all := []string{}
	args := []string{"reconcile", "--json", "--limit", "2"}
	for runs := 1; ; runs++ {
		got := w.run(args...)
		if got.code == 2 || runs > 50 {
			t.Fatalf("run %d: %+v", runs, got)
		}
		all = append(all, found(t, got)...)
		sum := summary(t, got)
		if looked := sum["objects"].(float64) + sum["rows"].(float64); looked > 2 {
			t.Errorf("a run has looked at %v", looked)
		}
		after, ok := sum["after"].(string)
		if !ok {
			break
		}
		args = []string{"reconcile", "--json", "--limit", "2", "--after", after}
	}
	if diff := cmp.Diff(want, sameObjects(all)); diff != "" {
		t.Errorf("found in slices (-want +got):\n%s", diff)
	}
	got := w.run("reconcile", "--limit", "3")
	if !strings.Contains(got.out, "not complete; go on with --after ") {
		t.Errorf("it says %q", got.out)
	}
}

func TestReconcileReadsTwoRowsForEachOpenOrParkedOne(t *testing.T) {
	w := newWorldWithBucket(t)
	for range 30 {
		w.insert(row{})
		w.finished("", "PROCESSED")
	}
	for range 10 {
		w.parked("", inbox.Rejected)
	}
	w.insert(row{consumer: "billing"})
	w.insertKept([]byte("x"), nil)
	w.finishedKept([]byte("y"))
	w.tap.Reset()
	got := w.ok("reconcile", "--json")
	if sum := summary(t, got); sum["rows"] != 42.0 || sum["objects"] != 2.0 {
		t.Errorf("summary: %v", sum)
	}
	// Two for each of 42, and one for each of two objects; nothing of 31 finished ones.
	if got := w.tap.Rows(); got != 2*42+2 {
		t.Errorf("%d rows were read, want %d", got, 2*42+2)
	}
}

func TestReconcileTellsForbiddenFromMissing(t *testing.T) {
	w := newWorldWithBucket(t)
	id, o := w.insertKept([]byte("payload"), nil)
	w.bucket.Answer(func(rw http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/o") { // all but the list
			http.Error(rw, "no", http.StatusForbidden)
			return true
		}
		return false
	})
	got := w.run("reconcile", "--json", "--mend", "--reason", "x")
	if diff := cmp.Diff([]string{"unseen " + id}, found(t, got)); diff != "" || got.code != 1 {
		t.Errorf("exit code %d, found (-want +got):\n%s", got.code, diff)
	}
	w.bucket.Refuse(http.StatusForbidden)
	if got := w.refused(1, "roles/storage", "reconcile"); !strings.Contains(got.out, "go on with --after") {
		t.Errorf("an end before the end does not say where to go on: %q", got.out)
	}
	w.bucket.Refuse(0)
	if now := w.location(id); now != o {
		t.Errorf("the row has changed: %+v", now)
	}
}

// TestReconcileMeetsTheRelay has the message finish while its object is made anew.
func TestReconcileMeetsTheRelay(t *testing.T) {
	for _, test := range []struct {
		name  string
		after map[string]any
		finds []string
	}{
		{"which finishes the message before", map[string]any{"Status": "PROCESSED", "ProcessedAt": time.Now()}, []string{}},
		{"which claims the message before", map[string]any{"Status": "PROCESSING"}, []string{"marked"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorldWithBucket(t)
			id, o := w.insertKept([]byte("payload"), nil)
			w.finish(o, time.Now())
			looked := false
			w.bucket.Answer(func(_ http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodGet && strings.Contains(r.URL.Path, o.Name) && !looked {
					looked = true
					test.after["InboxId"] = id
					w.update("Messages", test.after)
				}
				return false
			})
			got := w.ok("reconcile", "--json", "--mend", "--reason", "x")
			kinds := []string{}
			for _, f := range found(t, got) {
				kinds = append(kinds, strings.Fields(f)[0])
			}
			if diff := cmp.Diff(test.finds, kinds); diff != "" {
				t.Errorf("found (-want +got):\n%s", diff)
			}
			if now := w.location(id); now != o || w.live(o.Name).Generation != o.Generation {
				t.Errorf("it was made anew under the relay's hands: %+v", now)
			}
		})
	}
	t.Run("which finishes the message while the object is made anew", func(t *testing.T) {
		w := newWorldWithBucket(t)
		id, o := w.insertKept([]byte("payload"), nil)
		w.finish(o, time.Now())
		w.bucket.Lose(func(r *http.Request, _ int) bool { // after the copy, before its answer; which is not lost
			if strings.Contains(r.URL.Path, "/rewriteTo/") {
				w.update("Messages", map[string]any{"InboxId": id, "Status": "PROCESSED", "ProcessedAt": time.Now()})
			}
			return false
		})
		got := w.ok("reconcile", "--json", "--mend", "--reason", "x")
		if sum := summary(t, got); sum["mended"] != 0.0 || !strings.Contains(got.out, "has changed meanwhile") {
			t.Errorf("it says %s", got.out)
		}
		if attrs := w.live(o.Name); attrs.Generation == o.Generation || attrs.CustomTime.IsZero() {
			t.Errorf("the object that was made anew for nothing stays for ever: %+v", attrs)
		}
		if now := w.location(id); now != o {
			t.Errorf("a finished row was changed: %+v", now)
		}
		// It can still be reopened.
		w.bucket.Lose(nil)
		w.ok("reopen", id, "--force", "--reason", "x")
		w.agrees(id)
	})
}

// An object that is marked while its message is being stored is found by the same run.
func TestReconcileFindsWhatItMarkedUnderReceivesHands(t *testing.T) {
	w := newWorldWithBucket(t)
	w.later()
	body := []byte("payload")
	messageID := "late"
	m := inbox.Message{ID: inbox.ID(inbox.TransportIdentity, consumer, "sub", messageID), Consumer: consumer, Scope: "sub", DedupeKey: messageID,
		OrderedAt: time.Now(), Status: inbox.Received, Route: "r", ContentSHA256: "x", PayloadSHA256: inbox.SHA256(body), PayloadBytes: int64(len(body))}
	m.LaneID = inbox.OwnLaneID(consumer, m.ID)
	o, err := w.objects.Put(t.Context(), m.ID, m.PayloadSHA256, body, "")
	if err != nil {
		t.Fatal(err)
	}
	m.PayloadLocation = o.Location()
	w.bucket.Answer(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPatch { // it is about to be marked as an orphan
			if err := w.store.Insert(t.Context(), &inbox.Arrival{Message: m}); err != nil {
				t.Error(err)
			}
		}
		return false
	})
	got := w.ok("reconcile", "--json", "--mend", "--reason", "x")
	if sum := summary(t, got); sum["mended"] != 2.0 {
		t.Errorf("it says %s", got.out)
	}
	w.agrees(m.ID)
}

func TestReconcileCommandLines(t *testing.T) {
	w := newWorldWithBucket(t)
	for _, test := range []struct {
		want string
		args []string
	}{
		{"--reason is missing", []string{"--mend"}},
		{"--limit is 0", []string{"--limit", "0"}},
		{"--after is", []string{"--after", "x"}},
		{"--after is", []string{"--after", "e30"}},
		{"--route goes with --import only", []string{"--route", "r"}},
		{"--import needs --route", []string{"--import"}},
		{"--import needs --created-after", []string{"--import", "--route", "r"}},
		{"--created-after is \"yesterday\"", []string{"--import", "--route", "r", "--created-after", "yesterday"}},
		{"--created-after goes with --import only", []string{"--created-after", "2026-01-01"}},
	} {
		w.refused(2, test.want, append([]string{"reconcile"}, test.args...)...)
	}
	c := cursor{Phase: phaseImport, Name: "x"}
	w.refused(2, "this run is the other one", "reconcile", "--after", c.text())
	delete(w.env, "PAYLOAD_BUCKET")
	w.refused(2, "set PAYLOAD_BUCKET", "reconcile")
}

// What operations.md says is run as it stands there: closing a message by hand ends its payload too, in its row and in an object.
func TestDiscardingAsDocumentedEndsThePayload(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	statements := regexp.MustCompile(`(?m)^ +(UPDATE (?:Messages|Payloads) SET .*)$`).FindAllStringSubmatch(string(text), -1)
	if len(statements) != 2 {
		t.Fatalf("%d statements, want 2: %q", len(statements), statements)
	}
	w := newWorldWithBucket(t)
	discard := func(id string) {
		for _, s := range statements {
			sql := strings.ReplaceAll(s[1], "'...'", "'"+id+"'")
			changed := int64(0)
			_, err := w.client.ReadWriteTransaction(t.Context(), func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
				var err error
				changed, err = txn.Update(ctx, spanner.Statement{SQL: sql})
				return err
			})
			if err != nil {
				t.Fatalf("%s: %v", sql, err)
			}
			if changed != 1 {
				return
			}
		}
	}
	inline := w.parked("WO-1", inbox.Rejected)
	kept, o := w.insertKept([]byte("in an object"), map[string]any{"Status": "PARKED", "Reason": "REJECTED"})
	open := w.insert(row{})
	for _, id := range []string{inline, kept, open} {
		discard(id)
	}
	for _, id := range []string{inline, kept} {
		if status, purge, payload := w.text("Messages", id, "Status"), w.text("Messages", id, "PurgeAt"), w.text("Payloads", id, "PurgeAt"); status != "DISCARDED" || purge == "<null>" || payload == "<null>" || payload >= purge {
			t.Errorf("it is %s, kept until %s, its payload until %s", status, purge, payload)
		}
	}
	if status, payload := w.text("Messages", open, "Status"), w.text("Payloads", open, "PurgeAt"); status != "RECEIVED" || payload != "<null>" {
		t.Errorf("an open message is %s, its payload kept until %s", status, payload)
	}
	w.ok("reconcile", "--mend", "--reason", "x")
	if w.live(o.Name).CustomTime.IsZero() {
		t.Error("the object of a discarded message is not marked for deletion")
	}
}
