package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/pubsub-inbox/pubsub-inbox/internal/config"
	"github.com/pubsub-inbox/pubsub-inbox/internal/demoengine"
)

func TestTheDemoNoticesEachDifference(t *testing.T) {
	first := &message{id: "1", row: &row{id: "a"}}
	good := func() message {
		return message{what: "m", id: "2", key: "k",
			row:  &row{id: "b", status: "PARKED", reason: "R", attempts: 2, deliveries: 1, engineSaw: []string{"404", "200"}, conflictsWith: "a"},
			want: want{status: "PARKED", reason: "R", attempts: -1, deliveries: 1, engineSaw: "404( 404)* 200", conflictsWith: first}}
	}
	for _, tt := range []struct {
		name   string
		change func(*message)
		want   int
	}{
		{"as expected", func(*message) {}, 0},
		{"another status", func(m *message) { m.row.status = "PROCESSED" }, 1},
		{"another reason", func(m *message) { m.row.reason = "" }, 1},
		{"too few attempts", func(m *message) { m.row.attempts = 1 }, 1},
		{"other attempts", func(m *message) { m.want.attempts = 3 }, 1},
		{"another delivery", func(m *message) { m.row.deliveries = 2 }, 1},
		{"an answer more", func(m *message) { m.row.engineSaw = []string{"404", "200", "200"} }, 1},
		{"no answer", func(m *message) { m.row.engineSaw = nil }, 1},
		{"contradicts another", func(m *message) { m.row.conflictsWith = "c" }, 1},
		{"contradicts and should not", func(m *message) { m.want.conflictsWith = nil }, 1},
		{"no row", func(m *message) { m.row = nil }, 1},
		{"a row of its own", func(m *message) { m.want = want{norow: true} }, 1},
		{"no row, as expected", func(m *message) { m.row, m.want = nil, want{norow: true} }, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, s := good(), &story{}
			tt.change(&m)
			s.compare(&m)
			if len(s.differences) != tt.want {
				t.Errorf("got differences %q, want %d", s.differences, tt.want)
			}
		})
	}
}

func TestTheDemoNoticesAnotherOrder(t *testing.T) {
	e := &served{Engine: demoengine.New(demoengine.Options{})}
	e.Start("k", "A", "B")
	for _, message := range []string{"A", "B"} {
		r := httptest.NewRequest(http.MethodPost, "/events", strings.NewReader("{}"))
		r.Header.Set("Ce-Subject", "k")
		r.Header.Set("Ce-Type", message)
		r.Header.Set("Ce-Id", message)
		e.ServeHTTP(httptest.NewRecorder(), r)
	}
	s := &story{}
	if got := s.inOrder(e, "k", "A", "B"); !slices.Equal(got, []string{"A", "B"}) || len(s.differences) != 0 {
		t.Errorf("got %v with differences %q, want A and B with none", got, s.differences)
	}
	for _, other := range [][]string{{"B", "A"}, {"A"}, {"A", "B", "B"}, {}} {
		s := &story{}
		if s.inOrder(e, "k", other...); len(s.differences) != 1 {
			t.Errorf("want %v: got differences %q, want one", other, s.differences)
		}
	}
}

func TestTheSameAnswersAreShownOnce(t *testing.T) {
	for want, statuses := range map[string][]string{
		"":                           nil,
		"200":                        {"200"},
		"404 (3 times), 200":         {"404", "404", "404", "200"},
		"503, 404 (2 times), 503, 0": {"503", "404", "404", "503", "0"},
	} {
		if got := condense(statuses); got != want {
			t.Errorf("condense(%q) is %q, want %q", statuses, got, want)
		}
	}
}

func TestTheEmbeddedConfigurationsAreValid(t *testing.T) {
	engine := &served{url: "http://127.0.0.1:1"}
	for name, text := range map[string]string{"demo.yaml": demoConfig, "default.yaml": defaultConfig} {
		for _, text := range []string{text, withEngines(text, map[string]*served{"orders": engine, "billing": engine, "demo": engine})} {
			cfg, warnings, err := config.Parse(name, []byte(text))
			if err != nil || len(warnings) > 0 {
				t.Errorf("%s: error %v, warnings %v", name, err, warnings)
				continue
			}
			for _, e := range cfg.Engines {
				if strings.HasPrefix(text, demoConfig) || strings.HasPrefix(text, defaultConfig) {
					continue // the file as it is
				}
				if e.URL != engine.url+"/events" {
					t.Errorf("%s: the engine %s is at %s, want where it is served", name, e.Name, e.URL)
				}
			}
		}
	}
}

func TestAPersonCanStartAndRemoveInstancesAndSeeTheHistory(t *testing.T) {
	e := demoengine.New(demoengine.Options{})
	server := httptest.NewServer(engineHandler(e))
	defer server.Close()
	ask := func(method, path, body string, headers ...string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(answer)
	}
	if status, body := ask(http.MethodPost, "/instances", `{"key": "k", "messages": ["A", "B"]}`); status != http.StatusCreated || !strings.Contains(body, "instance-1") {
		t.Errorf("starting an instance: %d %s", status, body)
	}
	for _, body := range []string{``, `{"key": "k"}`, `{"messages": ["A"]}`} {
		if status, _ := ask(http.MethodPost, "/instances", body); status != http.StatusBadRequest {
			t.Errorf("starting an instance with %q: %d, want 400", body, status)
		}
	}
	if status, body := ask(http.MethodPost, "/events", `{}`, "Ce-Subject", "k", "Ce-Type", "A", "Ce-Id", "1"); status != http.StatusOK {
		t.Errorf("a delivery: %d %s, want 200: the engine itself is still there", status, body)
	}
	if _, body := ask(http.MethodGet, "/history", ""); strings.Count(body, "\n") != 1 || !strings.Contains(body, `"advanced":"instance-1"`) {
		t.Errorf("the history is %q, want one line that names the instance", body)
	}
	if status, _ := ask(http.MethodDelete, "/instances?key=k", ""); status != http.StatusNoContent || e.Waiting("k", "B") != 0 {
		t.Errorf("removing an instance: %d, and %d still wait", status, e.Waiting("k", "B"))
	}
	if status, _ := ask(http.MethodDelete, "/instances?key=k", ""); status != http.StatusNotFound {
		t.Errorf("removing one that is not there: %d, want 404", status)
	}
}

func TestVariablesAreWrittenAsAShellTakesThem(t *testing.T) {
	env := []string{"A=projects/p", "B=/my files/it's.yaml", "C="}
	out, err := exec.Command("sh", "-c", export(env)+`printf '%s|%s|%s' "$A" "$B" "$C"`).CombinedOutput()
	if want := "projects/p|/my files/it's.yaml|"; err != nil || string(out) != want {
		t.Errorf("a shell read %q (%v), want %q", out, err, want)
	}
}
