package emulators

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"

	"github.com/pubsub-inbox/pubsub-inbox/internal/freeport"
)

var pubSubReady = regexp.MustCompile(`Server started, listening on ([0-9]+)\s`)

// StartPubSub returns a Pub/Sub emulator that answers: the one of PUBSUB_EMULATOR_HOST, or a new one, which
// needs Java. The context bounds the start only.
func StartPubSub(ctx context.Context) (*Emulator, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if e, err := external(ctx, "PUBSUB_EMULATOR_HOST", pubSubAnswers); e != nil || err != nil {
		return e, err
	}
	path, err := newFinder().pubSub(ctx)
	if err != nil {
		return nil, err
	}
	// It does not say which port it got when told to choose one. So it is given one that was free a moment
	// ago; if somebody else was quicker it ends by itself, and another port is tried.
	var errs []error
	for range 3 {
		e, err := startPubSub(ctx, path)
		if err == nil {
			return e, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}

func startPubSub(ctx context.Context, path string) (*Emulator, error) {
	port, err := freeport.Hold()
	if err != nil {
		return nil, err
	}
	defer port.Release() // it is the emulator's by then, or nobody's
	// The script becomes the Java process (exec), so that the child we know is the server itself.
	p, err := startProcess("Pub/Sub emulator", path, "--host=localhost", "--port="+port.String())
	if err != nil {
		return nil, err
	}
	if _, err = p.waitForLine(ctx, pubSubReady); err == nil {
		host := "localhost:" + port.String()
		if err = pubSubAnswers(ctx, host); err == nil {
			return &Emulator{host: host, owned: true, end: p.stop}, nil
		}
		err = p.failed(err)
	}
	return nil, errors.Join(err, p.stop())
}

func pubSubAnswers(ctx context.Context, host string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	conn, err := dial(host)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", host, err)
	}
	defer conn.Close()
	_, err = pubsubpb.NewPublisherClient(conn).ListTopics(ctx,
		&pubsubpb.ListTopicsRequest{Project: "projects/is-it-there"}, grpc.WaitForReady(true))
	if err != nil {
		return fmt.Errorf("ask %s for its topics: %w", host, err)
	}
	return nil
}
