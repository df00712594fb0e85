package inbox

import "time"

// Message is one row of the ledger. Zero times and empty strings are SQL nulls where the column allows it.
type Message struct {
	ID           string
	Consumer     string
	Scope        string
	DedupeKey    string
	TransportKey string

	Subscription string
	MessageID    string
	OrderingKey  string
	PublishedAt  time.Time // zero: unknown
	ReceivedAt   time.Time // commit timestamp of the receive

	Type          string
	Version       string
	Route         string
	TenantID      string
	AggregateType string
	CorrelationID string
	CausationID   string
	TraceParent   string

	LaneID    string
	Key       string // correlation key; empty: a lane of its own
	Sequence  int64
	OrderedAt time.Time

	Status Status
	Reason Reason
	Blocks bool // while parked it keeps its lane's queue closed
	Late   bool // arrived before the lane's last finished position

	HandedOver          bool
	Attempts            int64
	TechnicalFailures   int64
	OutageFailures      int64 // those of TechnicalFailures during which the engine answered nobody else
	LostWorkers         int64
	OutcomeUnknown      bool
	PatienceUsed        time.Duration // time between consecutive NotWaiting answers; stored in milliseconds
	PatienceFor         string        // what it was used for: ForObject, or empty for an instance
	LastNotWaitingAt    time.Time     // zero unless the last answer was NotWaiting
	NextAttemptAt       time.Time
	PlannedAt           time.Time // of a claimed one: the NextAttemptAt that the claim has found. It is no column
	ProcessingStartedAt time.Time
	ProcessedAt         time.Time
	FirstFailedAt       time.Time
	LastFailedAt        time.Time
	LastErrorCode       string
	LastErrorMessage    string
	EngineReference     string

	Attributes      map[string]string
	ContentSHA256   string
	Contents        []string // of an arrival: the hashes that its content may have in another row (Contents). It is no column
	PayloadSHA256   string
	PayloadBytes    int64
	PayloadLocation string // empty: inline; see Object.Location
	Claim           Object // what the sender refers to; zero: nothing

	// FromDeadLetter: it came through the dead-letter topic, after SourceAttempts deliveries of its subscription (0: not said).
	FromDeadLetter bool
	SourceAttempts int64
	// Twin is what the claim has found in the lane of a dead letter that Waits. It is no column.
	Twin Twin

	ReplayOf      string
	ConflictsWith string
	PurgeAfter    time.Time
}

// UnfitOnArrival reports whether m did not fit its route when it came: what its route says of its key, order and identity is
// not known, and it stands under those of its push.
func (m *Message) UnfitOnArrival() bool {
	return m.Status == Parked && m.Reason == Contract && m.Attempts == 0
}

// Position is a message's place in its lane. Positions of one lane are totally ordered and never change.
type Position struct {
	Sequence   int64
	OrderedAt  time.Time
	ReceivedAt time.Time
	InboxID    string
}

// Position returns the message's place in its lane.
func (m *Message) Position() Position {
	return Position{Sequence: m.Sequence, OrderedAt: m.OrderedAt, ReceivedAt: m.ReceivedAt, InboxID: m.ID}
}

// Before reports whether p comes before q.
func (p Position) Before(q Position) bool {
	switch {
	case p.Sequence != q.Sequence:
		return p.Sequence < q.Sequence
	case !p.OrderedAt.Equal(q.OrderedAt):
		return p.OrderedAt.Before(q.OrderedAt)
	case !p.ReceivedAt.Equal(q.ReceivedAt):
		return p.ReceivedAt.Before(q.ReceivedAt)
	}
	return p.InboxID < q.InboxID
}

// Compare is negative where p comes before q, and positive where q comes before p.
func (p Position) Compare(q Position) int {
	switch {
	case p.Before(q):
		return -1
	case q.Before(p):
		return 1
	}
	return 0
}

// IsZero reports whether p is no position at all: nothing of the lane has finished yet.
func (p Position) IsZero() bool { return p.InboxID == "" }

// LaneKey returns the key that the message's lane is known by: none for a lane of its own, which has nothing to remember
// once its message is through.
func (m *Message) LaneKey() string {
	if m.LaneID == OwnLaneID(m.Consumer, m.ID) {
		return ""
	}
	return m.Key
}
