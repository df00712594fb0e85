package emulators

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// process is a child that ends with us.
type process struct {
	name string
	cmd  *exec.Cmd
	out  *output
	done chan struct{} // closed when the child has ended; err is set by then
	err  error
}

// startProcess starts path in a process group of its own, so that a signal meant for us (Ctrl-C in a
// terminal) does not end it before we have finished with it.
func startProcess(name, path string, args ...string) (*process, error) {
	p := &process{name: name, cmd: exec.Command(path, args...), out: &output{}, done: make(chan struct{})}
	p.cmd.Stdout = p.out
	p.cmd.Stderr = p.out
	p.cmd.SysProcAttr = childAttributes()
	// A grandchild that keeps our pipe open must not keep Wait from returning.
	p.cmd.WaitDelay = 2 * time.Second

	started := make(chan error, 1)
	go func() {
		// The kernel ends the child when the thread that started it ends, not when the process does. So
		// this goroutine keeps one thread to itself until the child is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start the %s: %w", name, err)
	}
	return p, nil
}

// stop ends the child and what is left of its group. The emulators keep nothing, so nothing is lost by
// not asking them first.
func (p *process) stop() error {
	select {
	case <-p.done:
		return nil
	default:
	}
	if err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("end the %s: %w", p.name, err)
	}
	<-p.done
	return nil
}

// waitForLine waits until the child has printed a line that matches, and returns its first group.
func (p *process) waitForLine(ctx context.Context, re *regexp.Regexp) (string, error) {
	for {
		found, changed := p.out.find(re)
		if found != nil {
			return found[len(found)-1], nil
		}
		select {
		case <-changed:
		case <-p.done:
			// What it printed last may have arrived together with its end.
			if found, _ := p.out.find(re); found != nil {
				return found[len(found)-1], nil
			}
			return "", p.failed(fmt.Errorf("it ended by itself: %v", p.err))
		case <-ctx.Done():
			return "", p.failed(fmt.Errorf("it did not say that it is ready: %w", context.Cause(ctx)))
		}
	}
}

func (p *process) failed(err error) error {
	return fmt.Errorf("the %s (%s): %w; its output:\n%s", p.name, p.cmd.Path, err, p.out)
}

// outputLimit is how much of a child's output is shown; up to twice that is kept. The emulators log little,
// and what explains a failure is at the end.
const outputLimit = 64 << 10

// output keeps the last bytes a child has printed.
type output struct {
	mu      sync.Mutex
	buf     []byte
	changed chan struct{}
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf = append(o.buf, p...)
	if len(o.buf) > 2*outputLimit { // seldom, because it copies
		o.buf = append(o.buf[:0], o.buf[len(o.buf)-outputLimit:]...)
	}
	if o.changed != nil {
		close(o.changed)
		o.changed = nil
	}
	return len(p), nil
}

// find returns the first match, and a channel that is closed when there is more to look at.
func (o *output) find(re *regexp.Regexp) ([]string, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.changed == nil {
		o.changed = make(chan struct{})
	}
	// Only whole lines: half a port number is a port number too.
	whole := o.buf[:bytes.LastIndexByte(o.buf, '\n')+1]
	return re.FindStringSubmatch(string(whole)), o.changed
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.buf[max(0, len(o.buf)-outputLimit):])
}
