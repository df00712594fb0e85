// Package httpcall makes one HTTP request for an engine's adapter, and says for certain whether it can have been acted
// upon.
//
// # Guarantees
//
// One Do writes at most one request. net/http's connection pool repeats some requests when a kept connection breaks
// (Request.isReplayable); this package therefore takes its connections itself, as http.ClientConn, which repeats nothing.
// maySend is asked when the connection stands: after it says yes, the write is the next thing that happens.
//
// Without an answer, one fact decides: whether the request's header was handed to the connection as a whole. If not, no
// server can have seen a request, and the verdict is Technical (or NotStarted, when the caller cancelled). If so, it is
// Unknown: reset, end of stream, timeout, cancellation, an answer that is not HTTP. No error's own text is kept: it may
// repeat bytes that the other side sent.
//
// A Secret does not show itself, however it is printed.
//
// # Not guaranteed
//
// HTTP/2 is not spoken: a connection is one request's, so that what breaks it concerns nobody else. What an answer means
// is the adapter's to say. A request's body must not be changed after Do returns; a server that answers early can leave
// the connection reading it for a moment.
//
// # Concurrency
//
// A Client is safe for concurrent use. Close it when no call is under way any more.
package httpcall
