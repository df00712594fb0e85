package receiver

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/pushmsg"
)

// MaxBody is the largest request body that is read: the largest message that Pub/Sub takes (10 MB) in base64, with room for
// its attributes and their escapes. https://docs.cloud.google.com/pubsub/quotas
const MaxBody = 16 << 20

// answerWithin bounds one receive. It is below the shortest acknowledgement deadline (10 s): past that Pub/Sub redelivers,
// and an answer helps nobody.
const answerWithin = 8 * time.Second

// drain is read of a request that is refused: a client that is still sending might never see the answer otherwise.
const drain = 32 << 20

// DeadLetterPath is where the dead-letter topic's subscription pushes to.
const DeadLetterPath = "/dead-letter"

// Handler serves the push endpoints. Pub/Sub calls them (POST / and POST DeadLetterPath), with the push subscription's token, which the handler
// around it has checked. Every status but 2xx makes Pub/Sub deliver again, in the end to the dead-letter topic:
// https://docs.cloud.google.com/pubsub/docs/push
//
//	204  a row is committed, now or earlier
//	400  not a wrapped push; no row. The answer names the setting that is likely wrong
//	413  over the size limit; no row
//	415  a content encoding that is not read here; no row
//	503  the store is out of reach, the outcome is unknown, or the body did not come in time; the redelivery finds out
func Handler(get func(ctx context.Context) (*Receiver, error), log Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), answerWithin)
		defer cancel()
		status, sentence := receive(ctx, w, r, get, log)
		if status == http.StatusNoContent {
			w.WriteHeader(status)
			return
		}
		if status == http.StatusRequestEntityTooLarge || status == http.StatusUnsupportedMediaType {
			_, _ = io.CopyN(io.Discard, r.Body, drain) // whatever comes of it, the answer stands
		}
		http.Error(w, sentence, status)
	})
}

// Logger is the part of *slog.Logger that the handler uses.
type Logger interface {
	WarnContext(ctx context.Context, msg string, args ...any)
	ErrorContext(ctx context.Context, msg string, args ...any)
}

func receive(ctx context.Context, w http.ResponseWriter, r *http.Request, get func(context.Context) (*Receiver, error), log Logger) (int, string) {
	refuse := func(status int, sentence string, ids ...any) (int, string) {
		log.WarnContext(ctx, "request refused: no row", append([]any{"status", status, "why", sentence}, ids...)...)
		return status, sentence
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return refuse(http.StatusUnsupportedMediaType, "a push comes without a content encoding; this one has one")
	}
	body, err := readBody(w, r)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return refuse(http.StatusRequestEntityTooLarge, ErrTooLarge.Error())
	case err != nil && (ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded)): // we stopped reading, because the process ends or the time is up
		return refuse(http.StatusServiceUnavailable, "the request body was not awaited; deliver again")
	case err != nil:
		return refuse(http.StatusBadRequest, "the request body broke off")
	}
	rec, err := get(ctx)
	if err != nil {
		log.ErrorContext(ctx, "the receiver is not ready", "error", err)
		return http.StatusServiceUnavailable, "not ready; deliver again"
	}
	take := rec.Receive
	if r.URL.Path == DeadLetterPath {
		take = rec.ReceiveDeadLetter
	}
	_, err = take(ctx, body)
	var ids []any
	if m, ok := errors.AsType[*MessageError](err); ok {
		ids = []any{"inboxId", m.InboxID, "messageId", m.MessageID, "subscription", m.Subscription}
	}
	var notAPush *pushmsg.NotAPushError
	switch {
	case err == nil:
		return http.StatusNoContent, ""
	case errors.As(err, &notAPush):
		return refuse(http.StatusBadRequest, notAPush.Sentence)
	case errors.Is(err, ErrTooLarge):
		return refuse(http.StatusRequestEntityTooLarge, err.Error(), ids...)
	}
	log.ErrorContext(ctx, "storing a message failed", append([]any{"error", err}, ids...)...)
	return http.StatusServiceUnavailable, "not stored; deliver again"
}

// readBody reads the body into one buffer of its announced size.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	limited := http.MaxBytesReader(w, r.Body, MaxBody)
	if r.ContentLength > MaxBody {
		return nil, &http.MaxBytesError{Limit: MaxBody}
	}
	if r.ContentLength > 0 {
		body := make([]byte, r.ContentLength)
		if _, err := io.ReadFull(limited, body); err != nil {
			return nil, err
		}
		return body, nil
	}
	return io.ReadAll(limited)
}
