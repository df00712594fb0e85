package pushmsg

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

const ordersPush = "projects/demo-proj/subscriptions/orders-push"

// bodies returns the bodies of a case: each element of a file with an array, else the file as it is.
func bodies(t testing.TB, name string) [][]byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var elements []json.RawMessage
	if json.Unmarshal(content, &elements) != nil {
		return [][]byte{content}
	}
	all := make([][]byte, len(elements))
	for i, element := range elements {
		all[i] = element
	}
	return all
}

func body(t testing.TB, name string) []byte {
	t.Helper()
	all := bodies(t, name)
	if len(all) != 1 {
		t.Fatalf("%s has %d bodies, want one", name, len(all))
	}
	return all[0]
}

func mustParse(t testing.TB, body []byte) *Envelope {
	t.Helper()
	e, err := Parse(body)
	if err != nil {
		t.Fatalf("Parse: %v", err)
	}
	return e
}

func refusal(t testing.TB, body []byte) string {
	t.Helper()
	e, err := Parse(body)
	var refused *NotAPushError
	if !errors.As(err, &refused) || err.Error() != refused.Sentence || e != nil {
		t.Fatalf("Parse = %+v, %v; want a NotAPushError and its sentence", e, err)
	}
	return refused.Sentence
}

// checkEnvelope compares all but the raw message, which must be a value that the body has.
func checkEnvelope(t *testing.T, body []byte, want Envelope) {
	t.Helper()
	got := *mustParse(t, body)
	if !bytes.Contains(body, got.RawMessage) || !json.Valid(got.RawMessage) {
		t.Errorf("RawMessage is no JSON value of the body: %q", got.RawMessage)
	}
	got.RawMessage = nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("envelope (-want +got):\n%s", diff)
	}
}

func utc(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return at.UTC()
}

const completed = `{"orderId":"WO-4711","event":"completed"}`

func TestC001AttributesOnlyMessageHasEmptyData(t *testing.T) {
	checkEnvelope(t, body(t, "C001"), Envelope{
		Subscription: ordersPush,
		MessageID:    "9100000000000101",
		PublishTime:  utc(t, "2026-03-02T08:15:30.5Z"),
		Attributes:   map[string]string{"eventType": "OrderClosed", "orderId": "WO-4711"},
		Data:         []byte{},
	})
}

func TestC002BothSpellingsWithoutAttributes(t *testing.T) {
	checkEnvelope(t, body(t, "C002"), Envelope{
		Subscription:    ordersPush,
		MessageID:       "9100000000000102",
		OrderingKey:     "WO-4711",
		DeliveryAttempt: 2,
		PublishTime:     utc(t, "2026-03-02T08:15:30.123Z"),
		Attributes:      map[string]string{},
		Data:            []byte(completed),
	})
}

func TestC004EmptyOrAbsentIDIsNeverAKey(t *testing.T) {
	for i, body := range bodies(t, "C004") {
		if got := refusal(t, body); !strings.HasPrefix(got, "message id missing") {
			t.Errorf("body %d: %q, want it to begin with: message id missing", i+1, got)
		}
	}
}

func TestC005Base64OfEitherAlphabetPaddedOrNotWithLineBreaks(t *testing.T) {
	const want = "b496e6193030fcdc5530b7f887d53f0031f3128acbb223032320da08c8d92837"
	all := bodies(t, "C005")
	for i, body := range all[:4] {
		e := mustParse(t, body)
		if got := inbox.SHA256(e.Data); got != want || e.Unreadable != "" {
			t.Errorf("body %d: SHA-256 of the data = %s, unreadable %q, want %s", i+1, got, e.Unreadable, want)
		}
	}
	checkEnvelope(t, all[4], Envelope{
		Subscription: ordersPush,
		MessageID:    "9100000000000505",
		PublishTime:  utc(t, "2026-03-02T08:15:30.123Z"),
		Unreadable:   "data is not base64 at byte 0",
	})
}

func TestC006DoublyEncodedPayloadIsDecodedOnce(t *testing.T) {
	e := mustParse(t, body(t, "C006"))
	if got, want := string(e.Data), "eyJzdGF0dXMiOiJTVUNDRVNTIn0="; got != want {
		t.Errorf("Data = %q, want %q", got, want)
	}
}

func TestC009PublishTimeInEveryFormOrUnknown(t *testing.T) {
	want := []time.Time{
		utc(t, "2017-05-15T09:00:50Z"),
		utc(t, "2026-02-17T10:11:12.999999999Z"),
		utc(t, "2026-02-17T10:11:12Z"),
		utc(t, "1970-01-01T00:00:00Z"),
		{},
		{},
	}
	var got []time.Time
	for _, body := range bodies(t, "C009") {
		e := mustParse(t, body)
		if e.Unreadable != "" {
			t.Errorf("message %s is unreadable: %s", e.MessageID, e.Unreadable)
		}
		got = append(got, e.PublishTime)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("publish times (-want +got):\n%s", diff)
	}
}

func TestC012MalformedSampleIsRefusedWithItsPosition(t *testing.T) {
	got := refusal(t, body(t, "C012"))
	if want := "invalid JSON at line 8, column 5 (byte 229)"; !strings.HasPrefix(got, want) {
		t.Errorf("sentence = %q, want it to begin with %q", got, want)
	}
}

func TestC013CloudEventAttributesSurviveUnchanged(t *testing.T) {
	checkEnvelope(t, body(t, "C013"), Envelope{
		Subscription: ordersPush,
		MessageID:    "9100000000001301",
		PublishTime:  utc(t, "2026-03-02T08:15:30.123Z"),
		Attributes: map[string]string{
			"ce-id": "MFk-1", "ce-source": "my-app", "ce-specversion": "1.0", "ce-type": "test.event.signIn",
			"ce-time": "2026-03-02T08:15:30.7759848Z", "Content-Type": "application/json",
		},
		Data: []byte(`{"userId":"u-1"}`),
	})
}

// Headers and methods are the receiver's; what reaches Parse of them is an empty body.
func TestC015EmptyBodyIsRefused(t *testing.T) {
	for _, body := range []string{"", " \r\n\t", "\uFEFF"} {
		if got := refusal(t, []byte(body)); got != sentenceEmpty {
			t.Errorf("Parse(%q): %q, want %q", body, got, sentenceEmpty)
		}
	}
}

func TestC017MessageWithoutDataAndAttributesIsReadable(t *testing.T) {
	checkEnvelope(t, body(t, "C017"), Envelope{
		Subscription: ordersPush,
		MessageID:    "9100000000001701",
		PublishTime:  utc(t, "2026-03-02T08:15:30Z"),
		Attributes:   map[string]string{},
		Data:         []byte{},
	})
}

func TestC017bBodyWithoutAMessageNamesTheLikelySetting(t *testing.T) {
	var got []string
	for _, body := range bodies(t, "C017b") {
		sentence := refusal(t, body)
		if !strings.Contains(sentence, "payload unwrapping (no_wrapper)") {
			t.Errorf("%q does not name the setting", sentence)
		}
		got = append(got, strings.SplitAfter(sentence, ":")[0])
	}
	want := []string{
		`member "message" is null, not an object, so this is not a wrapped push:`,
		`no member "message", not a wrapped push:`,
		`no member "message", not a wrapped push:`,
		`member "message" is a string, not an object, so this is not a wrapped push:`,
		`no member "message", not a wrapped push:`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sentences (-want +got):\n%s", diff)
	}
}

func TestC018AttributesThatAreNoStringsMakeTheWholeMessageUnreadable(t *testing.T) {
	all := bodies(t, "C018")
	checkEnvelope(t, all[0], Envelope{
		Subscription: ordersPush,
		MessageID:    "9100000000001801",
		Unreadable:   `attribute "n" is a number, not a string`,
	})
	checkEnvelope(t, all[1], Envelope{
		Subscription: ordersPush,
		MessageID:    "9100000000001802",
		Unreadable:   `attribute "n" is null, not a string`,
	})
	long := strings.Repeat("v", 1024)
	checkEnvelope(t, all[2], Envelope{
		Subscription: ordersPush,
		MessageID:    "9100000000001803",
		PublishTime:  utc(t, "2026-03-02T08:15:30.123Z"),
		Attributes:   map[string]string{"k00": long, "k01": long, "k02": long},
		Data:         []byte("{}"),
	})
}

func TestC066TraceContextOfThePublisher(t *testing.T) {
	want := []string{"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "", ""}
	var got []string
	for _, body := range bodies(t, "C066") {
		e := mustParse(t, body)
		if e.Unreadable != "" || string(e.Data) != completed {
			t.Errorf("message %s: unreadable %q, data %q", e.MessageID, e.Unreadable, e.Data)
		}
		got = append(got, e.TraceParent())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("trace contexts (-want +got):\n%s", diff)
	}
}

func TestC075StructuredCloudEventIsRefused(t *testing.T) {
	for _, name := range []string{"C075a", "C075b"} {
		if got := refusal(t, body(t, name)); got != sentenceCloudEvent {
			t.Errorf("%s: %q, want %q", name, got, sentenceCloudEvent)
		}
	}
}

func TestC076LegacyBackgroundEventIsRefused(t *testing.T) {
	for _, body := range [][]byte{
		body(t, "C076"),
		[]byte(`{"context": {"eventId": "1", "timestamp": "", "eventType": "", "resource": {}}, "data": {"data": "aA=="}}`),
	} {
		if got := refusal(t, body); got != sentenceBackground {
			t.Errorf("%q, want %q", got, sentenceBackground)
		}
	}
}

func TestC080MonitoringIncidentKeepsItsMixedTypes(t *testing.T) {
	want := []string{
		`{"incident": {"incident_id": "0.mtd1", "scoping_project_id": "demo-proj", "scoping_project_number": 286919713412, ` +
			`"state": "open", "started_at": 1675315787, "ended_at": null, "observed_value": "0.790", "summary": "CPU > 0.5"}, ` +
			`"version": "1.2"}`,
		`{"incident": {"incident_id": "0.mtd1", "scoping_project_id": "demo-proj", "scoping_project_number": 286919713412, ` +
			`"state": "closed", "started_at": 1675315787, "ended_at": 1675316000, "observed_value": "0.790", ` +
			`"summary": "CPU > 0.5"}, "version": "1.2"}`,
	}
	checkReadable(t, "C080", []string{"9100000000008001", "9100000000008002"}, want, map[string]string{})
}

func TestC081BudgetNotificationsDifferOnlyInTheirIDs(t *testing.T) {
	budget := `{"budgetDisplayName": "demo", "alertThresholdExceeded": 0.9, "costAmount": 140.321, ` +
		`"costIntervalStart": "2026-03-01T08:00:00Z", "budgetAmount": 152.557, "budgetAmountType": "SPECIFIED_AMOUNT", ` +
		`"currencyCode": "EUR"}`
	checkReadable(t, "C081", []string{"9100000000008101", "9100000000008102"}, []string{budget, budget},
		map[string]string{
			"billingAccountId": "01D4EE-000000-DFD6EC", "budgetId": "de72f49d-0000-4945-a127-4d6ce8def0bb",
			"schemaVersion": "1.0",
		})
}

func TestC083PlayNotificationsOfOneTopicAreAllReadable(t *testing.T) {
	checkReadable(t, "C083", []string{"9100000000008301", "9100000000008302", "9100000000008303"}, []string{
		`{"version": "1.0", "packageName": "com.example.app", "eventTimeMillis": "1772439330123", ` +
			`"testNotification": {"version": "1.0"}}`,
		`{"version": "1.0", "packageName": "com.example.app", "eventTimeMillis": "1772439330124", ` +
			`"subscriptionNotification": {"version": "1.0", "notificationType": 4, "purchaseToken": "tok-1"}}`,
		`{"version": "1.0", "packageName": "com.example.app", "eventTimeMillis": "1772439399124", ` +
			`"subscriptionNotification": {"version": "1.0", "notificationType": 2, "purchaseToken": "tok-1"}}`,
	}, map[string]string{})
}

func checkReadable(t *testing.T, name string, ids, data []string, attributes map[string]string) {
	t.Helper()
	var gotIDs, gotData []string
	for _, body := range bodies(t, name) {
		e := mustParse(t, body)
		if diff := cmp.Diff(attributes, e.Attributes); diff != "" || e.Unreadable != "" {
			t.Errorf("message %s: unreadable %q, attributes (-want +got):\n%s", e.MessageID, e.Unreadable, diff)
		}
		gotIDs, gotData = append(gotIDs, e.MessageID), append(gotData, string(e.Data))
	}
	if diff := cmp.Diff(ids, gotIDs); diff != "" {
		t.Errorf("ids (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(data, gotData); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}
}

func TestC085DeadLetteredMessageIsNotWrappedAgain(t *testing.T) {
	checkEnvelope(t, body(t, "C085"), Envelope{
		Subscription:    "projects/demo-proj/subscriptions/orders-dlt",
		MessageID:       "9200000000008501",
		OrderingKey:     "WO-4711",
		DeliveryAttempt: 1,
		PublishTime:     utc(t, "2026-03-02T09:40:00Z"),
		Attributes: map[string]string{
			"eventType": "OrderClosed",
			"CloudPubSubDeadLetterSourceDeliveryCount":       "7",
			"CloudPubSubDeadLetterSourceSubscription":        "orders-push",
			"CloudPubSubDeadLetterSourceSubscriptionProject": "demo-proj",
			"CloudPubSubDeadLetterSourceTopicPublishTime":    "2026-03-02T08:15:30.123+00:00",
		},
		Data: []byte(completed),
	})
}

func TestC086EmulatorBodyWithTinyID(t *testing.T) {
	checkEnvelope(t, body(t, "C086"), Envelope{
		Subscription: "projects/local/subscriptions/local-test",
		MessageID:    "7",
		Attributes:   map[string]string{},
		Data:         []byte(`{"a":1}`),
	})
}
