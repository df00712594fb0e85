package relayer

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/routing"
)

// fetch reads a payload that is kept beside its row. It is checked against what was received: nothing else is ever sent.
func (w worker) fetch(ctx context.Context, m *inbox.Message, content *inbox.Content) (inbox.Answer, bool) {
	if content.PayloadLocation == "" {
		return inbox.Answer{}, true
	}
	o, err := inbox.ParseLocation(content.PayloadLocation)
	if err != nil {
		return parked(inbox.ClaimMissing, "LOCATION", "the row's payload location cannot be read"), false
	}
	o.SHA256 = content.PayloadSHA256
	ctx, cancel := w.whileLeased(ctx)
	defer cancel()
	limit := max(o.Bytes, content.PayloadBytes)
	body, err := w.Objects.Read(ctx, o, limit)
	if errors.Is(err, inbox.ErrObjectMissing) {
		// An operator may just have made it anew. Its name and its hash say what it is, whatever the generation.
		live := o
		live.Generation = 0
		if found, statErr := w.Objects.Stat(ctx, live); statErr == nil {
			body, err = w.Objects.Read(ctx, found.Object, limit)
		} else if !errors.Is(statErr, inbox.ErrObjectMissing) {
			err = statErr
		}
	}
	switch {
	case err == nil:
		content.Body, content.HasBody = body, true
		return inbox.Answer{}, true
	case errors.Is(err, inbox.ErrObjectMissing):
		return parked(inbox.ClaimMissing, "PAYLOAD_MISSING", "the object that keeps its payload is gone"), false
	case errors.Is(err, inbox.ErrObjectChanged), errors.Is(err, inbox.ErrObjectTooLarge):
		return parked(inbox.ClaimChanged, "PAYLOAD_CHANGED", "the object that keeps its payload is not what was received"), false
	}
	w.Log.ErrorContext(ctx, "reading a payload failed", "inboxId", m.ID, "object", o.Pinned(), "error", err)
	return notAsked("LOAD", "the object that keeps its payload could not be read"), false
}

// claim finds what a message refers to, and writes down in m and in what expressions see what it has found. The generation
// that is there at first sight is the one that stays.
func (w worker) claim(ctx context.Context, m *inbox.Message, in *routing.Input) (inbox.Answer, bool) {
	policy := w.Routes[m.Route].Claim
	if policy == nil {
		return inbox.Answer{}, true
	}
	ref := m.Claim
	if ref.IsZero() {
		// Stored before its route had a claim, or parked for one that could not be read.
		var contract *routing.ContractError
		var err error
		if ref, err = w.Router.Claim(m.Route, *in); errors.As(err, &contract) {
			return parked(inbox.Contract, "CONTRACT", contract.Detail), false
		} else if err != nil {
			w.Log.ErrorContext(ctx, "evaluating a claim failed", "inboxId", m.ID, "route", m.Route, "error", err)
			return notAsked("ROUTE", "its claim could not be evaluated"), false
		}
	}
	if !slices.Contains(w.Buckets, ref.Bucket) {
		return parked(inbox.Contract, "CONTRACT", "claim: its bucket is none of those in claimCheck.buckets"), false
	}
	ctx, cancel := w.whileLeased(ctx)
	defer cancel()
	found, err := w.Objects.Stat(ctx, ref)
	if err != nil {
		return w.unclaimed(ctx, m, ref, err), false
	}
	if m.Claim.Generation != found.Generation {
		// Written down before the engine hears of it: whatever becomes of this attempt, another one hands on the same.
		m.Claim = found.Object
		switch err := w.Store.PinClaim(ctx, m, w.lane.lane); {
		case errors.Is(err, inbox.ErrConflict):
			return inbox.Answer{Verdict: engine.NotStarted}, false // the attempt is another's now
		case err != nil:
			w.Log.ErrorContext(ctx, "writing down what a message refers to failed", "inboxId", m.ID, "error", err)
			return notAsked("LOAD", "what it refers to could not be written down"), false
		}
	}
	in.Claim = &routing.Claim{Object: found.Object, ContentType: found.ContentType}
	if policy.Read {
		if in.Claim.Content, err = w.Objects.Read(ctx, found.Object, policy.MaxBytes); err != nil {
			return w.unclaimed(ctx, m, found.Object, err), false
		}
	}
	return inbox.Answer{}, true
}

// unclaimed maps an error of Cloud Storage to an answer. A permission error does not tell whether the object exists, so it is
// retried; only a missing object is waited for, and its message parked in the end.
func (w worker) unclaimed(ctx context.Context, m *inbox.Message, ref inbox.Object, err error) inbox.Answer {
	switch {
	case errors.Is(err, inbox.ErrObjectMissing):
		return inbox.Answer{Verdict: engine.NotWaiting, Code: inbox.CodeClaimMissing, Detail: "the object that it refers to is not there",
			Missed: inbox.ClaimMissing, NotAsked: true}
	case errors.Is(err, inbox.ErrObjectChanged):
		return parked(inbox.ClaimChanged, "CLAIM_CHANGED", "the object that it refers to has been replaced, or its content is not what the message says")
	case errors.Is(err, inbox.ErrObjectTooLarge):
		return parked(inbox.PayloadTooLarge, "CLAIM_TOO_LARGE", "the object that it refers to is over claim.maxBytes")
	case errors.Is(err, inbox.ErrObjectForbidden):
		w.Log.ErrorContext(ctx, "no permission to see the object that a message refers to", "inboxId", m.ID, "bucket", ref.Bucket)
		return notAsked("CLAIM_FORBIDDEN", "the relay has no permission to see the object that it refers to")
	}
	// Neither the object's name nor the error, which repeats it: it is a value of the message.
	var answered *inbox.ObjectError
	errors.As(err, &answered)
	w.Log.ErrorContext(ctx, "reading the object that a message refers to failed", "inboxId", m.ID, "bucket", ref.Bucket, "status", answered.HTTPStatus())
	return notAsked("CLAIM_UNAVAILABLE", "the object that it refers to could not be read at the moment")
}

// finishObjects marks the objects of messages that have finished, once that is committed: an open message's object is never
// marked. What fails here, reconcile mends.
func (r *run) finishObjects(ctx context.Context, finished []*inbox.Message) {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	var all sync.WaitGroup
	slots := make(chan struct{}, 8)
	for _, m := range finished {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			o, err := inbox.ParseLocation(m.PayloadLocation)
			if err == nil {
				err = r.Objects.Finish(ctx, o, m.ProcessedAt)
			}
			if err != nil {
				r.Log.WarnContext(ctx, "the object of a finished message was not marked for deletion; inboxctl reconcile does it", "inboxId", m.ID, "error", err)
			}
		})
	}
	all.Wait()
}
