package localstack

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/relayer"
)

// Relay asks the relay for one run, over HTTP, until nothing is due, and returns what it did.
func (s *Stack) Relay(ctx context.Context) (relayer.Summary, error) {
	var summary relayer.Summary
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.RelayURL, strings.NewReader(`{"once": true}`))
	if err != nil {
		return summary, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return summary, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return summary, fmt.Errorf("read the relay's answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return summary, fmt.Errorf("the relay answered %s; its log says why", resp.Status)
	}
	if err := json.Unmarshal(answer, &summary); err != nil {
		return summary, fmt.Errorf("read the relay's answer: %w", err)
	}
	return summary, nil
}

// relayEvery stands in for Cloud Scheduler.
func (s *Stack) relayEvery(pause time.Duration, log io.Writer) {
	if pause <= 0 {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.stopRuns = cancel
	s.runs.Go(func() {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
			if _, err := s.Relay(ctx); err != nil && ctx.Err() == nil {
				fmt.Fprintf(log, "the relay is asked again in %s: %v\n", pause, err)
			}
			timer.Reset(pause)
		}
	})
}
