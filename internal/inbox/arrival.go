package inbox

import "time"

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
