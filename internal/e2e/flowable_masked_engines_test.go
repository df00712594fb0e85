//go:build engines

package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/flowable/flowabletest"
)

// pass has time pass for everything that the inbox remembers of it: what was to come in this time is due now, and what
// has been is so much longer ago.
func (w *flowWorld) pass(d time.Duration) {
	w.t.Helper()
	for table, columns := range map[string][]string{
		"Messages": {"NextAttemptAt", "FirstFailedAt", "LastFailedAt", "LastNotWaitingAt", "ProcessingStartedAt"},
		"Lanes":    {"DueAt"},
		"Engines":  {"OpenUntil", "ProbeUntil"},
	} {
		var sets []string
		for _, c := range columns {
			sets = append(sets, fmt.Sprintf("%s = TIMESTAMP_SUB(%s, INTERVAL %d SECOND)", c, c, int(d.Seconds())))
		}
		w.sql("UPDATE "+table+" SET "+strings.Join(sets, ", ")+" WHERE TRUE", nil)
	}
}

// TestFlowableAnHourOfMaskedErrorsParksNothing has Flowable answer each delivery with a status 500 whose text it hides, for
// an hour that passes in the database. One order moves on between look-up and delivery, so that its answer is such an
// error too. It is parked, and no other.
func TestFlowableAnHourOfMaskedErrorsParksNothing(t *testing.T) {
	t.Parallel()
	const orders, hour, step = 3, time.Hour, 90 * time.Second
	w := newFlowWorld(t, startFlowable(t, flowabletest.Options{MaskErrors: true}))
	w.retryMin, w.retryMax = 10*time.Second, time.Minute
	receive, relay := w.receiveProcess(), w.relayProcess("relay", "")
	failing := func(n int) string { return fmt.Sprintf("WO-%d", n) }
	for n := range orders {
		w.startOrder(failing(n), flowabletest.Text("fault", "technical"))
		w.publish(receive, orderEvent{order: failing(n), what: orderCompleted})
	}
	for passed := time.Duration(0); passed < hour; passed += step {
		relay.run()
		if diff := cmp.Diff(map[string]int{"RETRYING": orders}, w.statuses()); diff != "" {
			t.Fatalf("after %v the statuses (-want +got):\n%s", passed, diff)
		}
		w.pass(step)
	}
	masked := w.door.all(func(c flowCall) bool { return c.Effect && c.Status == http.StatusInternalServerError })
	if n := len(w.door.deliveries()); len(masked) != n || n < int(hour/step) {
		t.Errorf("%d of %d deliveries were answered by a masked error, want all of %d at least", len(masked), n, int(hour/step))
	}
	if n := w.count("Messages WHERE FirstFailedAt < TIMESTAMP_SUB(CURRENT_TIMESTAMP(), INTERVAL 59 MINUTE) AND LastErrorMessage LIKE '%Error with ID%'"); n != orders {
		t.Errorf("%d messages have failed for an hour by errors whose text is hidden, want %d", n, orders)
	}

	// The execution of this one is still there, and waits for something else when the delivery comes.
	gone := w.client.StartProcess("work-order", "WO-gone", "", flowabletest.Text("workOrderId", "WO-gone"))
	execution, answers := w.client.Waiting(orderAccepted, gone)[0], make(chan int, 1)
	w.door.on(func(c flowCall) {
		if strings.HasSuffix(c.Path, execution) {
			w.advance(gone, orderAccepted)
		}
	}, func(c flowCall, _ <-chan struct{}) bool {
		if strings.HasSuffix(c.Path, execution) {
			answers <- c.Status
		}
		return true
	})
	w.publish(receive, orderEvent{order: "WO-gone", what: orderAccepted})
	eventually(t, "the message for the one that is gone is sent", func() bool {
		w.pass(step) // the breaker lets one message pass at a time
		relay.run()
		return len(answers) > 0
	})
	if status := <-answers; status != http.StatusInternalServerError {
		t.Errorf("the delivery is answered %d, want a masked 500", status)
	}
	if row := w.row("WO-gone", orderAccepted); row.Place != "PARKED/VANISHED" || row.Code != "HTTP 500" {
		t.Errorf("the row of the order that is gone is %+v, want PARKED/VANISHED by HTTP 500", row)
	}

	// What failed heals with its cause, and is done once.
	w.door.on(nil, nil)
	for n := range orders {
		i := w.instances(failing(n))[0]
		if status, raw := w.client.Do(http.MethodPut, "/runtime/process-instances/"+i+"/variables", []any{flowabletest.Text("fault", "none")}, nil); status > 299 {
			t.Fatalf("status %d: %s", status, raw)
		}
	}
	eventually(t, "all that is not gone is processed", func() bool {
		w.pass(step)
		relay.run()
		return w.count("Messages WHERE Status = 'PROCESSED'") == orders
	})
	for n := range orders {
		w.wantInvoices(failing(n), 1)
	}
}
