package funcserver_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var testContext = context.Background()

func TestMain(m *testing.M) {
	code := m.Run()
	if program, err := fixture(); err == nil {
		_ = os.Remove(program)
	}
	os.Exit(code)
}

var receiveEnv = []string{"FUNCTION_TARGET=Receive", "FIXTURE_DATABASE=d", "FIXTURE_BUCKET=b"}

func TestTheGeneratedMainServesItsTargetOnEveryPath(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		env  []string
	}{
		{name: "Receive", env: receiveEnv},
		{name: "Relay", env: []string{"FUNCTION_TARGET=Relay", "FIXTURE_RELAY=x"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := run(t, tt.env...).serving()
			for _, path := range []string{"/", "/any/path"} {
				if diff := cmp.Diff(tt.name, p.get(path).header.Get("X-Function")); diff != "" {
					t.Errorf("function at %s (-want +got):\n%s", path, diff)
				}
			}
		})
	}
}

func TestABadEnvironmentIsOneLineWithAllFaultsAndCodeOne(t *testing.T) {
	t.Parallel()
	p := run(t, "FUNCTION_TARGET=Receive") // Relay's fault is not ours
	if code := p.exit(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	lines := p.rest()
	if len(lines) != 1 {
		t.Fatalf("%d lines, want 1: %q", len(lines), lines)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(lines[0]), &got); err != nil {
		t.Fatal(err)
	}
	delete(got, "time")
	want := map[string]any{
		"severity": "CRITICAL", "message": "refusing to start", "function": "Receive",
		"faults": []any{"FIXTURE_DATABASE: not set (100% needed)", "FIXTURE_BUCKET: not set (100% needed)"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entry (-want +got):\n%s", diff)
	}
	if p.stdout.String() != "" {
		t.Errorf("stdout %q", p.stdout.String())
	}
}

func TestAnUnknownTargetIsRefusedByTheFramework(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"Recieve", "receive"} { // names are matched to the letter
		p := run(t, "FUNCTION_TARGET="+target)
		if code := p.exit(); code != 1 {
			t.Errorf("%s: exit code %d, want 1", target, code)
		}
		if all := strings.Join(p.rest(), "\n"); !strings.Contains(all, "no matching function found with name: \""+target+"\"") {
			t.Errorf("%s: stderr %q", target, all)
		}
	}
}

func TestWithoutATargetNothingIsCheckedBeforeTheFirstRequest(t *testing.T) {
	t.Parallel()
	p := run(t, "FIXTURE_RELAY=x").serving() // Receive's environment is bad
	if a := p.get("/Relay"); a.status != http.StatusOK {
		t.Errorf("Relay answers %d, want 200", a.status)
	}
	if a := p.get("/Receive"); a.status != http.StatusServiceUnavailable || a.body != "not started\n" {
		t.Errorf("Receive answers %d %q, want 503", a.status, a.body)
	}
}

func TestSIGTERMLetsARequestInFlightFinish(t *testing.T) {
	t.Parallel()
	p := run(t, receiveEnv...).serving()
	body, got := p.slow()
	begin := time.Now()
	p.terminate()
	if diff := cmp.Diff("NOTICE", p.await("shutting down")["severity"]); diff != "" {
		t.Errorf("severity (-want +got):\n%s", diff)
	}
	p.refuses()
	p.write(body)
	if err := body.Close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("200 8 bytes, draining: true", p.answer(got)); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	p.await("fixture closed")
	if code := p.exit(); code != 0 {
		t.Errorf("exit code %d, want 0: %q", code, p.rest())
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("the end took %v: Cloud Run would have killed it", took)
	}
}

// refuses fails unless the process, which has said that it is shutting down, refuses a request.
func (p *process) refuses() {
	p.t.Helper()
	if a := p.get("/"); a.status != http.StatusServiceUnavailable || a.body != "shutting down\n" || !a.close {
		p.t.Errorf("a new request is answered %d %q (close: %t), want 503 and close", a.status, a.body, a.close)
	}
}

func TestSIGTERMCutsOffABodyThatNeverComes(t *testing.T) {
	t.Parallel()
	p := run(t, receiveEnv...).serving()
	_, got := p.slow()
	begin := time.Now()
	p.terminate()
	if diff := cmp.Diff("503 cut off\n", p.answer(got)); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	if code := p.exit(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("the end took %v: Cloud Run would have killed it", took)
	}
}

func TestSIGTERMEndsAnIdleProcess(t *testing.T) {
	t.Parallel()
	p := run(t, receiveEnv...).serving()
	p.terminate()
	p.await("fixture closed")
	if code := p.exit(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

func TestASecondSignalEndsAtOnceWithCodeOne(t *testing.T) {
	t.Parallel()
	p := run(t, receiveEnv...).serving()
	p.slow()
	p.terminate()
	p.await("shutting down") // two signals at once may be one to the process
	p.terminate()
	if code := p.exit(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
}

func TestAPanicIsOneEntryAndA500(t *testing.T) {
	t.Parallel()
	p := run(t, append(receiveEnv, "K_SERVICE=inbox")...).serving()
	type entry struct{ Severity, Message, Error, Trace string }
	tests := []struct {
		name, path string
		want       entry
	}{
		{
			name: "before the status", path: "/panic",
			want: entry{"ERROR", "panic", "assignment to entry in nil map", "projects/demo-proj/traces/4bf92f3577b34da6a3ce929d0e0e4736"},
		},
		{
			name: "after the status, with text that is not the runtime's", path: "/panic-late",
			want: entry{"ERROR", "panic", "panic with a value of type string", "projects/demo-proj/traces/4bf92f3577b34da6a3ce929d0e0e4736"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for range 50 {
				a := p.get(tt.path)
				if a.status != http.StatusInternalServerError || a.body != "internal error\n" {
					t.Fatalf("answer %d %q, want 500", a.status, a.body)
				}
			}
			for range 50 {
				got := p.await("panic")
				trace, _ := got["logging.googleapis.com/trace"].(string)
				if diff := cmp.Diff(tt.want, entry{got["severity"].(string), got["message"].(string), got["error"].(string), trace}); diff != "" {
					t.Errorf("entry (-want +got):\n%s", diff)
				}
				stack, _ := got["stack_trace"].(string)
				if !strings.Contains(stack, "receive.go") || strings.Contains(stack, "IBAN") {
					t.Errorf("stack %q", stack)
				}
			}
		})
	}
	if a := p.get("/"); a.status != http.StatusNoContent {
		t.Errorf("after 100 panics: %d, want 204", a.status)
	}
	p.terminate()
	for _, line := range p.rest() {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %q", line)
		}
	}
}

func TestPercentSignsAndLineBreaksStayInOneEntry(t *testing.T) {
	t.Parallel()
	p := run(t, append(receiveEnv, "K_SERVICE=inbox")...).serving()
	p.get("/log")
	got := p.await("100%done %s %d")
	if diff := cmp.Diff("a\nb", got["reason"]); diff != "" {
		t.Errorf("reason (-want +got):\n%s", diff)
	}
}
