package main

import (
	"archive/zip"
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/freeport"
	"github.com/pubsub-inbox/pubsub-inbox/internal/funcserver/buildpack"
)

const root = "../.."

func archive(t *testing.T) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "functions.zip")
	if err := run(root, out, io.Discard); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestTheSameSourcesGiveTheSameBytes(t *testing.T) {
	first := archive(t)
	t.Setenv("GOFLAGS", "-buildvcs=false")
	t.Setenv("GOOS", "windows")
	t.Setenv("TZ", "Pacific/Auckland")
	if !bytes.Equal(first, archive(t)) {
		t.Error("made twice, the archive differs")
	}
}

func TestNothingElseIsInIt(t *testing.T) {
	opened := open(t, archive(t))
	var names []string
	for _, f := range opened.File {
		names = append(names, f.Name)
		switch {
		case strings.HasSuffix(f.Name, "_test.go"), strings.Contains(f.Name, "testdata"), strings.HasPrefix(f.Name, "cmd/"),
			strings.HasPrefix(f.Name, "internal/migrate"), strings.HasPrefix(f.Name, "terraform"):
			t.Errorf("%s is in it, which no function needs", f.Name)
		case filepath.IsAbs(f.Name), strings.Contains(f.Name, ".."):
			t.Errorf("%s leads elsewhere", f.Name)
		}
		if f.Mode() != 0o644 {
			t.Errorf("%s has the mode %v", f.Name, f.Mode())
		}
	}
	for _, want := range []string{"function.go", "go.mod", "go.sum", "LICENSE", "functions/receive/receive.go", "functions/relay/relay.go"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not in it", want)
		}
	}
}

// Unpacked elsewhere, with nothing of the working tree: what the buildpack makes of it serves both functions.
func TestItBuildsAndServesBothFunctionsElsewhere(t *testing.T) {
	dir := t.TempDir()
	for _, f := range open(t, archive(t)).File {
		name := filepath.Join(dir, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		in, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, text, f.Mode()); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(t.TempDir(), "main")
	if err := (buildpack.Tree{Root: dir}).Compile(t.Context(), program); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "inbox.yaml")
	if err := os.WriteFile(config, []byte("consumer: c\nengines: {e: {kind: http, url: 'http://engine.invalid', idempotent: true}}\n"+
		"routes: [{name: r, engine: e, message: M}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{"Receive", "Relay"} {
		t.Run(target, func(t *testing.T) {
			port, err := freeport.Hold()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = port.Release() })
			var log bytes.Buffer
			cmd := exec.Command(program)
			cmd.Dir = t.TempDir()
			cmd.Env = []string{"FUNCTION_TARGET=" + target, "PORT=" + port.String(), "INBOX_CONFIG_FILE=" + config,
				"SPANNER_DATABASE=projects/p/instances/i/databases/d", "AUTH_MODE=none"}
			cmd.Stdout, cmd.Stderr = &log, &log
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := false
			end := func() {
				if !ended {
					ended = true
					_ = cmd.Process.Kill()
					_ = cmd.Wait()
				}
			}
			t.Cleanup(end)
			// Its own answer to a method that it does not take: from the configured function, without a database.
			status := 0
			for deadline := time.Now().Add(3 * time.Minute); status == 0 && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
				if resp, err := http.Get("http://" + port.Address() + "/"); err == nil {
					resp.Body.Close()
					status = resp.StatusCode
				}
			}
			if status != http.StatusMethodNotAllowed {
				end()
				t.Errorf("GET / was answered %d, want 405; it said:\n%s", status, log.String())
			}
		})
	}
}

func open(t *testing.T, text []byte) *zip.Reader {
	t.Helper()
	archive, err := zip.NewReader(bytes.NewReader(text), int64(len(text)))
	if err != nil {
		t.Fatal(err)
	}
	return archive
}
