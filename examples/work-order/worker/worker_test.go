package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/examples/work-order/worker"
)

// clock is a clock that a test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func newClock() *clock { return &clock{now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)} }

// ledger counts what reaches a ledger, and can do something before or instead.
type ledger struct {
	worker.Ledger
	mu     sync.Mutex
	issues int
	before func(ctx context.Context, o worker.Order) error
}

func (l *ledger) Issue(ctx context.Context, o worker.Order, job string) (worker.Invoice, error) {
	l.mu.Lock()
	l.issues++
	l.mu.Unlock()
	if l.before != nil {
		if err := l.before(ctx, o); err != nil {
			return worker.Invoice{}, err
		}
	}
	return l.Ledger.Issue(ctx, o, job)
}

func newLedger(t *testing.T, folder string) *ledger {
	t.Helper()
	files, err := worker.NewFileLedger(folder, newClock().Now)
	if err != nil {
		t.Fatal(err)
	}
	return &ledger{Ledger: files}
}

func newWorker(t *testing.T, f *fake, l worker.Ledger, c *clock, id string) *worker.Worker {
	t.Helper()
	client, err := worker.NewClient(f.URL+"/external-job-api", "billing", "secret", 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	config := worker.DefaultConfig()
	config.ID, config.Poll = id, time.Millisecond
	w, err := worker.New(config, client, l, slog.New(slog.NewTextHandler(io.Discard, nil)), c.Now)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// invoices are the names of the invoices in a folder. What else there is are drafts.
func invoices(t testing.TB, folder string) []string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if name := e.Name(); !strings.HasPrefix(name, ".") {
			names = append(names, strings.TrimSuffix(name, ".json"))
		}
	}
	return names
}

func TestAnOrderIsBilledAndItsJobCompleted(t *testing.T) {
	folder, job := t.TempDir(), invoiceJob("1", "WO-1", "9007199254740993")
	f := newFake(t, job)
	w := newWorker(t, f, newLedger(t, folder), newClock(), "w")
	if worked, err := w.Once(t.Context()); !worked || err != nil {
		t.Fatalf("got %v, %v", worked, err)
	}
	if worked, err := w.Once(t.Context()); worked || err != nil {
		t.Fatalf("without a job: got %v, %v", worked, err)
	}
	if job.state != "completed" || !strings.Contains(job.said, `"value":"INV-WO-1"`) {
		t.Errorf("the job is %q with %s", job.state, job.said)
	}
	text, err := os.ReadFile(filepath.Join(folder, "INV-WO-1.json"))
	if err != nil || !strings.Contains(string(text), `"items":9007199254740993`) {
		t.Errorf("the invoice is %s (%v)", text, err)
	}
	if want := []string{"unacquire", "acquire", "complete 1", "acquire"}; !slices.Equal(f.requests, want) {
		t.Errorf("Flowable was asked %v, want %v", f.requests, want)
	}
}

func TestWhatCannotBeBilledGoesToAPerson(t *testing.T) {
	for name, job := range map[string]*fakeJob{
		"no order":           invoiceJob("1", "", "3"),
		"a long order":       invoiceJob("1", strings.Repeat("W", 65), "3"),
		"no items":           invoiceJob("1", "WO-1", ""),
		"zero items":         invoiceJob("1", "WO-1", "0"),
		"items that are not": invoiceJob("1", "WO-1", `"3"`),
		"half an item":       invoiceJob("1", "WO-1", "2.5"),
		"null":               invoiceJob("1", "WO-1", "null"),
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			w := newWorker(t, newFake(t, job), newLedger(t, folder), newClock(), "w")
			if _, err := w.Once(t.Context()); err != nil {
				t.Fatal(err)
			}
			if job.state != "refused" || !strings.HasPrefix(job.said, "INVOICE_REFUSED") || !strings.Contains(job.said, `"refusal"`) {
				t.Errorf("the job is %q with %s", job.state, job.said)
			}
			if got := invoices(t, folder); len(got) > 0 {
				t.Errorf("invoices %v", got)
			}
		})
	}
}

func TestAJobThatIsTooLongDoesNotStopTheOthers(t *testing.T) {
	long, other := invoiceJob("1", "WO-1", "3"), invoiceJob("2", "WO-2", "4")
	long.Variables = append(long.Variables, worker.Text("report", strings.Repeat("x", 1<<20)))
	folder := t.TempDir()
	w := newWorker(t, newFake(t, long, other), newLedger(t, folder), newClock(), "w")
	for range 2 {
		if worked, err := w.Once(t.Context()); !worked || err != nil {
			t.Fatalf("got %v, %v", worked, err)
		}
	}
	if long.state != "refused" || !strings.Contains(long.said, "bytes") || strings.Contains(long.said, "xxx") {
		t.Errorf("the job is %q with %.300s", long.state, long.said)
	}
	if got := invoices(t, folder); !slices.Equal(got, []string{"INV-WO-2"}) {
		t.Errorf("invoices %v, want that of the other order", got)
	}
}

func TestASecondJobOfAnOrderFindsTheInvoiceOfTheFirst(t *testing.T) {
	folder := t.TempDir()
	same, other := invoiceJob("2", "WO-1", "3"), invoiceJob("3", "WO-1", "4")
	w := newWorker(t, newFake(t, invoiceJob("1", "WO-1", "3"), same, other), newLedger(t, folder), newClock(), "w")
	for range 3 {
		if _, err := w.Once(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if same.state != "completed" {
		t.Errorf("the job of the same content is %q", same.state)
	}
	if other.state != "refused" || !strings.Contains(other.said, "INV-WO-1 is of 3 items") {
		t.Errorf("the job of other content is %q: %s", other.state, other.said)
	}
	if got := invoices(t, folder); !slices.Equal(got, []string{"INV-WO-1"}) {
		t.Errorf("invoices %v", got)
	}
}

func TestAFailureCostsARetryAndAnOutageNone(t *testing.T) {
	for _, tt := range []struct {
		name        string
		err         error
		retries     int
		left        int
		wait, state string
	}{
		{"the first failure", errors.New("disk fault"), 3, 2, "PT60.000S", ""},
		{"the second", errors.New("disk fault"), 2, 1, "PT600.000S", ""},
		{"the last", errors.New("disk fault"), 1, 0, "PT600.000S", "dead"},
		{"more than Flowable gives", errors.New("disk fault"), 9, 8, "PT60.000S", ""},
		{"an outage", fmt.Errorf("%w: no route", worker.ErrUnavailable), 3, 3, "PT60.000S", ""},
		{"an outage at the last try", fmt.Errorf("%w: no route", worker.ErrUnavailable), 1, 1, "PT60.000S", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			job := invoiceJob("1", "WO-1", "3")
			job.Retries = tt.retries
			l := newLedger(t, t.TempDir())
			l.before = func(context.Context, worker.Order) error { return tt.err }
			w := newWorker(t, newFake(t, job), l, newClock(), "w")
			if _, err := w.Once(t.Context()); err != nil {
				t.Fatal(err)
			}
			if job.Retries != tt.left || job.wait != tt.wait || job.state != tt.state || job.said != tt.err.Error() {
				t.Errorf("got %d retries, %s, %q, %q; want %d, %s, %q", job.Retries, job.wait, job.state, job.said, tt.left, tt.wait, tt.state)
			}
		})
	}
}

func TestNothingIsBilledOrReportedWhenTheLockEndsTooSoon(t *testing.T) {
	t.Run("a slow answer to the acquisition", func(t *testing.T) {
		folder, c := t.TempDir(), newClock()
		f, l := newFake(t, invoiceJob("1", "WO-1", "3")), newLedger(t, folder)
		f.after = func(r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, "/acquire/jobs") {
				c.pass(4*time.Minute + 31*time.Second) // 29 s of the lock are left; work and one call may take 30
			}
			return false
		}
		if worked, err := newWorker(t, f, l, c, "w").Once(t.Context()); !worked || err == nil || l.issues != 0 {
			t.Errorf("got %v, %v, and the ledger was asked %d times", worked, err, l.issues)
		}
	})
	t.Run("slow billing", func(t *testing.T) {
		folder, c, job := t.TempDir(), newClock(), invoiceJob("1", "WO-1", "3")
		f, l := newFake(t, job), newLedger(t, folder)
		l.before = func(context.Context, worker.Order) error { c.pass(4*time.Minute + 51*time.Second); return nil }
		w := newWorker(t, f, l, c, "w")
		if _, err := w.Once(t.Context()); err == nil || job.state != "" {
			t.Errorf("got %v, and the job is %q", err, job.state)
		}
		// The next try gives the job back, takes it again, and finds the invoice.
		l.before = nil
		if _, err := w.Once(t.Context()); err != nil || job.state != "completed" {
			t.Errorf("then got %v, and the job is %q", err, job.state)
		}
		if got := invoices(t, folder); !slices.Equal(got, []string{"INV-WO-1"}) {
			t.Errorf("invoices %v", got)
		}
	})
}

func TestALostAnswerToTheCompletionIsAskedAgainAndGoneMeansDone(t *testing.T) {
	job := invoiceJob("1", "WO-1", "3")
	f := newFake(t, job)
	lost := 0
	f.after = func(r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/complete") && lost == 0 {
			lost++
			return true
		}
		return false
	}
	l := newLedger(t, t.TempDir())
	if _, err := newWorker(t, f, l, newClock(), "w").Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"unacquire", "acquire", "complete 1", "complete 1"}; !slices.Equal(f.requests, want) || job.state != "completed" || l.issues != 1 {
		t.Errorf("Flowable was asked %v, the ledger %d times, and the job is %q", f.requests, l.issues, job.state)
	}
}

func TestAnErrorThatIsNotFlowablesIsNotTakenForAGoneJob(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter){
		"a proxy's 404":             func(w http.ResponseWriter) { http.NotFound(w, nil) },
		"another application's 404": func(w http.ResponseWriter) { w.WriteHeader(404); _, _ = io.WriteString(w, `{"status":404}`) },
		"a user without the right":  func(w http.ResponseWriter) { w.WriteHeader(403) },
		"two transactions that meet": func(w http.ResponseWriter) {
			w.WriteHeader(500)
			_, _ = io.WriteString(w, `{"exception":"was updated by another transaction concurrently"}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			job, c := invoiceJob("1", "WO-1", "3"), newClock()
			f := newFake(t, job)
			times := 0
			f.before = func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, "/complete") || times == 2 {
					return false
				}
				times++
				answer(w)
				return true
			}
			if _, err := newWorker(t, f, newLedger(t, t.TempDir()), c, "w").Once(t.Context()); err != nil || job.state != "completed" {
				t.Errorf("got %v after %d such answers, and the job is %q; want it sent again", err, times, job.state)
			}
		})
	}
}

func TestAJobThatIsAnothersNowIsLeftToIt(t *testing.T) {
	folder, job := t.TempDir(), invoiceJob("1", "WO-1", "3")
	f, l := newFake(t, job), newLedger(t, folder)
	second := newWorker(t, f, newLedger(t, folder), newClock(), "second")
	l.before = func(ctx context.Context, _ worker.Order) error {
		// The lock of the first has ended while it was held up, and the second is done before it goes on.
		f.mu.Lock()
		job.owner = ""
		f.mu.Unlock()
		worked, err := second.Once(ctx)
		if !worked {
			return errors.New("the second had no job")
		}
		return err
	}
	if _, err := newWorker(t, f, l, newClock(), "first").Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := invoices(t, folder); !slices.Equal(got, []string{"INV-WO-1"}) || job.state != "completed" || job.owner != "second" {
		t.Errorf("invoices %v, and the job is %q by %s", got, job.state, job.owner)
	}

	// The second still has it.
	job.state, job.owner = "", ""
	l.before = func(context.Context, worker.Order) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		job.owner = "second"
		return nil
	}
	if _, err := newWorker(t, f, l, newClock(), "first").Once(t.Context()); err != nil || job.owner != "second" || job.state != "" {
		t.Errorf("got %v, and the job is %q by %s; want it left to the second", err, job.state, job.owner)
	}
}

func TestAWorkerThatComesBackResumesItsJobAtOnce(t *testing.T) {
	folder, job := t.TempDir(), invoiceJob("1", "WO-1", "3")
	job.owner = "billing-0" // which was killed
	f := newFake(t, job)
	if worked, err := newWorker(t, f, newLedger(t, folder), newClock(), "billing-1").Once(t.Context()); worked || err != nil {
		t.Errorf("another worker got %v, %v; want no job while the lock holds", worked, err)
	}
	if worked, err := newWorker(t, f, newLedger(t, folder), newClock(), "billing-0").Once(t.Context()); !worked || err != nil || job.state != "completed" {
		t.Errorf("got %v, %v, and the job is %q", worked, err, job.state)
	}
}

func TestTheEndOfTheContextFinishesTheJobInHand(t *testing.T) {
	job := invoiceJob("1", "WO-1", "3")
	f, l := newFake(t, job, invoiceJob("2", "WO-2", "3")), newLedger(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	l.before = func(ctx context.Context, _ worker.Order) error {
		cancel()
		return ctx.Err()
	}
	newWorker(t, f, l, newClock(), "w").Run(ctx)
	if job.state != "completed" || l.issues != 1 {
		t.Errorf("the job is %q, and the ledger was asked %d times; want one job done, and no second begun", job.state, l.issues)
	}
}

func TestTheEndOfTheContextGivesBackWhatANeverHeardAnswerHolds(t *testing.T) {
	job := invoiceJob("1", "WO-1", "3")
	f, l := newFake(t, job), newLedger(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	f.after = func(r *http.Request) bool {
		acquires := strings.HasSuffix(r.URL.Path, "/acquire/jobs")
		if acquires {
			cancel()
		}
		return acquires
	}
	newWorker(t, f, l, newClock(), "w").Run(ctx)
	if want := []string{"unacquire", "acquire", "unacquire"}; !slices.Equal(f.requests, want) || job.owner != "" || l.issues != 0 {
		t.Errorf("Flowable was asked %v, and the job is held by %q; want it given back", f.requests, job.owner)
	}
}

func TestRunOutlivesAnEngineThatIsDown(t *testing.T) {
	job := invoiceJob("1", "WO-1", "3")
	f := newFake(t, job)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	refused := 0
	f.before = func(w http.ResponseWriter, r *http.Request) bool {
		if refused < 3 {
			refused++
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}
		return false
	}
	f.after = func(r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/complete") {
			cancel()
		}
		return false
	}
	newWorker(t, f, newLedger(t, t.TempDir()), newClock(), "w").Run(ctx)
	if job.state != "completed" {
		t.Errorf("the job is %q", job.state)
	}
}

func TestTheConfigurationMustFitTogether(t *testing.T) {
	client, err := worker.NewClient("http://127.0.0.1:1", "", "", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*worker.Config){
		"no id":        func(c *worker.Config) { c.ID = "" },
		"no topic":     func(c *worker.Config) { c.Topic = "" },
		"a short lock": func(c *worker.Config) { c.Lock = 59 * time.Second },
		"no work":      func(c *worker.Config) { c.Work = 0 },
		"no retries":   func(c *worker.Config) { c.RetryAfter = nil },
		"a short max":  func(c *worker.Config) { c.MaxPause = c.Poll - 1 },
	} {
		c := worker.DefaultConfig()
		c.ID = "w"
		if _, err := worker.New(c, client, nil, slog.Default(), time.Now); err != nil {
			t.Fatalf("the defaults: %v", err)
		}
		change(&c)
		if _, err := worker.New(c, client, nil, slog.Default(), time.Now); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for _, base := range []string{"", "flowable", "ftp://flowable", "http://", "http://\x00"} {
		if _, err := worker.NewClient(base, "", "", time.Second); err == nil {
			t.Errorf("a client for %q: no error", base)
		}
	}
}
