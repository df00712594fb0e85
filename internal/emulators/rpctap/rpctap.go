// Package rpctap sits between a Spanner client and its server: it counts the calls and the rows they
// deliver, and holds, refuses or loses the calls a test chooses.
//
// It promises to see every attempt the client sends, retries included, in the order in which the client
// sends them; a call that a Before hook refuses never reaches the server; a call whose answer an After hook
// replaces has been executed by the server. Methods go by their short names: "Commit", "StreamingRead",
// "ExecuteStreamingSql". Calls that only keep the client alive (sessions) are counted apart, because when
// and how often a client makes them is its own affair.
//
// It does not promise that a call reached the server when the network failed by itself, nor anything about
// time.
//
// A Tap may serve several clients at once; all of its methods may be called by several goroutines. Hooks
// run on the goroutine of the call, so that a hook that blocks holds that call alone. A held call ends with
// its context only if its hook looks at it; those of Hold do.
package rpctap

import (
	"context"
	"errors"
	"io"
	"maps"
	"strings"
	"sync"

	"cloud.google.com/go/spanner/apiv1/spannerpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// Tap is ready for use in its zero value. It must not be copied.
type Tap struct {
	mu         sync.Mutex
	counts     map[string]int
	background map[string]int
	rows       map[string]int
	before     map[string][]BeforeFunc
	after      map[string][]AfterFunc
}

// BeforeFunc runs before the nth call of a method is sent, n counting from 1 since the Tap was new or Reset.
// The call is not sent if it returns an error; the client gets that error as the server's answer.
type BeforeFunc func(ctx context.Context, n int, req any) error

// AfterFunc runs when the server has answered the nth call. The client gets what it returns as the outcome:
// nil with reply, or the error without it. err is the server's, and is to be returned where nothing is to
// change. For a server stream it runs once, when the first message arrives (reply) or the stream ends
// without one (reply nil; err nil if it ended well); after an error the client gets no message at all.
type AfterFunc func(ctx context.Context, n int, req, reply any, err error) error

// background are the methods that are not part of what a test measures.
var background = map[string]bool{"CreateSession": true, "BatchCreateSessions": true, "GetSession": true, "DeleteSession": true, "ListSessions": true}

// Options put the tap into a client. They may be given to several.
func (t *Tap) Options() []option.ClientOption {
	return []option.ClientOption{
		option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(t.unary)),
		option.WithGRPCDialOption(grpc.WithChainStreamInterceptor(t.stream)),
	}
}

// Count is the number of calls of one method, of a background method too.
func (t *Tap) Count(method string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts[method] + t.background[method]
}

// Counts are the calls by method, without background methods. A method that was not called is not in it.
func (t *Tap) Counts() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return cloned(t.counts)
}

// Background are the calls that Counts leaves out.
func (t *Tap) Background() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return cloned(t.background)
}

// Total is the sum of Counts.
func (t *Tap) Total() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	total := 0
	for _, n := range t.counts {
		total += n
	}
	return total
}

// Rows is the number of rows that reads and queries have delivered to the client. What a stream delivers
// again after it broke counts again. It is not what the server looked at: a query that filters or counts
// may read more. DML without THEN RETURN delivers none.
func (t *Tap) Rows() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	total := 0
	for _, n := range t.rows {
		total += n
	}
	return total
}

// RowsOf is Rows for one method.
func (t *Tap) RowsOf(method string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rows[method]
}

// Reset makes the tap as new: counts are zero and hooks are gone. A call in flight keeps the hooks it has
// not yet come to see; rows that it delivers from now on are counted.
func (t *Tap) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts, t.background, t.rows, t.before, t.after = nil, nil, nil, nil, nil
}

// Before adds a hook. The hooks of a method run in the order in which they were added; the first error ends
// them.
func (t *Tap) Before(method string, f BeforeFunc) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.before == nil {
		t.before = map[string][]BeforeFunc{}
	}
	// A new slice each time: a call in flight may be going through the old one.
	t.before[method] = append(t.before[method][:len(t.before[method]):len(t.before[method])], f)
}

// After adds a hook. Each hook of a method gets the outcome of the one added before it.
func (t *Tap) After(method string, f AfterFunc) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.after == nil {
		t.after = map[string][]AfterFunc{}
	}
	t.after[method] = append(t.after[method][:len(t.after[method]):len(t.after[method])], f)
}

// call is one call on its way.
type call struct {
	tap    *Tap
	method string
	n      int
	before []BeforeFunc
}

func (t *Tap) begin(fullMethod string) *call {
	method := fullMethod[strings.LastIndexByte(fullMethod, '/')+1:]
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := &t.counts
	if background[method] {
		counts = &t.background
	}
	if *counts == nil {
		*counts = map[string]int{}
	}
	(*counts)[method]++
	return &call{tap: t, method: method, n: (*counts)[method], before: t.before[method]}
}

func (c *call) runBefore(ctx context.Context, req any) error {
	for _, f := range c.before {
		if err := f(ctx, c.n, req); err != nil {
			return err
		}
	}
	return nil
}

func (c *call) runAfter(ctx context.Context, req, reply any, err error) error {
	c.tap.mu.Lock()
	hooks := c.tap.after[c.method]
	c.tap.mu.Unlock()
	for _, f := range hooks {
		err = f(ctx, c.n, req, reply, err)
	}
	return err
}

func (c *call) addRows(n int) {
	if n == 0 {
		return
	}
	c.tap.mu.Lock()
	defer c.tap.mu.Unlock()
	if c.tap.rows == nil {
		c.tap.rows = map[string]int{}
	}
	c.tap.rows[c.method] += n
}

func (t *Tap) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	c := t.begin(method)
	if err := c.runBefore(ctx, req); err != nil {
		return err
	}
	err := c.runAfter(ctx, req, reply, invoke(ctx, method, req, reply, cc, opts...))
	if set, ok := reply.(*spannerpb.ResultSet); ok && err == nil {
		c.addRows(len(set.GetRows()))
	}
	return err
}

func (t *Tap) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return &stream{
		ctx:  ctx,
		call: t.begin(method),
		open: func() (grpc.ClientStream, error) { return open(ctx, desc, cc, method, opts...) },
	}, nil
}

// stream is a server stream: one request, many answers, and one goroutine that does both, as in generated
// code. The real stream is opened when the request is there and no hook refuses it. One that is open is
// never cancelled here but read to its end, because gRPC fills in the call's options when a stream ends, and
// on a goroutine of its own if that is by cancellation, while the client already uses them for its next try.
type stream struct {
	ctx  context.Context
	call *call
	open func() (grpc.ClientStream, error)

	real     grpc.ClientStream // nil until opened
	req      any
	answered bool
	columns  int
	values   int // of rows not yet complete
}

func (s *stream) SendMsg(req any) error {
	if s.real == nil {
		if err := s.call.runBefore(s.ctx, req); err != nil {
			return err
		}
		real, err := s.open()
		if err != nil {
			return err
		}
		s.real, s.req = real, req
	}
	return s.real.SendMsg(req)
}

func (s *stream) RecvMsg(reply any) error {
	if s.real == nil {
		return errNotOpen
	}
	err := s.real.RecvMsg(reply)
	if !s.answered {
		s.answered = true
		if err = s.first(reply, err); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	if set, ok := reply.(*spannerpb.PartialResultSet); ok {
		s.call.addRows(s.count(set))
	}
	return nil
}

func (s *stream) CloseSend() error {
	if s.real == nil {
		return nil
	}
	return s.real.CloseSend()
}

func (s *stream) Header() (metadata.MD, error) {
	if s.real == nil {
		return nil, errNotOpen
	}
	return s.real.Header()
}

func (s *stream) Trailer() metadata.MD {
	if s.real == nil {
		return nil
	}
	return s.real.Trailer()
}

func (s *stream) Context() context.Context {
	if s.real == nil {
		return s.ctx
	}
	return s.real.Context()
}

var errNotOpen = errors.New("rpctap: the stream's request has not been sent")

// first shows the hooks the beginning of the answer, or its end where it is empty.
func (s *stream) first(reply any, err error) error {
	if err == nil {
		err = s.call.runAfter(s.ctx, s.req, reply, nil)
		if err != nil {
			for s.real.RecvMsg(reply) == nil {
			}
		}
		return err
	}
	end := err
	if errors.Is(err, io.EOF) {
		end = nil
	}
	if after := s.call.runAfter(s.ctx, s.req, nil, end); after != nil {
		return after
	}
	// There is no message to make a success of: the stream has just ended.
	return io.EOF
}

// count returns how many rows are complete with this message. A row may be spread over messages, and so may
// one value.
func (s *stream) count(set *spannerpb.PartialResultSet) int {
	if fields := set.GetMetadata().GetRowType().GetFields(); len(fields) > 0 {
		s.columns = len(fields)
	}
	s.values += len(set.GetValues())
	if set.GetChunkedValue() {
		s.values-- // its rest comes with the next message, as a value of its own
	}
	if s.columns == 0 {
		return 0
	}
	rows := s.values / s.columns
	s.values %= s.columns
	return rows
}

func cloned(m map[string]int) map[string]int {
	if m == nil {
		return map[string]int{}
	}
	return maps.Clone(m)
}
