package spannerstore

import (
	"context"
	"fmt"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// PinClaim writes down which object the relay has found behind m's reference, while the attempt of m still stands and no
// other generation is pinned. inbox.ErrConflict: one of the two is not so, and nothing was written.
func (s *Store) PinClaim(ctx context.Context, m *inbox.Message) error {
	_, err := s.write(ctx, "inbox-pin", func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
		row, err := txn.ReadRow(ctx, "Messages", spanner.Key{m.ID}, []string{"Status", "Attempts", "ClaimGeneration"})
		if spanner.ErrCode(err) == codes.NotFound {
			return inbox.ErrConflict
		}
		if err != nil {
			return err
		}
		var status string
		var attempts int64
		var pinned spanner.NullInt64
		if err := row.Columns(&status, &attempts, &pinned); err != nil {
			return err
		}
		if inbox.Status(status) != inbox.Processing || attempts != m.Attempts || (pinned.Valid && pinned.Int64 != m.Claim.Generation) {
			return inbox.ErrConflict
		}
		return txn.BufferWrite([]*spanner.Mutation{spanner.Update("Messages",
			[]string{"InboxId", "ClaimUri", "ClaimGeneration", "ClaimSha256"},
			[]any{m.ID, claimURI(m.Claim), nullInt(m.Claim.Generation), nullString(m.Claim.SHA256)})})
	})
	if err != nil {
		return fmt.Errorf("pin the claim of message %s: %w", m.ID, err)
	}
	return nil
}
