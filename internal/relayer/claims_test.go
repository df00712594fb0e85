package relayer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/storage"

	"github.com/pubsub-inbox/pubsub-inbox/internal/claimcheck"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/emulatortest"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/relayer"
)

// claims is a world with a bucket, whose route reads what its messages refer to.
func newClaims(t *testing.T, read bool) (*world, *emulatortest.Bucket, *[]engine.Delivery) {
	t.Helper()
	w := newWorld(t)
	b := emulatortest.NewBucket(t)
	store := claimcheck.New(b.Name, b.Options()...)
	t.Cleanup(func() { _ = store.Close() })
	w.kept = store
	w.cfg.Buckets = []string{b.Name}
	route := w.cfg.Routes["r"]
	route.Claim = &relayer.ClaimPolicy{Read: read, MaxBytes: 1000}
	w.cfg.Routes["claims"] = route
	return w, b, &[]engine.Delivery{}
}

func taking(into *[]engine.Delivery) func(context.Context, engine.Delivery) engine.Result {
	return func(_ context.Context, d engine.Delivery) engine.Result {
		*into = append(*into, d)
		return engine.Result{Verdict: engine.Correlated}
	}
}

func refersTo(bucket, name string, generation int64, sha256 string) option {
	return func(m *inbox.Message) {
		m.Route = "claims"
		m.Claim = inbox.Object{Bucket: bucket, Name: name, Generation: generation, SHA256: sha256}
	}
}

func (w *world) claimOf(id string) (uri string, generation int64) {
	w.t.Helper()
	r, err := w.client.Single().ReadRow(w.t.Context(), "Messages", spanner.Key{id}, []string{"ClaimUri", "ClaimGeneration"})
	if err != nil {
		w.t.Fatal(err)
	}
	var u spanner.NullString
	var g spanner.NullInt64
	if err := r.Columns(&u, &g); err != nil {
		w.t.Fatal(err)
	}
	return u.StringVal, g.Int64
}

// again lets a message that waits be tried now.
func (w *world) again(id string) {
	w.t.Helper()
	w.sql("UPDATE Messages SET NextAttemptAt = NULL WHERE InboxId = @id", map[string]any{"id": id})
	w.sql("UPDATE Lanes SET DueAt = TIMESTAMP '2020-01-01T00:00:00Z' WHERE true", nil)
}

func TestAReferenceIsPinnedAtFirstSightAndHandedOn(t *testing.T) {
	w, b, got := newClaims(t, false)
	generation := b.Write("2026/report 1.json", []byte("report"), nil)
	id := w.insert("k", 1, refersTo(b.Name, "2026/report 1.json", 0, ""))
	w.once(w.relay(w.engine(taking(got))))
	uri := "gs://" + b.Name + "/2026/report 1.json"
	if at, g := w.claimOf(id); at != uri || g != generation || w.status(id) != "PROCESSED" {
		t.Errorf("%s, refers to %s in generation %d, want %d", w.status(id), at, g, generation)
	}
	want := inbox.Object{Bucket: b.Name, Name: "2026/report 1.json", Generation: generation}.Pinned()
	if len(*got) != 1 || (*got)[0].DataRef != want || string((*got)[0].Payload) != "{}" {
		t.Errorf("the engine is told of %+v, want %s and the message's own payload", *got, want)
	}
	for _, call := range b.Calls() {
		if !strings.Contains(call, "/storage/v1/") {
			t.Errorf("the object was read: %s", call)
		}
	}
}

func TestAPinnedGenerationStaysWhateverComesAfterIt(t *testing.T) {
	w, b, got := newClaims(t, true)
	generation := b.Write("x", []byte("first"), nil)
	id := w.insert("k", 1, refersTo(b.Name, "x", 0, ""))
	down := w.engine(always(engine.Technical))
	w.cfg.Routes["claims"] = func() relayer.RoutePolicy {
		p := w.cfg.Routes["claims"]
		p.RetryMin, p.RetryMax = time.Hour, time.Hour
		return p
	}()
	w.once(w.relay(down))
	if _, g := w.claimOf(id); g != generation || w.status(id) != "RETRYING" {
		t.Fatalf("%s, generation %d, want %d", w.status(id), g, generation)
	}
	b.Write("x", []byte("second"), nil)
	w.again(id)
	w.once(w.relay(w.engine(taking(got))))
	if w.status(id) != "PARKED/CLAIM_CHANGED" || len(*got) != 0 {
		t.Errorf("%s after %d calls", w.status(id), len(*got))
	}
}

func TestC055WhatTheObjectComesTo(t *testing.T) {
	for _, tt := range []struct {
		name   string
		make   func(w *world, b *emulatortest.Bucket) option // nil: refers to x
		status int                                           // of Cloud Storage
		want   string
		code   string
	}{
		{"there", func(w *world, b *emulatortest.Bucket) option {
			return refersTo(b.Name, "x", b.Write("x", []byte("report"), nil), inbox.SHA256([]byte("report")))
		}, 0, "PROCESSED", ""},
		{"its name is no path and no URL", func(w *world, b *emulatortest.Bucket) option {
			b.Write("../x%2F..%2Fy", []byte("report"), nil)
			return refersTo(b.Name, "../x%2F..%2Fy", 0, "")
		}, 0, "PROCESSED", ""},
		{"404", nil, 0, "RETRYING", "CLAIM_MISSING"},
		{"403", nil, 403, "RETRYING", "CLAIM_FORBIDDEN"},
		{"401", nil, 401, "RETRYING", "CLAIM_FORBIDDEN"},
		{"429", nil, 429, "RETRYING", "CLAIM_UNAVAILABLE"},
		{"503", nil, 503, "RETRYING", "CLAIM_UNAVAILABLE"},
		{"replaced", func(w *world, b *emulatortest.Bucket) option {
			old := b.Write("x", []byte("old"), nil)
			b.Write("x", []byte("new"), nil)
			return refersTo(b.Name, "x", old, "")
		}, 0, "PARKED/CLAIM_CHANGED", "CLAIM_CHANGED"},
		{"another content than its hash", func(w *world, b *emulatortest.Bucket) option {
			return refersTo(b.Name, "x", b.Write("x", []byte("retort"), nil), inbox.SHA256([]byte("report")))
		}, 0, "PARKED/CLAIM_CHANGED", "CLAIM_CHANGED"},
		{"too large", func(w *world, b *emulatortest.Bucket) option {
			return refersTo(b.Name, "x", b.Write("x", make([]byte, 1001), nil), "")
		}, 0, "PARKED/PAYLOAD_TOO_LARGE", "CLAIM_TOO_LARGE"},
		{"marked as gzip and none", func(w *world, b *emulatortest.Bucket) option {
			return refersTo(b.Name, "x", b.Write("x", []byte("report"), func(o *storage.Writer) { o.ContentEncoding = "gzip" }), "")
		}, 0, "PARKED/CLAIM_CHANGED", "CLAIM_CHANGED"},
		{"another bucket", func(*world, *emulatortest.Bucket) option { return refersTo("other-bucket", "x", 0, "") }, 0,
			"PARKED/CONTRACT", "CONTRACT"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w, b, got := newClaims(t, true)
			route := w.cfg.Routes["claims"]
			route.RetryMin, route.RetryMax = time.Hour, time.Hour
			w.cfg.Routes["claims"] = route
			to := refersTo(b.Name, "x", 0, "")
			if tt.make != nil {
				to = tt.make(w, b)
			}
			id := w.insert("k", 1, to)
			b.Calls()
			// An answer that is no answer is asked for again until the time for it is over.
			b.Refuse(tt.status)
			w.once(w.relay(w.engine(taking(got))))
			r := w.row(id)
			if w.status(id) != tt.want || r.Code != tt.code {
				t.Errorf("%s with %s, want %s with %s", w.status(id), r.Code, tt.want, tt.code)
			}
			if done := tt.want == "PROCESSED"; done != (len(*got) == 1) || (done && string((*got)[0].Payload) != "report") {
				t.Errorf("the engine was called %d times", len(*got))
			}
			if calls := b.Calls(); tt.code == "CONTRACT" && len(calls) != 0 {
				t.Errorf("it was looked for: %v", calls)
			}
		})
	}
}

func TestAnObjectThatComesLateIsAwaitedAndOneThatNeverComesIsParked(t *testing.T) {
	w, b, got := newClaims(t, true)
	id := w.insert("k", 1, refersTo(b.Name, "x", 0, ""))
	r := w.relay(w.engine(taking(got)))
	route := w.cfg.Routes["claims"]
	route.RetryMin, route.RetryMax = time.Hour, time.Hour // one attempt a run
	w.cfg.Routes["claims"] = route
	w.once(r)
	if w.status(id) != "RETRYING" {
		t.Fatal(w.status(id))
	}
	b.Write("x", []byte("report"), nil)
	w.again(id)
	w.once(r)
	if w.status(id) != "PROCESSED" || len(*got) != 1 {
		t.Errorf("%s after %d calls", w.status(id), len(*got))
	}

	never := w.insert("k", 2, refersTo(b.Name, "y", 0, ""))
	w.once(r)
	w.sql("UPDATE Messages SET LastNotWaitingAt = TIMESTAMP_SUB(LastNotWaitingAt, INTERVAL 61 MINUTE) WHERE InboxId = @id", map[string]any{"id": never})
	w.again(never)
	w.once(r)
	if w.status(never) != "PARKED/CLAIM_MISSING" || len(*got) != 1 {
		t.Errorf("%s after %d calls", w.status(never), len(*got))
	}
}

// A day without permission, or without Cloud Storage, parks nothing: that says nothing about the message.
func TestAnOutageOfCloudStorageParksNothing(t *testing.T) {
	for _, status := range []int{403, 503} {
		w, b, got := newClaims(t, true)
		route := w.cfg.Routes["claims"]
		route.RetryMin, route.RetryMax = time.Hour, time.Hour
		w.cfg.Routes["claims"] = route
		id := w.insert("k", 1, refersTo(b.Name, "x", 0, ""))
		w.update("Messages", map[string]any{"InboxId": id, "TechnicalFailures": 100, "Attempts": 100, "Status": "RETRYING",
			"FirstFailedAt": time.Now().Add(-48 * time.Hour)})
		w.sql("INSERT INTO Engines (Consumer, Engine, LastAnsweredAt, LastAnsweredInboxId) VALUES (@c, 'e', CURRENT_TIMESTAMP(), 'other')",
			map[string]any{"c": consumer})
		b.Refuse(status)
		w.once(w.relay(w.engine(taking(got))))
		if r := w.row(id); w.status(id) != "RETRYING" || r.TechnicalFailures != 101 {
			t.Errorf("%d: %s after %d failures", status, w.status(id), r.TechnicalFailures)
		}
		b.Refuse(0)
		b.Write("x", []byte("report"), nil)
		w.again(id)
		w.once(w.relay(w.engine(taking(got))))
		if w.status(id) != "PROCESSED" {
			t.Errorf("%d: afterwards it is %s", status, w.status(id))
		}
	}
}

// keep stores a message whose payload is an object.
func (w *world) keep(b *emulatortest.Bucket, n int, body string) (id string, o inbox.Object) {
	w.t.Helper()
	name := ""
	id = w.insert("kept", n, func(m *inbox.Message) {
		o = inbox.PayloadObject(b.Name, m.ID, inbox.SHA256([]byte(body)))
		name = o.Name
		o.Bytes, o.Generation = int64(len(body)), b.Write(name, []byte(body), nil)
		m.PayloadLocation, m.PayloadSHA256, m.PayloadBytes = o.Location(), o.SHA256, o.Bytes
	})
	return id, o
}

func TestAPayloadBesideItsRowIsSentAsItCame(t *testing.T) {
	w, b, got := newClaims(t, false)
	body := strings.Repeat("\x00\xff large ", 500_000)
	id, o := w.keep(b, 1, body)
	w.once(w.relay(w.engine(taking(got))))
	if w.status(id) != "PROCESSED" || len(*got) != 1 || string((*got)[0].Payload) != body {
		t.Fatalf("%s, %d calls", w.status(id), len(*got))
	}
	found, err := w.kept.Stat(t.Context(), o)
	if err != nil || !found.CustomTime.Equal(w.row(id).Processed.Truncate(time.Second)) { // the server here keeps seconds
		t.Errorf("its object has custom time %v, %v, want %v, when it finished", found.CustomTime, err, w.row(id).Processed)
	}
}

func TestOnlyAFinishedMessagesObjectIsMarked(t *testing.T) {
	for verdict, marked := range map[engine.Verdict]bool{
		engine.Correlated: true, engine.Duplicate: true, engine.Drop: true,
		engine.Rejected: false, engine.Ambiguous: false, engine.Technical: false, engine.NotWaiting: false, engine.Unauthorised: false,
	} {
		w, b, _ := newClaims(t, false)
		route := w.cfg.Routes["r"]
		route.RetryMin, route.RetryMax = time.Hour, time.Hour
		w.cfg.Routes["r"] = route
		id, o := w.keep(b, 1, "report")
		w.once(w.relay(w.engine(always(verdict))))
		found, err := w.kept.Stat(t.Context(), o)
		if err != nil || found.CustomTime.IsZero() == marked {
			t.Errorf("%s: %s, custom time %v, %v", verdict, w.status(id), found.CustomTime, err)
		}
	}
}

func TestWhatIsNotWhatWasReceivedIsNeverSent(t *testing.T) {
	w, b, got := newClaims(t, false)
	gone, o := w.keep(b, 1, "report")
	b.Delete(o.Name)
	r := w.relay(w.engine(taking(got)))
	w.once(r)
	if w.status(gone) != "PARKED/CLAIM_MISSING" {
		t.Error(w.status(gone))
	}
	other, o := w.keep(b, 2, "report")
	wrong := o
	wrong.Generation = b.Write(o.Name, []byte("retort"), nil)
	w.update("Messages", map[string]any{"InboxId": other, "PayloadLocation": wrong.Location()})
	w.once(r)
	if w.status(other) != "PARKED/CLAIM_CHANGED" || len(*got) != 0 {
		t.Errorf("%s after %d calls", w.status(other), len(*got))
	}
	waits, _ := w.keep(b, 3, "report")
	b.Answer(func(rw http.ResponseWriter, _ *http.Request) bool {
		http.Error(rw, "no", http.StatusForbidden)
		return true
	})
	route := w.cfg.Routes["r"]
	route.RetryMin, route.RetryMax = time.Hour, time.Hour
	w.cfg.Routes["r"] = route
	w.once(w.relay(w.engine(taking(got))))
	if w.status(waits) != "RETRYING" || len(*got) != 0 {
		t.Errorf("%s after %d calls", w.status(waits), len(*got))
	}
}

// What was received is what the row says, whatever its location says about the object that it names.
func TestTheRowSaysWhatItsPayloadIs(t *testing.T) {
	w, b, got := newClaims(t, false)
	id, o := w.keep(b, 1, "report")
	other := o
	other.Generation, other.SHA256 = b.Write(o.Name, []byte("retort"), nil), inbox.SHA256([]byte("retort"))
	w.update("Messages", map[string]any{"InboxId": id, "PayloadLocation": other.Location()})
	w.once(w.relay(w.engine(taking(got))))
	if w.status(id) != "PARKED/CLAIM_CHANGED" || len(*got) != 0 {
		t.Errorf("%s after %d calls, want PARKED/CLAIM_CHANGED after none", w.status(id), len(*got))
	}
}

// asLetter makes a stored message a dead letter that waits for its time.
func asLetter(due time.Time) option {
	return func(m *inbox.Message) {
		m.FromDeadLetter, m.SourceAttempts, m.NextAttemptAt, m.PublishedAt = true, 5, due, m.OrderedAt
	}
}

func published(m *inbox.Message) { m.PublishedAt = m.OrderedAt }

func TestTheEvidenceAboutADeadLetterIsReadAgainInTheClaim(t *testing.T) {
	past, future := time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	id := func(n string) option { return func(m *inbox.Message) { m.ID, m.TransportKey, m.DedupeKey = n, n, n } }
	letter, twin := strings.Repeat("1", 32), strings.Repeat("2", 32)
	for _, tt := range []struct {
		name   string
		due    time.Time
		twin   []option // nil: none
		want   string
		called int
	}{
		{"it is alone", past, nil, "PROCESSED", 1},
		{"before its time", future, nil, "RECEIVED", 0},
		{"the original has landed", past, []option{published, id(twin)}, "PARKED/DEAD_LETTERED", 1},
		{"another content", past, []option{published, id(twin), func(m *inbox.Message) { m.ContentSHA256 = "other" }}, "PROCESSED", 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.insert("k", 1, asLetter(tt.due), id(letter))
			if tt.twin != nil {
				w.insert("k", 1, tt.twin...)
			}
			w.once(w.relay(w.engine(always(engine.Correlated))))
			if got := w.status(letter); got != tt.want || len(w.called()) != tt.called {
				t.Errorf("%s after %d calls, want %s after %d", got, len(w.called()), tt.want, tt.called)
			}
			if tt.twin != nil && w.status(twin) != "PROCESSED" {
				t.Errorf("the other is %s", w.status(twin))
			}
			if n := w.count("SELECT COUNT(*) FROM Messages WHERE InboxId = @id AND ConflictsWith = @twin", map[string]any{"id": letter, "twin": twin}); (n == 1) != (tt.want == "PARKED/DEAD_LETTERED") {
				t.Errorf("%d rows conflict", n)
			}
		})
	}
}

func TestWhatAPersonHasReopenedNeedsNoEvidence(t *testing.T) {
	w := newWorld(t)
	w.insert("k", 1, published)
	other := inbox.ID(inbox.DeadLetterIdentity, consumer, "sub", "d-1")
	w.insert("k", 1, asLetter(time.Time{}), func(m *inbox.Message) {
		m.ID, m.TransportKey, m.Status, m.Reason = other, other, inbox.Parked, inbox.DeadLettered
	})
	w.sql("UPDATE Messages SET Status = 'RECEIVED', Attempts = 0 WHERE InboxId = @id", map[string]any{"id": other})
	w.once(w.relay(w.engine(always(engine.Correlated))))
	if w.status(other) != "PROCESSED" || len(w.called()) != 2 {
		t.Errorf("%s after %d calls", w.status(other), len(w.called()))
	}
}

func TestADeadLetterThatWaitsIsNotTakenAlongWithTheHeadOfItsLane(t *testing.T) {
	w := newWorld(t)
	w.insert("k", 1)
	letter := w.insert("k", 2, asLetter(time.Now().Add(time.Hour)))
	w.once(w.relay(w.engine(always(engine.Correlated))))
	if w.status(letter) != "RECEIVED" || len(w.called()) != 1 {
		t.Errorf("%s after %d calls", w.status(letter), len(w.called()))
	}
}

// Several letters of one key come from one outage: none of them may pass for the others' evidence.
func TestEachDeadLetterOfALaneIsComparedInItsTurn(t *testing.T) {
	past := time.Now().Add(-time.Minute)
	w := newWorld(t)
	var letters, originals []string
	for n := range 3 {
		content := func(m *inbox.Message) { m.ContentSHA256 = string(rune('a' + n)) }
		id := strings.Repeat(string(rune('1'+n)), 32)
		letters = append(letters, w.insert("k", n, asLetter(past), content, func(m *inbox.Message) { m.ID, m.TransportKey, m.DedupeKey = id, id, id }))
		originals = append(originals, w.insert("k", n, published, content))
	}
	w.once(w.relay(w.engine(always(engine.Correlated))))
	for i, id := range letters {
		if w.status(id) != "PARKED/DEAD_LETTERED" || w.status(originals[i]) != "PROCESSED" {
			t.Errorf("letter %d is %s, its original %s", i, w.status(id), w.status(originals[i]))
		}
	}
	if len(w.called()) != 3 {
		t.Errorf("the engine was called %d times, want 3", len(w.called()))
	}
}

// Pub/Sub moves a message at least once: one message can have several letters, and they can arrive side by side.
func TestOfTheLettersOfOneMessageExactlyOneRuns(t *testing.T) {
	past := time.Now().Add(-time.Minute)
	const waits = -1 // or the index of the letter that it was parked beside when it arrived
	for name, arrived := range map[string][]int{
		"one after the other":                  {waits, 0},
		"side by side":                         {waits, waits},
		"three one after the other":            {waits, 0, 0},
		"the third beside the second":          {waits, 0, 1},
		"three side by side":                   {waits, waits, waits},
		"two side by side, the third after":    {waits, waits, 1},
		"the first copy stands before its own": {1, waits, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			ids := make([]string, len(arrived))
			for i := range arrived {
				ids[i] = strings.Repeat(string(rune('1'+i)), 32)
			}
			for i, beside := range arrived {
				w.insert("k", 1, asLetter(past), func(m *inbox.Message) {
					m.ID, m.TransportKey, m.DedupeKey = ids[i], ids[i], ids[i]
					if beside != waits {
						m.AsTwin(inbox.Twin{ID: ids[beside]})
					}
				})
			}
			w.once(w.relay(w.engine(always(engine.Correlated))))
			places := map[string]int{}
			for _, id := range ids {
				places[w.status(id)]++
			}
			if places["PROCESSED"] != 1 || places["PARKED/DEAD_LETTERED"] != len(ids)-1 || len(w.called()) != 1 {
				t.Errorf("%v after %d calls", places, len(w.called()))
			}
		})
	}
}

func TestTooManyToTellIsSaidAlsoInTheClaim(t *testing.T) {
	w := newWorld(t)
	epoch := func(m *inbox.Message) {
		m.PublishedAt, m.OrderedAt = m.OrderedAt, inbox.EpochOrder
		m.LaneID = inbox.LaneID(consumer, "", inbox.OrderReceived, "k")
	}
	letter := w.insert("k", 1, epoch, func(m *inbox.Message) {
		m.FromDeadLetter, m.NextAttemptAt = true, time.Now().Add(-time.Minute)
		m.ID, m.TransportKey = strings.Repeat("1", 32), strings.Repeat("1", 32)
	})
	var rows []*spanner.Mutation
	for n := range inbox.MaxTwins + 1 {
		id := fmt.Sprintf("%032x", n+1)
		rows = append(rows, spanner.Insert("Messages", []string{"InboxId", "Consumer", "Scope", "DedupeKey", "LaneId", "Sequence", "OrderedAt",
			"Status", "ContentSha256", "PayloadSha256", "PayloadBytes", "ReceivedAt"},
			[]any{id, consumer, "sub", id, inbox.LaneID(consumer, "", inbox.OrderReceived, "k"), 0, inbox.EpochOrder, "PROCESSED", "x", "x", 0, spanner.CommitTimestamp}))
	}
	for chunk := range slices.Chunk(rows, 200) {
		if _, err := w.client.Apply(t.Context(), chunk); err != nil {
			t.Fatal(err)
		}
	}
	w.once(w.relay(w.engine(always(engine.Correlated))))
	if w.status(letter) != "PARKED/DEAD_LETTERED" || len(w.called()) != 0 {
		t.Errorf("%s after %d calls", w.status(letter), len(w.called()))
	}
}

func TestWaitingForAnObjectAndForAnInstanceAreTwoWaits(t *testing.T) {
	w, b, _ := newClaims(t, true)
	route := w.cfg.Routes["claims"]
	route.RetryMin, route.RetryMax = 10*time.Hour, 10*time.Hour // one attempt a run
	w.cfg.Routes["claims"] = route
	id := w.insert("k", 1, refersTo(b.Name, "x", 0, ""))
	next := func(verdict engine.Verdict, status int, minutes int) {
		w.sql("UPDATE Messages SET LastNotWaitingAt = TIMESTAMP_SUB(LastNotWaitingAt, INTERVAL @m MINUTE) WHERE InboxId = @id",
			map[string]any{"id": id, "m": int64(minutes)})
		w.again(id)
		b.Refuse(status)
		w.once(w.relay(w.engine(always(verdict))))
		b.Refuse(0)
	}
	next(engine.Correlated, 0, 0)
	next(engine.Correlated, 0, 50) // missing for 50 of 60 minutes
	next(engine.Correlated, 403, 0)
	next(engine.Correlated, 0, 0)
	if r := w.row(id); w.status(id) != "RETRYING" || r.PatienceUsed < (50*time.Minute).Milliseconds() {
		t.Fatalf("%s with %d ms used: an error in between has given patience back", w.status(id), r.PatienceUsed)
	}
	b.Write("x", []byte("{}"), nil)
	next(engine.Technical, 0, 0)
	next(engine.NotWaiting, 0, 0)
	next(engine.NotWaiting, 0, 20)
	if w.status(id) != "RETRYING" {
		t.Errorf("%s: what was waited for the object is missing for the instance", w.status(id))
	}
	next(engine.NotWaiting, 0, 41)
	if w.status(id) != "PARKED/NO_WAITING_INSTANCE" {
		t.Errorf("after its own hour it is %s", w.status(id))
	}
}

// reconcile or a forced reopen makes an object anew while the relay is about to read it.
func TestAPayloadThatWasMadeAnewMeanwhileIsRead(t *testing.T) {
	w, b, got := newClaims(t, false)
	id, o := w.keep(b, 1, "report")
	if generation := b.Write(o.Name, []byte("report"), nil); generation == o.Generation {
		t.Fatal("no new generation")
	}
	w.once(w.relay(w.engine(taking(got))))
	if w.status(id) != "PROCESSED" || len(*got) != 1 || string((*got)[0].Payload) != "report" {
		t.Errorf("%s after %d calls", w.status(id), len(*got))
	}
}

func TestTheGenerationIsWrittenDownBeforeTheEngineHearsOfIt(t *testing.T) {
	w, b, got := newClaims(t, false)
	first := b.Write("x", []byte("first"), nil)
	id := w.insert("k", 1, refersTo(b.Name, "x", 0, ""))
	var pinned int64
	w.once(w.relay(w.engine(func(_ context.Context, d engine.Delivery) engine.Result {
		_, pinned = w.claimOf(id)
		b.Write("x", []byte("second"), nil)
		// Its worker is lost before it settles: what it has told the engine is not known here.
		w.sql("UPDATE Messages SET Attempts = 7 WHERE InboxId = @id", map[string]any{"id": id})
		return engine.Result{Verdict: engine.Correlated}
	})))
	if pinned != first {
		t.Errorf("while the engine is called generation %d is written down, want %d", pinned, first)
	}
	w.sql("UPDATE Messages SET Status = 'RETRYING' WHERE InboxId = @id", map[string]any{"id": id})
	w.again(id)
	w.once(w.relay(w.engine(taking(got))))
	if w.status(id) != "PARKED/CLAIM_CHANGED" || len(*got) != 0 {
		t.Errorf("%s after %d calls: the engine is told of another report under the same id", w.status(id), len(*got))
	}
}

func TestNoObjectsNameIsLogged(t *testing.T) {
	for _, status := range []int{403, 503} {
		w, b, _ := newClaims(t, true)
		var log bytes.Buffer
		w.insert("k", 1, refersTo(b.Name, "patients/jane-doe.json", 0, ""))
		route := w.cfg.Routes["claims"]
		route.RetryMin, route.RetryMax = time.Hour, time.Hour
		w.cfg.Routes["claims"] = route
		r := w.relay(w.engine(always(engine.Correlated)))
		r.Log = slog.New(slog.NewJSONHandler(&log, nil))
		b.Refuse(status)
		w.once(r)
		if text := log.String(); !strings.Contains(text, b.Name) || strings.Contains(text, "jane-doe") {
			t.Errorf("%d: the log says %s", status, text)
		}
	}
}

func TestC106AHashAndANumberInANameAreNoGeneration(t *testing.T) {
	var in struct {
		Objects  []string
		Messages []struct{ Report string }
	}
	text, err := os.ReadFile("testdata/C106.json")
	if err == nil {
		err = json.Unmarshal(text, &in)
	}
	if err != nil {
		t.Fatal(err)
	}
	w, b, got := newClaims(t, true)
	for _, name := range in.Objects {
		b.Write(name, []byte("report"), nil)
	}
	var ids []string
	for n, m := range in.Messages {
		o, err := inbox.ParseReference(strings.Replace(m.Report, "reports-in", b.Name, 1))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, w.insert("", n, refersTo(o.Bucket, o.Name, o.Generation, "")))
	}
	w.once(w.relay(w.engine(taking(got))))
	for n, id := range ids {
		if got := w.status(id); got != "PROCESSED" {
			t.Errorf("%s: %s, want PROCESSED", in.Messages[n].Report, got)
		}
	}
}
