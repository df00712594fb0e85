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

// RenewedAt is the database's own time, so that no host's clock decides.
const lockDDL = "CREATE TABLE " + LockTable + " (Id INT64 NOT NULL, Owner STRING(256) NOT NULL, RenewedAt TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp = true)) PRIMARY KEY (Id)"

// A schema change may take hours, so the lock is short and renewed rather than long.
const (
	lockLease = 2 * time.Minute
	lockRenew = 20 * time.Second
)

var lockColumns = []string{"Id", "Owner", "RenewedAt"}

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
	// The usual case is one commit without a transaction: nobody who has the lock is kept waiting.
	_, err = c.rows.Apply(ctx, []*spanner.Mutation{spanner.Insert(LockTable, lockColumns, []any{1, l.owner, spanner.CommitTimestamp})},
		spanner.ApplyAtLeastOnce(), spanner.TransactionTag("migrate-lock"))
	if spanner.ErrCode(err) == codes.AlreadyExists {
		err = l.take(ctx)
	}
	if err != nil {
		if !errors.Is(err, ErrLocked) {
			err = fmt.Errorf("lock %s: %w", c.database, err)
		}
		return nil, err
	}
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.stop = stop
	go l.renew(renewing)
	return l, nil
}

// holder returns ErrLocked if anybody holds the lock.
func holder(ctx context.Context, c *conn) error {
	return (&lock{c: c}).look(ctx, c.rows.Single())
}

// take renews the lock if it is ours, and takes it over if its owner has stopped renewing it.
func (l *lock) take(ctx context.Context) error {
	if err := l.look(ctx, l.c.rows.Single()); err != nil {
		return err
	}
	_, err := l.c.rows.ReadWriteTransactionWithOptions(ctx, func(ctx context.Context, tx *spanner.ReadWriteTransaction) error {
		if err := l.look(ctx, tx); err != nil {
			return err
		}
		return tx.BufferWrite([]*spanner.Mutation{spanner.InsertOrUpdate(LockTable, lockColumns, []any{1, l.owner, spanner.CommitTimestamp})})
	}, spanner.TransactionOptions{TransactionTag: "migrate-lock"})
	return err
}

// look returns ErrLocked if somebody else holds the lock.
func (l *lock) look(ctx context.Context, tx interface {
	Query(context.Context, spanner.Statement) *spanner.RowIterator
}) error {
	return tx.Query(ctx, spanner.Statement{
		SQL:    "SELECT Owner, RenewedAt FROM " + LockTable + " WHERE Id = 1 AND Owner != @owner AND TIMESTAMP_ADD(RenewedAt, INTERVAL @lease SECOND) > CURRENT_TIMESTAMP()",
		Params: map[string]any{"owner": l.owner, "lease": int64(lockLease / time.Second)},
	}).Do(func(r *spanner.Row) error {
		var owner string
		var renewed time.Time
		if err := r.Columns(&owner, &renewed); err != nil {
			return err
		}
		return fmt.Errorf("%w: %s is at work on %s; wait until it has ended, and migrate again. If it is dead, its lock ends at %s",
			ErrLocked, owner, l.c.database, renewed.Add(lockLease).UTC().Format(time.RFC3339))
	})
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
