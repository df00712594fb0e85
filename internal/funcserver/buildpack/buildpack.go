// Package buildpack does to a source tree what Google's Go function buildpack does, so that a test fails where a
// deployment would, and so that a test can run the very main that production runs.
//
// # What it promises
//
// Check refuses a tree that the buildpack would refuse, or would build into something else: no or several packages at
// the root (an external _test package is one too), no import of the framework there, a module path without a dot in its
// first element, a go.work, a vendor directory without the framework, a go directive the runtime is too old for.
// Compile generates the buildpack's main in the place where the buildpack puts it, inside the module, and builds it. No
// file is written into the tree: the main exists in an overlay only.
//
// # What it does not promise
//
// It is the buildpack's logic done again from its source, not the buildpack. The buildpack runs `go mod tidy` with the
// main in place; here the go.mod must do as it is (-mod=readonly), which is stricter. Trees without a go.mod, and the
// buildpack's older templates, are refused rather than imitated.
//
// # Concurrency
//
// Functions may be called at the same time, also for one tree.
//
// Source: GoogleCloudPlatform/buildpacks at 21f28de, cmd/go/functions_framework/lib/lib.go,
// .../lib/template_declarative.go, .../converter/get_package/main.go; runtimes: builders/go/acceptance/runtime.bzl.
package buildpack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"go/version"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	framework     = "github.com/GoogleCloudPlatform/functions-framework-go"
	functionsPkg  = framework + "/functions"
	funcframework = framework + "/funcframework"
	mainDir       = "functions.local/app" // below the root

	// runtimeGo is the Go of the runtime that deployments ask for (go126).
	runtimeGo = "go1.26.7"
)

// mainText is what the buildpack's declarative template does: it registers by a blank import and starts the framework.
const mainText = `package main

import (
	"log"
	"net/http"
	"os"

	_ %q

	"github.com/GoogleCloudPlatform/functions-framework-go/funcframework"
)

func main() {
	http.HandleFunc("/robots.txt", http.NotFound)
	http.HandleFunc("/favicon.ico", http.NotFound)

	port := os.Getenv("PORT")
	if port == "" {
		port = "8080"
	}
	if err := funcframework.Start(port); err != nil {
		log.Fatalf("Function failed to start: %%v\n", err)
	}
}
`

// Tree is a source tree as the buildpack would get it.
type Tree struct {
	// Root is the directory with go.mod.
	Root string
	// Overlay replaces files, or adds them: path below Root -> file to take instead.
	Overlay map[string]string
}

// Check answers all that would keep the buildpack from building t, joined, and else the root's import path.
func (t Tree) Check(ctx context.Context) (importPath string, err error) {
	var faults []error
	add := func(err error) {
		if err != nil {
			faults = append(faults, err)
		}
	}
	add(t.checkPackage())
	importPath, err = t.checkModule(ctx)
	add(err)
	if exists(filepath.Join(t.Root, "go.work")) {
		add(errors.New("go.work: `go list -m` prints every module of it, which the buildpack takes for one import path; leave it out"))
	}
	if exists(filepath.Join(t.Root, "vendor")) && !exists(filepath.Join(t.Root, "vendor", filepath.FromSlash(funcframework))) {
		add(fmt.Errorf("vendor: lacks %s, which only the generated main imports", funcframework))
	}
	return importPath, errors.Join(faults...)
}

// checkPackage reads the root's files as get_package does: every *.go, whatever its build constraints, tests too.
func (t Tree) checkPackage() error {
	names, err := filepath.Glob(filepath.Join(t.Root, "*.go"))
	if err != nil {
		return err
	}
	source := map[string]string{}
	for _, n := range names {
		source[filepath.Base(n)] = n
	}
	for below, file := range t.Overlay {
		if filepath.Dir(below) == "." && strings.HasSuffix(below, ".go") {
			source[below] = file
		}
	}
	packages := map[string][]string{}
	imports := map[string]bool{}
	for name, path := range source {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return fmt.Errorf("root package: %w", err)
		}
		packages[f.Name.Name] = append(packages[f.Name.Name], name)
		for _, i := range f.Imports {
			p, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return fmt.Errorf("root package: %s: %w", name, err)
			}
			imports[p] = true
		}
	}
	switch {
	case len(packages) == 0:
		return errors.New("root package: no .go file; the buildpack looks for functions nowhere else")
	case len(packages) > 1:
		var all []string
		for p, files := range packages {
			slices.Sort(files)
			all = append(all, fmt.Sprintf("%s (%s)", p, strings.Join(files, ", ")))
		}
		slices.Sort(all)
		return fmt.Errorf("root package: several: %s; an external test package counts", strings.Join(all, "; "))
	case packages["main"] != nil:
		return errors.New("root package: main, which the generated main cannot import")
	case !imports[functionsPkg]:
		return fmt.Errorf("root package: does not import %s: the buildpack would use another template", functionsPkg)
	}
	return nil
}

func (t Tree) checkModule(ctx context.Context) (string, error) {
	goMod := filepath.Join(t.Root, "go.mod")
	info, err := os.Stat(goMod)
	if err != nil {
		return "", fmt.Errorf("go.mod: none at the root: %w", err)
	}
	if info.Mode().Perm()&0o200 == 0 {
		return "", errors.New("go.mod: not writable; the buildpack changes it")
	}
	if !exists(filepath.Join(t.Root, "go.sum")) {
		return "", errors.New("go.sum: none at the root; the versions built would be chosen at deployment")
	}
	out, err := t.run(ctx, "go", "mod", "edit", "-json")
	if err != nil {
		return "", err
	}
	var mod struct {
		Module  struct{ Path string }
		Go      string
		Require []struct{ Path string }
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		return "", fmt.Errorf("go.mod: %w", err)
	}
	var faults []error
	if first, _, _ := strings.Cut(mod.Module.Path, "/"); !strings.Contains(first, ".") {
		faults = append(faults, fmt.Errorf("go.mod: module %s: the first element needs a dot", mod.Module.Path))
	}
	if version.Compare("go"+mod.Go, runtimeGo) > 0 {
		faults = append(faults, fmt.Errorf("go.mod: go %s is newer than the runtime's %s", mod.Go, runtimeGo))
	}
	if !slices.ContainsFunc(mod.Require, func(r struct{ Path string }) bool { return r.Path == framework }) {
		faults = append(faults, fmt.Errorf("go.mod: does not require %s: the buildpack would inject a version", framework))
	}
	return mod.Module.Path, errors.Join(faults...)
}

// Compile checks t, and builds the generated main to the file out.
func (t Tree) Compile(ctx context.Context, out string) error {
	importPath, err := t.Check(ctx)
	if err != nil {
		return err
	}
	root, err := filepath.Abs(t.Root)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "buildpack")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()

	main := filepath.Join(tmp, "main.go")
	if err := os.WriteFile(main, fmt.Appendf(nil, mainText, importPath), 0o600); err != nil {
		return err
	}
	replace := map[string]string{filepath.Join(root, filepath.FromSlash(mainDir), "main.go"): main}
	for below, file := range t.Overlay {
		if replace[filepath.Join(root, filepath.FromSlash(below))], err = filepath.Abs(file); err != nil {
			return err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	overlay := filepath.Join(tmp, "overlay.json")
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		return err
	}
	_, err = t.run(ctx, "go", "build", "-mod=readonly", "-buildvcs=false", "-overlay", overlay, "-o", out, "./"+mainDir)
	return err
}

// run runs a command at the root, without the workspace of a directory above: only the tree is uploaded.
func (t Tree) run(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = t.Root
	cmd.Env = append(cmd.Environ(), "GOWORK=off", "GOFLAGS=")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, args[0], err, stderr.String())
	}
	return out, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Build compiles the tree at root for a test, and returns the program's path.
func Build(t testing.TB, root string) string {
	t.Helper()
	return BuildTree(t, Tree{Root: root})
}

// BuildTree is Build with an overlay.
func BuildTree(t testing.TB, tree Tree) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "function")
	if err := tree.Compile(t.Context(), out); err != nil {
		t.Fatalf("the buildpack would not build %s:\n%v", tree.Root, err)
	}
	return out
}
