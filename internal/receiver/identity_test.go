package receiver_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"sort"
	"strings"
	"sync"
	"testing"

	"cloud.google.com/go/spanner"
	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

const byEvent = `
  - {name: any, dedupe: attributes.eventId, engine: e, message: M}`

// atOnce delivers all bodies side by side and returns how often each status was answered.
func atOnce(h http.Handler, bodies [][]byte) map[int]int {
	statuses := map[int]int{}
	var mu sync.Mutex
	var all sync.WaitGroup
	start := make(chan struct{})
	for _, body := range bodies {
		all.Go(func() {
			<-start
			code := post(h, body).Code
			mu.Lock()
			defer mu.Unlock()
			statuses[code]++
		})
	}
	close(start)
	all.Wait()
	return statuses
}

func TestAHundredConcurrentDeliveriesOfOneMessageAreOneRow(t *testing.T) {
	tests := []struct{ name, routes string }{
		{"by message id", anyRoute},
		{"by event id", byEvent},
		{"by event id, in a lane of its key", `
  - {name: any, dedupe: attributes.eventId, key: attributes.orderId, engine: e, message: M}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, tt.routes)
			var bodies [][]byte
			for n := range 100 {
				bodies = append(bodies, message{ID: "1", Attempt: n + 1, Data: []byte("{}"),
					Attributes: map[string]string{"eventId": "evt-1", "orderId": "WO-1"}}.body(t))
			}
			if diff := cmp.Diff(map[int]int{204: 100}, atOnce(w.endpoint(), bodies)); diff != "" {
				t.Error(diff)
			}
			r := w.one()
			if r.Status != "RECEIVED" || r.Deliveries > inbox.MaxDeliveries {
				t.Errorf("%s with %d redeliveries", r.place(), r.Deliveries)
			}
			if n := w.count("Lanes"); n != 1 {
				t.Errorf("%d lanes, want 1", n)
			}
		})
	}
}

func TestRedeliveriesAreCountedUpToALimitAndAnsweredBeyondIt(t *testing.T) {
	w := newWorld(t, anyRoute)
	body := message{ID: "1"}.body(t)
	for n := range inbox.MaxDeliveries + 3 {
		if got := w.post(body); got != 204 {
			t.Fatalf("delivery %d: status %d", n+1, got)
		}
	}
	if r := w.one(); r.Deliveries != inbox.MaxDeliveries {
		t.Errorf("%d redeliveries, want %d", r.Deliveries, inbox.MaxDeliveries)
	}
}

// tranche is one of several contents under one event id: each its own message.
func tranche(t *testing.T, name string) []byte {
	return message{ID: "m-" + name, Attributes: map[string]string{"eventId": "evt-1"}, Data: []byte(name)}.body(t)
}

var eventID = inbox.ID(inbox.BusinessIdentity, consumer, subscription, "evt-1")

// checkTranches fails unless first owns the event and each of others is kept beside it, once, under its own transport key.
func checkTranches(t *testing.T, rows []row, first string, others ...string) {
	t.Helper()
	type kept struct{ ID, Place, ConflictsWith, TransportKey, LaneID string }
	got, want := map[string]kept{}, map[string]kept{}
	for _, r := range rows {
		if _, twice := got[r.Body]; twice {
			t.Errorf("%s is stored twice", r.Body)
		}
		got[r.Body] = kept{r.ID, r.place(), r.ConflictsWith, r.TransportKey, r.LaneID}
	}
	want[first] = kept{eventID, "RECEIVED", "", transportKey("m-" + first), inbox.OwnLaneID(consumer, eventID)}
	for _, name := range others {
		id := inbox.ConflictID(consumer, subscription, "evt-1", inbox.ContentSHA256([]byte(name), map[string]string{"eventId": "evt-1"}))
		want[name] = kept{id, "PARKED/DEDUPE_CONFLICT", eventID, transportKey("m-" + name), inbox.OwnLaneID(consumer, id)}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTwoTranchesUnderOneDedupeKeyAreTwoRowsInWhateverOrderTheyRepeat(t *testing.T) {
	for _, order := range []string{"ab", "ba", "aab", "aba", "abb", "abab", "abba", "bbaa", "aabbab"} {
		t.Run(order, func(t *testing.T) {
			w := newWorld(t, byEvent)
			for _, name := range order {
				if got := w.post(tranche(t, string(name))); got != 204 {
					t.Fatalf("status %d", got)
				}
			}
			others := strings.ReplaceAll("ab", order[:1], "")
			rows := w.rows()
			checkTranches(t, rows, order[:1], others)
			for _, r := range rows {
				if want := int64(strings.Count(order, r.Body) - 1); r.Deliveries != want {
					t.Errorf("%s has %d redeliveries, want %d", r.Body, r.Deliveries, want)
				}
			}
			if n := w.count("Lanes"); n != 1 {
				t.Errorf("%d lanes, want that of the first tranche", n)
			}
		})
	}
}

func TestTranchesThatArriveTogetherAreOneRowEach(t *testing.T) {
	w := newWorld(t, byEvent)
	var bodies [][]byte
	for n := range 60 {
		bodies = append(bodies, tranche(t, string("abc"[n%3])))
	}
	if diff := cmp.Diff(map[int]int{204: 60}, atOnce(w.endpoint(), bodies)); diff != "" {
		t.Error(diff)
	}
	rows := w.rows()
	if len(rows) != 3 {
		t.Fatalf("%d rows, want 3", len(rows))
	}
	sort.Slice(rows, func(i, j int) bool { return rows[i].Reason < rows[j].Reason })
	checkTranches(t, rows, rows[0].Body, rows[1].Body, rows[2].Body)
}

func TestAThirdContentUnderOneDedupeKeyIsAThirdRow(t *testing.T) {
	w := newWorld(t, byEvent)
	for _, name := range []string{"a", "b", "c", "b", "a", "c"} {
		if got := w.post(tranche(t, name)); got != 204 {
			t.Fatalf("status %d", got)
		}
	}
	checkTranches(t, w.rows(), "a", "b", "c")
}

func TestATrancheUnderAnotherMessageIDIsKnownByItsContent(t *testing.T) {
	w := newWorld(t, byEvent)
	republished := message{ID: "m-again", Attributes: map[string]string{"eventId": "evt-1", "googclient_traceparent": "x"}, Data: []byte("b")}.body(t)
	if diff := cmp.Diff(repeat(204, 4), w.postAll([][]byte{tranche(t, "a"), tranche(t, "b"), republished, republished})); diff != "" {
		t.Error(diff)
	}
	checkTranches(t, w.rows(), "a", "b")
}

func TestOneMessageIDWithTwoContentsIsTwoRowsAndTheSecondHasNoTransportKey(t *testing.T) {
	w := newWorld(t, anyRoute)
	first, second := message{ID: "1", Data: []byte("a")}.body(t), message{ID: "1", Data: []byte("b")}.body(t)
	if diff := cmp.Diff(repeat(204, 5), w.postAll([][]byte{first, second, second, first, second})); diff != "" {
		t.Error(diff)
	}
	rows := w.rows()
	if len(rows) != 2 {
		t.Fatalf("%d rows, want 2", len(rows))
	}
	want := plain("1", "b", nil)
	want.ID = inbox.ConflictID(consumer, subscription, "1", want.Content)
	want.Status, want.Reason, want.Error = "PARKED", "DEDUPE_CONFLICT", "other content under an identity that is taken"
	want.TransportKey, want.ConflictsWith, want.Deliveries = "", transportID("1"), 2
	want.LaneID = inbox.OwnLaneID(consumer, want.ID)
	checkRow(t, want, rows[1])
	if rows[0].Deliveries != 1 || rows[0].TransportKey != transportKey("1") {
		t.Errorf("the first has %d redeliveries and transport key %q", rows[0].Deliveries, rows[0].TransportKey)
	}
}

func TestAnEmulatorsMessageIDThatComesAgainForAnotherEventIsStoredWithoutATransportKey(t *testing.T) {
	w := newWorld(t, byEvent)
	first := message{ID: "1", Attributes: map[string]string{"eventId": "evt-1"}, Data: []byte("a")}.body(t)
	second := message{ID: "1", Attributes: map[string]string{"eventId": "evt-2"}, Data: []byte("b")}.body(t)
	if diff := cmp.Diff(repeat(204, 4), w.postAll([][]byte{first, second, second, first})); diff != "" {
		t.Error(diff)
	}
	rows := w.rows()
	if diff := cmp.Diff([]string{"RECEIVED", "PARKED/DEDUPE_CONFLICT"}, places(rows)); diff != "" {
		t.Fatal(diff)
	}
	if r := rows[1]; r.TransportKey != "" || r.ConflictsWith != rows[0].ID || r.DedupeKey != "evt-2" {
		t.Errorf("transport key %q, conflicts with %q, dedupe key %q", r.TransportKey, r.ConflictsWith, r.DedupeKey)
	}
}

// An identity can have gone to another message meanwhile: what a push has stored is known by its transport all the same.
func TestAPushKnowsItsRowThoughAnotherHasItsIdentity(t *testing.T) {
	w := newWorld(t, anyRoute)
	first := message{ID: "1", Attributes: map[string]string{"eventId": "evt-1"}, Data: []byte("first")}.body(t)
	second := message{ID: "2", Attributes: map[string]string{"eventId": "evt-1"}, Data: []byte("second")}.body(t)
	w.postAll([][]byte{first})
	w.router = router(t, byEvent)
	if diff := cmp.Diff(repeat(204, 3), w.postAll([][]byte{second, first, second})); diff != "" {
		t.Error(diff)
	}
	var places []string
	for _, r := range w.rows() {
		places = append(places, r.place())
	}
	if diff := cmp.Diff([]string{"RECEIVED", "RECEIVED"}, places); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	// And its transport key is the first's, where an emulator's ids begin again: a third row under it would be refused for ever.
	third := message{ID: "1", Attributes: map[string]string{"eventId": "evt-1"}, Data: []byte("third")}.body(t)
	if got := w.post(third); got != 204 {
		t.Errorf("status %d, want the third content kept", got)
	}
	if n := w.number("SELECT COUNT(*) FROM Messages c JOIN Messages m ON c.ConflictsWith = m.InboxId WHERE c.TransportKey IS NULL AND m.TransportKey IS NOT NULL AND m.MessageId = '1'"); n != 1 {
		t.Errorf("%d rows are parked beside the first, want 1", n)
	}
}

func TestAConflictOfABlockingRouteKeepsItsLaneClosed(t *testing.T) {
	w := newWorld(t, `
  - {name: any, dedupe: attributes.eventId, key: '"WO-1"', parked: block, engine: e, message: M}`)
	if diff := cmp.Diff(repeat(204, 2), w.postAll([][]byte{tranche(t, "a"), tranche(t, "b")})); diff != "" {
		t.Error(diff)
	}
	lane := inbox.LaneID(consumer, "", inbox.OrderPublished, "WO-1")
	for _, r := range w.rows() {
		if r.LaneID != lane {
			t.Errorf("%s is in lane %s, want %s", r.place(), r.LaneID, lane)
		}
	}
	if n := w.number("SELECT COUNT(*) FROM Messages@{FORCE_INDEX=MessagesByLane} WHERE LaneId = '" + lane + "' AND Queue = 0"); n != 2 {
		t.Errorf("%d messages are in the lane's queue, want 2", n)
	}
}

// A delivery of the same conflict comes between the look and the insert of another one.
func TestAConflictThatAnotherDeliveryStoresFirstIsKnown(t *testing.T) {
	w := newWorld(t, byEvent)
	if got := w.post(tranche(t, "a")); got != 204 {
		t.Fatalf("status %d", got)
	}
	store, tap := w.newStore()
	slow := w.receiver(store)
	gate := tap.HoldNth("Commit", 2) // the first finds the event taken
	answered := make(chan int, 1)
	go func() { answered <- post(w.endpointOf(slow, noAuth(t)), tranche(t, "b")).Code }()
	if err := gate.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := w.post(tranche(t, "b")); got != 204 {
		t.Errorf("the quick one: status %d", got)
	}
	gate.Release()
	if got := <-answered; got != 204 {
		t.Errorf("the slow one: status %d", got)
	}
	checkTranches(t, w.rows(), "a", "b")
}

func TestAPushThatOwnsARowKeepsItUnderEveryLaterConfiguration(t *testing.T) {
	const byMessage = anyRoute
	const byOther = `
  - {name: any, dedupe: attributes.otherId, engine: e, message: M}`
	const wide = `
  - {name: any, dedupe: attributes.eventId, scope: consumer, engine: e, message: M}`
	const noRoute = `
  - {name: any, match: attributes.eventId == "", engine: e, message: M}`
	tests := []struct{ name, first, then string }{
		{"the event id, then the message id", byEvent, byMessage},
		{"the message id, then the event id", byMessage, byEvent},
		{"the event id, then another attribute", byEvent, byOther},
		{"the event id in the subscription, then in the consumer", byEvent, wide},
		{"the event id, then a dedupe that fails", byEvent, `
  - {name: any, dedupe: attributes.missing, engine: e, message: M}`},
		{"the event id, then no route at all", byEvent, noRoute},
		{"no route at all, then the event id", noRoute, byEvent},
	}
	body := message{ID: "1", Attributes: map[string]string{"eventId": "evt-1", "otherId": "o-1"}, Data: []byte("{}")}.body(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, tt.first)
			if got := w.post(body); got != 204 {
				t.Fatalf("status %d", got)
			}
			before := w.one()
			w.router = router(t, tt.then)
			if diff := cmp.Diff(repeat(204, 2), w.postAll([][]byte{body, body})); diff != "" {
				t.Error(diff)
			}
			before.Deliveries = 2
			if diff := cmp.Diff(before, w.one()); diff != "" {
				t.Error(diff)
			}
			// It is the transport key that does this: without it the new identity would be a second row.
			if _, err := w.client.Apply(t.Context(), []*spanner.Mutation{spanner.Update("Messages", []string{"InboxId", "TransportKey"},
				[]any{before.ID, spanner.NullString{}})}, spanner.ApplyAtLeastOnce()); err != nil {
				t.Fatal(err)
			}
			if got := w.post(body); got != 204 {
				t.Errorf("status %d", got)
			}
			if rows := len(w.rows()); rows != 2 {
				t.Errorf("without its transport key: %d rows, want 2", rows)
			}
		})
	}
}

func TestOneMessageInTwoSubscriptionsIsTwoRowsUnlessItsScopeIsTheConsumer(t *testing.T) {
	tests := []struct {
		name, routes string
		want         int
	}{
		{"message id", anyRoute, 2},
		{"event id", byEvent, 2},
		{"event id of the consumer", `
  - {name: any, dedupe: attributes.eventId, scope: consumer, engine: e, message: M}`, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, tt.routes)
			for n := range 2 {
				m := message{ID: "1", Subscription: fmt.Sprintf("projects/p/subscriptions/s-%d", n), Attributes: map[string]string{"eventId": "evt-1"}}
				if got := w.post(m.body(t)); got != 204 {
					t.Fatalf("status %d", got)
				}
			}
			if got := len(w.rows()); got != tt.want {
				t.Errorf("%d rows, want %d", got, tt.want)
			}
		})
	}
}

func TestC101ARepetitionUnderAnotherTraceIsKnown(t *testing.T) {
	w := newWorld(t, `
  - {name: any, dedupe: attributes.eventId, engine: e, message: M}`)
	bodies := input(t, "C101")
	if diff := cmp.Diff(repeat(204, len(bodies)), w.postAll(bodies)); diff != "" {
		t.Error(diff)
	}
	rows := w.rows()
	if len(rows) != len(bodies)/2 {
		t.Errorf("%d rows of %d pairs", len(rows), len(bodies)/2)
	}
	for _, r := range rows {
		if r.place() != "RECEIVED" || r.Deliveries != 1 || len(r.Attributes) < 2 {
			t.Errorf("%s: %s after %d redeliveries, with the attributes %v", r.DedupeKey, r.place(), r.Deliveries, r.Attributes)
		}
	}
}

func TestATraceOfOnesOwnIsNoContentWhereTheConfigurationSaysSo(t *testing.T) {
	w := newWorld(t, byEvent)
	rec := w.receiver(w.store)
	rec.TraceAttributes = []string{"hop-*"}
	endpoint := w.endpointOf(rec, noAuth(t))
	for n, attribute := range []string{"hop-1", "Hop_2"} {
		m := message{ID: fmt.Sprint(n), Attributes: map[string]string{"eventId": "evt-1", attribute: fmt.Sprint(n)}, Data: []byte("a")}
		if got := post(endpoint, m.body(t)).Code; got != 204 {
			t.Fatalf("status %d", got)
		}
	}
	if r := w.one(); r.place() != "RECEIVED" || r.Deliveries != 1 {
		t.Errorf("%s after %d redeliveries", r.place(), r.Deliveries)
	}
}

// A row keeps the hash of its day. What counted as content then is there in each redelivery, unchanged.
func TestARedeliveryIsKnownAcrossAChangeOfWhatIsContent(t *testing.T) {
	m := message{ID: "1", Attributes: map[string]string{"eventId": "evt-1", "b3": "x", "our-span": "y"}, Data: []byte("a")}
	hash := func(parts ...string) string { // as rows are hashed that know W3C's names only
		h := sha256.New()
		for _, part := range parts {
			_ = binary.Write(h, binary.BigEndian, uint64(len(part)))
			_, _ = io.WriteString(h, part)
		}
		return hex.EncodeToString(h.Sum(nil))
	}
	for name, stored := range map[string]string{
		"before tracers were known":              hash("a", "b3", "x", "eventId", "evt-1", "our-span", "y"),
		"before the configuration named its own": hash("a", "eventId", "evt-1", "our-span", "y"),
		"as it is":                               hash("a", "eventId", "evt-1"),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, deadLetterRoutes)
			rec := w.receiver(w.store)
			rec.TraceAttributes = []string{"our-span"}
			endpoint := w.endpointOf(rec, noAuth(t))
			if got := post(endpoint, m.body(t)).Code; got != 204 {
				t.Fatalf("status %d", got)
			}
			w.set(w.one().ID, map[string]any{"ContentSha256": stored})
			if got := post(endpoint, m.body(t)).Code; got != 204 {
				t.Fatalf("status %d", got)
			}
			if r := w.one(); r.place() != "RECEIVED" || r.Deliveries != 1 {
				t.Errorf("%s after %d redeliveries", r.place(), r.Deliveries)
			}
		})
	}
}
