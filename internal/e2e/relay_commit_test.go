package e2e_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/spanner/apiv1/spannerpb"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/rpctap"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/relayer"
)

// abortFirstTries answers Aborted to the first commit of every read-write transaction, and returns how many it has.
func abortFirstTries(tap *rpctap.Tap) func() int {
	var mu sync.Mutex
	aborted, again := 0, false // a store runs one transaction at a time
	tap.Before("Commit", func(_ context.Context, _ int, req any) error {
		mu.Lock()
		defer mu.Unlock()
		if len(req.(*spannerpb.CommitRequest).GetTransactionId()) == 0 || again {
			return nil
		}
		aborted, again = aborted+1, true
		return rpctap.Error(codes.Aborted)
	})
	tap.After("Commit", func(_ context.Context, _ int, req, _ any, err error) error {
		mu.Lock()
		defer mu.Unlock()
		if len(req.(*spannerpb.CommitRequest).GetTransactionId()) != 0 && err == nil {
			again = false
		}
		return err
	})
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return aborted
	}
}

func TestTransactionsThatRunTwiceDoubleNothing(t *testing.T) {
	w := newRelayWorld(t)
	messages, want := backlog("WO", 5, 1)
	w.load(messages, 50)
	failing := messages[0].id()
	store, tap := w.store(time.Now)
	aborted := abortFirstTries(tap)
	r := w.relay(store, time.Now, w.engine(func(_ context.Context, d engine.Delivery) engine.Verdict {
		if d.InboxID == failing && d.Attempt == 1 {
			return engine.Technical
		}
		return engine.Correlated
	}))
	var got relayer.Summary
	eventually(t, "all are processed", func() bool {
		s := w.once(r)
		got.Claimed, got.Processed, got.Retrying = got.Claimed+s.Claimed, got.Processed+s.Processed, got.Retrying+s.Retrying
		return w.count("Messages WHERE Status != 'PROCESSED'") == 0
	})
	if diff := cmp.Diff(relayer.Summary{Claimed: 6, Processed: 5, Retrying: 1}, got); diff != "" {
		t.Errorf("what the runs counted (-want +got):\n%s", diff)
	}
	if n := aborted(); n < 4 {
		t.Errorf("%d transactions were aborted, want both claims and both settlements at least", n)
	}
	attempts := map[string][]int64{}
	for _, ids := range want {
		attempts[ids[0]] = []int64{1}
	}
	attempts[failing] = []int64{1, 2}
	if diff := cmp.Diff(attempts, w.log.attempts()); diff != "" {
		t.Errorf("attempts by message (-want +got):\n%s", diff)
	}
	if n := w.count("Messages WHERE Status = 'PROCESSED' AND Attempts = IF(InboxId = '" + failing + "', 2, 1)"); n != 5 {
		t.Errorf("%d messages are processed with the attempts that they had, want 5", n)
	}
	if n := w.count("Attempts"); n != 1 {
		t.Errorf("%d attempts are recorded, want the one that failed", n)
	}
	if n := w.count("Lanes WHERE LeaseToken != IF(LaneId = '" + messages[0].lane() + "', 2, 1)"); n != 0 {
		t.Errorf("%d lanes were claimed more often than once for each claim", n)
	}
}

// loseCommit lets the server execute the first commit with a tag, and gives the client an error that says nothing.
func loseCommit(tap *rpctap.Tap, tag string) *signal {
	lost := newSignal()
	tap.After("Commit", func(_ context.Context, _ int, req, _ any, err error) error {
		if err != nil || commitTag(req) != tag {
			return err
		}
		select {
		case <-lost.c:
			return nil
		default:
			lost.set()
			return rpctap.Error(codes.DeadlineExceeded)
		}
	})
	return lost
}

func TestACommitWhoseAnswerIsLostCountsAsWhatItWas(t *testing.T) {
	tests := []struct {
		name string
		lose func(tap *rpctap.Tap) *signal
		runs int // until all is done
	}{
		{"a claim that was committed is read back", func(tap *rpctap.Tap) *signal { return loseCommit(tap, "inbox-claim") }, 1},
		{"a settlement that was committed is kept", func(tap *rpctap.Tap) *signal { return loseCommit(tap, "inbox-settle") }, 1},
		{"a claim that was not committed calls nothing", func(tap *rpctap.Tap) *signal { return refuseCommit(tap, "inbox-claim") }, 2},
		{"a settlement that was not committed is made again", func(tap *rpctap.Tap) *signal { return refuseCommit(tap, "inbox-settle") }, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newRelayWorld(t)
			messages, want := backlog("WO", 5, 2)
			w.load(messages, 50)
			store, tap := w.store(time.Now)
			lost := tt.lose(tap)
			r := w.relay(store, time.Now, w.engine(nil))
			claimed, processed := 0, 0
			for run := 1; run <= tt.runs; run++ {
				s, err := r.Run(t.Context(), true, nil, nil)
				if failed := err != nil; failed != (run < tt.runs) {
					t.Errorf("run %d ends with %v", run, err)
				}
				claimed, processed = claimed+s.Claimed, processed+s.Processed
			}
			select {
			case <-lost.c:
			default:
				t.Fatal("no answer was lost: this test shows nothing")
			}
			w.log.checkOnceInOrder(t, want)
			if claimed != 10 || processed != 10 {
				t.Errorf("%d claimed and %d processed, want 10 of each", claimed, processed)
			}
			if n := w.count("Messages WHERE Status = 'PROCESSED' AND Attempts = 1"); n != 10 {
				t.Errorf("%d messages are processed at their first attempt, want 10", n)
			}
			if n := w.count("Attempts"); n != 0 {
				t.Errorf("%d attempts are recorded, want none: nothing was late or lost", n)
			}
			if n := w.count("Lanes WHERE LeaseOwner IS NOT NULL OR DueAt IS NOT NULL"); n != 0 {
				t.Errorf("%d lanes are leased or due, want none", n)
			}
		})
	}
}

// refuseCommit keeps the first commit with a tag from the server, and gives the client an error that says nothing.
func refuseCommit(tap *rpctap.Tap, tag string) *signal {
	refused := newSignal()
	tap.Before("Commit", func(_ context.Context, _ int, req any) error {
		if commitTag(req) != tag {
			return nil
		}
		select {
		case <-refused.c:
			return nil
		default:
			refused.set()
			return rpctap.Error(codes.DeadlineExceeded)
		}
	})
	return refused
}
