// Program bench compares the inbox with the least that could do its work, side by side in one run, and counts what can be
// counted:
//
//	receive   the real receiver and store beside a bare single-use commit of the same rows
//	relay     the real relayer and engine adapter beside a bare loop of the same calls
//	pass      a relay's pass beside no finished rows and beside many
//	start     the main that production runs, from its start to its first answer, beside an empty function
//	memory    what a receive of a large payload allocates, beside the size of its body
//	claimcheck  large receives at once, beside the same bytes written bare, and the memory that they take
//
// It prints what it finds and, in a full run, writes results.md beside its source. It fails where a counted limit of
// docs/design.md is exceeded (round trips, commits, rows). It never fails because of a time, nor of a ratio of times: those
// are for reading. It needs the Spanner emulator, as the tests do, and is run at the module's root.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// sizes are how much is measured.
type sizes struct {
	receives int // messages a round, and for each of the two sides
	rounds   int
	backlog  int // messages
	lanes    int
	relays   int // repetitions
	finished int // rows
	passes   int
	starts   int
}

var (
	full  = sizes{receives: 200, rounds: 5, backlog: 1000, lanes: 100, relays: 3, finished: 50_000, passes: 3, starts: 11}
	quick = sizes{receives: 100, rounds: 3, backlog: 1000, lanes: 100, relays: 1, finished: 2_000, passes: 3, starts: 3}
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	isQuick := flag.Bool("quick", false, "smaller sizes, and no file written")
	only := flag.String("only", "", "the one part to measure; no file written")
	out := flag.String("out", "bench/results.md", "the file that a full run writes")
	flag.Parse()
	size := full
	if *isQuick {
		size = quick
	}
	if *isQuick || *only != "" {
		*out = ""
	}
	if err := run(ctx, size, *only, *out); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, size sizes, only, out string) (err error) {
	if _, err := os.Stat("go.mod"); err != nil {
		return errors.New("run it at the module's root: go run ./bench")
	}
	w, err := newWorld(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	r := &results{size: size}
	for _, part := range []struct {
		name    string
		measure func(context.Context, *world, sizes, *results) error
	}{
		{"receive", measureReceive}, {"relay", measureRelay}, {"pass", measurePass}, {"start", measureStart}, {"memory", measureMemory},
		{"claimcheck", measureClaimCheck},
	} {
		if only != "" && part.name != only {
			continue
		}
		began := time.Now()
		if err := part.measure(ctx, w, size, r); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		fmt.Printf("%s: %.1f s\n", part.name, time.Since(began).Seconds())
	}
	if len(r.lines) == 0 {
		return fmt.Errorf("there is no part %q", only)
	}
	fmt.Println()
	if err := r.write(os.Stdout); err != nil {
		return err
	}
	if out != "" {
		if err := r.save(out); err != nil {
			return err
		}
	}
	return r.exceeded()
}
