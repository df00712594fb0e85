// Command worker creates the invoices of finished work orders: see package worker.
//
//	FLOWABLE_PASSWORD=... worker -flowable https://flowable.example/external-job-api -user billing -ledger /var/lib/invoices -id billing-0
//
// It works until SIGTERM or SIGINT, and finishes the job in hand first. Several can run at the same time, each with an -id
// of its own and all with the same ledger. The exit code is 1, with a sentence on stderr, where it cannot start.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/examples/work-order/worker"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Getenv("FLOWABLE_PASSWORD")); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, password string) error {
	c := worker.DefaultConfig()
	flags := flag.NewFlagSet("worker", flag.ContinueOnError)
	base := flags.String("flowable", "http://127.0.0.1:8080/external-job-api", "`URL` of Flowable's external job API")
	user := flags.String("user", "", "`name` of Flowable's user; the password is in FLOWABLE_PASSWORD")
	ledger := flags.String("ledger", "invoices", "`folder` of the invoices")
	flags.StringVar(&c.ID, "id", "", "`name` of this worker, unique among those that run; the same after a restart: it resumes at once (default: a new one)")
	flags.StringVar(&c.Topic, "topic", c.Topic, "`topic` of the jobs")
	flags.DurationVar(&c.Lock, "lock", c.Lock, "how long a job is locked")
	flags.DurationVar(&c.Work, "work", c.Work, "how long billing may take")
	flags.DurationVar(&c.Call, "call", c.Call, "how long one request to Flowable may take")
	flags.DurationVar(&c.Poll, "poll", c.Poll, "the pause after no job")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if c.ID == "" {
		c.ID = "worker-" + strings.ToLower(rand.Text()[:10])
	}
	client, err := worker.NewClient(*base, *user, password, c.Call)
	if err != nil {
		return err
	}
	invoices, err := worker.NewFileLedger(*ledger, time.Now)
	if err != nil {
		return err
	}
	w, err := worker.New(c, client, invoices, slog.New(slog.NewJSONHandler(os.Stderr, nil)), time.Now)
	if err != nil {
		return err
	}
	w.Run(ctx)
	return nil
}
