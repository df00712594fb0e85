package emulators

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func program(t *testing.T, path ...string) string {
	t.Helper()
	name := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

// bare finds nothing.
func bare() finder {
	return finder{
		getenv:   func(string) string { return "" },
		lookPath: func(string) (string, error) { return "", errors.New("not found") },
		sdkRoots: func(context.Context) []string { return nil },
	}
}

func TestTheSpannerEmulatorIsFoundInThePathAndInTheSDK(t *testing.T) {
	root := t.TempDir()
	want := program(t, root, "bin", "cloud_spanner_emulator", "emulator_main")

	f := bare()
	f.sdkRoots = func(context.Context) []string { return []string{t.TempDir(), root} }
	if got, err := f.spanner(t.Context()); err != nil || got != want {
		t.Errorf("in the SDK: got %s, %v; want %s", got, err, want)
	}
	f.lookPath = func(name string) (string, error) {
		if name != "emulator_main" {
			return "", errors.New("not found")
		}
		return "/path/emulator_main", nil
	}
	if got, err := f.spanner(t.Context()); err != nil || got != "/path/emulator_main" {
		t.Errorf("in the PATH: got %s, %v", got, err)
	}
	_, err := bare().spanner(t.Context())
	if err == nil || !strings.Contains(err.Error(), "gcloud components install cloud-spanner-emulator") {
		t.Errorf("nowhere: got %v, want what to install", err)
	}
}

func TestThePubSubEmulatorNeedsJava(t *testing.T) {
	root, home := t.TempDir(), t.TempDir()
	want := program(t, root, "platform", "pubsub-emulator", "bin", "cloud-pubsub-emulator")
	program(t, home, "bin", "java")

	f := bare()
	f.sdkRoots = func(context.Context) []string { return []string{root} }
	if _, err := f.pubSub(t.Context()); err == nil || !strings.Contains(err.Error(), "Java") {
		t.Errorf("without Java: got %v", err)
	}
	f.getenv = func(name string) string { return map[string]string{"JAVA_HOME": home}[name] }
	if got, err := f.pubSub(t.Context()); err != nil || got != want {
		t.Errorf("with JAVA_HOME: got %s, %v; want %s", got, err, want)
	}
	f.getenv = func(name string) string { return map[string]string{"JAVA_HOME": root}[name] }
	if _, err := f.pubSub(t.Context()); err == nil || !strings.Contains(err.Error(), "JAVA_HOME") {
		t.Errorf("with a wrong JAVA_HOME: got %v", err)
	}
	_, err := bare().pubSub(t.Context())
	if err == nil || !strings.Contains(err.Error(), "gcloud components install pubsub-emulator") {
		t.Errorf("nowhere: got %v, want what to install", err)
	}
}

func TestSDKFoldersComeFromTheEnvironmentAndFromGcloud(t *testing.T) {
	first, second, third, home := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	program(t, first, "bin", "gcloud")
	program(t, second, "bin", "gcloud")
	program(t, second, "lib", "gcloud.py")
	program(t, third, "bin", "gcloud")
	program(t, home, "google-cloud-sdk", "bin", "gcloud")
	link := filepath.Join(t.TempDir(), "gcloud")
	if err := os.Symlink(filepath.Join(second, "bin", "gcloud"), link); err != nil {
		t.Fatal(err)
	}
	f := bare()
	f.getenv = func(name string) string {
		return map[string]string{"CLOUDSDK_ROOT_DIR": first, "CLOUDSDK_ROOT": filepath.Join(first, "no-such"), "HOME": home}[name]
	}
	f.lookPath = func(string) (string, error) { return link, nil }
	got := strings.Join(f.installedSDKRoots(t.Context()), "\n") + "\n"
	for _, want := range []string{first, second, filepath.Join(home, "google-cloud-sdk")} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("%s is missing in:\n%s", want, got)
		}
	}
	if strings.Contains(got, "no-such") {
		t.Errorf("a folder that is not there:\n%s", got)
	}

	// A gcloud that is a wrapper from elsewhere is asked.
	wrapper := filepath.Join(t.TempDir(), "gcloud")
	if err := os.WriteFile(wrapper, []byte("#!/bin/sh\necho "+third+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	f.lookPath = func(string) (string, error) { return wrapper, nil }
	if got := strings.Join(f.installedSDKRoots(t.Context()), "\n"); !strings.Contains(got, third) {
		t.Errorf("%s is missing in:\n%s", third, got)
	}
}
