package spannerstore

import (
	"context"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/apiv1/spannerpb"
)

// readAs is by what reads are known in Spanner's statistics, and how urgent they are beside others when the database has no
// CPU to spare. Receives, claims and settlements are of the default priority, high. Who may wait asks for less: what is swept
// and reported for low, what a person looks at for medium.
type readAs struct {
	tag      string
	priority spannerpb.RequestOptions_Priority
}

const (
	priorityMedium = spannerpb.RequestOptions_PRIORITY_MEDIUM
	priorityLow    = spannerpb.RequestOptions_PRIORITY_LOW
)

// options completes the options of a read.
func (r readAs) options(opts *spanner.ReadOptions) *spanner.ReadOptions {
	var with spanner.ReadOptions
	if opts != nil {
		with = *opts
	}
	if with.RequestTag == "" {
		with.RequestTag = r.tag
	}
	if with.Priority == spannerpb.RequestOptions_PRIORITY_UNSPECIFIED {
		with.Priority = r.priority
	}
	return &with
}

// singleReads makes each read a strong single-use one.
type singleReads struct {
	client *spanner.Client
	readAs
}

func (s *Store) single(as readAs) singleReads { return singleReads{s.client, as} }

// ReadWithOptions reads at a time of its own.
func (r singleReads) ReadWithOptions(ctx context.Context, table string, keys spanner.KeySet, columns []string, opts *spanner.ReadOptions) *spanner.RowIterator {
	return r.client.Single().ReadWithOptions(ctx, table, keys, columns, r.options(opts))
}

// tagged completes what a reader is asked for.
type tagged struct {
	reader
	readAs
}

// ReadWithOptions reads by the reader.
func (t tagged) ReadWithOptions(ctx context.Context, table string, keys spanner.KeySet, columns []string, opts *spanner.ReadOptions) *spanner.RowIterator {
	return t.reader.ReadWithOptions(ctx, table, keys, columns, t.options(opts))
}

// snapshot is the database at one moment.
type snapshot struct {
	*spanner.ReadOnlyTransaction
	readAs
}

// snapshot begins with its first read. The caller closes it.
func (s *Store) snapshot(as readAs) *snapshot {
	return &snapshot{s.client.ReadOnlyTransaction(), as}
}

// ReadWithOptions reads what was there at that moment.
func (s *snapshot) ReadWithOptions(ctx context.Context, table string, keys spanner.KeySet, columns []string, opts *spanner.ReadOptions) *spanner.RowIterator {
	return s.ReadOnlyTransaction.ReadWithOptions(ctx, table, keys, columns, s.options(opts))
}

// ReadRow is ReadWithOptions for one row.
func (s *snapshot) ReadRow(ctx context.Context, table string, key spanner.Key, columns []string) (*spanner.Row, error) {
	return s.ReadRowWithOptions(ctx, table, key, columns, s.options(nil))
}

// Query runs a statement at that moment.
func (s *snapshot) Query(ctx context.Context, statement spanner.Statement) *spanner.RowIterator {
	return s.QueryWithOptions(ctx, statement, spanner.QueryOptions{RequestTag: s.tag, Priority: s.priority})
}
