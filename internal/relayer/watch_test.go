package relayer_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/apiv1/spannerpb"
)

// reporterFunc is a Reporter that reports once.
type reporterFunc func(ctx context.Context) error

func (f reporterFunc) Report(ctx context.Context) time.Duration {
	_ = f(ctx) // it keeps what it finds
	return time.Hour
}

func (reporterFunc) Export(context.Context) {}

// A run with nothing to do lasts less than a report: cut off each time, the gauges would never be written.
func TestAShortRunLetsItsReportEnd(t *testing.T) {
	w := newWorld(t)
	store, tap := w.newStore()
	scanned, once := make(chan struct{}), sync.Once{}
	tap.After("StreamingRead", func(_ context.Context, _ int, req, _ any, err error) error {
		if req.(*spannerpb.ReadRequest).GetIndex() == "LanesDue" {
			once.Do(func() { close(scanned) })
		}
		return err
	})
	r := w.relayWith(store, time.Now, w.engine(nil))
	var got error
	r.Reporter = reporterFunc(func(ctx context.Context) error {
		<-scanned // the run's last act: it finds nothing
		for range 20 {
			if got = w.client.Single().Read(ctx, "Relays", spanner.AllKeys(), []string{"Consumer"}).Do(func(*spanner.Row) error { return nil }); got != nil {
				return got
			}
		}
		return nil
	})
	w.once(r)
	if got != nil {
		t.Errorf("the report was cut off: %v", got)
	}
}

// A process that is told to end waits for no report.
func TestAReportIsCutOffWhenTheProcessEnds(t *testing.T) {
	w := newWorld(t)
	r := w.relay(w.engine(nil))
	begun, stop := make(chan struct{}), make(chan struct{})
	var got error
	r.Reporter = reporterFunc(func(ctx context.Context) error {
		close(begun)
		select {
		case <-ctx.Done():
			got = ctx.Err()
		case <-time.After(time.Minute):
			got = errors.New("nothing ended it for a minute")
		}
		return got
	})
	ended := make(chan error, 1)
	go func() {
		_, err := r.Run(context.Background(), true, stop, nil)
		ended <- err
	}()
	<-begun
	close(stop)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if !errors.Is(got, context.Canceled) {
		t.Errorf("the report came back with %v, want that it was cut off", got)
	}
}
