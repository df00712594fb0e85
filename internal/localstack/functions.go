package localstack

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/functions/receive"
	"github.com/pubsub-inbox/pubsub-inbox/functions/relay"
	"github.com/pubsub-inbox/pubsub-inbox/internal/config"
	"github.com/pubsub-inbox/pubsub-inbox/internal/funcserver"
)

// Env is what a program needs in its environment to work on the stack, as NAME=value: inboxctl, for example.
func (s *Stack) Env() []string {
	return []string{
		config.EnvDatabase + "=" + s.Database,
		config.EnvPayloadBucket + "=" + s.Bucket,
		config.EnvFile + "=" + s.configFile,
		config.EnvProject + "=" + s.Project,
		"SPANNER_EMULATOR_HOST=" + s.SpannerEmulatorHost,
		"PUBSUB_EMULATOR_HOST=" + s.PubSubEmulatorHost,
		"STORAGE_EMULATOR_HOST=" + s.StorageEmulatorHost,
	}
}

// lookup is the functions' environment.
func (s *Stack) lookup(others config.Lookup) config.Lookup {
	own := map[string]string{
		config.EnvDatabase:      s.Database,
		config.EnvPayloadBucket: s.Bucket,
		config.EnvFile:          s.configFile,
		config.EnvProject:       s.Project,
		config.EnvAuthMode:      string(config.AuthModeNone),
		config.EnvRevision:      "local",
		// What the process may have for another purpose, and the functions must not see.
		config.EnvText: "", config.EnvService: "", config.EnvPushAudience: "", config.EnvPushServiceAccounts: "",
		config.EnvRelayAudience: "", config.EnvRelayServiceAccounts: "",
	}
	return func(name string) (string, bool) {
		if value, ok := own[name]; ok {
			return value, value != ""
		}
		if others == nil {
			return "", false
		}
		return others(name)
	}
}

type functions struct{ receive, relay http.Handler }

// makeFunctions makes both functions, or says why they would refuse to start.
func makeFunctions(lookup config.Lookup, log io.Writer) (functions, error) {
	// What is wrong for both is said once.
	if _, err := config.Load(lookup); err != nil {
		return functions{}, err
	}
	in, err := makeFunction(receive.Options(lookup, log))
	if err != nil {
		return functions{}, err
	}
	out, err := makeFunction(relay.Options(lookup, log))
	if err != nil {
		return functions{}, err
	}
	return functions{receive: in, relay: out}, nil
}

// makeFunction has the start-up check run now, and its faults returned: by itself a function would log them.
func makeFunction(o funcserver.Options) (http.Handler, error) {
	var made http.Handler
	build := o.Build
	o.Build = func(*funcserver.Function) (http.Handler, error) { return made, nil }
	f := funcserver.New(o)
	var err error
	if made, err = build(f); err != nil {
		return nil, fmt.Errorf("the function %s refuses to start: %w", o.Name, err)
	}
	return f, nil
}

// serve serves a function on a free port and returns its URL, without a slash at the end.
func (s *Stack) serve(what string, handler http.Handler) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("listen for %s: %w", what, err)
	}
	// The requests' contexts end when the stack does: a run of the relay gives back what it has not begun, and settles.
	base, cancel := context.WithCancel(context.Background())
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return base },
		ErrorLog:    slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	s.onStop(what, func() error {
		cancel()
		ctx, done := context.WithTimeout(context.Background(), stopTimeout)
		defer done()
		err := server.Shutdown(ctx)
		if err != nil {
			_ = server.Close()
		}
		<-served
		return err
	})
	return "http://" + l.Addr().String(), nil
}

// answers waits for both functions: the receive function as far as it goes without a message, the relay with a whole run.
func (s *Stack) answers(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.ReceiveURL, nil)
	if err != nil {
		return err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return fmt.Errorf("ask the receive function whether it is there: %w", err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		return fmt.Errorf("ask the receive function whether it is there: it takes POST only, and answered GET with %s", resp.Status)
	}
	if _, err := s.Relay(ctx); err != nil {
		return fmt.Errorf("have the relay run a first time: %w", err)
	}
	return nil
}
