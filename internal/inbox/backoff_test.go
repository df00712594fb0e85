package inbox_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// C041: an overflow in the backoff's doubling made delays zero or negative, and a retry loop of them.
func TestC041BackoffIsMonotoneAndBoundedForAnyCount(t *testing.T) {
	raw, err := os.ReadFile("testdata/C041.json")
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		BaseS    int64   `json:"base_s"`
		CapS     int64   `json:"cap_s"`
		Attempts []int64 `json:"attempts"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		t.Fatal(err)
	}
	if len(c.Attempts) == 0 {
		t.Fatal("no attempts to try")
	}
	base, limit := time.Duration(c.BaseS)*time.Second, time.Duration(c.CapS)*time.Second
	for _, n := range append(c.Attempts, math.MaxInt64, math.MinInt64) {
		if got := inbox.Backoff(base, limit, n); got < base || got > limit {
			t.Errorf("after %d failures the delay is %v, want %v to %v", n, got, base, limit)
		}
	}
	var before time.Duration
	for n := int64(-2); n < 200; n++ {
		got := inbox.Backoff(base, limit, n)
		if got < before {
			t.Errorf("after %d failures the delay is %v, shorter than the one before, %v", n, got, before)
		}
		before = got
	}
	if before != limit {
		t.Errorf("the delay ends at %v, want %v", before, limit)
	}
}

func TestBackoffDoubles(t *testing.T) {
	const s = time.Second
	tests := []struct {
		base, limit time.Duration
		failures    int64
		want        time.Duration
	}{
		{10 * s, 600 * s, 0, 10 * s},
		{10 * s, 600 * s, 1, 10 * s},
		{10 * s, 600 * s, 2, 20 * s},
		{10 * s, 600 * s, 6, 320 * s},
		{10 * s, 600 * s, 7, 600 * s},
		{10 * s, 640 * s, 7, 640 * s},
		{10 * s, 641 * s, 8, 641 * s},
		{10 * s, 10 * s, 5, 10 * s},
		{10 * s, s, 5, 10 * s},
		{0, 0, 5, time.Millisecond},
		{-s, 0, 1, time.Millisecond},
		{0, s, 2, 2 * time.Millisecond},
		{s, math.MaxInt64, 1000, math.MaxInt64},
		{math.MaxInt64, math.MaxInt64, 1000, math.MaxInt64},
		{math.MaxInt64/2 + 1, math.MaxInt64, 2, math.MaxInt64},
	}
	for _, tt := range tests {
		if got := inbox.Backoff(tt.base, tt.limit, tt.failures); got != tt.want {
			t.Errorf("Backoff(%v, %v, %d) is %v, want %v", tt.base, tt.limit, tt.failures, got, tt.want)
		}
	}
}

func TestJitterStaysBetweenHalfAndWhole(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, delay := range []time.Duration{2, 3, 10, time.Millisecond, 10 * time.Second, time.Hour, math.MaxInt64} {
		for range 200 {
			if got := inbox.Jitter(r, delay); got < delay/2 || got > delay {
				t.Fatalf("Jitter(%d) is %d, want %d to %d", delay, got, delay/2, delay)
			}
		}
	}
	for delay, want := range map[time.Duration]time.Duration{0: 0, 1: 1, -1: 0, -time.Hour: 0} {
		if got := inbox.Jitter(r, delay); got != want {
			t.Errorf("Jitter(%d) is %d, want %d", delay, got, want)
		}
	}
}

func TestJitterSpreads(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	seen := map[time.Duration]bool{}
	for range 1000 {
		seen[inbox.Jitter(r, 10)] = true
	}
	for want := time.Duration(5); want <= 10; want++ {
		if !seen[want] {
			t.Errorf("%d of 5 to 10 never came", want)
		}
	}
}
