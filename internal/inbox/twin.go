package inbox

import (
	"slices"
	"time"
)

// Twin is a row that looks like a message: the evidence that a dead letter may have been stored by an earlier delivery
// after all. It may also be another message with the same content, published in the same moment: nobody but a person can
// tell.
type Twin struct {
	ID     string // empty: there is none
	Unsure bool   // more rows come into question than were looked at
}

// Found reports whether there is anything that a person should look at.
func (t Twin) Found() bool { return t.ID != "" || t.Unsure }

// MaxTwins bounds how many rows of a lane are looked at for a twin.
const MaxTwins = 1000

// TwinWindow returns the first and the last place in its lane that a twin of m can have. ok is false where m has no
// siblings, or nothing to know them by. No place is outside the years 1 to 9999, which is all that Spanner's keys take.
//
// The publish time of a dead letter comes as a text, from which some sender may have cut the fraction.
func (m *Message) TwinWindow() (first, last time.Time, ok bool) {
	if m.PublishedAt.IsZero() || m.LaneID == OwnLaneID(m.Consumer, m.ID) {
		return time.Time{}, time.Time{}, false
	}
	if !m.OrderedAt.Equal(m.PublishedAt) { // ordered by something else, which a twin has in common
		return m.OrderedAt, m.OrderedAt, true
	}
	first, last = m.published()
	return first, last, true
}

// published returns the first and the last moment that the publish time of m can stand for.
func (m *Message) published() (first, last time.Time) {
	unit := time.Millisecond
	if m.PublishedAt.Nanosecond() == 0 {
		unit = time.Second
	}
	first = m.PublishedAt.Truncate(unit)
	return first, first.Add(unit - 1)
}

// IsTwin reports whether other looks like m.
func (m *Message) IsTwin(other *Message) bool {
	first, last := m.published()
	sameContent := other.ContentSHA256 == m.ContentSHA256 || slices.Contains(m.Contents, other.ContentSHA256)
	return other.ID != m.ID && other.Subscription == m.Subscription && sameContent &&
		!other.PublishedAt.Before(first) && !other.PublishedAt.After(last)
}

// TwinAmong returns the id of the row that a dead letter is to be parked beside, of rows that stand in its TwinWindow; or
// "". To a letter that arrives, every row that looks like it is one. To a letter that has its row and Waits, two kinds of
// rows are none: a letter that waits too, which is compared with m in its own turn, and a letter that was parked beside m,
// or beside one that waits. Otherwise two letters of one message would each be the other's reason, and neither would run.
func (m *Message) TwinAmong(rows []*Message) string {
	byID := make(map[string]*Message, len(rows))
	for _, row := range rows {
		byID[row.ID] = row
	}
	parked := ""
	for _, row := range rows {
		switch {
		case !m.IsTwin(row), !m.ReceivedAt.IsZero() && !m.settledBy(row, byID):
		case !row.parkedBeside():
			return row.ID
		case parked == "":
			parked = row.ID
		}
	}
	return parked
}

// settledBy reports whether row, which looks like the waiting letter m, says that the message has run, will run or is a
// person's case without m. A letter that was parked beside another row says what that row says.
func (m *Message) settledBy(row *Message, byID map[string]*Message) bool {
	for range len(byID) + 1 {
		if !row.parkedBeside() {
			return !row.Waits()
		}
		if row.ConflictsWith == m.ID {
			return false
		}
		beside, ok := byID[row.ConflictsWith]
		if !ok {
			return true // it was there, and is gone
		}
		row = beside
	}
	return true // they are each other's reason: a person has both
}

// parkedBeside reports whether m is a dead letter that was parked beside the row that may be the same message, and has never
// been tried. Discarded as a copy, it is still one.
func (m *Message) parkedBeside() bool {
	return m.FromDeadLetter && m.ConflictsWith != "" && (m.Status == Parked || m.Status == Discarded) && m.Attempts == 0 &&
		m.ProcessingStartedAt.IsZero()
}

// DeadLetterWait is how long a dead letter waits before it may run: a slow commit of an earlier delivery may still land.
const DeadLetterWait = 15 * time.Minute

// Waits reports whether m is a dead letter that waits for its first attempt by itself, without a person's word. Before that
// attempt its lane is searched for a twin once more.
func (m *Message) Waits() bool {
	return m.FromDeadLetter && m.Status == Received && m.Attempts == 0 && m.Reason == "" && !m.NextAttemptAt.IsZero()
}

// AsTwin parks a dead letter beside the row that may be the same message.
func (m *Message) AsTwin(t Twin) {
	m.Status, m.Reason, m.NextAttemptAt = Parked, DeadLettered, time.Time{}
	m.ConflictsWith = t.ID
	m.LastErrorMessage = "its lane holds a message of the same subscription, publish time and content: the same one, or an equal one"
	if t.ID == "" {
		m.LastErrorMessage = "its lane holds too many messages of its place in the order to tell whether one is the same"
	}
}
