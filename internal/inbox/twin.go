package inbox

import "time"

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

// TwinWindow returns the places in its lane that a twin of m can have: from inclusive, to exclusive. ok is false where m has
// no siblings, or nothing to know them by.
//
// The publish time of a dead letter comes as a text, from which some sender may have cut the fraction.
func (m *Message) TwinWindow() (from, to time.Time, ok bool) {
	if m.PublishedAt.IsZero() || m.LaneID == OwnLaneID(m.Consumer, m.ID) {
		return time.Time{}, time.Time{}, false
	}
	if !m.OrderedAt.Equal(m.PublishedAt) { // ordered by something else, which a twin has in common
		return m.OrderedAt, m.OrderedAt.Add(time.Nanosecond), true
	}
	return m.published()
}

func (m *Message) published() (from, to time.Time, ok bool) {
	unit := time.Millisecond
	if m.PublishedAt.Nanosecond() == 0 {
		unit = time.Second
	}
	from = m.PublishedAt.Truncate(unit)
	return from, from.Add(unit), true
}

// IsTwin reports whether other looks like m.
func (m *Message) IsTwin(other *Message) bool {
	from, to, _ := m.published()
	return other.ID != m.ID && other.Subscription == m.Subscription && other.ContentSHA256 == m.ContentSHA256 &&
		!other.PublishedAt.Before(from) && other.PublishedAt.Before(to)
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
