package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/config"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/routing"
	"github.com/pubsub-inbox/pubsub-inbox/internal/spannerstore"
)

// importer makes messages of objects that none has announced.
type importer struct {
	*reconciler
	cfg    *config.Config
	route  config.Route
	router *routing.Router // of this route alone
	bucket string
}

func (r *reconciler) importer() (*importer, error) {
	f := r.flags
	cfg, _, err := r.routes(f.config)
	if err != nil {
		return nil, err
	}
	i := &importer{reconciler: r, cfg: cfg, bucket: f.bucket}
	at := slices.IndexFunc(cfg.Routes, func(route config.Route) bool { return route.Name == f.route })
	if at < 0 {
		return nil, usage("--route is %q, and the configuration has no such route", f.route)
	}
	i.route = cfg.Routes[at]
	if i.bucket == "" && len(cfg.ClaimCheck.Buckets) == 1 {
		i.bucket = cfg.ClaimCheck.Buckets[0]
	}
	switch {
	case i.route.Claim == nil:
		return nil, fmt.Errorf("route %s has no claim: its messages refer to no object", f.route)
	case i.route.Dedupe.Absent():
		return nil, fmt.Errorf("route %s has no dedupe: a notification that comes late would run a second time", f.route)
	case i.route.Scope != config.ScopeConsumer && f.subscription == "":
		return nil, usage("route %s tells messages apart in each subscription: give --subscription, that of the notifications, so that one which comes late is known", f.route)
	case i.bucket == "":
		return nil, usage("--bucket is missing: claimCheck.buckets has %d", len(cfg.ClaimCheck.Buckets))
	case !slices.Contains(cfg.ClaimCheck.Buckets, i.bucket):
		return nil, usage("--bucket is %q, which is none of those in claimCheck.buckets", i.bucket)
	case i.bucket == r.objects.Bucket():
		return nil, usage("gs://%s keeps our own payloads (%s): they are no sender's", i.bucket, config.EnvPayloadBucket)
	}
	only := *cfg
	only.Routes = []config.Route{i.route}
	if i.router, err = routing.New(&only); err != nil {
		return nil, err
	}
	return i, nil
}

func (i *importer) walk() error {
	return i.reconciler.walk(func(ctx context.Context, limit int) error {
		last, err := i.slice(ctx, limit)
		if err == nil {
			i.cursor = cursor{Phase: phaseImport, Name: last}
			if last == "" {
				i.cursor = cursor{Phase: phaseEnd}
			}
		}
		return err
	})
}

func (i *importer) slice(ctx context.Context, limit int) (last string, err error) {
	found, last, err := i.list(ctx, i.bucket, i.flags.prefix, limit)
	if err != nil {
		return "", err
	}
	memory, err := i.store.Memory(ctx, i.cfg.Consumer)
	if err != nil {
		return "", err
	}
	remembered := memory.Since(i.now(), i.cfg.Retention.Processed).Add(importMargin)
	var old []inbox.Object
	created := map[inbox.Object]time.Time{}
	for _, o := range found {
		switch {
		case o.Created.Before(i.flags.since):
			i.counts.before++
		case i.young(o):
		case !o.Created.After(remembered):
			i.counts.forgotten++ // the message that announced it may have been deleted since
		default:
			old = append(old, inbox.Object{Bucket: o.Bucket, Name: o.Name, Generation: o.Generation})
			created[old[len(old)-1]] = o.Created
		}
	}
	announced, err := i.store.Announced(ctx, i.cfg.Consumer, old)
	if err != nil {
		return "", err
	}
	for _, o := range old {
		if announced[o] {
			continue
		}
		f, err := i.object(ctx, o, created[o])
		if err != nil {
			return "", err
		}
		if f == nil {
			continue
		}
		if err := i.handle(ctx, []*finding{f}); err != nil {
			return "", err
		}
	}
	return last, nil
}

// importMargin is how much sooner an object is too old than the inbox's memory ends: clocks differ, messages finish late, and
// relays of two revisions may keep to two retentions for a while.
const importMargin = 24 * time.Hour

// errAnotherRoute: the route does not take the object.
var errAnotherRoute = errors.New("the route does not match it")

// object says what is to be done about an object that no message refers to. Nil: nothing.
func (i *importer) object(ctx context.Context, o inbox.Object, created time.Time) (*finding, error) {
	f := &finding{Kind: "unannounced", Object: o.Pinned()}
	resource, err := i.objects.Resource(ctx, o)
	if errors.Is(err, inbox.ErrObjectMissing) {
		return nil, nil // deleted or replaced since it was listed
	}
	var arrival *inbox.Arrival
	if err == nil {
		arrival, err = i.announce(o, created, resource)
	}
	switch {
	case errors.Is(err, errAnotherRoute):
		i.counts.unmatched++
		return nil, nil
	case err != nil:
		f.Detail = "no message refers to it"
		f.fail(err)
		return f, nil
	}
	// The identity says so where a message was stored before its route had a claim.
	rows, err := i.store.Rows(ctx, []string{arrival.Message.ID})
	if err != nil {
		return nil, err
	}
	if row, ok := rows[arrival.Message.ID]; ok {
		of := inbox.AnnouncedGeneration(row.Attributes)
		if of == 0 || of == o.Generation {
			return nil, nil
		}
		f.InboxID, f.Status, f.hopeless = row.ID, state(&row.Message), true
		f.Detail = fmt.Sprintf("no message refers to it, and message %s, of generation %d, has its identity: the dedupe of route %s does not read the generation",
			row.ID, of, printable(i.route.Name))
		return f, nil
	}
	m := &arrival.Message
	f.InboxID, f.Status, f.Detail = m.ID, state(m), "no message refers to it"
	f.Mend = "imported by route " + printable(m.Route)
	f.mend = func(ctx context.Context) error {
		err := i.store.Import(ctx, spannerstore.Import{Arrival: *arrival, Object: o, Actor: i.flags.act.actor, Reason: i.flags.act.reason})
		if errors.Is(err, inbox.ErrExists) {
			return errNotNow
		}
		return err
	}
	return f, nil
}

// announce is what the receipt of the object's notification would have made, but for the message id and what only a push has.
// https://docs.cloud.google.com/storage/docs/pubsub-notifications
func (i *importer) announce(o inbox.Object, created time.Time, resource []byte) (*inbox.Arrival, error) {
	published := created.UTC()
	attributes := map[string]string{
		"bucketId": o.Bucket, "objectId": o.Name, "objectGeneration": strconv.FormatInt(o.Generation, 10),
		"eventType": "OBJECT_FINALIZE", "eventTime": published.Format(time.RFC3339Nano), "payloadFormat": "JSON_API_V1",
	}
	in := routing.Input{Subscription: i.flags.subscription, PublishTime: published, Attributes: attributes, Payload: resource}
	d := i.router.Route(in)
	switch {
	case d.Park == inbox.NoRoute:
		return nil, errAnotherRoute
	case d.DedupeKey == "":
		return nil, fmt.Errorf("its dedupe gives no key; a notification that comes late would run a second time: %s", d.ParkDetail)
	case d.DedupeKey != i.withOtherFacts(in).DedupeKey:
		return nil, errors.New("its dedupe reads what only the notification has, such as message.id; one that comes late would run a second time")
	case d.Claim.URI() != o.URI(), d.Claim.Generation != 0 && d.Claim.Generation != o.Generation:
		return nil, fmt.Errorf("its claim refers to another object, or to none: %s", d.ParkDetail)
	}
	m := inbox.Message{
		Consumer: i.cfg.Consumer, Subscription: inbox.Text(i.flags.subscription, inbox.MaxTransport),
		PublishedAt: published, OrderedAt: published, Attributes: attributes,
		ContentSHA256: inbox.ContentSHA256(resource, attributes, i.cfg.TraceAttributes...), PayloadSHA256: inbox.SHA256(resource), PayloadBytes: int64(len(resource)),
	}
	m.Identify(d.DedupeKey, d.ConsumerScope)
	place(&m, d)
	m.Arrive(d.Park, d.ParkDetail)
	return &inbox.Arrival{Message: m, Body: resource}, nil
}

// withOtherFacts decides once more, over what a notification of the same object could have in place of what is made up here.
func (i *importer) withOtherFacts(in routing.Input) routing.Decision {
	in.MessageID, in.OrderingKey, in.PublishTime = "1", "other", in.PublishTime.Add(time.Second)
	attributes := map[string]string{"notificationConfig": "projects/_/buckets/" + i.bucket + "/notificationConfigs/1"}
	for name, value := range in.Attributes {
		attributes[name] = value
	}
	attributes["eventTime"] = in.PublishTime.Format(time.RFC3339Nano)
	in.Attributes = attributes
	return i.router.Route(in)
}
