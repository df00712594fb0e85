// Package enginetest is the conformance suite of engine.Engine: what the relay relies on, asked of a real adapter against
// a world in which process instances really wait.
//
// An adapter's test implements World, on top of the real engine or of a faithful fake of it, and calls Run. The suite
// believes no verdict: it asks the world what advanced. So an adapter that calls everything a success fails, and so does
// an engine that answers 200 to a message nobody waits for. Failing proves such things of the suite itself.
//
// What a world cannot show it declares, with its reason, in Lacks; nothing else is skipped, but for what the engine's own
// Properties and interfaces do not promise (Idempotent, Probe, Historian).
//
// # Not guaranteed
//
// The suite shows each failure once and on a quiet machine. It does not load an engine, does not look into its
// transactions, and cannot tell an adapter that forgets to close its connections.
//
// # Concurrency
//
// Checks run one after another, each in a world of its own from the factory. A World must be safe for concurrent use: the
// engine works while the suite asks. Worlds may share one server, because no two checks use the same key.
package enginetest

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
)

// Ability is something a world may be unable to show.
type Ability string

const (
	Ambiguity    Ability = "AMBIGUITY"     // two instances can wait for the same message and key
	Passing      Ability = "PASSING"       // an instance can be past a message
	Vanishing    Ability = "VANISHING"     // an instance can go away between look-up and delivery
	Suspension   Ability = "SUSPENSION"    // an instance can be suspended
	Refusal      Ability = "REFUSAL"       // Refused
	LostAnswers  Ability = "LOST_ANSWERS"  // LosesAnswers
	Hanging      Ability = "HANGING"       // Hangs
	Locking      Ability = "LOCKING"       // Locked
	Throttling   Ability = "THROTTLING"    // Throttled
	Echo         Ability = "ECHO"          // Echoes
	ExactNumbers Ability = "EXACT_NUMBERS" // numbers of any length are kept digit for digit
)

// Outage is how a world misbehaves.
type Outage string

const (
	Healthy      Outage = "HEALTHY"
	Refused      Outage = "REFUSED"       // connections are refused
	LosesAnswers Outage = "LOSES_ANSWERS" // deliveries are handled, and the connection breaks instead of the answer
	Hangs        Outage = "HANGS"         // deliveries arrive, and are neither handled nor answered
	Locked       Outage = "LOCKED"        // our credentials are refused
	Throttled    Outage = "THROTTLED"     // the engine asks for less, and says for how long
	Echoes       Outage = "ECHOES"        // the engine refuses each delivery and repeats its body in the reason
)

// World is an engine's server with its process instances, in the hands of the suite. Methods fail their test by
// themselves when they cannot do what they are asked for.
type World interface {
	// Lacks is what this world cannot show, each with a reason.
	Lacks() map[Ability]string
	// Engine is a new adapter to this world. The world closes it.
	Engine(timeout time.Duration) engine.Engine

	// Start starts an instance that waits for message under key.
	Start(key, message string)
	// Pass leaves an instance under key that has waited for message, and does not any more.
	Pass(key, message string)
	// Vanish has the waiting instance of key go away in the middle of the next delivery.
	Vanish(key, message string)
	// Suspend suspends the waiting instance of key.
	Suspend(key, message string)
	// Set changes how the world misbehaves, for all that arrives from now on.
	Set(Outage)

	// Advanced is how many times instances under key were advanced by a message.
	Advanced(key string) int
	// Arrived is how many deliveries for key arrived: requests that advance an instance if all is well. Look-ups and
	// refused connections do not count.
	Arrived(key string) int
	// Await blocks until at least n deliveries for key have arrived, or ctx ends.
	Await(ctx context.Context, key string, n int) error
	// Variables are the variables with which an instance of key was advanced last, as JSON texts.
	Variables(key string) map[string]json.RawMessage
	// Settle blocks until a look-up would see all that has been handled: twice the timeout, if nothing better is known.
	Settle(timeout time.Duration)
}

// Factory makes a world for one check. It cleans up by t.Cleanup.
type Factory func(t testing.TB) World

// Run runs the suite.
func Run(t *testing.T, factory Factory) {
	t.Helper()
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) { c.run(t, factory(t)) })
	}
}

// Failing runs the suite, and returns the names of the checks that fail. It fails t for none of them: it is for proofs
// that the suite finds a fault.
func Failing(t testing.TB, factory Factory) []string {
	t.Helper()
	var names []string
	for _, c := range checks {
		r := &recorder{TB: t}
		r.do(func() { c.run(r, factory(r)) })
		if r.failed {
			names = append(names, c.name)
		}
	}
	return names
}

// check is one promise of the contract.
type check struct {
	name  string
	needs []Ability
	test  func(f *fixture)
}

func (c check) run(t testing.TB, w World) {
	t.Helper()
	for ability, reason := range w.Lacks() {
		if reason == "" {
			t.Fatalf("the world lacks %s without a reason", ability)
		}
	}
	for _, ability := range c.needs {
		if reason, lacking := w.Lacks()[ability]; lacking {
			t.Skipf("the world cannot show %s: %s", ability, reason)
		}
	}
	c.test(newFixture(t, w))
}

// checks is the suite.
var checks = append(append([]check{}, verdictChecks...), sendingChecks...)
