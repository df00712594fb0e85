package spannerstore

import (
	"context"
	"errors"
	"strings"
	"sync"

	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// commits is what became of the commits of one transaction. The client library sends a commit again after some errors, and
// tells only the last one: what became of those before it decides as much about the outcome.
type commits struct {
	mu      sync.Mutex
	due     bool // the transaction's function has ended well, so that a commit was sent
	seen    bool
	unknown bool // the outcome of one is not known
}

type commitsKey struct{}

// watched returns a context whose commits are watched, where the client was made with watchCommits.
func watched(ctx context.Context) (context.Context, *commits) {
	c := &commits{}
	return context.WithValue(ctx, commitsKey{}, c), c
}

var watchCommits = option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(
	func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		err := invoke(ctx, method, req, reply, cc, opts...)
		if c, ok := ctx.Value(commitsKey{}).(*commits); ok && strings.HasSuffix(method, "/Commit") {
			c.answered(err)
		}
		return err
	}))

func (c *commits) expected() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.due = true
}

func (c *commits) answered(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = true
	c.unknown = c.unknown || !refuses(status.Code(err))
}

// outcome marks an error after which nothing can have been committed: no commit was sent, or each was refused.
func (c *commits) outcome(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		return nil
	case !c.due, c.seen && !c.unknown:
		return &definiteError{err}
	}
	return err
}

// definiteError is an error after which nothing was committed for certain.
type definiteError struct{ error }

func (e *definiteError) Unwrap() error { return e.error }

// definite reports whether err says for certain that nothing was committed.
func definite(err error) bool {
	var sure *definiteError
	return errors.As(err, &sure)
}

// refuses reports whether an answer to one commit says that this commit was not executed.
func refuses(code codes.Code) bool {
	switch code {
	case codes.Aborted, codes.AlreadyExists, codes.FailedPrecondition, codes.InvalidArgument, codes.NotFound,
		codes.OutOfRange, codes.PermissionDenied, codes.ResourceExhausted, codes.Unauthenticated, codes.Unimplemented:
		return true
	}
	return false
}
