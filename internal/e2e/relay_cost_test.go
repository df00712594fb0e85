package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/relayer"
)

// passRows stores one due message and returns the rows that a run reads to correlate it: one claim, one settlement, and
// the scans around them.
func (w *relayWorld) passRows(name, key string) int {
	w.t.Helper()
	store, tap := w.store(time.Now)
	r := w.relay(store, time.Now, w.engine(nil))
	w.once(r) // the sweep has its cursor from now on
	w.load([]message{{key: key, n: 1_000_000}}, 1)
	tap.Reset()
	got := w.once(r)
	got.DurationMs = 0
	if diff := cmp.Diff(relayer.Summary{Claimed: 1, Processed: 1}, got); diff != "" {
		w.t.Errorf("%s: summary (-want +got):\n%s", name, diff)
	}
	w.t.Logf("%s: %d rows in %v", name, tap.Rows(), tap.Counts())
	return tap.Rows()
}

func TestAThousandWaitingLanesDoNotStopOneThatIsDue(t *testing.T) {
	t.Parallel()
	rows := map[int]int{}
	for _, waiting := range []int{100, 1_000} {
		w := newRelayWorld(t)
		w.sweepSlice = 10 // the sweep reads its slice, and no more
		var all []message
		later := time.Now().Add(time.Hour)
		for n := range waiting {
			all = append(all, message{key: fmt.Sprintf("WAITS-%d", n), n: 1, status: inbox.Retrying, due: later})
		}
		w.load(all, 50)
		rows[waiting] = w.passRows(fmt.Sprintf("beside %d waiting lanes", waiting), "DUE")
		for _, c := range w.log.all() {
			if c.Key != "DUE" {
				t.Errorf("a message of %s was called before its time", c.Key)
			}
		}
	}
	if rows[100] != rows[1_000] {
		t.Errorf("a pass reads %d rows beside 100 waiting lanes and %d beside 1,000, want the same", rows[100], rows[1_000])
	}
}

func TestAPassCostsTheSameBesideNoneAndManyFinishedMessages(t *testing.T) {
	t.Parallel()
	rows := map[int]int{}
	for _, finished := range []int{0, 1_000} {
		w := newRelayWorld(t)
		var all []message
		for n := range finished {
			key := fmt.Sprintf("DONE-%d", n)
			if n%2 == 0 { // half of them in the lane that is due
				key = "WO-1"
			}
			all = append(all, message{key: key, n: n, status: inbox.Processed})
		}
		w.load(all, 50)
		rows[finished] = w.passRows(fmt.Sprintf("beside %d finished messages", finished), "WO-1")
	}
	if rows[0] != rows[1_000] {
		t.Errorf("a pass reads %d rows beside 0 finished messages and %d beside 1,000, want the same", rows[0], rows[1_000])
	}
}

func TestADeepLaneDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	w.parallel, w.batch = 16, 100
	deep, wantDeep := backlog("DEEP", 1, 2_000)
	others, want := backlog("WO", 50, 4)
	w.load(deep, 50) // it is the older one
	w.load(others, 50)
	store, _ := w.store(time.Now)
	stop := make(chan struct{})
	var left atomic.Int64
	left.Store(int64(len(others)))
	r := w.relay(store, time.Now, w.engine(func(_ context.Context, d engine.Delivery) engine.Verdict {
		if !strings.HasPrefix(d.Key, "DEEP") && left.Add(-1) == 0 {
			close(stop) // the deep lane's order over all its length is no matter of this test
		}
		return engine.Correlated
	}))
	s, err := r.Run(t.Context(), true, stop, nil)
	if err != nil {
		t.Fatal(err)
	}
	if left.Load() != 0 {
		t.Fatalf("%d of the others were not called", left.Load())
	}
	var deepCalls int
	for _, c := range w.log.all() {
		if c.Key == "DEEP-000" {
			deepCalls++
		}
	}
	if s.Processed != len(others)+deepCalls {
		t.Errorf("processed %d, want the %d others and %d of the deep lane", s.Processed, len(others), deepCalls)
	}
	// A lane gives a sixteenth of a batch at a time; two or three claims serve the others.
	if deepCalls > 50 {
		t.Errorf("%d of the deep lane's %d messages were called before the last of the others, want a few", deepCalls, len(deep))
	}
	for key, ids := range wantDeep {
		want[key] = ids[:deepCalls]
	}
	w.log.checkOnceInOrder(t, want)
}
