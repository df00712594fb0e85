package emulators

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/spanner"
	"cloud.google.com/go/storage"
	"google.golang.org/api/googleapi"

	"github.com/pubsub-inbox/pubsub-inbox/internal/freeport"
	"github.com/pubsub-inbox/pubsub-inbox/internal/migrate"
)

const helperVariable = "EMULATORS_TEST_HELPER"

// TestMain is also the parent that the tests of a parent's death kill.
func TestMain(m *testing.M) {
	start, ok := map[string]func(context.Context) (*Emulator, error){"spanner": StartSpanner, "pubsub": StartPubSub}[os.Getenv(helperVariable)]
	if !ok {
		os.Exit(m.Run())
	}
	e, err := start(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(e.Host())
	io.Copy(io.Discard, os.Stdin) // until the test closes it
	panic("the helper panics")
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// started starts an emulator even where the environment names one: these tests are about the start.
func started(t *testing.T, variable string, start func(context.Context) (*Emulator, error)) *Emulator {
	t.Helper()
	t.Setenv(variable, "")
	e, err := start(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
	})
	if !e.Owned() {
		t.Error("it says that it was there before")
	}
	return e
}

// ends waits until nobody listens on the port any more. A connection made before breaks when the server's
// process goes; its listener may go a moment later.
func ends(t *testing.T, conn net.Conn) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for time.Now().Before(deadline) {
		if err := conn.SetReadDeadline(deadline); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		again, err := net.Dial("tcp", conn.RemoteAddr().String())
		if err != nil {
			return
		}
		conn.Close()
		conn = again
	}
	t.Error("the server is still there")
	conn.Close()
}

func connection(t *testing.T, host string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestStopEndsAnEmulatorOnce(t *testing.T) {
	for name, c := range map[string]struct {
		variable string
		start    func(context.Context) (*Emulator, error)
	}{
		"Spanner": {"SPANNER_EMULATOR_HOST", StartSpanner},
		"Pub/Sub": {"PUBSUB_EMULATOR_HOST", StartPubSub},
		"Storage": {"STORAGE_EMULATOR_HOST", StartStorage},
	} {
		t.Run(name, func(t *testing.T) {
			e := started(t, c.variable, c.start)
			conn := connection(t, e.Host())
			for range 2 {
				if err := e.Stop(); err != nil {
					t.Error(err)
				}
			}
			ends(t, conn)
		})
	}
}

func TestEmulatorsEndWithTheirParent(t *testing.T) {
	for _, emulator := range []string{"spanner", "pubsub"} {
		for death, kill := range map[string]func(cmd *exec.Cmd, stdin io.Closer) error{
			"killed": func(cmd *exec.Cmd, _ io.Closer) error { return cmd.Process.Signal(syscall.SIGKILL) },
			"panics": func(_ *exec.Cmd, stdin io.Closer) error { return stdin.Close() },
		} {
			t.Run(emulator+" "+death, func(t *testing.T) {
				cmd := exec.CommandContext(deadline(t), os.Args[0])
				cmd.Env = append(os.Environ(), helperVariable+"="+emulator, "SPANNER_EMULATOR_HOST=", "PUBSUB_EMULATOR_HOST=")
				stdin, err := cmd.StdinPipe()
				if err != nil {
					t.Fatal(err)
				}
				stdout, err := cmd.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				line, err := bufio.NewReader(stdout).ReadString('\n')
				if err != nil {
					t.Fatalf("the parent did not start its emulator: %v", err)
				}
				conn := connection(t, strings.TrimSpace(line))
				if err := kill(cmd, stdin); err != nil {
					t.Fatal(err)
				}
				if err := cmd.Wait(); err == nil {
					t.Error("the parent ended well")
				}
				ends(t, conn)
			})
		}
	}
}

func TestTheEmulatorOfTheEnvironmentIsUsedAndLeftAlone(t *testing.T) {
	first := started(t, "SPANNER_EMULATOR_HOST", StartSpanner)
	t.Setenv("SPANNER_EMULATOR_HOST", "http://"+first.Host())
	second, err := StartSpanner(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	if second.Host() != first.Host() || second.Owned() {
		t.Errorf("got %s, owned %t; want %s, not owned", second.Host(), second.Owned(), first.Host())
	}
	if err := second.Stop(); err != nil {
		t.Error(err)
	}
	if err := spannerAnswers(deadline(t), first.Host()); err != nil {
		t.Errorf("it was ended by one who had not started it: %v", err)
	}
}

func TestAnEmulatorOfTheEnvironmentThatIsNotThereIsAnError(t *testing.T) {
	port, err := freeport.Hold() // nobody listens there
	if err != nil {
		t.Fatal(err)
	}
	defer port.Release()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	for variable, start := range map[string]func(context.Context) (*Emulator, error){
		"SPANNER_EMULATOR_HOST": StartSpanner, "PUBSUB_EMULATOR_HOST": StartPubSub, "STORAGE_EMULATOR_HOST": StartStorage,
	} {
		t.Setenv(variable, port.Address())
		if _, err := start(ctx); err == nil || !strings.Contains(err.Error(), variable) {
			t.Errorf("got %v, want an error that names %s", err, variable)
		}
	}
}

func TestAProgramThatEndsAtOnceIsReportedWithItsOutput(t *testing.T) {
	p, err := startProcess("imaginary emulator", "/bin/sh", "-c", "echo the port is taken >&2; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.waitForLine(deadline(t), regexp.MustCompile("ready (.*)"))
	if err == nil || !strings.Contains(err.Error(), "the port is taken") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("got %v, want an error with its output and its exit status", err)
	}
	if err := p.stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
}

func TestOnlyTheEndOfAnOutputIsKept(t *testing.T) {
	o := &output{}
	for i := range 20000 {
		fmt.Fprintf(o, "line %d\n", i)
	}
	got := o.String()
	if len(got) > outputLimit || !strings.HasSuffix(got, "line 19999\n") {
		t.Errorf("kept %d bytes that end with %q", len(got), got[len(got)-20:])
	}
}

func TestNewDatabaseIsAtTheNewestVersion(t *testing.T) {
	e := started(t, "SPANNER_EMULATOR_HOST", StartSpanner)
	ctx := deadline(t)
	name, err := NewDatabase(ctx, e.Host(), "p", "two", "first")
	if err != nil {
		t.Fatal(err)
	}
	if want := "projects/p/instances/two/databases/first"; name != want {
		t.Errorf("name: got %s, want %s", name, want)
	}
	result, err := migrate.Apply(ctx, name, migrate.Options{ClientOptions: ClientOptions(e.Host())})
	if err != nil || len(result.Applied) != 0 || result.Before == 0 {
		t.Errorf("to migrate it: got %+v, %v; want nothing to do", result, err)
	}
	if _, err := NewDatabase(ctx, e.Host(), "p", "two", "first"); err == nil {
		t.Error("the same once more: got no error")
	}
	if _, err := NewDatabase(ctx, e.Host(), "p", "x", "first"); err == nil || !strings.Contains(err.Error(), "2 to 64") {
		t.Errorf("a short instance id: got %v", err)
	}
	client, err := spanner.NewClientWithConfig(ctx, name, ClientConfig(), ClientOptions(e.Host())...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Single().ReadRow(ctx, "Messages", spanner.Key{"none"}, []string{"InboxId"}); !errors.Is(err, spanner.ErrRowNotFound) {
		t.Errorf("read a message: got %v, want no such row", err)
	}
}

func TestPubSubDeliversToAPushEndpoint(t *testing.T) {
	e := started(t, "PUBSUB_EMULATOR_HOST", StartPubSub)
	ctx := deadline(t)
	got := make(chan string, 1)
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		select {
		case got <- string(body):
		default:
		}
		w.WriteHeader(http.StatusNoContent)
	})}
	go server.Serve(l)
	defer server.Close()

	client, err := pubsub.NewClient(ctx, "p", ClientOptions(e.Host())...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	topic, err := client.TopicAdminClient.CreateTopic(ctx, &pubsubpb.Topic{Name: "projects/p/topics/topic"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.SubscriptionAdminClient.CreateSubscription(ctx, &pubsubpb.Subscription{
		Name: "projects/p/subscriptions/subscription", Topic: topic.Name, PushConfig: &pubsubpb.PushConfig{PushEndpoint: "http://" + l.Addr().String() + "/"},
	})
	if err != nil {
		t.Fatal(err)
	}
	publisher := client.Publisher(topic.Name)
	defer publisher.Stop()
	if _, err := publisher.Publish(ctx, &pubsub.Message{Data: []byte("x"), Attributes: map[string]string{"an-attribute": "its value"}}).Get(ctx); err != nil {
		t.Fatal(err)
	}
	select {
	case body := <-got:
		if !strings.Contains(body, "its value") || !strings.Contains(body, `subscriptions\/subscription"`) {
			t.Errorf("pushed: %s", body)
		}
	case <-ctx.Done():
		t.Fatal("nothing was pushed")
	}
}

// The client must find the server by the variable (as the functions do) and by options (as tests do).
func TestStorageKeepsPreconditions(t *testing.T) {
	e := started(t, "STORAGE_EMULATOR_HOST", StartStorage)
	ctx := deadline(t)
	for range 2 {
		if err := NewBucket(ctx, e.Host(), "p", "payloads"); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		variable string
		options  bool
	}{
		"by options":             {"", true},
		"by the variable":        {e.Host(), false},
		"by the variable, a URL": {"http://" + e.Host(), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("STORAGE_EMULATOR_HOST", c.variable)
			var client *storage.Client
			var err error
			if c.options {
				client, err = storage.NewClient(ctx, StorageClientOptions(e.Host())...)
			} else {
				client, err = storage.NewClient(ctx)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			object := client.Bucket("payloads").Object("a folder/" + name + "/ü")
			if _, err := object.NewReader(ctx); !errors.Is(err, storage.ErrObjectNotExist) {
				t.Errorf("read of nothing: got %v, want ErrObjectNotExist", err)
			}
			write := func(body string) (int64, error) {
				w := object.If(storage.Conditions{DoesNotExist: true}).NewWriter(ctx)
				if _, err := io.WriteString(w, body); err != nil {
					return 0, err
				}
				if err := w.Close(); err != nil {
					return 0, err
				}
				return w.Attrs().Generation, nil
			}
			generation, err := write("first")
			if err != nil {
				t.Fatal(err)
			}
			refused := (*googleapi.Error)(nil)
			if _, err := write("second"); !errors.As(err, &refused) || refused.Code != http.StatusPreconditionFailed {
				t.Errorf("second write: got %v, want 412", err)
			}
			r, err := object.Generation(generation).NewReader(ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if body, err := io.ReadAll(r); err != nil || string(body) != "first" {
				t.Errorf("read: got %q, %v", body, err)
			}
		})
	}
}
