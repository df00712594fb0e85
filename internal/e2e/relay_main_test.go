package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/emulatortest"
	"github.com/pubsub-inbox/pubsub-inbox/internal/funcserver/buildpack"
)

func TestMain(m *testing.M) {
	code := emulatortest.Run(m)
	if programDir != "" {
		_ = os.RemoveAll(programDir)
	}
	os.Exit(code)
}

// patience is how long a test waits for what should come soon. A test that reaches it has failed.
const patience = 3 * time.Minute

var programDir string

// program is what the buildpack would make of this repository: the main that production runs, for both functions.
var program = sync.OnceValues(func() (string, error) {
	var err error
	if programDir, err = os.MkdirTemp("", "pubsub-inbox-e2e"); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	out := filepath.Join(programDir, "function")
	if err := (buildpack.Tree{Root: "../.."}).Compile(ctx, out); err != nil {
		return "", fmt.Errorf("the buildpack would not build this repository: %w", err)
	}
	return out, nil
})

// eventually waits until done answers true. It is for states that announce themselves by no event.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	late := time.After(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("waited %v in vain: %s", patience, what)
		}
	}
}

// within receives from c, or fails the test.
func within[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("waited %v in vain: %s", patience, what)
		panic("unreachable")
	}
}
