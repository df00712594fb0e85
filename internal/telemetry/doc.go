// Package telemetry writes the logs of a function process, one JSON object a line in the form Cloud Logging reads, and
// exports its metrics and traces by OTLP. docs/metrics.md is the table of record; it is written from the rows in metric.go,
// of which the instruments are made.
//
// # What it promises
//
// Each record is one line with severity, message and time, whatever is in it: line breaks, percent signs and invalid
// UTF-8 included. A record logged with a context that carries a Trace has the fields by which Cloud Logging puts it
// beside its request. Errors are text. A value slog would render by reflection (a byte slice, a map, a struct) is
// replaced by the name of its type, because that is how payloads and attribute maps come into logs by accident.
//
// An export begins within a request and is waited for within a bound; a failed export is logged as a warning, at most
// once a minute, and never fails a request. Without an endpoint nothing is counted, kept or read. Labels have a bounded number of values, whatever
// publishers send. No payload, no attribute value but type, route and tenant, and no secret is exported. The gauges are
// written by one process at a time, which holds the reporter's lease. No sender decides what is traced.
//
// INFO entries of one message beyond 50 in ten seconds are left out if the logger is told to sample, and counted in the
// next that is written.
//
// # What it does not promise
//
// An instance that is killed takes with it what it has counted since its last export. Equal payloads are seen within one
// instance only. A gauge is as old as the last report, 30 seconds as a rule.
//
// It cannot tell a payload that was turned into a string from another string: who logs strings answers for them. Keys
// of the format itself (severity, message, time) given as attributes appear twice. Strings over 32 KiB are cut, since
// Cloud Logging refuses an entry over 256 KiB; nothing else is shortened. Lines that others write to the same stream
// are out of its hands: with K_SERVICE set, functions-framework-go prints an empty line to stdout and to stderr at the
// end of each request (funcframework/framework.go, wrapHTTPFunction).
//
// # Concurrency
//
// A logger may be used from many goroutines; a line is written in one call of Write, under a lock of its own. Two loggers
// on one stream have a lock each.
//
// Format: https://cloud.google.com/logging/docs/structured-logging (special fields),
// https://www.w3.org/TR/trace-context/ (traceparent), https://cloud.google.com/trace/docs/trace-context
// (X-Cloud-Trace-Context).
package telemetry
