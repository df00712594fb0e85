package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// everyStatus inserts one message of each status, and returns their ids by status.
func everyStatus(w *world) map[string]string {
	return map[string]string{
		"RECEIVED":   w.insert(row{}),
		"PROCESSING": w.insert(row{after: map[string]any{"Status": "PROCESSING", "Attempts": 1, "ProcessingStartedAt": time.Now()}}),
		"RETRYING":   w.insert(row{after: map[string]any{"Status": "RETRYING", "Attempts": 1, "NextAttemptAt": time.Now().Add(time.Hour)}}),
		"PROCESSED":  w.finished("", "PROCESSED"),
		"PARKED":     w.parked("", inbox.NoWaitingInstance),
		"DISCARDED":  w.finished("", "DISCARDED"),
	}
}

func TestListFilters(t *testing.T) {
	w := newWorld(t)
	ids := everyStatus(w)
	ids["other route"] = w.insert(row{arrival: func(m *inbox.Message) { m.Route = "s" }})
	ids["rejected"] = w.parked("", inbox.Rejected)
	ids["other consumer"] = w.insert(row{consumer: "billing"})
	ids["other consumer, parked"] = w.insert(row{consumer: "billing", arrival: func(m *inbox.Message) {
		m.Status, m.Reason, m.Route = inbox.Parked, inbox.NoRoute, ""
	}})
	ids["old"] = w.insert(row{after: map[string]any{"ReceivedAt": time.Now().Add(-80 * 24 * time.Hour)}})
	ids["old, parked"] = w.insert(row{after: map[string]any{"Status": "PARKED", "Reason": "REJECTED", "ReceivedAt": time.Now().Add(-90 * 24 * time.Hour)}})
	ids["old, finished"] = w.insert(row{after: map[string]any{"Status": "PROCESSED", "ReceivedAt": time.Now().Add(-85 * 24 * time.Hour)}})
	ids["of a reason of a statement by hand"] = w.insert(row{after: map[string]any{"Status": "PARKED", "Reason": "BY_HAND"}})

	all := []string{"old, parked", "old, finished", "old", "RECEIVED", "PROCESSING", "RETRYING", "PROCESSED", "PARKED", "DISCARDED",
		"other route", "rejected", "other consumer", "other consumer, parked", "of a reason of a statement by hand"}
	for _, test := range []struct {
		name string
		args string
		want []string // in order
	}{
		{"without filters everything is listed, the oldest first", "", all},
		{"a status", "--status PARKED", []string{"old, parked", "PARKED", "rejected", "other consumer, parked", "of a reason of a statement by hand"}},
		{"statuses with commas, in any letter case", "--status received,Processing", []string{"old", "RECEIVED", "PROCESSING", "other route", "other consumer"}},
		{"a repeated status", "--status DISCARDED --status RETRYING", []string{"RETRYING", "DISCARDED"}},
		{"finished ones", "--status PROCESSED,DISCARDED", []string{"old, finished", "PROCESSED", "DISCARDED"}},
		{"a reason", "--reason REJECTED", []string{"old, parked", "rejected"}},
		{"a reason of one consumer", "--reason no_route --consumer billing", []string{"other consumer, parked"}},
		{"a reason nobody is parked for", "--reason VANISHED", nil},
		{"a route", "--route s", []string{"other route"}},
		{"a route and a status", "--route r --status PARKED", []string{"old, parked", "PARKED", "rejected", "of a reason of a statement by hand"}},
		{"a consumer", "--consumer billing", []string{"other consumer", "other consumer, parked"}},
		{"a consumer nobody knows", "--consumer nobody", nil},
		{"an age in days", "--older-than 82d", []string{"old, parked", "old, finished"}},
		{"an age by its other name", "--age 75d", []string{"old, parked", "old, finished", "old"}},
		{"an age of one consumer and status", "--older-than 1d12h --status PARKED,RECEIVED --consumer orders", []string{"old, parked", "old"}},
		{"an age and a reason", "--older-than 24h --reason REJECTED", []string{"old, parked"}},
		{"no age at all", "--older-than 0s --status RETRYING", []string{"RETRYING"}},
		{"a handled message without a lease is stuck", "--stuck", []string{"PROCESSING"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := []string{}
			for _, name := range test.want {
				want = append(want, ids[name])
			}
			w.t = t
			if diff := cmp.Diff(want, idsOf(w.listed(strings.Fields(test.args)...))); diff != "" {
				t.Errorf("list %s (-want +got):\n%s", test.args, diff)
			}
		})
	}
}

func TestListByKeyReadsTheLanesOfTheKey(t *testing.T) {
	w := newWorld(t)
	first := w.finished("WO-1", "PROCESSED")
	second := w.parked("WO-1", inbox.Ambiguous)
	third := w.insert(row{key: "WO-1", order: inbox.OrderSequence})
	billing := w.insert(row{key: "WO-1", consumer: "billing"})
	elsewhere := w.insert(row{key: "WO-1", arrival: func(m *inbox.Message) {
		m.LaneID = inbox.LaneID(consumer, "revisions", inbox.OrderPublished, "WO-1")
	}})
	w.insert(row{key: "WO-2"})
	w.env["INBOX_CONFIG"] = ""
	check := func(name string, want []string, args ...string) {
		t.Helper()
		if diff := cmp.Diff(want, idsOf(w.listed(append(args, "--key", "WO-1")...))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	check("without a configuration: every consumer", []string{first, second, third, billing, elsewhere})
	check("of one consumer", []string{first, second, third, elsewhere}, "--consumer", consumer)
	check("with a status", []string{second}, "--consumer", consumer, "--status", "PARKED")
	check("with a reason", []string{second}, "--reason", "AMBIGUOUS")
	check("with another reason", []string{}, "--reason", "REJECTED")
	check("with an age", []string{}, "--older-than", "1h")
	w.env["INBOX_CONFIG"] = configOf(`{name: r, key: payload.key, keySpace: revisions, engine: e, message: M}`)
	check("with a configuration: its consumer and key spaces", []string{first, second, third, elsewhere})

	w.tap.Reset()
	w.listed("--consumer", consumer, "--key", "WO-2")
	if rows := w.tap.Rows(); rows != 2 {
		t.Errorf("a key with one message cost %d rows, want 2: the index's and the table's", rows)
	}
}

func TestListByKeyFindsAConsumerThatHasFinishedRowsOnly(t *testing.T) {
	w := newWorld(t)
	id := w.finished("WO-1", "PROCESSED")
	if got := idsOf(w.listed("--key", "WO-1")); !slices.Equal(got, []string{id}) {
		t.Errorf("got %v, want %v", got, []string{id})
	}
}

func TestListTellsLeasedFromStuck(t *testing.T) {
	w := newWorld(t)
	handled := func(key string, until time.Duration) string {
		id := w.insert(row{key: key, after: map[string]any{"Status": "PROCESSING", "Attempts": 1}})
		w.update("Lanes", map[string]any{"LaneId": inbox.LaneID(consumer, "", inbox.OrderPublished, key), "LeaseOwner": "run-1", "LeaseToken": 1,
			"LeaseUntil": time.Now().Add(until)})
		return id
	}
	handled("a", time.Hour)
	stuck := handled("b", -time.Hour)
	if diff := cmp.Diff([]string{stuck}, idsOf(w.listed("--stuck"))); diff != "" {
		t.Errorf("stuck (-want +got):\n%s", diff)
	}
}

func TestListReadsWhatItShowsAndNotWhatIsStored(t *testing.T) {
	w := newWorld(t)
	var finished []*spanner.Mutation
	old := time.Now().Add(-100 * 24 * time.Hour)
	for i := range 300 {
		finished = append(finished, spanner.InsertMap("Messages", map[string]any{
			"InboxId": fmt.Sprintf("%032x", i), "Consumer": consumer, "Scope": "s", "DedupeKey": "d", "LaneId": "l", "Sequence": 0, "Route": "r",
			"OrderedAt": old, "ReceivedAt": old, "Status": "PROCESSED", "ContentSha256": "c", "PayloadSha256": "p", "PayloadBytes": 0}))
	}
	w.apply(finished...)
	for range 40 {
		w.insert(row{})
	}
	for range 3 {
		w.insert(row{after: map[string]any{"ReceivedAt": old}})
	}
	for range 5 {
		w.parked("", inbox.NoWaitingInstance)
	}
	for range 2 {
		w.insert(row{after: map[string]any{"Status": "PARKED", "Reason": "REJECTED", "ReceivedAt": old}})
	}
	for _, test := range []struct {
		args  string
		shown int
		rows  int // at most
	}{
		{"--status PARKED", 7, 14},
		{"--status PARKED --consumer orders", 7, 14},
		{"--reason REJECTED", 2, 2 + 4},
		{"--reason REJECTED --consumer orders", 2, 2 + 4},
		{"--status PARKED --older-than 10d", 2, 1 + 2 + 4},
		{"--status PARKED --limit 1", 1, 2 + 2 + 2*2 + 1}, // one over the limit; a row of each reason; one over the limit of each; shown
		{"--status RECEIVED", 43, 86},
		{"--status RECEIVED --older-than 10d", 3, 1 + 16 + 6},
		{"--status RECEIVED --older-than 10d --route r", 3, 1 + 16 + 6},
		{"--stuck", 0, 1 + 43}, // a status within the open ones is not a part of the key
	} {
		t.Run(test.args, func(t *testing.T) {
			w.t = t
			w.tap.Reset()
			if got := len(w.listed(strings.Fields(test.args)...)); got != test.shown {
				t.Errorf("list %s shows %d, want %d", test.args, got, test.shown)
			}
			if rows := w.tap.Rows(); rows > test.rows {
				t.Errorf("list %s read %d rows, at most %d are needed", test.args, rows, test.rows)
			}
		})
	}
	t.Run("no call for each row", func(t *testing.T) {
		w.t = t
		w.tap.Reset()
		w.listed("--status", "RECEIVED")
		if total := w.tap.Count("StreamingRead"); total > 3 {
			t.Errorf("%d reads, want 3: the index, the rows, their deliveries", total)
		}
	})
}

func TestListOverItsLimitKeepsTheOldestAndSaysSo(t *testing.T) {
	w := newWorld(t)
	var open, parked []string
	for range 20 {
		open = append(open, w.insert(row{}))
		parked = append(parked, w.parked("", inbox.Rejected))
	}
	for range 5 {
		w.finished("", "PROCESSED")
	}
	check := func(want []string, args ...string) {
		t.Helper()
		got := w.ok(append([]string{"list", "--json"}, args...)...)
		if diff := cmp.Diff(want, idsOf(objects(t, got.out))); diff != "" {
			t.Errorf("list %v (-want +got):\n%s", args, diff)
		}
		if !strings.Contains(got.stderr, "more than") {
			t.Errorf("list %v does not say that there are more: %q", args, got.stderr)
		}
	}
	check(open[:7], "--status", "RECEIVED", "--limit", "7")
	check(parked[:7], "--status", "PARKED", "--limit", "7")
	check(open[:7], "--status", "RECEIVED", "--limit", "7", "--route", "r")
	check([]string{open[0], parked[0], open[1]}, "--limit", "3")
	exact := w.ok("list", "--json", "--status", "PARKED", "--limit", "20")
	if len(objects(t, exact.out)) != 20 || exact.stderr != "" {
		t.Errorf("a list that is complete says %q", exact.stderr)
	}
	// What needs nobody makes room for what does.
	got := w.listed("--limit", "42")
	var finished int
	for _, o := range got {
		if o["status"] == "PROCESSED" {
			finished++
		}
	}
	if len(got) != 42 || finished != 2 {
		t.Errorf("%d messages with %d finished ones, want 42 with 2", len(got), finished)
	}
}

func TestListForAPerson(t *testing.T) {
	w := newWorld(t)
	got := w.ok("list")
	if got.out != "" || got.stderr != "no messages\n" {
		t.Errorf("an empty inbox: %q, %q", got.out, got.stderr)
	}
	if got := w.ok("list", "--json"); got.out != "" || got.stderr != "" {
		t.Errorf("an empty inbox in JSON: %q, %q", got.out, got.stderr)
	}
	id := w.insert(row{key: "WO\x1b[2J1", arrival: func(m *inbox.Message) { m.Attributes = map[string]string{"secret": "hidden"} }})
	got = w.ok("list")
	if !strings.Contains(got.out, id) || !strings.Contains(got.out, `"WO\x1b[2J1"`) || strings.Contains(got.out, "\x1b") {
		t.Errorf("list: %q", got.out)
	}
	if strings.Contains(got.out+got.stderr, "hidden") {
		t.Error("list shows attribute values")
	}
}

func TestListRefusesWhatItDoesNotUnderstand(t *testing.T) {
	w := newWorld(t)
	for _, test := range []struct {
		name, args, want string
	}{
		{"a status that is none", "--status OPEN", "none of [RECEIVED"},
		{"a reason that is none", "--reason BROKEN", "none of [NO_WAITING_INSTANCE"},
		{"a reason with a status that has none", "--reason REJECTED --status PROCESSED", "leave --status out"},
		{"a duration that is none", "--older-than soon", "75d"},
		{"a negative duration", "--older-than -5m", "75d"},
		{"a limit below nothing", "--limit -1", "--limit is -1"},
		{"a scan of nothing", "--scan 0", "--scan is 0"},
		{"an argument", "PARKED", "unknown command"},
		{"a flag that is none", "--colour", "unknown flag"},
		{"an empty key", "--key=", "--key is empty"},
		{"stuck with a status", "--stuck --status PARKED", "--stuck lists"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w.t = t
			w.refused(2, test.want, append([]string{"list"}, strings.Fields(test.args)...)...)
		})
	}
	w.t = t
	w.env["INBOX_CONFIG"] = "routes: 1"
	w.refused(1, "give --consumer", "list")
	w.ok("list", "--consumer", consumer)
}

// configOf is a configuration with an engine e and routes, one a line of flow style.
func configOf(routes ...string) string {
	text := "consumer: orders\nengines:\n  e: {kind: http, url: \"https://e.example\", idempotent: true}\nroutes:\n"
	for _, r := range routes {
		text += "  - " + r + "\n"
	}
	return text
}

func TestListSaysWhenItHasNotLookedAtEverything(t *testing.T) {
	w := newWorld(t)
	for range 30 {
		w.insert(row{key: "WO-1"})
		w.finished("WO-2", "PROCESSED")
	}
	open := w.insert(row{})
	for _, test := range []struct {
		name, args string
		whole      bool
	}{
		{"finished messages", "--status DISCARDED --limit 5 --scan 20", false},
		{"finished messages, all looked at", "--status DISCARDED --limit 5 --scan 100", true},
		{"a filter that no index has", "--route nowhere --status RECEIVED --limit 1 --scan 2", false},
		{"a filter that no index has, all looked at", "--route nowhere --status RECEIVED --limit 5 --scan 40", true},
		{"a key with many", "--key WO-1 --status PARKED --limit 5 --scan 20", false},
		{"a key with many, all looked at", "--key WO-1 --status PARKED --limit 5 --scan 40", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			w.t = t
			w.tap.Reset()
			got := w.ok(append([]string{"list", "--json", "--consumer", consumer}, strings.Fields(test.args)...)...)
			if got.out != "" || strings.Contains(got.stderr, "not complete") == test.whole {
				t.Errorf("%d bytes of output, standard error %q", len(got.out), got.stderr)
			}
		})
	}
	w.t = t
	got := idsOf(w.listed("--status", "RECEIVED,DISCARDED", "--scan", "10", "--limit", "40"))
	if len(got) != 31 || got[30] != open {
		t.Errorf("%d messages, want the 31 open ones: what is finished must not take their place", len(got))
	}
}

// The pipelines of the documentation repair what list prints: a list that was cut off must not look like a whole one.
func TestListIsWholeOrSaysThatItIsNot(t *testing.T) {
	w := newWorld(t)
	one := w.parked("", inbox.DeadLettered)
	rows, err := w.store.Rows(t.Context(), []string{one})
	if err != nil {
		t.Fatal(err)
	}
	var more []*spanner.Mutation
	for i := range 1000 {
		more = append(more, spanner.InsertMap("Messages", map[string]any{"InboxId": fmt.Sprintf("%032x", i), "Consumer": consumer, "Scope": "sub",
			"DedupeKey": fmt.Sprint(i), "ReceivedAt": rows[one].ReceivedAt, "LaneId": fmt.Sprintf("%032x", i), "Sequence": 0, "OrderedAt": rows[one].OrderedAt,
			"Status": "PARKED", "Reason": "DEAD_LETTERED", "ContentSha256": "x", "PayloadSha256": "x", "PayloadBytes": 0}))
	}
	w.apply(more...)
	got := w.refused(3, "more than 1000 messages match", "list", "--reason", "DEAD_LETTERED", "--json")
	if n := strings.Count(got.out, "\n"); n != 1000 {
		t.Errorf("%d lines, want 1000", n)
	}
	if n := strings.Count(w.ok("list", "--reason", "DEAD_LETTERED", "--json", "--limit", "0").out, "\n"); n != 1001 {
		t.Errorf("%d lines without a limit, want 1001", n)
	}
	// Who says how many gets so many.
	if got := w.ok("list", "--reason", "DEAD_LETTERED", "--limit", "1"); !strings.Contains(got.stderr, "more than one message matches") {
		t.Errorf("it says %q", got.stderr)
	}
	for _, command := range []string{"reopen", "reroute", "list"} {
		help := w.ok(command, "--help").out
		for line := range strings.Lines(help) {
			if strings.Contains(line, "| jq") && !strings.Contains(line, "--limit 0") {
				t.Errorf("%s shows a pipeline that ends at the limit: %s", command, line)
			}
		}
	}
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "| jq") && !strings.Contains(line, "--limit 0") {
			t.Errorf("operations.md shows a pipeline that ends at the limit: %s", line)
		}
	}
}

// Without a configuration nobody says which key spaces there are: the lanes are searched, and what was not is said.
func TestListByKeyWithoutAConfigurationFindsKeySpaces(t *testing.T) {
	w := newWorld(t)
	spaced := func(consumer, key string) string {
		return w.insert(row{key: key, consumer: consumer, arrival: func(m *inbox.Message) {
			m.LaneID = inbox.LaneID(consumer, "invoices", inbox.OrderReceived, key)
		}})
	}
	id, other := spaced(consumer, "B-1"), spaced("billing", "B-1")
	spaced(consumer, "B-2")
	if diff := cmp.Diff([]string{id, other}, idsOf(w.listed("--key", "B-1"))); diff != "" {
		t.Errorf("of every consumer (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{id}, idsOf(w.listed("--key", "B-1", "--consumer", consumer))); diff != "" {
		t.Errorf("of one consumer (-want +got):\n%s", diff)
	}
	got := w.refused(3, "key spaces are named by a configuration", "list", "--key", "B-3", "--scan", "2")
	if strings.Contains(got.stderr, "no messages") {
		t.Errorf("it knows more than it has looked at: %q", got.stderr)
	}
	if got := w.ok("list", "--key", "B-3", "--consumer", consumer); got.stderr != "no messages\n" {
		t.Errorf("all lanes were looked at, and it says %q", got.stderr)
	}
}
