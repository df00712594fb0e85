package funcserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/GoogleCloudPlatform/functions-framework-go/funcframework"
	"github.com/GoogleCloudPlatform/functions-framework-go/functions"

	"github.com/pubsub-inbox/pubsub-inbox/internal/telemetry"
)

// Shut-down times after the signal; see the package.
const (
	cutAfter    = 7 * time.Second
	giveUpAfter = 8500 * time.Millisecond
	exitAfter   = 9 * time.Second
)

// bodyWithin is how long a request's body is waited for: what a push may take, which is below Pub/Sub's shortest
// acknowledgement deadline (10 s).
const bodyWithin = 8 * time.Second

// ErrShuttingDown is the cause with which a request's context ends when the process does.
var ErrShuttingDown = errors.New("shutting down")

// targetVariable names the function that the framework serves.
const targetVariable = "FUNCTION_TARGET"

// Target says whether this process serves the function called name. It is false where FUNCTION_TARGET is not set.
func Target(name string, lookup func(string) (string, bool)) bool {
	target, _ := lookup(targetVariable)
	return target != "" && target == name
}

// Options of a function.
type Options struct {
	// Name is the entry point, such as "Receive".
	Name string
	// Lookup reads the environment, as os.LookupEnv does.
	Lookup func(string) (string, bool)
	Logger *slog.Logger
	// Build checks configuration and environment and returns the handler, or all faults joined. It is called once, and
	// must not wait for a network: clients are made by Lazy, at a request. It may call OnShutdown and Draining.
	Build func(*Function) (http.Handler, error)
	// Answered is called when a request has its answer, before that is sent: what it takes is part of the answer's time, and
	// after it the platform may give the process no more. It cannot change the answer. Nil: nothing is. It is not called for
	// requests that never reached the handler.
	Answered func(r *http.Request, status int)
	// BodyWithin is how long a request's body is waited for, from the moment at which its headers are there. A read of it fails
	// after that with an error that is os.ErrDeadlineExceeded, however many bytes still come. Zero: eight seconds.
	BodyWithin time.Duration
	// Exit ends the process; os.Exit if nil.
	Exit func(code int)
}

// Function is a function and its process.
type Function struct {
	o Options

	build    sync.Once
	handler  http.Handler
	buildErr error

	watch sync.Once // signals

	draining context.Context // ends at the signal
	drain    context.CancelFunc
	cut      context.Context // ends cutAfter later
	cutOff   context.CancelCauseFunc

	mu      sync.Mutex
	leaving bool // no request is let in any more
	flying  int
	idle    chan struct{} // closed when leaving and flying is 0
	closers []closer
}

type closer struct {
	name string
	run  func(context.Context) error
}

// New returns a function that nobody has registered or started.
func New(o Options) *Function {
	if o.Exit == nil {
		o.Exit = os.Exit
	}
	o.BodyWithin = cmp.Or(o.BodyWithin, bodyWithin)
	f := &Function{o: o, idle: make(chan struct{})}
	f.draining, f.drain = context.WithCancel(context.Background())
	f.cut, f.cutOff = context.WithCancelCause(context.Background())
	return f
}

// Register makes a function known to the framework and, if this process serves it, checks and starts it: a fault ends
// the process. It is called from init.
func Register(o Options) *Function {
	f := New(o)
	functions.HTTP(o.Name, f.ServeHTTP)
	if Target(o.Name, o.Lookup) {
		f.startOrExit()
	}
	return f
}

// Start calls Build and from then on handles signals. It is for a main that runs one function by itself; Register does
// the same in production.
func (f *Function) Start() error {
	if err := f.ready(); err != nil {
		return err
	}
	f.watch.Do(func() {
		signals := make(chan os.Signal, 2)
		signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
		go func() {
			s := <-signals
			f.beginDrain() // who reads the entry knows that nothing new begins
			f.o.Logger.LogAttrs(context.Background(), telemetry.LevelNotice, "shutting down",
				slog.String("function", f.o.Name), slog.String("signal", s.String()))
			go func() {
				<-signals
				f.o.Exit(1)
			}()
			f.shutDown()
		}()
	})
	return nil
}

func (f *Function) startOrExit() {
	if err := f.Start(); err != nil {
		f.logFaults(err)
		f.o.Exit(1)
	}
}

// Main serves this function alone, through the framework, until the process ends. A fault ends it with code 1. host may
// be empty for all addresses.
func (f *Function) Main(host, port string) {
	f.startOrExit()
	err := os.Setenv(targetVariable, f.o.Name) // at "/", and no other function
	if err == nil {
		err = funcframework.StartHostPort(host, port)
	}
	f.logFaults(err)
	f.o.Exit(1)
}

// logFaults writes one line for all faults.
func (f *Function) logFaults(err error) {
	faults := strings.Split(err.Error(), "\n") // as errors.Join puts them, and config.Faults
	f.o.Logger.LogAttrs(context.Background(), telemetry.LevelCritical, "refusing to start",
		slog.String("function", f.o.Name), slog.Any("faults", faults))
}

// ready calls Build, once. A panic in it is a fault like others.
func (f *Function) ready() error {
	f.build.Do(func() {
		f.buildErr = fmt.Errorf("start-up check did not return")
		defer func() {
			if v := recover(); v != nil {
				telemetry.LogPanic(context.Background(), f.o.Logger, "start of "+f.o.Name, v, debug.Stack())
				f.buildErr = fmt.Errorf("start-up check panicked with a value of type %T", v)
			}
		}()
		f.handler, f.buildErr = f.o.Build(f)
		if f.buildErr == nil && f.handler == nil {
			f.buildErr = errors.New("start-up check returned no handler")
		}
	})
	return f.buildErr
}

// Draining ends when the process has been told to end: no new work is to be begun. Calls under way have until their
// request's context ends.
func (f *Function) Draining() context.Context { return f.draining }

// Cut ends when calls under way have had their time, seven seconds after Draining. A request's context ends then too, but
// also when its caller goes away, which need not cut off what the request has begun.
func (f *Function) Cut() context.Context { return f.cut }

// OnShutdown has run called after the last request, before the process ends: to close a client, or to flush. What was
// given last runs first. The context ends when the process is about to.
func (f *Function) OnShutdown(name string, run func(context.Context) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closers = append(f.closers, closer{name, run})
}
