package inbox

import "time"

// ReportRequest asks for the state of one consumer's rows.
type ReportRequest struct {
	Consumer string
	// Routes are those of the configuration. Lanes that are filed under another one are not counted.
	Routes []string
	// Lease is the relays' lease: how far ahead one that is held may end.
	Lease time.Duration
	// MaxOpen and MaxParked bound how many rows are counted: open ones and lanes of a kind, and parked ones of a reason.
	MaxOpen, MaxParked int
}

// Report is the state of one consumer's rows at one moment. An age is zero where there is no such row.
type Report struct {
	At                 time.Time
	OldestOpen         time.Duration // since receipt
	OldestProcessing   time.Duration // since its attempt was recorded
	OldestExpiredLease time.Duration // since the lease ended
	Open               int
	OpenCapped         bool // there may be more than Open
	UnknownRoute       int  // open rows of routes that the configuration lacks
	Parked             map[Reason]int
	Engines            map[string]EngineState
	Lanes              LaneCounts
}

// LaneCounts are the lanes of a consumer by what they do.
type LaneCounts struct {
	Due     int // and not leased
	Leased  int
	Blocked int // as far as a relay has met the parked message
	Held    int
}

// What Lanes.Stopped says of a lane that stands still until a person acts.
const (
	StoppedBlocked = "BLOCKED"
	StoppedHeld    = "HELD"
)
