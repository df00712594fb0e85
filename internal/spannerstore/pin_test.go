package spannerstore_test

import (
	"errors"
	"testing"

	"cloud.google.com/go/spanner"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// A pin says what an engine is told of. The worker that writes it down may be late: its attempt may be over, or a later one may
// have begun, under another lease or, once a person has reopened the message, with the same number.
func TestPinningAClaimNeedsTheAttemptAndItsLease(t *testing.T) {
	w := newWorld(t)
	for n, tt := range []struct {
		name     string
		meantime string // what somebody else does to the message @id or its lane @lane
		pinned   int64  // the generation that stands afterwards; 0: none
		conflict bool
	}{
		{"all stands", "", 7, false},
		{"the same generation is pinned", "UPDATE Messages SET ClaimGeneration = 7 WHERE InboxId = @id", 7, false},
		{"another generation is pinned", "UPDATE Messages SET ClaimGeneration = 6 WHERE InboxId = @id", 6, true},
		{"the attempt is over", "UPDATE Messages SET Status = 'PARKED' WHERE InboxId = @id", 0, true},
		{"another attempt has begun", "UPDATE Messages SET Attempts = 2 WHERE InboxId = @id", 0, true},
		{"another relay holds the lane", "UPDATE Lanes SET LeaseOwner = 'other' WHERE LaneId = @lane", 0, true},
		{"the same relay holds it anew", "UPDATE Lanes SET LeaseToken = LeaseToken + 1 WHERE LaneId = @lane", 0, true},
		{"nobody holds it", "UPDATE Lanes SET LeaseOwner = NULL, LeaseUntil = NULL WHERE LaneId = @lane", 0, true},
		{"the lane is gone", "DELETE FROM Lanes WHERE LaneId = @lane", 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			key := string(rune('a' + n))
			id := w.insert(key, 1, func(m *inbox.Message) { m.Claim = inbox.Object{Bucket: "b", Name: "report"} })
			plan, _ := w.claim(w.store, "relay")
			if len(plan.Claimed) != 1 || plan.Claimed[0].Messages[0].ID != id {
				t.Fatalf("claimed %+v, want the one message", plan.Claimed)
			}
			m, lane := plan.Claimed[0].Messages[0], plan.Claimed[0].Lane
			if tt.meantime != "" {
				w.sql(tt.meantime, map[string]any{"id": id, "lane": lane.ID})
			}
			m.Claim.Generation = 7
			err := w.store.PinClaim(t.Context(), m, lane)
			if errors.Is(err, inbox.ErrConflict) != tt.conflict || (err != nil) != tt.conflict {
				t.Errorf("pinning says %v, want a conflict: %t", err, tt.conflict)
			}
			var pinned spanner.NullInt64
			w.query("SELECT ClaimGeneration FROM Messages WHERE InboxId = @id", map[string]any{"id": id}, &pinned)
			if pinned.Int64 != tt.pinned {
				t.Errorf("generation %d is written down, want %d", pinned.Int64, tt.pinned)
			}
		})
	}
}

func TestPinningTheClaimOfAMessageThatIsGoneIsAConflict(t *testing.T) {
	w := newWorld(t)
	w.insert("a", 1)
	plan, _ := w.claim(w.store, "relay")
	m := plan.Claimed[0].Messages[0]
	w.sql("DELETE FROM Messages WHERE InboxId = @id", map[string]any{"id": m.ID})
	if err := w.store.PinClaim(t.Context(), m, plan.Claimed[0].Lane); !errors.Is(err, inbox.ErrConflict) {
		t.Errorf("pinning says %v, want a conflict", err)
	}
}
