package localstack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pubsub-inbox/pubsub-inbox/internal/config"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators"
)

const (
	project  = "inbox-local" // emulators do not check it
	instance = "local"

	// readyTimeout bounds what comes after the emulators have answered; stopTimeout one step of the end.
	readyTimeout = 3 * time.Minute
	stopTimeout  = 20 * time.Second
)

// Options of a stack.
type Options struct {
	// ConfigFile is the inbox's configuration.
	ConfigFile string
	// RelayEvery is the time between the end of a relay's run and the start of the next. 0: it runs only when asked.
	RelayEvery time.Duration
	// Log takes the functions' logs; they are thrown away if nil.
	Log io.Writer
	// Lookup is where the functions look for variables that the stack does not set, such as secrets of engines. Nil: none.
	Lookup config.Lookup
	// Setenv changes the process's environment; os.Setenv, as a rule. It must not be nil.
	Setenv func(name, value string) error
	// WrapReceive, if set, puts a handler before the receive function: something that loses answers, for example.
	WrapReceive func(http.Handler) http.Handler
}

// Addresses say where everything is. It is what the ready file holds. Hosts are host:port; the database, topics and
// subscriptions are full resource names, such as projects/P/topics/T, which every client and tool takes.
type Addresses struct {
	ReceiveURL             string `json:"receiveUrl"`
	RelayURL               string `json:"relayUrl"`
	Project                string `json:"project"`
	Database               string `json:"database"`
	SpannerEmulatorHost    string `json:"spannerEmulatorHost"`
	PubSubEmulatorHost     string `json:"pubsubEmulatorHost"`
	StorageEmulatorHost    string `json:"storageEmulatorHost"`
	Bucket                 string `json:"bucket"` // a bare name
	Topic                  string `json:"topic"`
	Subscription           string `json:"subscription"`
	DeadLetterTopic        string `json:"deadLetterTopic"`
	DeadLetterSubscription string `json:"deadLetterSubscription"`
}

// Stack is a running stack.
type Stack struct {
	Addresses
	configFile string
	client     *http.Client

	ending   sync.Once
	endErr   error
	closers  []closer // run in reverse order
	stopRuns context.CancelFunc
	runs     sync.WaitGroup
}

type closer struct {
	what string
	run  func() error
}

// Start starts a stack. ctx bounds the start only.
func Start(ctx context.Context, o Options) (*Stack, error) {
	if o.Setenv == nil {
		return nil, errors.New("localstack: Options.Setenv is nil; give os.Setenv")
	}
	configFile, err := filepath.Abs(o.ConfigFile)
	if err != nil {
		return nil, fmt.Errorf("find the configuration %s: %w", o.ConfigFile, err)
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	o.Log = &lockedWriter{w: o.Log}
	s := &Stack{configFile: configFile, client: &http.Client{Transport: &http.Transport{}}} // without a proxy
	s.Project = project
	if err := s.start(ctx, o); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *Stack) start(ctx context.Context, o Options) error {
	// A first look at what the functions would refuse: a fault shows at once, not after the emulators have started.
	s.Database = "projects/" + project + "/instances/" + instance + "/databases/inbox"
	if _, err := makeFunctions(s.lookup(o.Lookup), io.Discard); err != nil {
		return err
	}
	var spanner, pubSub, storage *emulators.Emulator
	group, starting := errgroup.WithContext(ctx)
	start := func(into **emulators.Emulator, by func(context.Context) (*emulators.Emulator, error)) {
		group.Go(func() (err error) {
			*into, err = by(starting)
			return err
		})
	}
	start(&spanner, emulators.StartSpanner)
	start(&pubSub, emulators.StartPubSub)
	start(&storage, emulators.StartStorage)
	err := group.Wait()
	shared := false
	for _, e := range []struct {
		what, variable string
		emulator       *emulators.Emulator
		host           *string
	}{
		{"the Cloud Storage server", "STORAGE_EMULATOR_HOST", storage, &s.StorageEmulatorHost},
		{"the Spanner emulator", "SPANNER_EMULATOR_HOST", spanner, &s.SpannerEmulatorHost},
		{"the Pub/Sub emulator", "PUBSUB_EMULATOR_HOST", pubSub, &s.PubSubEmulatorHost},
	} {
		if e.emulator == nil {
			continue
		}
		*e.host = e.emulator.Host()
		s.onStop(e.what, e.emulator.Stop)
		shared = shared || !e.emulator.Owned()
		if e.emulator.Owned() {
			if setErr := o.Setenv(e.variable, e.emulator.Host()); setErr != nil {
				return fmt.Errorf("set %s: %w", e.variable, setErr)
			}
			s.onStop(e.variable, func() error { return o.Setenv(e.variable, "") })
		}
	}
	if err != nil {
		return err
	}
	suffix := ""
	if shared {
		suffix = "-" + strings.ToLower(rand.Text()[:8])
	}

	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	s.Database, err = emulators.NewDatabase(ctx, s.SpannerEmulatorHost, project, instance, "inbox"+suffix)
	if err != nil {
		return err
	}
	if !spanner.Owned() {
		s.onStop("the database", func() error {
			ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
			defer cancel()
			return emulators.DropDatabase(ctx, s.SpannerEmulatorHost, s.Database)
		})
	}
	s.Bucket = "inbox-payloads" + suffix
	if err := emulators.NewBucket(ctx, s.StorageEmulatorHost, project, s.Bucket); err != nil {
		return err
	}
	functions, err := makeFunctions(s.lookup(o.Lookup), o.Log)
	if err != nil {
		return err
	}
	if o.WrapReceive != nil {
		functions.receive = o.WrapReceive(functions.receive)
	}
	if s.ReceiveURL, err = s.serve("the receive function", functions.receive); err != nil {
		return err
	}
	if s.RelayURL, err = s.serve("the relay function", functions.relay); err != nil {
		return err
	}
	if err := s.answers(ctx); err != nil {
		return err
	}
	if err := s.makeSubscriptions(ctx, suffix, !pubSub.Owned()); err != nil {
		return err
	}
	s.relayEvery(o.RelayEvery, o.Log)
	return nil
}

func (s *Stack) onStop(what string, run func() error) {
	s.closers = append(s.closers, closer{what, run})
}

// Stop ends everything that Start has started. Every call after the first returns what the first returned.
func (s *Stack) Stop() error {
	s.ending.Do(func() {
		if s.stopRuns != nil {
			s.stopRuns()
		}
		s.runs.Wait()
		var errs []error
		for i := len(s.closers) - 1; i >= 0; i-- {
			if err := s.closers[i].run(); err != nil {
				errs = append(errs, fmt.Errorf("end %s: %w", s.closers[i].what, err))
			}
		}
		s.client.CloseIdleConnections()
		s.endErr = errors.Join(errs...)
	})
	return s.endErr
}

// lockedWriter lets both functions write whole lines.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
