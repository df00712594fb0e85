package flowabletest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

//go:embed java/pom.xml java/src
var sources embed.FS

// Missing says what this machine lacks to run Flowable, or nothing.
func Missing() error {
	var missing []string
	for command, what := range map[string]string{"java": "a Java runtime of version 17 or later", "javac": "a Java compiler of version 17 or later", "mvn": "Maven"} {
		if _, err := exec.LookPath(command); err != nil {
			missing = append(missing, command+" ("+what+")")
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the PATH lacks %s; on Debian: apt-get install default-jdk-headless maven", strings.Join(missing, " and "))
	}
	return nil
}

// buildTimeout is for the first build, which downloads what Maven needs.
const buildTimeout = 8 * time.Minute

var (
	building sync.Mutex
	built    string
)

// Build returns the executable jar, after building it unless that has been done before.
func Build(ctx context.Context) (string, error) {
	building.Lock()
	defer building.Unlock()
	if built != "" {
		return built, nil
	}
	if err := Missing(); err != nil {
		return "", err
	}
	files, hash, err := read()
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	cache = filepath.Join(cache, "pubsub-inbox", "flowabletest")
	jar := filepath.Join(cache, hash+".jar")
	if _, err := os.Stat(jar); err == nil {
		built = jar
		return jar, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", fmt.Errorf("make the folder for Flowable: %w", err)
	}
	work, err := os.MkdirTemp(cache, "build-")
	if err != nil {
		return "", fmt.Errorf("make the folder for Flowable: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	for path, content := range files {
		target := filepath.Join(work, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(target), 0o755), os.WriteFile(target, content, 0o644)); err != nil {
			return "", fmt.Errorf("write the sources of Flowable's server: %w", err)
		}
	}
	if err := maven(ctx, work); err != nil {
		return "", err
	}
	// Renamed, so that whoever builds at the same time finds a whole file or none.
	if err := os.Rename(filepath.Join(work, "target", "flowabletest.jar"), jar); err != nil {
		return "", fmt.Errorf("keep what was built: %w", err)
	}
	built = jar
	return jar, nil
}

// maven builds without the network where it can, and with it where it must.
func maven(ctx context.Context, folder string) error {
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	var out bytes.Buffer
	for _, args := range [][]string{{"-o"}, {}} {
		out.Reset()
		cmd := exec.CommandContext(ctx, "mvn", append(args, "-q", "-B", "-DskipTests", "package")...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = folder, &out, &out
		cmd.SysProcAttr = childAttributes()
		cmd.WaitDelay = 5 * time.Second
		err := cmd.Run()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	text := out.String()
	return fmt.Errorf("build Flowable's server with Maven:\n%s", text[max(0, len(text)-8<<10):])
}

func read() (files map[string][]byte, hash string, err error) {
	files, sum := map[string][]byte{}, sha256.New()
	err = fs.WalkDir(sources, "java", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := sources.ReadFile(path)
		if err != nil {
			return err
		}
		path = strings.TrimPrefix(path, "java/")
		files[path] = content
		fmt.Fprintf(sum, "%d %s %d ", len(path), path, len(content))
		sum.Write(content)
		return nil
	})
	return files, hex.EncodeToString(sum.Sum(nil))[:16], err
}
