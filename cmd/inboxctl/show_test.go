package main

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

const unknownID = "0123456789abcdef0123456789abcdef"

// full inserts a message with a value in every column.
func full(w *world) string {
	at := func(s int) time.Time { return time.Unix(1700000000+int64(s), 123456789).UTC() }
	id := w.insert(row{
		key: "WO <1> & \"2\"", body: []byte("{\"a\":1}"),
		arrival: func(m *inbox.Message) {
			m.ID, m.DedupeKey, m.Scope = inbox.ID(inbox.BusinessIdentity, consumer, consumer, "event-1"), "event-1", consumer
			m.PublishedAt, m.OrderedAt, m.OrderingKey = at(0), at(0), "ok"
			m.Version, m.TenantID, m.AggregateType, m.CorrelationID, m.CausationID = "1.10", "t", "WorkOrder", "c1", "c2"
			m.TraceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
			m.Attributes = map[string]string{"eventType": "Started", "empty": "", "odd": "<&>\u2028\"ß"}
			m.PayloadLocation, m.Blocks = "gs://bucket/object", true
			m.ReplayOf, m.ConflictsWith = strings.Repeat("1", 32), strings.Repeat("2", 32)
		},
		after: map[string]any{
			"ReceivedAt": at(1), "Status": "PARKED", "Reason": "POSSIBLY_DELIVERED", "Attempts": 3, "TechnicalFailures": 2, "OutageFailures": 1,
			"LostWorkers": 1, "OutcomeUnknown": true, "Late": true, "HandedOver": true, "NextAttemptAt": at(2), "ProcessedAt": at(3),
			"ProcessingStartedAt": at(4), "FirstFailedAt": at(5), "LastFailedAt": at(6), "LastErrorCode": "E1", "LastErrorMessage": "it <broke>",
			"EngineReference": "instance-1", "Sequence": 7,
		},
	})
	for i := range 2 {
		w.apply(spanner.InsertMap("Deliveries", map[string]any{"InboxId": id, "DeliveryId": fmt.Sprint(i), "ReceivedAt": at(10 + i),
			"MessageId": "m-1", "DeliveryAttempt": 2 + i, "Subscription": "sub", "Revision": "rev"}))
	}
	return id
}

const fullJSON = `{"id":"ID","consumer":"orders","scope":"orders","subscription":"sub","messageId":"m-1","dedupeKey":"event-1",` +
	`"type":"Started","route":"r","key":"WO <1> & \"2\"","status":"PARKED","reason":"POSSIBLY_DELIVERED","attempts":3,"technicalFailures":2,` +
	`"lostWorkers":1,"outcomeUnknown":true,"late":true,"handedOver":true,"receivedAt":"2023-11-14T22:13:21.123456789Z",` +
	`"publishedAt":"2023-11-14T22:13:20.123456789Z","nextAttemptAt":"2023-11-14T22:13:22.123456789Z",` +
	`"processedAt":"2023-11-14T22:13:23.123456789Z","payloadBytes":7,` +
	`"payloadSha256":"015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862","payloadLocation":"gs://bucket/object",` +
	`"attributes":{"empty":"","eventType":"Started","odd":"<&>\u2028\"ß"},"deliveries":3,"lastErrorCode":"E1","lastErrorMessage":"it <broke>",` +
	`"engineReference":"instance-1","replayOf":"11111111111111111111111111111111","conflictsWith":"22222222222222222222222222222222",` +
	`"laneId":"LANE","orderingKey":"ok","version":"1.10","tenantId":"t","aggregateType":"WorkOrder","correlationId":"c1","causationId":"c2",` +
	`"traceParent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","sequence":7,"orderedAt":"2023-11-14T22:13:20.123456789Z",` +
	`"blocks":true,"processingStartedAt":"2023-11-14T22:13:24.123456789Z","firstFailedAt":"2023-11-14T22:13:25.123456789Z",` +
	`"lastFailedAt":"2023-11-14T22:13:26.123456789Z","contentSha256":"CONTENT"}` + "\n"

const emptyJSON = `{"id":"ID","consumer":"orders","scope":"sub","subscription":null,"messageId":null,"dedupeKey":"m-2","type":null,"route":null,` +
	`"key":null,"status":"RECEIVED","reason":null,"attempts":0,"technicalFailures":0,"lostWorkers":0,"outcomeUnknown":false,"late":false,` +
	`"handedOver":false,"receivedAt":"RECEIVED","publishedAt":null,"nextAttemptAt":null,"processedAt":null,"payloadBytes":0,` +
	`"payloadSha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","payloadLocation":null,"attributes":{},"deliveries":1,` +
	`"lastErrorCode":null,"lastErrorMessage":null,"engineReference":null,"replayOf":null,"conflictsWith":null,"laneId":"LANE",` +
	`"orderingKey":null,"version":null,"tenantId":null,"aggregateType":null,"correlationId":null,"causationId":null,"traceParent":null,` +
	`"sequence":0,"orderedAt":"2023-11-14T22:13:22Z","blocks":false,"processingStartedAt":null,"firstFailedAt":null,"lastFailedAt":null,` +
	`"contentSha256":"CONTENT"}` + "\n"

func TestJSONHasEveryMember(t *testing.T) {
	w := newWorld(t)
	id := full(w)
	bare := w.insert(row{arrival: func(m *inbox.Message) {
		m.Subscription, m.MessageID, m.Type, m.Route, m.Key, m.TransportKey, m.PublishedAt, m.Attributes = "", "", "", "", "", "", time.Time{}, nil
		m.LaneID = inbox.OwnLaneID(consumer, m.ID)
	}})
	replace := func(golden, id string) string {
		return strings.NewReplacer(`"ID"`, `"`+id+`"`, `"LANE"`, `"`+w.text("Messages", id, "LaneId")+`"`,
			`"CONTENT"`, `"`+w.text("Messages", id, "ContentSha256")+`"`).Replace(golden)
	}
	want := replace(fullJSON, id)
	if diff := cmp.Diff(want, w.ok("show", "--json", id).out); diff != "" {
		t.Errorf("show --json (-want +got):\n%s", diff)
	}
	got := w.ok("show", "--json", bare).out
	received := regexp.MustCompile(`"receivedAt":"([^"]+)"`).FindStringSubmatch(got)
	if received == nil || !strings.HasSuffix(received[1], "Z") {
		t.Fatalf("no time of receipt in UTC: %s", got)
	}
	wantBare := strings.ReplaceAll(replace(emptyJSON, bare), `"receivedAt":"RECEIVED"`, received[0])
	if diff := cmp.Diff(wantBare, got); diff != "" {
		t.Errorf("show --json of a bare message (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want+wantBare, w.ok("list", "--json").out); diff != "" {
		t.Errorf("list prints other objects than show (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantBare+want, w.ok("show", "--json", bare, id, bare).out); diff != "" {
		t.Errorf("several ids come in the order of the command line, each once (-want +got):\n%s", diff)
	}
}

func TestShowPayloadWritesTheExactBytes(t *testing.T) {
	w := newWorld(t)
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for _, test := range []struct {
		name string
		body []byte
	}{
		{"JSON without a newline", []byte(`{"a":1}`)},
		{"every byte", every},
		{"nothing", nil},
		{"a large one", bytes.Repeat(every, 8<<10)},
	} {
		t.Run(test.name, func(t *testing.T) {
			w.t = t
			got := w.ok("show", "--payload", w.insert(row{body: test.body}))
			if got.out != string(test.body) || got.stderr != "" {
				t.Errorf("%d bytes, want %d, the same ones; standard error %q", len(got.out), len(test.body), got.stderr)
			}
		})
	}
	w.t = t
	gone := w.finished("", "PROCESSED")
	w.apply(spanner.Delete("Payloads", spanner.Key{gone}))
	if got := w.refused(1, "its payload has been deleted", "show", "--payload", gone); got.out != "" {
		t.Errorf("a payload that is gone writes %q", got.out)
	}
	w.refused(1, "gs://bucket/object", "show", "--payload", full(w)) // no location that we have written
	w.refused(1, "no message with id "+unknownID+" in "+w.db, "show", "--payload", unknownID)
	w.refused(2, "takes one id", "show", "--payload", gone, unknownID)
	w.refused(2, "exclude each other", "show", "--payload", "--json", gone)
}

func TestShowTellsWhatAMessageWaitsFor(t *testing.T) {
	w := newWorld(t)
	lane := func(key string, values map[string]any) {
		values["LaneId"] = inbox.LaneID(consumer, "", inbox.OrderPublished, key)
		w.update("Lanes", values)
	}
	blocker := w.insert(row{key: "blocked", arrival: func(m *inbox.Message) { m.Blocks = true }, after: map[string]any{"Status": "PARKED", "Reason": "AMBIGUOUS"}})
	blocked := w.insert(row{key: "blocked"})
	behind := w.insert(row{key: "blocked"})
	lane("blocked", map[string]any{"WhyNotDue": inbox.WhyBlocked, "WokenAt": spanner.NullTime{}})
	leased := w.insert(row{key: "leased", after: map[string]any{"Status": "PROCESSING", "Attempts": 1}})
	lane("leased", map[string]any{"LeaseOwner": "run-1", "LeaseToken": 4, "LeaseUntil": time.Now().Add(time.Hour)})
	lost := w.insert(row{key: "lost", after: map[string]any{"Status": "PROCESSING", "Attempts": 1}})
	lane("lost", map[string]any{"LeaseOwner": "run-1", "LeaseToken": 4, "LeaseUntil": time.Now().Add(-time.Hour)})
	held := w.insert(row{key: "held"})
	lane("held", map[string]any{"HeldBy": "bob", "HeldReason": "end of the year"})
	waiting := w.insert(row{key: "waiting", after: map[string]any{"Status": "RETRYING", "NextAttemptAt": time.Date(2100, 1, 2, 3, 4, 5, 0, time.UTC)}})
	lane("waiting", map[string]any{"DueAt": time.Date(2100, 1, 2, 3, 4, 5, 0, time.UTC), "WhyNotDue": inbox.WhyHeadWaits, "WokenAt": spanner.NullTime{}})
	paused := w.insert(row{key: "paused"})
	lane("paused", map[string]any{"DueAt": time.Date(2100, 1, 2, 3, 4, 5, 0, time.UTC), "WhyNotDue": inbox.WhyEnginePaused})
	first := w.insert(row{key: "deep"})
	w.insert(row{key: "deep"})
	third := w.insert(row{key: "deep"})
	laneless := w.insert(row{key: "laneless"})
	w.apply(spanner.Delete("Lanes", spanner.Key{inbox.LaneID(consumer, "", inbox.OrderPublished, "laneless")}))
	noRoute := w.insert(row{arrival: func(m *inbox.Message) { m.Status, m.Reason, m.Route = inbox.Parked, inbox.NoRoute, "" }})

	for _, test := range []struct {
		name, id string
		want     []string
	}{
		{"a blocked one names what blocks it", blocked, []string{"blocked by " + blocker}},
		{"one that is farther back, too", behind, []string{"blocked by " + blocker}},
		{"the one that blocks", blocker, []string{"PARKED/AMBIGUOUS", "blocks its lane", "blocked by this message"}},
		{"a leased one", leased, []string{"being handled", "leased by run-1 until", "token 4"}},
		{"one whose worker was lost", lost, []string{"its lease has ended", "the lease of run-1 ended at"}},
		{"a held one", held, []string{"held by bob: end of the year"}},
		{"one that waits for its next attempt", waiting, []string{"waits for its next attempt at 2100-01-02T03:04:05Z"}},
		{"one whose engine is paused", paused, []string{"its engine is paused", "at 2100-01-02T03:04:05Z"}},
		{"one that others stand before", third, []string{"waits for 2 before it, the first is " + first}},
		{"the first of its lane", first, []string{"waits for a relay", "woken at"}},
		{"one whose lane is missing", laneless, []string{"the next sweep makes one"}},
		{"one without a route", noRoute, []string{"inboxctl reroute"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w.t = t
			got := w.ok("show", test.id)
			for _, want := range test.want {
				if !strings.Contains(got.out, want) {
					t.Errorf("no %q in:\n%s", want, got.out)
				}
			}
		})
	}
}

func TestShowIsComplete(t *testing.T) {
	w := newWorld(t)
	id := full(w)
	w.apply(spanner.InsertMap("Attempts", map[string]any{"InboxId": id, "AttemptId": "a", "Number": 2, "StartedAt": time.Unix(1700000000, 0),
		"EndedAt": time.Unix(1700000001, 0), "Verdict": "TECHNICAL", "Late": true, "ErrorCode": "HTTP_500", "ErrorMessage": "an\x1b[31mswer", "Engine": "e",
		"Owner": "run-1", "Revision": "rev-1"}))
	w.ok("reopen", id, "--reason", "try again", "--actor", "bob")
	got := w.ok("show", id).out
	for _, want := range []string{
		id, "RECEIVED", "event-1", "WO <1> & \"2\"", "gs://bucket/object", "attribute eventType", "1.10", "WorkOrder", "attempt 2", "TECHNICAL, came after its lease",
		`an\x1b[31mswer`, "HTTP_500", "run-1", "redelivery", "reopen", "bob", "try again", `"status":"PARKED"`, `"reason":"POSSIBLY_DELIVERED"`, "instance-1",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("show lacks %q", want)
		}
	}
	if strings.Contains(got, "\x1b") {
		t.Error("show hands control characters of a message to the terminal")
	}
	if t.Failed() {
		t.Log(got)
	}
}

func TestUnknownAndMalformedIDs(t *testing.T) {
	w := newWorld(t)
	id := w.insert(row{})
	for _, command := range [][]string{{"show"}, {"show", "--json"}, {"reopen", "--reason", "x"}} {
		w.refused(1, "no message with id "+unknownID+" in "+w.db+"; `inboxctl list` shows ids", append(command, unknownID)...)
		w.refused(2, "is no message id", append(command, "12")...)
		w.refused(2, "is no message id", append(command, strings.ToUpper(unknownID))...)
		w.refused(2, "", command...)
	}
	got := w.refused(1, unknownID, "show", "--json", unknownID, id)
	if len(objects(t, got.out)) != 1 {
		t.Errorf("the id that is there must be shown all the same: %q", got.out)
	}
	w.stdin = "\n" + id + "\n"
	if got := objects(t, w.ok("show", "--json", "-").out); len(got) != 1 || got[0]["id"] != id {
		t.Errorf("ids from standard input: %v", got)
	}
	w.stdin = "\n"
	w.refused(2, "no message id", "show", "--json", "-")
}

// The first line about an open message is where an operator goes: it names what the message waits for, and by whom.
func TestShowNamesTheWaitOfAnOpenMessage(t *testing.T) {
	w := newWorld(t)
	at := time.Date(2100, 1, 2, 3, 4, 5, 0, time.UTC)
	engine := func(name string, values map[string]any) {
		values["Consumer"], values["Engine"] = consumer, name
		w.apply(spanner.InsertMap("Engines", values))
	}
	engine("billing", map[string]any{"PausedAt": at, "PausedBy": "eve", "PausedReason": "end of the year"})
	engine("stock", map[string]any{"OpenUntil": at, "OpenReason": "FAILURES", "LastErrorMessage": "HTTP 503"})
	engine("probed", map[string]any{"OpenUntil": time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC), "OpenReason": "FAILURES"})
	engine("well", map[string]any{})
	waits := func(why, sentTo string, after map[string]any) string {
		id := w.insert(row{after: after})
		w.update("Lanes", map[string]any{"LaneId": w.text("Messages", id, "LaneId"), "WhyNotDue": why, "DueAt": at, "WokenAt": spanner.NullTime{}})
		if sentTo != "" {
			w.apply(spanner.InsertMap("Attempts", map[string]any{"InboxId": id, "AttemptId": "a", "Number": 1, "Verdict": "TECHNICAL", "Engine": sentTo}))
		}
		return id
	}
	retrying := func() map[string]any { return map[string]any{"Status": "RETRYING", "Attempts": 1, "NextAttemptAt": at} }
	const paused = "waits for engine billing (paused since 2100-01-02T03:04:05Z by eve: end of the year)"
	const open = "waits for engine stock (left alone until 2100-01-02T03:04:05Z: FAILURES HTTP 503)"
	held := waits("", "billing", retrying())
	w.update("Lanes", map[string]any{"LaneId": w.text("Messages", held, "LaneId"), "HeldBy": "bob"})
	for name, test := range map[string]struct{ id, want string }{
		"its engine is paused":                       {waits(inbox.WhyEnginePaused, "billing", nil), paused},
		"its engine's breaker is open":               {waits(inbox.WhyEnginePaused, "stock", nil), open},
		"and its own time has not come":              {waits(inbox.WhyHeadWaits, "stock", retrying()), open + "; waits for its next attempt at 2100-01-02T03:04:05Z"},
		"its engine is probed":                       {waits(inbox.WhyEnginePaused, "probed", nil), "waits for engine probed (left alone and probed with one message at a time since 2020-01-02T03:04:05Z"},
		"it was never sent, and one of those is its": {waits(inbox.WhyEnginePaused, "", nil), paused + ", or for engine probed"},
		"nobody has looked at it":                    {w.insert(row{}), "waits for a relay; or for its engine, if that is engine billing (paused since 2100-01-02T03:04:05Z by eve: end of the year), or engine probed"},
		"its engine is well":                         {waits(inbox.WhyHeadWaits, "well", retrying()), "waits for its next attempt at 2100-01-02T03:04:05Z"},
		"its engine was stopped, and is well by now": {waits(inbox.WhyEnginePaused, "well", nil), "waits for its engine, which was paused, or left alone after failures, when a relay last looked"},
		"its route is unknown":                       {waits(inbox.WhyRouteUnknown, "", nil), "waits for its route: the relay's configuration lacks r"},
		"its engine is unknown":                      {waits(inbox.WhyEngineUnknown, "", nil), "waits for its engine: the relay's configuration lacks that of route r"},
		"a person holds its lane":                    {held, "held by bob; waits for its next attempt"},
	} {
		lines := strings.Split(w.ok("show", test.id).out, "\n")
		if got := strings.TrimSpace(lines[2]); !strings.HasPrefix(got, test.want) {
			t.Errorf("%s: it says %q, want %q", name, got, test.want)
		}
	}
}

// What show advises for a parked message is done, and must not be refused.
func TestShowAdvisesWhatHelps(t *testing.T) {
	w := newWorld(t)
	w.env["INBOX_CONFIG_FILE"] = file(t, configOf(`{name: corrected, key: payload.key, engine: e, message: M}`))
	arrived := func(reason inbox.Reason, route string) func(*inbox.Message) {
		return func(m *inbox.Message) { m.Status, m.Reason, m.Route = inbox.Parked, reason, route }
	}
	advised := regexp.MustCompile("`inboxctl ([^`]*)`")
	try := func(name, id, want string) {
		t.Helper()
		line := strings.TrimSpace(strings.Split(w.ok("show", id).out, "\n")[2])
		match := advised.FindStringSubmatch(line)
		if match == nil || match[1] != want {
			t.Errorf("%s: it says %q, want the command %q", name, line, want)
			return
		}
		args := append(strings.Fields(want), id)
		if want != "show --payload" {
			args = append(args, "--reason", "x")
		}
		w.ok(args...)
	}
	body := []byte(`{"key":"WO-1"}`)
	for _, reason := range inbox.Reasons() {
		switch reason {
		case inbox.NoRoute:
			try("NO_ROUTE", w.insert(row{body: body, arrival: arrived(reason, "")}), "reroute")
		case inbox.Unreadable:
			try("UNREADABLE", w.insert(row{body: []byte("{"), arrival: arrived(reason, "")}), "show --payload")
		case inbox.Contract:
			try("CONTRACT on arrival", w.insert(row{body: body, arrival: arrived(reason, "r")}), "reroute")
			try("CONTRACT at an attempt", w.parked("", reason), "reopen")
		case inbox.DedupeConflict, inbox.DeadLettered:
			try(string(reason), w.insert(row{body: body, arrival: func(m *inbox.Message) {
				arrived(reason, "r")(m)
				m.ConflictsWith = unknownID
			}}), "reopen")
			try(string(reason)+" without a route", w.insert(row{body: body, arrival: arrived(reason, "")}), "reroute")
		default:
			try(string(reason), w.parked("", reason), "reopen")
		}
	}
	gone := w.parked("", inbox.Rejected)
	w.apply(spanner.Delete("Payloads", spanner.Key{gone}))
	if got := w.ok("show", gone).out; !strings.Contains(got, "it can only be discarded") {
		t.Errorf("without a payload:\n%s", got)
	}
}
