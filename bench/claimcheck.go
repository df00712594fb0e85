package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/claimcheck"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/receiver"
)

// measureClaimCheck has so many large pushes received at once, beside the same bytes written bare to the same bucket, and
// looks at the most memory that was in use.
func measureClaimCheck(ctx context.Context, w *world, size sizes, r *results) error {
	const atOnce, payload = 20, 9_000_000
	db, err := w.database(ctx)
	if err != nil {
		return err
	}
	host, stop, err := sink()
	if err != nil {
		return err
	}
	defer stop()
	kept := claimcheck.New("bench", emulators.StorageClientOptions(host)...)
	defer kept.Close()
	rec, err := w.receiver(db.store)
	if err != nil {
		return err
	}
	rec.Objects, rec.Threshold = kept, 1<<20
	handler := receiver.Handler(func(context.Context) (*receiver.Receiver, error) { return rec, nil }, w.log)
	bare := bytes.Repeat([]byte("abcdefgh"), payload/8)
	hash := inbox.SHA256(bare)
	var peaks, times []float64
	for round := range size.rounds + 1 {
		bodies := make([][]byte, atOnce)
		for i := range bodies {
			bodies[i] = w.push(fmt.Sprintf("CLAIM-%d-%d", round, i), payload)
		}
		var peak uint64
		whole := func() error {
			runtime.GC()
			before, end := heap(), watch(&peak)
			err := each(ctx, atOnce, atOnce, func(ctx context.Context, i int) error {
				answer := httptest.NewRecorder()
				handler.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodPost, "/", bytes.NewReader(bodies[i])))
				if answer.Code != http.StatusNoContent {
					return fmt.Errorf("a payload of %d bytes is answered %d: %s", payload, answer.Code, answer.Body.String())
				}
				return nil
			})
			end()
			peak -= min(peak, before)
			return err
		}
		write := func() error {
			return each(ctx, atOnce, atOnce, func(ctx context.Context, i int) error {
				_, err := kept.Put(ctx, inbox.ID(inbox.ReplayIdentity, "bench", "", fmt.Sprint(round, i)), hash, bare, "")
				return err
			})
		}
		took, err := inTurns(round, write, whole)
		if err != nil {
			return err
		}
		if round > 0 { // the first warms up
			peaks = append(peaks, float64(peak)/float64(atOnce*len(bodies[0])))
			times = append(times, took[1].Seconds()/took[0].Seconds())
		}
	}
	r.ratio(fmt.Sprintf("claim check: %d receives of 9 MB at once: most memory in use, over their bodies", atOnce), median(peaks), 4)
	r.ratio(fmt.Sprintf("claim check: %d receives of 9 MB at once: time, over writing the same bytes bare", atOnce), median(times), 0)
	return nil
}

// sink is a Cloud Storage that takes uploads and keeps nothing: what an emulator keeps would be counted as ours.
func sink() (host string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	var generation atomic.Int64
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		rw.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(rw, `{"bucket":"bench","name":%q,"generation":"%d"}`, r.URL.Query().Get("name"), generation.Add(1))
	})}
	go func() { _ = server.Serve(l) }()
	return l.Addr().String(), func() { _ = server.Close() }, nil
}

func heap() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// watch notes the most memory that is in use until end is called.
func watch(peak *uint64) (end func()) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			*peak = max(*peak, heap())
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	return func() { close(stop); <-stopped }
}
