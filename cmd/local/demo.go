package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/spanner"
	"github.com/spf13/cobra"

	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators"
	"github.com/pubsub-inbox/pubsub-inbox/internal/localstack"
)

//go:embed demo.yaml
var demoConfig string

type demoOptions struct {
	stay     bool
	inboxctl string
}

func newDemo() *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show and check the whole path of a message, in less than a minute",
		Long: `Start what "local up" starts, and two small workflow engines; publish messages, have Pub/Sub push them, have the relay
correlate them; let things go wrong on purpose; repair what was parked, with inboxctl and by hand. It says what happens,
ends with a table of all messages, and compares each with what was to be expected: the exit code is 1 if one differs.

The relay runs only when the demo asks it to, so that what must be there together is there. Nothing is waited for by the
clock: each step waits for what it is about, and fails after 30 seconds.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo(cmd.Context(), cmd.OutOrStdout(), o)
		},
	}
	cmd.Flags().BoolVar(&o.stay, "stay", false, "leave everything running at the end, until Ctrl-C")
	cmd.Flags().StringVar(&o.inboxctl, "inboxctl", "", "the inboxctl `program`; without it, it is built from the sources")
	return cmd
}

func demo(ctx context.Context, out io.Writer, o demoOptions) (err error) {
	dir, err := os.MkdirTemp("", "pubsub-inbox-demo-")
	if err != nil {
		return err
	}
	logFile := filepath.Join(dir, "functions.log")
	defer func() {
		if err == nil || ctx.Err() != nil {
			os.RemoveAll(dir)
		}
		if err == nil {
			return
		}
		os.Remove(filepath.Join(dir, "inboxctl"))
		if ctx.Err() != nil {
			err = fmt.Errorf("%w before the demo was over", context.Cause(ctx))
			return
		}
		err = fmt.Errorf("%w\nthe functions' log is kept in %s", err, logFile)
	}()
	s, err := prepare(ctx, out, o, dir, logFile)
	if s != nil {
		defer func() { err = errors.Join(err, s.close()) }()
	}
	if err != nil {
		return err
	}
	if err := s.tell(ctx); err != nil {
		return err
	}
	if err := s.conclude(ctx); err != nil {
		return err
	}
	s.say("The whole of it took %.0f s.", time.Since(s.started).Seconds())
	if o.stay {
		fmt.Fprintf(out, "\nAll of it is left running until Ctrl-C. For inboxctl, in another terminal:\n\n%s\n  go run ./cmd/inboxctl list\n",
			export(s.stack.Env()))
		<-ctx.Done()
		return nil
	}
	fmt.Fprint(out, `
How to go on: "go run ./cmd/local demo --stay" plays it once more and leaves it running; "make up" starts the same stack
without the messages. Both say what to put into the environment of another terminal, where
"go run ./cmd/inboxctl list --status PARKED" then shows what needs a person.
`)
	return nil
}

// story is the demo under way.
type story struct {
	out      io.Writer
	started  time.Time
	stack    *localstack.Stack
	db       *spanner.Client
	pubSub   *pubsub.Client
	topic    *pubsub.Publisher
	http     *http.Client
	door     door
	orders   *served
	billing  *served
	inboxctl func(context.Context) (string, error) // waits until it is built

	lastPublish int64 // when the last publish had returned, in milliseconds
	messages    []*message
	differences []string
}

// prepare starts everything. The story is to be closed even if there is an error.
func prepare(ctx context.Context, out io.Writer, o demoOptions, dir, logFile string) (*story, error) {
	s := &story{out: out, started: time.Now(), http: &http.Client{Transport: &http.Transport{}}}
	s.inboxctl = buildInboxctl(ctx, o.inboxctl, dir)
	s.title("Start")
	s.say("the Spanner and the Pub/Sub emulator, a Cloud Storage server, both functions, two small workflow engines")
	var err error
	if s.orders, err = serveEngine(); err != nil {
		return s, err
	}
	if s.billing, err = serveEngine(); err != nil {
		return s, err
	}
	config := filepath.Join(dir, "demo.yaml")
	text := withEngines(demoConfig, map[string]*served{"orders": s.orders, "billing": s.billing})
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return s, err
	}
	log, err := os.Create(logFile)
	if err != nil {
		return s, err
	}
	s.stack, err = localstack.Start(ctx, localstack.Options{
		ConfigFile: config, Log: log, Lookup: os.LookupEnv, Setenv: os.Setenv, WrapReceive: s.door.wrap})
	if err != nil {
		return s, err
	}
	if err := s.connect(ctx); err != nil {
		return s, err
	}
	if err := emulators.NewBucket(ctx, s.stack.StorageEmulatorHost, s.stack.Project, reports); err != nil {
		return s, err
	}
	s.say("all of it answers after %.1f s; the relay runs only when this program asks it to", time.Since(s.started).Seconds())
	return s, nil
}

// connect makes the demo's own clients of the running stack.
func (s *story) connect(ctx context.Context) (err error) {
	s.db, err = spanner.NewClientWithConfig(ctx, s.stack.Database, emulators.ClientConfig(), emulators.ClientOptions(s.stack.SpannerEmulatorHost)...)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", s.stack.Database, err)
	}
	if s.pubSub, err = s.stack.PubSub(ctx); err != nil {
		return err
	}
	s.topic = s.pubSub.Publisher(s.stack.Topic)
	s.topic.PublishSettings.CountThreshold = 1 // one publish, one call
	return nil
}

func (s *story) close() error {
	if s.topic != nil {
		s.topic.Stop()
	}
	if s.pubSub != nil {
		_ = s.pubSub.Close()
	}
	if s.db != nil {
		s.db.Close()
	}
	var err error
	if s.stack != nil {
		err = s.stack.Stop()
	}
	for _, e := range []*served{s.orders, s.billing} {
		if e != nil {
			e.stop()
		}
	}
	return err
}

func (s *story) title(format string, args ...any) {
	fmt.Fprintf(s.out, "\n%s\n", fmt.Sprintf(format, args...))
}

func (s *story) say(format string, args ...any) {
	fmt.Fprintf(s.out, "  %s\n", fmt.Sprintf(format, args...))
}
