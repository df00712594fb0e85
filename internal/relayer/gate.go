package relayer

import (
	"sync"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// gate is shared by all runs of a process. The gate counts claimed messages, and sees to it that a suspect, a message whose worker
// was lost before, is at work alone: a second crash then affects no other message. Suspects and other messages take turns, so
// that neither waits for ever. The gate says nothing about other processes, and does not outlive its own.
type gate struct {
	mu          sync.Mutex
	claiming    bool // one run claims at a time
	outstanding int  // messages claimed and not settled
	alone       bool // what is claimed is a suspect
	suspectTurn bool // drain, then a suspect
	refused     bool // somebody wants to claim
	// states are the engines' as this process has last read them. They belong to whoever is between enter and leave.
	states map[string]inbox.EngineState
	// suspects counts the turns of suspects. It belongs to the same.
	suspects int
}

// turn says what may be claimed now.
type turn struct {
	alone         bool // nothing else is claimed
	suspectsFirst bool
}

// enter asks for the right to claim; leave gives it back.
func (g *gate) enter() (turn, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.claiming || g.alone || (g.suspectTurn && g.outstanding > 0) {
		g.refused = true
		return turn{}, false
	}
	g.claiming = true
	return turn{alone: g.outstanding == 0, suspectsFirst: g.suspectTurn}, true
}

// leave returns how many messages the plan has claimed: whoever claimed them owes their settlement.
func (g *gate) leave(plan inbox.ClaimPlan) (claimed int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.claiming = false
	for _, lane := range plan.Claimed {
		claimed += len(lane.Messages)
	}
	g.outstanding += claimed
	g.alone = plan.Suspect
	g.suspectTurn = plan.Suspects && !plan.Suspect
	return claimed
}

// abandon gives back what a run has claimed and will not settle: the run has broken off. The leases keep others away from its
// messages for as long as its calls may still be under way.
func (g *gate) abandon(n int) { _ = g.settled(n) }

// settled counts n messages as settled, and reports whether that lets somebody claim who was refused.
func (g *gate) settled(n int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.outstanding -= n; g.outstanding > 0 {
		return false
	}
	refused := g.refused
	g.alone, g.refused = false, false
	return refused
}
