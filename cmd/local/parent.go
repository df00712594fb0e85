package main

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// parentPoll is how soon the end of `go run` is noticed. Asking costs nothing.
const parentPoll = 200 * time.Millisecond

// parentEnds returns true when the process that started this one has ended, if that was `go run`: it does not pass on a
// SIGTERM, so that `kill $!` in a script would end `go run` and leave everything else running. Any other parent may end
// before us: a shell that put us into the background does. It returns false when ctx ends, or at once.
func parentEnds(ctx context.Context) bool {
	parent := os.Getppid()
	if !startedByGoRun(parent) {
		return false
	}
	tick := time.NewTicker(parentPoll)
	defer tick.Stop()
	for os.Getppid() == parent {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}

// startedByGoRun looks at the parent's program. Where there is no /proc it goes by where `go run` puts what it builds.
func startedByGoRun(parent int) bool {
	if program, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(parent), "exe")); err == nil {
		return filepath.Base(program) == "go"
	}
	if _, err := os.Stat("/proc/self/exe"); err == nil {
		return false // another user's
	}
	program, err := os.Executable()
	return err == nil && strings.Contains(program, "go-build")
}
