package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/codes"

	"github.com/pubsub-inbox/pubsub-inbox/internal/config"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/rpctap"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/receiver"
	"github.com/pubsub-inbox/pubsub-inbox/internal/routing"
	"github.com/pubsub-inbox/pubsub-inbox/internal/spannerstore"
)

// file writes a configuration and returns its name.
func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "inbox.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// keeping is a store that keeps what it is given instead.
type keeping struct {
	receiver.Store
	arrival *inbox.Arrival
}

func (k *keeping) Insert(_ context.Context, a *inbox.Arrival) error {
	k.arrival = a
	return nil
}

// receive stores a push as the receive function would with a configuration, and returns its row's id.
func (w *world) receive(configuration, push string) string {
	w.t.Helper()
	a := arrivalOf(w.t, configuration, push)
	if err := w.store.Insert(w.t.Context(), a); err != nil {
		w.t.Fatal(err)
	}
	return a.Message.ID
}

func arrivalOf(t *testing.T, configuration, push string) *inbox.Arrival {
	t.Helper()
	cfg, _, err := config.Parse("inbox.yaml", []byte(configuration))
	if err != nil {
		t.Fatal(err)
	}
	router, err := routing.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	kept := &keeping{}
	r := receiver.Receiver{Consumer: cfg.Consumer, Store: kept, Router: router, Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC) }}
	if _, err := r.Receive(t.Context(), []byte(push)); err != nil {
		t.Fatal(err)
	}
	return kept.arrival
}

func push(id, rest, data string) string {
	return fmt.Sprintf(`{"subscription":"projects/p/subscriptions/s","message":{"messageId":%q,"data":%q%s}}`, id,
		base64.StdEncoding.EncodeToString([]byte(data)), rest)
}

const nothingMatches = `{name: never, match: "false", key: payload.key, engine: e, message: M}`

func TestRerouteMakesWhatAReceiptWouldHaveMade(t *testing.T) {
	w := newWorld(t)
	const published = `,"publishTime":"2026-01-02T03:04:05.123456789Z","orderingKey":"ok","attributes":{"eventType":"Started","n":"7","content-type":"text/x"}`
	const unpublished = `,"attributes":{"eventType":"Started"}`
	for _, test := range []struct {
		name, route, rest, data string
		was                     string // an earlier configuration; empty: one that has no route for it
	}{
		{"in the order of publishing", `{name: r, type: attributes.eventType, key: payload.key, engine: e, message: M}`, published, `{"key":"WO-1"}`, ""},
		{"without a publish time", `{name: r, key: payload.key, engine: e, message: M}`, unpublished, `{"key":"WO-1"}`, ""},
		{"in the order of receipt", `{name: r, key: payload.key, order: received, engine: e, message: M}`, published, `{"key":"WO-1"}`, ""},
		{"in a sequence, exactly", `{name: r, key: payload.key, order: sequence, sequence: payload.n, engine: e, message: M}`, published, `{"key":"WO-1","n":9007199254740993}`, ""},
		{"without an order", `{name: r, key: payload.key, order: none, engine: e, message: M}`, published, `{"key":"WO-1"}`, ""},
		{"without a key", `{name: r, key: payload.key, engine: e, message: M}`, published, `{}`, ""},
		{"in a key space, blocking", `{name: r, key: payload.key, keySpace: revisions, parked: block, engine: e, message: M}`, published, `{"key":9007199254740993}`, ""},
		{"with all that describes it", `{name: r, type: attributes.eventType, version: attributes.n, tenant: payload.t, aggregateType: '"A"', correlationId: message.id, causationId: message.orderingKey, key: message.subscription, engine: e, message: M}`, published, `{"t":"x"}`, ""},
		{"from a sequence to none", `{name: r, key: payload.key, engine: e, message: M}`, published, `{"key":"WO-1","n":5}`, `{name: old, type: attributes.eventType, tenant: '"gone"', key: payload.n, order: sequence, sequence: payload.n, engine: e, message: M}`},
		{"a payload that is no JSON", `{name: r, key: attributes.eventType, engine: e, message: M}`, published, "\x00\xff", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			w.t = t
			was := test.was
			if was == "" {
				was = nothingMatches
			}
			p := push("id of "+test.name, test.rest, test.data)
			id := w.receive(configOf(was), p)
			w.ok("reroute", id, "--config", file(t, configOf(test.route)), "--reason", "route added", "--actor", "bob")
			rows, err := w.store.Rows(t.Context(), []string{id})
			if err != nil {
				t.Fatal(err)
			}
			want := arrivalOf(t, configOf(test.route), p).Message
			got := rows[id].Message
			if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(inbox.Message{}, "ReceivedAt", "LastErrorMessage"), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-as received +as rerouted):\n%s", diff)
			}
			if woken := w.text("Lanes", got.LaneID, "WokenAt"); woken == "<none>" || woken == "<null>" {
				t.Errorf("its lane is not woken: %s", woken)
			}
			if got := w.ok("show", "--payload", id).out; got != test.data {
				t.Errorf("the payload is %q, want %q", got, test.data)
			}
		})
	}
	w.t = t
	if n := w.count("SELECT COUNT(*) FROM Audit WHERE Action = 'reroute' AND Actor = 'bob' AND Reason = 'route added' AND Before IS NOT NULL AND After IS NOT NULL"); n != 10 {
		t.Errorf("%d audit entries, want 10", n)
	}
}

func TestRerouteReadsAnUnreadableMessageAgain(t *testing.T) {
	w := newWorld(t)
	cfg := configOf(`{name: r, type: attributes.eventType, key: payload.key, engine: e, message: M}`)
	p := push("m-1", `,"publishTime":"2026-01-02T03:04:05Z","attributes":{"eventType":"Started","Content-Type":"text/x"}`, `{"key":"WO-1"}`)
	want := arrivalOf(t, cfg, p)
	// As an older receiver would have stored it.
	stored := *want
	stored.Body, stored.ContentType = []byte(p), "application/json"
	m := &stored.Message
	m.Status, m.Reason, m.Route, m.Type, m.Key, m.Attributes, m.LastErrorMessage = inbox.Parked, inbox.Unreadable, "", "", "", nil, "data is odd"
	m.LaneID, m.ContentSHA256, m.PayloadSHA256, m.PayloadBytes = inbox.OwnLaneID(consumer, m.ID), "raw", inbox.SHA256(stored.Body), int64(len(p))
	if err := w.store.Insert(t.Context(), &stored); err != nil {
		t.Fatal(err)
	}
	w.ok("reroute", m.ID, "--config", file(t, cfg), "--reason", "the reader was corrected")
	rows, err := w.store.Rows(t.Context(), []string{m.ID})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Message, rows[m.ID].Message, cmpopts.IgnoreFields(inbox.Message{}, "ReceivedAt", "LastErrorMessage")); diff != "" {
		t.Errorf("(-as received +as rerouted):\n%s", diff)
	}
	if got := w.ok("show", "--payload", m.ID).out; got != `{"key":"WO-1"}` {
		t.Errorf("the payload is %q", got)
	}
	if got := w.text("Payloads", m.ID, "ContentType"); got != "text/x" {
		t.Errorf("its content type is %s", got)
	}
}

func TestRerouteOfAnUnreadableDeadLetterLeavesOutWhatPubSubHasAdded(t *testing.T) {
	w := newWorld(t)
	attributes, err := json.Marshal(source(map[string]string{"eventType": "Started"}))
	if err != nil {
		t.Fatal(err)
	}
	request := []byte(push("dead-1", `,"publishTime":"2026-05-06T07:08:09Z","attributes":`+string(attributes), `{"key":"WO-1"}`))
	id := w.insert(row{body: request, arrival: func(m *inbox.Message) {
		m.Status, m.Reason, m.Route, m.FromDeadLetter = inbox.Parked, inbox.Unreadable, "", true
		m.PayloadSHA256, m.PayloadBytes = inbox.SHA256(request), int64(len(request))
	}})
	w.ok("reroute", id, "--reason", "x", "--config", file(t, configOf(`{name: r, key: payload.key, engine: e, message: M}`)))
	rows, err := w.store.Rows(t.Context(), []string{id})
	if err != nil {
		t.Fatal(err)
	}
	m := rows[id].Message
	if diff := cmp.Diff(map[string]string{"eventType": "Started"}, m.Attributes); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
	if want := time.Date(2026, 3, 4, 5, 6, 7, 123000000, time.UTC); !m.PublishedAt.Equal(want) || !m.OrderedAt.Equal(want) {
		t.Errorf("published at %s, ordered at %s, want %s: the time of its first publish", m.PublishedAt, m.OrderedAt, want)
	}
}

func TestRerouteRefuses(t *testing.T) {
	w := newWorld(t)
	good := file(t, configOf(`{name: r, match: attributes.eventType == "Started", key: payload.key, engine: e, message: M}`))
	other := file(t, strings.Replace(configOf(`{name: r, engine: e, message: M}`), "orders", "billing", 1))
	ids := everyStatus(w)
	ids["still without a route"] = w.receive(configOf(nothingMatches), push("m-90", `,"attributes":{"eventType":"hidden value"}`, `{"key":"WO-1"}`))
	ids["a key that is none"] = w.receive(configOf(nothingMatches), push("m-91", `,"attributes":{"eventType":"Started"}`, `{"key":{"hidden":"value"}}`))
	ids["still unreadable"] = w.receive(configOf(nothingMatches), `{"subscription":"s","message":{"messageId":"m-92","data":"hidden value!"}}`)
	ids["in a bucket"] = full(w)
	ids["bodiless"] = w.parked("", inbox.NoRoute)
	w.apply(spanner.Delete("Payloads", spanner.Key{ids["bodiless"]}))
	ids["leased"] = w.insert(row{key: "leased"})
	w.update("Lanes", map[string]any{"LaneId": inbox.LaneID(consumer, "", inbox.OrderPublished, "leased"), "LeaseOwner": "run-1", "LeaseUntil": time.Now().Add(time.Hour)})
	ids["waits"] = w.insert(row{arrival: func(m *inbox.Message) { m.FromDeadLetter, m.NextAttemptAt = true, time.Now().Add(time.Hour) }})
	for _, test := range []struct{ name, id, file, want string }{
		{"a dead letter that waits for its evidence", "waits", good, "a dead letter that waits until"},
		{"what is being handled", "PROCESSING", good, "being handled right now"},
		{"what is correlated", "PROCESSED", good, "finished (PROCESSED)"},
		{"what is discarded", "DISCARDED", good, "finished (DISCARDED)"},
		{"what a relay holds", "leased", good, "a relay holds its lane until"},
		{"what no route matches", "still without a route", good, "would park it again: NO_ROUTE, no route matches"},
		{"what does not fit its route", "a key that is none", good, "would park it again: CONTRACT, key (payload.key)"},
		{"what is still unreadable", "still unreadable", good, "still unreadable: data is not base64"},
		{"what is where nobody can read", "in a bucket", good, "where its payload is cannot be read"},
		{"what has no payload any more", "bodiless", good, "payload has been deleted"},
		{"what is another consumer's", "PARKED", other, "consumer orders, and the configuration is that of billing"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w.t = t
			columns := []string{"Status", "Reason", "Route", "LaneId", "Attempts"}
			before := w.columns(ids[test.id], columns...)
			got := w.refused(1, test.want, "reroute", ids[test.id], "--config", test.file, "--reason", "x")
			if strings.Contains(got.stderr, "hidden") {
				t.Errorf("a value of the message is on standard error: %q", got.stderr)
			}
			if diff := cmp.Diff(before, w.columns(ids[test.id], columns...)); diff != "" {
				t.Errorf("a refusal changed the message:\n%s", diff)
			}
		})
	}
	w.t = t
	if n := w.count("SELECT COUNT(*) FROM Audit"); n != 0 {
		t.Errorf("%d audit entries of actions that were refused", n)
	}
	w.refused(1, "no message with id "+unknownID, "reroute", unknownID, "--config", good, "--reason", "x")
	w.refused(2, "no configuration", "reroute", ids["PARKED"], "--reason", "x")
	w.refused(2, "--reason is missing", "reroute", ids["PARKED"], "--config", good)
	w.refused(1, "inbox.yaml:", "reroute", ids["PARKED"], "--config", file(t, "consumer: orders\nroutes: 1\n"), "--reason", "x")
	w.refused(1, "no such file", "reroute", ids["PARKED"], "--config", "/nowhere.yaml", "--reason", "x")
}

func TestRerouteWakesTheLaneThatWaited(t *testing.T) {
	w := newWorld(t)
	old := `{name: r, key: payload.wrong, parked: block, engine: e, message: M}`
	first := w.receive(configOf(old), push("m-1", "", `{"wrong":"A","right":"B"}`))
	w.receive(configOf(old), push("m-2", "", `{"wrong":"A","right":"C"}`))
	w.update("Messages", map[string]any{"InboxId": first, "Status": "PARKED", "Reason": "AMBIGUOUS", "Attempts": 1, "Late": true, "OutcomeUnknown": true})
	lane := inbox.LaneID(consumer, "", inbox.OrderPublished, "A")
	w.update("Lanes", map[string]any{"LaneId": lane, "WokenAt": spanner.NullTime{}, "WhyNotDue": inbox.WhyBlocked})
	cfg := file(t, configOf(`{name: new, key: payload.right, engine: e, message: M}`))

	got := w.ok("reroute", first, "--config", cfg, "--reason", "x", "--dry-run")
	if !strings.Contains(got.out, "would be rerouted") || w.text("Messages", first, "LaneId") != lane || w.text("Lanes", lane, "WokenAt") != "<null>" {
		t.Errorf("a dry run says %q", got.out)
	}
	w.env["INBOX_CONFIG_FILE"] = cfg
	got = w.ok("reroute", first, "--reason", "x")
	if !strings.Contains(got.stderr, "delivered twice") {
		t.Errorf("no warning of an outcome that nobody will know: %q", got.stderr)
	}
	to := inbox.LaneID(consumer, "", inbox.OrderPublished, "B")
	if diff := cmp.Diff(map[string]string{"LaneId": to, "Late": "false", "Blocks": "false", "Queue": "0", "OutcomeUnknown": "true"},
		w.columns(first, "LaneId", "Late", "Blocks", "Queue", "OutcomeUnknown")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, lane := range []string{lane, to} {
		if woken := w.text("Lanes", lane, "WokenAt"); woken == "<null>" || woken == "<none>" {
			t.Errorf("lane %s is not woken", lane)
		}
	}
	// An open one that nobody holds moves, too; a parked one that did not block leaves no lane behind.
	open := w.receive(configOf(old), push("m-3", "", `{"wrong":"D","right":"E"}`))
	w.ok("reroute", open, "--reason", "x")
	if got := w.text("Messages", open, "Route"); got != "new" {
		t.Errorf("an open message has route %s", got)
	}
	unrouted := w.receive(configOf(nothingMatches), push("m-4", "", `{"right":"F"}`))
	w.ok("reroute", unrouted, "--reason", "x")
	if got := w.text("Lanes", inbox.OwnLaneID(consumer, unrouted), "WokenAt"); got != "<none>" {
		t.Errorf("a lane was made for nothing: %s", got)
	}
}

// byEvent is a route that tells events apart by their own id.
const byEvent = `{name: r, dedupe: attributes.eventId, key: payload.key, engine: e, message: M}`

// eventPush is a push of an event, under a message id of its own.
func eventPush(messageID, data string) string {
	return push(messageID, `,"publishTime":"2026-01-02T03:04:05Z","attributes":{"eventId":"E-1"}`, data)
}

// delivers stores a push, or finds its row, as the receive function does.
func (w *world) delivers(configuration, push string) receiver.Outcome {
	w.t.Helper()
	cfg, _, err := config.Parse("inbox.yaml", []byte(configuration))
	if err != nil {
		w.t.Fatal(err)
	}
	router, err := routing.New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	r := receiver.Receiver{Consumer: cfg.Consumer, Store: w.store, Router: router, Log: slog.New(slog.DiscardHandler), Now: time.Now}
	outcome, err := r.Receive(w.t.Context(), []byte(push))
	if err != nil {
		w.t.Fatal(err)
	}
	return outcome
}

// An event that was stored before its route was known has the identity of its push. Rerouted, it has that of the event: the
// same event, published again before or after, is known, and so is the push.
func TestARerouteTakesTheIdentityOfItsRoute(t *testing.T) {
	w := newWorld(t)
	cfg := configOf(byEvent)
	p := eventPush("m-1", `{"key":"WO-1"}`)
	id := w.receive(configOf(nothingMatches), p)
	w.delivers(configOf(nothingMatches), p)
	w.apply(spanner.Insert("Attempts", []string{"InboxId", "AttemptId", "Number", "Verdict", "ErrorMessage"}, []any{id, "a-1", int64(1), "TECHNICAL", "as it was"}))

	want := arrivalOf(t, cfg, p).Message
	args := []string{"reroute", id, "--config", file(t, cfg), "--reason", "route added", "--actor", "bob"}
	if got := w.ok(append(args, "--dry-run")...); !strings.Contains(got.out, want.ID) || w.text("Messages", want.ID, "Status") != "<none>" {
		t.Errorf("a dry run says %q, and leaves a row that is %s", got.out, w.text("Messages", want.ID, "Status"))
	}
	w.ok(args...)
	rows, err := w.store.Rows(t.Context(), []string{id, want.ID})
	if err != nil {
		t.Fatal(err)
	}
	if _, there := rows[id]; there {
		t.Error("the old row is there still")
	}
	got := rows[want.ID]
	if diff := cmp.Diff(want, got.Message, cmpopts.IgnoreFields(inbox.Message{}, "ReceivedAt", "LastErrorMessage")); diff != "" {
		t.Errorf("(-as received +as rerouted):\n%s", diff)
	}
	if payload := w.ok("show", "--payload", want.ID).out; payload != `{"key":"WO-1"}` || got.Deliveries != 2 {
		t.Errorf("payload %q, %d deliveries", payload, got.Deliveries)
	}
	shown := w.ok("show", want.ID).out
	for _, text := range []string{"as it was", "reroute", "by", "bob"} {
		if !strings.Contains(shown, text) {
			t.Errorf("show lacks %q:\n%s", text, shown)
		}
	}
	if n := strings.Count(shown, "\nreroute"); n != 1 {
		t.Errorf("show has the reroute %d times", n)
	}
	w.refused(1, "has the id "+want.ID, "show", id)

	for name, again := range map[string]string{"the push": p, "the event, published again": eventPush("m-2", `{"key":"WO-1"}`)} {
		for _, configuration := range []string{cfg, configOf(nothingMatches)} {
			if configuration != cfg && again != p {
				continue // without its route an event is not known by its id
			}
			if outcome := w.delivers(configuration, again); outcome != receiver.Repeat {
				t.Errorf("%s is %s", name, outcome)
			}
		}
	}
	if n := w.count("SELECT COUNT(*) FROM Messages"); n != 1 {
		t.Errorf("%d rows of one event", n)
	}
	// Rerouted once more it has its identity, and keeps it.
	w.ok("reroute", want.ID, "--config", file(t, cfg), "--reason", "again")
}

func TestARerouteRefusesAnIdentityThatIsTaken(t *testing.T) {
	for name, test := range map[string]struct{ data, want string }{
		"by the same event, published again": {`{"key":"WO-1"}`, "the same content, so that this one is a repetition"},
		"by another content":                 {`{"key":"WO-2"}`, "other content"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			id := w.receive(configOf(nothingMatches), eventPush("m-1", `{"key":"WO-1"}`))
			owner := w.receive(configOf(byEvent), eventPush("m-2", test.data))
			columns := []string{"Status", "Reason", "Route", "LaneId"}
			before := w.columns(id, columns...)
			got := w.refused(1, "message "+owner+" (RECEIVED) has the identity", "reroute", id, "--config", file(t, configOf(byEvent)), "--reason", "x")
			if !strings.Contains(got.stderr, test.want) {
				t.Errorf("it says %q, want %q", got.stderr, test.want)
			}
			if diff := cmp.Diff(before, w.columns(id, columns...)); diff != "" {
				t.Errorf("a refusal changed the message:\n%s", diff)
			}
		})
	}
}

// Two copies were parked before there was a route: one of them runs.
func TestARerouteOfTwoCopiesOfAnEventRunsOne(t *testing.T) {
	w := newWorld(t)
	first := w.receive(configOf(nothingMatches), eventPush("m-1", `{"key":"WO-1"}`))
	second := w.receive(configOf(nothingMatches), eventPush("m-2", `{"key":"WO-1"}`))
	w.refused(1, "this one is a repetition", "reroute", first, second, "--config", file(t, configOf(byEvent)), "--reason", "x")
	if open, parked := w.count("SELECT COUNT(*) FROM Messages WHERE Status = 'RECEIVED'"), w.count("SELECT COUNT(*) FROM Messages WHERE Status = 'PARKED'"); open != 1 || parked != 1 {
		t.Errorf("%d are open, %d parked", open, parked)
	}
}

func TestARerouteLeavesAnIdentityAlone(t *testing.T) {
	w := newWorld(t)
	cfg := file(t, configOf(byEvent))
	same := func(id string) {
		t.Helper()
		w.ok("reroute", id, "--config", cfg, "--reason", "x")
		if status := w.text("Messages", id, "Status"); status != "RECEIVED" {
			t.Errorf("it is %s", status)
		}
	}
	// A conflict is known for one, and its row is that of its content.
	w.receive(configOf(byEvent), eventPush("m-1", `{"key":"WO-1"}`))
	w.delivers(configOf(byEvent), eventPush("m-2", `{"key":"WO-2"}`))
	same(idsOf(w.listed("--status", "PARKED"))[0])
	// A dead letter is known by nothing that holds its own id.
	letter := w.insert(row{body: []byte(`{"key":"WO-3"}`), arrival: func(m *inbox.Message) {
		m.Status, m.Reason, m.FromDeadLetter = inbox.Parked, inbox.DeadLettered, true
	}})
	w.ok("reroute", letter, "--config", file(t, configOf(strings.Replace(byEvent, "attributes.eventId", "message.id", 1))), "--reason", "x")
	if got := w.text("Messages", letter, "Status"); got != "RECEIVED" {
		t.Errorf("the dead letter is %s", got)
	}
	// What an engine may have already, it knows by the id that was sent.
	unknown := w.receive(configOf(`{name: r, key: payload.key, engine: e, message: M}`), push("m-4", `,"attributes":{"eventId":"E-4"}`, `{"key":"WO-4"}`))
	w.update("Messages", map[string]any{"InboxId": unknown, "Status": "PARKED", "Reason": "POISONED", "OutcomeUnknown": true, "Attempts": 5})
	w.refused(1, "the outcome of its last attempt is unknown", "reroute", unknown, "--config", cfg, "--reason", "x")
}

func TestRerouteKeepsTheOrderOfAKey(t *testing.T) {
	w := newWorld(t)
	sequenced := configOf(`{name: r, key: payload.key, order: sequence, sequence: payload.n, engine: e, message: M}`)
	at := func(n int, key string) string {
		return w.receive(configOf(nothingMatches), push(fmt.Sprintf("m-%s-%d", key, n), "", fmt.Sprintf(`{"key":%q,"n":%d}`, key, n)))
	}
	third, first, second, other := at(3, "WO-1"), at(1, "WO-1"), at(2, "WO-1"), at(1, "WO-2")
	states := w.afterCommits([]string{first, second, third, other})
	w.stdin = strings.Join([]string{third, first, second, other}, "\n")
	w.ok("reroute", "-", "--config", file(t, sequenced), "--reason", "route added")
	if diff := cmp.Diff([]string{"o---", "oo--", "ooo-", "oooo"}, *states); diff != "" {
		t.Errorf("open after each commit (-want +got):\n%s", diff)
	}
}

func TestRerouteDoesNotOvertakeWhatFailed(t *testing.T) {
	w := newWorld(t)
	cfg := file(t, configOf(`{name: r, key: payload.key, engine: e, message: M}`))
	var ids []string
	for i, key := range []string{"WO-1", "WO-1", "WO-2"} {
		ids = append(ids, w.receive(configOf(nothingMatches), push(fmt.Sprintf("m-%d", i), fmt.Sprintf(`,"publishTime":"2026-01-02T03:04:0%dZ"`, i), fmt.Sprintf(`{"key":%q}`, key))))
	}
	w.tap.FailNth("Commit", 1, rpctap.Error(codes.PermissionDenied))
	w.refused(1, ids[1]+": not tried", append([]string{"reroute", "--config", cfg, "--reason", "x"}, ids...)...)
	for i, want := range []string{"PARKED", "PARKED", "RECEIVED"} {
		if got := w.text("Messages", ids[i], "Status"); got != want {
			t.Errorf("message %d is %s, want %s", i, got, want)
		}
	}
}

// The payload is read before the transaction: one that was replaced in between is not what the route was evaluated over.
func TestRerouteOfAPayloadThatIsReplacedMeanwhile(t *testing.T) {
	w := newWorld(t)
	id := w.receive(configOf(nothingMatches), push("m-1", "", `{"key":"WO-1"}`))
	_, err := w.store.Reroute(t.Context(), spannerstore.Rerouting{ID: id, Actor: "bob", Reason: "x",
		Route: func(m inbox.Message, _ []byte) (spannerstore.Rerouted, error) {
			m.Route = "r"
			return spannerstore.Rerouted{Message: m, Content: true}, nil
		},
		Keep: func(context.Context, spannerstore.Rerouted) (string, error) {
			w.update("Messages", map[string]any{"InboxId": id, "PayloadSha256": "another"})
			return "", nil
		}})
	var refused *spannerstore.RefusedError
	if !errors.As(err, &refused) || !strings.Contains(refused.Why, "replaced meanwhile") || w.text("Messages", id, "Status") != "PARKED" {
		t.Errorf("it is %s: %v", w.text("Messages", id, "Status"), err)
	}
}

// A payload that was to be deleted, after a discard by hand that was taken back, say, is needed again.
func TestRerouteKeepsThePayload(t *testing.T) {
	w := newWorld(t)
	id := w.receive(configOf(nothingMatches), push("m-1", "", `{"key":"WO-1"}`))
	w.update("Payloads", map[string]any{"InboxId": id, "PurgeAt": time.Now().Add(time.Hour)})
	w.ok("reroute", id, "--config", file(t, configOf(`{name: r, key: payload.key, engine: e, message: M}`)), "--reason", "x")
	if purge := w.text("Payloads", id, "PurgeAt"); purge != "<null>" {
		t.Errorf("its payload is still to be deleted at %s", purge)
	}
}
