package spannerstore

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// modelScan is a scan of the model's range under way.
type modelScan struct {
	from, read, local time.Time
	seen              []time.Time // oldest first, as at the read
}

// rangeModel is one range of an index, of entries that are only times, and the time of its database.
type rangeModel struct {
	now, local time.Time
	entries    map[time.Time]bool
	deleted    []time.Time             // times that were there once
	back       map[time.Time]time.Time // when an entry came back with its old time, until a full pass has ended that saw it
}

func (m *rangeModel) tick() time.Time {
	m.now = m.now.Add(time.Microsecond)
	return m.now
}

func (m *rangeModel) begin(marks *marks, r markedRange, limit int) modelScan {
	scan := modelScan{from: marks.from(r, m.local), read: m.now, local: m.local}
	for at := range m.entries {
		if !at.Before(scan.from) {
			scan.seen = append(scan.seen, at)
		}
	}
	slices.SortFunc(scan.seen, time.Time.Compare)
	scan.seen = scan.seen[:min(limit, len(scan.seen))]
	return scan
}

func (m *rangeModel) end(s modelScan, marks *marks, r markedRange) {
	var oldest time.Time
	if len(s.seen) > 0 {
		oldest = s.seen[0]
	}
	marks.note(r, s.from, oldest, time.Time{}, s.read, s.local)
	for at, since := range m.back {
		if s.from.IsZero() && !since.After(s.read) {
			delete(m.back, at)
		}
	}
}

// Scans overlap, are cut off by limits, and entries come, go, and come back, in any order.
func TestScansFromAMarkMissNothingButWhatCameBackSinceTheLastFullPass(t *testing.T) {
	r := markedRange{index: "MessagesOpen", consumer: "orders", shard: 3}
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 0))
		marks := &marks{}
		m := &rangeModel{now: time.Unix(1_700_000_000, 0), local: time.Unix(0, 0), entries: map[time.Time]bool{}, back: map[time.Time]time.Time{}}
		comesBack := seed%2 == 1
		var open []modelScan
		bounded := 0
		for step := range 200 {
			m.tick()
			switch rng.IntN(7) {
			case 0, 1:
				m.entries[m.now] = true
			case 2:
				for at := range m.entries {
					delete(m.entries, at)
					delete(m.back, at)
					m.deleted = append(m.deleted, at)
					break
				}
			case 3:
				if comesBack && len(m.deleted) > 0 {
					at := m.deleted[rng.IntN(len(m.deleted))]
					m.entries[at], m.back[at] = true, m.now
				}
			case 4:
				open = append(open, m.begin(marks, r, 1+rng.IntN(4)))
			case 5:
				if len(open) > 0 {
					i := rng.IntN(len(open))
					m.end(open[i], marks, r)
					open = slices.Delete(open, i, i+1)
				}
			case 6:
				m.local = m.local.Add(fullPass / 20)
			}
			from := marks.from(r, m.local)
			if !from.IsZero() {
				bounded++
			}
			for at := range m.entries {
				if _, back := m.back[at]; at.Before(from) && !back {
					t.Fatalf("history %d, step %d: a scan would begin at %v, behind the entry of %v", seed, step, from, at)
				}
			}
		}
		if bounded == 0 {
			t.Errorf("history %d: no scan was bounded: this test shows nothing", seed)
		}
		// What came back is found by the next full pass, which comes by itself.
		m.local = m.local.Add(fullPass)
		if from := marks.from(r, m.local); !from.IsZero() {
			t.Fatalf("history %d: no full pass after %v", seed, fullPass)
		}
		scan := m.begin(marks, r, len(m.entries)+1)
		m.end(scan, marks, r)
		if len(scan.seen) != len(m.entries) {
			t.Fatalf("history %d: a full pass found %d of %d entries", seed, len(scan.seen), len(m.entries))
		}
		from := marks.from(r, m.local)
		for at := range m.entries {
			if at.Before(from) {
				t.Fatalf("history %d: after a full pass a scan begins at %v, behind the entry of %v", seed, from, at)
			}
		}
	}
}

func TestAMarkFollowsTheOldestEntry(t *testing.T) {
	r := markedRange{index: "LanesWoken", consumer: "orders"}
	at := func(s int) time.Time { return time.Unix(1_700_000_000+int64(s), 0) }
	none, local := time.Time{}, time.Unix(0, 0)
	var m marks
	if got := m.from(r, local); !got.IsZero() {
		t.Errorf("nothing is known, and a scan begins at %v", got)
	}
	m.note(r, none, at(5), none, at(10), local)
	m.note(r, at(5), at(7), none, at(11), local)
	m.note(r, at(5), at(9), none, at(12), local) // began before the mark moved
	if got := m.from(r, local); !got.Equal(at(7)) {
		t.Errorf("a scan begins at %v, want %v", got, at(7))
	}
	m.note(r, at(7), none, none, at(20), local)
	if got := m.from(r, local); !got.Equal(at(20)) {
		t.Errorf("an empty range: a scan begins at %v, want the read's %v", got, at(20))
	}
	m.note(r, at(20), none, at(15), at(30), local)
	if got := m.from(r, local); !got.Equal(at(15)) {
		t.Errorf("scanned up to a time: a scan begins at %v, want %v", got, at(15))
	}
	if got := m.from(markedRange{index: "LanesWoken", consumer: "orders", shard: 1}, local); !got.IsZero() {
		t.Errorf("another shard begins at %v", got)
	}
	// An older full pass that ends late.
	m.note(r, none, at(3), none, at(9), local)
	if got := m.from(r, local); !got.Equal(at(15)) {
		t.Errorf("after an older full pass a scan begins at %v, want %v", got, at(15))
	}
}
