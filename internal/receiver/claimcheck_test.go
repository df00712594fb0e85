package receiver_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/storage"
	"google.golang.org/grpc/codes"

	"github.com/pubsub-inbox/pubsub-inbox/internal/claimcheck"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/rpctap"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/receiver"
)

const mib = 1 << 20

// noise is what no compression and no text encoding leaves as it is.
func noise(size int) []byte {
	r := rand.New(rand.NewPCG(1, uint64(size)))
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// checkObject fails unless the row's payload is an object of its own with this content, and not in the row.
func (w *world) checkObject(r row, want []byte) {
	w.t.Helper()
	o, err := inbox.ParseLocation(r.Location)
	if err != nil {
		w.t.Fatal(err)
	}
	if r.Body != "" || o.Bucket != w.bucket.Name || o.Name != r.ID+"/"+inbox.SHA256(want) || o.SHA256 != inbox.SHA256(want) ||
		o.Bytes != int64(len(want)) || r.PayloadBytes != int64(len(want)) || r.PayloadSHA256 != inbox.SHA256(want) {
		w.t.Errorf("the row of %d bytes says %s, with %d bytes of its own", r.PayloadBytes, r.Location, len(r.Body))
	}
	reader := claimcheck.New(w.bucket.Name, w.bucket.Options()...)
	defer reader.Close()
	got, err := reader.Read(w.t.Context(), o, o.Bytes)
	if err != nil || !bytes.Equal(got, want) {
		w.t.Errorf("the object has %d bytes, %v, want %d", len(got), err, len(want))
	}
}

func TestPayloadsAreKeptByteForByteOnEitherSideOfTheThreshold(t *testing.T) {
	for _, size := range []int{mib - 1, mib, mib + 1, 2_621_440, 2_621_441, 10_000_000} {
		w := newWorldWithBucket(t, anyRoute)
		data := noise(size)
		w.deliver(message{ID: "1", Data: data, Attributes: map[string]string{"content-type": "application/x-report"}}.body(t))
		r := w.one()
		if r.place() != "RECEIVED" || r.Content != inbox.ContentSHA256(data, map[string]string{"content-type": "application/x-report"}) ||
			r.ContentType != "application/x-report" {
			t.Errorf("%d bytes: %s with content type %q", size, r.place(), r.ContentType)
		}
		if size <= mib {
			if r.Location != "" || r.Body != string(data) || len(w.bucket.Objects()) != 0 {
				t.Errorf("%d bytes: at %q, %d of them in the row, %d objects", size, r.Location, len(r.Body), len(w.bucket.Objects()))
			}
			continue
		}
		w.checkObject(r, data)
		w.deliver(message{ID: "1", Data: data, Attributes: map[string]string{"content-type": "application/x-report"}}.body(t))
		if again := w.one(); again.Location != r.Location || again.Deliveries != 1 || len(w.bucket.Objects()) != 1 {
			t.Errorf("%d bytes: a redelivery leaves %d objects, and the row at %s after %d redeliveries", size, len(w.bucket.Objects()), again.Location, again.Deliveries)
		}
	}
}

func TestALargeBodyThatCannotBeReadIsKeptAsItCame(t *testing.T) {
	w := newWorldWithBucket(t, anyRoute)
	body := []byte(`{"message":{"messageId":"1","data":"@` + strings.Repeat("x", 9*mib) + `"},"subscription":"` + subscription + `"}`)
	again := []byte(strings.Replace(string(body), `{"message"`, `{"deliveryAttempt":2,"message"`, 1)) // so each has another hash
	w.deliver(body, again)
	r := w.one()
	if r.place() != "PARKED/UNREADABLE" || r.Deliveries != 1 {
		t.Errorf("%s after %d redeliveries", r.place(), r.Deliveries)
	}
	w.checkObject(r, body)
	if n := len(w.bucket.Objects()); n != 1 {
		t.Errorf("%d objects, want 1", n)
	}
}

func TestWithoutABucketALargePayloadIsKeptWhileItFits(t *testing.T) {
	w := newWorld(t, anyRoute)
	w.deliver(message{ID: "1", Data: noise(2 * mib)}.body(t))
	if r := w.one(); r.Location != "" || len(r.Body) != 2*mib {
		t.Errorf("at %q, %d bytes in the row", r.Location, len(r.Body))
	}
	if got := w.post(message{ID: "2", Data: noise(8 * mib)}.body(t)); got != http.StatusRequestEntityTooLarge {
		t.Errorf("8 MiB: status %d", got)
	}
}

func TestWhileCloudStorageIsDownNothingIsStoredAndARedeliveryStores(t *testing.T) {
	for _, status := range []int{403, 404, 429, 500, 503} {
		w := newWorldWithBucket(t, anyRoute)
		body := message{ID: "1", Data: noise(2 * mib)}.body(t)
		w.bucket.Refuse(status)
		if got := w.post(body); got != http.StatusServiceUnavailable {
			t.Errorf("Cloud Storage answers %d: status %d, want 503", status, got)
		}
		if n := w.count("Messages"); n != 0 {
			t.Errorf("Cloud Storage answers %d: %d rows", status, n)
		}
		w.bucket.Refuse(0)
		w.deliver(body)
		w.checkObject(w.one(), noise(2*mib))
	}
}

// A crash between two steps is a redelivery that finds what the steps before it have left.
func TestACrashBetweenAnyTwoStepsLeavesAtMostAnObject(t *testing.T) {
	type stop struct {
		name string
		arm  func(w *world, gone func()) (rows int)
	}
	lost := func(w *world, gone func()) {
		w.bucket.Lose(func(r *http.Request, status int) bool {
			if r.Method == http.MethodPost && status == http.StatusOK {
				gone()
				return true
			}
			return false
		})
	}
	for _, s := range []stop{
		{"before the upload", func(w *world, gone func()) int {
			w.bucket.Answer(func(rw http.ResponseWriter, _ *http.Request) bool {
				gone()
				panic(http.ErrAbortHandler)
			})
			return 0
		}},
		{"after the upload, before its answer", func(w *world, gone func()) int { lost(w, gone); return 0 }},
		{"after the upload, before the commit", func(w *world, gone func()) int {
			w.tap.Before("Commit", func(context.Context, int, any) error { gone(); return rpctap.Error(codes.Canceled) })
			return 0
		}},
		{"after the commit, before its answer", func(w *world, gone func()) int {
			w.tap.After("Commit", func(context.Context, int, any, any, error) error { gone(); return rpctap.Error(codes.Canceled) })
			return 1
		}},
	} {
		t.Run(s.name, func(t *testing.T) {
			w := newWorldWithBucket(t, anyRoute)
			data := noise(2 * mib)
			body := message{ID: "1", Data: data}.body(t)
			ctx, gone := context.WithCancel(t.Context())
			rows := s.arm(w, gone)
			if _, err := w.receiver(w.store).Receive(ctx, body); err == nil {
				t.Fatal("the delivery was not cut off")
			}
			if n := w.count("Messages"); n != int64(rows) {
				t.Errorf("it leaves %d rows, want %d", n, rows)
			}
			for _, r := range w.rows() {
				w.checkObject(r, data)
			}
			// The next process.
			w.bucket.Answer(nil)
			w.bucket.Lose(nil)
			w.store, w.tap = w.newStore()
			w.deliver(body)
			w.checkObject(w.one(), data)
			if n := len(w.bucket.Objects()); n != 1 {
				t.Errorf("%d objects, want 1", n)
			}
		})
	}
}

func TestAnObjectIsNeverSharedBetweenRows(t *testing.T) {
	w := newWorldWithBucket(t, anyRoute)
	data := noise(2 * mib)
	w.deliver(message{ID: "1", Data: data}.body(t), message{ID: "2", Data: data}.body(t))
	for _, r := range w.rows() {
		w.checkObject(r, data)
	}
	if n := len(w.bucket.Objects()); n != 2 {
		t.Errorf("%d objects for two messages", n)
	}
}

func TestAContradictionHasAnObjectOfItsOwn(t *testing.T) {
	w := newWorldWithBucket(t, `
  - {name: any, engine: e, message: M, dedupe: attributes.id}`)
	id := map[string]string{"id": "7"}
	first, second := noise(2*mib), noise(2*mib+1)
	w.deliver(message{ID: "1", Data: first, Attributes: id}.body(t), message{ID: "2", Data: second, Attributes: id}.body(t),
		message{ID: "2", Data: second, Attributes: id}.body(t))
	rows := w.rows()
	if got := strings.Join(places(rows), " "); got != "RECEIVED PARKED/DEDUPE_CONFLICT" {
		t.Fatalf("rows %s", got)
	}
	w.checkObject(rows[0], first)
	w.checkObject(rows[1], second)
}

// The lifecycle is about to delete the object of a message that has finished: its redelivery changes nothing, and a new
// message whose row is gone, but whose object is left over, gets an object that stays.
func TestAnObjectOnItsWayOutIsNotWhatANewRowPointsTo(t *testing.T) {
	w := newWorldWithBucket(t, anyRoute)
	data := noise(2 * mib)
	body := message{ID: "1", Data: data}.body(t)
	w.deliver(body)
	r := w.one()
	o, err := inbox.ParseLocation(r.Location)
	if err != nil {
		t.Fatal(err)
	}
	keeper := claimcheck.New(w.bucket.Name, w.bucket.Options()...)
	defer keeper.Close()
	finish := func() {
		if err := keeper.Finish(t.Context(), o, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	finish()
	w.deliver(body)
	if again := w.one(); again.Location != r.Location || again.Deliveries != 1 {
		t.Errorf("a redelivery leaves the row at %s after %d redeliveries", again.Location, again.Deliveries)
	}
	if got := w.bucket.Objects(); len(got) != 1 || got[0].Generation != o.Generation || got[0].CustomTime.IsZero() {
		t.Errorf("a redelivery has touched the object: %+v", got)
	}
	if _, err := w.client.Apply(t.Context(), []*spanner.Mutation{spanner.Delete("Messages", spanner.Key{r.ID})}); err != nil {
		t.Fatal(err)
	}
	w.deliver(body)
	w.checkObject(w.one(), data)
	if got := w.bucket.Objects(); len(got) != 1 || !got[0].CustomTime.IsZero() {
		t.Errorf("the new row's object is on its way out: %+v", got)
	}
}

func TestOtherContentUnderAnObjectsNameIsNotAcknowledged(t *testing.T) {
	w := newWorldWithBucket(t, anyRoute)
	data := noise(2 * mib)
	w.bucket.Write(transportID("1")+"/"+inbox.SHA256(data), []byte("something else"), func(*storage.Writer) {})
	if got := w.post(message{ID: "1", Data: data}.body(t)); got != http.StatusServiceUnavailable || w.count("Messages") != 0 {
		t.Errorf("status %d, %d rows", got, w.count("Messages"))
	}
}

const claimRoutes = `
  - name: notified
    match: has(attributes.bucketId)
    dedupe: hash([attributes.bucketId, attributes.objectId, attributes.objectGeneration, attributes.eventType])
    scope: consumer
    claim: {bucket: attributes.bucketId, object: attributes.objectId, generation: attributes.objectGeneration}
    engine: e
    message: M
  - name: referred
    claim: {reference: payload.claimCheck, sha256: payload.sha256, read: true}
    engine: e
    message: M`

func TestC078CloudStorageNotificationsReferToTheirGeneration(t *testing.T) {
	w := newWorld(t, claimRoutes)
	for _, body := range input(t, "C078") {
		w.deliver(body)
	}
	rows := w.rows()
	if len(rows) != 3 || rows[0].Deliveries != 1 {
		t.Fatalf("%d rows, the first with %d redeliveries, want 3 and 1", len(rows), rows[0].Deliveries)
	}
	for i, want := range []int64{1700000000000001, 1700000000000002, 1700000000000001} {
		r := rows[i]
		if r.place() != "RECEIVED" || r.Claim != "gs://demo-claims/2026/03/report 1.json" || r.ClaimGeneration.Int64 != want {
			t.Errorf("row %d: %s, claim %s, generation %v, want %d", i, r.place(), r.Claim, r.ClaimGeneration, want)
		}
	}
	// Without a payload (payloadFormat NONE) everything is in the attributes.
	w.deliver(message{ID: "9", Attributes: map[string]string{"bucketId": "demo-claims", "objectId": "x", "objectGeneration": "5",
		"eventType": "OBJECT_FINALIZE", "payloadFormat": "NONE"}}.body(t))
	if r := w.rows()[3]; r.Claim != "gs://demo-claims/x" || r.ClaimGeneration.Int64 != 5 || r.Body != "" {
		t.Errorf("claim %s, generation %v, body %q", r.Claim, r.ClaimGeneration, r.Body)
	}
}

// What the relay makes of the objects themselves is tested there: receive looks at none, and has no client that could.
func TestC055ReferencesAreTakenLiterallyAndNothingIsFetched(t *testing.T) {
	w := newWorld(t, claimRoutes)
	hash := strings.Repeat("0123456789abcdef", 4)
	w.deliver(input(t, "C055")[0])
	for i, tt := range []struct{ payload, place, claim string }{
		{"", "RECEIVED", "gs://demo-claims/2026/03/WO-1.json"},
		{`{"claimCheck":"gs://other-bucket/x"}`, "PARKED/CONTRACT", "gs://other-bucket/x"},
		{`{"claimCheck":"file:///etc/passwd"}`, "PARKED/CONTRACT", ""},
		{`{"claimCheck":"http://169.254.169.254/x"}`, "PARKED/CONTRACT", ""},
		{`{"claimCheck":"GS://demo-claims/x"}`, "PARKED/CONTRACT", ""},
		{`{"claimCheck":"gs://demo-claims/../x%2F..%2Fy"}`, "RECEIVED", "gs://demo-claims/../x%2F..%2Fy"},
		{`{"claimCheck":"gs://demo-claims/a#b"}`, "RECEIVED", "gs://demo-claims/a#b"},
		{`{"claimCheck":"gs://demo-claims/a?b=c"}`, "RECEIVED", "gs://demo-claims/a?b=c"},
		{`{"claimCheck":"gs://demo-claims/"}`, "PARKED/CONTRACT", ""},
		{`{"claimCheck":"gs://demo-claims"}`, "PARKED/CONTRACT", ""},
		{`{"claimCheck":"gs:///x"}`, "PARKED/CONTRACT", ""},
		{`{"claimCheck":"gs://demo-claims/a\nb"}`, "PARKED/CONTRACT", ""},
		{`{"claimCheck":"gs://demo-claims/` + strings.Repeat("x", 1025) + `"}`, "PARKED/CONTRACT", ""},
		{`{"claimCheck":"gs://demo-claims/x","sha256":"nonsense"}`, "PARKED/CONTRACT", ""},
		{`{"claimCheck":"gs://demo-claims/x","sha256":"` + hash + `"}`, "RECEIVED", "gs://demo-claims/x"},
		{`{"claimCheck":{"bucket":"demo-claims"}}`, "PARKED/CONTRACT", ""},
		{`{"claimCheck":null}`, "PARKED/CONTRACT", ""},
		{`{}`, "PARKED/CONTRACT", ""},
		{`no JSON`, "PARKED/CONTRACT", ""},
	} {
		if i > 0 {
			w.deliver(message{ID: "C055-" + string(rune('a'+i)), Data: []byte(tt.payload)}.body(t))
		}
		rows := w.rows()
		r := rows[len(rows)-1]
		if r.place() != tt.place || r.Claim != tt.claim || r.Error == "" != (tt.place == "RECEIVED") {
			t.Errorf("%s: %s (%s), claim %q, want %s, %q", tt.payload, r.place(), r.Error, r.Claim, tt.place, tt.claim)
		}
		if strings.Contains(tt.payload, hash) && r.ClaimSHA256 != hash {
			t.Errorf("the hash is %q", r.ClaimSHA256)
		}
		if strings.Contains(r.Error, "passwd") || strings.Contains(r.Error, "169.254") {
			t.Errorf("the error repeats the value: %s", r.Error)
		}
	}
	if r := w.rows()[0]; r.ClaimGeneration.Int64 != 1700000000000001 {
		t.Errorf("generation %v", r.ClaimGeneration)
	}
}

func TestAnUploadThatTakesTooLongIsNotAcknowledged(t *testing.T) {
	w := newWorldWithBucket(t, anyRoute)
	w.bucket.Answer(func(rw http.ResponseWriter, r *http.Request) bool {
		_, _ = io.Copy(io.Discard, r.Body) // only then a server sees that its client is gone
		<-r.Context().Done()
		return true
	})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := w.receiver(w.store).Receive(ctx, message{ID: "1", Data: noise(2 * mib)}.body(t))
	var of *receiver.MessageError
	if !errors.As(err, &of) || !errors.Is(err, context.DeadlineExceeded) || w.count("Messages") != 0 {
		t.Errorf("got %v and %d rows", err, w.count("Messages"))
	}
}
