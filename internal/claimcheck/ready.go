package claimcheck

import (
	"context"
	"errors"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// Ready says whether the payload bucket's service answers. It asks for an object that nobody makes: that it is not there,
// or that we may not look, is an answer.
func (s *Store) Ready(ctx context.Context) error {
	_, err := s.Stat(ctx, inbox.Object{Bucket: s.bucket, Name: "health"})
	if errors.Is(err, inbox.ErrObjectMissing) || errors.Is(err, inbox.ErrObjectForbidden) {
		return nil
	}
	return err
}
