package inbox

import "time"

// Memory is how far back an inbox remembers what has finished. A row is deleted by the retention that was in force when the
// message finished: so the memory does not become longer at once when the retention does. The zero value says that no relay
// has noted its retention yet.
type Memory struct {
	Retention time.Duration // of what finishes now; zero: not known
	// What has finished before ShorterUntil may have been kept for no longer than Shorter. Zero: there was no shorter retention.
	Shorter      time.Duration
	ShorterUntil time.Time
}

// With is the memory once a relay keeps what finishes from now on for retention.
func (m Memory) With(retention time.Duration, now time.Time) Memory {
	if m.Retention != 0 && m.Retention < retention {
		shorter := m.Retention
		if m.ShorterUntil.After(now.Add(-m.Retention)) { // else what it says is long deleted by the retention since
			shorter = min(shorter, m.Shorter)
		}
		m.Shorter, m.ShorterUntil = shorter, now
	}
	m.Retention = retention
	return m
}

// Since is the time from which on everything that has finished is still there. configured is the retention that the caller
// knows of: the relays may not have begun with it, or no longer keep to it.
func (m Memory) Since(now time.Time, configured time.Duration) time.Time {
	if m.Retention != 0 {
		configured = min(configured, m.Retention)
	}
	since := now.Add(-configured)
	if deleted := now.Add(-m.Shorter); deleted.Before(m.ShorterUntil) {
		return later(since, deleted)
	}
	return later(since, m.ShorterUntil)
}
