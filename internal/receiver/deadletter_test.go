package receiver_test

import (
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

const deadLetterRoutes = `
  - {name: known, match: has(attributes.eventId), dedupe: attributes.eventId, key: attributes.order, engine: e, message: M, deadLetter: process}
  - {name: keyed, match: has(attributes.order) && !has(attributes.park), key: attributes.order, engine: e, message: M, deadLetter: process}
  - {name: parked, match: has(attributes.park), key: attributes.order, engine: e, message: M}
  - {name: sequenced, match: has(attributes.seq), key: '"k"', order: sequence, sequence: int(attributes.seq), engine: e, message: M, deadLetter: process}
  - {name: received, match: has(attributes.received), key: '"k"', order: received, engine: e, message: M, deadLetter: process}`

// publishedAt is when the messages of these tests were first published.
const publishedAt = "2026-03-02T08:15:30.123Z"

// original is a message as its subscription pushes it, deadLetter as the dead-letter topic does.
func original(id string, attributes map[string]string, data string) message {
	return message{ID: id, Time: publishedAt, Attributes: attributes, Data: []byte(data)}
}

func deadLetter(id string, of message) message {
	attributes := map[string]string{
		"CloudPubSubDeadLetterSourceDeliveryCount":       "7",
		"CloudPubSubDeadLetterSourceSubscription":        "orders-push",
		"CloudPubSubDeadLetterSourceSubscriptionProject": "demo-proj",
		"CloudPubSubDeadLetterSourceTopicPublishTime":    strings.Replace(of.Time, "Z", "+00:00", 1),
	}
	maps.Copy(attributes, of.Attributes)
	return message{ID: id, Subscription: "projects/demo-proj/subscriptions/orders-dlt", Time: "2026-03-02T09:40:00Z",
		OrderingKey: of.OrderingKey, Attributes: attributes, Data: of.Data}
}

func (w *world) letters(bodies ...[]byte) {
	w.t.Helper()
	for i, body := range bodies {
		if got := w.postDeadLetter(body); got != http.StatusNoContent {
			w.t.Fatalf("dead letter %d: status %d", i, got)
		}
	}
}

func TestC085ADeadLetterIsTheMessageThatItWas(t *testing.T) {
	w := newWorld(t, anyRoute)
	body := input(t, "C085")[0]
	w.letters(body, body)
	r := w.one()
	if r.place() != "PARKED/DEAD_LETTERED" || r.Subscription != subscription || r.Scope != subscription || r.SourceAttempts.Int64 != 7 ||
		!r.PublishedAt.Equal(time.Date(2026, 3, 2, 8, 15, 30, 123e6, time.UTC)) || r.OrderingKey != "WO-4711" || r.Deliveries != 1 {
		t.Errorf("the row is %+v", r)
	}
	if len(r.Attributes) != 1 || r.Attributes["eventType"] != "OrderClosed" {
		t.Errorf("attributes %v: Pub/Sub's own are no part of the message", r.Attributes)
	}
	data := []byte(`{"orderId":"WO-4711","event":"completed"}`)
	if r.Body != string(data) || r.Content != inbox.ContentSHA256(data, map[string]string{"eventType": "OrderClosed"}) {
		t.Errorf("payload %q, content %s", r.Body, r.Content)
	}
	if r.ID != inbox.ID(inbox.DeadLetterIdentity, consumer, subscription, "9200000000008501") {
		t.Errorf("id %s", r.ID)
	}
	lines := 0
	for _, entry := range w.log.entries(t) {
		if entry["severity"] == "ERROR" && entry["message"] == "dead letter" && entry["inboxId"] == r.ID {
			lines++
		}
	}
	if lines != 2 {
		t.Errorf("%d dead letters are logged as errors, want 2: one for each", lines)
	}
}

func TestOnlyAnIdOfTheEventsOwnMakesADeadLetterADuplicate(t *testing.T) {
	w := newWorld(t, deadLetterRoutes)
	o := original("1", map[string]string{"eventId": "e-1", "order": "4711"}, "{}")
	w.deliver(o.body(t))
	w.letters(deadLetter("d-1", o).body(t), deadLetter("d-2", o).body(t))
	if r := w.one(); r.place() != "RECEIVED" || r.Deliveries != 2 || r.SourceAttempts.Valid {
		t.Errorf("%s after %d redeliveries", r.place(), r.Deliveries)
	}
	// The letter comes first: the original, redelivered late, is the duplicate.
	late := original("2", map[string]string{"eventId": "e-2", "order": "4711"}, "{}")
	w.letters(deadLetter("d-3", late).body(t))
	w.deliver(late.body(t))
	if rows := w.rows(); len(rows) != 2 || rows[1].place() != "RECEIVED" || rows[1].Deliveries != 1 {
		t.Errorf("rows %v", places(rows))
	}
	// The same id with other content contradicts.
	other := original("3", map[string]string{"eventId": "e-1", "order": "4711"}, `{"other":true}`)
	w.letters(deadLetter("d-4", other).body(t))
	if rows := w.rows(); len(rows) != 3 || rows[2].place() != "PARKED/DEDUPE_CONFLICT" || rows[2].ConflictsWith != rows[0].ID {
		t.Errorf("rows %v", places(rows))
	}
}

func TestADeadLetterIsOneOnEveryWayIn(t *testing.T) {
	for name, tt := range map[string]struct {
		attributes map[string]string
		want       string
	}{
		"a route that parks":     {map[string]string{"order": "4711", "park": ""}, "PARKED/DEAD_LETTERED"},
		"a route that processes": {map[string]string{"order": "4711"}, "RECEIVED"},
		"no route":               {nil, "PARKED/DEAD_LETTERED"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, deadLetterRoutes)
			letter := deadLetter("d-1", original("1", tt.attributes, "{}"))
			w.deliver(letter.body(t), letter.body(t))
			w.letters(letter.body(t))
			r := w.one()
			if r.place() != tt.want || r.Deliveries != 2 || r.Subscription != subscription || r.SourceAttempts.Int64 != 7 ||
				r.NextAttempt.Valid != (tt.want == "RECEIVED") || len(r.Attributes) != len(tt.attributes) {
				t.Errorf("%s after %d redeliveries, of %s, due %v, with the attributes %v", r.place(), r.Deliveries, r.Subscription, r.NextAttempt, r.Attributes)
			}
			// Published to the source topic again by hand, with its attributes: another message id, the same message.
			again := letter
			again.ID, again.Subscription = "m-9", subscription
			w.deliver(again.body(t))
			rows := w.rows()
			if len(rows) != 2 || rows[1].place() != "PARKED/DEAD_LETTERED" || (rows[1].ConflictsWith == rows[0].ID) != (tt.attributes != nil) {
				t.Errorf("rows %v, the second beside %q", places(rows), rows[len(rows)-1].ConflictsWith)
			}
		})
	}
}

// A row that an earlier revision made of such a push as of any other stays its row.
func TestAPushThatOwnsARowKeepsItThoughItCarriesADeadLetter(t *testing.T) {
	w := newWorld(t, deadLetterRoutes)
	letter := deadLetter("d-1", original("1", map[string]string{"order": "4711"}, "{}"))
	plain := letter
	plain.Attributes = map[string]string{"order": "4711"} // what Pub/Sub adds is no content
	w.deliver(plain.body(t), letter.body(t), letter.body(t))
	if r := w.one(); r.place() != "RECEIVED" || r.Deliveries != 2 || r.SourceAttempts.Valid {
		t.Errorf("%s after %d redeliveries", r.place(), r.Deliveries)
	}
}

// The original was stored and its answer lost until Pub/Sub gave up; or another message looks the same. A person decides.
func TestADeadLetterThatMayHaveBeenStoredIsParkedBesideIt(t *testing.T) {
	for name, attributes := range map[string]map[string]string{
		"published": {"order": "4711"}, "sequence": {"seq": "7"}, "received": {"received": ""}, "parked": {"order": "4711", "park": ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, deadLetterRoutes)
			o := original("1", attributes, "{}")
			w.deliver(o.body(t))
			w.letters(deadLetter("d-1", o).body(t))
			rows := w.rows()
			if len(rows) != 2 || rows[0].place() != "RECEIVED" || rows[1].place() != "PARKED/DEAD_LETTERED" || rows[1].ConflictsWith != rows[0].ID {
				t.Fatalf("rows %v, conflicts with %q", places(rows), rows[len(rows)-1].ConflictsWith)
			}
			// Also when the first has finished: it is still there.
			w.set(rows[0].ID, map[string]any{"Status": "PROCESSED"})
			w.letters(deadLetter("d-2", o).body(t))
			if rows := w.rows(); len(rows) != 3 || rows[2].place() != "PARKED/DEAD_LETTERED" || rows[2].ConflictsWith == "" {
				t.Errorf("rows %v", places(rows))
			}
		})
	}
}

func TestWhatMakesNoTwin(t *testing.T) {
	for name, change := range map[string]func(m *message){
		"another content":      func(m *message) { m.Data = []byte("[]") },
		"another attribute":    func(m *message) { m.Attributes = map[string]string{"order": "4711", "x": "y"} },
		"another publish time": func(m *message) { m.Time = "2026-03-02T08:15:30.124Z" },
		"another key":          func(m *message) { m.Attributes = map[string]string{"order": "4712"} },
		"another subscription": func(m *message) { m.Subscription = subscription + "-2" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, deadLetterRoutes)
			o := original("1", map[string]string{"order": "4711"}, "{}")
			stored := o
			change(&stored)
			w.deliver(stored.body(t))
			w.letters(deadLetter("d-1", o).body(t))
			if rows := w.rows(); len(rows) != 2 || rows[1].place() != "RECEIVED" || rows[1].ConflictsWith != "" {
				t.Errorf("rows %v, the second conflicts with %q", places(rows), rows[len(rows)-1].ConflictsWith)
			}
		})
	}
}

func TestAPublishTimeWithoutAFractionStillFindsItsTwin(t *testing.T) {
	w := newWorld(t, deadLetterRoutes)
	o := original("1", map[string]string{"order": "4711"}, "{}")
	w.deliver(o.body(t))
	cut := o
	cut.Time = "2026-03-02T08:15:30Z"
	w.letters(deadLetter("d-1", cut).body(t))
	if rows := w.rows(); len(rows) != 2 || rows[1].ConflictsWith != rows[0].ID {
		t.Errorf("rows %v", places(rows))
	}
}

// The row of an earlier revision has a hash in which a tracer's attribute was content.
func TestALetterFindsItsTwinOfAnEarlierRevision(t *testing.T) {
	w := newWorld(t, deadLetterRoutes)
	o := original("1", map[string]string{"order": "4711", "b3": "x"}, "{}")
	w.deliver(o.body(t))
	contents := inbox.Contents(o.Data, o.Attributes)
	w.set(w.one().ID, map[string]any{"ContentSha256": contents[len(contents)-1]})
	w.letters(deadLetter("d-1", o).body(t))
	if rows := w.rows(); len(contents) != 2 || len(rows) != 2 || rows[1].ConflictsWith != rows[0].ID {
		t.Errorf("rows %v", places(rows))
	}
}

func TestALetterThatIsToBeProcessedWaitsInItsPlace(t *testing.T) {
	w := newWorld(t, deadLetterRoutes)
	o := original("1", map[string]string{"order": "4711"}, "{}")
	w.letters(deadLetter("d-1", o).body(t))
	r := w.one()
	moved := time.Date(2026, 3, 2, 9, 40, 0, 0, time.UTC)
	if r.place() != "RECEIVED" || !r.NextAttempt.Time.Equal(moved.Add(15*time.Minute)) || !r.OrderedAt.Equal(r.PublishedAt) || r.Key != "4711" {
		t.Errorf("%s, due %v, ordered at %v, key %q", r.place(), r.NextAttempt, r.OrderedAt, r.Key)
	}
	if n := w.number("SELECT COUNT(*) FROM Lanes WHERE WokenAt IS NOT NULL"); n != 1 {
		t.Errorf("%d lanes are woken", n)
	}
}

func TestWithoutEvidenceNothingRunsByItself(t *testing.T) {
	w := newWorld(t, deadLetterRoutes)
	unknownTime := deadLetter("d-2", original("2", map[string]string{"order": "4711"}, "{}"))
	delete(unknownTime.Attributes, "CloudPubSubDeadLetterSourceTopicPublishTime")
	for _, m := range []message{
		deadLetter("d-1", original("1", map[string]string{"order": ""}, "{}")), // no key: nothing to find a sibling by
		unknownTime,
		deadLetter("d-3", original("3", map[string]string{"seq": "x"}, "{}")), // against its contract
		deadLetter("d-4", original("4", nil, "{}")),                           // no route
		deadLetter("d-5", original("5", map[string]string{"order": "4711", "park": ""}, "{}")),
		{ID: "d-6", Subscription: "projects/demo-proj/subscriptions/orders-dlt", Attributes: map[string]string{"order": "9", "park": ""}},
	} {
		w.letters(m.body(t))
		rows := w.rows()
		r := rows[len(rows)-1]
		if r.place() != "PARKED/DEAD_LETTERED" || !r.SourceAttempts.Valid || r.NextAttempt.Valid {
			t.Errorf("%s: %s, due %v", m.ID, r.place(), r.NextAttempt)
		}
		switch m.ID {
		case "d-3":
			if !strings.Contains(r.Error, "CONTRACT: sequence") {
				t.Errorf("d-3 says %q", r.Error)
			}
		case "d-4":
			if !strings.Contains(r.Error, "NO_ROUTE") || r.Route != "" {
				t.Errorf("d-4 says %q", r.Error)
			}
		case "d-6": // published there by hand: the dead-letter subscription is its source
			if r.Subscription != "projects/demo-proj/subscriptions/orders-dlt" || r.SourceAttempts.Int64 != 0 {
				t.Errorf("d-6 is of %s after %v", r.Subscription, r.SourceAttempts)
			}
		}
	}
}

func TestAnUnreadableDeadLetterIsKeptAsItCame(t *testing.T) {
	w := newWorldWithBucket(t, deadLetterRoutes)
	body := []byte(`{"message":{"messageId":"d-1","data":"@","attributes":{"order":"1"}},"subscription":"projects/p/subscriptions/dlt"}`)
	w.letters(body, body)
	r := w.one()
	if r.place() != "PARKED/UNREADABLE" || r.Body != string(body) || !r.SourceAttempts.Valid || r.Deliveries != 1 {
		t.Errorf("%s with %q after %d redeliveries", r.place(), r.Body, r.Deliveries)
	}
}

func TestALargeDeadLetterHasItsObject(t *testing.T) {
	w := newWorldWithBucket(t, anyRoute)
	data := noise(2 * mib)
	w.letters(deadLetter("d-1", original("1", nil, string(data))).body(t))
	w.checkObject(w.one(), data)
}

func TestEqualIdsOfTwoTopicsAreTwoMessages(t *testing.T) {
	w := newWorld(t, anyRoute)
	o := original("7", nil, "{}")
	w.deliver(o.body(t))
	w.letters(deadLetter("7", o).body(t)) // the emulators count from 1 in every topic
	if rows := w.rows(); len(rows) != 2 || rows[1].place() != "PARKED/DEAD_LETTERED" {
		t.Errorf("rows %v", places(rows))
	}
}

func TestTheDeadLetterEndpointAnswersAsTheOther(t *testing.T) {
	w := newWorld(t, anyRoute)
	for body, want := range map[string]int{"": 400, "{}": 400, `{"message":{"data":"eA=="}}`: 400} {
		if got := w.postDeadLetter([]byte(body)); got != want {
			t.Errorf("%q: status %d, want %d", body, got, want)
		}
	}
	w.checkRefused(3, 400)
}

// set changes a row past everything.
func (w *world) set(id string, values map[string]any) {
	w.t.Helper()
	columns, all := []string{"InboxId"}, []any{id}
	for name, value := range values {
		columns, all = append(columns, name), append(all, value)
	}
	if _, err := w.client.Apply(w.t.Context(), []*spanner.Mutation{spanner.Update("Messages", columns, all)}); err != nil {
		w.t.Fatal(err)
	}
}

func TestALetterThatDoesNotSayWhereItComesFromNeverRunsByItself(t *testing.T) {
	for name, drop := range map[string][]string{
		"nothing":    {"CloudPubSubDeadLetterSourceSubscription", "CloudPubSubDeadLetterSourceSubscriptionProject"},
		"no project": {"CloudPubSubDeadLetterSourceSubscriptionProject"},
	} {
		w := newWorld(t, deadLetterRoutes)
		m := deadLetter("d-1", original("1", map[string]string{"order": "4711", "eventId": "e-1"}, "{}"))
		for _, attribute := range drop {
			delete(m.Attributes, attribute)
		}
		w.letters(m.body(t))
		if r := w.one(); r.place() != "PARKED/DEAD_LETTERED" || r.NextAttempt.Valid {
			t.Errorf("%s: %s, due %v", name, r.place(), r.NextAttempt)
		}
	}
}

// Whoever may publish to the dead-letter topic writes what a letter says about itself.
func TestWhatADeadLetterSaysAboutItselfIsBounded(t *testing.T) {
	moved := time.Date(2026, 3, 2, 9, 40, 0, 0, time.UTC)
	tests := map[string]struct {
		published, count string
		known            bool // the publish time is believed
		attempts         int64
	}{
		"the last moment that Spanner knows": {"9999-12-31T23:59:59.9995Z", "7", false, 7},
		"beyond it in UTC":                   {"9999-12-31T23:59:59-12:00", "7", false, 7},
		"a year after it was moved":          {"2027-03-02T09:40:00Z", "7", false, 7},
		"two minutes after it was moved":     {"2026-03-02T09:42:00Z", "7", false, 7},
		"just after, by another clock":       {"2026-03-02T09:40:30Z", "7", true, 7},
		"the first year":                     {"0001-01-01T00:00:00.001Z", "7", true, 7},
		"before it in UTC":                   {"0001-01-01T00:00:00+14:00", "7", false, 7},
		"no time":                            {"yesterday", "7", false, 7},
		"a count beyond 64 bits":             {publishedAt, "9223372036854775808", true, 0},
		"the greatest count":                 {publishedAt, "9223372036854775807", true, 1<<63 - 1},
		"a negative count":                   {publishedAt, "-1", true, 0},
		"no count":                           {publishedAt, "seven", true, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, deadLetterRoutes)
			letter := deadLetter("d-1", original("1", map[string]string{"order": "4711"}, "{}"))
			letter.Attributes["CloudPubSubDeadLetterSourceTopicPublishTime"] = tt.published
			letter.Attributes["CloudPubSubDeadLetterSourceDeliveryCount"] = tt.count
			w.letters(letter.body(t))
			r := w.one()
			if r.PublishedAt.IsZero() == tt.known || r.SourceAttempts.Int64 != tt.attempts || r.OrderedAt.After(moved.Add(time.Minute)) {
				t.Errorf("published at %v, ordered at %v, after %d deliveries", r.PublishedAt, r.OrderedAt, r.SourceAttempts.Int64)
			}
		})
	}
}

func TestALetterOfTheLastMomentIsStoredAndDoesNotWaitForIt(t *testing.T) {
	for _, at := range []string{"9999-12-31T23:59:59.999999999Z", "9999-12-31T23:59:59Z"} {
		w := newWorld(t, deadLetterRoutes)
		letter := deadLetter("d-1", original("1", map[string]string{"order": "4711"}, "{}"))
		letter.Time = at
		letter.Attributes["CloudPubSubDeadLetterSourceTopicPublishTime"] = at
		w.letters(letter.body(t))
		if r := w.one(); r.place() != "RECEIVED" || !r.NextAttempt.Time.Equal(wallClock.Add(inbox.DeadLetterWait)) {
			t.Errorf("%s: %s, due %v", at, r.place(), r.NextAttempt)
		}
		w.deliver(message{ID: "2", Time: at, Attributes: map[string]string{"order": "4712"}}.body(t))
	}
}

// A key that holds the message's id is none of the event's own: the letter's id is a new one.
func TestADedupeKeyOfTheMessageIdRecognisesNoDeadLetter(t *testing.T) {
	w := newWorld(t, `
  - {name: a, engine: e, message: M, dedupe: 'has(attributes.eventId) ? attributes.eventId : message.id', deadLetter: process}`)
	o := original("1", map[string]string{"a": "b"}, "{}")
	w.deliver(o.body(t))
	w.letters(deadLetter("d-1", o).body(t))
	rows := w.rows()
	if len(rows) != 2 || rows[1].place() != "PARKED/DEAD_LETTERED" || rows[1].DedupeKey != "d-1" ||
		rows[1].ID != inbox.ID(inbox.DeadLetterIdentity, consumer, subscription, "d-1") {
		t.Errorf("rows %v, the second under %q", places(rows), rows[len(rows)-1].DedupeKey)
	}
	known := original("2", map[string]string{"eventId": "e-1"}, "{}")
	w.deliver(known.body(t))
	w.letters(deadLetter("d-2", known).body(t))
	if rows := w.rows(); len(rows) != 3 || rows[2].Deliveries != 1 {
		t.Errorf("rows %v", places(rows))
	}
}

func TestWhatIsParkedHasNoTime(t *testing.T) {
	w := newWorld(t, deadLetterRoutes)
	first := original("1", map[string]string{"eventId": "e-1", "order": "4711"}, "{}")
	w.deliver(first.body(t))
	other := first
	other.Data = []byte("[]")
	w.letters(deadLetter("d-1", other).body(t))
	if n := w.number("SELECT COUNT(*) FROM Messages WHERE Status = 'PARKED' AND NextAttemptAt IS NOT NULL"); n != 0 || len(w.rows()) != 2 {
		t.Errorf("%d of %d rows are parked and have a time", n, len(w.rows()))
	}
}
