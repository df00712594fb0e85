package emulators

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

// startTimeout bounds a start for a caller that has set no deadline. Java on a busy machine takes seconds.
const startTimeout = 3 * time.Minute

// Emulator is a server that answers.
type Emulator struct {
	host  string
	owned bool
	once  sync.Once
	end   func() error
	err   error
}

// Host is its address as host:port, the form all three ..._EMULATOR_HOST variables take.
func (e *Emulator) Host() string { return e.host }

// Owned says whether this process has started it. Another one is shared: names in it may be taken.
func (e *Emulator) Owned() bool { return e.owned }

// Stop ends the server if this process has started it. Every call after the first returns what the first
// returned.
func (e *Emulator) Stop() error {
	e.once.Do(func() {
		if e.end != nil {
			e.err = e.end()
		}
	})
	return e.err
}

// ClientOptions are what a client of a Google Cloud gRPC API needs to talk to the emulator at host without
// any environment variable. A Spanner client also wants ClientConfig.DisableNativeMetrics: it does not know
// that it talks to an emulator.
func ClientOptions(host string) []option.ClientOption {
	return []option.ClientOption{
		// passthrough: no DNS look-up, and no proxy from the environment.
		option.WithEndpoint("passthrough:///" + bareHost(host)),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
		option.WithoutAuthentication(),
	}
}

// bareHost accepts the forms the clients accept in their environment variables.
func bareHost(host string) string {
	for _, scheme := range []string{"http://", "https://", "passthrough:///"} {
		host = strings.TrimPrefix(host, scheme)
	}
	return strings.TrimSuffix(host, "/")
}

// external returns the server that the variable names, or nil.
func external(ctx context.Context, variable string, answers func(ctx context.Context, host string) error) (*Emulator, error) {
	host := os.Getenv(variable)
	if host == "" {
		return nil, nil
	}
	if err := answers(ctx, bareHost(host)); err != nil {
		return nil, fmt.Errorf("%s is %s, and nothing that answers is there; start it, or unset the variable to have one started: %w", variable, host, err)
	}
	return &Emulator{host: bareHost(host)}, nil
}

func dial(host string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+host,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		// A server that is about to listen is tried again at once, not a second later.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, MaxDelay: 500 * time.Millisecond},
			MinConnectTimeout: 5 * time.Second,
		}))
}
