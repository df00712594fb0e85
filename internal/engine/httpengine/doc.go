// Package httpengine delivers messages to any workflow engine, or service with waiting processes, that is reached by one
// HTTP POST: a CloudEvent in, a status code and perhaps a problem document out.
//
// # The request
//
// A CloudEvents 1.0 event in binary content mode. The id is the inbox id, the type is the engine's name of the message,
// the correlation key is the subject (and the partitionkey and correlationid extensions). The attempt is the extension
// inboxattempt, the publisher's trace context travels as traceparent, both as header and as extension. Idempotency-Key
// carries the inbox id again, as the quoted string the draft asks for. Whatever comes from a message is percent-encoded
// as the CloudEvents HTTP binding demands, so that no message can add a header. The body is the variables as one JSON
// object, names sorted, each value exactly the text it has in the delivery; or, if the route names no variables, the
// payload's bytes as they came.
//
// # The answer
//
// Verdict by the first rule that holds:
//
//  1. The answer is a 4xx or a 503 with an application/problem+json document (RFC 9457) whose type names a verdict: see Problem.
//  2. The answer is a problem document that cannot be read (cut, too long, in an unknown encoding, no JSON object): what it
//     would have said is lost. Technical, whatever the status, unless the status could not end the message anyway.
//  3. The configuration has a verdict for the status, or for its class: Config.Statuses. It wins over all that follows,
//     the checks of a 2xx included.
//  4. The table below.
//
// A status that refuses is never believed alone: gateways, ingresses, firewalls and frameworks without a route use the same
// ones, and answer in HTML, in plain text, in JSON and with a problem document of the type about:blank. So only the engine's
// own problem document, or its owner's word in Config.Statuses, brings a message to a person. An answer that is a web page,
// by its media type or its first bytes, is nobody's success either.
//
//	200 201 204            Correlated
//	202                    HandedOver
//	other 2xx, a page's    unsure: no proof of success, and none of failure; see below
//	302 303                unsure: a redirect to a login page, or to the result of what was done. Not followed
//	other 3xx              Technical: the configured URL is not the engine's. Not followed
//	401 403 407            Unauthorised
//	408                    unsure
//	409                    Technical: a delivery under this id is still being worked on
//	429 503                Throttled for an engine that is idempotent; else Unknown: gateways say so when they have lost an
//	                       answer, with a Retry-After of their own. The problem "throttled" proves that nothing was done
//	other 4xx, 501 505 511 Technical
//	500 502 504, other 5xx unsure
//
// Unsure is Technical for an engine that is idempotent: sending again is harmless, and an outage must not look like
// something a person has to look into. For one that is not, it is Unknown.
//
// Without an answer, one fact decides: whether the request's header was handed to the connection as a whole. If not, no
// server can have seen a request, and the verdict is Technical (or NotStarted, when the caller cancelled). If so, it is
// Unknown, for every engine: reset, end of stream, timeout, cancellation, an answer that is not HTTP. A server that refuses
// the TLS handshake has seen none either, although in TLS 1.3 it says so after the request was written. An answer that came
// before the request was whole is an answer.
//
// Once the status line and header of a 2xx are there, the answer is definite; a body that breaks off after it changes
// nothing, because nothing in it is needed.
//
// What the package finds without having asked its engine (a variable that is no JSON) is NotAsked.
//
// # Guarantees
//
// One Correlate writes at most one request. net/http's connection pool would repeat a POST that carries an
// Idempotency-Key when a kept connection breaks (Request.isReplayable); this package therefore takes its connections
// itself, as http.ClientConn, which repeats nothing. Delivery.BeforeSend is asked when the token has been fetched and the
// connection stands: after it says yes, the write is the next thing that happens.
//
// An engine that is not idempotent gets a new connection for each delivery: a kept one can turn out to be closed by the
// other side only after the request was written, which would be Unknown, and Unknown is expensive there.
//
// Results hold no secret, and none of the answer but a reference and a problem's title and detail, all bounded and on one
// line. A value of the delivered body that title or detail repeat is taken out; a reference that repeats one is dropped,
// but for the header Inbox-Reference, which an engine sets for this very purpose.
//
// # Not guaranteed
//
// An engine that disguises a value it echoes (by encoding or cutting it) gets it into the detail. An engine that ignores
// Idempotency-Key advances twice when a delivery is repeated: declare it as not idempotent. HTTP/2 is not spoken: a
// connection is one delivery's, so that what breaks it concerns nobody else. Delivery.Payload and Variables must not be
// changed after Correlate returns; a server that answers early can leave the connection reading them for a moment.
//
// # Concurrency
//
// An Engine is safe for concurrent use. Close it when no call is under way any more.
//
// Sources: CloudEvents 1.0.2, its HTTP protocol binding (section 3.1.3.2, header values), its HTTP webhook specification
// and its extensions partitioning, correlation and distributed tracing; RFC 9110 (HTTP semantics, Retry-After); RFC 9457
// (problem details); RFC 9651 (structured fields); draft-ietf-httpapi-idempotency-key-header-07; W3C Trace Context; the
// documentation of Go's net/http (Transport, ClientConn) and net/http/httptrace.
package httpengine
