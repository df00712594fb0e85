package httpcall

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"syscall"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
)

// Codes of results without an answer. An answer's code is "HTTP " and its status.
const (
	CodeCancelled = "cancelled"
	CodeTimeout   = "timeout"
	CodeDNS       = "dns"
	CodeDial      = "dial"
	CodeTLS       = "tls"
	CodeReset     = "reset"
	CodeEOF       = "eof"
	CodeMalformed = "malformed"
)

// Unsent classifies a failure before the request was written. The error's own text is not kept: it may repeat bytes the
// other side sent.
func Unsent(ctx context.Context, err error) *engine.Result {
	technical := func(code, detail string) *engine.Result {
		return &engine.Result{Verdict: engine.Technical, Code: code, Detail: detail + " Nothing was sent."}
	}
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		// The caller's wish, not the engine's failure.
		return &engine.Result{Verdict: engine.NotStarted, Code: CodeCancelled, Detail: "The call was cancelled before anything was sent."}
	case errors.Is(err, errPoolClosed):
		return technical(CodeCancelled, "The engine's adapter is closed.")
	case isTimeout(err):
		return technical(CodeTimeout, "No connection to the engine stood in time.")
	case is[*net.DNSError](err):
		return technical(CodeDNS, "The engine's host name could not be resolved.")
	case refusesHandshake(err):
		return technical(CodeTLS, "The engine refuses the TLS connection: does it know our certificate, if it asks for one?")
	case is[*tls.CertificateVerificationError](err), is[tls.RecordHeaderError](err), isAlert(err):
		return technical(CodeTLS, "No trusted TLS connection to the engine could be made.")
	case errors.Is(err, syscall.ECONNREFUSED):
		return technical(CodeDial, "The engine refused the connection.")
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF):
		return technical(CodeReset, "The connection broke before the request was written.")
	default:
		return technical(CodeDial, "No connection to the engine could be made.")
	}
}

// broken classifies a failure after the request was, or may have been, written.
func broken(ctx context.Context, err error) *engine.Result {
	unknown := func(code, detail string) *engine.Result {
		return &engine.Result{Verdict: engine.Unknown, Code: code, Detail: detail + " The engine may have acted upon the request."}
	}
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return unknown(CodeCancelled, "The call was cancelled after the request was sent.")
	case ctx.Err() != nil, isTimeout(err):
		return unknown(CodeTimeout, "The engine did not answer in time.")
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return unknown(CodeReset, "The connection was reset after the request was sent.")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		err.Error() == "http: server closed idle connection": // net/http does not export it
		return unknown(CodeEOF, "The connection was closed after the request was sent.")
	case is[*net.OpError](err):
		return unknown(CodeReset, "The connection broke after the request was sent.")
	default:
		return unknown(CodeMalformed, "What came back is no HTTP answer.")
	}
}

// refusals are the alerts by which a server refuses a handshake: no certificate, or none that it trusts; or nothing that both
// sides understand.
var refusals = []tls.AlertError{
	40,  // handshake_failure
	42,  // bad_certificate
	43,  // unsupported_certificate
	44,  // certificate_revoked
	45,  // certificate_expired
	46,  // certificate_unknown
	48,  // unknown_ca
	49,  // access_denied
	51,  // decrypt_error
	113, // bad_certificate_status_response
	116, // certificate_required
}

// refusesHandshake reports whether the other side has refused the handshake. In TLS 1.3 the client is through with it before
// the server has looked at the client's certificate, and writes its request: the refusal comes as the first thing that is
// read. A server that refuses has read no request.
func refusesHandshake(err error) bool {
	alert, ok := remoteAlert(err)
	return ok && slices.ContainsFunc(refusals, func(r tls.AlertError) bool { return r.Error() == alert })
}

// isAlert reports whether either side has ended a TLS connection with an alert.
func isAlert(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && (op.Op == "remote error" || op.Op == "local error")
}

// remoteAlert is the text of the alert that the other side has sent. Its type is crypto/tls's own; its text is that of a
// tls.AlertError.
func remoteAlert(err error) (string, bool) {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Op != "remote error" || op.Err == nil {
		return "", false
	}
	return op.Err.Error(), true
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.Is(err, syscall.ETIMEDOUT) || errors.As(err, &t) && t.Timeout()
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
