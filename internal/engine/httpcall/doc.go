// Package httpcall makes one HTTP request for an engine's adapter, and says for certain whether it can have been acted
// upon.
//
// # Guarantees
//
// One Do writes at most one request. net/http's connection pool repeats some requests when a kept connection breaks
// (Request.isReplayable); this package therefore takes its connections itself, as http.ClientConn, which repeats nothing.
// maySend is asked when the connection stands: after it says yes, the write is the next thing that happens.
//
// An answer that has come is read, also where the rest of the request could not be written any more: who refuses a large
// body answers from its header and closes. So net/http is not told of writes that fail because the other side has stopped
// reading; what is read decides.
//
// Without an answer, one fact decides: whether the request's header was handed to the connection as a whole. If not, no
// server can have seen a request, and the verdict is Technical (or NotStarted, when the caller cancelled). If so, it is
// Unknown: reset, end of stream, timeout, cancellation, an answer that is not HTTP. The exception is a refusal of the TLS
// handshake, for want of a certificate or of a better one: in TLS 1.3 it comes when the request is written already, and in
// every version from a server that has read none. No error's own text is kept: it may repeat bytes that the other side sent.
//
// An answer's body is read in the content encodings gzip and deflate, without a byte order mark, and where it is not UTF-8
// in UTF-16 and the Latin charsets that older servers write. A body that broke off counts if it is a whole JSON object. One
// that is cut, longer than the limit, or in another encoding is Unread, which is no evidence of anything.
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
