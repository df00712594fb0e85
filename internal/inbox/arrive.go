package inbox

import "time"

// Arrive is the transition of a new message: into RECEIVED, or, where reason is not empty, into PARKED at once. detail says why,
// for a person.
func (m *Message) Arrive(reason Reason, detail string) {
	m.Status, m.Reason = Received, ""
	if reason != "" {
		m.Status, m.Reason, m.LastErrorMessage = Parked, reason, Text(detail, MaxErrorMessage)
	}
}

// ArriveBeside is the transition of a new message whose identity the message owner has, with other content.
func (m *Message) ArriveBeside(owner string) {
	m.Arrive(DedupeConflict, "other content under an identity that is taken")
	m.ConflictsWith, m.NextAttemptAt = owner, time.Time{}
}

// Discard is an operator's transition of a parked message into DISCARDED. The row stays until purge.
func (m *Message) Discard(at, purge time.Time) {
	m.Status, m.ProcessedAt, m.PurgeAfter = Discarded, at, purge
}
