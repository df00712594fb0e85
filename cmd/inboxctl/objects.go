package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pubsub-inbox/pubsub-inbox/internal/claimcheck"
	"github.com/pubsub-inbox/pubsub-inbox/internal/config"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/spannerstore"
)

// elsewhereError is an error of another service than the database.
type elsewhereError struct {
	error
	hint string
}

func (e *elsewhereError) Unwrap() error { return e.error }

// withObjects runs f on Cloud Storage. The bucket for payloads is that of the environment; there may be none.
func (a *app) withObjects(f func(objects *claimcheck.Store) error) error {
	bucket, _ := a.lookup(config.EnvPayloadBucket)
	if bucket != "" {
		if _, err := inbox.Reference(bucket, "x", "", ""); err != nil {
			return usage("%s is %q; it must be a bare bucket name, without gs:// and folders", config.EnvPayloadBucket, bucket)
		}
	}
	objects := claimcheck.New(bucket, a.storageOptions...)
	return errors.Join(f(objects), objects.Close())
}

// objectError makes a sentence of what became of the object that keeps a payload: a refusal where it cannot be had any more,
// and otherwise an error that says what to do.
func objectError(o inbox.Object, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, inbox.ErrObjectMissing):
		return &spannerstore.RefusedError{Why: fmt.Sprintf("its payload is the object %s, which is gone; `inboxctl reconcile` looks for another generation of it", o.Pinned())}
	case errors.Is(err, inbox.ErrObjectChanged), errors.Is(err, inbox.ErrObjectTooLarge):
		return &spannerstore.RefusedError{Why: fmt.Sprintf("its payload is the object %s, and what is there is not what was received: %v", o.Pinned(), err)}
	case errors.Is(err, inbox.ErrObjectForbidden):
		return &elsewhereError{fmt.Errorf("its payload is the object %s, which you may not see: %w", o.Pinned(), err),
			"Let a role such as roles/storage.objectUser on gs://" + o.Bucket + " be granted to you."}
	}
	return &elsewhereError{error: err}
}

// readPayload returns a payload that is an object: this generation of it, and only if it is what was received.
func readPayload(ctx context.Context, objects *claimcheck.Store, location, sha256 string) ([]byte, error) {
	o, err := inbox.ParseLocation(location)
	if err != nil {
		return nil, &spannerstore.RefusedError{Why: fmt.Sprintf("where its payload is cannot be read: %v", err)}
	}
	o.SHA256 = sha256 // what the row says of it counts
	body, err := objects.Read(ctx, o, o.Bytes)
	return body, objectError(o, err)
}

// equal returns what is there of o: its generation, or another one with the same content, which is read to tell.
func equal(ctx context.Context, objects *claimcheck.Store, o inbox.Object) (inbox.FoundObject, error) {
	found, err := objects.Stat(ctx, o)
	if !errors.Is(err, inbox.ErrObjectChanged) {
		return found, err
	}
	live := o
	live.Generation = 0
	if found, err = objects.Stat(ctx, live); err != nil {
		return inbox.FoundObject{}, err
	}
	if found.Bytes != o.Bytes {
		return inbox.FoundObject{}, fmt.Errorf("look at %s: it has %d bytes: %w", found.Pinned(), found.Bytes, inbox.ErrObjectChanged)
	}
	_, err = objects.Read(ctx, found.Object, o.Bytes)
	return found, err
}

// withStoreAndObjects runs f on the database and on Cloud Storage.
func (a *app) withStoreAndObjects(cmd *cobra.Command, f func(store *spannerstore.Store, objects *claimcheck.Store) error) error {
	return a.withStore(cmd, func(store *spannerstore.Store) error {
		return a.withObjects(func(objects *claimcheck.Store) error { return f(store, objects) })
	})
}
