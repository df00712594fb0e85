package inbox_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

const (
	consumer = "work-order-service"
	sub      = "projects/p/subscriptions/work-orders"
)

// The ids are stored for ever: another formula would make a redelivery of yesterday's message a new one. They were
// computed by another program.
func TestIdentitiesNeverChange(t *testing.T) {
	tests := []struct{ name, got, want string }{
		{"transport", inbox.ID(inbox.TransportIdentity, consumer, sub, "8675309"), "48ca68b03bc91a53dfac731c7e30cc81"},
		{"business", inbox.ID(inbox.BusinessIdentity, consumer, sub, "evt-1"), "bec9203792a7a11a4423ce3abb8a2453"},
		{"dead letter", inbox.ID(inbox.DeadLetterIdentity, consumer, sub, "8675309"), "370107459495485a69647cd8688583b7"},
		{"replay", inbox.ID(inbox.ReplayIdentity, consumer, "", "op-1"), "3f6cece2ab9c35bd5db12794b2853a12"},
		{"conflict", inbox.ConflictID(consumer, sub, "8675309", "c0ffee"), "c3d0c551ef9f3fc4b870f53971cde52f"},
		{"transport key", inbox.TransportKey(consumer, sub, "8675309"), "7e82d7be033a75e125d6696315b4b962"},
		{"lane", inbox.LaneID(consumer, "", inbox.OrderPublished, "WO-4711"), "376a3a7df55ea79e858b62605ad20d97"},
		{"lane of a key space", inbox.LaneID(consumer, "billing", inbox.OrderSequence, "WO-4711"), "8249952427a4d87cc750200dcff4e18d"},
		{"own lane", inbox.OwnLaneID(consumer, "0123456789abcdef0123456789abcdef"), "a861e5fc0c73923c8273a717216b9bea"},
		{"content", inbox.ContentSHA256([]byte(`{"a":1}`), map[string]string{"tenant": "t1", "eventType": "WorkOrderCompleted"}),
			"c493b0f2efb4ee9c32565f788659730b17339ce981ce85f539e172b71b9481d1"},
		{"empty content", inbox.ContentSHA256(nil, nil), "af5570f5a1810b7af78caf4bc70a660f0df51e42baf91d4de5b2328de0e83dfc"},
		{"payload", inbox.SHA256([]byte("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, tt.got, tt.want)
		}
	}
}

// collisions fails where two of the named ids are equal.
func collisions(t *testing.T, ids map[string]string) {
	t.Helper()
	owner := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(ids)) {
		id := ids[name]
		if other, taken := owner[id]; taken {
			t.Errorf("%s and %s have one id, %s", other, name, id)
		}
		owner[id] = name
	}
}

func TestKindsNeverCollide(t *testing.T) {
	ids := map[string]string{"conflict id": inbox.ConflictID("c", "s", "k", ""), "transport key": inbox.TransportKey("c", "s", "k")}
	for _, kind := range []inbox.IdentityKind{inbox.TransportIdentity, inbox.BusinessIdentity, inbox.ConflictIdentity,
		inbox.DeadLetterIdentity, inbox.ReplayIdentity} {
		ids[string(kind)] = inbox.ID(kind, "c", "s", "k")
	}
	for _, order := range []inbox.OrderKind{inbox.OrderPublished, inbox.OrderReceived, inbox.OrderSequence, inbox.OrderNone} {
		ids["lane "+string(order)] = inbox.LaneID("c", "s", order, "k")
	}
	ids["own lane"] = inbox.OwnLaneID("c", "k")
	collisions(t, ids)
}

// Parts are hashed with their lengths: what one part loses another cannot gain.
func TestPartsDoNotRunIntoEachOther(t *testing.T) {
	ids := map[string]string{}
	for _, parts := range [][3]string{
		{"ab", "c", "d"}, {"a", "bc", "d"}, {"a", "b", "cd"}, {"abcd", "", ""}, {"", "abcd", ""}, {"", "", "abcd"}, {"", "", ""},
		{"a\x00b", "c", "d"}, {"a", "\x00bc", "d"}, {"a", "b", "c\x00d"},
	} {
		ids[fmt.Sprintf("%q", parts)] = inbox.ID(inbox.BusinessIdentity, parts[0], parts[1], parts[2])
	}
	ids["conflict with nothing"] = inbox.ConflictID("a", "b", "", "")
	ids["conflict with a key"] = inbox.ConflictID("a", "b", "x", "")
	ids["conflict with a content"] = inbox.ConflictID("a", "b", "", "x")
	collisions(t, ids)
}

func TestIdentitiesAreHex(t *testing.T) {
	for _, id := range []string{inbox.ID(inbox.TransportIdentity, "", "", ""), inbox.LaneID("", "", "", ""), inbox.OwnLaneID("", "")} {
		if len(id) != 32 {
			t.Errorf("%q has %d characters, want 32", id, len(id))
		}
		for _, r := range id {
			if (r < '0' || r > '9') && (r < 'a' || r > 'f') {
				t.Errorf("%q holds %q", id, r)
			}
		}
	}
}

func TestLaneShardIsTheFirstHexDigit(t *testing.T) {
	for i, digit := range "0123456789abcdef" {
		if got := inbox.LaneShard("", "", string(digit)+"fff"); got != int64(i) {
			t.Errorf("the shard of %c... is %d, want %d", digit, got, i)
		}
	}
	for _, odd := range []string{"", "x", "A"} {
		if got := inbox.LaneShard("", "", odd); got != 0 {
			t.Errorf("the shard of %q is %d, want 0", odd, got)
		}
	}
}

func TestLanesSpreadOverAllShards(t *testing.T) {
	lanes := map[int64]int{}
	for i := range 1600 {
		lanes[inbox.LaneShard("", "", inbox.LaneID(consumer, "", inbox.OrderPublished, fmt.Sprintf("WO-%d", i)))]++
	}
	for shard := range int64(inbox.Shards) {
		if lanes[shard] < 50 || lanes[shard] > 200 {
			t.Errorf("shard %d holds %d of 1600 lanes, want about 100", shard, lanes[shard])
		}
	}
}

func TestContentIsWhatThePublisherSent(t *testing.T) {
	base := func() map[string]string { return map[string]string{"eventId": "1", "tenant": "t"} }
	with := func(name, value string) map[string]string { m := base(); m[name] = value; return m }
	want := inbox.ContentSHA256([]byte("data"), base())
	same := map[string]map[string]string{
		"the dead-letter source": with("CloudPubSubDeadLetterSourceSubscription", "work-orders"),
		"the delivery count":     with("CloudPubSubDeadLetterSourceDeliveryCount", "5"),
		"the client's trace":     with("googclient_traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
		"the trace":              with("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
		"the trace state":        with("tracestate", "a=b"),
	}
	for _, name := range []string{"Traceparent", "TRACESTATE", "baggage", "b3", "B3", "X-B3-TraceId", "x-b3-sampled", "x_b3_spanid",
		"x-cloud-trace-context", "X-Cloud-Trace-Context", "grpc-trace-bin", "X-Amzn-Trace-Id", "x-datadog-trace-id", "x-datadog-tags",
		"dd-pathway-ctx-base64", "sentry-trace", "Sentry_Trace", "uber-trace-id", "uberctx-user", "newrelic", "elastic-apm-traceparent",
		"ot-tracer-traceid", "googclient_schemarevisionid", "Googclient_Other"} {
		same[name] = with(name, "x")
	}
	for name, attributes := range same {
		if got := inbox.ContentSHA256([]byte("data"), attributes); got != want {
			t.Errorf("%s changes the content", name)
		}
	}
	for _, name := range []string{"our_span", "OUR-span", "hop-1", "Hop-"} {
		if got := inbox.ContentSHA256([]byte("data"), with(name, "x"), "our-span", "hop-*"); got != want {
			t.Errorf("%s changes the content, which the configuration calls trace context", name)
		}
	}
	collisions(t, map[string]string{
		"itself":                   want,
		"other data":               inbox.ContentSHA256([]byte("datb"), base()),
		"no data":                  inbox.ContentSHA256(nil, base()),
		"one attribute more":       inbox.ContentSHA256([]byte("data"), with("a", "")),
		"another value":            inbox.ContentSHA256([]byte("data"), with("tenant", "u")),
		"a name that looks traced": inbox.ContentSHA256([]byte("data"), with("traceparent2", "x")),
		"a name like a vitamin":    inbox.ContentSHA256([]byte("data"), with("b3x", "x")),
		"a name that goes on":      inbox.ContentSHA256([]byte("data"), with("our-spanner", "x"), "our-span"),
		"values exchanged":         inbox.ContentSHA256([]byte("data"), map[string]string{"eventId": "t", "tenant": "1"}),
		"names run into values":    inbox.ContentSHA256([]byte("data"), map[string]string{"eventId1": "", "tenant": "t"}),
		"no attributes":            inbox.ContentSHA256([]byte("data"), nil),
	})
	if inbox.ContentSHA256(nil, nil) != inbox.ContentSHA256([]byte{}, map[string]string{}) {
		t.Error("nothing and emptiness differ")
	}
}

// What is no content by now was content when a row was stored: its redelivery has the attribute with the same value.
func TestAContentHasTheHashesOfEarlierLists(t *testing.T) {
	attributes := map[string]string{"eventId": "1", "b3": "x", "our-span": "y"}
	want := []string{
		inbox.ContentSHA256([]byte("data"), map[string]string{"eventId": "1"}),
		inbox.ContentSHA256([]byte("data"), map[string]string{"eventId": "1", "our-span": "y"}),
		"6760cc2bbb4b965dfb13e0fcfa1c71008dde8c2de708e602a7280497eb7768a9", // of all three: as rows were stored that know W3C's names only
	}
	if got := inbox.Contents([]byte("data"), attributes, "our-span"); !slices.Equal(got, want) {
		t.Errorf("the hashes are %v, want %v", got, want)
	}
	if got := inbox.Contents([]byte("data"), map[string]string{"eventId": "1", "traceparent": "x"}, "our-span"); len(got) != 1 {
		t.Errorf("%d hashes where no list differs", len(got))
	}
}

func TestTheOrderOfAttributesDoesNotCount(t *testing.T) {
	var names []string
	for i := range 50 {
		names = append(names, fmt.Sprintf("attribute-%02d", i))
	}
	hash := func() string {
		attributes := map[string]string{} // a map of its own: each has an order of its own
		for _, name := range names {
			attributes[name] = name
		}
		return inbox.ContentSHA256([]byte("data"), attributes)
	}
	want := hash()
	for range 20 {
		slices.Reverse(names)
		if got := hash(); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
}
