package inbox

import (
	"strconv"
	"time"
)

// Arrival is a message on its way into the ledger, with its payload.
type Arrival struct {
	Message     Message
	Body        []byte // exactly as it came; empty for a claim check
	ContentType string
}

// WakesLane reports whether the arrival is anything its lane has to know of.
func (a *Arrival) WakesLane() bool { return a.Message.Status.Open() || a.Message.Blocks }

// Known is a row that a repeated push may belong to.
type Known struct {
	ID            string
	ContentSHA256 string
	TransportKey  string
	Deliveries    int64 // recorded redeliveries
	// Imported is the object that the row was made of, before any message announced it, in the generation that it had then;
	// zero: a message made the row.
	Imported Object
}

// AnnouncedBy reports whether m announces, late, the object that the row was imported for, in the generation that was
// imported. Its content is another one: what Cloud Storage says of an object cannot be made anew to the last byte. A message
// that does not say which generation it announces may be about a later one, and is not taken for it.
func (k Known) AnnouncedBy(m *Message) bool {
	switch m.Attributes["eventType"] {
	case "", "OBJECT_FINALIZE":
	default:
		return false // another event of the same object
	}
	generation := AnnouncedGeneration(m.Attributes)
	if generation == 0 {
		generation = m.Claim.Generation
	}
	return generation != 0 && !m.Claim.IsZero() && k.Imported.URI() == m.Claim.URI() && k.Imported.Generation == generation
}

// AnnouncedGeneration returns the generation of the object that a notification of Cloud Storage is about; 0: the attributes
// do not say.
// https://docs.cloud.google.com/storage/docs/pubsub-notifications#attributes
func AnnouncedGeneration(attributes map[string]string) int64 {
	generation, err := strconv.ParseInt(attributes["objectGeneration"], 10, 64)
	if err != nil || generation < 0 {
		return 0
	}
	return generation
}

// MaxDeliveries is how many redeliveries of one message are recorded.
const MaxDeliveries = 100

// Redelivery is one repeated delivery of a message that has its row.
type Redelivery struct {
	InboxID      string
	MessageID    string
	Attempt      int64
	Subscription string
	Revision     string
}

// EpochOrder is the constant OrderedAt of lanes ordered by their commit timestamps.
var EpochOrder = time.Unix(0, 0).UTC()
