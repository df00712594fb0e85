// Command local runs the whole inbox on one machine, without Docker and without Google Cloud.
//
//	local up              emulators and both functions, left running until it is told to end
//	local demo            the whole path, shown and checked: messages are published, stored, relayed, parked and repaired
//	local demo-flowable   the same with a real Flowable and the process of examples/work-order
//
// It needs the Spanner and the Pub/Sub emulator (running, in the PATH, or in the Google Cloud SDK's folder) and Java, and
// says what to install where one is missing. It ends everything it has started when it gets SIGINT, SIGTERM or SIGHUP,
// and when `go run`, which started it, ends without passing a signal on. The exit code is 0 when `up` was told to end, and
// when the demo went as expected; any other end is 1, and a sentence on stderr.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// errToldToEnd is the cause with which the main context ends at a signal.
var errToldToEnd = errors.New("told to end")

func main() { os.Exit(run()) }

func run() int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup
		signals = append(signals, syscall.SIGHUP)
	}
	arrived := make(chan os.Signal, 1)
	signal.Notify(arrived, signals...)
	go func() {
		<-arrived
		signal.Stop(arrived) // a second signal ends us at once, and the kernel the emulators
		cancel(errToldToEnd)
	}()
	go func() {
		if parentEnds(ctx) {
			cancel(errToldToEnd)
		}
	}()

	root := &cobra.Command{
		Use:           "local",
		Short:         "Run the whole inbox on this machine",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newUp(), newDemo(), newDemoFlowable())
	err := root.ExecuteContext(ctx)
	if err != nil {
		fmt.Fprintf(os.Stderr, "local: %v\n", err)
		return 1
	}
	return 0
}
