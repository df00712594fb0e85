package flowabletest

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/freeport"
)

// The users of the server. The stranger lacks the privilege to use the REST API.
const (
	User             = "inbox"
	Password         = "inbox-secret"
	Stranger         = "stranger"
	StrangerPassword = "stranger-secret"
)

// Options are how a server differs from an ordinary one.
type Options struct {
	History    string // Flowable's history level; empty: audit, which is Flowable's own default
	MaskErrors bool   // hide the texts of errors that Flowable does not know (sendFullErrorException=false)
	Folder     string // keep the database here, so that it survives a Restart; empty: in memory
	Properties string // a file of Spring Boot settings, absolute; it yields to what is set above. Empty: none
}

// Server is a running Flowable.
type Server struct {
	options Options
	jar     string
	port    *freeport.Port // its own until the program ends: it comes back to it after a Restart

	mu    sync.Mutex
	child *child
}

// Start starts a server, and ends it with the test.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	s, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// Run starts a server and waits until it answers.
func Run(ctx context.Context, o Options) (*Server, error) {
	jar, err := Build(ctx)
	if err != nil {
		return nil, err
	}
	port, err := freeport.Hold()
	if err != nil {
		return nil, err
	}
	s := &Server{options: o, jar: jar, port: port}
	return s, s.Resume(ctx)
}

// URL is the base of the REST API.
func (s *Server) URL() string { return "http://" + s.port.Address() + "/process-api" }

// JobsURL is the base of the REST API of external workers.
func (s *Server) JobsURL() string { return "http://" + s.port.Address() + "/external-job-api" }

// Restart kills the server, as a crash would, and starts it on the same port.
func (s *Server) Restart(ctx context.Context) error {
	s.Stop()
	return s.Resume(ctx)
}

// Stop kills the server.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.child != nil {
		s.child.kill()
		s.child = nil
	}
}

const startTimeout = 90 * time.Second

// Resume starts a stopped server, on its old port.
func (s *Server) Resume(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	database := "jdbc:h2:mem:flowable;DB_CLOSE_DELAY=-1"
	if s.options.Folder != "" {
		// Without a delay: H2 would otherwise lose what it had committed in the last half second.
		database = "jdbc:h2:file:" + filepath.Join(s.options.Folder, "flowable") + ";WRITE_DELAY=0"
	}
	history := s.options.History
	if history == "" {
		history = "audit"
	}
	args := []string{"-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-jar", s.jar,
		"--server.address=127.0.0.1", "--server.port=" + s.port.String(), "--spring.datasource.url=" + database,
		"--flowable.history-level=" + history, "--flowabletest.full-errors=" + strconv.FormatBool(!s.options.MaskErrors)}
	if s.options.Properties != "" {
		args = append(args, "--spring.config.additional-location=file:"+s.options.Properties)
	}
	c, err := startChild("java", args...)
	if err != nil {
		return err
	}
	s.child = c
	if err := s.await(ctx, c); err != nil {
		c.kill()
		s.child = nil
		return fmt.Errorf("start Flowable: %w; its output:\n%s", err, c.out.tail())
	}
	return nil
}

func (s *Server) await(ctx context.Context, c *child) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if s.answers(ctx) {
			return nil
		}
		select {
		case <-tick.C:
		case <-c.done:
			return fmt.Errorf("it ended by itself: %w", c.err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *Server) answers(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL()+"/management/engine", nil)
	if err != nil {
		return false
	}
	req.SetBasicAuth(User, Password)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// child is a process that ends with us.
type child struct {
	cmd  *exec.Cmd
	out  *output
	done chan struct{}
	err  error
}

func startChild(name string, args ...string) (*child, error) {
	c := &child{cmd: exec.Command(name, args...), out: &output{}, done: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr, c.cmd.SysProcAttr = c.out, c.out, childAttributes()
	c.cmd.WaitDelay = 2 * time.Second
	started := make(chan error, 1)
	go func() {
		// The kernel ends the child when the thread that started it ends: this one stays until then.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		started <- err
		if err == nil {
			c.err = c.cmd.Wait()
			close(c.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start Flowable: %w", err)
	}
	return c, nil
}

func (c *child) kill() {
	select {
	case <-c.done:
	default:
		_ = c.cmd.Process.Kill()
		<-c.done
	}
}

// output keeps the last bytes that a child has printed.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

const outputLimit = 32 << 10

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.buf.Len() > outputLimit {
		kept := bytes.Clone(o.buf.Bytes()[o.buf.Len()-outputLimit/2:])
		o.buf.Reset()
		o.buf.Write(kept)
	}
	return o.buf.Write(p)
}

func (o *output) tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
