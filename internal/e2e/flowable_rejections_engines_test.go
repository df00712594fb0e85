//go:build engines

package e2e_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/flowable/flowabletest"
)

// rejectionRow is what a person sees of a message that Flowable did not take.
func rejectionRow(r flowRow) string { return strings.TrimSpace(r.Place + " " + r.Code) }

// move moves the token of an instance from one activity to another, as a person would.
func (w *flowWorld) move(instance, from, to string) {
	w.t.Helper()
	status, raw := w.client.Do(http.MethodPost, "/runtime/process-instances/"+instance+"/change-state",
		map[string]any{"cancelActivityIds": []string{from}, "startActivityIds": []string{to}}, nil)
	if status != http.StatusOK {
		w.t.Fatalf("change-state: status %d: %.300s", status, raw)
	}
}

// TestFlowableTheFourRejectionsAsRows makes each of the four ways in which Flowable has no use for a message, and shows
// the row that is left of it, and its repair.
func TestFlowableTheFourRejectionsAsRows(t *testing.T) {
	t.Parallel()
	server := startFlowable(t, flowabletest.Options{})
	tests := []struct {
		name   string
		what   string // the message; empty: the completion
		before func(w *flowWorld, order string)
		// between happens when the message has been found an instance, and Flowable has not got it.
		between func(w *flowWorld, instance string)
		want    string
		names   int // of instances and executions that the row names
		repair  func(w *flowWorld, order string)
	}{
		{
			name: "nobody is there yet", want: "PARKED/NO_WAITING_INSTANCE NONE",
			repair: func(w *flowWorld, order string) { w.startOrder(order) },
		},
		{
			name: "already through", want: "PARKED/ALREADY_THROUGH THROUGH", names: 1,
			before: func(w *flowWorld, order string) { w.advance(w.startOrder(order), orderCompleted) },
			repair: func(w *flowWorld, order string) { w.startOrder(order) },
		},
		{
			name: "two wait", want: "PARKED/AMBIGUOUS AMBIGUOUS", names: 2,
			before: func(w *flowWorld, order string) { w.startOrder(order); w.startOrder(order) },
			repair: func(w *flowWorld, order string) { w.client.Delete(w.instances(order)[0]) },
		},
		{
			name: "gone between look-up and delivery", want: "PARKED/VANISHED HTTP 404", names: 1,
			before:  func(w *flowWorld, order string) { w.startOrder(order) },
			between: func(w *flowWorld, i string) { w.client.Delete(i) },
			repair:  func(w *flowWorld, order string) { w.startOrder(order) },
		},
		{
			// The same execution now waits for something else.
			name: "moved on between look-up and delivery", what: orderAccepted, want: "PARKED/VANISHED HTTP 500", names: 1,
			before: func(w *flowWorld, order string) {
				w.client.StartProcess("work-order", order, "", flowabletest.Text("workOrderId", order))
			},
			between: func(w *flowWorld, i string) { w.advance(i, orderAccepted) },
			repair:  func(w *flowWorld, order string) { w.move(w.instances(order)[0], "completed", "accepted") },
		},
		{
			name: "moved to a new token between look-up and delivery", want: "PROCESSED",
			before:  func(w *flowWorld, order string) { w.startOrder(order) },
			between: func(w *flowWorld, i string) { w.move(i, "completed", "completed") },
		},
	}
	for n, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.what == "" {
				tt.what = orderCompleted
			}
			w := newFlowWorld(t, server)
			w.patience = time.Millisecond
			order := fmt.Sprintf("WO-%d-%s", n, w.db[len(w.db)-8:])
			if tt.before != nil {
				tt.before(w, order)
			}
			if tt.between != nil {
				i := w.instances(order)[0]
				var once sync.Once
				w.door.on(func(flowCall) { once.Do(func() { tt.between(w, i) }) }, nil)
			}
			receive, relay := w.receiveProcess(), w.relayProcess("relay", "")
			w.publish(receive, orderEvent{order: order, what: tt.what})
			eventually(t, "the message is finished or parked", func() bool {
				relay.run()
				return w.count("Messages WHERE Status IN ('PROCESSED', 'PARKED')") == 1
			})
			row := w.row(order, tt.what)
			if diff := cmp.Diff(tt.want, rejectionRow(row)); diff != "" {
				t.Fatalf("the row (-want +got):\n%s%+v", diff, row)
			}
			t.Logf("%+v", row)
			if tt.repair == nil {
				w.wantInvoices(order, 1)
				return
			}
			names := strings.Fields(row.Reference)
			if len(names) != tt.names || row.Error == "" {
				t.Errorf("the row says %q and names %q, want %d names", row.Error, names, tt.names)
			}
			known := w.instances(order)
			for _, i := range known {
				known = append(known, w.client.Waiting(tt.what, i)...)
			}
			for _, name := range names {
				if !slices.Contains(known, name) {
					t.Errorf("the row names %s, which is none of %q", name, known)
				}
			}

			tt.repair(w, order)
			w.sql("UPDATE Messages SET Status = 'RECEIVED', Attempts = 0 WHERE Status = 'PARKED'", nil)
			relay.run()
			if row := w.row(order, tt.what); row.Place != "PROCESSED" {
				t.Errorf("after the repair the row is %+v, want PROCESSED", row)
			}
		})
	}
}
