package inbox_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

func TestTextIsValidAndCutAtACharacter(t *testing.T) {
	tests := []struct {
		name, s string
		limit   int
		want    string
	}{
		{"short", "abc", 10, "abc"},
		{"just as long", "abc", 3, "abc"},
		{"too long", "abcd", 3, "abc"},
		{"empty", "", 3, ""},
		{"no room", "abc", 0, ""},
		{"two bytes, the second over", "aé", 2, "a"},
		{"two bytes, both in", "aé", 3, "aé"},
		{"four bytes, one over", "a😀", 4, "a"},
		{"four bytes, no room at all", "😀", 3, ""},
		{"an invalid byte", "a\xffb", 10, "a\uFFFDb"},
		{"invalid bytes in a row", "a\xff\xfe\xfdb", 10, "a\uFFFDb"},
		{"a character that breaks off", "a\xe2\x82", 10, "a\uFFFD"},
		{"repaired and then too long", "ab\xff", 4, "ab"},
		{"a surrogate", "\xed\xa0\x80", 10, "\uFFFD"},
		{"a NUL", "a\x00b", 10, "a\x00b"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := inbox.Text(tt.s, tt.limit)
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if !utf8.ValidString(got) || len(got) > tt.limit {
				t.Errorf("%q is invalid, or longer than %d bytes", got, tt.limit)
			}
		})
	}
	if got := inbox.Text(strings.Repeat("ä", 5000), inbox.MaxErrorMessage); len(got) != inbox.MaxErrorMessage {
		t.Errorf("%d bytes are left, want %d", len(got), inbox.MaxErrorMessage)
	}
}

// TestPublishTimeIsNoOrderWithinABatch documents a limit: Pub/Sub stamps a publish request, and clients put up to a hundred
// messages into one. Among those the commit decides, and pushes are stored in any order.
func TestPublishTimeIsNoOrderWithinABatch(t *testing.T) {
	place := func(id string, order inbox.OrderKind, sequence int64, stored time.Duration) *inbox.Message {
		m := &inbox.Message{ID: id, Consumer: "c", PublishedAt: now, OrderedAt: now, ReceivedAt: now.Add(stored)}
		m.Place(inbox.Placement{Key: "order 7", Order: order, Sequence: sequence})
		return m
	}
	for _, tt := range []struct {
		order   inbox.OrderKind
		started bool // comes first
	}{
		{inbox.OrderPublished, false}, {inbox.OrderReceived, false}, {inbox.OrderSequence, true},
	} {
		started, completed := place("1", tt.order, 1, 2*time.Second), place("2", tt.order, 2, time.Second)
		if started.LaneID != completed.LaneID {
			t.Fatalf("%s: two lanes", tt.order)
		}
		if got := started.Position().Before(completed.Position()); got != tt.started {
			t.Errorf("%s: what was published first and stored last comes first is %t, want %t", tt.order, got, tt.started)
		}
	}
}

func TestPositionsAreComparedColumnByColumn(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(1700000000+s, 0) }
	base := inbox.Position{Sequence: 5, OrderedAt: at(5), ReceivedAt: at(5), InboxID: "5"}
	change := func(f func(*inbox.Position)) inbox.Position { p := base; f(&p); return p }
	later := map[string]inbox.Position{
		"a higher sequence, all else lower": {Sequence: 6, OrderedAt: at(1), ReceivedAt: at(1), InboxID: "1"},
		"a later order time, all behind it lower": change(func(p *inbox.Position) {
			p.OrderedAt, p.ReceivedAt, p.InboxID = at(5).Add(1), at(1), "1"
		}),
		"a later commit, the id lower": change(func(p *inbox.Position) { p.ReceivedAt, p.InboxID = at(5).Add(1), "1" }),
		"a higher id":                  change(func(p *inbox.Position) { p.InboxID = "6" }),
	}
	for name, p := range later {
		if !base.Before(p) || p.Before(base) {
			t.Errorf("%s: want it to come after", name)
		}
	}
	elsewhere := change(func(p *inbox.Position) { p.OrderedAt = p.OrderedAt.In(time.FixedZone("x", 3600)) })
	if base.Before(elsewhere) || elsewhere.Before(base) {
		t.Error("a place before itself: the time zone counts")
	}
	if elsewhere.InboxID = "6"; !base.Before(elsewhere) || elsewhere.Before(base) {
		t.Error("a higher id, and the same times in another zone: want it to come after")
	}
	if base.IsZero() || !(inbox.Position{}).IsZero() {
		t.Error("only no position is zero")
	}
}

// C033: messages of a key that were published in one second, two of them stored by one commit timestamp.
func TestC033TheOrderIsTotalAndStable(t *testing.T) {
	published := time.Date(2026, 3, 2, 8, 15, 30, 0, time.UTC)
	stored := published.Add(time.Second)
	ordered := []inbox.Message{
		{ID: "c", OrderedAt: published, ReceivedAt: stored},
		{ID: "a", OrderedAt: published, ReceivedAt: stored.Add(time.Millisecond)},
		{ID: "b", OrderedAt: published, ReceivedAt: stored.Add(time.Millisecond)},
		{ID: "d", Sequence: 1, OrderedAt: published.Add(-time.Hour), ReceivedAt: stored.Add(-time.Hour)},
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		shuffled := slices.Clone(ordered)
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		slices.SortFunc(shuffled, func(a, b inbox.Message) int {
			switch p, q := a.Position(), b.Position(); {
			case p.Before(q):
				return -1
			case q.Before(p):
				return 1
			}
			return 0
		})
		if diff := cmp.Diff(ordered, shuffled); diff != "" {
			t.Fatal(diff)
		}
	}
	for i, m := range ordered {
		for j, n := range ordered {
			if got, want := m.Position().Before(n.Position()), i < j; got != want {
				t.Errorf("%d before %d: %v, want %v", i, j, got, want)
			}
		}
	}
}

func TestStatusesAreOpenFinishedOrParked(t *testing.T) {
	open := []inbox.Status{inbox.Received, inbox.Processing, inbox.Retrying}
	finished := []inbox.Status{inbox.Processed, inbox.Discarded}
	for _, s := range inbox.Statuses() {
		if got, want := s.Open(), slices.Contains(open, s); got != want {
			t.Errorf("%s is open: %v, want %v", s, got, want)
		}
		if got, want := s.Finished(), slices.Contains(finished, s); got != want {
			t.Errorf("%s is finished: %v, want %v", s, got, want)
		}
	}
	if len(inbox.Statuses()) != 6 {
		t.Errorf("%d statuses, want the six of the CHECK constraint", len(inbox.Statuses()))
	}
	seen := map[inbox.Reason]bool{}
	for _, reason := range inbox.Reasons() {
		if seen[reason] || reason == "" || len(reason) > 64 {
			t.Errorf("the reason %q is empty, too long, or listed twice", reason)
		}
		seen[reason] = true
	}
	if len(seen) != 15 {
		t.Errorf("%d reasons, want 15", len(seen))
	}
}

func TestOnlyWhatItsLaneHasToPassWakesIt(t *testing.T) {
	for _, status := range inbox.Statuses() {
		for _, blocks := range []bool{false, true} {
			a := inbox.Arrival{Message: inbox.Message{Status: status, Blocks: blocks}}
			if got, want := a.WakesLane(), status.Open() || blocks; got != want {
				t.Errorf("%s, blocks %v: wakes %v, want %v", status, blocks, got, want)
			}
		}
	}
}

func TestALaneOfItsOwnHasNoKey(t *testing.T) {
	own := inbox.Message{ID: "1", Consumer: consumer, Key: "WO-1", LaneID: inbox.OwnLaneID(consumer, "1")}
	if got := own.LaneKey(); got != "" {
		t.Errorf("the lane of an unordered message has the key %q, want none", got)
	}
	keyed := own
	keyed.LaneID = inbox.LaneID(consumer, "", inbox.OrderPublished, "WO-1")
	if got := keyed.LaneKey(); got != "WO-1" {
		t.Errorf("the lane of a key has the key %q, want WO-1", got)
	}
}
