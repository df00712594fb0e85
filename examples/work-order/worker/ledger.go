package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

var (
	// ErrRefused says that an order cannot be billed as it is, now or later. A person has to look at it.
	ErrRefused = errors.New("the order is refused")
	// ErrUnavailable says that nothing can be billed at the moment, whatever the order.
	ErrUnavailable = errors.New("billing is not available")
)

// Invoice is an issued invoice.
type Invoice struct {
	Number      string    `json:"number"`
	WorkOrderID string    `json:"workOrderId"`
	Items       int64     `json:"items"`
	Job         string    `json:"job"` // the job of Flowable that it was issued for
	IssuedAt    time.Time `json:"issuedAt"`
}

// Ledger issues invoices, at most one for each order's number, whoever asks and how often. It is all that stands between
// a job that runs twice and a customer who is billed twice.
type Ledger interface {
	// Issue issues the invoice of an order, or returns the one that was issued before. When it returns, the invoice is
	// durable, and when it fails, there may be one all the same: asking again finds out. An order whose invoice says
	// something else is ErrRefused. It is safe for concurrent use, by several processes too.
	Issue(ctx context.Context, o Order, job string) (Invoice, error)
}

// FileLedger keeps one file for each invoice, in a folder. The name of the file is the order's number: the file system
// is what makes it unique. The folder must be on a file system with hard links, shared by all workers.
type FileLedger struct {
	folder string
	now    func() time.Time
	// beforeEffect and afterEffect are where a test ends the process.
	beforeEffect, afterEffect func()
}

// NewFileLedger makes the folder unless it is there. now is the clock that invoices are dated by.
func NewFileLedger(folder string, now func() time.Time) (*FileLedger, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, fmt.Errorf("make the ledger's folder: %w", err)
	}
	return &FileLedger{folder: folder, now: now, beforeEffect: func() {}, afterEffect: func() {}}, nil
}

// Issue implements Ledger.
//
// A whole and durable file is linked to its name. A link is made or not, fails if the name is taken, and shows no half of
// a file; O_EXCL alone would show an empty one, and a rename would replace an invoice that is there.
func (l *FileLedger) Issue(ctx context.Context, o Order, job string) (Invoice, error) {
	name := filepath.Join(l.folder, "INV-"+url.PathEscape(o.WorkOrderID)+".json")
	if inv, err := l.read(name, o); !errors.Is(err, fs.ErrNotExist) {
		return inv, err
	}
	inv := Invoice{Number: "INV-" + o.WorkOrderID, WorkOrderID: o.WorkOrderID, Items: o.Items, Job: job, IssuedAt: l.now().UTC()}
	draft, err := l.draft(inv)
	if err != nil {
		return Invoice{}, fmt.Errorf("%w: write the invoice of %s: %w", ErrUnavailable, o.WorkOrderID, err)
	}
	defer func() { _ = os.Remove(draft) }() // what a killed process leaves is no invoice: its name begins with a dot
	if err := ctx.Err(); err != nil {
		return Invoice{}, fmt.Errorf("issue the invoice of %s: %w", o.WorkOrderID, err)
	}
	l.beforeEffect()
	err = os.Link(draft, name)
	l.afterEffect()
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return Invoice{}, fmt.Errorf("%w: issue the invoice of %s: %w", ErrUnavailable, o.WorkOrderID, err)
	}
	return l.read(name, o)
}

// draft writes an invoice into a file of its own, durably.
func (l *FileLedger) draft(inv Invoice) (name string, err error) {
	text, err := json.Marshal(inv)
	if err != nil {
		return "", err
	}
	f, err := os.CreateTemp(l.folder, ".draft-*")
	if err != nil {
		return "", err
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		_ = os.Remove(f.Name())
	}
	return f.Name(), err
}

// read returns an invoice that is there, and compares it with the order. The folder is made durable each time: who issued
// it may have been killed before that.
func (l *FileLedger) read(name string, o Order) (Invoice, error) {
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return Invoice{}, err
	}
	if err != nil {
		return Invoice{}, fmt.Errorf("%w: read the invoice of %s: %w", ErrUnavailable, o.WorkOrderID, err)
	}
	var inv Invoice
	if err := json.Unmarshal(text, &inv); err != nil {
		return Invoice{}, fmt.Errorf("read the invoice of %s: %w", o.WorkOrderID, err)
	}
	if inv.WorkOrderID != o.WorkOrderID || inv.Items != o.Items {
		return inv, fmt.Errorf("%w: invoice %s is of %d items of %s, this order of %d of %s", ErrRefused, inv.Number, inv.Items, inv.WorkOrderID, o.Items, o.WorkOrderID)
	}
	if err := l.sync(); err != nil {
		return inv, fmt.Errorf("%w: make the invoice of %s durable: %w", ErrUnavailable, o.WorkOrderID, err)
	}
	return inv, nil
}

func (l *FileLedger) sync() error {
	folder, err := os.Open(l.folder)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
