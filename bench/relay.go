package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/config"
	"github.com/pubsub-inbox/pubsub-inbox/internal/demoengine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/relayer"
	"github.com/pubsub-inbox/pubsub-inbox/internal/routing"
	"github.com/pubsub-inbox/pubsub-inbox/internal/wiring"
)

// commitsPerMessage is the limit of read-write commits where a batch is due.
const commitsPerMessage = 0.03

// measureRelay compares, in turns: scan, claim, load, evaluate, call and settle, beside the calls alone.
func measureRelay(ctx context.Context, w *world, size sizes, r *results) error {
	for _, lanes := range []int{size.lanes, 1} {
		db, err := w.database(ctx)
		if err != nil {
			return err
		}
		in := fmt.Sprintf("relay: %d messages in %d lanes: ", size.backlog, lanes)
		if lanes == 1 {
			in = fmt.Sprintf("relay: %d messages in 1 lane: ", size.backlog)
		}
		var ratios, commits, calls []float64
		for range size.relays {
			bodies := w.pushes(size.backlog, lanes)
			if err := w.receiveAll(ctx, db, bodies); err != nil {
				return err
			}
			rec, relay, err := w.relay(db)
			if err != nil {
				return err
			}
			w.expect(bodies)
			db.reset()
			took, err := timed(func() error {
				s, err := relay.Run(ctx, true, nil, nil)
				if err == nil && s.Processed != size.backlog {
					err = fmt.Errorf("processed %d of %d", s.Processed, size.backlog)
				}
				return err
			})
			if err != nil {
				return err
			}
			all, readWrite, aborted := db.counted()
			n := float64(size.backlog)
			commits, calls = append(commits, float64(readWrite)/n), append(calls, float64(all-aborted)/n)

			w.expect(bodies)
			bare, err := w.callBare(ctx, rec.deliveries)
			if err != nil {
				return err
			}
			ratios = append(ratios, took.Seconds()/bare.Seconds())
		}
		r.count(in+"read-write commits a message", median(commits), commitsPerMessage)
		r.count(in+"round trips a message", median(calls), -1)
		r.ratio(in+"time, over the bare calls", median(ratios), 0)
	}
	return nil
}

// receiveAll stores bodies through the real receiver.
func (w *world) receiveAll(ctx context.Context, db *database, bodies [][]byte) error {
	rec, err := w.receiver(db.store)
	if err != nil {
		return err
	}
	return each(ctx, len(bodies), 16, func(ctx context.Context, i int) error {
		_, err := rec.Receive(ctx, bodies[i])
		return err
	})
}

// relay is the real one, with the real adapter behind a recorder.
func (w *world) relay(db *database) (*recorder, *relayer.Relayer, error) {
	cfg, err := w.config()
	if err != nil {
		return nil, nil, err
	}
	adapter, err := adapterOf(cfg)
	if err != nil {
		return nil, nil, err
	}
	rec := &recorder{Engine: adapter}
	r, err := w.relayWith(db, cfg, rec)
	return rec, r, err
}

func (w *world) relayWith(db *database, cfg *config.Config, e engine.Engine) (*relayer.Relayer, error) {
	router, err := routing.New(cfg)
	if err != nil {
		return nil, err
	}
	return relayer.New(relayer.FromConfig(cfg, "bench"), relayer.Deps{
		Store: db.store, Router: router, Engines: map[string]engine.Engine{engineName: e}, Log: w.log, Now: time.Now, After: time.After,
		NewID: wiring.NewID, Rand: wiring.NewRand,
	}), nil
}

func adapterOf(cfg *config.Config) (engine.Engine, error) {
	engines, err := wiring.Engines(cfg, func(string) (string, bool) { return "", false })
	if err != nil {
		return nil, err
	}
	return engines[engineName], nil
}

// recorder notes what its engine is asked.
type recorder struct {
	engine.Engine
	mu         sync.Mutex
	deliveries []engine.Delivery
}

func (r *recorder) Correlate(ctx context.Context, d engine.Delivery) engine.Result {
	r.mu.Lock()
	r.deliveries = append(r.deliveries, d)
	r.mu.Unlock()
	return r.Engine.Correlate(ctx, d)
}

// callBare makes the same calls again, with an adapter and connections of its own: keys side by side, as many as a relay
// has call slots, and the messages of a key one after another.
func (w *world) callBare(ctx context.Context, deliveries []engine.Delivery) (time.Duration, error) {
	cfg, err := w.config()
	if err != nil {
		return 0, err
	}
	adapter, err := adapterOf(cfg)
	if err != nil {
		return 0, err
	}
	byKey := map[string][]engine.Delivery{}
	var keys []string
	for _, d := range deliveries {
		d.BeforeSend = nil
		if byKey[d.Key] == nil {
			keys = append(keys, d.Key)
		}
		byKey[d.Key] = append(byKey[d.Key], d)
	}
	return timed(func() error {
		return each(ctx, len(keys), cfg.Relay.Parallel, func(ctx context.Context, i int) error {
			for _, d := range byKey[keys[i]] {
				if res := adapter.Correlate(ctx, d); res.Verdict != engine.Correlated {
					return fmt.Errorf("a bare call is %s: %s", res.Verdict, res.Detail)
				}
			}
			return nil
		})
	})
}

// expect puts a new engine up, in which an instance of each key waits for its messages.
func (w *world) expect(bodies [][]byte) {
	waits := map[string][]string{}
	for _, body := range bodies {
		key := keyOf(body)
		waits[key] = append(waits[key], "WorkOrderCompleted")
	}
	e := demoengine.New(demoengine.Options{})
	for key, messages := range waits {
		e.Start(key, messages...)
	}
	w.answerBy(e)
}
