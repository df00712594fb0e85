package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/pubsub-inbox/pubsub-inbox/internal/config"
)

const inboxctlPackage = "github.com/pubsub-inbox/pubsub-inbox/cmd/inboxctl"

// buildInboxctl builds inboxctl in the background, because that takes longer than the emulators do, and returns what
// waits for it. A given program is taken as it is.
func buildInboxctl(ctx context.Context, program, dir string) func(context.Context) (string, error) {
	if program != "" {
		return func(context.Context) (string, error) { return program, nil }
	}
	var err error
	built := make(chan struct{})
	program = filepath.Join(dir, "inboxctl")
	go func() {
		defer close(built)
		var output []byte
		output, err = exec.CommandContext(ctx, "go", "build", "-o", program, inboxctlPackage).CombinedOutput()
		switch {
		case errors.Is(err, exec.ErrNotFound):
			err = errors.New("build inboxctl: there is no go in the PATH; install Go, or give a built one with --inboxctl")
		case err != nil:
			err = fmt.Errorf("build inboxctl: %w; run the demo in the repository, or give a built one with --inboxctl\n%s", err, output)
		}
	}()
	return func(ctx context.Context) (string, error) {
		select {
		case <-built:
			return program, err
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// runInboxctl runs inboxctl as an operator would, shows the command, and returns what it printed.
func (s *story) runInboxctl(ctx context.Context, args ...string) (string, error) {
	program, err := s.inboxctl(ctx) // a cold build takes a while
	if err != nil {
		return "", err
	}
	shown := make([]string, len(args))
	for i, arg := range args {
		if shown[i] = arg; strings.ContainsAny(arg, " '") {
			shown[i] = `"` + arg + `"`
		}
	}
	s.say("$ inboxctl %s", strings.Join(shown, " "))
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(append(os.Environ(), s.stack.Env()...), config.EnvText+"=") // one configuration only
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("inboxctl %s: %w\n%s%s", strings.Join(args, " "), err, stdout.String(), stderr.String())
	}
	for line := range strings.Lines(stdout.String()) {
		s.say("  %s", strings.TrimRight(line, "\n"))
	}
	return stdout.String(), nil
}
