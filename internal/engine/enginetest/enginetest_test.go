package enginetest

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAFaithfulEnginePasses(t *testing.T) {
	Run(t, func(t testing.TB) World { return newMemory(t, nil) })
}

// Each fault of an adapter is found by the check that is about it.
func TestEachFaultIsFound(t *testing.T) {
	tests := []struct {
		name  string
		fault fault
		by    string
	}{
		{"calls everything a success", fault{alwaysCorrelated: true}, "nobody waiting is not a success and advances nobody else"},
		{"calls everything a success, of two", fault{alwaysCorrelated: true}, "two waiting instances are ambiguous and neither advances"},
		{"advances the first of two", fault{firstOfTwo: true}, "two waiting instances are ambiguous and neither advances"},
		{"advances whom it finds", fault{anyKey: true}, "nobody waiting is not a success and advances nobody else"},
		{"does not look at the message", fault{anyMessage: true}, "an instance that waits for another message does not advance"},
		{"advances suspended instances", fault{wakesSuspended: true}, "a suspended instance is neither advanced nor given up"},
		{"declares idempotence and has none", fault{forgetful: true}, "the same delivery again has no second effect"},
		{"sends twice", fault{twice: true}, "one waiting instance advances once"},
		{"remembers refusals", fault{remembersRefusals: true}, "a message that overtook its process is delivered once the process waits"},
		{"does not ask", fault{doesNotAsk: true}, "nothing is sent where BeforeSend forbids it"},
		{"asks afterwards", fault{asksAfter: true}, "BeforeSend is asked before anything arrives"},
		{"ignores a cancelled context", fault{ignoresContext: true}, "a call that is cancelled before it begins sends nothing"},
		{"calls a lost answer technical", fault{lostIsTechnical: true}, "an answer lost after the effect is unknown"},
		{"sends again when an answer is lost", fault{resends: true}, "an answer lost after the effect is unknown"},
		{"calls a refused connection unknown", fault{refusedIsUnknown: true}, "a refused connection is technical and heals"},
		{"calls a refusal of us one of the message", fault{lockedIsRejected: true}, "an engine that refuses our credentials refuses us and not the message"},
		{"does not say how long", fault{noRetryAfter: true}, "an engine that asks for less says for how long"},
		{"rounds numbers", fault{rounds: true}, "numbers keep every digit"},
		{"repeats the payload", fault{leaks: true}, "no result holds what an engine repeats of the payload"},
		{"probes by what still waits", fault{probesWaiting: true}, "a probe finds the effect of a delivery whose answer was lost"},
		{"probes by sending", fault{probesBySending: true}, "a probe tells what still waits from what is gone"},
		{"takes early for through", fault{alwaysThrough: true}, "history does not take a process that is not there yet for one that is through"},
		{"is past, and nobody says so", fault{neverThrough: true}, "a process past the point is already through"},
		{"has no timeout", fault{noTimeout: true}, "what an engine declares is what it is"},
		{"declares no probe", fault{undeclaredProbe: true}, "what an engine declares is what it is"},
		{"answers in its engine's place", fault{answersAlone: true}, "what is found without the engine is not said of the engine"},
		{"takes an outage for a finding of its own", fault{outageNotAsked: true}, "a refused connection is technical and heals"},
		{"mixes up parallel calls", fault{mixesUp: true}, "deliveries in parallel do not disturb each other"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // each run of the suite waits out a timeout or two
			got := Failing(t, func(t testing.TB) World { return newMemory(t, &tt.fault) })
			if !slices.Contains(got, tt.by) {
				t.Errorf("not found by %q, but by %q", tt.by, got)
			}
		})
	}
}

func TestTheFaithfulEngineFailsNothing(t *testing.T) {
	if got := Failing(t, func(t testing.TB) World { return newMemory(t, nil) }); len(got) > 0 {
		t.Errorf("failing: %q", got)
	}
}

func TestOnlyDeclaredAbilitiesAreSkipped(t *testing.T) {
	skipped := func(lacks map[Ability]string) []string {
		var names []string
		for _, c := range checks {
			r := &recorder{TB: t}
			r.do(func() {
				w := newMemory(r, nil)
				w.lacks = lacks
				c.run(r, w)
			})
			if r.failed {
				t.Errorf("%s failed", c.name)
			}
			if r.skipped {
				names = append(names, c.name)
			}
		}
		return names
	}
	if got := skipped(nil); len(got) > 0 {
		t.Errorf("skipped without a declaration: %q", got)
	}
	if diff := cmp.Diff([]string{"numbers keep every digit"}, skipped(map[Ability]string{ExactNumbers: "doubles"})); diff != "" {
		t.Errorf("skipped (-want +got):\n%s", diff)
	}
}

func TestADeclarationNeedsAReason(t *testing.T) {
	got := Failing(t, func(t testing.TB) World {
		w := newMemory(t, nil)
		w.lacks = map[Ability]string{Echo: ""}
		return w
	})
	if len(got) != len(checks) {
		t.Errorf("%d of %d checks fail", len(got), len(checks))
	}
}

func TestNoTwoChecksHaveOneName(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range checks {
		if seen[c.name] {
			t.Errorf("twice: %s", c.name)
		}
		seen[c.name] = true
	}
}
