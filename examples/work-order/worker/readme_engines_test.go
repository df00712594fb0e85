//go:build engines

package worker_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/examples/work-order/worker"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/flowable/flowabletest"
)

// readme has the commands of README.md, and which of them were run.
type readme struct {
	w      *world
	blocks map[string][]string // by heading, in order
}

func readReadme(w *world) *readme {
	w.t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		w.t.Fatalf("the README's commands cannot be tried: %v", err)
	}
	text, err := os.ReadFile("../README.md")
	if err != nil {
		w.t.Fatal(err)
	}
	r := &readme{w: w, blocks: map[string][]string{}}
	heading := ""
	var block *strings.Builder
	for line := range strings.Lines(string(text)) {
		switch {
		case strings.HasPrefix(line, "```sh"):
			block = &strings.Builder{}
		case strings.HasPrefix(line, "```") && block != nil:
			r.blocks[heading] = append(r.blocks[heading], block.String())
			block = nil
		case block != nil:
			block.WriteString(line)
		case strings.HasPrefix(line, "#"):
			heading = strings.TrimSpace(strings.TrimLeft(line, "#"))
		}
	}
	return r
}

// run runs the next block below a heading, as a person would, and returns what it printed.
func (r *readme) run(heading string, env ...string) string {
	r.w.t.Helper()
	if len(r.blocks[heading]) == 0 {
		r.w.t.Fatalf("the README has no such block below %q", heading)
	}
	block := r.blocks[heading][0]
	r.blocks[heading] = r.blocks[heading][1:]
	cmd := exec.Command("sh", "-euc", block)
	cmd.Env = append(append(os.Environ(), "AUTH="+flowabletest.User+":"+flowabletest.Password,
		"FLOWABLE="+strings.TrimSuffix(r.w.server.URL(), "/process-api")), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.w.t.Fatalf("%s\nends with %v:\n%s", block, err, out)
	}
	return string(out)
}

// said expects a text in what a command printed.
func (r *readme) said(out, want string) {
	r.w.t.Helper()
	if !strings.Contains(out, want) {
		r.w.t.Errorf("a command printed nothing of %s:\n%s", want, out)
	}
}

func TestTheReadmesCommandsRepairWhatTheySay(t *testing.T) {
	w := newWorld(t)
	r := readReadme(w)
	l := w.ledger()
	by := w.worker(l, time.Now, func(c *worker.Config) { c.RetryAfter = []time.Duration{time.Millisecond} })

	l.before = func(context.Context, worker.Order) error { return errors.New("the ledger is full") }
	instance := w.completed("WO-readme", "0")
	w.works(by) // refused
	var tasks struct{ Data []struct{ ID string } }
	w.eventually("there is a task", func() bool {
		w.client.Do(http.MethodGet, "/runtime/tasks?processInstanceId="+instance, nil, &tasks)
		return len(tasks.Data) == 1
	})
	out := r.run("A refused order", "INSTANCE="+instance, "TASK="+tasks.Data[0].ID)
	r.said(out, tasks.Data[0].ID)
	r.said(out, "refusal")

	for range 3 {
		w.works(by)
	}
	var dead struct{ Data []struct{ ID string } }
	w.client.Do(http.MethodGet, "/management/deadletter-jobs?processInstanceId="+instance, nil, &dead)
	if len(dead.Data) != 1 {
		t.Fatalf("there are the dead-letter jobs %v, want one", dead.Data)
	}
	job := "JOB=" + dead.Data[0].ID
	out = r.run("A dead-letter job", job)
	r.said(out, dead.Data[0].ID)
	r.said(out, "the ledger is full")
	r.run("A dead-letter job", job)

	// A worker has it, and is dead.
	w.jobs("/acquire/jobs", map[string]any{"topic": "create-invoice", "workerId": "dead", "lockDuration": "PT1H", "numberOfTasks": 1}, nil)
	if worked, err := by.Once(t.Context()); worked || err != nil {
		t.Fatalf("a worker got %v, %v; want no job", worked, err)
	}
	out = r.run("A job that a dead worker holds", "WORKER=dead")
	r.said(out, dead.Data[0].ID)
	l.before = nil
	w.works(by)
	w.invoiced(instance, "WO-readme")

	second := w.client.StartProcess("work-order-execution", "WO-tokens", "", flowabletest.Text("workOrderId", "WO-tokens"))
	waiting := func(n int) []string {
		var got []string
		w.eventually(fmt.Sprint(n, " tokens wait"), func() bool {
			got = w.client.Waiting("WorkOrderCompleted", second)
			return len(got) == n
		})
		return got
	}
	waiting(1)
	const tokens = "Tokens too many"
	again := r.blocks[tokens][0]
	r.run(tokens, "INSTANCE="+second)
	waiting(2)
	r.blocks[tokens] = append([]string{again}, r.blocks[tokens]...) // "so it is done again"
	r.run(tokens, "INSTANCE="+second)
	executions := waiting(3)
	scout := len(r.blocks[tokens]) - 1
	r.blocks["scout"] = r.blocks[tokens][scout:]
	r.blocks[tokens] = r.blocks[tokens][:scout]
	r.said(r.run("scout"), second)
	repair := r.blocks[tokens][0]
	r.said(r.run(tokens, "INSTANCE="+second, "EXECUTION="+executions[1]), `"total":3`)
	r.blocks[tokens] = append(r.blocks[tokens], repair)
	r.said(r.run(tokens, "INSTANCE="+second, "EXECUTION="+executions[2]), `"total":2`)
	if left := waiting(1); left[0] != executions[0] {
		t.Errorf("execution %s is left, want %s", left[0], executions[0])
	}
	w.client.Delete(second)

	for heading, left := range r.blocks {
		if heading != "scout" && len(left) > 0 {
			t.Errorf("not run, below %q:\n%s", heading, left)
		}
	}
}
