package inbox

import "time"

// ScanRequest asks for lanes that a relay may claim from.
type ScanRequest struct {
	Consumer string
	Limit    int // lanes, about
	Routes   map[string]RoutePolicy
	Engines  map[string]EnginePolicy
	// States are the engines' states as this process has last read them. The scan reads them anew where one is not closed.
	States map[string]EngineState
	// Held reports whether the caller still works on a lane: such a lane is left out, whatever became of its lease.
	Held func(laneID string) bool
	// Lease is how long the relays' leases are. A due time is never written further back than the larger of it and ten minutes.
	Lease time.Duration
	// All: lanes that have been given an earlier time by hand are looked for too. Without it they are found by the next scan
	// with All.
	All bool
}

// Scanned is what a scan has found.
type Scanned struct {
	// Lanes may be claimed from: flows in turns, and within a flow about the oldest first.
	Lanes []string
	// Suspects are lanes that are filed as such: what is at their head has cost a worker.
	Suspects []string
	Clock    Clock
	More     bool // there may be more lanes to claim from
	States   map[string]EngineState
}

// Callable reports whether lanes of an engine are worth a claim now: the engine is neither paused nor behind an open breaker,
// no probe is out, and a call slot is free. probe says that one of its lanes at most can be taken.
func Callable(policy EnginePolicy, state EngineState, now time.Time) (ok, probe bool) {
	if !state.PausedAt.IsZero() || (state.OpenUntil.After(now) && !state.Doubtful("")) || (!state.OpenUntil.IsZero() && state.Probing(now)) {
		return false, false
	}
	return policy.Capacity > 0, !state.OpenUntil.IsZero()
}
