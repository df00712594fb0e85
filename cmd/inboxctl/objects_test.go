package main

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/storage"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/pubsub-inbox/pubsub-inbox/internal/claimcheck"
	"github.com/pubsub-inbox/pubsub-inbox/internal/config"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/emulatortest"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/rpctap"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/spannerstore"
)

// newWorldWithBucket is newWorld with a bucket for payloads.
func newWorldWithBucket(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.bucket = emulatortest.NewBucket(t)
	w.objects = claimcheck.New(w.bucket.Name, w.bucket.Options()...)
	t.Cleanup(func() { _ = w.objects.Close() })
	w.env["PAYLOAD_BUCKET"] = w.bucket.Name
	return w
}

// later lets the program's clock be a day and more ahead, so that no object is too young.
func (w *world) later() { w.now = func() time.Time { return time.Now().Add(25 * time.Hour) } }

// insertKept stores a message whose payload is an object.
func (w *world) insertKept(body []byte, after map[string]any) (string, inbox.Object) {
	w.t.Helper()
	var o inbox.Object
	id := w.insert(row{arrival: func(m *inbox.Message) {
		var err error
		if o, err = w.objects.Put(w.t.Context(), m.ID, inbox.SHA256(body), body, "application/json"); err != nil {
			w.t.Fatal(err)
		}
		m.PayloadSHA256, m.PayloadBytes, m.PayloadLocation = o.SHA256, o.Bytes, o.Location()
	}, after: after})
	return id, o
}

// finishedKept stores one that is through, and whose object is marked, as the relay leaves it.
func (w *world) finishedKept(body []byte) (string, inbox.Object) {
	w.t.Helper()
	at := time.Now().UTC()
	id, o := w.insertKept(body, map[string]any{"Status": "PROCESSED", "Attempts": 1, "ProcessedAt": at, "PurgeAfter": at.Add(75 * 24 * time.Hour)})
	w.update("Payloads", map[string]any{"InboxId": id, "PurgeAt": at.Add(14 * 24 * time.Hour)})
	w.finish(o, at)
	return id, o
}

func (w *world) finish(o inbox.Object, at time.Time) {
	w.t.Helper()
	if err := w.objects.Finish(w.t.Context(), o, at); err != nil {
		w.t.Fatal(err)
	}
}

// live returns what is in the bucket under a name. Nil: nothing.
func (w *world) live(name string) *storage.ObjectAttrs {
	w.t.Helper()
	for _, attrs := range w.bucket.Objects() {
		if attrs.Name == name {
			return attrs
		}
	}
	return nil
}

// location returns what the row says of its payload.
func (w *world) location(id string) inbox.Object {
	w.t.Helper()
	o, err := inbox.ParseLocation(w.text("Messages", id, "PayloadLocation"))
	if err != nil {
		w.t.Fatal(err)
	}
	return o
}

// agrees checks that a row names the generation that is there, and that this is not marked.
func (w *world) agrees(id string) {
	w.t.Helper()
	o := w.location(id)
	attrs := w.live(o.Name)
	if attrs == nil || attrs.Generation != o.Generation || !attrs.CustomTime.IsZero() {
		w.t.Errorf("the row names %s; what is there is %+v", o.Pinned(), attrs)
	}
}

func TestShowPayloadReadsAnObjectByteForByte(t *testing.T) {
	w := newWorldWithBucket(t)
	body := bytes.Repeat([]byte{0, 1, 2, 253, 254, 255, '\n', '"'}, 200_000)
	id, o := w.insertKept(body, nil)
	got := w.ok("show", "--payload", id)
	if got.out != string(body) || got.stderr != "" {
		t.Errorf("%d bytes, want %d, the same ones; standard error %q", len(got.out), len(body), got.stderr)
	}
	if got := w.ok("show", id).out; !strings.Contains(got, o.Location()) {
		t.Errorf("show does not say where the payload is:\n%s", got)
	}

	w.bucket.Refuse(http.StatusForbidden)
	if got := w.refused(1, "you may not see", "show", "--payload", id); got.out != "" || !strings.Contains(got.stderr, "roles/storage") || strings.Contains(got.stderr, "gone") {
		t.Errorf("forbidden: %+v", got)
	}
	w.bucket.Refuse(0)
	w.bucket.Write(o.Name, []byte("something else"), nil)
	if got := w.refused(1, "which is gone", "show", "--payload", id); got.out != "" || !strings.Contains(got.stderr, "another generation") {
		t.Errorf("replaced: %+v", got)
	}
	w.bucket.Delete(o.Name)
	if got := w.refused(1, "which is gone", "show", "--payload", id); got.out != "" || !strings.Contains(got.stderr, o.Pinned()) {
		t.Errorf("gone: %+v", got)
	}
	// The right generation with the wrong content: the row's own hash decides.
	other, at := w.insertKept([]byte("right"), nil)
	w.update("Messages", map[string]any{"InboxId": other, "PayloadSha256": inbox.SHA256([]byte("wrong"))})
	if got := w.refused(1, at.Pinned(), "show", "--payload", other); got.out != "" {
		t.Errorf("another hash: %+v", got)
	}
}

func TestReferencesAndSourceAttemptsAreShown(t *testing.T) {
	w := newWorldWithBucket(t)
	referring := w.insert(row{arrival: func(m *inbox.Message) {
		m.Claim = inbox.Object{Bucket: "reports", Name: "2026/a b.json", Generation: 17, SHA256: strings.Repeat("a", 64)}
	}})
	unpinned := w.insert(row{arrival: func(m *inbox.Message) {
		m.Claim = inbox.Object{Bucket: "reports", Name: "x"}
		m.FromDeadLetter, m.SourceAttempts = true, 7
	}})
	kept, o := w.insertKept([]byte("payload"), nil)
	w.update("Messages", map[string]any{"InboxId": kept, "ClaimUri": "gs://reports/y"})
	plain := w.insert(row{})
	want := map[string]map[string]any{
		referring: {"payloadLocation": "gs://reports/2026/a b.json#17", "claimReference": "gs://reports/2026/a b.json#17"},
		unpinned:  {"payloadLocation": "gs://reports/x", "claimReference": "gs://reports/x", "sourceAttempts": 7.0},
		kept:      {"payloadLocation": o.Location(), "claimReference": "gs://reports/y"},
		plain:     {"payloadLocation": nil},
	}
	for _, object := range w.listed() {
		got := map[string]any{}
		for _, name := range []string{"payloadLocation", "claimReference", "sourceAttempts"} {
			if value, ok := object[name]; ok {
				got[name] = value
			}
		}
		if diff := cmp.Diff(want[object["id"].(string)], got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if got := w.ok("show", referring).out; !strings.Contains(got, "gs://reports/2026/a b.json#17") || strings.Contains(got, "source attempts") {
		t.Errorf("show of one that refers to an object:\n%s", got)
	}
	if got := w.ok("show", unpinned).out; !strings.Contains(got, "source attempts") || !strings.Contains(got, "7, before") {
		t.Errorf("show of a dead letter:\n%s", got)
	}
}

func TestReopenByForceMakesTheObjectAnew(t *testing.T) {
	w := newWorldWithBucket(t)
	body := []byte(`{"large":"payload"}`)
	id, old := w.finishedKept(body)

	got := w.ok("reopen", id, "--force", "--reason", "x", "--dry-run")
	if now := w.location(id); now != old || !strings.Contains(got.out, "would be reopened") || w.live(old.Name).Generation != old.Generation {
		t.Errorf("a dry run changed something: %+v, %q", now, got.out)
	}
	w.ok("reopen", id, "--force", "--reason", "the engine lost it")
	now := w.location(id)
	if now.Generation == old.Generation || now.URI() != old.URI() || now.SHA256 != old.SHA256 || now.Bytes != old.Bytes {
		t.Errorf("it was %+v and is %+v", old, now)
	}
	w.agrees(id)
	if got := w.ok("show", "--payload", id).out; got != string(body) {
		t.Errorf("the payload is %q", got)
	}
	shown := w.ok("show", id).out
	if !strings.Contains(shown, "reopen-forced") || !strings.Contains(shown, now.Location()) || strings.Count(shown, old.Location()) != 1 {
		t.Errorf("the audit does not say where the payload was and is:\n%s", shown)
	}
	// The relay that finished it marks what it knows, however late.
	w.finish(old, time.Now())
	w.agrees(id)

	// Also where the mark is not there yet: the relay may be about to set it.
	unmarked, first := w.insertKept(body, map[string]any{"Status": "DISCARDED", "ProcessedAt": time.Now()})
	w.ok("reopen", unmarked, "--force", "--reason", "x")
	w.finish(first, time.Now())
	w.agrees(unmarked)

	// A parked message's object is not marked, and nobody will mark it: it stays as it is.
	parked, o := w.insertKept(body, map[string]any{"Status": "PARKED", "Reason": "REJECTED", "Attempts": 1})
	w.ok("reopen", parked, "--reason", "x")
	if now := w.location(parked); now != o {
		t.Errorf("the object of a parked message was made anew: %+v", now)
	}
}

func TestReopenRefusesWhatHasNoObjectAnyMore(t *testing.T) {
	w := newWorldWithBucket(t)
	gone, o := w.finishedKept([]byte("gone"))
	w.bucket.Delete(o.Name)
	replaced, r := w.finishedKept([]byte("replaced"))
	w.bucket.Write(r.Name, []byte("other..."), nil)
	forbidden, _ := w.finishedKept([]byte("forbidden"))
	for _, test := range []struct {
		name, id, want string
		status         int
	}{
		{"gone", gone, "refused: its payload is the object " + o.Pinned() + ", which is gone", 0},
		{"replaced", replaced, "refused: its payload is the object " + r.Pinned() + ", and what is there is not what was received", 0},
		{"forbidden", forbidden, "you may not see", http.StatusForbidden},
	} {
		for _, dry := range []string{"--dry-run=false", "--dry-run"} {
			t.Run(test.name+" "+dry, func(t *testing.T) {
				w.t = t
				w.bucket.Refuse(test.status)
				defer w.bucket.Refuse(0)
				before := w.columns(test.id, "Status", "PayloadLocation")
				w.refused(1, test.want, "reopen", test.id, "--force", "--reason", "x", dry)
				if diff := cmp.Diff(before, w.columns(test.id, "Status", "PayloadLocation")); diff != "" {
					t.Errorf("a refusal changed the message:\n%s", diff)
				}
			})
		}
	}
	w.t = t
	w.bucket.Calls()
	w.refused(1, "--force reopens it all the same", "reopen", forbidden, "--reason", "x")
	if calls := w.bucket.Calls(); len(calls) > 0 {
		t.Errorf("what is refused anyway costs %v", calls)
	}
	if n := w.count("SELECT COUNT(*) FROM Audit"); n != 0 {
		t.Errorf("%d audit entries of actions that were refused", n)
	}
}

func TestReopenWhoseTransactionFailsAfterTheObjectWasMadeAnew(t *testing.T) {
	w := newWorldWithBucket(t)
	body := []byte("payload")
	again, old := w.finishedKept(body)
	mended, first := w.finishedKept([]byte("another"))
	for _, id := range []string{again, mended} {
		w.tap.Reset()
		w.tap.FailNth("Commit", 1, rpctap.Error(codes.PermissionDenied))
		w.refused(1, "PermissionDenied", "reopen", id, "--force", "--reason", "x")
	}
	w.tap.Reset()
	if now := w.location(again); now != old || w.live(old.Name).Generation == old.Generation || w.text("Messages", again, "Status") != "PROCESSED" {
		t.Fatalf("this is not the state that the test is about: %+v", now)
	}
	// A second reopen takes the equal generation that is there.
	w.ok("reopen", again, "--force", "--reason", "x")
	w.agrees(again)
	if got := w.ok("show", "--payload", again).out; got != string(body) {
		t.Errorf("the payload is %q", got)
	}
	// And where nobody tries again, reconcile sees to it that the object goes one day.
	w.later()
	w.ok("reconcile", "--mend", "--reason", "x")
	if attrs := w.live(first.Name); attrs.CustomTime.IsZero() {
		t.Error("the object that was made anew for nothing stays for ever")
	}
	w.agrees(again)
}

func TestReopenOfTwoOperatorsAtOnceLeavesTheObjectThatIsThere(t *testing.T) {
	w := newWorldWithBucket(t)
	for _, first := range []string{"the slow one's object comes first", "the slow one's object comes last"} {
		t.Run(first, func(t *testing.T) {
			w.t = t
			id, _ := w.finishedKept([]byte(first))
			// The slow one is held before its transaction reads, or before it makes its object, while the quick one does it all.
			arrived, release := make(chan struct{}), make(chan struct{})
			if strings.HasSuffix(first, "last") {
				held := false
				w.bucket.Answer(func(_ http.ResponseWriter, r *http.Request) bool {
					if strings.Contains(r.URL.Path, "/rewriteTo/") && !held {
						held = true
						close(arrived)
						<-release
					}
					return false
				})
			} else {
				w.tap.Reset()
				w.tap.Before("StreamingRead", func(_ ctx, n int, _ any) error {
					if n == 3 { // row and payload are read before; this is the transaction
						close(arrived)
						<-release
					}
					return nil
				})
			}
			slow := make(chan answer, 1)
			go func() { slow <- w.run("reopen", id, "--force", "--reason", "slow") }()
			<-arrived
			quick := &app{now: time.Now, options: emulatortest.ClientOptions(t), storageOptions: w.bucket.Options()}
			got := runApp(t, quick, w.env, "", "reopen", id, "--force", "--reason", "quick")
			close(release)
			late := <-slow
			w.bucket.Answer(nil)
			w.tap.Reset()
			if got.code != 0 || late.code != 1 || !strings.Contains(late.stderr, "already open") && !strings.Contains(late.stderr, "412") && !strings.Contains(late.stderr, "gone") {
				t.Errorf("quick: %+v, slow: %+v", got, late)
			}
			w.agrees(id)
		})
	}
}

// Of several that each made an object anew, the last one stays, whatever the order of their commits.
func TestRelocateNeverGoesBack(t *testing.T) {
	w := newWorldWithBucket(t)
	id, o := w.insertKept([]byte("x"), nil)
	gone, _ := w.insertKept([]byte("y"), map[string]any{"Status": "PROCESSED"})
	at := func(o inbox.Object, more int64) string { o.Generation += more; return o.Location() }
	other := o
	other.Name += "0"
	for _, test := range []struct {
		name, id, to string
		want         bool
	}{
		{"a newer generation", id, at(o, 2), true},
		{"the same one", id, at(o, 2), false},
		{"an older one", id, at(o, 1), false},
		{"another object", id, at(other, 3), false},
		{"of a finished message", gone, at(w.location(gone), 1), false},
		{"of a message that is not there", unknownID, at(o, 3), false},
	} {
		moved, err := w.store.Relocate(t.Context(), spannerstore.Relocation{ID: test.id, To: test.to, Actor: "bob", Action: "reconcile", Reason: "x"})
		if moved != test.want || err != nil {
			t.Errorf("%s: %t, %v", test.name, moved, err)
		}
	}
	if got := w.location(id).Location(); got != at(o, 2) || w.count("SELECT COUNT(*) FROM Audit") != 1 {
		t.Errorf("in the end it is %s", got)
	}
	if _, err := w.store.Relocate(t.Context(), spannerstore.Relocation{ID: id, To: "gs://b/x"}); err == nil {
		t.Error("no location is written")
	}
}

const claiming = "claimCheck: {threshold: 1KiB, buckets: [reports]}\n"

func TestRerouteReadsAPayloadThatIsAnObject(t *testing.T) {
	w := newWorldWithBucket(t)
	body := []byte(`{"key":"WO-1","report":"gs://reports/new#1796000000000005"}`)
	id, o := w.insertKept(body, map[string]any{"Status": "PARKED", "Reason": "NO_ROUTE", "Route": nil, "ClaimUri": "gs://reports/old", "ClaimGeneration": 3, "ClaimSha256": "x"})
	cfg := file(t, claiming+configOf(`{name: r, key: payload.key, claim: payload.report, engine: e, message: M}`))
	w.ok("reroute", id, "--config", cfg, "--reason", "x")
	want := map[string]string{"CorrelationKey": "WO-1", "ClaimUri": "gs://reports/new", "ClaimGeneration": "1796000000000005", "ClaimSha256": "<null>",
		"PayloadLocation": o.Location(), "Status": "RECEIVED"}
	if diff := cmp.Diff(want, w.columns(id, "CorrelationKey", "ClaimUri", "ClaimGeneration", "ClaimSha256", "PayloadLocation", "Status")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	w.agrees(id)
	// A route without a claim refers to nothing.
	w.ok("reroute", id, "--config", file(t, configOf(`{name: r, key: payload.key, engine: e, message: M}`)), "--reason", "x")
	if got := w.columns(id, "ClaimUri", "ClaimGeneration"); got["ClaimUri"] != "<null>" || got["ClaimGeneration"] != "<null>" {
		t.Errorf("the old reference is still there: %v", got)
	}
	w.refused(1, "its bucket is none of those in claimCheck.buckets", "reroute", id, "--reason", "x", "--config",
		file(t, "claimCheck: {buckets: [other]}\n"+configOf(`{name: r, key: payload.key, claim: payload.report, engine: e, message: M}`)))
	w.bucket.Refuse(http.StatusForbidden)
	w.refused(1, "you may not see", "reroute", id, "--config", cfg, "--reason", "x")
	w.bucket.Refuse(0)
	w.bucket.Delete(o.Name)
	w.refused(1, "which is gone", "reroute", id, "--config", cfg, "--reason", "x")
}

// An object is named after its message: a message that gets another id gets an object of that name, or reconcile would take
// the old one for an orphan.
func TestAMovedMessageTakesItsObjectAlong(t *testing.T) {
	w := newWorldWithBucket(t)
	body := []byte(`{"key":"WO-1","large":"` + strings.Repeat("x", 2000) + `"}`)
	old, o := w.insertKept(body, map[string]any{"Status": "PARKED", "Reason": "NO_ROUTE", "Route": nil})
	w.update("Payloads", map[string]any{"InboxId": old, "ContentType": "text/x"})
	cfg := file(t, claiming+configOf(`{name: r, key: payload.key, dedupe: payload.key, engine: e, message: M}`))
	w.ok("reroute", old, "--config", cfg, "--reason", "x", "--dry-run")
	if n := len(w.bucket.Objects()); n != 1 {
		t.Errorf("a dry run leaves %d objects, want 1", n)
	}
	w.ok("reroute", old, "--config", cfg, "--reason", "x")
	id := inbox.ID(inbox.BusinessIdentity, consumer, "sub", "WO-1")
	if want := id + "/" + inbox.SHA256(body); w.location(id).Name != want {
		t.Errorf("its object is %s, want %s", w.location(id).Name, want)
	}
	w.agrees(id)
	if got := w.ok("show", "--payload", id).out; got != string(body) || w.text("Payloads", id, "ContentType") != "text/x" {
		t.Errorf("its payload has %d bytes of %s", len(got), w.text("Payloads", id, "ContentType"))
	}
	if w.live(o.Name).CustomTime.IsZero() {
		t.Error("the old object is not marked for deletion")
	}
	if sum := summary(t, w.ok("reconcile", "--json")); sum["findings"] != 0.0 {
		t.Errorf("reconcile: %v", sum)
	}
}

func TestRerouteOfAnUnreadableMessagePutsItsContentWhereItsSizeBelongs(t *testing.T) {
	w := newWorldWithBucket(t)
	cfg := file(t, claiming+configOf(`{name: r, key: attributes.key, engine: e, message: M}`))
	large := strings.Repeat("large ", 1000)
	for _, test := range []struct {
		name, data        string
		wasKept, kept     bool
		withoutBucket     bool
		wantOld, wantSize int
	}{
		{"from an object to an object", large, true, true, false, 1, len(large)},
		{"from an object to its row", "small", true, false, false, 1, 5},
		{"from its row to an object", large, false, true, false, 0, len(large)},
		{"from its row to its row", "small", false, false, false, 0, 5},
		{"without a bucket", large, false, false, true, 0, len(large)},
	} {
		t.Run(test.name, func(t *testing.T) {
			w.t = t
			request := []byte(push("m of "+test.name, `,"attributes":{"key":"WO-1"}`, test.data))
			var o inbox.Object
			id := w.insert(row{body: map[bool][]byte{false: request}[test.wasKept], arrival: func(m *inbox.Message) {
				m.Status, m.Reason, m.Route = inbox.Parked, inbox.Unreadable, ""
				m.PayloadSHA256, m.PayloadBytes = inbox.SHA256(request), int64(len(request))
				if test.wasKept {
					var err error
					if o, err = w.objects.Put(t.Context(), m.ID, m.PayloadSHA256, request, "application/json"); err != nil {
						t.Fatal(err)
					}
					m.PayloadLocation = o.Location()
				}
			}})
			if test.withoutBucket {
				delete(w.env, config.EnvPayloadBucket)
				defer func() { w.env[config.EnvPayloadBucket] = w.bucket.Name }()
			}
			before := len(w.bucket.Objects())
			w.ok("reroute", id, "--config", cfg, "--reason", "x", "--dry-run")
			if len(w.bucket.Objects()) != before {
				t.Error("a dry run wrote an object")
			}
			w.ok("reroute", id, "--config", cfg, "--reason", "the reader was corrected")
			if got := w.ok("show", "--payload", id).out; got != test.data {
				t.Errorf("the payload has %d bytes, want %d, the same ones", len(got), len(test.data))
			}
			if kept := w.text("Messages", id, "PayloadLocation") != "<null>"; kept != test.kept {
				t.Errorf("its content is an object: %t, want %t", kept, test.kept)
			}
			if test.kept {
				w.agrees(id)
				if want := id + "/" + inbox.SHA256([]byte(test.data)); w.location(id).Name != want {
					t.Errorf("its object is %s, want %s", w.location(id).Name, want)
				}
				if got := w.text("Payloads", id, "Body"); got != "" {
					t.Errorf("its row has %d bytes, too", len(got))
				}
			}
			if test.wasKept && w.live(o.Name).CustomTime.IsZero() {
				t.Error("the object of its raw form is not marked for deletion")
			}
		})
	}
}

func TestReopenAndRerouteRunWithoutABucket(t *testing.T) {
	w := newWorld(t)
	w.ok("reopen", w.finished("", "PROCESSED"), "--force", "--reason", "x")
	w.env["PAYLOAD_BUCKET"] = "gs://bucket/folder"
	w.refused(2, "must be a bare bucket name", "reopen", w.parked("", inbox.Rejected), "--reason", "x")
}
