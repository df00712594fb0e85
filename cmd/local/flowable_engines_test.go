//go:build engines

package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestTheDemoWithFlowableGoesAsExpected(t *testing.T) {
	if os.Getenv("SKIP_ENGINES") == "1" {
		t.Skip("SKIP_ENGINES=1")
	}
	cmd := exec.Command(program, "demo-flowable")
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the demo ended with %v; it said:\n%s", err, out)
	}
	for _, want := range []string{"PARKED/AMBIGUOUS: 3 executions", "reopened, was PARKED/AMBIGUOUS", "INV-WO-1008"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the demo said nothing of %q:\n%s", want, out)
		}
	}
}
