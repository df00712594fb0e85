package localstack_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/spanner"

	"github.com/pubsub-inbox/pubsub-inbox/internal/demoengine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators"
	"github.com/pubsub-inbox/pubsub-inbox/internal/localstack"
)

func TestMain(m *testing.M) {
	// The stacks here bring their own emulators, whatever the environment has.
	for _, name := range []string{"SPANNER_EMULATOR_HOST", "PUBSUB_EMULATOR_HOST", "STORAGE_EMULATOR_HOST"} {
		os.Unsetenv(name)
	}
	os.Exit(m.Run())
}

const configuration = `consumer: test
engines:
  engine: {kind: http, url: "ENGINE", timeout: 1m, idempotent: true}
routes:
  - {name: all, type: attributes.type, key: attributes.key, engine: engine, message: attributes.type, retry: {min: 100ms, max: 1s}}
relay: {budget: 10s, poll: 100ms, lease: 5m}
`

// timeout bounds each wait.
const timeout = 3 * time.Minute

func TestAPublishedMessageReachesItsEngineAndStopEndsEverything(t *testing.T) {
	engine, config := startEngine(t)
	engine.Start("order-1", "Paid")
	var log buffer
	s := start(t, localstack.Options{ConfigFile: config, RelayEvery: 100 * time.Millisecond, Log: &log})

	publish(t, s, &pubsub.Message{Data: []byte(`{}`), Attributes: map[string]string{"type": "Paid", "key": "order-1"}})
	eventually(t, &log, func() bool { return engine.Advanced("order-1") == 1 })

	// A second stack finds the first one's emulators in the environment, shares them, and leaves them as they were.
	second := start(t, localstack.Options{ConfigFile: config, RelayEvery: 100 * time.Millisecond})
	if second.SpannerEmulatorHost != s.SpannerEmulatorHost || second.PubSubEmulatorHost != s.PubSubEmulatorHost || second.StorageEmulatorHost != s.StorageEmulatorHost {
		t.Errorf("the second stack has emulators of its own: %+v beside %+v", second.Addresses, s.Addresses)
	}
	if second.Database == s.Database || second.Topic == s.Topic || second.Subscription == s.Subscription || second.Bucket == s.Bucket ||
		second.DeadLetterTopic == s.DeadLetterTopic || second.DeadLetterSubscription == s.DeadLetterSubscription {
		t.Errorf("two stacks share a name: %+v and %+v", second.Addresses, s.Addresses)
	}
	engine.Start("order-2", "Paid")
	publish(t, second, &pubsub.Message{Data: []byte(`{}`), Attributes: map[string]string{"type": "Paid", "key": "order-2"}})
	eventually(t, &log, func() bool { return engine.Advanced("order-2") == 1 })
	if err := second.Stop(); err != nil {
		t.Errorf("stop the second stack: %v", err)
	}
	engine.Start("order-3", "Paid")
	publish(t, s, &pubsub.Message{Data: []byte(`{}`), Attributes: map[string]string{"type": "Paid", "key": "order-3"}})
	eventually(t, &log, func() bool { return engine.Advanced("order-3") == 1 })

	client, err := spanner.NewClientWithConfig(t.Context(), s.Database, emulators.ClientConfig(), emulators.ClientOptions(s.SpannerEmulatorHost)...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var rows int64
	err = client.Single().Query(t.Context(), spanner.NewStatement("SELECT COUNT(*) FROM Messages")).Do(func(r *spanner.Row) error { return r.Columns(&rows) })
	if err != nil || rows != 2 {
		t.Errorf("the first stack has %d messages (error %v), want its own 2", rows, err)
	}

	if err := s.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	for _, host := range []string{s.SpannerEmulatorHost, s.PubSubEmulatorHost, s.StorageEmulatorHost,
		strings.TrimPrefix(s.ReceiveURL, "http://"), strings.TrimPrefix(s.RelayURL, "http://")} {
		if conn, err := net.Dial("tcp", host); err == nil {
			conn.Close()
			t.Errorf("something is still listening at %s", host)
		}
	}
	for _, name := range []string{"SPANNER_EMULATOR_HOST", "PUBSUB_EMULATOR_HOST", "STORAGE_EMULATOR_HOST"} {
		if value := os.Getenv(name); value != "" {
			t.Errorf("%s is still %s", name, value)
		}
	}
}

// What the endpoint refuses comes back through the dead-letter topic, as the message that it was; an equal one, stored
// meanwhile, is not taken for it.
func TestARefusedPushComesAgainAndThenThroughTheDeadLetterTopic(t *testing.T) {
	engine, config := startEngine(t)
	engine.Start("order-1", "Paid")
	var mu sync.Mutex
	refused, pushes := "", 0
	var log buffer
	s := start(t, localstack.Options{ConfigFile: config, RelayEvery: 100 * time.Millisecond, Log: &log, WrapReceive: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			var push struct{ Message struct{ MessageID string } }
			if err == nil && r.Method == http.MethodPost && r.URL.Path == "/" {
				err = json.Unmarshal(body, &push)
			}
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			if refused == "" {
				refused = push.Message.MessageID
			}
			no := push.Message.MessageID != "" && push.Message.MessageID == refused
			if no {
				pushes++
			}
			mu.Unlock()
			if no {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			next.ServeHTTP(w, r)
		})
	}})
	one := &pubsub.Message{Data: []byte(`{}`), Attributes: map[string]string{"type": "Paid", "key": "order-1"}}
	two := *one
	publishTogether(t, s, one, &two)

	client, err := spanner.NewClientWithConfig(t.Context(), s.Database, emulators.ClientConfig(), emulators.ClientOptions(s.SpannerEmulatorHost)...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	type row struct {
		InboxId, Place, Subscription, ConflictsWith, Attributes string
		SourceAttempts                                          spanner.NullInt64
		PublishedAt                                             time.Time
	}
	var rows []*row
	eventually(t, &log, func() bool {
		rows = nil
		err := client.Single().Query(t.Context(), spanner.NewStatement(`
SELECT InboxId, CONCAT(Status, IFNULL(CONCAT('/', Reason), '')) AS Place, Subscription, IFNULL(ConflictsWith, '') AS ConflictsWith,
  TO_JSON_STRING(Attributes) AS Attributes, SourceAttempts, PublishedAt
FROM Messages ORDER BY ReceivedAt`)).Do(func(r *spanner.Row) error {
			var got row
			rows = append(rows, &got)
			return r.ToStruct(&got)
		})
		if err != nil {
			t.Fatal(err)
		}
		return len(rows) == 2 && rows[0].Place == "PROCESSED"
	})
	stored, letter := rows[0], rows[1]
	if letter.Place != "PARKED/DEAD_LETTERED" || letter.Subscription != s.Subscription || letter.SourceAttempts.Int64 != 5 ||
		letter.Attributes != stored.Attributes {
		t.Errorf("the dead letter is %+v beside %+v", letter, stored)
	}
	// Only the emulator knows whether it gives two messages of one call one publish time.
	if same := letter.PublishedAt.Equal(stored.PublishedAt); same != (letter.ConflictsWith == stored.InboxId) {
		t.Errorf("published at %v and %v; the letter conflicts with %q", letter.PublishedAt, stored.PublishedAt, letter.ConflictsWith)
	}
	if engine.Advanced("order-1") != 1 {
		t.Errorf("the engine was advanced %d times", engine.Advanced("order-1"))
	}
	mu.Lock()
	defer mu.Unlock()
	if pushes != 5 {
		t.Errorf("%d pushes of the refused message, want 5", pushes)
	}
}

func TestANineMegabyteMessageGoesThePathOfEveryOther(t *testing.T) {
	engine, config := startEngine(t)
	engine.Start("order-1", "Report")
	var log buffer
	s := start(t, localstack.Options{ConfigFile: config, RelayEvery: 100 * time.Millisecond, Log: &log})
	report := []byte(`{"lines":"` + strings.Repeat("0123456789", 900_000) + `"}`)
	publish(t, s, &pubsub.Message{Data: report, Attributes: map[string]string{"type": "Report", "key": "order-1"}})
	eventually(t, &log, func() bool { return engine.Advanced("order-1") == 1 })
	if got := engine.History(); len(got) != 1 || !bytes.Equal(got[0].Body, report) {
		t.Errorf("the engine got %d deliveries, want the report", len(got))
	}
}

func TestAWrongConfigurationIsRefusedBeforeAnythingStarts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "inbox.yaml")
	if err := os.WriteFile(file, []byte("consumer: test\nroutes: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// With nothing installed an emulator could not even start.
	t.Setenv("PATH", "")
	_, err := localstack.Start(t.Context(), localstack.Options{ConfigFile: file, Setenv: func(string, string) error { t.Error("the environment was changed"); return nil }})
	if err == nil || !strings.Contains(err.Error(), file+":2") || !strings.Contains(err.Error(), "engine") {
		t.Errorf("got error %v, want one that names both faults and the place", err)
	}
}

func TestTheReadyFileHoldsTheAgreedFields(t *testing.T) {
	s := &localstack.Stack{Addresses: localstack.Addresses{Topic: "projects/p/topics/t"}}
	path := filepath.Join(t.TempDir(), "ready.json")
	if err := s.WriteReadyFile(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"receiveUrl", "relayUrl", "project", "database", "spannerEmulatorHost", "pubsubEmulatorHost",
		"storageEmulatorHost", "bucket", "topic", "subscription", "deadLetterTopic", "deadLetterSubscription"} {
		if _, ok := got[name]; !ok {
			t.Errorf("the ready file has no %s", name)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("the ready file has fields that nobody agreed on: %v", got)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("the ready file left others beside it: %v", entries)
	}
}

// startEngine serves an engine and returns it with a configuration that delivers to it.
func startEngine(t *testing.T) (*demoengine.Engine, string) {
	t.Helper()
	engine := demoengine.New(demoengine.Options{})
	server := httptest.NewServer(engine)
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "inbox.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(configuration, "ENGINE", server.URL)), 0o600); err != nil {
		t.Fatal(err)
	}
	return engine, file
}

func start(t *testing.T, o localstack.Options) *localstack.Stack {
	t.Helper()
	o.Setenv = os.Setenv
	s, err := localstack.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Stop() })
	return s
}

func publish(t *testing.T, s *localstack.Stack, m *pubsub.Message) {
	t.Helper()
	publishTogether(t, s, m)
}

// publishTogether publishes messages with one call, so that they have one publish time, or nearly.
func publishTogether(t *testing.T, s *localstack.Stack, messages ...*pubsub.Message) {
	t.Helper()
	client, err := s.PubSub(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	publisher := client.Publisher(s.Topic)
	defer publisher.Stop()
	publisher.PublishSettings.CountThreshold = len(messages)
	publisher.PublishSettings.DelayThreshold = timeout
	var published []*pubsub.PublishResult
	for _, m := range messages {
		published = append(published, publisher.Publish(t.Context(), m))
	}
	for _, p := range published {
		if _, err := p.Get(t.Context()); err != nil {
			t.Fatalf("publish to %s: %v", s.Topic, err)
		}
	}
}

// eventually waits for a condition that other processes bring about.
func eventually(t *testing.T, log *buffer, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(timeout); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("it did not happen in %s; the functions' log:\n%s", timeout, log)
		}
	}
}

type buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
