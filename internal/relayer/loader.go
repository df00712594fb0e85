package relayer

import (
	"context"
	"sync"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

const (
	// prefetchEach and prefetchAll bound what a claim reads ahead. A larger payload is read by its worker when its turn
	// comes, so that a process holds at most one for each call slot.
	prefetchEach = 64 << 10
	prefetchAll  = 8 << 20
)

// loader reads what the messages of one claim say: the small ones together, before the first of them is called; the large
// ones one by one.
type loader struct {
	store Store
	ids   []string
	ahead map[string]bool
	once  sync.Once
	read  map[string]inbox.Content
	err   error
}

func (r *run) newLoader(plan inbox.ClaimPlan) *loader {
	l := &loader{store: r.Store, ahead: map[string]bool{}}
	total := int64(0)
	for _, lane := range plan.Claimed {
		for _, m := range lane.Messages {
			// A row costs something beside its payload: its attributes.
			if size := m.PayloadBytes + 1024; m.PayloadBytes <= prefetchEach && total+size <= prefetchAll {
				total += size
				l.ids = append(l.ids, m.ID)
				l.ahead[m.ID] = true
			}
		}
	}
	return l
}

// get returns the content of m, or false if its row is gone. What is read ahead is read within the time of whoever comes first:
// all lanes of a claim have the same lease.
func (l *loader) get(ctx context.Context, m *inbox.Message) (inbox.Content, bool, error) {
	if !l.ahead[m.ID] {
		read, err := l.store.Load(ctx, []string{m.ID})
		content, ok := read[m.ID]
		return content, ok, err
	}
	l.once.Do(func() {
		l.read, l.err = l.store.Load(ctx, l.ids)
	})
	content, ok := l.read[m.ID]
	return content, ok, l.err
}
