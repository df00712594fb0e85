package e2e_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/spanner/apiv1/spannerpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/rpctap"
)

// failures are what Spanner may do to a run: each fails one of its calls.
var failures = []struct {
	method string
	tag    string // of a commit
	code   codes.Code
}{
	{"StreamingRead", "", codes.Internal},
	{"Commit", "inbox-claim", codes.Internal},
	{"Commit", "inbox-settle", codes.Internal},
	{"StreamingRead", "", codes.PermissionDenied},
	{"Commit", "inbox-claim", codes.DeadlineExceeded},
}

func TestRunsThatFailLeaveNothingRunning(t *testing.T) {
	w := newRelayWorld(t)
	store, tap := w.store(time.Now)
	r := w.relay(store, time.Now, w.engine(nil))
	failed := 0
	run := func(n int, fails bool) error {
		tap.Reset()
		if fails {
			w.load([]message{{key: fmt.Sprintf("WO-%d", n%7), n: n}}, 1)
			f := failures[n/3%len(failures)]
			place := int64(1 + n/3%5) // another call each time
			var seen atomic.Int64
			if f.method == "Commit" {
				place = 1
			}
			tap.Before(f.method, func(_ context.Context, _ int, req any) error {
				if f.tag != "" && commitTag(req) != f.tag {
					return nil
				}
				if seen.Add(1) != place {
					return nil
				}
				return rpctap.Error(f.code)
			})
		}
		_, err := r.Run(t.Context(), true, nil, nil)
		if err != nil {
			failed++
		}
		return err
	}
	for n := range 30 { // connections and sessions are made
		_ = run(n, n%3 == 0)
	}
	runtime.GC()
	before := runtime.NumGoroutine()
	failed = 0
	for n := 30; n < 180; n++ {
		_ = run(n, n%3 == 0)
	}
	if failed < 30 {
		t.Errorf("%d of the 50 runs that a call failed in ended with an error: this test shows little", failed)
	}
	for n := 180; n < 210; n++ {
		if err := run(n, false); err != nil {
			t.Errorf("a run after the failures: %v", err)
		}
	}
	// The client's own goroutines come and go.
	eventually(t, fmt.Sprintf("no more goroutines than the %d before", before), func() bool { return runtime.NumGoroutine() <= before+5 })
	t.Logf("%d goroutines before 150 runs, %d after; %d runs failed", before, runtime.NumGoroutine(), failed)
	if n := w.count("Messages WHERE Status = 'PARKED'"); n != 0 {
		t.Errorf("%d messages are parked, want none: it was Spanner that failed", n)
	}
	w.lapse()
	if _, err := r.Run(t.Context(), true, nil, nil); err != nil {
		t.Error(err)
	}
	if n := w.count("Messages WHERE Status != 'PROCESSED'"); n != 0 {
		t.Errorf("%d messages are left, want none", n)
	}
}

func TestALostSessionCostsAtMostOneRun(t *testing.T) {
	w := newRelayWorld(t)
	messages, want := backlog("WO", 3, 1)
	store, tap := w.store(time.Now)
	r := w.relay(store, time.Now, w.engine(nil))
	w.once(r)
	w.load(messages, 50)
	tap.FailNth("StreamingRead", 1, status.Error(codes.NotFound, "Session not found: projects/p/instances/i/databases/d/sessions/s"))
	_, first := r.Run(t.Context(), true, nil, nil)
	t.Logf("the run that meets it: %v", first)
	w.once(r)
	w.log.checkOnceInOrder(t, want)
}

func TestScansSlowerThanThePollKeepNothingWaiting(t *testing.T) {
	w := newRelayWorld(t)
	messages, want := backlog("WO", 5, 2)
	w.load(messages, 50)
	store, tap := w.store(time.Now)
	tap.Before("StreamingRead", func(ctx context.Context, _ int, req any) error {
		if req.(*spannerpb.ReadRequest).GetRequestOptions().GetRequestTag() == "inbox-scan" {
			<-time.After(70 * time.Millisecond) // the relays here poll each 20
		}
		return nil
	})
	r := w.relay(store, time.Now, w.engine(nil))
	if s := within(t, "a run ends", w.inBackground(r)); s.Processed != 10 {
		t.Errorf("processed %d, want 10", s.Processed)
	}
	w.log.checkOnceInOrder(t, want)
	// A run that is to poll for long ends when its caller does.
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := r.Run(ctx, false, nil, ctx.Done())
		done <- err
	}()
	late := message{key: "LATE", n: 1}
	w.load([]message{late}, 1)
	eventually(t, "what comes meanwhile is settled", func() bool { return w.count("Messages WHERE Status != 'PROCESSED'") == 0 })
	cancel()
	_ = within(t, "a run whose caller is gone ends", done) // whatever it says
}
