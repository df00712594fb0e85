// Package spannerstore keeps the inbox in Spanner. It is the only importer of the Spanner client at run time. Each file
// is one operation; what an operation decides is computed by package inbox from what the transaction has read, so that a
// transaction that runs twice decides anew.
//
// Receiving uses single-use commits only; the relay's and the operator's operations use read-write transactions, of which a
// process runs a few at a time: more would only wait for each other's locks. All methods are safe for concurrent use.
package spannerstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// Store is the inbox in one Spanner database.
type Store struct {
	client *spanner.Client
	now    func() time.Time
	newID  func() string
	// writing holds a token for each read-write transaction that runs.
	writing   chan struct{}
	committed lastCommit
	// scans is what Scan remembers of each consumer.
	scanning sync.Mutex
	scans    map[string]*scanMemory
	// opened are the marks of MessagesOpen.
	opened marks
}

// Open connects to database ("projects/P/instances/I/databases/D"). The caller closes the store.
func Open(ctx context.Context, database string, now func() time.Time, newID func() string, opts ...option.ClientOption) (*Store, error) {
	return OpenAs(ctx, database, "", now, newID, opts...)
}

// OpenAs is Open with a database role, for somebody who may use no more of the database than that role has.
func OpenAs(ctx context.Context, database, role string, now func() time.Time, newID func() string, opts ...option.ClientOption) (*Store, error) {
	client, err := spanner.NewClientWithConfig(ctx, database, spanner.ClientConfig{
		DatabaseRole: role,
		// The library's own metrics go out through a client and a timer of their own, at the cost of start-up.
		DisableNativeMetrics: true,
	}, append([]option.ClientOption{watchCommits}, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("connect to Spanner database %s: %w", database, err)
	}
	s := New(client, now, newID)
	s.writing = make(chan struct{}, writesAtOnce)
	return s, nil
}

// writesAtOnce is how many read-write transactions a store runs at a time.
const writesAtOnce = 8

// OneByOne has the store run one read-write transaction at a time: the emulator takes no more of a client. It is called before
// the store is used, and returns the store.
func (s *Store) OneByOne() *Store {
	s.writing = make(chan struct{}, 1)
	return s
}

// New returns a store for tests, which uses client, OneByOne. now is read for durations only: the database's clock decides.
// newID returns a new random id of at most 36 characters.
func New(client *spanner.Client, now func() time.Time, newID func() string) *Store {
	s := &Store{client: client, now: now, newID: newID, scans: map[string]*scanMemory{}}
	return s.OneByOne()
}

// Close ends the connections. No call may be under way.
func (s *Store) Close() { s.client.Close() }

// write runs one read-write transaction. f may run several times: it must set what it captures anew each time. All
// errors of the transaction must be wrapped with %w, or the client does not see that it was aborted. Of the error that write
// returns, definite says whether nothing was committed.
func (s *Store) write(ctx context.Context, tag string, f func(context.Context, *spanner.ReadWriteTransaction) error) (time.Time, error) {
	select {
	case s.writing <- struct{}{}:
		defer func() { <-s.writing }()
	case <-ctx.Done():
		return time.Time{}, &definiteError{ctx.Err()}
	}
	var reading inbox.Reading
	ctx, commits := watched(ctx)
	resp, err := s.client.ReadWriteTransactionWithOptions(ctx, func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
		if err := f(ctx, txn); err != nil {
			return err
		}
		commits.expected()
		reading.Sent = s.now()
		return nil
	}, spanner.TransactionOptions{TransactionTag: tag})
	if err == nil {
		reading.At, reading.Received = resp.CommitTs, s.now()
		s.committed.note(reading)
	}
	return resp.CommitTs, commits.outcome(err)
}

// commitOnce sends mutations as one single-use commit: one round trip. The client repeats it while its outcome is
// unknown, so that it may report its own row as existing; what a broken connection has cut off is repeated here, once.
//
// Only InvalidArgument and OutOfRange say that a value is refused. Internal is a fault of the server whatever the message,
// and FailedPrecondition can be a key of the database that is away.
func (s *Store) commitOnce(ctx context.Context, tag string, mutations []*spanner.Mutation, more ...spanner.ApplyOption) error {
	options := append([]spanner.ApplyOption{spanner.ApplyAtLeastOnce(), spanner.TransactionTag(tag)}, more...)
	at, err := s.client.Apply(ctx, mutations, options...)
	if cutOff(err) {
		at, err = s.client.Apply(ctx, mutations, options...)
	}
	switch code := spanner.ErrCode(err); {
	case err == nil && at.IsZero():
		return errors.New("the commit was answered without a commit timestamp")
	case err == nil:
		return nil
	case code == codes.AlreadyExists:
		return fmt.Errorf("%w: %w", inbox.ErrExists, err)
	case code == codes.InvalidArgument, code == codes.OutOfRange:
		return fmt.Errorf("%w: %w", inbox.ErrRefused, err)
	case code == codes.FailedPrecondition:
		return &preconditionError{err}
	}
	return err
}

// preconditionError is a FailedPrecondition without its text, which can quote a value of the message: the database answers
// so too where a column is smaller than this code takes it to be.
type preconditionError struct{ err error }

func (e *preconditionError) Error() string {
	return "FailedPrecondition: the database's key (CMEK) is away, or its schema is not the one that this revision writes; " +
		"the text is left out, because it can quote the message"
}

func (e *preconditionError) Unwrap() error { return e.err }

// cutOffTexts are those by which the client library itself tells a passing Internal from others, in its retries of reads.
var cutOffTexts = []string{
	"stream terminated by RST_STREAM", "HTTP/2 error code: INTERNAL_ERROR", "Connection closed with unknown cause",
	"Received unexpected EOS on DATA frame", "Authentication backend internal server error",
}

// cutOff reports whether the call ended with its connection, or before it was looked at. Its outcome is unknown.
func cutOff(err error) bool {
	return spanner.ErrCode(err) == codes.Internal &&
		slices.ContainsFunc(cutOffTexts, func(text string) bool { return strings.Contains(err.Error(), text) })
}

func nullString(s string) spanner.NullString { return spanner.NullString{StringVal: s, Valid: s != ""} }

func nullInt(n int64) spanner.NullInt64 { return spanner.NullInt64{Int64: n, Valid: n != 0} }

func claimURI(o inbox.Object) spanner.NullString {
	return spanner.NullString{StringVal: o.URI(), Valid: !o.IsZero()}
}

// claim reads the columns of a claim. What ParseReference refuses was never written by us.
func claim(uri spanner.NullString, generation spanner.NullInt64, sha256 spanner.NullString) inbox.Object {
	rest, _ := strings.CutPrefix(uri.StringVal, "gs://")
	bucket, name, _ := strings.Cut(rest, "/")
	return inbox.Object{Bucket: bucket, Name: name, Generation: generation.Int64, SHA256: sha256.StringVal}
}

func nullTime(t time.Time) spanner.NullTime { return spanner.NullTime{Time: t, Valid: !t.IsZero()} }

func nullJSON(m map[string]string) spanner.NullJSON {
	return spanner.NullJSON{Value: m, Valid: m != nil}
}

// textMap reads a JSON object of strings.
func textMap(j spanner.NullJSON) map[string]string {
	if !j.Valid {
		return nil
	}
	raw, err := json.Marshal(j.Value)
	if err != nil {
		return nil
	}
	var m map[string]string
	if json.Unmarshal(raw, &m) != nil {
		return nil
	}
	return m
}
