package emulators

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// finder looks for programs. Its fields are what a test replaces.
type finder struct {
	getenv   func(string) string
	lookPath func(string) (string, error)
	sdkRoots func(ctx context.Context) []string
}

func newFinder() finder {
	f := finder{getenv: os.Getenv, lookPath: exec.LookPath}
	f.sdkRoots = f.installedSDKRoots
	return f
}

// spanner returns the path of the Spanner emulator's gRPC server. gateway_main is not looked for: it
// starts emulator_main as a child of its own, which stays on the port when only the gateway is ended.
func (f finder) spanner(ctx context.Context) (string, error) {
	for _, name := range []string{"emulator_main", "cloud_spanner_emulator"} {
		if path, err := f.lookPath(name); err == nil {
			return path, nil
		}
	}
	for _, root := range f.sdkRoots(ctx) {
		if path := filepath.Join(root, "bin", "cloud_spanner_emulator", "emulator_main"); isProgram(path) {
			return path, nil
		}
	}
	return "", errors.New("no Spanner emulator: SPANNER_EMULATOR_HOST is not set, and emulator_main is neither in the PATH nor in the folder of a Google Cloud SDK; " +
		"install it with `gcloud components install cloud-spanner-emulator`, or with `apt-get install google-cloud-cli-spanner-emulator`")
}

// pubSub returns the path of the Pub/Sub emulator's start script, which needs Java.
func (f finder) pubSub(ctx context.Context) (string, error) {
	path, err := f.lookPath("cloud-pubsub-emulator")
	for _, root := range f.sdkRoots(ctx) {
		if err == nil {
			break
		}
		if p := filepath.Join(root, "platform", "pubsub-emulator", "bin", "cloud-pubsub-emulator"); isProgram(p) {
			path, err = p, nil
		}
	}
	if err != nil {
		return "", errors.New("no Pub/Sub emulator: PUBSUB_EMULATOR_HOST is not set, and cloud-pubsub-emulator is neither in the PATH nor in the folder of a Google Cloud SDK; " +
			"install it with `gcloud components install pubsub-emulator`, or with `apt-get install google-cloud-cli-pubsub-emulator`")
	}
	// The script looks for Java in this order too, but says so only on its way out.
	if home := f.getenv("JAVA_HOME"); home != "" {
		if java := filepath.Join(home, "bin", "java"); !isProgram(java) {
			return "", fmt.Errorf("the Pub/Sub emulator (%s) needs Java: JAVA_HOME is %s, where there is no bin/java; set it to a Java installation (11 or later), or unset it", path, home)
		}
	} else if _, err := f.lookPath("java"); err != nil {
		return "", fmt.Errorf("the Pub/Sub emulator (%s) needs Java: JAVA_HOME is not set and there is no java in the PATH; install it, for example with `apt-get install default-jre-headless`", path)
	}
	return path, nil
}

// installedSDKRoots returns the folders that may hold a Google Cloud SDK, likeliest first. gcloud itself is
// asked only when it is not simply one folder below: it takes a second to answer.
func (f finder) installedSDKRoots(ctx context.Context) []string {
	var roots []string
	add := func(root string) {
		if root == "" {
			return
		}
		if info, err := os.Stat(filepath.Join(root, "bin")); err == nil && info.IsDir() {
			roots = append(roots, root)
		}
	}
	for _, name := range []string{"CLOUDSDK_ROOT_DIR", "CLOUDSDK_ROOT", "GOOGLE_CLOUD_SDK", "GCLOUD_SDK_PATH"} {
		add(f.getenv(name))
	}
	gcloud, gcloudErr := f.lookPath("gcloud")
	asked := gcloudErr != nil
	if gcloudErr == nil {
		if real, err := filepath.EvalSymlinks(gcloud); err == nil {
			root := filepath.Dir(filepath.Dir(real))
			if _, err := os.Stat(filepath.Join(root, "lib", "gcloud.py")); err == nil {
				add(root)
				asked = true
			}
		}
	}
	for _, dir := range []string{"/usr/lib/google-cloud-sdk", "/usr/share/google-cloud-sdk", "/opt/google-cloud-sdk", "/google-cloud-sdk", "/snap/google-cloud-cli/current",
		"/opt/homebrew/share/google-cloud-sdk", "/usr/local/share/google-cloud-sdk", filepath.Join(f.getenv("HOME"), "google-cloud-sdk")} {
		add(dir)
	}
	if !asked {
		if out, err := exec.CommandContext(ctx, gcloud, "info", "--format=value(installation.sdk_root)").Output(); err == nil {
			add(strings.TrimSpace(string(out)))
		}
	}
	return roots
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}
