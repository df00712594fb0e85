package inbox_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

func TestAReferenceIsReadLiterally(t *testing.T) {
	for uri, want := range map[string]inbox.Object{
		"gs://demo-claims/a/b.json":                          {Bucket: "demo-claims", Name: "a/b.json"},
		"gs://demo-claims/a/b.json#1700000000000001":         {Bucket: "demo-claims", Name: "a/b.json", Generation: 1700000000000001},
		"gs://demo-claims/../x%2F..%2Fy":                     {Bucket: "demo-claims", Name: "../x%2F..%2Fy"},
		"gs://demo-claims/a b?c=d&e":                         {Bucket: "demo-claims", Name: "a b?c=d&e"},
		"gs://demo-claims/#5":                                {Bucket: "demo-claims", Name: "#5"},
		"gs://demo-claims/a#b":                               {Bucket: "demo-claims", Name: "a#b"},
		"gs://demo-claims/a#5#1700000000000001":              {Bucket: "demo-claims", Name: "a#5", Generation: 1700000000000001},
		"gs://demo-claims/a#17000000000000012":               {Bucket: "demo-claims", Name: "a#17000000000000012"},
		"gs://demo-claims/a#0000000000000001":                {Bucket: "demo-claims", Name: "a#0000000000000001"},
		"gs://demo-claims//":                                 {Bucket: "demo-claims", Name: "/"},
		"gs://demo-claims/" + strings.Repeat("é", 512):       {Bucket: "demo-claims", Name: strings.Repeat("é", 512)},
		"gs://demo-claims/" + strings.Repeat("é", 512) + "x": {},
		"gs://demo-claims/.":                                 {},
		"gs://demo-claims/..":                                {},
		"gs://demo-claims/...":                               {Bucket: "demo-claims", Name: "..."},
		"":                                                   {},
		"demo-claims/x":                                      {},
		"s3://demo-claims/x":                                 {},
		"GS://demo-claims/x":                                 {},
		"gs:/demo-claims/x":                                  {},
		"gs://demo-claims":                                   {},
		"gs://demo-claims/":                                  {},
		"gs:///x":                                            {},
		"gs://Demo/x":                                        {},
		"gs://user@demo/x":                                   {},
		"gs://demo:80/x":                                     {},
		"gs://a/x":                                           {},
		"gs://demo-claims/a\nb":                              {},
		"gs://demo-claims/\xff":                              {},
		"gs://demo-claims/a#99999999999999999999":            {Bucket: "demo-claims", Name: "a#99999999999999999999"},
		"gs://demo-claims/a#9999999999999999999":             {Bucket: "demo-claims", Name: "a#9999999999999999999"},
		"gs://demo-claims/a#0":                               {Bucket: "demo-claims", Name: "a#0"},
	} {
		got, err := inbox.ParseReference(uri)
		if got != want || (err == nil) == want.IsZero() {
			t.Errorf("%q: %+v, %v, want %+v", uri, got, err, want)
		}
		if err == nil && got.Generation != 0 && got.Pinned() != uri {
			t.Errorf("%q is written as %q", uri, got.Pinned())
		}
	}
	hash := strings.Repeat("AB", 32)
	if o, err := inbox.Reference("demo", "x", "5", hash); err != nil || o.SHA256 != strings.ToLower(hash) {
		t.Errorf("%+v, %v", o, err)
	}
	for _, bad := range [][2]string{{"-5", ""}, {"+5", ""}, {"5.0", ""}, {"0x5", ""}, {"", "abc"}, {"", strings.Repeat("g", 64)}} {
		if o, err := inbox.Reference("demo", "x", bad[0], bad[1]); err == nil {
			t.Errorf("%q: %+v", bad, o)
		}
	}
}

func TestALocationReadsAsItWasWritten(t *testing.T) {
	o := inbox.PayloadObject("demo-payloads", strings.Repeat("a", 32), strings.Repeat("b", 64))
	o.Generation, o.Bytes = 17, 0
	if got, err := inbox.ParseLocation(o.Location()); err != nil || got != o {
		t.Errorf("%s reads as %+v, %v", o.Location(), got, err)
	}
	if id, hash, ok := inbox.OwnerOf(o.Name); !ok || id != strings.Repeat("a", 32) || hash != o.SHA256 {
		t.Errorf("%s belongs to %s, %s, %v", o.Name, id, hash, ok)
	}
	for _, name := range []string{"", "x", strings.Repeat("a", 32), strings.Repeat("a", 32) + "/" + strings.Repeat("b", 63), "x/" + o.Name} {
		if _, _, ok := inbox.OwnerOf(name); ok {
			t.Errorf("%q is taken for ours", name)
		}
	}
	for _, bad := range []string{"", "gs://b/n", "gs://b/n?generation=1", "gs://b/n?bytes=1", "gs://b/n?generation=0&bytes=1", "gs://b/n?generation=1&bytes=-1",
		"gs://b?generation=1&bytes=1", "b/n?generation=1&bytes=1", "gs:///n?generation=1&bytes=1", "gs://b/n?generation=x&bytes=1"} {
		if o, err := inbox.ParseLocation(bad); err == nil {
			t.Errorf("%q reads as %+v", bad, o)
		}
	}
}

func TestATwinIsOfTheSameMomentSubscriptionAndContent(t *testing.T) {
	at := time.Date(2026, 3, 2, 8, 15, 30, 123_456_000, time.UTC)
	letter := func(change func(m *inbox.Message)) *inbox.Message {
		m := &inbox.Message{ID: "a", Consumer: "c", Subscription: "s", ContentSHA256: "x", PublishedAt: at, OrderedAt: at,
			LaneID: inbox.LaneID("c", "", inbox.OrderPublished, "k")}
		if change != nil {
			change(m)
		}
		return m
	}
	for name, tt := range map[string]struct {
		other func(m *inbox.Message)
		want  bool
	}{
		"the same":                {func(m *inbox.Message) {}, true},
		"in the same millisecond": {func(m *inbox.Message) { m.PublishedAt = at.Add(500 * time.Microsecond) }, true},
		"in the next":             {func(m *inbox.Message) { m.PublishedAt = at.Add(time.Millisecond) }, false},
		"of an unknown time":      {func(m *inbox.Message) { m.PublishedAt = time.Time{} }, false},
		"of another subscription": {func(m *inbox.Message) { m.Subscription = "t" }, false},
		"with other content":      {func(m *inbox.Message) { m.ContentSHA256 = "y" }, false},
		"itself":                  {func(m *inbox.Message) { m.ID = "a" }, false},
	} {
		other := letter(func(m *inbox.Message) { m.ID = "b" })
		tt.other(other)
		if got := letter(nil).IsTwin(other); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	whole := letter(func(m *inbox.Message) { m.PublishedAt = at.Truncate(time.Second); m.OrderedAt = m.PublishedAt })
	if !whole.IsTwin(letter(func(m *inbox.Message) { m.ID = "b" })) {
		t.Error("a time without a fraction does not match the one that it was cut from")
	}
	if first, last, ok := whole.TwinWindow(); !ok || !first.Equal(at.Truncate(time.Second)) || last.Sub(first) != time.Second-1 {
		t.Errorf("window %v to %v, %v", first, last, ok)
	}
	for name, m := range map[string]*inbox.Message{
		"without a time":       letter(func(m *inbox.Message) { m.PublishedAt = time.Time{} }),
		"in a lane of its own": letter(func(m *inbox.Message) { m.LaneID = inbox.OwnLaneID("c", "a") }),
	} {
		if _, _, ok := m.TwinWindow(); ok {
			t.Errorf("%s: there is nothing to look for", name)
		}
	}
	sequenced := letter(func(m *inbox.Message) { m.OrderedAt = inbox.EpochOrder })
	if first, last, ok := sequenced.TwinWindow(); !ok || !first.Equal(inbox.EpochOrder) || !last.Equal(first) {
		t.Errorf("window %v to %v, %v", first, last, ok)
	}
}

func TestTheWindowOfATwinStaysWithinTheYearsThatSpannerKnows(t *testing.T) {
	lane := inbox.LaneID("c", "", inbox.OrderPublished, "k")
	end := time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC)
	for _, at := range []time.Time{end, end.Truncate(time.Millisecond), end.Truncate(time.Second), time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC)} {
		for _, ordered := range []time.Time{at, end} {
			m := inbox.Message{ID: "a", Consumer: "c", LaneID: lane, PublishedAt: at, OrderedAt: ordered}
			if first, last, ok := m.TwinWindow(); !ok || first.Year() < 1 || last.Before(first) || last.After(end) {
				t.Errorf("published %v, ordered at %v: window %v to %v, %v", at, ordered, first, last, ok)
			}
		}
	}
}

func TestALetterThatWaitsIsSettledByWhatHasRunAndNotByItsOwnCopies(t *testing.T) {
	at := time.Date(2026, 3, 2, 8, 15, 30, 123_000_000, time.UTC)
	row := func(id string, change func(m *inbox.Message)) *inbox.Message {
		m := &inbox.Message{ID: id, Subscription: "s", ContentSHA256: "x", PublishedAt: at, ReceivedAt: at.Add(time.Hour), Status: inbox.Processed, Attempts: 1}
		if change != nil {
			change(m)
		}
		return m
	}
	waits := func(m *inbox.Message) {
		m.FromDeadLetter, m.Status, m.Attempts, m.NextAttemptAt = true, inbox.Received, 0, at.Add(2*time.Hour)
	}
	beside := func(other string) func(m *inbox.Message) {
		return func(m *inbox.Message) {
			m.FromDeadLetter, m.Attempts = true, 0
			m.AsTwin(inbox.Twin{ID: other})
		}
	}
	and := func(changes ...func(m *inbox.Message)) func(m *inbox.Message) {
		return func(m *inbox.Message) {
			for _, change := range changes {
				change(m)
			}
		}
	}
	for name, tt := range map[string]struct {
		rows              []*inbox.Message
		arriving, waiting string
	}{
		"nothing":                          {nil, "", ""},
		"one that has run":                 {[]*inbox.Message{row("a", nil)}, "a", "a"},
		"one that waits":                   {[]*inbox.Message{row("a", waits)}, "a", ""},
		"a copy of it":                     {[]*inbox.Message{row("a", beside("m"))}, "a", ""},
		"a copy of its copy":               {[]*inbox.Message{row("a", beside("b")), row("b", beside("m"))}, "a", ""},
		"a copy of one that waits":         {[]*inbox.Message{row("a", beside("b")), row("b", waits)}, "b", ""},
		"a copy of one that has run":       {[]*inbox.Message{row("a", beside("b")), row("b", nil)}, "b", "b"},
		"a copy of one that is gone":       {[]*inbox.Message{row("a", beside("gone"))}, "a", "a"},
		"copies of each other":             {[]*inbox.Message{row("a", beside("b")), row("b", beside("a"))}, "a", "a"},
		"a discarded copy":                 {[]*inbox.Message{row("a", and(beside("m"), func(m *inbox.Message) { m.Status = inbox.Discarded }))}, "a", ""},
		"a copy that somebody reopened":    {[]*inbox.Message{row("a", and(beside("m"), inbox.StartAfresh))}, "a", "a"},
		"a copy that was reopened and ran": {[]*inbox.Message{row("a", and(beside("m"), func(m *inbox.Message) { m.Status, m.Attempts = inbox.Processed, 1 }))}, "a", "a"},
		"a letter parked by its route":     {[]*inbox.Message{row("a", and(beside("m"), func(m *inbox.Message) { m.ConflictsWith = "" }))}, "a", "a"},
	} {
		m := row("m", waits)
		if got := m.TwinAmong(tt.rows); got != tt.waiting {
			t.Errorf("%s: a letter that waits is parked beside %q, want %q", name, got, tt.waiting)
		}
		m.ReceivedAt = time.Time{}
		if got := m.TwinAmong(tt.rows); got != tt.arriving {
			t.Errorf("%s: a letter that arrives is parked beside %q, want %q", name, got, tt.arriving)
		}
	}
}
