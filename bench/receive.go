package main

import (
	"context"
	"fmt"
	"sync"

	"cloud.google.com/go/spanner"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// measureReceive compares, in turns: envelope, route, identity, lane and commit, beside the commit alone.
func measureReceive(ctx context.Context, w *world, size sizes, r *results) error {
	db, err := w.database(ctx)
	if err != nil {
		return err
	}
	rec, err := w.receiver(db.store)
	if err != nil {
		return err
	}
	keep := &keeper{}
	planner, err := w.receiver(keep)
	if err != nil {
		return err
	}
	calls, aborted, messages := 0, 0, 0
	var last [][]byte
	for _, atATime := range []int{1, 16} {
		var ratios []float64
		for round := range size.rounds + 1 {
			bodies := w.pushes(size.receives, size.receives/4)
			keep.arrivals = nil
			for _, body := range w.pushes(size.receives, size.receives/4) {
				if _, err := planner.Receive(ctx, body); err != nil {
					return err
				}
			}
			commits := make([][]*spanner.Mutation, len(keep.arrivals))
			for i, a := range keep.arrivals {
				commits[i] = bareRows(a)
			}
			bare := func() error {
				return each(ctx, len(commits), atATime, func(ctx context.Context, i int) error {
					_, err := db.client.Apply(ctx, commits[i], spanner.ApplyAtLeastOnce())
					return err
				})
			}
			whole := func() error {
				db.reset()
				err := each(ctx, len(bodies), atATime, func(ctx context.Context, i int) error {
					outcome, err := rec.Receive(ctx, bodies[i])
					if err == nil && outcome != "stored" {
						err = fmt.Errorf("a new message is %s", outcome)
					}
					return err
				})
				c, _, a := db.counted()
				calls, aborted, messages = calls+c, aborted+a, messages+len(bodies)
				return err
			}
			took, err := inTurns(round, bare, whole)
			if err != nil {
				return err
			}
			if round > 0 { // the first warms up
				ratios = append(ratios, took[1].Seconds()/took[0].Seconds())
			}
			last = bodies
		}
		r.ratio(fmt.Sprintf("receive: time of a new message, over its bare commit, %d at a time", atATime), median(ratios), 0)
	}
	r.count("receive: round trips of a new message", float64(calls-aborted)/float64(messages), 1)

	db.reset()
	for _, body := range last {
		outcome, err := rec.Receive(ctx, body)
		if err == nil && outcome != "known" {
			err = fmt.Errorf("a redelivery is %s", outcome)
		}
		if err != nil {
			return err
		}
	}
	calls, _, aborted = db.counted()
	r.count("receive: round trips of a redelivery", float64(calls-aborted)/float64(len(last)), 3)
	return nil
}

// keeper is a store that keeps what it is given, to be committed bare.
type keeper struct {
	mu       sync.Mutex
	arrivals []*inbox.Arrival
}

func (k *keeper) Insert(_ context.Context, a *inbox.Arrival) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.arrivals = append(k.arrivals, a)
	return nil
}

func (k *keeper) Find(context.Context, []string, string) ([]inbox.Known, error) { return nil, nil }

func (k *keeper) Twin(context.Context, *inbox.Message) (inbox.Twin, error) { return inbox.Twin{}, nil }

func (k *keeper) AddRedelivery(context.Context, inbox.Redelivery) error { return nil }

// bareRows are the rows of an arrival as mutations, ready to be committed.
func bareRows(a *inbox.Arrival) []*spanner.Mutation {
	m := &a.Message
	text := func(s string) spanner.NullString { return spanner.NullString{StringVal: s, Valid: s != ""} }
	return []*spanner.Mutation{
		spanner.Insert("Messages", []string{
			"InboxId", "Consumer", "Scope", "DedupeKey", "TransportKey", "Subscription", "MessageId", "OrderingKey", "PublishedAt",
			"ReceivedAt", "MessageType", "MessageVersion", "Route", "TenantId", "AggregateType", "CorrelationId", "CausationId",
			"TraceParent", "LaneId", "CorrelationKey", "Sequence", "OrderedAt", "Status", "Reason", "Blocks", "LastErrorMessage",
			"Attributes", "ContentSha256", "PayloadSha256", "PayloadBytes", "PayloadLocation", "ReplayOf", "ConflictsWith",
		}, []any{
			m.ID, m.Consumer, m.Scope, m.DedupeKey, text(m.TransportKey), text(m.Subscription), text(m.MessageID), text(m.OrderingKey),
			spanner.NullTime{Time: m.PublishedAt, Valid: true}, spanner.CommitTimestamp, text(m.Type), text(m.Version), text(m.Route),
			text(m.TenantID), text(m.AggregateType), text(m.CorrelationID), text(m.CausationID), text(m.TraceParent), m.LaneID, text(m.Key),
			m.Sequence, m.OrderedAt, string(m.Status), text(string(m.Reason)), m.Blocks, text(m.LastErrorMessage),
			spanner.NullJSON{Value: m.Attributes, Valid: true}, m.ContentSHA256, m.PayloadSHA256, m.PayloadBytes, text(m.PayloadLocation),
			text(m.ReplayOf), text(m.ConflictsWith),
		}),
		spanner.Insert("Payloads", []string{"InboxId", "Body", "ContentType"}, []any{m.ID, a.Body, text(a.ContentType)}),
		spanner.InsertOrUpdate("Lanes", []string{"LaneId", "Consumer", "CorrelationKey", "Shard", "WokenAt", "PurgeAt"},
			[]any{m.LaneID, m.Consumer, text(m.Key), inbox.LaneShard(m.Route, m.TenantID, m.LaneID), spanner.CommitTimestamp, spanner.NullTime{}}),
	}
}
