package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// dueKeys is how many lanes have a due message in a measured pass.
const dueKeys = 50

// measurePass compares a relay's pass over a few due messages beside no finished rows and beside many, half of which are in
// the very lanes that are due.
func measurePass(ctx context.Context, w *world, size sizes, r *results) error {
	cfg, err := w.config()
	if err != nil {
		return err
	}
	bare, err := w.database(ctx)
	if err != nil {
		return err
	}
	full, err := w.database(ctx)
	if err != nil {
		return err
	}
	if err := w.loadFinished(ctx, full, size.finished); err != nil {
		return err
	}
	type pass struct {
		rows, calls int
		took        time.Duration
	}
	measure := func(db *database) (pass, error) {
		for range 10 {
			var bodies [][]byte
			for k := range dueKeys {
				bodies = append(bodies, w.push(fmt.Sprintf("DUE-%d", k), 300))
			}
			if err := w.receiveAll(ctx, db, bodies); err != nil {
				return pass{}, err
			}
			relay, err := w.relayWith(db, cfg, instant{})
			if err != nil {
				return pass{}, err
			}
			db.reset()
			took, err := timed(func() error {
				s, err := relay.Run(ctx, true, nil, nil)
				if err == nil && s.Processed != dueKeys {
					err = fmt.Errorf("processed %d of %d", s.Processed, dueKeys)
				}
				return err
			})
			if err != nil {
				return pass{}, err
			}
			calls, _, aborted := db.counted()
			if aborted == 0 { // else some reads were done twice
				return pass{rows: db.tap.Rows(), calls: calls, took: took}, nil
			}
		}
		return pass{}, errors.New("the emulator has aborted a transaction in each of ten passes")
	}
	var beside [2]pass
	var ratios []float64
	for i := range size.passes + 1 {
		first, err := measure(bare)
		if err != nil {
			return err
		}
		second, err := measure(full)
		if err != nil {
			return err
		}
		beside = [2]pass{first, second}
		if i > 0 { // the first warms up
			ratios = append(ratios, second.took.Seconds()/first.took.Seconds())
		}
	}
	what := fmt.Sprintf("pass: %d due messages beside %d finished rows: ", dueKeys, size.finished)
	r.equal(what+"rows read", float64(beside[1].rows), float64(beside[0].rows))
	r.equal(what+"round trips", float64(beside[1].calls), float64(beside[0].calls))
	r.ratio(what+"time, over the same beside none", median(ratios), 0)
	return nil
}

// instant is an engine that takes everything.
type instant struct{}

func (instant) Properties() engine.Properties {
	return engine.Properties{Idempotent: true, Timeout: 5 * time.Second}
}

func (instant) Correlate(context.Context, engine.Delivery) engine.Result {
	return engine.Result{Verdict: engine.Correlated, Reference: "instance"}
}

// loadFinished stores processed messages as a relay leaves them, without their payloads: those are gone first.
func (w *world) loadFinished(ctx context.Context, db *database, n int) error {
	const perCommit = 50 // what the emulator takes quickest
	finished := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	row := func(i int) []*spanner.Mutation {
		key := fmt.Sprintf("DONE-%d", i/20)
		if i%2 == 0 {
			key = fmt.Sprintf("DUE-%d", i/2%dueKeys)
		}
		id := inbox.ID(inbox.TransportIdentity, consumer, subscription, fmt.Sprintf("finished-%d", i))
		lane := inbox.LaneID(consumer, "", inbox.OrderPublished, key)
		mutations := []*spanner.Mutation{spanner.InsertMap("Messages", map[string]any{
			"InboxId": id, "Consumer": consumer, "Scope": subscription, "DedupeKey": id, "TransportKey": id, "Subscription": subscription,
			"MessageId": id, "PublishedAt": finished, "ReceivedAt": finished, "MessageType": "WorkOrderCompleted",
			"Route": "work-order-completed", "LaneId": lane, "CorrelationKey": key, "Sequence": 0,
			"OrderedAt": finished.Add(time.Duration(i) * time.Millisecond), "Status": string(inbox.Processed), "Attempts": 1,
			"ProcessedAt": finished, "ContentSha256": id, "PayloadSha256": id, "PayloadBytes": 300,
			"Attributes": spanner.NullJSON{Value: map[string]string{"eventType": "WorkOrderCompleted"}, Valid: true},
			"PurgeAfter": finished.AddDate(100, 0, 0),
		})}
		if i%20 == 1 {
			mutations = append(mutations, spanner.InsertOrUpdateMap("Lanes", map[string]any{
				"LaneId": lane, "Consumer": consumer, "CorrelationKey": key, "Shard": inbox.LaneShard("work-order-completed", "", lane), "LeaseToken": 1,
				"LastSequence": 0, "LastOrderedAt": finished, "LastReceivedAt": finished, "LastInboxId": id,
				"PurgeAt": finished.AddDate(100, 0, 0),
			}))
		}
		return mutations
	}
	return each(ctx, (n+perCommit-1)/perCommit, 2, func(ctx context.Context, chunk int) error {
		var mutations []*spanner.Mutation
		for i := chunk * perCommit; i < min(n, (chunk+1)*perCommit); i++ {
			mutations = append(mutations, row(i)...)
		}
		_, err := db.client.Apply(ctx, mutations, spanner.ApplyAtLeastOnce())
		return err
	})
}

// answerBy has the engine's address answered by h.
func (w *world) answerBy(h http.Handler) { w.engine.Store(&h) }

// keyOf reads the key out of a push.
func keyOf(body []byte) string {
	var push struct {
		Message struct{ Data string }
	}
	var payload struct{ WorkOrderID string }
	if json.Unmarshal(body, &push) != nil {
		return ""
	}
	data, err := base64.StdEncoding.DecodeString(push.Message.Data)
	if err != nil || json.Unmarshal(data, &payload) != nil {
		return ""
	}
	return payload.WorkOrderID
}

// inTurns runs two sides, in another order each round, and returns how long each took.
func inTurns(round int, sides ...func() error) ([2]time.Duration, error) {
	var took [2]time.Duration
	for i := range sides {
		side := (i + round) % len(sides)
		var err error
		if took[side], err = timed(sides[side]); err != nil {
			return took, err
		}
	}
	return took, nil
}
