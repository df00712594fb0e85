package receiver_test

import (
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

func TestWhatARouteSaysOfAMessageIsInItsRow(t *testing.T) {
	w := newWorld(t, `
  - {name: any, type: payload.type, version: payload.version, tenant: payload.tenant, aggregateType: '"WorkOrder"',
     correlationId: payload.correlation, causationId: payload.causation, parked: block, engine: e, message: M}`)
	w.deliver(message{ID: "1", Attributes: map[string]string{"content-type": "application/vnd.order+json", "<&>": "\u2028\x00é"},
		Data: []byte(`{"type":"T","version":2,"tenant":"acme","correlation":"c-1","causation":"c-0"}`)}.body(t))
	got := map[string]string{}
	var version, tenant, aggregate, correlation, causation, revision spanner.NullString
	var blocks bool
	w.query(`SELECT MessageVersion, TenantId, AggregateType, CorrelationId, CausationId, Blocks FROM Messages`,
		&version, &tenant, &aggregate, &correlation, &causation, &blocks)
	for name, value := range map[string]spanner.NullString{"version": version, "tenant": tenant, "aggregate": aggregate,
		"correlation": correlation, "causation": causation} {
		got[name] = value.StringVal
	}
	want := map[string]string{"version": "2", "tenant": "acme", "aggregate": "WorkOrder", "correlation": "c-1", "causation": "c-0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	r := w.one()
	if diff := cmp.Diff([]string{"T", "application/vnd.order+json", "\u2028\x00é"}, []string{r.Type, r.ContentType, r.Attributes["<&>"]}); diff != "" || !blocks {
		t.Errorf("blocks %v, %s", blocks, diff)
	}
	w.deliver(message{ID: "1", Attempt: 7, Attributes: r.Attributes, Data: []byte(r.Body)}.body(t))
	var id, from spanner.NullString
	var attempt int64
	w.query("SELECT MessageId, Subscription, DeliveryAttempt, Revision FROM Deliveries", &id, &from, &attempt, &revision)
	if diff := cmp.Diff([]any{"1", subscription, int64(7), "rev-1"}, []any{id.StringVal, from.StringVal, attempt, revision.StringVal}); diff != "" {
		t.Error(diff)
	}
}

func TestEachKindOfOrderHasItsPlaceInTheLane(t *testing.T) {
	const key = "key: payload.id, "
	epoch := time.Unix(0, 0).UTC()
	tests := []struct {
		name, route, data string
		lane              string
		sequence          int64
		ordered           time.Time
		place             string
	}{
		{"published", key, `{"id":"K"}`, inbox.LaneID(consumer, "", inbox.OrderPublished, "K"), 0, at(published), "RECEIVED"},
		{"received", key + "order: received, ", `{"id":"K"}`, inbox.LaneID(consumer, "", inbox.OrderReceived, "K"), 0, epoch, "RECEIVED"},
		{"sequence", key + "order: sequence, sequence: payload.n, ", `{"id":"K","n":9007199254740993}`,
			inbox.LaneID(consumer, "", inbox.OrderSequence, "K"), 9007199254740993, at(published), "RECEIVED"},
		{"sequence, and none", key + "order: sequence, sequence: payload.n, ", `{"id":"K"}`,
			inbox.LaneID(consumer, "", inbox.OrderSequence, "K"), 0, at(published), "PARKED/CONTRACT"},
		{"sequence, and no integer", key + "order: sequence, sequence: payload.n, ", `{"id":"K","n":1.5}`,
			inbox.LaneID(consumer, "", inbox.OrderSequence, "K"), 0, at(published), "PARKED/CONTRACT"},
		{"sequence, and none, in a route that blocks", key + "order: sequence, sequence: payload.n, parked: block, ", `{"id":"K"}`,
			inbox.LaneID(consumer, "", inbox.OrderSequence, "K"), 0, at(published), "PARKED/CONTRACT"},
		{"none", key + "order: none, ", `{"id":"K"}`, inbox.OwnLaneID(consumer, transportID("1")), 0, at(published), "RECEIVED"},
		{"a key space", key + "keySpace: other, ", `{"id":"K"}`, inbox.LaneID(consumer, "other", inbox.OrderPublished, "K"), 0, at(published), "RECEIVED"},
		{"an empty key", key, `{"id":""}`, inbox.OwnLaneID(consumer, transportID("1")), 0, at(published), "RECEIVED"},
		{"no key", "", `{"id":"K"}`, inbox.OwnLaneID(consumer, transportID("1")), 0, at(published), "RECEIVED"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, `
  - {name: any, `+tt.route+`engine: e, message: M}`)
			w.deliver(message{ID: "1", Data: []byte(tt.data)}.body(t))
			r := w.one()
			if r.LaneID != tt.lane || r.Sequence != tt.sequence || !r.OrderedAt.Equal(tt.ordered) || r.place() != tt.place {
				t.Errorf("lane %s, sequence %d, ordered at %v, %s", r.LaneID, r.Sequence, r.OrderedAt, r.place())
			}
			lanes := w.number("SELECT COUNT(*) FROM Lanes WHERE LaneId = '" + tt.lane + "' AND WokenAt IS NOT NULL")
			if want := map[bool]int64{true: 1}[tt.place == "RECEIVED" || strings.Contains(tt.route, "block")]; lanes != want || w.count("Lanes") != want {
				t.Errorf("%d lanes are woken", lanes)
			}
		})
	}
}

func TestAnUnreadableMessageIsKnownAgainWhateverItsAttempt(t *testing.T) {
	body := func(attempt, data string) []byte {
		return []byte(`{"deliveryAttempt":` + attempt + `,"message":{"messageId":"1","data":"` + data + `"},"subscription":"` + subscription + `"}`)
	}
	w := newWorld(t, anyRoute)
	w.deliver(body("1", "@"), body("2", "@"), body("3", "!"), body("4", "!"), body("5", "e30="))
	rows := w.rows()
	if diff := cmp.Diff([]string{"PARKED/UNREADABLE", "PARKED/DEDUPE_CONFLICT", "PARKED/DEDUPE_CONFLICT"}, places(rows)); diff != "" {
		t.Fatal(diff)
	}
	if rows[0].Body != string(body("1", "@")) || rows[1].Body != string(body("3", "!")) || rows[2].Body != "{}" {
		t.Error("a body is not the one that came")
	}
	if rows[0].Deliveries != 1 || rows[1].Deliveries != 1 || rows[2].Deliveries != 0 {
		t.Errorf("redeliveries: %d %d %d", rows[0].Deliveries, rows[1].Deliveries, rows[2].Deliveries)
	}
}

func TestAttributesOverTheLimitKeepTheMessageRaw(t *testing.T) {
	attributes := map[string]string{}
	for n := range 520 {
		attributes[strings.Repeat("n", n+1)] = strings.Repeat("v", 1024-n-1)
	}
	tests := []struct {
		name string
		more int
		want string
	}{
		{"more than 512 KiB", 0, "PARKED/UNREADABLE"},
		{"512 KiB", -8, "RECEIVED"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for n := 520; n > 520+tt.more; n-- {
				delete(attributes, strings.Repeat("n", n))
			}
			w := newWorld(t, anyRoute)
			body := message{ID: "1", Attributes: attributes, Data: []byte("{}")}.body(t)
			w.deliver(body, body)
			if r := w.one(); r.place() != tt.want || r.Deliveries != 1 || (r.Body == string(body)) != (tt.want != "RECEIVED") {
				t.Errorf("%s with %d bytes and %d redeliveries", r.place(), len(r.Body), r.Deliveries)
			}
		})
	}
}
