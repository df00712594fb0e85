// Command dist writes the archive that both functions are deployed from: `make dist`.
//
// It promises: the archive holds go.mod, go.sum, the license, and the Go files and embedded files of the packages that the
// root package and Google's generated main link, for linux/amd64; no test, no tool, nothing else of the working tree. The
// same sources give the same bytes, whenever and wherever it is made: names are sorted, times and modes are fixed, and
// nothing is compressed, because Go's versions compress differently. Its SHA-256 names the object that Terraform uploads.
package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"time"
)

func main() {
	root := flag.String("root", ".", "the module's `directory`")
	out := flag.String("o", "dist/functions.zip", "the archive to write")
	flag.Parse()
	if err := run(*root, *out, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "dist: %v\n", err)
		os.Exit(1)
	}
}

func run(root, out string, w io.Writer) error {
	files, err := list(root)
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	if err := pack(&archive, root, files); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(out, archive.Bytes(), 0o644); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%x  %s\n", sha256.Sum256(archive.Bytes()), out)
	return err
}

// linked are the packages that are built: the root, which has the functions, and the mains that run one alone. They also
// import what the buildpack's main imports, so that go.sum covers it.
var linked = []string{".", "./functions/receive/cmd", "./functions/relay/cmd"}

// list returns the archive's files below root, sorted.
func list(root string) ([]string, error) {
	cmd := exec.Command("go", append([]string{"list", "-deps", "-json=Dir,Module,GoFiles,EmbedFiles,CgoFiles,SFiles"}, linked...)...)
	cmd.Dir = root
	// Where it is made must not decide what is in it.
	cmd.Env = append(cmd.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, stderr.String())
	}
	files := []string{"LICENSE", "go.mod", "go.sum"}
	for packages := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Dir    string
			Module *struct {
				Main bool
				Dir  string
			}
			GoFiles, EmbedFiles, CgoFiles, SFiles []string
		}
		if err := packages.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		if p.Module == nil || !p.Module.Main {
			continue
		}
		below, err := filepath.Rel(p.Module.Dir, p.Dir)
		if err != nil {
			return nil, err
		}
		for _, name := range slices.Concat(p.GoFiles, p.EmbedFiles, p.CgoFiles, p.SFiles) {
			files = append(files, path.Join(filepath.ToSlash(below), filepath.ToSlash(name)))
		}
	}
	slices.Sort(files)
	return slices.Compact(files), nil
}

// pack writes the files as they are.
func pack(w io.Writer, root string, files []string) error {
	archive := zip.NewWriter(w)
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		// The format's first day, as a fixed time; go.mod must be writable, because the buildpack changes it.
		header := &zip.FileHeader{Name: name, Method: zip.Store, Modified: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)}
		header.SetMode(0o644)
		f, err := archive.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := f.Write(text); err != nil {
			return err
		}
	}
	return archive.Close()
}
