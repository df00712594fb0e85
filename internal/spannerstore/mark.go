package spannerstore

import (
	"sync"
	"time"
)

// fullPass is how often a scan looks at all of a range again, whatever its mark says.
const fullPass = 10 * time.Minute

// markedRange is a range of an index whose next key part is a time: that of one consumer and shard.
type markedRange struct {
	index, consumer string
	shard           int64
}

// marks are low-water marks: of each range a time before which it has no entry, so that a scan needs not pass over all that
// was deleted there. Deleted index entries stay until they are compacted, for days, and a scan from the beginning of a range
// reads each of them again.
//
// A scan begins where from says and tells note what it has found. As long as entries come with the timestamp of the commit
// that makes them, nothing is missed: after a strong read, later entries have later times. An entry that comes back with an
// old time (a reopened message has the time of its receipt) is missed until the next full pass at the latest, each fullPass.
// A range that a scan has not seen the beginning of, because its limit was reached before, must not be noted.
//
// The zero value knows nothing, so that all scans begin at the beginning. It is safe for concurrent use.
type marks struct {
	mu sync.Mutex
	of map[markedRange]mark
	// lasting: no entry comes back with an old time, so that one full pass is enough.
	lasting bool
}

type mark struct {
	at       time.Time // nothing is before it
	read     time.Time // the timestamp of the read that says so
	passed   time.Time // and of the last full pass; zero: there was none
	passedAt time.Time // local
}

// from returns where a scan of the range begins; zero: at its beginning. local is a local reading.
func (m *marks) from(r markedRange, local time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.of[r]
	if known.passed.IsZero() || (!m.lasting && local.Sub(known.passedAt) >= fullPass) {
		return time.Time{}
	}
	return known.at
}

// note says what a scan has found that began at from, as from returned it: the range's oldest entry, zero if it has none up
// to end. read is the timestamp of the strong read. Where the range was scanned as far as end only, entries beyond have later
// times. local is a local reading from before the read.
func (m *marks) note(r markedRange, from, oldest, end, read, local time.Time) {
	at := read
	if !end.IsZero() && end.Before(at) {
		at = end
	}
	if !oldest.IsZero() && oldest.Before(at) {
		at = oldest
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.of[r]
	switch {
	case from.IsZero():
		if !read.After(known.passed) {
			return // a later pass may have found what came back since
		}
		known = mark{at: at, read: read, passed: read, passedAt: local}
	case from.Equal(known.at) && read.After(known.read):
		known.at, known.read = at, read
	default:
		return // a full pass has moved the mark meanwhile, and knows better; or another scan has, and knows more
	}
	if m.of == nil {
		m.of = map[markedRange]mark{}
	}
	m.of[r] = known
}
