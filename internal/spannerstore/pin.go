package spannerstore

import (
	"context"
	"fmt"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// PinClaim writes down which object the relay has found behind m's reference, while the attempt of m and the lease of its lane
// still stand, and no other generation is pinned. inbox.ErrConflict: one of the three is not so, and nothing was written. The
// number of an attempt alone says too little: it begins anew when a message is reopened.
func (s *Store) PinClaim(ctx context.Context, m *inbox.Message, lease inbox.Lane) error {
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
		held, err := readLease(ctx, txn, lease.ID)
		if err != nil {
			return err
		}
		if held.LeaseOwner != lease.LeaseOwner || held.LeaseToken != lease.LeaseToken {
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

// readLease reads who holds a lane: nobody where there is no such lane. It reads nothing that a receive writes.
func readLease(ctx context.Context, txn *spanner.ReadWriteTransaction, laneID string) (inbox.Lane, error) {
	lane := inbox.Lane{ID: laneID}
	row, err := txn.ReadRow(ctx, "Lanes", spanner.Key{laneID}, []string{"LeaseOwner", "LeaseToken"})
	if spanner.ErrCode(err) == codes.NotFound {
		return lane, nil
	}
	if err != nil {
		return lane, err
	}
	var owner spanner.NullString
	if err := row.Columns(&owner, &lane.LeaseToken); err != nil {
		return lane, err
	}
	lane.LeaseOwner = owner.StringVal
	return lane, nil
}
