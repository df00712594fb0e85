//go:build engines

package e2e_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/flowable/flowabletest"
)

// TestFlowableManyOrdersAndAnEngineThatIsKilled has three relays take three messages for each of many orders into one
// Flowable, which is killed twice in the middle, each time with a delivery that it has committed and not answered.
func TestFlowableManyOrdersAndAnEngineThatIsKilled(t *testing.T) {
	const orders, relays, limit = 200, 3, 4 * time.Minute
	w := newFlowWorld(t, startFlowable(t, flowabletest.Options{Folder: t.TempDir()}))
	w.batch, w.poll, w.timeout, w.lease = 60, 200*time.Millisecond, 5*time.Second, 20*time.Second
	steps := []string{orderReleased, orderAccepted, orderCompleted}

	// The engine is killed when it has committed so many deliveries, and before it has answered the last of them.
	kills := []int{orders / 2, 2 * orders}
	atKill := make(chan *signal, len(kills))
	committed := 0
	w.door.on(nil, func(c flowCall, _ <-chan struct{}) bool {
		if c.Status > 299 {
			return true
		}
		w.door.mu.Lock()
		committed++
		now := slices.Contains(kills, committed)
		w.door.mu.Unlock()
		if !now {
			return true
		}
		dead := newSignal()
		atKill <- dead
		<-dead.c
		return false
	})

	receive := w.receiveProcess()
	for n := range relays {
		p := w.relayProcess(fmt.Sprintf("relay-%d", n), "")
		go func() {
			for err := error(nil); err == nil; { // until the test ends the process
				_, _, err = p.post(strings.NewReader("{}"))
			}
		}()
	}
	var publishers errgroup.Group
	for n := range 6 {
		publishers.Go(func() error {
			return publishShuffled(t, receive, rand.New(rand.NewPCG(7, uint64(n))), n, 6, orders, steps)
		})
	}
	begun := time.Now()
	for range kills {
		var dead *signal
		select {
		case dead = <-atKill:
		case <-time.After(limit):
			t.Fatalf("Flowable has not committed enough deliveries after %v: %v", limit, w.statuses())
		}
		w.server.Stop()
		dead.set()
		if err := w.server.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := publishers.Wait(); err != nil {
		t.Fatal(err)
	}
	for late := time.Now().Add(limit); w.count("Messages WHERE Status != 'PROCESSED'") > 0 && time.Now().Before(late); {
		<-time.After(500 * time.Millisecond)
	}
	took := time.Since(begun)
	if diff := cmp.Diff(map[string]int{"PROCESSED": len(steps) * orders}, w.statuses()); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}

	// Each message was sent when its predecessor had been taken, and none was taken twice.
	if n := w.count("Attempts WHERE Verdict = 'NOT_WAITING'"); n != 0 {
		t.Errorf("%d attempts found nobody waiting, want none: a message has overtaken another", n)
	}
	taken := map[string]int{}
	for _, c := range w.door.deliveries() {
		if c.Status != 0 && c.Status < 300 {
			taken[c.Message]++
		}
	}
	for id, n := range taken {
		if n > 1 {
			t.Errorf("message %s was taken %d times", id, n)
		}
	}
	verdicts := map[string]int{}
	for _, v := range w.texts("SELECT Verdict FROM Attempts") {
		verdicts[v]++
	}
	if verdicts["UNKNOWN"] < len(kills) {
		t.Errorf("attempts that failed %v, want an unknown outcome for each kill at least, or this test shows nothing", verdicts)
	}

	// What Flowable says about it.
	eventually(t, "all is invoiced", func() bool { return w.client.Count("/query/process-instances", map[string]any{}) == 0 })
	history := w.history(t)
	if len(history) != orders {
		t.Errorf("instances of %d orders, want %d", len(history), orders)
	}
	for order, instances := range history {
		if len(instances) != 1 {
			t.Errorf("order %s has %d instances", order, len(instances))
		}
		for _, got := range instances {
			if diff := cmp.Diff([]string{"released", "accepted", "completed", "invoice"}, got); diff != "" {
				t.Errorf("order %s took these steps (-want +got):\n%s", order, diff)
			}
		}
		if n := w.billing.invoices(order); n != 1 {
			t.Errorf("%d invoices were written for order %s, want 1", n, order)
		}
	}
	t.Logf("%d messages in %v; attempts that failed: %v; %d redeliveries", len(steps)*orders, took.Round(time.Second), verdicts, w.count("Deliveries"))
}

// publishShuffled pushes the events of every share-th order: of one order in their order, of different ones in a random
// one. Some come again, as a redelivery or as another message about the same event.
func publishShuffled(t *testing.T, receive *relayProcess, rng *rand.Rand, first, share, orders int, steps []string) error {
	next := map[int]int{} // step, by order
	for n := first; n < orders; n += share {
		next[n] = 0
	}
	for len(next) > 0 {
		open := slices.Sorted(maps.Keys(next))
		n := open[rng.IntN(len(open))]
		e := orderEvent{order: fmt.Sprintf("WO-%03d", n), what: steps[next[n]], second: next[n]}
		if next[n]++; next[n] == len(steps) {
			delete(next, n)
		}
		bodies := [][]byte{e.body(t)}
		switch rng.IntN(10) {
		case 0:
			bodies = append(bodies, bodies[0])
		case 1:
			e.messageID = "again-" + e.order + e.what
			bodies = append(bodies, e.body(t))
		}
		for _, body := range bodies {
			if status, text, err := receive.post(bytes.NewReader(body)); err != nil || status != http.StatusNoContent {
				return fmt.Errorf("a push for %s is answered %d %s: %w", e.order, status, text, err)
			}
		}
	}
	return nil
}

// history are the activities that each order has finished, by instance, in the order in which it did.
func (w *flowWorld) history(t *testing.T) map[string]map[string][]string {
	t.Helper()
	var instances struct {
		Data []struct{ ID, BusinessKey string }
	}
	w.client.Do(http.MethodPost, "/query/historic-process-instances", map[string]any{"size": 10_000}, &instances)
	orders, history := map[string]string{}, map[string]map[string][]string{}
	for _, i := range instances.Data {
		orders[i.ID] = i.BusinessKey
		if history[i.BusinessKey] == nil {
			history[i.BusinessKey] = map[string][]string{}
		}
		history[i.BusinessKey][i.ID] = nil
	}
	type activity struct{ ActivityID, ProcessInstanceID, EndTime string }
	var activities struct{ Data []activity }
	w.client.Do(http.MethodPost, "/query/historic-activity-instances", map[string]any{"size": 50_000, "finished": true}, &activities)
	slices.SortStableFunc(activities.Data, func(a, b activity) int { return strings.Compare(a.EndTime, b.EndTime) })
	for _, a := range activities.Data {
		if slices.Contains([]string{"released", "accepted", "completed", "invoice"}, a.ActivityID) {
			of := history[orders[a.ProcessInstanceID]]
			of[a.ProcessInstanceID] = append(of[a.ProcessInstanceID], a.ActivityID)
		}
	}
	return history
}
