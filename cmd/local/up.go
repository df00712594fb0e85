package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pubsub-inbox/pubsub-inbox/internal/localstack"
)

//go:embed default.yaml
var defaultConfig string

type upOptions struct {
	config     string
	readyFile  string
	relayEvery time.Duration
	logFile    string
}

func newUp() *cobra.Command {
	var o upOptions
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start the emulators and both functions, and leave them running",
		Long: `Start the Spanner emulator, the Pub/Sub emulator, a Cloud Storage server and both functions on free ports of this
machine, migrate the database, make the topic, the push subscription, the dead-letter topic and its push subscription,
and leave all of it running until SIGINT, SIGTERM or SIGHUP.

An emulator named by SPANNER_EMULATOR_HOST, PUBSUB_EMULATOR_HOST or STORAGE_EMULATOR_HOST is used and left running; all
names in the stack then get a random ending, so that several stacks can share it.

Once everything answers, --ready-file holds one JSON object: receiveUrl, relayUrl, project, database, spannerEmulatorHost,
pubsubEmulatorHost, storageEmulatorHost, bucket, topic, subscription, deadLetterTopic, deadLetterSubscription. Hosts are
host:port, the bucket is a bare name; the database, the topics and the subscriptions are full resource names, such as
projects/P/topics/T. The file appears whole, and is removed at the end; one that is there at the start is removed first.

Nobody's identity is checked (AUTH_MODE=none). The push subscription is not ordered, because with ordering and a
dead-letter policy the Pub/Sub emulator stops delivering after the fifth refusal; the inbox orders by itself.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return up(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.config, "config", "", "the inbox's configuration `file`; without it everything goes to a demo engine, which is started too")
	flags.StringVar(&o.readyFile, "ready-file", "", "the `file` that says where everything is, once it answers")
	flags.DurationVar(&o.relayEvery, "relay-every", time.Second, "run the relay this long after its last answer; 0: only when asked (POST to relayUrl)")
	flags.StringVar(&o.logFile, "log-file", "", "write the functions' logs to this `file` instead of stderr")
	return cmd
}

func up(ctx context.Context, stdout, stderr io.Writer, o upOptions) (err error) {
	if o.relayEvery < 0 {
		return fmt.Errorf("--relay-every is %s; it must be a time such as 1s, or 0", o.relayEvery)
	}
	if o.readyFile != "" {
		if err := os.Remove(o.readyFile); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove the ready file of an earlier run: %w", err)
		}
		if _, err := os.Stat(filepath.Dir(o.readyFile)); err != nil {
			return fmt.Errorf("--ready-file: its folder must exist: %w", err)
		}
	}
	log := stderr
	if o.logFile != "" {
		f, err := os.Create(o.logFile)
		if err != nil {
			return fmt.Errorf("--log-file: %w", err)
		}
		defer f.Close()
		log = f
	}
	var engine *served
	if o.config == "" {
		if engine, err = serveEngine(); err != nil {
			return err
		}
		defer engine.stop()
		dir, err := os.MkdirTemp("", "pubsub-inbox-up-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		o.config = filepath.Join(dir, "inbox.yaml")
		if err := os.WriteFile(o.config, []byte(withEngines(defaultConfig, map[string]*served{"demo": engine})), 0o644); err != nil {
			return err
		}
	}
	stack, err := localstack.Start(ctx, localstack.Options{
		ConfigFile: o.config, RelayEvery: o.relayEvery, Log: log, Lookup: os.LookupEnv, Setenv: os.Setenv})
	if errors.Is(context.Cause(ctx), errToldToEnd) && stack == nil {
		return nil // not a failure, whatever it broke off
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stack.Stop()) }()
	if o.readyFile != "" {
		if err := stack.WriteReadyFile(o.readyFile); err != nil {
			return err
		}
		defer os.Remove(o.readyFile)
	}
	describe(stdout, stack, engine, o)
	<-ctx.Done()
	fmt.Fprintln(stdout, "Ending.")
	return nil
}

// describe says what runs where, and what to do with it.
func describe(w io.Writer, s *localstack.Stack, engine *served, o upOptions) {
	relaying := fmt.Sprintf("runs by itself, %s after its last run", o.relayEvery)
	if o.relayEvery == 0 {
		relaying = `runs when asked: POST {"once": true}`
	}
	fmt.Fprintf(w, `The inbox runs. Ctrl-C ends it.

  receive        %s
  relay          %s  (%s)
  database       %s
  topic          %s
  subscription   %s  (pushes to receive)
  dead letters   %s  (pushes to receive, too)
`, s.ReceiveURL, s.RelayURL, relaying, s.Database, s.Topic, s.Subscription, s.DeadLetterSubscription)
	if engine != nil {
		fmt.Fprintf(w, "  demo engine    %s\n", engine.url)
	}
	fmt.Fprintf(w, "\nFor inboxctl and other programs, in another terminal:\n\n%s", export(s.Env()))
	if engine == nil {
		return
	}
	fmt.Fprintf(w, `
To try it: start a process instance that waits for a message, publish the message, and see what the engine got:

  curl -d '{"key": "order-1", "messages": ["PaymentReceived"]}' %[1]s/instances
  curl -d '{"messages": [{"data": "e30=", "attributes": {"eventType": "PaymentReceived", "key": "order-1"}}]}' \
       -H 'Content-Type: application/json' http://%[2]s/v1/%[3]s:publish
  curl %[1]s/history
  go run ./cmd/inboxctl list
`, engine.url, s.PubSubEmulatorHost, s.Topic)
}

// export writes variables as a shell takes them.
func export(env []string) string {
	quoted := make([]string, len(env))
	for i, variable := range env {
		name, value, _ := strings.Cut(variable, "=")
		if strings.ContainsFunc(value, func(c rune) bool { return strings.ContainsRune(" '\"$`\\&;()<>|*?#~", c) }) {
			value = "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
		}
		quoted[i] = name + "=" + value
	}
	return "  export " + strings.Join(quoted, " \\\n         ") + "\n"
}
