package main

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	workorder "github.com/pubsub-inbox/pubsub-inbox/examples/work-order"
	"github.com/pubsub-inbox/pubsub-inbox/internal/config"
)

func TestTheExamplesConfigurationIsValidWithWhatTheDemoChanges(t *testing.T) {
	text, err := demoSettings(workorder.Config, "http://127.0.0.1:1/process-api")
	if err != nil {
		t.Fatal(err)
	}
	c, warnings, err := config.Parse("pubsub-inbox.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range c.Engines {
		if e.URL != "http://127.0.0.1:1/process-api" {
			t.Errorf("the engine %s is at %s, want where Flowable runs", e.Name, e.URL)
		}
	}
	for _, w := range warnings { // on the loopback that is as it is meant
		if !strings.Contains(w.Message, "http") {
			t.Errorf("a warning: %v", w)
		}
	}
	if _, err := demoSettings(strings.ReplaceAll(workorder.Config, "timeout: 10s", ""), ""); err == nil {
		t.Error("an example without what the demo changes: no error")
	}
}

func TestTheDemoWithFlowableSaysWhatIsMissing(t *testing.T) {
	cmd := exec.Command(program, "demo-flowable")
	cmd.Env = append(os.Environ(), "PATH=/nowhere")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), "mvn (Maven)") || !strings.Contains(string(out), "java (") {
		t.Errorf("it ended with %v and said %q, want code 1 and what is missing", err, out)
	}
}
