package wiring

import (
	"context"
	"time"

	"google.golang.org/api/option"

	"github.com/pubsub-inbox/pubsub-inbox/internal/config"
	"github.com/pubsub-inbox/pubsub-inbox/internal/spannerstore"
)

// Store opens the database, with a database role unless that is empty. The caller closes the store.
func Store(ctx context.Context, lookup config.Lookup, database, role string, now func() time.Time, opts ...option.ClientOption) (*spannerstore.Store, error) {
	store, err := spannerstore.OpenAs(ctx, database, role, now, NewID, opts...)
	if err != nil {
		return nil, err
	}
	if host, ok := lookup("SPANNER_EMULATOR_HOST"); ok && host != "" {
		return store.OneByOne(), nil
	}
	return store, nil
}
