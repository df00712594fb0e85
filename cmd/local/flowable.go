package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	workorder "github.com/pubsub-inbox/pubsub-inbox/examples/work-order"
	"github.com/pubsub-inbox/pubsub-inbox/examples/work-order/worker"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/flowable/flowabletest"
	"github.com/pubsub-inbox/pubsub-inbox/internal/localstack"
)

func newDemoFlowable() *cobra.Command {
	var inboxctl string
	cmd := &cobra.Command{
		Use:   "demo-flowable",
		Short: "Show and check the work-order example with a real Flowable",
		Long: `Start what "local up" starts, a real Flowable, and the process, the configuration and the worker of
examples/work-order. Work orders are created and completed by messages that Pub/Sub pushes; a completion overtakes its
process; a repeated change-state makes tokens too many, and is repaired; Flowable is killed in the middle. It says what
happens, and compares it with what was to be expected: the exit code is 1 if anything differs.

It needs Java 17 and Maven beside the emulators. Flowable is built once, which takes some minutes, and then kept.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demoFlowable(cmd.Context(), cmd.OutOrStdout(), inboxctl)
		},
	}
	cmd.Flags().StringVar(&inboxctl, "inboxctl", "", "the inboxctl `program`; without it, it is built from the sources")
	return cmd
}

func demoFlowable(ctx context.Context, out io.Writer, inboxctl string) (err error) {
	if err := flowabletest.Missing(); err != nil {
		return fmt.Errorf("a real Flowable cannot be run: %w", err)
	}
	dir, err := os.MkdirTemp("", "pubsub-inbox-demo-flowable-")
	if err != nil {
		return err
	}
	defer func() {
		switch {
		case err == nil || ctx.Err() != nil:
			os.RemoveAll(dir)
			if err != nil {
				err = fmt.Errorf("%w before the demo was over", context.Cause(ctx))
			}
		default:
			os.Remove(filepath.Join(dir, "inboxctl"))
			err = fmt.Errorf("%w\nthe logs of the functions and of the worker, and the invoices, are kept in %s", err, dir)
		}
	}()
	s := &flowableStory{story: &story{out: out, started: time.Now(), http: &http.Client{Transport: &http.Transport{}}}, dir: dir}
	defer func() { err = errors.Join(err, s.close()) }()
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error { return s.prepare(ctx, inboxctl) },
		s.completed,
		s.overtaken,
		s.duplicateToken,
		s.restarted,
		s.conclude,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	s.say("The whole of it took %.0f s.", time.Since(s.started).Seconds())
	return nil
}

// flowableStory is the demo with Flowable under way.
type flowableStory struct {
	*story
	dir      string
	flowable *flowabletest.Server
	orders   []*order

	endWorker context.CancelFunc
	worker    sync.WaitGroup
}

// order is a work order, and the process instance that is to be its only one.
type order struct{ id, instance string }

// prepare starts everything.
func (s *flowableStory) prepare(ctx context.Context, inboxctl string) error {
	s.inboxctl = buildInboxctl(ctx, inboxctl, s.dir)
	s.title("Start")
	s.say("Flowable, with the settings and the process of examples/work-order; its database is kept on disk")
	settings := filepath.Join(s.dir, "flowable.properties")
	if err := os.WriteFile(settings, workorder.Properties, 0o644); err != nil {
		return err
	}
	database := filepath.Join(s.dir, "database")
	if err := os.Mkdir(database, 0o755); err != nil {
		return err
	}
	var err error
	if s.flowable, err = flowabletest.Run(ctx, flowabletest.Options{Folder: database, Properties: settings}); err != nil {
		return err
	}
	if err := s.flowable.Deploy(ctx, "work-order", workorder.BPMN); err != nil {
		return err
	}
	s.say("it answers after %.1f s", time.Since(s.started).Seconds())

	s.say("the Spanner and the Pub/Sub emulator, a Cloud Storage server, both functions")
	text, err := demoSettings(workorder.Config, s.flowable.URL())
	if err != nil {
		return err
	}
	config := filepath.Join(s.dir, "pubsub-inbox.yaml")
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(s.dir, "functions.log"))
	if err != nil {
		return err
	}
	s.stack, err = localstack.Start(ctx, localstack.Options{ConfigFile: config, Log: log, Setenv: os.Setenv, Lookup: withPassword})
	if err != nil {
		return err
	}
	if err := s.connect(ctx); err != nil {
		return err
	}
	if err := s.startWorker(ctx); err != nil {
		return err
	}
	s.say("and the worker that creates the invoices; all of it answers after %.1f s", time.Since(s.started).Seconds())
	return nil
}

// demoSettings changes what a demo cannot wait for, and where Flowable is, in the example's configuration.
func demoSettings(text, url string) (string, error) {
	for old, now := range map[string]string{
		"url: https://flowable.example/process-api": "url: " + url,
		"timeout: 10s":                "timeout: 5s",
		"retry: {min: 10s, max: 10m}": "retry: {min: 500ms, max: 1s}",
	} {
		if !strings.Contains(text, old) {
			return "", fmt.Errorf("the example's configuration has no %q any more", old)
		}
		text = strings.ReplaceAll(text, old, now)
	}
	return text, nil
}

// withPassword is the functions' environment: Flowable's password, and nothing that this process has by chance.
func withPassword(name string) (string, bool) {
	if name == "FLOWABLE_PASSWORD" {
		return flowabletest.Password, true
	}
	return os.LookupEnv(name)
}

func (s *flowableStory) startWorker(ctx context.Context) error {
	c := worker.DefaultConfig()
	c.ID, c.Poll, c.MaxPause = "billing-0", 100*time.Millisecond, time.Second
	client, err := worker.NewClient(s.flowable.JobsURL(), flowabletest.User, flowabletest.Password, c.Call)
	if err != nil {
		return err
	}
	ledger, err := worker.NewFileLedger(s.ledger(), time.Now)
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(s.dir, "worker.log"))
	if err != nil {
		return err
	}
	w, err := worker.New(c, client, ledger, slog.New(slog.NewJSONHandler(log, nil)), time.Now)
	if err != nil {
		return err
	}
	ctx, s.endWorker = context.WithCancel(ctx)
	s.worker.Go(func() { w.Run(ctx) })
	return nil
}

func (s *flowableStory) ledger() string { return filepath.Join(s.dir, "invoices") }

func (s *flowableStory) close() error {
	if s.endWorker != nil {
		s.endWorker()
		s.worker.Wait()
	}
	err := s.story.close()
	if s.flowable != nil {
		s.flowable.Stop()
	}
	return err
}
