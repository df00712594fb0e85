package migrate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"
)

// LockTable holds a row while an Apply is at work.
const LockTable = "SchemaMigrationLock"

const lockDDL = "CREATE TABLE " + LockTable + " (Id INT64 NOT NULL, Owner STRING(256) NOT NULL, Until TIMESTAMP NOT NULL) PRIMARY KEY (Id)"

// A schema change may take hours, so the lock is short and renewed rather than long.
const (
	lockLease = 2 * time.Minute
	lockRenew = 20 * time.Second
)

type lock struct {
	c     *conn
	owner string
	lost  atomic.Bool
	stop  context.CancelFunc
	done  chan struct{}
}

// acquire takes the lock, or says who has it.
func acquire(ctx context.Context, c *conn) (*lock, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	l := &lock{c: c, owner: fmt.Sprintf("%.100s, process %d, %s", host, os.Getpid(), rand.Text()), done: make(chan struct{})}
	if err := l.take(ctx); spanner.ErrCode(err) == codes.NotFound && !errors.Is(err, ErrLocked) {
		// There is no table yet. That creating it fails may mean that another one was quicker; taking the
		// lock finds out.
		ddlErr := c.ApplyDDL(ctx, []string{lockDDL}, nil)
		if err := l.take(ctx); err != nil {
			return nil, errors.Join(err, ddlErr)
		}
	} else if err != nil {
		return nil, err
	}
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.stop = stop
	go l.renew(renewing)
	return l, nil
}

// take writes the lock row, if it is free or ours, with the database's own time.
func (l *lock) take(ctx context.Context) error {
	_, err := l.c.rows.ReadWriteTransactionWithOptions(ctx, func(ctx context.Context, tx *spanner.ReadWriteTransaction) error {
		var now time.Time
		if err := tx.Query(ctx, spanner.NewStatement("SELECT CURRENT_TIMESTAMP()")).Do(func(r *spanner.Row) error { return r.Columns(&now) }); err != nil {
			return err
		}
		var owner string
		var until time.Time
		row, err := tx.ReadRow(ctx, LockTable, spanner.Key{1}, []string{"Owner", "Until"})
		switch {
		case errors.Is(err, spanner.ErrRowNotFound):
		case err != nil:
			return err
		default:
			if err := row.Columns(&owner, &until); err != nil {
				return err
			}
		}
		if owner != l.owner && until.After(now) {
			return fmt.Errorf("%w: %s has held %s since less than %s; wait until it has ended, and migrate again. If it is dead, that takes until %s",
				ErrLocked, owner, l.c.database, lockLease, until.UTC().Format(time.RFC3339))
		}
		return tx.BufferWrite([]*spanner.Mutation{
			spanner.InsertOrUpdate(LockTable, []string{"Id", "Owner", "Until"}, []any{1, l.owner, now.Add(lockLease)}),
		})
	}, spanner.TransactionOptions{TransactionTag: "migrate-lock"})
	if err != nil && !errors.Is(err, ErrLocked) {
		return fmt.Errorf("lock %s: %w", l.c.database, err)
	}
	return err
}

func (l *lock) renew(ctx context.Context) {
	defer close(l.done)
	ticker := time.NewTicker(lockRenew)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		try, cancel := context.WithTimeout(ctx, lockRenew)
		err := l.take(try)
		cancel()
		// Another failure is tried again: the lease outlives several of them.
		if errors.Is(err, ErrLocked) {
			l.lost.Store(true)
			return
		}
	}
}

// held says whether another one has taken the lock since.
func (l *lock) held() error {
	if l.lost.Load() {
		return fmt.Errorf("%w: this one has stalled for so long that another has taken its place; migrate again when that has ended", ErrLocked)
	}
	return nil
}

// release gives the lock back, also when the context has ended: the next one would have to wait for it.
func (l *lock) release(ctx context.Context) error {
	l.stop()
	<-l.done
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_, err := l.c.rows.ReadWriteTransactionWithOptions(ctx, func(ctx context.Context, tx *spanner.ReadWriteTransaction) error {
		row, err := tx.ReadRow(ctx, LockTable, spanner.Key{1}, []string{"Owner"})
		if errors.Is(err, spanner.ErrRowNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		var owner string
		if err := row.Columns(&owner); err != nil || owner != l.owner {
			return err
		}
		return tx.BufferWrite([]*spanner.Mutation{spanner.Delete(LockTable, spanner.Key{1})})
	}, spanner.TransactionOptions{TransactionTag: "migrate-unlock"})
	if err != nil {
		return fmt.Errorf("unlock %s (it unlocks itself after %s): %w", l.c.database, lockLease, err)
	}
	return nil
}
