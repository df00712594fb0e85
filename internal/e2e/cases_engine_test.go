package e2e_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"cloud.google.com/go/spanner"
	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/functions/receive"
	"github.com/pubsub-inbox/pubsub-inbox/internal/demoengine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/funcserver"
	"github.com/pubsub-inbox/pubsub-inbox/internal/relayer"
)

const caseRoute = `
  - {name: any, key: '"K"', engine: engine, message: M, ` + caseRetry + `}`

func (w *caseWorld) number(sql string) int64 {
	w.t.Helper()
	var n int64
	err := w.client.Single().Query(w.t.Context(), spanner.NewStatement(sql)).Do(func(r *spanner.Row) error { return r.Columns(&n) })
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

func TestC062SuccessWithoutEffectIsLabelledHandedOver(t *testing.T) {
	tests := []struct {
		name   string
		engine *recordingEngine
		want   caseRow
	}{
		{"200", &recordingEngine{status: 200, header: map[string]string{"Content-Type": "application/json"}, body: `{"reference":"instance-7"}`},
			caseRow{Place: "PROCESSED", Reference: "instance-7"}},
		{"204: a process has moved", &recordingEngine{status: 204, header: map[string]string{"Inbox-Reference": "instance-7"}},
			caseRow{Place: "PROCESSED", Reference: "instance-7"}},
		{"202: accepted, nobody has moved yet", &recordingEngine{status: 202}, caseRow{Place: "PROCESSED", HandedOver: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newCaseWorld(t, tt.engine, caseRoute)
			w.deliver(casePush{id: "1"}.body(t))
			if diff := cmp.Diff(relayer.Summary{Claimed: 1, Processed: 1}, w.run()); diff != "" {
				t.Error(diff)
			}
			row := w.rows()[0]
			row.Error = ""
			tt.want.MessageID, tt.want.Key, tt.want.Attempts = "1", "K", 1
			if diff := cmp.Diff(tt.want, row); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The case's answers are Camunda's. Its status says nothing, so that an engine behind HTTP has to say what it means by a
// problem document, or the configuration has to choose.
func TestC058AnswersOfOneStatusAreToldApartByWhatTheySay(t *testing.T) {
	var camunda []struct {
		Status int             `json:"status"`
		Body   json.RawMessage `json:"body"`
	}
	if err := json.Unmarshal(caseText(t, "C058"), &camunda); err != nil {
		t.Fatal(err)
	}
	raw := func(n int) *recordingEngine {
		body, kind := string(camunda[n].Body), "application/json"
		var text string
		if json.Unmarshal(camunda[n].Body, &text) == nil {
			body, kind = text, "text/html"
		}
		return &recordingEngine{status: camunda[n].Status, header: map[string]string{"Content-Type": kind}, body: body}
	}
	problem := func(kind string) *recordingEngine {
		return &recordingEngine{status: 400, header: map[string]string{"Content-Type": "application/problem+json"},
			body: `{"type":"https://pubsub-inbox.dev/problems/` + kind + `","title":"as it says"}`}
	}
	tests := []struct {
		name     string
		engine   http.Handler
		statuses string
		want     caseRow
	}{
		{"nobody waits: until patience ends", problem("not-waiting"), "", caseRow{Place: "RETRYING", Attempts: 1}},
		{"many wait: at once", problem("ambiguous"), "", caseRow{Place: "PARKED/AMBIGUOUS", Attempts: 1}},
		{"refused: at once", problem("rejected"), "", caseRow{Place: "PARKED/REJECTED", Attempts: 1}},
		{"a problem that is not known: again, with a limit", problem("else"), "", caseRow{Place: "RETRYING", Attempts: 1}},
		{"Camunda's nobody, without a word from the configuration", raw(0), "", caseRow{Place: "RETRYING", Attempts: 1}},
		{"Camunda's nobody, mapped", raw(0), `"400": not_waiting`, caseRow{Place: "RETRYING", Attempts: 1}},
		{"an unsupported value, mapped", raw(2), `"400": rejected`, caseRow{Place: "PARKED/REJECTED", Attempts: 1}},
		{"a collision: soon again", raw(3), "", caseRow{Place: "RETRYING", Attempts: 1}},
		{"we are refused: no attempt is burnt", raw(4), "", caseRow{Place: "RECEIVED", Attempts: 0}},
		{"a login page is no success", raw(5), "", caseRow{Place: "RETRYING", Attempts: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newCaseWorld(t, tt.engine, caseRoute)
			w.deploy(caseRoute, tt.statuses)
			w.deliver(casePush{id: "1"}.body(t))
			w.run()
			row := w.rows()[0]
			row.Error = ""
			tt.want.MessageID, tt.want.Key = "1", "K"
			if diff := cmp.Diff(tt.want, row); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestC058WhoeverWaitsForNobodyIsParkedWhenPatienceEnds(t *testing.T) {
	engine := demoengine.New(demoengine.Options{})
	w := newCaseWorld(t, engine, `
  - {name: any, key: '"K"', engine: engine, message: M, patience: 50ms, retry: {min: 10ms, max: 20ms}}`)
	w.deliver(casePush{id: "1"}.body(t))
	eventually(t, "its patience ends", func() bool {
		w.run()
		return w.places()[0] == "PARKED/NO_WAITING_INSTANCE"
	})
	if n := len(engine.History()); n < 2 {
		t.Errorf("the engine was asked %d times: patience must be used by answers", n)
	}
	engine.Start("K", "M")
	w.reopen()
	w.run()
	if diff := cmp.Diff([]string{"PROCESSED"}, w.places()); diff != "" {
		t.Error(diff)
	}
}

func TestC086TheLocalModeCannotBeSwitchedOnByAccident(t *testing.T) {
	env := map[string]string{"SPANNER_DATABASE": "projects/p/instances/i/databases/d", "AUTH_MODE": "none",
		"INBOX_CONFIG": "consumer: c\nengines: {e: {kind: http, url: 'https://e.example'}}\nroutes:\n  - {name: r, engine: e, message: M}\n"}
	for _, tt := range []struct {
		name   string
		more   map[string]string
		starts bool
	}{
		{"on this machine", nil, true},
		{"on Cloud Run", map[string]string{"K_SERVICE": "receive"}, false},
		{"on this machine, without saying so", map[string]string{"AUTH_MODE": ""}, false},
		{"a mode that is none", map[string]string{"AUTH_MODE": "None"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lookup := func(name string) (string, bool) {
				if value, ok := tt.more[name]; ok {
					return value, value != ""
				}
				value, ok := env[name]
				return value, ok
			}
			o := receive.Options(lookup, t.Output())
			_, err := o.Build(funcserver.New(o))
			if (err == nil) != tt.starts {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestC100APackedPayloadReachesItsEngineWithItsCoding(t *testing.T) {
	var got []byte
	engine := &recordingEngine{status: 204}
	w := newCaseWorld(t, http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		got, _ = io.ReadAll(r.Body)
		engine.ServeHTTP(answer, r)
	}), `
  - {name: any, key: payload.workOrderId, engine: engine, message: M, `+caseRetry+`}`)
	w.deliver(caseInput(t, "C100")...)
	w.run()
	headers := engine.all()
	if row := w.rows()[0]; row.Place != "PROCESSED" || row.Key == "" || len(headers) != 1 {
		t.Fatalf("%+v after %d calls", row, len(headers))
	}
	if kind, coding := headers[0].Get("Content-Type"), headers[0].Get("Content-Encoding"); kind != "application/json" || coding != "gzip" {
		t.Errorf("sent as %q and %q", kind, coding)
	}
	zip, err := gzip.NewReader(bytes.NewReader(got))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(zip); err != nil || !json.Valid(text) {
		t.Errorf("the engine reads %q, %v", text, err)
	}
}
