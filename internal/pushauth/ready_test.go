package pushauth

import (
	"errors"
	"net/http"
	"testing"
	"time"
)

func TestReadinessNeedsKeysAndAsksForThemOnce(t *testing.T) {
	s := &keyServer{}
	s.set(answering(200, keySetOf("k1"), "max-age=3600"))
	now := &clock{at: time.Now()}
	a := newVerifier(t, s, WithClock(now.now))
	for range 5 {
		if err := a.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		now.add(5 * time.Minute)
	}
	if got := s.count(); got != 1 {
		t.Errorf("keys were fetched %d times in 25 minutes of their hour, want once", got)
	}
	s.set(func() (*http.Response, error) { return nil, errors.New("connection refused") })
	now.add(time.Hour)
	if err := a.Ready(t.Context()); !errors.Is(err, ErrKeysUnavailable) {
		t.Errorf("without keys: %v, want ErrKeysUnavailable", err)
	}
	if err := newEdge(t).Ready(t.Context()); err != nil {
		t.Errorf("who checks no signature depends on nobody: %v", err)
	}
}
