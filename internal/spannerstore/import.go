package spannerstore

import (
	"context"
	"fmt"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// Announced returns those of the objects that a row of the consumer refers to, in this generation or without saying in
// which. MessagesByClaim serves it.
func (s *Store) Announced(ctx context.Context, consumer string, objects []inbox.Object) (map[inbox.Object]bool, error) {
	return readAnnounced(ctx, s.single(readAs{"inbox-import", priorityMedium}), consumer, objects)
}

func readAnnounced(ctx context.Context, txn reader, consumer string, objects []inbox.Object) (map[inbox.Object]bool, error) {
	if len(objects) == 0 {
		return nil, nil
	}
	prefixes := make([]spanner.KeySet, len(objects))
	for i, o := range objects {
		prefixes[i] = spanner.Key{o.URI()}.AsPrefix()
	}
	type reference struct {
		uri        string
		generation int64
	}
	known := map[reference]bool{}
	rows := txn.ReadWithOptions(ctx, "Messages", spanner.KeySets(prefixes...), []string{"ClaimUri", "ClaimGeneration", "Consumer"},
		&spanner.ReadOptions{Index: "MessagesByClaim", RequestTag: "inbox-import"})
	err := rows.Do(func(row *spanner.Row) error {
		var uri, of string
		var generation spanner.NullInt64
		if err := row.Columns(&uri, &generation, &of); err != nil {
			return err
		}
		if of == consumer {
			known[reference{uri, generation.Int64}] = true
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for messages that refer to %d objects: %w", len(objects), err)
	}
	announced := map[inbox.Object]bool{}
	for _, o := range objects {
		if known[reference{o.URI(), o.Generation}] || known[reference{o.URI(), 0}] {
			announced[o] = true
		}
	}
	return announced, nil
}

// Import is an object that no message has announced, as the message that it would have come as.
type Import struct {
	Arrival inbox.Arrival // without a message id and a transport key: no push owns it
	Object  inbox.Object
	Actor   string // who
	Reason  string // why
}

// Import stores the message with the note of who did it and why, in one transaction, which looks once more whether another
// row refers to the object: a notification may come at this very moment. inbox.ErrExists: its identity has a row, or the
// object has been announced.
func (s *Store) Import(ctx context.Context, i Import) error {
	m := &i.Arrival.Message
	_, err := s.write(ctx, "inbox-import", func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
		announced, err := readAnnounced(ctx, txn, m.Consumer, []inbox.Object{i.Object})
		if err != nil {
			return err
		}
		if announced[i.Object] {
			return inbox.ErrExists
		}
		mutations, err := insertMutations(&i.Arrival)
		if err != nil {
			return err
		}
		return txn.BufferWrite(append(mutations, s.audit(auditEntry{Consumer: m.Consumer,
			Actor: inbox.Text(i.Actor, 256), Action: "import", Reason: i.Reason, InboxID: m.ID, LaneID: m.LaneID, After: m})))
	})
	if spanner.ErrCode(err) == codes.AlreadyExists {
		err = fmt.Errorf("%w: %w", inbox.ErrExists, err)
	}
	if err != nil {
		return fmt.Errorf("import %s as message %s: %w", i.Object.Pinned(), m.ID, err)
	}
	return nil
}
