// Package telemetry writes the logs of a function process: one JSON object a line, in the form Cloud Logging reads.
//
// # What it promises
//
// Each record is one line with severity, message and time, whatever is in it: line breaks, percent signs and invalid
// UTF-8 included. A record logged with a context that carries a Trace has the fields by which Cloud Logging puts it
// beside its request. Errors are text. A value slog would render by reflection (a byte slice, a map, a struct) is
// replaced by the name of its type, because that is how payloads and attribute maps come into logs by accident.
//
// # What it does not promise
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
