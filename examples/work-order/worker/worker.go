package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Config is how a worker works. Every field must be set; DefaultConfig has values, with their reasons.
type Config struct {
	// ID names the worker to Flowable. No two running ones may share it. One that is the same after a restart, such as
	// the name of a pod in a stateful set, resumes at once; another waits for the end of the lock.
	ID    string
	Topic string
	// Lock is how long Flowable keeps a job from other workers. At least twice Work and Call.
	Lock time.Duration
	// Work bounds the ledger's part of a job, Call one request to Flowable: what the Client was made with.
	Work, Call time.Duration
	// Poll is the pause after no job, the first after an error, and the one between two reports of a result. After errors
	// in a row the pause doubles, up to MaxPause.
	Poll, MaxPause time.Duration
	// RetryAfter is the wait before a failed job's next try: the last one with one retry left, and so on. The first is used
	// while there are more.
	RetryAfter []time.Duration
	// OutageRetry is the wait where billing is not available. It costs no retry.
	OutageRetry time.Duration
}

// DefaultConfig is what the example runs with. The id is yet to be set.
//
// Billing takes milliseconds; Work allows for a slow disk, and Lock is ten times as long as the longest job, so that a lock
// ends under no worker that lives. A killed worker delays its one job by Lock, unless it comes back under its id. Flowable
// gives a job three tries: the waits put a person's minutes and then a short outage's between them, before it becomes a
// dead-letter job.
func DefaultConfig() Config {
	return Config{Topic: "create-invoice", Lock: 5 * time.Minute, Work: 20 * time.Second, Call: 10 * time.Second,
		Poll: time.Second, MaxPause: 30 * time.Second, RetryAfter: []time.Duration{time.Minute, 10 * time.Minute}, OutageRetry: time.Minute}
}

// Worker works on jobs, one at a time. Run one goroutine with it; run more workers, with ids of their own, for more.
type Worker struct {
	config Config
	client *Client
	ledger Ledger
	log    *slog.Logger
	now    func() time.Time

	mayHold bool // that Flowable may count a job as ours that we are not working on
}

// New makes a worker, or says everything that is wrong with its configuration. now must have a monotonic reading, as
// time.Now has.
func New(c Config, client *Client, ledger Ledger, log *slog.Logger, now func() time.Time) (*Worker, error) {
	var faults []error
	if c.ID == "" || c.Topic == "" {
		faults = append(faults, errors.New("a worker needs an id and a topic"))
	}
	if c.Work <= 0 || c.Call <= 0 || c.Poll <= 0 || c.MaxPause < c.Poll || c.OutageRetry < 0 || len(c.RetryAfter) == 0 {
		faults = append(faults, errors.New("a worker needs times for work, calls, pauses and retries"))
	}
	if c.Lock < 2*(c.Work+c.Call) {
		faults = append(faults, fmt.Errorf("a lock of %s is too short for work of %s and calls of %s: it must be twice their sum", c.Lock, c.Work, c.Call))
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return &Worker{config: c, client: client, ledger: ledger, log: log.With("worker", c.ID), now: now, mayHold: true}, nil
}

// Run works until ctx ends. The job in hand is finished then, within Config.Work and the time to report it.
func (w *Worker) Run(ctx context.Context) {
	pause := w.config.Poll
	for ctx.Err() == nil {
		worked, err := w.Once(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			w.log.ErrorContext(ctx, "no job was done", "error", err, "pause", pause)
			wait(ctx, pause)
			pause = min(2*pause, w.config.MaxPause)
		case err == nil:
			if pause = w.config.Poll; !worked {
				wait(ctx, pause)
			}
		}
	}
	if w.mayHold {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.config.Call)
		defer cancel()
		if err := w.client.Release(ctx, w.config.ID); err != nil {
			w.log.ErrorContext(ctx, "a job may stay locked until its lock ends", "error", err)
		}
	}
}

// Once takes a job and does it. worked is false if there was none. An error means that a job, if there was one, is left to
// another try; it is not for two goroutines.
func (w *Worker) Once(ctx context.Context) (worked bool, err error) {
	if w.mayHold {
		if err := w.client.Release(ctx, w.config.ID); err != nil {
			return false, err
		}
		w.mayHold = false
	}
	asked := w.now()
	w.mayHold = true // the answer may be lost
	job, err := w.client.Acquire(ctx, w.config.Topic, w.config.ID, w.config.Lock)
	if err != nil {
		return false, err
	}
	if job == nil {
		w.mayHold = false
		return false, nil
	}
	// Not cut short when ctx ends: that a job can be left at any point is for accidents.
	if err := w.do(context.WithoutCancel(ctx), job, asked.Add(w.config.Lock)); err != nil {
		return true, err
	}
	w.mayHold = false
	return true, nil
}

// do does a job that is ours until the given time at least.
func (w *Worker) do(ctx context.Context, j *Job, until time.Time) error {
	log := w.log.With("job", j.ID, "processInstance", j.ProcessInstanceID)
	order, err := orderOf(j)
	var invoice Invoice
	if err == nil {
		log = log.With("workOrder", order.WorkOrderID)
		if invoice, err = w.bill(ctx, order, j.ID, until); errors.Is(err, errTooLate) {
			return err
		}
	}
	switch {
	case err == nil:
		err = w.report(ctx, until, func(ctx context.Context) error {
			return w.client.Complete(ctx, j.ID, w.config.ID, Text(invoiceVariable, invoice.Number))
		})
		if errors.Is(err, ErrGone) {
			log.WarnContext(ctx, "billed, and the job is gone: completed before, or its instance was moved or deleted", "invoice", invoice.Number)
			return nil
		}
	case errors.Is(err, ErrRefused):
		log.WarnContext(ctx, "refused", "reason", err)
		text := err.Error()
		err = w.report(ctx, until, func(ctx context.Context) error {
			return w.client.BPMNError(ctx, j.ID, w.config.ID, "INVOICE_REFUSED", Text(refusalVariable, text))
		})
	default:
		retries, after := w.retry(j, err)
		log.ErrorContext(ctx, "not billed", "error", err, "retries", retries, "after", after)
		text := err.Error()
		err = w.report(ctx, until, func(ctx context.Context) error {
			return w.client.Fail(ctx, j.ID, w.config.ID, retries, after, text)
		})
	}
	switch {
	case errors.Is(err, ErrNotHeld), errors.Is(err, ErrGone):
		log.WarnContext(ctx, "the job is another's now", "error", err)
		return nil
	case err != nil:
		return err
	}
	if invoice.Number != "" {
		log.InfoContext(ctx, "billed", "invoice", invoice.Number, "before", invoice.Job != j.ID)
	}
	return nil
}

// errTooLate says that a lock leaves no room for a step.
var errTooLate = errors.New("the lock ends too soon; the job is left to the next try")

// bill issues the invoice, if the lock leaves room for that and for the report of it.
func (w *Worker) bill(ctx context.Context, o Order, job string, until time.Time) (Invoice, error) {
	if w.now().Add(w.config.Work + w.config.Call).After(until) {
		return Invoice{}, errTooLate
	}
	ctx, cancel := context.WithTimeout(ctx, w.config.Work)
	defer cancel()
	return w.ledger.Issue(ctx, o, job)
}

// report tells Flowable a result, again and again while the lock has room for the call, until Flowable has said something
// of the job.
func (w *Worker) report(ctx context.Context, until time.Time, send func(context.Context) error) error {
	var last error
	for !w.now().Add(w.config.Call).After(until) {
		last = send(ctx)
		if last == nil || errors.Is(last, ErrGone) || errors.Is(last, ErrNotHeld) {
			return last
		}
		w.log.WarnContext(ctx, "flowable did not take the result; it is sent again", "error", last)
		wait(ctx, w.config.Poll)
	}
	return errors.Join(errTooLate, last)
}

// retry is how many retries a job has left after an error, and when the next is.
func (w *Worker) retry(j *Job, err error) (retries int, after time.Duration) {
	if errors.Is(err, ErrUnavailable) {
		return max(j.Retries, 1), w.config.OutageRetry
	}
	left := max(j.Retries-1, 0)
	return left, w.config.RetryAfter[max(len(w.config.RetryAfter)-max(left, 1), 0)]
}

// wait waits, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}
