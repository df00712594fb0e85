// Command smoke shows that a deployment works: it publishes one message, waits until the inbox has its row, waits until
// that is finished, and cleans up after itself.
//
// By default no route should take the message, so that it reaches no engine: it is then parked as NO_ROUTE, which is what
// this program waits for, and closes. Where a route takes everything, give --attribute and --data of a message that its
// engine answers; the message then has to be PROCESSED or DISCARDED in time.
//
// It promises to leave nothing open or parked where it ends with exit code 0: what it has closed is DISCARDED, written down
// in the audit, and deleted with Spanner's next clean-up. Otherwise it says what is left, by its id. It does not read
// payloads, and calls neither function: the way of its message is the way of every other.
//
// The database is that of SPANNER_DATABASE, the configuration that of INBOX_CONFIG_FILE or INBOX_CONFIG, as for inboxctl.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/config"
	"github.com/pubsub-inbox/pubsub-inbox/internal/wiring"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr, os.LookupEnv); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintf(os.Stderr, "smoke: %v\n", err)
		}
		stop()
		os.Exit(1)
	}
}

// attributes is a flag that is repeated.
type attributes map[string]string

// String returns nothing: a value may be anything.
func (a attributes) String() string { return "" }

// Set reads name=value.
func (a attributes) Set(text string) error {
	name, value, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return errors.New("write it as name=value")
	}
	a[name] = value
	return nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer, lookup config.Lookup) error {
	given := attributes{}
	flags := flag.NewFlagSet("smoke", flag.ContinueOnError)
	flags.SetOutput(stderr)
	topic := flags.String("topic", "", "the `topic` that is published to: projects/P/topics/T")
	subscription := flags.String("subscription", "", "its push `subscription` to the inbox: projects/P/subscriptions/S")
	data := flags.String("data", "{}", "the message's `payload`")
	timeout := flags.Duration("timeout", 3*time.Minute, "how `long` to wait for the whole of it")
	flags.Var(given, "attribute", "an attribute of the message, `name=value`; may be repeated")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *topic == "" || *subscription == "" || flags.NArg() > 0 {
		return errors.New("give --topic projects/P/topics/T and --subscription projects/P/subscriptions/S, and nothing else but flags")
	}
	database, ok := lookup(config.EnvDatabase)
	if !ok || database == "" {
		return fmt.Errorf("%s is not set; it must be projects/P/instances/I/databases/D", config.EnvDatabase)
	}
	cfg, err := config.Load(lookup)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	store, err := wiring.Store(ctx, lookup, database, "", time.Now)
	if err != nil {
		return err
	}
	defer store.Close()
	return smoke(ctx, stdout, store, probe{
		Consumer: cfg.Consumer, Topic: *topic, Subscription: *subscription, Attributes: given, Data: []byte(*data), Every: time.Second})
}
