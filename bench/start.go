package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/freeport"
	"github.com/pubsub-inbox/pubsub-inbox/internal/funcserver/buildpack"
)

// emptyFunction is what the framework needs at least, and whatever else it is to link.
const emptyFunction = `package empty

import (
	"net/http"

	"github.com/GoogleCloudPlatform/functions-framework-go/functions"
	%s
)

func init() {
	functions.HTTP("Receive", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
}
`

// measureStart compares the main that production runs with empty functions that were built the same way, from the start of
// the process to its first answer: to a request that it refuses, and to a push that it has stored. One of them links the
// Spanner client, whose packages' init is most of what a start costs, and which no inbox in Spanner can do without.
func measureStart(ctx context.Context, w *world, size sizes, r *results) error {
	dir, err := os.MkdirTemp("", "pubsub-inbox-bench")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ours, empty, linked := filepath.Join(dir, "ours"), filepath.Join(dir, "empty"), filepath.Join(dir, "empty-with-client")
	if err := (buildpack.Tree{Root: "."}).Compile(ctx, ours); err != nil {
		return err
	}
	if err := compileEmpty(ctx, empty, ""); err != nil {
		return err
	}
	if err := compileEmpty(ctx, linked, `_ "cloud.google.com/go/spanner"`); err != nil {
		return err
	}
	db, err := w.database(ctx)
	if err != nil {
		return err
	}
	env := []string{"FUNCTION_TARGET=Receive", "INBOX_CONFIG=" + fmt.Sprintf(configuration, w.url), "SPANNER_DATABASE=" + db.name,
		"SPANNER_EMULATOR_HOST=" + w.emulator.Host(), "AUTH_MODE=none"}
	sides := []struct {
		program, method string
		want            int
	}{
		{empty, http.MethodGet, http.StatusNoContent},
		{linked, http.MethodGet, http.StatusNoContent},
		{ours, http.MethodGet, http.StatusMethodNotAllowed},
		{empty, http.MethodPost, http.StatusNoContent},
		{ours, http.MethodPost, http.StatusNoContent},
	}
	took := make([][]time.Duration, len(sides))
	for i := range size.starts + 1 {
		for side, s := range sides {
			var body []byte
			if s.method == http.MethodPost {
				body = w.push(fmt.Sprintf("START-%d", i), 300)
			}
			d, err := firstAnswer(ctx, s.program, env, s.method, body, s.want)
			if err != nil {
				return fmt.Errorf("start %s: %w", filepath.Base(s.program), err)
			}
			if i > 0 { // the first reads the program from the disk
				took[side] = append(took[side], d)
			}
		}
	}
	over := func(side, base int) float64 { return median(took[side]).Seconds() / median(took[base]).Seconds() }
	r.ratio("start: time to the first answer, over an empty function", over(2, 0), 2)
	r.ratio("start: time to the first answer, over an empty function that links the Spanner client", over(2, 1), 2)
	r.ratio("start: time to the first stored push, over an empty function's first answer", over(4, 3), 0)
	return nil
}

// compileEmpty builds an empty function with the versions of this module.
func compileEmpty(ctx context.Context, out, imports string) error {
	dir := out + ".module"
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "function.go"), fmt.Appendf(nil, emptyFunction, imports), 0o600); err != nil {
		return err
	}
	return buildpack.Tree{Root: dir}.Compile(ctx, out)
}

// firstAnswer starts a program and returns how long it took until it answered. The program is ended.
func firstAnswer(ctx context.Context, program string, env []string, method string, body []byte, want int) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	port, err := freeport.Hold()
	if err != nil {
		return 0, err
	}
	defer port.Release()
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append([]string{"PORT=" + port.String()}, env...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed: that is no failure
		if err != nil {
			err = fmt.Errorf("%w; it wrote:\n%s", err, output.String())
		}
	}()
	for {
		req, err := http.NewRequestWithContext(ctx, method, "http://"+port.Address()+"/", bytes.NewReader(body))
		if err != nil {
			return 0, err
		}
		resp, err := client.Do(req)
		if err == nil {
			took = time.Since(began)
			_, err = io.Copy(io.Discard, resp.Body)
			if err := errors.Join(err, resp.Body.Close()); err != nil {
				return 0, err
			}
			if resp.StatusCode != want {
				return 0, fmt.Errorf("the first answer is %s, want %d", resp.Status, want)
			}
			return took, nil
		}
		var refused *net.OpError
		if ctx.Err() != nil || !errors.As(err, &refused) {
			return 0, err
		}
		time.Sleep(time.Millisecond) // nobody listens yet
	}
}
