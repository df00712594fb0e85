//go:build engines

package e2e_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/rpctap"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/flowable/flowabletest"
)

// TestFlowableAKilledRelayBillsNobodyTwice kills a relay when Flowable has committed a delivery and the inbox does not know.
// The process waits for the same message again, so that a second delivery would be taken.
func TestFlowableAKilledRelayBillsNobodyTwice(t *testing.T) {
	t.Parallel()
	server := startFlowable(t, flowabletest.Options{})
	places := map[string]func(w *flowWorld, tap *rpctap.Tap) <-chan struct{}{
		"while the answer is under way": func(w *flowWorld, _ *rpctap.Tap) <-chan struct{} {
			committed := newSignal()
			w.door.on(nil, func(c flowCall, gone <-chan struct{}) bool {
				if c.Process != "victim" {
					return true
				}
				committed.set()
				<-gone
				return false
			})
			return committed.c
		},
		"while the result is being settled": func(_ *flowWorld, tap *rpctap.Tap) <-chan struct{} {
			arrived, _ := hold(tap, "Commit", func(req any) bool { return commitTag(req) == "inbox-settle" })
			return arrived
		},
	}
	messages := map[string]struct {
		event  orderEvent
		before bool // the order exists
	}{
		"a message that is delivered": {orderEvent{what: orderCompleted, partial: true}, true},
		"a message that starts":       {orderEvent{what: orderReleased}, false},
	}
	for place, arm := range places {
		for name, m := range messages {
			t.Run(name+", "+place, func(t *testing.T) {
				t.Parallel()
				w := newFlowWorld(t, server)
				w.lease = 12 * time.Second
				order := fmt.Sprintf("WO-%s", w.db[len(w.db)-8:])
				m.event.order = order
				if m.before {
					w.startOrder(order)
				}
				receive := w.receiveProcess()
				w.publish(receive, m.event)
				tap := &rpctap.Tap{}
				stopped := arm(w, tap)
				victim, survivor := w.relayProcess("victim", startProxy(t, tap)), w.relayProcess("survivor", "")

				victim.start()
				within(t, "the victim is at its place", stopped)
				victim.kill()
				if row := w.row(order, m.event.what); row.Place != "PROCESSING" {
					t.Fatalf("the row is %s when the relay is killed, want PROCESSING", row.Place)
				}
				instances := w.instances(order)
				if len(instances) != 1 {
					t.Fatalf("%d instances when the relay is killed, want 1", len(instances))
				}
				i := instances[0]
				completions := func() int { return w.client.Finished(i, "completed") }
				if m.before && completions() != 1 {
					t.Fatalf("%d completions when the relay is killed, want 1: this test shows nothing", completions())
				}
				eventually(t, "the survivor takes over", func() bool {
					survivor.run()
					return w.count("Messages WHERE Status IN ('PROCESSED', 'PARKED')") == 1
				})

				row := w.row(order, m.event.what)
				if row.Place != "PROCESSED" || row.Reference != i || row.Attempts != 2 {
					t.Errorf("the row is %+v, want PROCESSED at attempt 2 with the instance %s", row, i)
				}
				if lost, all := w.count("Attempts WHERE Verdict = 'LOST' AND Number = 1"), w.count("Attempts"); lost != 1 || all != 1 {
					t.Errorf("%d lost attempts are recorded among %d, want 1 and no other", lost, all)
				}
				deliveries := w.door.deliveries()
				if len(deliveries) != 1 || deliveries[0].Process != "victim" {
					t.Errorf("deliveries %+v, want one, of the victim", deliveries)
				}
				if asked := w.door.all(func(c flowCall) bool { return c.Process == "survivor" && !c.Effect }); len(asked) == 0 {
					t.Error("the survivor asked nothing")
				}
				if n := len(w.instances(order)); n != 1 {
					t.Errorf("%d instances, want 1", n)
				}

				// The order goes on, and is billed once for each completion that was published.
				published := 1
				if m.before {
					w.wantInvoices(order, 1)
					published++
				} else {
					w.publish(receive, orderEvent{order: order, what: orderAccepted, second: 1})
				}
				w.publish(receive, orderEvent{order: order, what: orderCompleted, id: order + "-last", second: 2})
				survivor.run()
				w.wantInvoices(order, published)
				if n := completions(); n != published {
					t.Errorf("%d completions, want %d", n, published)
				}
				if n := w.client.Count("/query/process-instances", map[string]any{"processBusinessKey": order}); n != 0 {
					t.Errorf("%d instances still run, want none", n)
				}
				if n := w.count("Messages WHERE Status != 'PROCESSED'"); n != 0 {
					t.Errorf("%d messages are not processed: %v", n, w.statuses())
				}
			})
		}
	}
}
