package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/emulatortest"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/rpctap"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/pushmsg"
)

var sharedPubSub struct {
	once     sync.Once
	emulator *emulators.Emulator
	err      error
}

func pubSubHost(t *testing.T) string {
	t.Helper()
	sharedPubSub.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		sharedPubSub.emulator, sharedPubSub.err = emulators.StartPubSub(ctx)
	})
	if sharedPubSub.err != nil {
		t.Fatal(sharedPubSub.err)
	}
	return sharedPubSub.emulator.Host()
}

// letters is a dead-letter topic with a pull subscription, and what a drain says to Pub/Sub.
type letters struct {
	w            *world
	topic, name  string
	topics       *pubsub.TopicAdminClient
	subscription *pubsub.SubscriptionAdminClient

	mu       sync.Mutex
	pulled   map[string]string // ack id to message id
	acks     [][]string        // message ids that an acknowledgement named, for each call
	nacked   []string          // message ids
	deadline []int32           // that were asked for, but for nacks
	refuse   func(call int, ids map[string]string) error
	onPull   func() error
}

func newLetters(w *world) *letters {
	w.t.Helper()
	host := pubSubHost(w.t)
	l := &letters{w: w, pulled: map[string]string{}}
	var err error
	if l.topics, err = pubsub.NewTopicAdminClient(context.Background(), emulators.ClientOptions(host)...); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = l.topics.Close() })
	if l.subscription, err = pubsub.NewSubscriptionAdminClient(context.Background(), emulators.ClientOptions(host)...); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = l.subscription.Close() })
	id := w.db[strings.LastIndexByte(w.db, '/')+1:]
	l.topic, l.name = "projects/p/topics/"+id, "projects/p/subscriptions/"+id
	if _, err := l.topics.CreateTopic(w.t.Context(), &pubsubpb.Topic{Name: l.topic}); err != nil {
		w.t.Fatal(err)
	}
	if _, err := l.subscription.CreateSubscription(w.t.Context(), &pubsubpb.Subscription{Name: l.name, Topic: l.topic, AckDeadlineSeconds: 60}); err != nil {
		w.t.Fatal(err)
	}
	w.pubsub = append(emulators.ClientOptions(host), option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(l.intercept)))
	return l
}

func (l *letters) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	switch req := req.(type) {
	case *pubsubpb.AcknowledgeRequest:
		l.mu.Lock()
		ids := map[string]string{}
		for _, id := range req.GetAckIds() {
			ids[l.pulled[id]] = id
		}
		l.acks = append(l.acks, slices.Sorted(maps.Keys(ids)))
		call, refuse := len(l.acks), l.refuse
		l.mu.Unlock()
		if refuse != nil {
			if err := refuse(call, ids); err != nil {
				return err
			}
		}
	case *pubsubpb.ModifyAckDeadlineRequest:
		l.mu.Lock()
		if req.GetAckDeadlineSeconds() > 0 {
			l.deadline = append(l.deadline, req.GetAckDeadlineSeconds())
		} else {
			for _, id := range req.GetAckIds() {
				l.nacked = append(l.nacked, l.pulled[id])
			}
		}
		l.mu.Unlock()
	case *pubsubpb.PullRequest:
		if l.onPull != nil {
			if err := l.onPull(); err != nil {
				return err
			}
		}
	}
	err := invoke(ctx, method, req, reply, cc, opts...)
	if answer, ok := reply.(*pubsubpb.PullResponse); ok && err == nil {
		l.mu.Lock()
		for _, m := range answer.GetReceivedMessages() {
			l.pulled[m.GetAckId()] = m.GetMessage().GetMessageId()
		}
		l.mu.Unlock()
	}
	return err
}

// source are the attributes that Pub/Sub adds to a dead letter of projects/p/subscriptions/s.
func source(more map[string]string) map[string]string {
	attributes := map[string]string{"CloudPubSubDeadLetterSourceSubscription": "s", "CloudPubSubDeadLetterSourceSubscriptionProject": "p",
		"CloudPubSubDeadLetterSourceDeliveryCount": "5", "CloudPubSubDeadLetterSourceTopicPublishTime": "2026-03-04T05:06:07.123+00:00"}
	maps.Copy(attributes, more)
	return attributes
}

// publish publishes one after another, and returns the ids.
func (l *letters) publish(messages ...*pubsubpb.PubsubMessage) []string {
	l.w.t.Helper()
	answer, err := l.topics.Publish(l.w.t.Context(), &pubsubpb.PublishRequest{Topic: l.topic, Messages: messages})
	if err != nil {
		l.w.t.Fatal(err)
	}
	return answer.GetMessageIds()
}

func event(n int) *pubsubpb.PubsubMessage {
	return &pubsubpb.PubsubMessage{Data: fmt.Appendf(nil, `{"key":"WO-%d"}`, n), Attributes: source(map[string]string{"eventId": fmt.Sprintf("event-%d", n)})}
}

func (l *letters) drain(args ...string) answer {
	l.w.t.Helper()
	return l.w.run(append([]string{"drain", "--subscription", l.name, "--wait", "1s"}, args...)...)
}

// summary reads the last line of a drain's or a reconcile's JSON.
func summary(t *testing.T, got answer) map[string]any {
	t.Helper()
	all := objects(t, got.out)
	if len(all) == 0 {
		t.Fatalf("no summary: %+v", got)
	}
	sum, ok := all[len(all)-1]["summary"].(map[string]any)
	if !ok {
		t.Fatalf("no summary: %s", got.out)
	}
	return sum
}

func (l *letters) counted(got answer, pulled, inserted, duplicates, inRun, failed, unacknowledged int) {
	l.w.t.Helper()
	want := map[string]any{"pulled": float64(pulled), "inserted": float64(inserted), "duplicates": float64(duplicates),
		"duplicatesInRun": float64(inRun), "failed": float64(failed), "notAcknowledged": float64(unacknowledged)}
	if diff := cmp.Diff(want, summary(l.w.t, got)); diff != "" {
		l.w.t.Errorf("summary (-want +got):\n%s\nstandard error: %s", diff, got.stderr)
	}
	if wantCode := min(1, failed+unacknowledged); got.code != wantCode {
		l.w.t.Errorf("exit code %d, want %d: %s", got.code, wantCode, got.stderr)
	}
}

const deduped = `{name: r, key: payload.key, dedupe: attributes.eventId, engine: e, message: M}`

func TestC029OneDuplicateDoesNotPoisonABatch(t *testing.T) {
	w := newWorld(t)
	l := newLetters(w)
	cfg := configOf(deduped)
	w.env["INBOX_CONFIG_FILE"] = file(t, cfg)
	for _, n := range []int{3, 7} {
		w.receive(cfg, push(fmt.Sprintf("first-%d", n), fmt.Sprintf(`,"attributes":{"eventId":"event-%d"}`, n), fmt.Sprintf(`{"key":"WO-%d"}`, n)))
	}
	var batch []*pubsubpb.PubsubMessage
	for _, n := range []int{1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10} {
		batch = append(batch, event(n))
	}
	ids := l.publish(batch...)
	got := l.drain("--json", "--batch", "20")
	l.counted(got, 11, 8, 2, 1, 0, 0)
	if n := w.count("SELECT COUNT(DISTINCT DedupeKey) FROM Messages"); n != 10 {
		t.Errorf("%d of 10 events have a row", n)
	}
	if n := w.count("SELECT COUNT(*) FROM Messages"); n != 10 {
		t.Errorf("%d rows of 10 events", n)
	}
	slices.Sort(ids)
	if diff := cmp.Diff([][]string{ids}, l.acks); diff != "" {
		t.Errorf("acknowledged (-want +got):\n%s", diff)
	}
	if n := w.count("SELECT COUNT(*) FROM Messages WHERE Status = 'PARKED' AND Reason = 'DEAD_LETTERED' AND SourceAttempts = 5 AND Subscription = 'projects/p/subscriptions/s'"); n != 8 {
		t.Errorf("%d rows are dead letters of their source, want 8", n)
	}
	for _, attempts := range l.deadline {
		if attempts != 300 {
			t.Errorf("a batch was held for %d seconds", attempts)
		}
	}
	if got := l.drain("--json"); got.code != 0 {
		t.Errorf("the second run: %+v", got)
	} else {
		l.counted(got, 0, 0, 0, 0, 0, 0)
	}
	// The same events once more, as new dead letters.
	l.publish(batch...)
	l.counted(l.drain("--json"), 11, 0, 11, 0, 0, 0)
	got = l.drain()
	if want := l.name + ": pulled 0, inserted 0, duplicates 0 and 0 within this run, failed 0, not acknowledged 0\n"; got.out != want {
		t.Errorf("it says %q, want %q", got.out, want)
	}
}

func TestDrainLeavesWhatCannotBeStoredAndStoresTheRest(t *testing.T) {
	w := newWorld(t)
	l := newLetters(w)
	w.env["INBOX_CONFIG_FILE"] = file(t, configOf(deduped))
	ids := l.publish(event(1), event(2), event(3), event(4), event(5))
	w.tap.Before("Commit", func(_ ctx, _ int, req any) error {
		if strings.Contains(fmt.Sprint(req), "event-4") {
			return rpctap.Error(codes.PermissionDenied)
		}
		return nil
	})
	got := l.drain("--json")
	l.counted(got, 5, 4, 0, 0, 1, 0)
	want := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id == ids[3] })
	slices.Sort(want)
	if diff := cmp.Diff([][]string{want}, l.acks); diff != "" {
		t.Errorf("acknowledged (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{ids[3]}, l.nacked); diff != "" {
		t.Errorf("given back (-want +got):\n%s", diff)
	}
	if !strings.Contains(got.stderr, ids[3]+": not stored, and left in the subscription") || !strings.Contains(got.stderr, "PermissionDenied") || strings.Contains(got.stderr, "WO-4") {
		t.Errorf("standard error: %q", got.stderr)
	}
	for _, m := range objects(t, got.out)[:5] {
		failed := m["messageId"] == ids[3]
		if (m["outcome"] == "failed") != failed || m["acknowledged"] == failed || (m["error"] != nil) != failed {
			t.Errorf("reported: %v", m)
		}
	}
	w.tap.Reset()
	l.counted(l.drain("--json"), 1, 1, 0, 0, 0, 0)
	if n := w.count("SELECT COUNT(*) FROM Messages"); n != 5 {
		t.Errorf("%d rows of 5 events", n)
	}
}

// refusal is how Pub/Sub refuses acknowledgements with exactly-once delivery: it says which, and why.
func refusal(code codes.Code, reasons map[string]string) error {
	var info []byte
	for id, reason := range reasons {
		var entry []byte
		for i, text := range []string{id, reason} {
			entry = protowire.AppendTag(entry, protowire.Number(i+1), protowire.BytesType)
			entry = protowire.AppendString(entry, text)
		}
		info = protowire.AppendTag(info, 3, protowire.BytesType)
		info = protowire.AppendBytes(info, entry)
	}
	refused := status.New(code, "Some acknowledgement ids in the request were invalid.").Proto()
	refused.Details = append(refused.Details, &anypb.Any{TypeUrl: "type.googleapis.com/google.rpc.ErrorInfo", Value: info})
	return status.FromProto(refused).Err()
}

func TestARefusedAcknowledgementIsReportedWithItsCause(t *testing.T) {
	w := newWorld(t)
	l := newLetters(w)
	w.env["INBOX_CONFIG_FILE"] = file(t, configOf(deduped))
	ids := l.publish(event(1), event(2), event(3))
	l.refuse = func(call int, sent map[string]string) error {
		reasons := map[string]string{}
		if call == 1 {
			reasons[sent[ids[0]]] = "PERMANENT_FAILURE_INVALID_ACK_ID"
			reasons[sent[ids[1]]] = "TRANSIENT_FAILURE_INVALID_ACK_ID"
			return refusal(codes.FailedPrecondition, reasons)
		}
		return nil
	}
	got := l.drain("--json")
	l.counted(got, 3, 3, 0, 0, 0, 1)
	all := slices.Sorted(slices.Values(ids))
	if diff := cmp.Diff([][]string{all, {ids[1]}}, l.acks); diff != "" {
		t.Errorf("only what may be tried again is tried again (-want +got):\n%s", diff)
	}
	if !strings.Contains(got.stderr, ids[0]+": its row is committed, and its acknowledgement was refused: PERMANENT_FAILURE_INVALID_ACK_ID") {
		t.Errorf("standard error: %q", got.stderr)
	}
	for _, m := range objects(t, got.out)[:3] {
		refused := m["messageId"] == ids[0]
		if m["outcome"] != "inserted" || m["acknowledged"] == refused || refused && m["error"] != "PERMANENT_FAILURE_INVALID_ACK_ID" {
			t.Errorf("reported: %v", m)
		}
	}
}

func TestAcknowledgementsThatAreRefusedWithoutDetails(t *testing.T) {
	w := newWorld(t)
	l := newLetters(w)
	w.env["INBOX_CONFIG_FILE"] = file(t, configOf(deduped))
	for _, test := range []struct {
		name  string
		err   error
		calls int
	}{
		{"for good", status.Error(codes.PermissionDenied, "not yours"), 1},
		{"for the moment", status.Error(codes.Internal, "try later"), ackTries},
	} {
		l.publish(event(len(test.name)))
		l.acks, l.refuse = nil, func(int, map[string]string) error { return test.err }
		got := l.drain("--json", "--max", "1")
		l.counted(got, 1, 1, 0, 0, 0, 1)
		if len(l.acks) != test.calls || !strings.Contains(got.stderr, status.Convert(test.err).Message()) {
			t.Errorf("%s: %d calls, want %d; %q", test.name, len(l.acks), test.calls, got.stderr)
		}
	}
}

func TestDrainStopsAfterMax(t *testing.T) {
	w := newWorld(t)
	l := newLetters(w)
	w.env["INBOX_CONFIG_FILE"] = file(t, configOf(deduped))
	l.publish(event(1), event(2), event(3), event(4), event(5))
	l.counted(l.drain("--json", "--max", "3", "--batch", "2"), 3, 3, 0, 0, 0, 0)
	l.counted(l.drain("--json"), 2, 2, 0, 0, 0, 0)
}

func TestDrainKeepsLargePayloadsAsReceiveDoes(t *testing.T) {
	w := newWorldWithBucket(t)
	l := newLetters(w)
	w.env["INBOX_CONFIG_FILE"] = file(t, claiming+configOf(deduped))
	large := event(1)
	large.Data = bytes.Repeat([]byte{0, 255, 7}, 2_600_000)
	l.publish(large)
	bucket := w.env["PAYLOAD_BUCKET"]
	delete(w.env, "PAYLOAD_BUCKET")
	got := l.drain("--json")
	l.counted(got, 1, 0, 0, 0, 1, 0)
	if !strings.Contains(got.stderr, "set PAYLOAD_BUCKET") {
		t.Errorf("standard error: %q", got.stderr)
	}
	w.env["PAYLOAD_BUCKET"] = bucket
	got = l.drain("--json")
	l.counted(got, 1, 1, 0, 0, 0, 0)
	id := objects(t, got.out)[0]["inboxId"].(string)
	w.agrees(id)
	if got := w.ok("show", "--payload", id).out; got != string(large.Data) {
		t.Errorf("the payload has %d bytes, want %d, the same ones", len(got), len(large.Data))
	}
}

func TestAPulledMessageBecomesThePushThatItWouldHaveBeen(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 123456789, time.UTC)
	body, err := pushBody("projects/p/subscriptions/pull", &pubsubpb.ReceivedMessage{DeliveryAttempt: 3, Message: &pubsubpb.PubsubMessage{
		MessageId: "17", OrderingKey: "<WO&1>", PublishTime: timestamppb.New(at), Data: []byte{0, 1, 254, 255},
		Attributes: map[string]string{"odd": "<&>\u2028\"ß", "": "empty name"}}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := pushmsg.Parse(body)
	if err != nil {
		t.Fatal(err)
	}
	got.RawMessage = nil
	want := &pushmsg.Envelope{Subscription: "projects/p/subscriptions/pull", MessageID: "17", OrderingKey: "<WO&1>", DeliveryAttempt: 3, PublishTime: at,
		Attributes: map[string]string{"odd": "<&>\u2028\"ß", "": "empty name"}, Data: []byte{0, 1, 254, 255}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// Neither data, nor attributes, nor a time.
	body, err = pushBody("s", &pubsubpb.ReceivedMessage{Message: &pubsubpb.PubsubMessage{MessageId: "18"}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := pushmsg.Parse(body); err != nil || got.Unreadable != "" || len(got.Data) != 0 || !got.PublishTime.IsZero() {
		t.Errorf("an empty message: %+v, %v", got, err)
	}
}

func TestDrainSaysWhatIsWrong(t *testing.T) {
	w := newWorld(t)
	l := newLetters(w)
	cfg := file(t, configOf(deduped))
	w.refused(2, "--subscription is missing", "drain", "--config", cfg)
	w.refused(2, "give --project", "drain", "--subscription", "x", "--config", cfg)
	w.refused(2, "it must be a name", "drain", "--subscription", "a/b", "--config", cfg)
	w.refused(2, "no configuration", "drain", "--subscription", l.name)
	w.refused(2, "--batch is 0", "drain", "--subscription", l.name, "--config", cfg, "--batch", "0")
	w.refused(2, "--max is -1", "drain", "--subscription", l.name, "--config", cfg, "--max", "-1")
	w.refused(2, "--wait must be", "drain", "--subscription", l.name, "--config", cfg, "--wait", "2m")
	short := l.name[strings.LastIndexByte(l.name, '/')+1:]
	l.publish(event(1))
	w.ok("drain", "--subscription", short, "--project", "p", "--config", cfg, "--wait", "1s")
	w.env["GOOGLE_CLOUD_PROJECT"] = "p"
	w.ok("drain", "--subscription", short, "--config", cfg, "--wait", "100ms")
	got := w.refused(1, "gcloud pubsub subscriptions list", "drain", "--subscription", "none", "--config", cfg)
	if strings.Contains(got.stderr, "inboxctl migrate") {
		t.Errorf("a fault of Pub/Sub is explained by the database: %q", got.stderr)
	}
	l.onPull = func() error { return status.Error(codes.FailedPrecondition, "push") }
	w.refused(1, "a pull subscription?", "drain", "--subscription", l.name, "--config", cfg)
	l.onPull = func() error { return status.Error(codes.PermissionDenied, "no") }
	w.refused(1, "roles/pubsub.subscriber", "drain", "--subscription", l.name, "--config", cfg)
}

// What is committed when the program is told to end is acknowledged; what is not is given back.
func TestDrainThatIsToldToEnd(t *testing.T) {
	w := newWorld(t)
	l := newLetters(w)
	w.env["INBOX_CONFIG_FILE"] = file(t, configOf(deduped))
	ids := l.publish(event(1), event(2))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := make(chan struct{})
	w.tap.Before("Commit", func(call context.Context, _ int, req any) error {
		if strings.Contains(fmt.Sprint(req), "event-2") {
			<-first
			cancel()
			<-call.Done()
			return call.Err()
		}
		return nil
	})
	w.tap.After("Commit", func(_ context.Context, _ int, req, _ any, err error) error {
		if strings.Contains(fmt.Sprint(req), "event-1") {
			close(first)
		}
		return err
	})
	var out, stderr bytes.Buffer
	a := &app{stdout: &out, stderr: &stderr, now: time.Now, options: append(emulatortest.ClientOptions(t), w.tap.Options()...), pubsubOptions: w.pubsub,
		lookup: func(name string) (string, bool) { value, ok := w.env[name]; return value, ok }}
	if code := a.run(ctx, []string{"drain", "--subscription", l.name, "--json"}); code != 1 || !strings.Contains(stderr.String(), "told to end") {
		t.Errorf("exit code %d, %q", code, stderr.String())
	}
	if diff := cmp.Diff([][]string{{ids[0]}}, l.acks); diff != "" {
		t.Errorf("acknowledged (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{ids[1]}, l.nacked); diff != "" {
		t.Errorf("given back (-want +got):\n%s", diff)
	}
	for _, m := range objects(t, out.String())[:2] {
		if first := m["messageId"] == ids[0]; m["acknowledged"] != first || (m["outcome"] == "inserted") != first {
			t.Errorf("reported: %v", m)
		}
	}
	w.tap.Reset()
	l.counted(l.drain("--json"), 1, 1, 0, 0, 0, 0)
}

func TestDeadLettersOfTheEmulatorAreDrained(t *testing.T) {
	w := newWorld(t)
	l := newLetters(w)
	w.env["INBOX_CONFIG_FILE"] = file(t, configOf(`{name: r, key: payload.key, engine: e, message: M}`))
	topic, name := l.topic+"-main", l.name+"-main"
	if _, err := l.topics.CreateTopic(t.Context(), &pubsubpb.Topic{Name: topic}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.subscription.CreateSubscription(t.Context(), &pubsubpb.Subscription{Name: name, Topic: topic, AckDeadlineSeconds: 60,
		DeadLetterPolicy: &pubsubpb.DeadLetterPolicy{DeadLetterTopic: l.topic, MaxDeliveryAttempts: 5}}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.topics.Publish(t.Context(), &pubsubpb.PublishRequest{Topic: topic, Messages: []*pubsubpb.PubsubMessage{
		{Data: []byte(`{"key":"WO-1"}`), Attributes: map[string]string{"n": "1"}}}}); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		answer, err := l.subscription.Pull(t.Context(), &pubsubpb.PullRequest{Subscription: name, MaxMessages: 1})
		if err != nil || len(answer.GetReceivedMessages()) != 1 {
			t.Fatalf("%v, %v", answer, err)
		}
		if err := l.subscription.ModifyAckDeadline(t.Context(), &pubsubpb.ModifyAckDeadlineRequest{Subscription: name,
			AckIds: []string{answer.GetReceivedMessages()[0].GetAckId()}}); err != nil {
			t.Fatal(err)
		}
	}
	// The emulator may move it only when somebody asks for it once more, and may let him wait.
	asking, done := context.WithCancel(t.Context())
	asked := make(chan int, 1)
	go func() {
		answer, _ := l.subscription.Pull(asking, &pubsubpb.PullRequest{Subscription: name, MaxMessages: 1})
		asked <- len(answer.GetReceivedMessages())
	}()
	got := w.run("drain", "--subscription", l.name, "--wait", "20s", "--max", "1", "--json")
	done()
	if n := <-asked; n > 0 {
		t.Error("it came a sixth time")
	}
	l.counted(got, 1, 1, 0, 0, 0, 0)
	id := objects(t, got.out)[0]["inboxId"].(string)
	rows, err := w.store.Rows(t.Context(), []string{id})
	if err != nil {
		t.Fatal(err)
	}
	m := rows[id].Message
	if m.Subscription != name || !m.FromDeadLetter || m.SourceAttempts < 4 || m.Reason != inbox.DeadLettered || m.PublishedAt.IsZero() {
		t.Errorf("the row: %+v", m)
	}
	if diff := cmp.Diff(map[string]string{"n": "1"}, m.Attributes); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
}

func TestRefusedAcksNamesWhatMayBeTriedAgain(t *testing.T) {
	sent := func() map[string]*letter { return map[string]*letter{"a": {}, "b": {}, "c": {}} }
	for _, test := range []struct {
		name    string
		err     error
		again   []string
		refused []string
	}{
		{"a permanent one, the others are acknowledged", api{status.Error(codes.FailedPrecondition, ""), map[string]string{"a": "PERMANENT_FAILURE_INVALID_ACK_ID"}}, nil, []string{"a"}},
		{"one of each", api{status.Error(codes.FailedPrecondition, ""), map[string]string{"a": "PERMANENT_FAILURE_INVALID_ACK_ID", "b": "TRANSIENT_FAILURE_X"}}, []string{"b"}, []string{"a", "b"}},
		{"a temporary fault with details says nothing of the others", api{status.Error(codes.Unavailable, ""), map[string]string{"a": "PERMANENT_FAILURE_INVALID_ACK_ID"}}, []string{"b", "c"}, []string{"a", "b", "c"}},
		{"no details", errors.New("broken"), nil, []string{"a", "b", "c"}},
	} {
		letters := sent()
		again := refusedAcks(letters, test.err)
		var refused []string
		for id, l := range letters {
			if l.ackErr != nil {
				refused = append(refused, id)
			}
		}
		slices.Sort(refused)
		if diff := cmp.Diff(test.again, slices.Sorted(maps.Keys(again))); diff != "" {
			t.Errorf("%s: again (-want +got):\n%s", test.name, diff)
		}
		if diff := cmp.Diff(test.refused, refused); diff != "" {
			t.Errorf("%s: refused (-want +got):\n%s", test.name, diff)
		}
	}
}

// api is an error as the client library gives it.
type api struct {
	error
	metadata map[string]string
}

func (e api) Unwrap() error { return e.error }

func (e api) Metadata() map[string]string { return e.metadata }

func TestDrainLeavesWhatIsNoDeadLetter(t *testing.T) {
	w := newWorld(t)
	l := newLetters(w)
	w.env["INBOX_CONFIG_FILE"] = file(t, configOf(deduped))
	l.publish(&pubsubpb.PubsubMessage{Data: []byte(`{"key":"WO-1"}`), Attributes: map[string]string{"eventId": "event-1"}})
	got := l.drain("--json")
	l.counted(got, 1, 0, 0, 0, 1, 0)
	if w.count("SELECT COUNT(*) FROM Messages") != 0 || len(l.acks) != 0 || !strings.Contains(got.out+got.stderr, "it does not say that it is a dead letter") {
		t.Errorf("acknowledged %v; it says %s", l.acks, got.stderr)
	}
	l.counted(l.drain("--json", "--any"), 1, 1, 0, 0, 0, 0)
}
