//go:build engines

package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	workorder "github.com/pubsub-inbox/pubsub-inbox/examples/work-order"
	"github.com/pubsub-inbox/pubsub-inbox/examples/work-order/worker"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/flowable/flowabletest"
)

func TestAWorkerThatIsKilledAtAnyStepBillsOnce(t *testing.T) {
	for _, tt := range []struct {
		name    string
		action  string // the gate stops it there
		forward bool
		billed  int // when it is killed
	}{
		{"between acquisition and bill", "/acquire/jobs", true, 0},
		{"between bill and completion", "/complete", false, 1},
		{"after the completion", "/complete", true, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			order := "WO-" + strings.ReplaceAll(tt.name, " ", "-")
			gate := w.gate(tt.action, tt.forward)
			first := w.start(gate.url(), "billing-0")
			instance := w.completed(order, "4812")
			w.wait("the worker has come to the step", gate.stopped)
			w.end(first, syscall.SIGKILL)
			if got := invoices(t, w.folder); len(got) != tt.billed {
				t.Errorf("it was killed with the invoices %v, want %d", got, tt.billed)
			}
			// Under the same id it need not wait for the end of the lock, which is five minutes.
			second := w.start(w.server.JobsURL(), "billing-0")
			w.invoiced(instance, order)
			w.end(second, syscall.SIGTERM)
		})
	}
}

func TestAWorkerUnderAnotherIdTakesOverWhenTheLockHasEnded(t *testing.T) {
	w := newWorld(t)
	gate := w.gate("/complete", false)
	short := []string{"-lock", "5s", "-work", "1s", "-call", "1500ms"}
	first := w.start(gate.url(), "first", short...)
	instance := w.completed("WO-takeover", "7")
	w.wait("the first has billed", gate.stopped)
	second := w.start(w.server.JobsURL(), "second", short...)
	w.invoiced(instance, "WO-takeover")
	// The first goes on, and reports what the second has reported.
	gate.letThrough()
	w.end(first, syscall.SIGTERM)
	w.end(second, syscall.SIGTERM)
	w.invoiced(instance, "WO-takeover")
	for name, p := range map[string]*process{"first": first, "second": second} {
		if strings.Contains(p.log.String(), "panic") {
			t.Errorf("the %s said:\n%s", name, &p.log)
		}
	}
}

func TestTwoWorkersThatHoldOneJobBillOnce(t *testing.T) {
	for name, c := range map[string]struct {
		now func() time.Time
		err bool
	}{
		"the first sees that its lock has ended":                     {time.Now, true},
		"the first does not see it, because its machine stood still": {newClock().Now, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			short := func(id string) func(*worker.Config) {
				return func(c *worker.Config) {
					c.ID, c.Lock, c.Work, c.Call = id, 3*time.Second, 500*time.Millisecond, time.Second
				}
			}
			second := w.worker(w.ledger(), time.Now, short("second"))
			slow := w.ledger()
			slow.before = func(context.Context, worker.Order) error { w.works(second); return nil }
			first := w.worker(&unhurried{slow}, c.now, short("first"))
			instance := w.completed("WO-two", "7")
			w.eventually("the first has a job", func() bool {
				worked, err := first.Once(t.Context())
				if (err != nil) != (worked && c.err) {
					t.Fatalf("the first says %v, %v", worked, err)
				}
				return worked
			})
			w.invoiced(instance, "WO-two")
			if slow.issues != 1 {
				t.Errorf("the first asked the ledger %d times, want once", slow.issues)
			}
		})
	}
}

// unhurried is a ledger that does not heed the time it is given.
type unhurried struct{ *ledger }

func (u *unhurried) Issue(ctx context.Context, o worker.Order, job string) (worker.Invoice, error) {
	return u.ledger.Issue(context.WithoutCancel(ctx), o, job)
}

func TestAJobThatFailsBecomesADeadLetterJobAndIsRepaired(t *testing.T) {
	w := newWorld(t)
	broken := w.ledger()
	broken.before = func(context.Context, worker.Order) error { return errors.New("the ledger is full") }
	by := w.worker(broken, time.Now, func(c *worker.Config) { c.RetryAfter = []time.Duration{time.Millisecond} })
	instance := w.completed("WO-dead", "3")
	for range 3 {
		w.works(by)
	}
	var dead struct {
		Data []struct{ ID, ElementID, ExceptionMessage string }
	}
	w.client.Do(http.MethodGet, "/management/deadletter-jobs?processInstanceId="+instance, nil, &dead)
	if len(dead.Data) != 1 || dead.Data[0].ElementID != "createInvoice" || dead.Data[0].ExceptionMessage != "the ledger is full" {
		t.Fatalf("after three failures there are the dead-letter jobs %+v", dead.Data)
	}
	if worked, err := by.Once(t.Context()); worked || err != nil {
		t.Errorf("a worker got %v, %v; want no dead-letter job", worked, err)
	}
	broken.before = nil
	if status, raw := w.client.Do(http.MethodPost, "/management/deadletter-jobs/"+dead.Data[0].ID, map[string]string{"action": "move"}, nil); status != http.StatusNoContent {
		t.Fatalf("move it back: status %d: %s", status, raw)
	}
	w.works(by)
	w.invoiced(instance, "WO-dead")
}

func TestAnOutageOfBillingMakesNoDeadLetterJob(t *testing.T) {
	w := newWorld(t)
	l := w.ledger()
	l.before = func(context.Context, worker.Order) error { return fmt.Errorf("%w: no route", worker.ErrUnavailable) }
	by := w.worker(l, time.Now, func(c *worker.Config) { c.OutageRetry = time.Millisecond })
	instance := w.completed("WO-outage", "3")
	for range 5 {
		w.works(by)
	}
	l.before = nil
	w.works(by)
	w.invoiced(instance, "WO-outage")
}

func TestAnInstanceThatIsDeletedWhileItIsBilled(t *testing.T) {
	w := newWorld(t)
	l := w.ledger()
	instance := w.completed("WO-deleted", "3")
	l.before = func(context.Context, worker.Order) error { w.client.Delete(instance); return nil }
	w.works(w.worker(l, time.Now, nil)) // 404 at the completion: done
	if got := invoices(t, w.folder); len(got) != 1 {
		t.Errorf("there are the invoices %v", got)
	}
}

func TestARefusedOrderIsClarifiedByAPersonAndThenBilled(t *testing.T) {
	w := newWorld(t)
	by := w.worker(w.ledger(), time.Now, nil)
	instance := w.completed("WO-refused", "0")
	w.works(by)
	var tasks struct{ Data []struct{ ID, Name string } }
	w.eventually("there is a task", func() bool {
		w.client.Do(http.MethodGet, "/runtime/tasks?processInstanceId="+instance, nil, &tasks)
		return len(tasks.Data) == 1
	})
	if got := string(w.client.Variables(instance)["refusal"].Value); !strings.Contains(got, "completedItems") {
		t.Errorf("the refusal is %s", got)
	}
	w.client.Do(http.MethodPut, "/runtime/process-instances/"+instance+"/variables/completedItems",
		flowabletest.Variable{Name: "completedItems", Type: "long", Value: json.RawMessage("12")}, nil)
	w.client.Do(http.MethodPost, "/runtime/tasks/"+tasks.Data[0].ID, map[string]string{"action": "complete"}, nil)
	w.works(by)
	w.invoiced(instance, "WO-refused")
}

// What an order carries besides is not sent to the worker; and where what it reads is too long, the order goes to a person.
func TestALongOrderStopsNoOther(t *testing.T) {
	w := newWorld(t)
	by, long := w.worker(w.ledger(), time.Now, nil), strings.Repeat("x", 1_100_000)
	carries := w.client.StartProcess("work-order-execution", "WO-carries", "", flowabletest.Text("workOrderId", "WO-carries"), flowabletest.Text("report", long))
	w.eventually("the order waits for its completion", func() bool { return len(w.client.Waiting("WorkOrderCompleted", carries)) == 1 })
	w.complete(carries, "1")
	w.works(by)
	w.invoiced(carries, "WO-carries")

	is := w.client.StartProcess("work-order-execution", "WO-is", "", flowabletest.Text("workOrderId", long))
	w.eventually("the order waits for its completion", func() bool { return len(w.client.Waiting("WorkOrderCompleted", is)) == 1 })
	w.complete(is, "1")
	w.works(by)
	w.eventually("a person is asked", func() bool { return w.client.Count("/runtime/tasks?processInstanceId="+is, nil) == 1 })
	if got := string(w.client.Variables(is)["refusal"].Value); !strings.Contains(got, "bytes") {
		t.Errorf("the refusal is %.300s", got)
	}
	w.client.Delete(is)
}

// Why the task is not exclusive, besides: what locks its instance is not given back with the job.
func TestAnExclusiveJobThatIsGivenBackStopsTheOthersUntilItsLockHasEnded(t *testing.T) {
	w := newWorld(t)
	exclusive := strings.NewReplacer(`"create-invoice" flowable:exclusive="false"`, `"exclusive"`, "work-order-execution", "exclusive",
		"WorkOrderCreated", "ExclusiveCreated").Replace(string(workorder.BPMN))
	w.client.Deploy("exclusive", "", []byte(exclusive))
	completed := func(order string) {
		instance := w.client.StartProcess("exclusive", order, "", flowabletest.Text("workOrderId", order))
		t.Cleanup(func() { w.client.Delete(instance) })
		w.eventually("the order waits for its completion", func() bool { return len(w.client.Waiting("WorkOrderCompleted", instance)) == 1 })
		w.complete(instance, "1")
	}
	client, err := worker.NewClient(w.server.JobsURL(), flowabletest.User, flowabletest.Password, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	acquire := func(id string) *worker.Job {
		job, err := client.Acquire(t.Context(), "exclusive", id, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		return job
	}
	completed("WO-given-back")
	held := acquire("first")
	if held == nil {
		t.Fatal("there is no job")
	}
	if err := client.Release(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	completed("WO-other")
	if job := acquire("second"); job != nil {
		t.Errorf("got the job %s, want none, although two are free", job.ID)
	}
	w.eventually("the lock of the instance has ended", func() bool { job := acquire("second"); return job != nil && job.ID == held.ID })
}

// A second token makes a second job of one instance. Were the task exclusive, no batch with both could be acquired.
func TestTwoJobsOfOneOrderAreOneInvoice(t *testing.T) {
	w := newWorld(t)
	by := w.worker(w.ledger(), time.Now, nil)
	instance := w.client.StartProcess("work-order-execution", "WO-token", "", flowabletest.Text("workOrderId", "WO-token"))
	waiting := func(n int) {
		w.eventually(fmt.Sprint(n, " tokens wait"), func() bool { return len(w.client.Waiting("WorkOrderCompleted", instance)) == n })
	}
	waiting(1)
	again := map[string][]string{"cancelActivityIds": {"waitForCompletion"}, "startActivityIds": {"handOver", "waitForCompletion"}}
	if status, raw := w.client.Do(http.MethodPost, "/runtime/process-instances/"+instance+"/change-state", again, nil); status != http.StatusOK {
		t.Fatalf("change the state: status %d: %s", status, raw)
	}
	waiting(2)
	w.complete(instance, "3")
	var batch []json.RawMessage
	all := map[string]any{"topic": "create-invoice", "workerId": "batch", "lockDuration": "PT1M", "numberOfTasks": 20}
	w.jobs("/acquire/jobs", all, &batch)
	if len(batch) != 2 {
		t.Errorf("a batch has %d jobs, want both", len(batch))
	}
	w.jobs("/unacquire/jobs", map[string]any{"workerId": "batch"}, nil)
	w.works(by)
	w.works(by)
	w.invoiced(instance, "WO-token")
}

// The setting is lock-owner. The lock itself would last five minutes.
func TestAFlowableThatWasKilledTakesItsStepUpAgainAtOnce(t *testing.T) {
	w := newWorld(t)
	folder := t.TempDir()
	settings := filepath.Join(folder, "flowable.properties")
	if err := os.WriteFile(settings, workorder.Properties, 0o600); err != nil {
		t.Fatal(err)
	}
	own := flowabletest.Start(t, flowabletest.Options{Folder: folder, Properties: settings})
	client := own.Client(t)
	slow := strings.Replace(string(workorder.BPMN), `flowable:expression="${execution.setVariable('handedOver', true)}"`, `flowable:delegateExpression="${faults}"`, 1)
	client.Deploy("work-order", "", []byte(slow))
	instance := client.StartProcess("work-order-execution", "WO-slow", "", flowabletest.Text("workOrderId", "WO-slow"), flowabletest.Text("fault", "slow"))
	w.eventually("the step has begun", func() bool {
		var jobs struct{ Data []struct{ LockOwner string } }
		client.Do(http.MethodGet, "/management/jobs?processInstanceId="+instance, nil, &jobs)
		return len(jobs.Data) == 1 && jobs.Data[0].LockOwner == "work-order-1"
	})
	if err := own.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.eventually("the step is through", func() bool { return len(client.Waiting("WorkOrderCompleted", instance)) == 1 })
}
