package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/storage"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/pubsub-inbox/pubsub-inbox/internal/config"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/emulatortest"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/rpctap"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/receiver"
	"github.com/pubsub-inbox/pubsub-inbox/internal/routing"
)

// reports is a bucket of a sender, and the configuration that takes its notifications.
type reports struct {
	w      *world
	bucket *emulatortest.Bucket
	text   string
	file   string
}

// The route as C078 asks for it, for what lies in the folder in/.
const reportRoute = `{name: report, match: 'attributes.eventType == "OBJECT_FINALIZE" && attributes.objectId.startsWith("in/")', type: attributes.eventType, ` +
	`key: attributes.objectId, dedupe: 'hash([attributes.bucketId, attributes.objectId, attributes.objectGeneration, attributes.eventType])', scope: consumer, ` +
	`claim: {bucket: attributes.bucketId, object: attributes.objectId, generation: attributes.objectGeneration}, engine: e, message: M}`

func newReports(w *world, routes ...string) *reports {
	w.t.Helper()
	r := &reports{w: w, bucket: emulatortest.NewBucket(w.t)}
	r.text = "claimCheck: {threshold: 1KiB, buckets: [" + r.bucket.Name + "]}\n" + configOf(routes...)
	r.file = file(w.t, r.text)
	// One server holds all buckets: what stands before the payloads' bucket is not asked for.
	w.bucket = r.bucket
	w.later()
	return r
}

// notify is a push of the notification that Cloud Storage sends about an object.
func (r *reports) notify(id, name string, generation int64) string {
	payload := fmt.Sprintf("{\n  \"kind\": \"storage#object\",\n  \"name\": %q,\n  \"etag\": \"only the server knows\"\n}\n", name)
	body, err := json.Marshal(map[string]any{"subscription": "projects/p/subscriptions/s", "message": map[string]any{
		"messageId": id, "publishTime": "2026-03-02T08:15:30.123Z", "data": base64.StdEncoding.EncodeToString([]byte(payload)),
		"attributes": map[string]string{"bucketId": r.bucket.Name, "objectId": name, "objectGeneration": strconv.FormatInt(generation, 10),
			"eventType": "OBJECT_FINALIZE", "eventTime": "2026-03-02T08:15:29.950000Z", "payloadFormat": "JSON_API_V1",
			"notificationConfig": "projects/_/buckets/" + r.bucket.Name + "/notificationConfigs/7"}}})
	if err != nil {
		r.w.t.Fatal(err)
	}
	return string(body)
}

// receive stores a push as the receive function does.
func (r *reports) receive(push string) receiver.Outcome {
	r.w.t.Helper()
	cfg, _, err := config.Parse("inbox.yaml", []byte(r.text))
	if err != nil {
		r.w.t.Fatal(err)
	}
	router, err := routing.New(cfg)
	if err != nil {
		r.w.t.Fatal(err)
	}
	receive := receiver.Receiver{Consumer: cfg.Consumer, Store: r.w.store, Router: router, Buckets: cfg.ClaimCheck.Buckets,
		Log: slog.New(slog.DiscardHandler), Now: time.Now}
	outcome, err := receive.Receive(r.w.t.Context(), []byte(push))
	if err != nil {
		r.w.t.Fatal(err)
	}
	return outcome
}

func (r *reports) imports(args ...string) answer {
	r.w.t.Helper()
	return r.w.run(append([]string{"reconcile", "--import", "--route", "report", "--config", r.file, "--created-after", "2020-01-01", "--json"}, args...)...)
}

var mending = []string{"--mend", "--reason", "the topic was missing", "--actor", "bob"}

func TestImportMakesMessagesOfObjectsThatNoneHasAnnounced(t *testing.T) {
	w := newWorldWithBucket(t)
	r := newReports(w, reportRoute)
	announced := r.bucket.Write("in/announced.json", []byte("a"), nil)
	r.receive(r.notify("m-1", "in/announced.json", announced))
	// Written over since: the new generation is another one.
	overwritten := r.bucket.Write("in/overwritten.json", []byte("1"), nil)
	r.receive(r.notify("m-2", "in/overwritten.json", overwritten))
	newer := r.bucket.Write("in/overwritten.json", []byte("2"), nil)
	// A message that does not say which generation announces any.
	r.bucket.Write("in/any.json", []byte("x"), nil)
	w.insert(row{arrival: func(m *inbox.Message) { m.Claim = inbox.Object{Bucket: r.bucket.Name, Name: "in/any.json"} }})
	// One of another consumer announces nothing to this one.
	others := r.bucket.Write("in/other's.json", []byte("x"), nil)
	w.insert(row{consumer: "billing", arrival: func(m *inbox.Message) {
		m.Claim = inbox.Object{Bucket: r.bucket.Name, Name: "in/other's.json", Generation: others}
	}})
	lost := r.bucket.Write("in/lost report 1.json", []byte("content"), func(o *storage.Writer) {
		o.ContentType, o.Metadata = "application/json", map[string]string{"origin": "batch"}
	})
	r.bucket.Write("out/not of this route", []byte("x"), nil)

	want := map[string]int64{"in/overwritten.json": newer, "in/other's.json": others, "in/lost report 1.json": lost}
	got := r.imports()
	if sum := summary(t, got); got.code != 0 || sum["findings"] != 3.0 || sum["mended"] != 0.0 || sum["unmatched"] != 1.0 {
		t.Errorf("exit code %d, %v", got.code, sum)
	}
	for _, o := range objects(t, got.out)[:3] {
		name, generation, _ := strings.Cut(strings.TrimPrefix(o["object"].(string), "gs://"+r.bucket.Name+"/"), "#")
		if o["finding"] != "unannounced" || strconv.FormatInt(want[name], 10) != generation {
			t.Errorf("found %v", o)
		}
	}
	if n := w.count("SELECT COUNT(*) FROM Messages"); n != 4 {
		t.Errorf("a dry run leaves %d rows, want 4", n)
	}

	got = r.imports(mending...)
	if sum := summary(t, got); got.code != 0 || sum["mended"] != 3.0 {
		t.Errorf("exit code %d, %v: %s", got.code, sum, got.out)
	}
	id := ""
	for _, o := range objects(t, got.out)[:3] {
		if strings.Contains(o["object"].(string), "lost") {
			id = o["inboxId"].(string)
		}
	}
	rows, err := w.store.Rows(t.Context(), []string{id})
	if err != nil {
		t.Fatal(err)
	}
	m := rows[id].Message
	created := w.live("in/lost report 1.json").Created
	wantMessage := inbox.Message{
		ID: id, Consumer: consumer, Scope: consumer, DedupeKey: m.DedupeKey, PublishedAt: created, OrderedAt: created, ReceivedAt: m.ReceivedAt,
		Type: "OBJECT_FINALIZE", Route: "report", Key: "in/lost report 1.json", LaneID: inbox.LaneID(consumer, "", inbox.OrderPublished, "in/lost report 1.json"),
		Status: inbox.Received, Claim: inbox.Object{Bucket: r.bucket.Name, Name: "in/lost report 1.json", Generation: lost},
		Attributes: map[string]string{"bucketId": r.bucket.Name, "objectId": "in/lost report 1.json", "objectGeneration": strconv.FormatInt(lost, 10),
			"eventType": "OBJECT_FINALIZE", "eventTime": created.UTC().Format(time.RFC3339Nano), "payloadFormat": "JSON_API_V1"},
		ContentSHA256: m.ContentSHA256, PayloadSHA256: m.PayloadSHA256, PayloadBytes: m.PayloadBytes,
	}
	if diff := cmp.Diff(wantMessage, m); diff != "" {
		t.Errorf("the row (-want +got):\n%s", diff)
	}
	if want := inbox.ID(inbox.BusinessIdentity, consumer, consumer, m.DedupeKey); id != want {
		t.Errorf("its id is %s, want %s", id, want)
	}
	payload := w.ok("show", "--payload", id).out
	var resource map[string]any
	if err := json.Unmarshal([]byte(payload), &resource); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{"kind": "storage#object", "bucket": r.bucket.Name, "name": "in/lost report 1.json", "size": "7",
		"generation": strconv.FormatInt(lost, 10), "contentType": "application/json", "metadata": map[string]any{"origin": "batch"},
		"id": fmt.Sprintf("%s/in/lost report 1.json/%d", r.bucket.Name, lost)} {
		if diff := cmp.Diff(want, resource[name]); diff != "" {
			t.Errorf("%s of the resource (-want +got):\n%s", name, diff)
		}
	}
	if woken := w.text("Lanes", m.LaneID, "WokenAt"); woken == "<null>" || woken == "<none>" {
		t.Errorf("its lane is not woken: %s", woken)
	}
	if n := w.count(fmt.Sprintf("SELECT COUNT(*) FROM Audit WHERE InboxId = '%s' AND Action = 'import' AND Actor = 'bob' AND Reason = 'the topic was missing' AND After IS NOT NULL", id)); n != 1 {
		t.Errorf("%d audit entries", n)
	}

	// A second time there is nothing left to do.
	got = r.imports(mending...)
	if sum := summary(t, got); sum["findings"] != 0.0 || w.count("SELECT COUNT(*) FROM Messages") != 7 {
		t.Errorf("the second run: %v", sum)
	}
	// The notification comes after all.
	if outcome := r.receive(r.notify("m-late", "in/lost report 1.json", lost)); outcome != receiver.Repeat {
		t.Errorf("a notification that comes late is %s", outcome)
	}
	if n := w.count("SELECT COUNT(*) FROM Messages"); n != 7 {
		t.Errorf("a notification that comes late makes row %d", n)
	}
	if got := w.ok("show", id).out; !strings.Contains(got, "m-late") {
		t.Errorf("show does not say that it came:\n%s", got)
	}
}

// A route whose dedupe and claim do not name the generation takes all versions of an object for one message. What announces a
// later version is then no repetition of the import: it contradicts it, as it contradicts a message.
func TestANewVersionOfAnImportedObjectIsStored(t *testing.T) {
	nameless := strings.NewReplacer("attributes.objectGeneration, attributes.eventType", "attributes.eventType",
		", generation: attributes.objectGeneration", "").Replace(reportRoute)
	for _, relayed := range []bool{false, true} {
		t.Run(fmt.Sprintf("the relay has noted the version that it found: %t", relayed), func(t *testing.T) {
			w := newWorldWithBucket(t)
			r := newReports(w, nameless)
			first := r.bucket.Write("in/x.json", []byte("1"), nil)
			got := r.imports(mending...)
			if sum := summary(t, got); sum["mended"] != 1.0 {
				t.Fatalf("the import: %+v", got)
			}
			id := objects(t, got.out)[0]["inboxId"].(string)
			second := r.bucket.Write("in/x.json", []byte("2"), nil)
			if relayed { // the object that a claim without a generation refers to is whatever is there
				w.update("Messages", map[string]any{"InboxId": id, "ClaimGeneration": second})
			}
			if outcome := r.receive(r.notify("m-2", "in/x.json", second)); outcome != receiver.Stored {
				t.Errorf("the notification of the second version is %s", outcome)
			}
			if n := w.count("SELECT COUNT(*) FROM Messages WHERE Status = 'PARKED' AND Reason = 'DEDUPE_CONFLICT' AND ConflictsWith = '" + id + "'"); n != 1 {
				t.Errorf("%d conflicts with the imported message, want 1", n)
			}
			if outcome := r.receive(r.notify("m-1", "in/x.json", first)); outcome != receiver.Repeat || w.count("SELECT COUNT(*) FROM Messages") != 2 {
				t.Errorf("the notification of the imported version is %s", outcome)
			}
		})
	}
}

// The same from the other side: a version that no message announces is not passed over in silence.
func TestImportNamesTheMessageThatHasItsIdentity(t *testing.T) {
	w := newWorldWithBucket(t)
	r := newReports(w, strings.Replace(reportRoute, "attributes.objectGeneration, attributes.eventType", "attributes.eventType", 1))
	first := r.bucket.Write("in/x.json", []byte("1"), nil)
	r.receive(r.notify("m-1", "in/x.json", first))
	if sum := summary(t, r.imports(mending...)); sum["findings"] != 0.0 {
		t.Errorf("an announced object: %v", sum)
	}
	r.bucket.Write("in/x.json", []byte("2"), nil)
	id := idsOf(w.listed())[0]
	got := w.refused(1, "", append([]string{"reconcile", "--import", "--created-after", "2020-01-01", "--route", "report", "--config", r.file}, mending...)...)
	if !strings.Contains(got.out, "message "+id+", of generation") || w.count("SELECT COUNT(*) FROM Messages") != 1 {
		t.Errorf("the import of another version says %q", got.out)
	}
}

// A notification that arrives between the look at the index and the commit is what counts.
func TestImportBesideALateNotification(t *testing.T) {
	t.Run("at the commit", func(t *testing.T) {
		w := newWorldWithBucket(t)
		r := newReports(w, reportRoute)
		generation := r.bucket.Write("in/late.json", []byte("x"), nil)
		gate := w.tap.HoldNth("Commit", 1)
		done := make(chan answer, 1)
		go func() { done <- r.imports(mending...) }()
		if err := gate.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		received := make(chan receiver.Outcome, 1)
		go func() { received <- r.receive(r.notify("m-1", "in/late.json", generation)) }()
		// The emulator lets one wait for the other, Spanner aborts one: either way one wins.
		select {
		case outcome := <-received:
			received <- outcome
		case <-time.After(300 * time.Millisecond):
		}
		gate.Release()
		got, outcome := <-done, <-received
		mended := summary(t, got)["mended"]
		if rows := w.count("SELECT COUNT(*) FROM Messages"); got.code != 0 || rows != 1 || (mended == 1.0) == (outcome == receiver.Stored) {
			t.Errorf("the import: %+v; the notification is %s; %d rows", got, outcome, rows)
		}
	})
	// As an earlier configuration stores it: only the object that it refers to says that it is the same.
	t.Run("under another identity, just before the transaction", func(t *testing.T) {
		w := newWorldWithBucket(t)
		r := newReports(w, reportRoute)
		generation := r.bucket.Write("in/late.json", []byte("x"), nil)
		transport := *r
		transport.text = strings.Replace(r.text, "dedupe: 'hash(", "dedupe: attributes.none, correlationId: 'hash(", 1)
		looked := false
		r.bucket.Answer(func(_ http.ResponseWriter, req *http.Request) bool {
			if strings.Contains(req.URL.Path, "late.json") && !looked { // its index entry has been looked for by now
				looked = true
				transport.receive(transport.notify("m-1", "in/late.json", generation))
			}
			return false
		})
		got := r.imports(mending...)
		if sum := summary(t, got); got.code != 0 || sum["mended"] != 0.0 || !strings.Contains(got.out, "has changed meanwhile") {
			t.Errorf("the import: %+v", got)
		}
		if rows := w.count("SELECT COUNT(*) FROM Messages"); rows != 1 {
			t.Errorf("%d rows of one object", rows)
		}
	})
	t.Run("whose answer was lost", func(t *testing.T) {
		w := newWorldWithBucket(t)
		r := newReports(w, reportRoute)
		r.bucket.Write("in/x.json", []byte("x"), nil)
		w.tap.LoseNth("Commit", 1, rpctap.Error(codes.Internal))
		if got := r.imports(mending...); got.code != 1 {
			t.Errorf("an unknown outcome is no success: %+v", got)
		}
		if sum := summary(t, r.imports(mending...)); sum["findings"] != 0.0 || w.count("SELECT COUNT(*) FROM Messages") != 1 {
			t.Errorf("after it: %v", sum)
		}
	})
}

func TestImportWithinASubscription(t *testing.T) {
	w := newWorldWithBucket(t)
	r := newReports(w, strings.Replace(reportRoute, "scope: consumer, ", "", 1))
	generation := r.bucket.Write("in/x.json", []byte("x"), nil)
	w.refused(2, "give --subscription", "reconcile", "--import", "--created-after", "2020-01-01", "--route", "report", "--config", r.file)
	got := r.imports(append(mending, "--subscription", "projects/p/subscriptions/s")...)
	if sum := summary(t, got); sum["mended"] != 1.0 {
		t.Errorf("the import: %+v", got)
	}
	if outcome := r.receive(r.notify("m-late", "in/x.json", generation)); outcome != receiver.Repeat || w.count("SELECT COUNT(*) FROM Messages") != 1 {
		t.Errorf("a notification that comes late is %s", outcome)
	}
}

func TestImportRefuses(t *testing.T) {
	w := newWorldWithBucket(t)
	r := newReports(w, reportRoute,
		`{name: claimless, match: "false", dedupe: attributes.objectId, scope: consumer, engine: e, message: M}`,
		`{name: dedupeless, match: "false", claim: {bucket: attributes.bucketId, object: attributes.objectId}, engine: e, message: M}`)
	run := func(args ...string) []string {
		return append([]string{"reconcile", "--import", "--created-after", "2020-01-01", "--config", r.file}, args...)
	}
	w.refused(2, "no such route", run("--route", "none")...)
	w.refused(1, "has no claim", run("--route", "claimless")...)
	w.refused(1, "has no dedupe", run("--route", "dedupeless")...)
	w.refused(2, "none of those in claimCheck.buckets", run("--route", "report", "--bucket", "other")...)
	w.refused(2, "--subscription is", run("--route", "report", "--subscription", "s")...)
	w.refused(2, "no configuration", "reconcile", "--import", "--created-after", "2020-01-01", "--route", "report")
	bucket := w.env["PAYLOAD_BUCKET"]
	w.env["PAYLOAD_BUCKET"] = r.bucket.Name
	w.refused(2, "keeps our own payloads", run("--route", "report")...)
	w.env["PAYLOAD_BUCKET"] = bucket
	two := file(t, "claimCheck: {buckets: [a-bucket, b-bucket]}\n"+configOf(reportRoute))
	w.refused(2, "--bucket is missing", "reconcile", "--import", "--created-after", "2020-01-01", "--route", "report", "--config", two)

	// What would run twice when its notification comes, or is about another object, is said for each object.
	r.bucket.Write("in/x.json", []byte("x"), func(o *storage.Writer) { o.Metadata = map[string]string{"a": "b"} })
	for name, test := range map[string]struct{ route, want string }{
		"a key of the message's own id":  {strings.Replace(reportRoute, "attributes.eventType])", "message.id])", 1), "what only the notification has"},
		"a key of the event's time":      {strings.Replace(reportRoute, "attributes.eventType])", "attributes.eventTime])", 1), "what only the notification has"},
		"no key":                         {strings.Replace(reportRoute, "attributes.eventType])", "payload.none])", 1), "gives no key"},
		"a claim that is another object": {strings.Replace(reportRoute, "object: attributes.objectId", `object: '"other"'`, 1), "refers to another object"},
	} {
		cfg := file(t, strings.Replace(r.text, reportRoute, test.route, 1))
		got := w.refused(1, "", append([]string{"reconcile", "--import", "--created-after", "2020-01-01", "--route", "report", "--config", cfg}, mending...)...)
		if !strings.Contains(got.out, test.want) {
			t.Errorf("%s: no %q in %q", name, test.want, got.out)
		}
	}
	if n := w.count("SELECT COUNT(*) FROM Messages"); n != 0 {
		t.Errorf("%d rows of what was refused", n)
	}
	// A message that does not fit its route is parked, as the receipt would have done.
	cfg := file(t, strings.Replace(r.text, reportRoute, strings.Replace(reportRoute, "key: attributes.objectId", "key: payload.metadata", 1), 1))
	got := w.ok(append([]string{"reconcile", "--import", "--created-after", "2020-01-01", "--route", "report", "--config", cfg}, mending...)...)
	if n := w.count("SELECT COUNT(*) FROM Messages WHERE Status = 'PARKED' AND Reason = 'CONTRACT'"); n != 1 || !strings.Contains(got.out, "PARKED/CONTRACT") {
		t.Errorf("%d parked rows; it says %q", n, got.out)
	}
}

func TestImportIsBoundedAndLeavesTheYoungAlone(t *testing.T) {
	w := newWorldWithBucket(t)
	r := newReports(w, reportRoute)
	for i := range 5 {
		r.bucket.Write(fmt.Sprintf("in/%d", i), []byte("x"), nil)
	}
	w.now = time.Now
	if sum := summary(t, r.imports()); sum["young"] != 5.0 || sum["findings"] != 0.0 {
		t.Errorf("young ones: %v", sum)
	}
	w.later()
	if sum := summary(t, r.imports("--prefix", "in/3")); sum["objects"] != 1.0 {
		t.Errorf("with a prefix: %v", sum)
	}
	args := append(mending, "--limit", "2")
	runs, mended := 0, 0.0
	for after := ""; ; runs++ {
		sum := summary(t, r.imports(append(args, "--after", after)...))
		mended += sum["mended"].(float64)
		next, ok := sum["after"].(string)
		if !ok || runs > 10 {
			break
		}
		after = next
	}
	if mended != 5 || w.count("SELECT COUNT(*) FROM Messages") != 5 {
		t.Errorf("%v were imported in %d runs", mended, runs)
	}
}

// The database does not know how far back it remembers: with a retention that was raised since, an object younger than it may
// have had its message forgotten. A person says from when on.
func TestImportLooksAtWhatWasCreatedSince(t *testing.T) {
	w := newWorldWithBucket(t)
	r := newReports(w, reportRoute)
	r.bucket.Write("in/x.json", []byte("x"), nil)
	created := w.live("in/x.json").Created
	args := append([]string{"reconcile", "--import", "--route", "report", "--config", r.file, "--json"}, mending...)
	w.refused(2, "--import needs --created-after", args...)
	for since, before := range map[time.Time]float64{created.Add(time.Nanosecond): 1, created: 0} {
		sum := summary(t, w.ok(append(args, "--created-after", since.UTC().Format(time.RFC3339Nano))...))
		if sum["before"] != before || sum["mended"] != 1-before {
			t.Errorf("created at %s, looked at since %s: %v", created, since, sum)
		}
		if before == 1 && w.count("SELECT COUNT(*) FROM Messages") != 0 {
			t.Error("an older one was imported")
		}
		w.apply(spanner.Delete("Messages", spanner.AllKeys()))
	}
}

// What announced an object of that age may have been deleted since: to import it would be to run it again.
func TestImportLeavesAloneWhatIsOlderThanItsMemory(t *testing.T) {
	w := newWorldWithBucket(t)
	r := newReports(w, reportRoute)
	r.bucket.Write("in/old", []byte("x"), nil)
	for days, forgotten := range map[int]float64{73: 0, 75: 1} {
		w.now = func() time.Time { return time.Now().Add(time.Duration(days) * 24 * time.Hour) }
		if sum := summary(t, r.imports()); sum["forgotten"] != forgotten || sum["findings"] != 1-forgotten {
			t.Errorf("an object of %d days: %v", days, sum)
		}
	}
}

// Rows are deleted by the retention of the day on which their message finished, and not by today's.
func TestImportCannotRepeatWhatAShorterRetentionHasForgotten(t *testing.T) {
	w := newWorldWithBucket(t)
	r := newReports(w, reportRoute) // retention.processed is 75 days
	r.bucket.Write("in/old", []byte("x"), nil)
	for _, days := range []int{35, 75} {
		if err := w.store.Remember(t.Context(), consumer, time.Duration(days)*24*time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	for days, forgotten := range map[int]float64{33: 0, 36: 1, 60: 1} {
		w.now = func() time.Time { return time.Now().Add(time.Duration(days) * 24 * time.Hour) }
		if sum := summary(t, r.imports()); sum["forgotten"] != forgotten || sum["findings"] != 1-forgotten {
			t.Errorf("an object of %d days: %v", days, sum)
		}
	}
}
