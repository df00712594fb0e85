package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/apiv1/spannerpb"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"

	"github.com/pubsub-inbox/pubsub-inbox/internal/config"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/rpctap"
	"github.com/pubsub-inbox/pubsub-inbox/internal/receiver"
	"github.com/pubsub-inbox/pubsub-inbox/internal/routing"
	"github.com/pubsub-inbox/pubsub-inbox/internal/spannerstore"
	"github.com/pubsub-inbox/pubsub-inbox/internal/telemetry"
	"github.com/pubsub-inbox/pubsub-inbox/internal/wiring"
)

const (
	consumer     = "work-order-service"
	engineName   = "work-orders"
	subscription = "projects/bench/subscriptions/work-orders"
)

// configuration is what a service would have: several routes, the last of which takes the messages.
const configuration = `
consumer: ` + consumer + `
engines:
  ` + engineName + `: {kind: http, url: "%s", timeout: 5s, idempotent: true}
routes:
  - name: work-order-started
    match: attributes.eventType == "WorkOrderStarted" && attributes.region in ["eu", "us"]
    type: attributes.eventType
    key: payload.workOrderId
    engine: ` + engineName + `
    message: WorkOrderStarted
  - name: work-order-cancelled
    match: attributes.eventType == "WorkOrderCancelled"
    type: attributes.eventType
    key: payload.workOrderId
    engine: ` + engineName + `
    message: WorkOrderCancelled
  - name: work-order-completed
    match: attributes.eventType == "WorkOrderCompleted"
    type: attributes.eventType
    tenant: attributes.tenant
    correlationId: attributes.correlationId
    key: payload.workOrderId
    dedupe: attributes.eventId
    engine: ` + engineName + `
    message: WorkOrderCompleted
    variables: {completedItems: payload.completedItems, completionTimestamp: payload.completionTimestamp}
relay: {parallel: 16, batch: 100, lease: 90s}
`

// world is one emulator, and whatever was started beside it.
type world struct {
	emulator *emulators.Emulator
	instance string
	engine   atomic.Pointer[http.Handler] // who answers at the engine's address
	url      string
	log      *slog.Logger
	numbers  atomic.Int64
	closers  []func() error
}

func newWorld(ctx context.Context) (*world, error) {
	// The log is written as in production, to nowhere.
	w := &world{log: telemetry.NewLogger(io.Discard, telemetry.Options{ProjectID: "bench", Revision: "bench"}),
		instance: fmt.Sprintf("bench-%d", os.Getpid())}
	emulator, err := emulators.StartSpanner(ctx)
	if err != nil {
		return nil, err
	}
	w.emulator = emulator
	w.closers = append(w.closers, emulator.Stop)
	if err := w.serve(); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *world) close() error {
	var all []error
	for i := len(w.closers) - 1; i >= 0; i-- {
		all = append(all, w.closers[i]())
	}
	return errors.Join(all...)
}

// serve serves the engine of the moment on a port of its own.
func (w *world) serve() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	w.url = "http://" + l.Addr().String() + "/events"
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		(*w.engine.Load()).ServeHTTP(rw, r)
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	w.closers = append(w.closers, func() error {
		err := server.Close()
		<-served
		return err
	})
	return nil
}

func (w *world) config() (*config.Config, error) {
	cfg, _, err := config.Parse("bench.yaml", fmt.Appendf(nil, configuration, w.url))
	return cfg, err
}

// number is unique in the world.
func (w *world) number() int64 { return w.numbers.Add(1) }

// database is a new one, with a counted client of its own.
type database struct {
	name   string
	client *spanner.Client
	tap    *rpctap.Tap
	store  *spannerstore.Store

	mu        sync.Mutex
	readWrite int // commits of read-write transactions that were not aborted
	aborted   int // tries
}

func (w *world) database(ctx context.Context) (*database, error) {
	name, err := emulators.NewDatabase(ctx, w.emulator.Host(), "bench", w.instance, fmt.Sprintf("d%d", w.number()))
	if err != nil {
		return nil, err
	}
	db := &database{name: name, tap: &rpctap.Tap{}}
	options := append(emulators.ClientOptions(w.emulator.Host()), db.tap.Options()...)
	if db.client, err = spanner.NewClientWithConfig(ctx, name, emulators.ClientConfig(), options...); err != nil {
		return nil, err
	}
	w.closers = append(w.closers, func() error { db.client.Close(); return nil })
	db.store = spannerstore.New(db.client, time.Now, wiring.NewID)
	// The session is made before anything is counted.
	if err := db.client.Single().Read(ctx, "Relays", spanner.AllKeys(), []string{"Consumer"}).Do(func(*spanner.Row) error { return nil }); err != nil {
		return nil, err
	}
	db.reset()
	return db, nil
}

// reset begins a count.
func (db *database) reset() {
	db.tap.Reset()
	db.mu.Lock()
	db.readWrite, db.aborted = 0, 0
	db.mu.Unlock()
	db.tap.After("Commit", func(_ context.Context, _ int, req, _ any, err error) error {
		db.mu.Lock()
		defer db.mu.Unlock()
		if spanner.ErrCode(err) == codes.Aborted {
			db.aborted++
		} else if commit, ok := req.(*spannerpb.CommitRequest); ok && err == nil && len(commit.GetTransactionId()) > 0 {
			db.readWrite++
		}
		return err
	})
}

// counted returns what was counted since reset.
func (db *database) counted() (calls, readWrite, aborted int) {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.tap.Total(), db.readWrite, db.aborted
}

// receiver is the real one over the given store.
func (w *world) receiver(store receiver.Store) (*receiver.Receiver, error) {
	cfg, err := w.config()
	if err != nil {
		return nil, err
	}
	router, err := routing.New(cfg)
	if err != nil {
		return nil, err
	}
	return &receiver.Receiver{Consumer: consumer, Revision: "bench", Store: store, Router: router, Log: w.log, Now: time.Now}, nil
}

// push is the body of a push of a new message of the key. Size is what its payload is padded to.
func (w *world) push(key string, size int) []byte {
	n := w.number()
	payload := fmt.Appendf(nil, `{"workOrderId":%q,"completedItems":%d,"completionTimestamp":"2026-03-02T08:15:30Z","lines":["`, key, n)
	for len(payload) < size-3 {
		payload = append(payload, "abcdefgh"[len(payload)%8])
	}
	payload = append(payload, `"]}`...)
	published := time.Date(2026, 3, 2, 8, 15, 30, 0, time.UTC).Add(time.Duration(n) * time.Millisecond)
	body, err := json.Marshal(map[string]any{
		"message": map[string]any{
			"data": base64.StdEncoding.EncodeToString(payload), "messageId": fmt.Sprint(8_000_000_000 + n),
			"message_id": fmt.Sprint(8_000_000_000 + n), "publishTime": published.Format(time.RFC3339Nano),
			"attributes": map[string]string{"eventType": "WorkOrderCompleted", "eventId": fmt.Sprintf("evt-%d", n), "tenant": "acme",
				"correlationId": fmt.Sprintf("corr-%d", n), "region": "eu",
				"googclient_traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		},
		"subscription": subscription, "deliveryAttempt": 1,
	})
	if err != nil {
		panic(err) // strings and numbers
	}
	return body
}

// pushes are n messages over the given number of keys, in turns.
func (w *world) pushes(n, keys int) [][]byte {
	run := w.number()
	bodies := make([][]byte, n)
	for i := range bodies {
		bodies[i] = w.push(fmt.Sprintf("WO-%d-%d", run, i%keys), 300)
	}
	return bodies
}

// each does n things, so many at a time.
func each(ctx context.Context, n, atATime int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	next := atomic.Int64{}
	for range atATime {
		group.Go(func() error {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(ctx, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// timed says how long f took.
func timed(f func() error) (time.Duration, error) {
	began := time.Now()
	err := f()
	return time.Since(began), err
}
