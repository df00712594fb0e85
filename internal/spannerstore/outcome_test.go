package spannerstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/emulatortest"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/rpctap"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/spannerstore"
)

// opened is a store as a function opens it, with a message to claim.
func opened(t *testing.T) (*world, *spannerstore.Store, *rpctap.Tap, inbox.Clock) {
	t.Helper()
	w := newWorld(t)
	w.insert("WO", 1)
	t.Setenv("SPANNER_EMULATOR_HOST", emulatortest.Spanner(t))
	tap := &rpctap.Tap{}
	store, err := spannerstore.Open(t.Context(), w.db, time.Now, w.newID, tap.Options()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.OneByOne().Close)
	_, clock := w.scan(store)
	tap.Reset()
	return w, store, tap, clock
}

// refuseFrom has the nth commit, and all after it, refused.
func refuseFrom(tap *rpctap.Tap, nth int) {
	tap.Before("Commit", func(_ context.Context, n int, _ any) error {
		if n >= nth {
			return rpctap.Error(codes.PermissionDenied)
		}
		return nil
	})
}

// The client library sends a commit again whose answer it did not get: the last answer says nothing about the first.
func TestACommitWhoseFirstAnswerIsLostIsOfUnknownOutcomeWhateverTheLastSays(t *testing.T) {
	_, store, tap, clock := opened(t)
	tap.LoseNth("Commit", 1, rpctap.Error(codes.Unavailable))
	refuseFrom(tap, 2)
	plan, err := store.Claim(t.Context(), claimRequest("owner", []string{laneOf("WO")}), clock, random())
	if err != nil || len(plan.Claimed) != 1 {
		t.Errorf("%d lanes are handed out, %v, want the one whose claim was committed", len(plan.Claimed), err)
	}
	if n := tap.Count("Commit"); n < 2 {
		t.Errorf("%d commits were sent, want another after the lost one", n)
	}
}

func TestACommitThatIsRefusedAtOnceIsNotReadBack(t *testing.T) {
	_, store, tap, clock := opened(t)
	refuseFrom(tap, 1)
	reads := 0
	tap.Before("StreamingRead", func(context.Context, int, any) error {
		if tap.Count("Commit") > 0 {
			reads++
		}
		return nil
	})
	plan, err := store.Claim(t.Context(), claimRequest("owner", []string{laneOf("WO")}), clock, random())
	if err == nil || len(plan.Claimed) != 0 || reads != 0 {
		t.Errorf("%d lanes are handed out, %v, after %d more reads", len(plan.Claimed), err, reads)
	}
}

// The emulator takes one read-write transaction of a client at a time. A second one waits, for as long as it has.
func TestBesideTheEmulatorASecondTransactionWaits(t *testing.T) {
	w, store, tap, clock := opened(t)
	w.insert("OTHER", 1)
	gate := tap.HoldNth("Commit", 1)
	first := make(chan error, 1)
	go func() {
		_, err := store.Claim(t.Context(), claimRequest("owner", []string{laneOf("WO")}), clock, random())
		first <- err
	}()
	if err := gate.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	sent := tap.Total()
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := store.Claim(short, claimRequest("other", []string{laneOf("OTHER")}), clock, random()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the second transaction: %v, want that its time is over", err)
	}
	if n := tap.Total() - sent; n != 0 {
		t.Errorf("the second transaction has sent %d requests", n)
	}
	gate.Release()
	if err := <-first; err != nil {
		t.Error(err)
	}
	if _, err := store.Claim(t.Context(), claimRequest("other", []string{laneOf("OTHER")}), clock, random()); err != nil {
		t.Errorf("after the first: %v", err)
	}
}
