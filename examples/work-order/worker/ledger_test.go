package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/examples/work-order/worker"
)

// killAt names a step at which this test program, started again by a test, kills itself.
const killAt, killIn = "WORKER_TEST_KILL_AT", "WORKER_TEST_KILL_IN"

func TestMain(m *testing.M) {
	if step := os.Getenv(killAt); step != "" {
		killedAt(step, os.Getenv(killIn))
	}
	code := m.Run()
	for _, end := range atEnd {
		end()
	}
	os.Exit(code)
}

// atEnd is done when all tests are.
var atEnd []func()

func killedAt(step, folder string) {
	l, err := worker.NewFileLedger(folder, newClock().Now)
	if err != nil {
		panic(err)
	}
	die := func() {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	switch step {
	case "before":
		l.Steps(die, func() {})
	case "after":
		l.Steps(func() {}, die)
	}
	_, err = l.Issue(context.Background(), worker.Order{WorkOrderID: "WO-1", Items: 3}, "killed")
	panic(fmt.Sprint("not killed: ", err))
}

func TestAKilledProcessLeavesNoInvoiceOrAWholeOne(t *testing.T) {
	for step, want := range map[string]int{"before": 0, "after": 1} {
		t.Run(step, func(t *testing.T) {
			folder := t.TempDir()
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), killAt+"="+step, killIn+"="+folder)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("it ended with %v: %s", err, out)
			}
			if got := invoices(t, folder); len(got) != want {
				t.Fatalf("it left the invoices %v, want %d", got, want)
			}
			l := newLedger(t, folder)
			inv, err := l.Issue(t.Context(), worker.Order{WorkOrderID: "WO-1", Items: 3}, "second")
			if err != nil || inv.Number != "INV-WO-1" || (inv.Job == "killed") != (want == 1) {
				t.Errorf("then got %+v, %v", inv, err)
			}
			if got := invoices(t, folder); !slices.Equal(got, []string{"INV-WO-1"}) {
				t.Errorf("there are the invoices %v", got)
			}
		})
	}
}

func TestWhoeverIssuesAnInvoiceAtTheSameTimeGetsTheSameOne(t *testing.T) {
	folder := t.TempDir()
	const orders, each = 5, 8
	got := make([][]worker.Invoice, orders)
	var wait sync.WaitGroup
	var mu sync.Mutex
	for o := range orders {
		for n := range each {
			l := newLedger(t, folder)
			wait.Go(func() {
				inv, err := l.Issue(t.Context(), worker.Order{WorkOrderID: fmt.Sprint("WO-", o), Items: 3}, fmt.Sprint("job-", n))
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				got[o] = append(got[o], inv)
			})
		}
	}
	wait.Wait()
	for o := range orders {
		for _, inv := range got[o] {
			if inv != got[o][0] {
				t.Errorf("got %+v and %+v", inv, got[o][0])
			}
		}
	}
	if got := invoices(t, folder); len(got) != orders {
		t.Errorf("there are the invoices %v", got)
	}
	if drafts, _ := filepath.Glob(filepath.Join(folder, ".draft-*")); len(drafts) > 0 {
		t.Errorf("left behind: %v", drafts)
	}
}

func TestAnOrderNumberIsNoPath(t *testing.T) {
	outer := t.TempDir()
	folder := filepath.Join(outer, "ledger")
	l := newLedger(t, folder)
	numbers := []string{"../WO-1", "..", ".draft-1", "WO/2", "%2e", "wo 3", "ÄÖ-4"}
	for _, id := range numbers {
		inv, err := l.Issue(t.Context(), worker.Order{WorkOrderID: id, Items: 1}, "j")
		if err != nil || inv.WorkOrderID != id {
			t.Errorf("%q: got %+v, %v", id, inv, err)
		}
	}
	if got := invoices(t, folder); len(got) != len(numbers) {
		t.Errorf("there are the invoices %q, want %d", got, len(numbers))
	}
	if got := invoices(t, outer); !slices.Equal(got, []string{"ledger"}) {
		t.Errorf("beside the ledger there are %q", got)
	}
}

func TestALedgerSaysWhatIsWrong(t *testing.T) {
	order := worker.Order{WorkOrderID: "WO-1", Items: 3}
	t.Run("the context has ended", func(t *testing.T) {
		folder := t.TempDir()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := newLedger(t, folder).Issue(ctx, order, "j"); !errors.Is(err, context.Canceled) || len(invoices(t, folder)) > 0 {
			t.Errorf("got %v and %v", err, invoices(t, folder))
		}
	})
	t.Run("the folder is gone", func(t *testing.T) {
		folder := filepath.Join(t.TempDir(), "ledger")
		l := newLedger(t, folder)
		if err := os.Remove(folder); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Issue(t.Context(), order, "j"); !errors.Is(err, worker.ErrUnavailable) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
	})
	t.Run("an invoice that was changed by hand", func(t *testing.T) {
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, "INV-WO-1.json"), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := newLedger(t, folder).Issue(t.Context(), order, "j")
		var syntax *json.SyntaxError
		if !errors.As(err, &syntax) || errors.Is(err, worker.ErrUnavailable) || errors.Is(err, worker.ErrRefused) {
			t.Errorf("got %v, want the fault, as one of this job", err)
		}
	})
	t.Run("a date", func(t *testing.T) {
		inv, err := newLedger(t, t.TempDir()).Issue(t.Context(), order, "j")
		if want := newClock().Now(); err != nil || !inv.IssuedAt.Equal(want) || inv.IssuedAt.Location() != time.UTC {
			t.Errorf("got %v, %v, want %v", inv.IssuedAt, err, want)
		}
	})
}
