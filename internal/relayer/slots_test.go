package relayer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// take acquires n slots that must be free.
func take(t *testing.T, s *slots, engine string, n int) {
	t.Helper()
	for i := range n {
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // whoever has to wait fails
		if err := s.acquire(ctx, engine, false); err != nil {
			t.Fatalf("slot %d of %s is not free: %v", i+1, engine, err)
		}
	}
}

// full reports whether the engine would have to wait.
func full(t *testing.T, s *slots, engine string) bool {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := s.acquire(ctx, engine, false)
	if err == nil {
		s.release(engine)
	}
	return err != nil
}

// queue starts n callers that wait for a slot; each that gets one sends its engine.
func queue(t *testing.T, s *slots, engine string, n int, got chan<- string) {
	t.Helper()
	for range n {
		go func() { // who gets none waits until the test ends
			if s.acquire(t.Context(), engine, false) == nil {
				got <- engine
			}
		}()
	}
	synctest.Wait()
}

func TestNoEngineTakesTheLastSlotOfAnother(t *testing.T) {
	tests := []struct {
		total   int
		engines []string
		most    int // of one engine
	}{
		{16, []string{"a"}, 16},
		{16, []string{"a", "b"}, 15},
		{16, []string{"a", "b", "c"}, 14},
		{2, []string{"a", "b", "c"}, 1},
		{1, []string{"a", "b"}, 1},
	}
	for _, tt := range tests {
		s := newSlots(tt.total, tt.engines)
		take(t, s, "a", tt.most)
		if !full(t, s, "a") {
			t.Errorf("of %d slots and %d engines one takes more than %d", tt.total, len(tt.engines), tt.most)
		}
		if free := s.room("a"); free != 0 {
			t.Errorf("a full engine has room for %d", free)
		}
		for _, other := range tt.engines[1:] {
			if tt.total >= len(tt.engines) && full(t, s, other) {
				t.Errorf("of %d slots none is left for %s beside an engine that has all it may", tt.total, other)
			}
		}
	}
}

func TestAnEngineThatHasLessThanItsShareGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(4, []string{"slow", "quick"})
		take(t, s, "slow", 3)
		take(t, s, "quick", 1)
		got := make(chan string, 10)
		queue(t, s, "slow", 3, got)
		queue(t, s, "quick", 1, got)
		s.release("slow")
		synctest.Wait()
		if first := <-got; first != "quick" {
			t.Errorf("the slot went to %s, want quick: slow has its share", first)
		}
		// Both have two of four: whoever frees one may have it again.
		s.release("slow")
		synctest.Wait()
		if next := <-got; next != "slow" {
			t.Errorf("the slot went to %s, want slow", next)
		}
		s.release("quick")
		s.release("quick")
		synctest.Wait()
		// Nobody else waits: slow may have more than its share again, up to the slot that it must leave.
		if next := <-got; next != "slow" || len(got) != 0 {
			t.Errorf("a slot went to %s and %d more were given, want slow and none", next, len(got))
		}
	})
}

// Politeness must not end in both waiting for each other.
func TestTwoThatWaitDoNotYieldToEachOther(t *testing.T) {
	tests := []struct {
		name    string
		a, b, c int // slots of six that each has
		freed   string
	}{
		{"both under their share", 1, 1, 4, "c"},
		{"both at their share, and the third does not wait", 2, 3, 1, "b"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSlots(6, []string{"a", "b", "c"})
				// In this order none of them is kept back.
				take(t, s, "a", tt.a)
				take(t, s, "b", tt.b)
				take(t, s, "c", tt.c)
				got := make(chan string, 2)
				queue(t, s, "a", 1, got)
				queue(t, s, "b", 1, got)
				s.release(tt.freed)
				synctest.Wait()
				if len(got) != 1 {
					t.Errorf("%d of two were let in by one free slot, want 1", len(got))
				}
			})
		})
	}
}

func TestASlotThatIsFreedWakesWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(1, []string{"a"})
		take(t, s, "a", 1)
		got := make(chan string, 3)
		queue(t, s, "a", 3, got)
		for range 3 {
			if len(got) != 0 {
				t.Fatal("somebody did not wait")
			}
			s.release("a")
			synctest.Wait()
			if len(got) != 1 {
				t.Fatalf("%d were let in by one free slot, want 1", len(got))
			}
			<-got
		}
	})
}

func TestWhoGivesUpWaitingLeavesNoTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(1, []string{"a"})
		take(t, s, "a", 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.acquire(ctx, "a", false); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the context's end", err)
		}
		s.release("a")
		if free := s.room("a"); free != 1 {
			t.Errorf("room for %d, want 1", free)
		}
	})
}

func TestThereIsNoRoomWhileAnybodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(3, []string{"a", "b"})
		if free := s.room("a"); free != 2 {
			t.Errorf("room for %d, want 2: one slot is b's", free)
		}
		take(t, s, "a", 2)
		got := make(chan string, 2)
		queue(t, s, "a", 1, got)
		queue(t, s, "a", 1, got)
		if free := s.room("a"); free != 0 {
			t.Errorf("room for %d, want 0", free)
		}
		if free := s.room("b"); free != 1 {
			t.Errorf("room for %d of b, want 1", free)
		}
		s.release("a")
		s.release("a")
		synctest.Wait()
		if free := s.room("a"); free != 0 {
			t.Errorf("room for %d, want 0 as both slots are taken, and nobody waits", free)
		}
	})
}

// A lane that is claimed and whose goroutine has not run yet must not look like a free slot to the next claim.
func TestAnAnnouncedLaneCountsBeforeItRuns(t *testing.T) {
	s := newSlots(4, []string{"a"})
	s.announce("a")
	if free := s.room("a"); free != 0 {
		t.Errorf("room for %d, want 0", free)
	}
	if err := s.acquire(t.Context(), "a", true); err != nil {
		t.Fatal(err)
	}
	if free := s.room("a"); free != 3 {
		t.Errorf("room for %d, want 3", free)
	}
	// Also where it gives up at once.
	s = newSlots(1, []string{"a"})
	take(t, s, "a", 1)
	s.announce("a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.acquire(ctx, "a", true); err == nil {
		t.Fatal("got a second slot of one")
	}
	s.release("a")
	if free := s.room("a"); free != 1 {
		t.Errorf("room for %d, want 1", free)
	}
}

func claimedMessages(n int) inbox.ClaimPlan {
	return inbox.ClaimPlan{Claimed: []inbox.ClaimedLane{{Messages: make([]*inbox.Message, n)}}}
}

func enter(t *testing.T, g *gate, want turn) {
	t.Helper()
	got, ok := g.enter()
	if !ok || got != want {
		t.Fatalf("the gate answers %+v, %v; want %+v, true", got, ok, want)
	}
}

func refused(t *testing.T, g *gate) {
	t.Helper()
	if got, ok := g.enter(); ok {
		t.Fatalf("the gate lets %+v in, want nobody", got)
	}
}

func TestOneRunClaimsAtATime(t *testing.T) {
	var g gate
	enter(t, &g, turn{alone: true})
	refused(t, &g)
	g.leave(claimedMessages(3))
	enter(t, &g, turn{alone: false})
	g.leave(inbox.ClaimPlan{})
	g.settled(2)
	enter(t, &g, turn{alone: false})
	g.leave(inbox.ClaimPlan{})
	g.settled(1)
	enter(t, &g, turn{alone: true})
}

func TestNothingIsClaimedBesideASuspect(t *testing.T) {
	var g gate
	enter(t, &g, turn{alone: true})
	plan := claimedMessages(1)
	plan.Suspect = true
	g.leave(plan)
	refused(t, &g)
	if !g.settled(1) {
		t.Error("who was refused is not told that the suspect is through")
	}
	enter(t, &g, turn{alone: true})
	g.leave(inbox.ClaimPlan{})
	if g.settled(0) {
		t.Error("somebody is told though nobody was refused")
	}
}

func TestSuspectsAndOthersTakeTurns(t *testing.T) {
	var g gate
	// Others are claimed, and a suspect is left.
	enter(t, &g, turn{alone: true})
	plan := claimedMessages(2)
	plan.Suspects = true
	g.leave(plan)
	// It is its turn: nothing more is claimed until the process is empty.
	refused(t, &g)
	if g.settled(1) {
		t.Error("the gate opens while a message is under way")
	}
	refused(t, &g)
	if !g.settled(1) {
		t.Error("the gate does not open when all is settled")
	}
	enter(t, &g, turn{alone: true, suspectsFirst: true})
	// One suspect is claimed, another is left: the others' turn comes first.
	plan = claimedMessages(1)
	plan.Suspect, plan.Suspects = true, true
	g.leave(plan)
	refused(t, &g)
	g.settled(1)
	enter(t, &g, turn{alone: true, suspectsFirst: false})
}

func TestATurnWithoutSuspectsIsOver(t *testing.T) {
	var g gate
	enter(t, &g, turn{alone: true})
	plan := inbox.ClaimPlan{Suspects: true}
	g.leave(plan)
	enter(t, &g, turn{alone: true, suspectsFirst: true})
	g.leave(inbox.ClaimPlan{}) // somebody else has taken it
	enter(t, &g, turn{alone: true, suspectsFirst: false})
}
