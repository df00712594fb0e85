package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"

	"github.com/pubsub-inbox/pubsub-inbox/internal/receiver"
)

// measureMemory compares what a receive of a large payload allocates, from the request to the answer and in the client
// library too, with the size of the request's body.
func measureMemory(ctx context.Context, w *world, _ sizes, r *results) error {
	db, err := w.database(ctx)
	if err != nil {
		return err
	}
	rec, err := w.receiver(db.store)
	if err != nil {
		return err
	}
	handler := receiver.Handler(func(context.Context) (*receiver.Receiver, error) { return rec, nil }, w.log)
	var ratios []float64
	for i := range 4 {
		body := w.push(fmt.Sprintf("LARGE-%d", i), 5<<20)
		req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", bytes.NewReader(body))
		answer := httptest.NewRecorder()
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		handler.ServeHTTP(answer, req)
		runtime.ReadMemStats(&after)
		if answer.Code != http.StatusNoContent {
			return fmt.Errorf("a payload of 5 MiB is answered %d: %s", answer.Code, answer.Body.String())
		}
		if i > 0 { // the first warms up
			ratios = append(ratios, float64(after.TotalAlloc-before.TotalAlloc)/float64(len(body)))
		}
	}
	r.ratio("memory: bytes allocated by a receive of 5 MiB, over its body", median(ratios), 4)
	return nil
}
