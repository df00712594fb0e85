// Package worker creates the invoices of finished work orders: an external worker of Flowable that can be killed at any
// moment, and bills no order twice.
//
// # One job
//
// The worker takes one job at a time under a lock of Config.Lock, issues the invoice in a Ledger, and completes the job.
// Issuing is idempotent by the order's number, so that all of this can be repeated from its start:
//
//	killed before the invoice is issued        the job is taken again, and billed
//	killed after it, before the completion     the job is taken again; the ledger has the invoice; completed
//	killed after the completion                nothing is left to do
//	two workers hold the job                   the ledger gives both the same invoice; Flowable takes one completion
//	the answer to the completion is lost       asked again while the lock holds; "no such job" then means done
//
// A job that a killed worker held is free when its lock has ended and Flowable has noticed (its reset interval), or at
// once when a worker of the same id starts: it gives back first what an earlier process of that id still holds.
//
// # The lock
//
// Flowable has no call that extends a lock, and starts it when it answers. The worker counts from before it asked, on the
// monotonic clock, and bills only while the lock leaves room for Config.Work and one call of Flowable; otherwise it leaves
// the job. That keeps two workers from working on one job; what keeps them from billing twice is the ledger alone.
//
// # What goes wrong
//
//	the order cannot be billed as it is (ErrRefused),
//	or its variables are longer than an answer may be    BPMN error INVOICE_REFUSED: the process has a task for a person
//	the ledger is out of reach (ErrUnavailable)          fail, the job keeps its retries: an outage costs no job
//	any other error of the ledger                        fail, one retry less, a longer wait; at 0 a dead-letter job
//	403 or 400 "does not hold a lock"                    another has the job now: nothing more is done
//	404 of Flowable at the completion                    done: completed before, or its instance is gone; logged
//	Flowable out of reach, 5xx                           tried again while the lock holds, then left
//
// A job whose worker is killed each time, by the job itself, is not counted by Flowable: only a reported failure costs a
// retry.
package worker
