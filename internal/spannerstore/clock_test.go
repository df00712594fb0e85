package spannerstore_test

import (
	"context"
	"testing"
	"time"

	"cloud.google.com/go/spanner/apiv1/spannerpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/emulatortest"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/rpctap"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/spannerstore"
)

// lagging makes the timestamps of all reads lie before their time, as those of an idle database might.
func lagging(tap *rpctap.Tap, by time.Duration) {
	tap.After("StreamingRead", func(_ context.Context, _ int, _, reply any, err error) error {
		if set, ok := reply.(*spannerpb.PartialResultSet); ok {
			if txn := set.GetMetadata().GetTransaction(); txn.GetReadTimestamp() != nil {
				txn.ReadTimestamp = timestamppb.New(txn.GetReadTimestamp().AsTime().Add(-by))
			}
		}
		return err
	})
}

func TestALeaseLastsAsLongAsItWasPromisedWhateverTheReadsSay(t *testing.T) {
	w := newWorld(t)
	lagging(w.tap, lease)
	for n := range 2 { // the process's first claim, and one that follows it
		w.insert("WO", n)
		w.insert([]string{"A", "B"}[n], n)
		before := w.databaseTime()
		plan, clock := w.claim(w.store, "owner")
		if len(plan.Claimed) == 0 {
			t.Fatal("nothing was claimed")
		}
		for _, claimed := range plan.Claimed {
			if got := claimed.Lane.LeaseUntil.Sub(before); got < lease {
				t.Errorf("claim %d: the lease ends %v after the claim began, want at least %v", n, got, lease)
			}
		}
		if lag := clock.Lag(); lag <= inbox.LagTolerated {
			t.Errorf("claim %d: the reads are said to lag by %v", n, lag)
		}
		other, _ := w.newStore()
		if lanes, _ := w.scan(other); len(lanes) != 0 {
			t.Errorf("claim %d: another process finds %d lanes that are leased", n, len(lanes))
		}
	}
	if got := w.tap.Count("Commit"); got != 3 {
		t.Errorf("%d commits, want two claims and one that tells the time", got)
	}
}

func TestTheReportersLeaseLastsAsLongAsItWasPromised(t *testing.T) {
	w := newWorld(t)
	lagging(w.tap, lease)
	before := w.databaseTime()
	held, _, err := w.store.TakeReporter(t.Context(), consumer, "me", lease)
	if err != nil || !held {
		t.Fatal(held, err)
	}
	var until time.Time
	w.query("SELECT ReporterUntil FROM Relays", nil, &until)
	if got := until.Sub(before); got < lease {
		t.Errorf("it ends after %v, want at least %v", got, lease)
	}
}

func TestAWrongWallClockCostsOneCommitAMinuteAndChangesNoTime(t *testing.T) {
	w := newWorld(t)
	ahead := 10 * time.Minute
	tap := &rpctap.Tap{}
	store := spannerstore.New(emulatortest.Client(t, w.db, tap.Options()...), func() time.Time { return time.Now().Add(ahead) }, w.newID)
	for n := range 2 {
		w.insert([]string{"A", "B"}[n], n)
		before := w.databaseTime()
		plan, _ := w.claim(store, "owner")
		if got := plan.Claimed[0].Lane.LeaseUntil.Sub(before); got < lease || got > ahead/2 {
			t.Errorf("claim %d: the lease ends after %v, want about %v", n, got, lease)
		}
	}
	if got := tap.Count("Commit"); got != 3 {
		t.Errorf("%d commits, want two claims and one that tells the time", got)
	}
}
