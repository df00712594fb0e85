// Package demoengine is a small workflow engine in memory, reached by HTTP: process instances that wait, one after
// another, for the messages they were started with. It is there to be looked at: the demo shows it, tests ask it what
// really advanced, and an author of an engine finds in it what httpengine expects.
//
// A delivery is a POST of a CloudEvent in binary content mode to / or /events: ce-subject is the business key, ce-type the
// message, Idempotency-Key (else ce-id) the delivery. The answers are those of httpengine's package documentation: 200
// with the instance's id when exactly one instance advanced, otherwise a problem document (RFC 9457) that says whether
// nobody waits yet (404), more than one does (409), the process is past that point (410), the instance went away
// meanwhile (412), the delivery is not what it was the first time (422), or less is wanted for now (429, 503).
//
// # Guarantees
//
// A delivery has at most one effect, however often and however concurrently it comes, unless the engine is Forgetful: an
// answer that tells of an effect is remembered and given again. Answers without an effect are not remembered, so that a
// message that came too early is not refused for ever. Times come from Options.Now alone; nothing here waits by itself.
//
// # Not guaranteed
//
// Nothing is bounded and nothing is kept: memory grows with what arrives, and a restart forgets all of it. There is no
// authentication.
//
// # Concurrency
//
// An Engine is safe for concurrent use.
//
// Sources: CloudEvents HTTP protocol binding 1.0.2, RFC 9457, draft-ietf-httpapi-idempotency-key-header-07.
package demoengine
