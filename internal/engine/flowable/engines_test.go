//go:build engines

package flowable_test

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/flowable/flowabletest"
)

//go:embed testdata/order.bpmn20.xml
var orderBPMN []byte

// servers are real Flowables, one for each kind of options, shared by the tests of this package.
var servers struct {
	mu  sync.Mutex
	all map[flowabletest.Options]*flowabletest.Server
}

func TestMain(m *testing.M) {
	if err := flowabletest.Missing(); err != nil && os.Getenv("SKIP_ENGINES") != "1" {
		fmt.Fprintln(os.Stderr, "Flowable cannot be run:", err, "(SKIP_ENGINES=1 skips these tests)")
		os.Exit(1)
	}
	code := m.Run()
	for _, s := range servers.all {
		s.Stop()
	}
	os.Exit(code)
}

// server is a running Flowable with the order process in it.
func server(t testing.TB, o flowabletest.Options) *flowabletest.Server {
	t.Helper()
	if os.Getenv("SKIP_ENGINES") == "1" {
		t.Skip("SKIP_ENGINES=1")
	}
	servers.mu.Lock()
	defer servers.mu.Unlock()
	if s := servers.all[o]; s != nil {
		return s
	}
	s, err := flowabletest.Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if servers.all == nil {
		servers.all = map[flowabletest.Options]*flowabletest.Server{}
	}
	servers.all[o] = s
	s.Client(t).Deploy("order", "", orderBPMN)
	return s
}
