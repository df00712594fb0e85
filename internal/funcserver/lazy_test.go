package funcserver

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

func TestLazyTriesAgainAfterAFailure(t *testing.T) {
	down := errors.New("down")
	answers := []error{down, down, nil}
	calls := 0
	l := NewLazy(func(context.Context) (int, error) { calls++; return calls, answers[calls-1] })
	if _, ok := l.Made(); ok {
		t.Error("made before its first use")
	}
	for _, want := range []error{down, down, nil, nil} {
		if _, err := l.Get(t.Context()); !errors.Is(err, want) {
			t.Errorf("error %v, want %v", err, want)
		}
	}
	got, ok := l.Made()
	if diff := cmp.Diff(3, got); diff != "" || !ok {
		t.Errorf("value (-want +got):\n%s", diff)
	}
}

func TestLazyMakesOneForAllWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		calls := 0
		l := NewLazy(func(ctx context.Context) (string, error) {
			calls++
			<-release
			return "client", ctx.Err()
		})
		first, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := l.Get(first); !errors.Is(err, context.Canceled) {
				t.Errorf("the one who left got %v", err)
			}
		})
		synctest.Wait()
		for range 10 {
			wg.Go(func() {
				if got, err := l.Get(t.Context()); got != "client" || err != nil {
					t.Errorf("got %q, %v", got, err)
				}
			})
		}
		synctest.Wait()
		cancel() // the first to come goes first; the creation is not its own
		synctest.Wait()
		close(release)
		wg.Wait()
		if calls != 1 {
			t.Errorf("%d creations, want 1", calls)
		}
	})
}

func TestLazySurvivesAPanic(t *testing.T) {
	calls := 0
	l := NewLazy(func(context.Context) (int, error) {
		if calls++; calls == 1 {
			panic("secret")
		}
		return 7, nil
	})
	_, err := l.Get(t.Context())
	if diff := cmp.Diff("creation panicked with a value of type string", err.Error()); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
	if got, err := l.Get(t.Context()); got != 7 || err != nil {
		t.Errorf("second use: %d, %v", got, err)
	}
}
