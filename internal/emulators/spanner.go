package emulators

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"cloud.google.com/go/spanner/admin/instance/apiv1/instancepb"
	"google.golang.org/grpc"
)

var spannerReady = regexp.MustCompile(`Server address: \S*?:([0-9]+)\s`)

// StartSpanner returns a Spanner emulator that answers: the one of SPANNER_EMULATOR_HOST, or a new one. The
// context bounds the start only.
//
// A new one chooses its port itself. It listens with SO_REUSEPORT, so that two of them told to use one port
// would share it without a word, and calls would go to either.
func StartSpanner(ctx context.Context) (*Emulator, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if e, err := external(ctx, "SPANNER_EMULATOR_HOST", spannerAnswers); e != nil || err != nil {
		return e, err
	}
	path, err := newFinder().spanner(ctx)
	if err != nil {
		return nil, err
	}
	// The probability that a waiting transaction aborts the current one stays at its default: at 0, a
	// client killed inside a transaction blocks every other one until their deadlines.
	p, err := startProcess("Spanner emulator", path, "--host_port", "localhost:0")
	if err != nil {
		return nil, err
	}
	port, err := p.waitForLine(ctx, spannerReady)
	if err == nil {
		host := "localhost:" + port
		if err = spannerAnswers(ctx, host); err == nil {
			return &Emulator{host: host, owned: true, end: p.stop}, nil
		}
		err = p.failed(err)
	}
	return nil, errors.Join(err, p.stop())
}

func spannerAnswers(ctx context.Context, host string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	conn, err := dial(host)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", host, err)
	}
	defer conn.Close()
	_, err = instancepb.NewInstanceAdminClient(conn).ListInstanceConfigs(ctx,
		&instancepb.ListInstanceConfigsRequest{Parent: "projects/is-it-there"}, grpc.WaitForReady(true))
	if err != nil {
		return fmt.Errorf("ask %s for its instance configurations: %w", host, err)
	}
	return nil
}
