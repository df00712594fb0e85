// Package funcserver is the life of a function process: start-up checks, requests, and a shut-down in order.
//
// functions-framework-go serves with a bare http.ListenAndServe, knows no SIGTERM, and is started by a main that the
// buildpack generates: of our code only init() runs, and the init() of every function runs in every process. So a
// function's package calls Register in its init, and Register acts by FUNCTION_TARGET:
//
//	names this function  Build is called at once. A fault ends the process with code 1 before it listens, and one line of
//	                     severity CRITICAL names all faults. SIGTERM and SIGINT are handled.
//	names another one    nothing happens; the function is registered and never called.
//	is not set           nothing happens in init, so that a test may import the package. Build is called by Start or
//	                     Main (cmd/), or by the first request. Only Start and Main handle signals.
//
// A FUNCTION_TARGET that no function has is the framework's to refuse: "no matching function found", in plain text, and
// code 1.
//
// # Requests
//
// The answer of a handler is held back until the handler has returned, then sent whole. So an answer is never half
// sent, nothing a handler does after it set a status precedes that status on the wire, and a handler that panics is
// answered 500 whatever it had written before: never 2xx. The recover is ours, so the framework sees no panic and
// prints no stack over many lines; the stack is in one field of one log entry, and not in the answer. A handler cannot
// stream, and a panic in a goroutine of its own still ends the process.
//
// A request's body is waited for eight seconds (Options.BodyWithin), whether nothing more comes or a byte now and then. After
// that its reading fails, also that of net/http, which reads the rest of a body before it sends an answer. The handler's
// answer is sent, and the connection closed. How long a handler takes once it has the body is its own affair.
//
// The request's context carries the request's trace for the log (package telemetry).
//
// # Shut-down
//
// Cloud Run sends SIGTERM, and SIGKILL ten seconds later. Times after the signal:
//
//	0 s    Draining ends. New requests are answered 503 with Connection: close and do not reach the handler.
//	7 s    The contexts of the requests still in flight end, with ErrShuttingDown as their cause, and so does the reading
//	       of their bodies. Handlers answer what they know, 503 as a rule.
//	8.5 s  Requests still in flight are given up.
//	9 s    At the latest, the functions given to OnShutdown have run, last given first, and the process ends with code 0.
//
// Each step comes as soon as it can: a process without requests ends at once. A second signal ends it at once with
// code 1. An answer is on the socket before its request stops counting, so that the exit does not cut it off.
//
// # Not promised
//
// Nothing is promised to a request that arrives between the last check and the exit; its connection breaks, which
// Pub/Sub and Cloud Scheduler take for a failure. A process may always be killed without a signal. With K_SERVICE set
// the framework prints an empty line to stdout and stderr after each request; it cannot be told not to.
// Headers that never end are the platform's to bound.
//
// # Concurrency
//
// All methods of Function and Lazy may be called from many goroutines. OnShutdown functions run one after another.
//
// Sources: functions-framework-go v1.9.2 funcframework/framework.go (initServer, wrapHTTPFunction, recoverPanic) and
// issue 271; https://cloud.google.com/run/docs/container-contract#instance-shutdown; the buildpack's template in
// GoogleCloudPlatform/buildpacks cmd/go/functions_framework/lib/template_declarative.go.
package funcserver
