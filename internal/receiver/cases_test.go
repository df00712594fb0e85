package receiver_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// The cases are those of the project's collection of public incidents; each input is the collection's.

const (
	published  = "2026-03-02T08:15:30.123Z"
	orderJSON  = `{"orderId":"WO-4711","event":"completed"}`
	orderRoute = `
  - {name: orders, type: attributes.eventType, key: attributes.orderId, engine: e, message: M}`
)

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		panic(err)
	}
	return t.UTC()
}

// plain is the row of a readable push that nothing is said about.
func plain(id, body string, attributes map[string]string) row {
	if attributes == nil {
		attributes = map[string]string{}
	}
	return row{
		ID: transportID(id), Scope: subscription, DedupeKey: id, TransportKey: transportKey(id), Subscription: subscription,
		MessageID: id, PublishedAt: at(published), OrderedAt: at(published), Route: "any",
		LaneID: inbox.OwnLaneID(consumer, transportID(id)), Status: "RECEIVED", Attributes: attributes,
		Content: inbox.ContentSHA256([]byte(body), attributes), PayloadSHA256: inbox.SHA256([]byte(body)),
		PayloadBytes: int64(len(body)), Body: body,
	}
}

// checkRow compares a row with what is wanted of it, but for the time of its commit.
func checkRow(t *testing.T, want, got row) {
	t.Helper()
	if got.Received.IsZero() {
		t.Error("no commit timestamp")
	}
	got.Received = time.Time{}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestC001AMessageOfAttributesAloneHasAnEmptyPayloadAndItsKey(t *testing.T) {
	w := newWorld(t, orderRoute)
	if got := w.post(input(t, "C001")[0]); got != 204 {
		t.Fatalf("status %d", got)
	}
	want := plain("9100000000000101", "", map[string]string{"eventType": "OrderClosed", "orderId": "WO-4711"})
	want.Route, want.Type, want.Key = "orders", "OrderClosed", "WO-4711"
	want.LaneID = inbox.LaneID(consumer, "", inbox.OrderPublished, "WO-4711")
	want.PublishedAt, want.OrderedAt = at("2026-03-02T08:15:30.5Z"), at("2026-03-02T08:15:30.5Z")
	checkRow(t, want, w.one())
}

func TestC002WithoutAttributesTheRowHasNoneAndTheAttemptIsNoIdentity(t *testing.T) {
	w := newWorld(t, `
  - {name: any, key: message.orderingKey, engine: e, message: M}`)
	body := input(t, "C002")[0]
	again := []byte(strings.Replace(string(body), `"deliveryAttempt": 2`, `"deliveryAttempt": 3`, 1))
	if diff := cmp.Diff([]int{204, 204}, w.postAll([][]byte{body, again})); diff != "" {
		t.Error(diff)
	}
	want := plain("9100000000000102", orderJSON, nil)
	want.OrderingKey, want.Key, want.Deliveries = "WO-4711", "WO-4711", 1
	want.LaneID = inbox.LaneID(consumer, "", inbox.OrderPublished, "WO-4711")
	checkRow(t, want, w.one())
	var attempt int64
	w.query("SELECT DeliveryAttempt FROM Deliveries", &attempt)
	if attempt != 3 {
		t.Errorf("the redelivery has attempt %d, want 3", attempt)
	}
}

func TestC004WithoutAMessageIDThereIsNoRowAndNoTwoBodiesBecomeOne(t *testing.T) {
	w := newWorld(t, anyRoute)
	for i, body := range input(t, "C004") {
		got := post(w.endpoint(), body)
		if got.Code != 400 || !strings.HasPrefix(got.Body.String(), "message id missing") {
			t.Errorf("body %d: got %d %q", i, got.Code, got.Body)
		}
	}
	w.checkRefused(3, 400)
}

func TestC005EveryAlphabetOfBase64GivesTheSameBytesAndOtherTextIsKeptRaw(t *testing.T) {
	w := newWorld(t, anyRoute)
	bodies := input(t, "C005")
	if diff := cmp.Diff(repeat(204, 5), w.postAll(bodies)); diff != "" {
		t.Fatal(diff)
	}
	const sum = "b496e6193030fcdc5530b7f887d53f0031f3128acbb223032320da08c8d92837"
	rows := w.rows()
	for i, r := range rows[:4] {
		if r.PayloadSHA256 != sum || inbox.SHA256([]byte(r.Body)) != sum || r.Status != "RECEIVED" {
			t.Errorf("row %d: %s, %s with sum %s", i, r.place(), fmt.Sprintf("%q", r.Body), r.PayloadSHA256)
		}
	}
	checkRow(t, unreadable("9100000000000505", bodies[4], "data is not base64 at byte 0"), rows[4])
}

// unreadable is the row of a push that was kept as it came.
func unreadable(id string, body []byte, why string) row {
	var push struct{ Message json.RawMessage }
	var inner struct{ PublishTime string }
	if err := errors.Join(json.Unmarshal(body, &push), json.Unmarshal(push.Message, &inner)); err != nil {
		panic(err)
	}
	want := plain(id, string(body), nil)
	if inner.PublishTime == "" {
		want.PublishedAt, want.OrderedAt = time.Time{}, wallClock
	}
	want.Status, want.Reason, want.Error = "PARKED", "UNREADABLE", why
	want.Route, want.Attributes, want.ContentType = "", nil, "application/json"
	want.Content = inbox.SHA256(push.Message)
	return want
}

func TestC006APayloadThatWasEncodedTwiceIsDecodedOnce(t *testing.T) {
	w := newWorld(t, `
  - {name: any, key: payload.status, engine: e, message: M, variables: {status: payload.status}}`)
	if got := w.post(input(t, "C006")[0]); got != 204 {
		t.Fatalf("status %d", got)
	}
	want := plain("9100000000000601", "eyJzdGF0dXMiOiJTVUNDRVNTIn0=", nil)
	want.Status, want.Reason = "PARKED", "CONTRACT"
	want.Error = "key (payload.status): a field that it reads is missing; the payload is not JSON"
	checkRow(t, want, w.one())
}

func TestC009APublishTimeIsKeptExactlyOrUnknownAndDecidesNoOtherTime(t *testing.T) {
	w := newWorld(t, anyRoute)
	if diff := cmp.Diff(repeat(204, 6), w.postAll(input(t, "C009"))); diff != "" {
		t.Fatal(diff)
	}
	var got []string
	for _, r := range w.rows() {
		kept := "unknown"
		if !r.PublishedAt.IsZero() {
			kept = r.PublishedAt.UTC().Format(time.RFC3339Nano)
		}
		got = append(got, kept+", ordered at "+r.OrderedAt.UTC().Format(time.RFC3339Nano))
		if r.NextAttempt.Valid || r.Purge.Valid || r.PayloadPurge.Valid || r.Lapsed.Valid || r.Status != "RECEIVED" {
			t.Errorf("row %s: due at %v, purged at %v, %v and %v, status %s", r.ID, r.NextAttempt, r.Purge, r.PayloadPurge, r.Lapsed, r.Status)
		}
	}
	want := []string{
		"2017-05-15T09:00:50Z, ordered at 2017-05-15T09:00:50Z",
		"2026-02-17T10:11:12.999999999Z, ordered at 2026-02-17T10:11:12.999999999Z",
		"2026-02-17T10:11:12Z, ordered at 2026-02-17T10:11:12Z",
		"1970-01-01T00:00:00Z, ordered at 1970-01-01T00:00:00Z",
		"unknown, ordered at 2031-05-06T07:08:09Z",
		"unknown, ordered at 2031-05-06T07:08:09Z",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// A lane is due by its commit, whatever the messages say.
	if n := w.number("SELECT COUNT(*) FROM Lanes WHERE WokenAt IS NOT NULL AND DueAt IS NULL AND LeaseUntil IS NULL AND PurgeAt IS NULL"); n != 6 {
		t.Errorf("%d lanes are woken and no more, want 6", n)
	}
}

func TestC011ARepublishedEventIsOneRowByItsEventIDAndThreeByMessageID(t *testing.T) {
	tests := []struct {
		name   string
		routes string
		want   []string // the identity of each row
	}{
		{"with an event id", `
  - {name: any, dedupe: attributes.eventId, engine: e, message: M}`,
			[]string{inbox.ID(inbox.BusinessIdentity, consumer, subscription, "evt-77") + " and 2 redeliveries"}},
		{"without one", anyRoute,
			[]string{transportID("9100000000001100") + " and 0 redeliveries", transportID("9100000000001101") + " and 0 redeliveries",
				transportID("9100000000001102") + " and 0 redeliveries"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, tt.routes)
			if diff := cmp.Diff(repeat(204, 3), w.postAll(input(t, "C011"))); diff != "" {
				t.Error(diff)
			}
			var got []string
			for _, r := range w.rows() {
				got = append(got, fmt.Sprintf("%s and %d redeliveries", r.ID, r.Deliveries))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestC012ABodyThatIsNoJSONIsRefusedWithThePlaceOfTheFault(t *testing.T) {
	w := newWorld(t, anyRoute)
	got := post(w.endpoint(), input(t, "C012")[0])
	if got.Code != 400 || !strings.HasPrefix(got.Body.String(), "invalid JSON at line 8, column 5") {
		t.Errorf("got %d %q", got.Code, got.Body)
	}
	w.checkRefused(1, 400)
	if strings.Contains(w.log.String(), "aGVsbG8=") || strings.Contains(w.log.String(), "attr1") {
		t.Error("the log quotes the body")
	}
}

func TestC013ACloudEventInAttributesIsAnOrdinaryMessage(t *testing.T) {
	w := newWorld(t, `
  - {name: any, match: has(attributes.eventType), engine: e, message: M}
  - {name: events, type: 'attributes["ce-type"]', dedupe: 'attributes["ce-id"]', scope: consumer, engine: e, message: M}`)
	if got := w.post(input(t, "C013")[0]); got != 204 {
		t.Fatalf("status %d", got)
	}
	want := plain("9100000000001301", `{"userId":"u-1"}`, map[string]string{
		"ce-id": "MFk-1", "ce-source": "my-app", "ce-specversion": "1.0", "ce-type": "test.event.signIn",
		"ce-time": "2026-03-02T08:15:30.7759848Z", "Content-Type": "application/json",
	})
	want.Route, want.Type, want.ContentType = "events", "test.event.signIn", "application/json"
	want.Scope, want.DedupeKey = consumer, "MFk-1"
	want.ID = inbox.ID(inbox.BusinessIdentity, consumer, consumer, "MFk-1")
	want.LaneID = inbox.OwnLaneID(consumer, want.ID)
	checkRow(t, want, w.one())
}

func TestC017AnEmptyMessageIsARowAndNoMessageIsNone(t *testing.T) {
	w := newWorld(t, `
  - {name: any, engine: e, message: M, variables: {a: payload.a}}`)
	for i, body := range input(t, "C017b") {
		got := post(w.endpoint(), body)
		if got.Code != 400 || !strings.Contains(got.Body.String(), "no_wrapper") {
			t.Errorf("body %d: got %d %q", i, got.Code, got.Body)
		}
	}
	w.checkRefused(5, 400)
	if got := w.post(input(t, "C017")[0]); got != 204 {
		t.Fatalf("status %d", got)
	}
	want := plain("9100000000001701", "", nil)
	want.PublishedAt, want.OrderedAt = at("2026-03-02T08:15:30Z"), at("2026-03-02T08:15:30Z")
	checkRow(t, want, w.one())
}

func TestC018AnOddAttributeParksTheWholeMessageByNameAndAHundredAreKept(t *testing.T) {
	w := newWorld(t, anyRoute)
	bodies := input(t, "C018")
	if diff := cmp.Diff(repeat(204, 3), w.postAll(bodies[:3])); diff != "" {
		t.Fatal(diff)
	}
	rows := w.rows()
	checkRow(t, unreadable("9100000000001801", bodies[0], `attribute "n" is a number, not a string`), rows[0])
	checkRow(t, unreadable("9100000000001802", bodies[1], `attribute "n" is null, not a string`), rows[1])
	if r := rows[2]; r.Status != "RECEIVED" || len(r.Attributes["k00"]) != 1024 {
		t.Errorf("%s with %d attributes, the first of %d bytes", r.place(), len(r.Attributes), len(r.Attributes["k00"]))
	}
}

func TestC026EachStateOfAResourceIsARowInTheOrderOfItsPublication(t *testing.T) {
	w := newWorld(t, `
  - {name: builds, type: attributes.status, key: attributes.buildId, engine: e, message: M}`)
	if diff := cmp.Diff(repeat(204, 3), w.postAll(input(t, "C026"))); diff != "" {
		t.Fatal(diff)
	}
	var got []string
	for _, r := range w.rows() {
		got = append(got, r.Type+" of "+r.Key+", "+r.place())
		if r.LaneID != inbox.LaneID(consumer, "", inbox.OrderPublished, "b-123") {
			t.Errorf("%s is in a lane of its own", r.Type)
		}
	}
	if diff := cmp.Diff([]string{"QUEUED of b-123, RECEIVED", "WORKING of b-123, RECEIVED", "SUCCESS of b-123, RECEIVED"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestC066ThePublishersTraceIsStoredIfItIsOne(t *testing.T) {
	w := newWorld(t, anyRoute)
	if diff := cmp.Diff(repeat(204, 3), w.postAll(input(t, "C066"))); diff != "" {
		t.Fatal(diff)
	}
	var got []string
	for _, r := range w.rows() {
		got = append(got, r.TraceParent)
		// Trace context belongs to a delivery: the same message republished under another trace has the same content.
		if r.Content != inbox.ContentSHA256([]byte(orderJSON), nil) {
			t.Errorf("the trace of %s is a part of its content", r.MessageID)
		}
	}
	if diff := cmp.Diff([]string{"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "", ""}, got); diff != "" {
		t.Error(diff)
	}
}

func TestC075AStructuredCloudEventIsRefusedWithTheSettingToChange(t *testing.T) {
	w := newWorld(t, anyRoute)
	for _, name := range []string{"C075a", "C075b"} {
		got := post(w.endpoint(), input(t, name)[0], "Content-Type", "application/cloudevents+json")
		want := "CloudEvents envelope is not supported; use a push subscription of Pub/Sub, not Eventarc\n"
		if got.Code != 400 || got.Body.String() != want {
			t.Errorf("%s: got %d %q", name, got.Code, got.Body)
		}
	}
	w.checkRefused(2, 400)
}

func TestC076ALegacyBackgroundEventIsRefusedByName(t *testing.T) {
	w := newWorld(t, anyRoute)
	got := post(w.endpoint(), input(t, "C076")[0])
	if got.Code != 400 || !strings.HasPrefix(got.Body.String(), "legacy background event") {
		t.Errorf("got %d %q", got.Code, got.Body)
	}
	w.checkRefused(1, 400)
}

func TestC080TheKeyComesFromThePayloadAndAMissingOneHoldsNothingUp(t *testing.T) {
	w := newWorld(t, `
  - {name: incidents, key: payload.incident.incident_id, type: payload.incident.state, engine: e, message: M}`)
	bodies := append(input(t, "C080"), message{ID: "1", Data: []byte(`{"incident":{}}`)}.body(t))
	if diff := cmp.Diff(repeat(204, 3), w.postAll(bodies)); diff != "" {
		t.Fatal(diff)
	}
	var got []string
	for _, r := range w.rows() {
		got = append(got, r.place()+" "+r.Key+" "+r.Type)
	}
	if diff := cmp.Diff([]string{"RECEIVED 0.mtd1 open", "RECEIVED 0.mtd1 closed", "RECEIVED  "}, got); diff != "" {
		t.Error(diff)
	}
	if n := w.count("Lanes"); n != 2 {
		t.Errorf("%d lanes, want the incident's and one of its own for the message without a key", n)
	}
}

func TestC081EqualContentUnderTwoMessageIDsIsTwoEvents(t *testing.T) {
	w := newWorld(t, `
  - {name: budgets, key: attributes.budgetId, engine: e, message: M}`)
	bodies := input(t, "C081")
	if diff := cmp.Diff(repeat(204, 2), w.postAll(bodies)); diff != "" {
		t.Fatal(diff)
	}
	rows := w.rows()
	if diff := cmp.Diff([]string{"RECEIVED", "RECEIVED"}, places(rows)); diff != "" {
		t.Fatal(diff)
	}
	if rows[0].Content != rows[1].Content || rows[0].ID == rows[1].ID {
		t.Errorf("want equal content under two ids: %s %s", rows[0].ID, rows[1].ID)
	}
	var push struct{ Message struct{ Data string } }
	if err := json.Unmarshal(bodies[0], &push); err != nil {
		t.Fatal(err)
	}
	exact, err := base64.StdEncoding.DecodeString(push.Message.Data)
	if err != nil || rows[0].Body != string(exact) || !strings.Contains(rows[0].Body, `"costAmount": 140.321,`) {
		t.Errorf("the payload is %q", rows[0].Body)
	}
}

func TestC083AnUnmappedKindIsParkedAndTheOthersShareTheirTokensLane(t *testing.T) {
	w := newWorld(t, `
  - {name: purchases, match: has(payload.subscriptionNotification), key: payload.subscriptionNotification.purchaseToken,
     type: payload.subscriptionNotification.notificationType, engine: e, message: M}`)
	if diff := cmp.Diff(repeat(204, 3), w.postAll(input(t, "C083"))); diff != "" {
		t.Fatal(diff)
	}
	var got []string
	for _, r := range w.rows() {
		got = append(got, r.place()+" "+r.Key+" "+r.Type)
	}
	if diff := cmp.Diff([]string{"PARKED/NO_ROUTE  ", "RECEIVED tok-1 4", "RECEIVED tok-1 2"}, got); diff != "" {
		t.Error(diff)
	}
	if n := w.count("Lanes"); n != 1 {
		t.Errorf("%d lanes, want 1", n)
	}
}
