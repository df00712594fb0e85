package flowable

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
)

// answering is an engine in front of a server that answers each request alike.
func answering(t *testing.T, handler http.HandlerFunc, changes ...func(*Config)) *Engine {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	c := Config{BaseURL: s.URL + "/service", Timeout: 10 * time.Second, Correlation: Correlation{Variable: "workOrderId"}}
	for _, change := range changes {
		change(&c)
	}
	e, err := New(c, Deps{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

func say(w http.ResponseWriter, status int, media, body string) {
	w.Header().Set("Content-Type", media)
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}

var aDelivery = engine.Delivery{InboxID: "id1", Attempt: 1, Message: "WorkOrderCompleted", Key: "4711",
	Variables: map[string]json.RawMessage{"name": json.RawMessage(`"CANARY"`)}}

// TestC060: a query's answer is one page; how many there are is its total.
func TestC060(t *testing.T) {
	raw, err := os.ReadFile("testdata/C060.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []map[string]json.RawMessage
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	find := func(t *testing.T, tenant string, c map[string]json.RawMessage) (string, *engine.Result) {
		e := answering(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := json.Marshal(c)
			if text := c["body"]; text != nil {
				var s string
				_ = json.Unmarshal(text, &s)
				body = []byte(s)
			}
			say(w, http.StatusOK, "application/json", string(body))
		}, func(c *Config) { c.Tenant = tenant })
		got, res := e.find(t.Context(), aDelivery)
		return got.ID, res
	}
	for _, c := range cases {
		var expect string
		if err := json.Unmarshal(c["expect"], &expect); err != nil {
			t.Fatal(err)
		}
		delete(c, "expect")
		t.Run(expect, func(t *testing.T) {
			id, res := find(t, "", c)
			verdict := engine.Verdict("ONE")
			if res != nil {
				verdict = res.Verdict
			}
			var want engine.Verdict
			switch {
			case expect == "none":
				want = engine.NotWaiting
			case expect == "one":
				want = "ONE"
			case strings.HasPrefix(expect, "ambiguous"), strings.HasSuffix(expect, "else ambiguous"):
				want = engine.Ambiguous
			case strings.HasPrefix(expect, "protocol error"):
				want = engine.Technical
			default:
				t.Fatalf("what does %q mean?", expect)
			}
			if verdict != want || want == "ONE" && id != "e1" {
				t.Errorf("got %s %q, want %s", verdict, id, want)
			}
			if strings.HasPrefix(expect, "one if tenant") {
				if id, res := find(t, "b", c); res != nil || id != "e2" {
					t.Errorf("with a tenant: got %q %v, want its own", id, res)
				}
			}
		})
	}
}

func TestPagesThatCannotBe(t *testing.T) {
	for _, body := range []string{
		``, `null`, `{}`, `[]`, `"x"`, `{"data":[]}`, `{"data":[],"total":null}`, `{"data":[],"total":1}`, `{"data":[],"total":-1}`,
		`{"data":[{"id":"e1"}],"total":0}`, `{"data":[{"id":"e1"},{"id":"e2"}],"total":1}`, `{"data":[{}],"total":1}`,
		`{"data":[{"id":7}],"total":1}`, `{"data":{"id":"e1"},"total":1}`, `{"data":[{"id":"e1"}],"total":"1"}`,
		`{"data":[{"id":"e1"}],"total":1`, `<html></html>`,
	} {
		e := answering(t, func(w http.ResponseWriter, r *http.Request) { say(w, http.StatusOK, "application/json", body) })
		if _, res := e.find(t.Context(), aDelivery); res == nil || res.Verdict != engine.Technical {
			t.Errorf("%s: got %+v, want Technical", body, res)
		}
	}
}

// TestWhatIsNotFlowables: answers of proxies and frameworks to a delivery, after a look-up that found one.
func TestWhatIsNotFlowables(t *testing.T) {
	const spring = `{"timestamp":"2026-03-02T08:15:30.123+00:00","status":404,"error":"Not Found","path":"/x"}`
	tests := []struct {
		name        string
		status      int
		media, body string
		header      map[string]string
		want        engine.Verdict
		code        string
	}{
		{"a gateway that lost the engine", 502, "text/html", "<html>Bad Gateway</html>", nil, engine.Unknown, "HTTP 502"},
		{"a gateway that gave up", 504, "text/html", "<html>Timeout</html>", nil, engine.Unknown, "HTTP 504"},
		{"a gateway without a reason", 503, "text/plain", "upstream connect error or disconnect/reset before headers", nil, engine.Unknown, "HTTP 503"},
		{"a gateway that lost the engine's answer, and says when to come back", 503, "text/plain", "", map[string]string{"Retry-After": "30"}, engine.Unknown, "HTTP 503"},
		{"too many requests, says a gateway, perhaps of an answer it has lost", 429, "text/plain", "", nil, engine.Unknown, "HTTP 429"},
		{"a page that says 500", 500, "text/html", "<html>HTTP Status 500</html>", nil, engine.Unknown, "HTTP 500"},
		{"spring's own 500", 500, "application/json", strings.Replace(spring, "404", "500", 1), nil, engine.Unknown, "HTTP 500"},
		{"spring's own 404", 404, "application/json", spring, nil, engine.Technical, "BASE_PATH"},
		{"a page that says 404", 404, "text/html", "<html>Not Found</html>", nil, engine.Technical, "BASE_PATH"},
		{"a text that looks like it, of no JSON", 404, "text/plain", `{"message":"Not found","exception":"Could not find an execution with id 'e1'."}`, nil, engine.Technical, "BASE_PATH"},
		{"no such method", 405, "text/html", "", nil, engine.Technical, "BASE_PATH"},
		{"a request that took too long", 408, "text/plain", "", nil, engine.Unknown, "HTTP 408"},
		{"too large", 413, "text/html", "", nil, engine.Rejected, "HTTP 413"},
		{"a proxy's 400", 400, "text/html", "<html>Bad Request</html>", nil, engine.Technical, "HTTP 400"},
		{"a login page", 302, "text/html", "", map[string]string{"Location": "/login"}, engine.Unknown, "HTTP 302"},
		{"moved", 301, "text/html", "", map[string]string{"Location": "https://new.example"}, engine.Technical, "HTTP 301"},
		{"a login page that says success", 200, "text/html", "<html>Sign in</html>", nil, engine.Unknown, "PROTOCOL"},
		{"somebody's success", 200, "application/json", `{"ok":true}`, nil, engine.Unknown, "PROTOCOL"},
		{"another execution's success", 200, "application/json", `{"id":"e2"}`, nil, engine.Unknown, "PROTOCOL"},
		{"no text at all", 202, "", "", nil, engine.Unknown, "HTTP 202"},
		{"refused by a firewall, for what is in it", 403, "text/html", "<html>Forbidden</html>", nil, engine.Technical, "HTTP 403"},
		{"a token that has just ended", 401, "", "", nil, engine.Unauthorised, "HTTP 401"},
		{"a proxy's own password", 407, "text/html", "", nil, engine.Unauthorised, "HTTP 407"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := answering(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPut {
					say(w, http.StatusOK, "application/json", `{"data":[{"id":"e1","processInstanceId":"p1"}],"total":1}`)
					return
				}
				for name, value := range tt.header {
					w.Header().Set(name, value)
				}
				say(w, tt.status, tt.media, tt.body)
			})
			r := e.Correlate(t.Context(), aDelivery)
			if r.Verdict != tt.want || r.Code != tt.code {
				t.Errorf("got %s %s (%s), want %s %s", r.Verdict, r.Code, r.Detail, tt.want, tt.code)
			}
			if wait := tt.header["Retry-After"]; wait != "" && r.RetryAfter != 30*time.Second {
				t.Errorf("a wait of %v, want %s s", r.RetryAfter, wait)
			}
		})
	}
}

// TestWhatLooksLikeTheRejection: errors of later steps have the classes, statuses and nearly the texts of the fourth
// rejection. Only one that names this very execution is it; the rest is for the look-up, which here finds it waiting.
func TestWhatLooksLikeTheRejection(t *testing.T) {
	for _, i := range []struct {
		status    int
		exception string
	}{
		{404, "Could not find an execution with id 'e11'."},
		{404, "no processes deployed with key 'billing'"},
		{404, "execution e11 doesn't exist"},
		{500, "Execution[ id 'e2' ] - definition 'd' does not have a subscription to a message event with name 'WorkOrderCompleted'"},
		{500, "Execution[ id 'e1' ] - definition 'd' does not have a subscription to a message event with name 'Other'"},
		{500, "Error while evaluating expression: ${x}"},
		{500, ""},
		{400, "The amount is no number"},
		{400, "no processes deployed with key 'billing'"},
		{403, "user may not approve"},
	} {
		e := answering(t, func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method == http.MethodPut:
				body, _ := json.Marshal(info{Message: "x", Exception: i.exception})
				say(w, i.status, "application/json", string(body))
			case strings.HasSuffix(r.URL.Path, "instances"):
				say(w, http.StatusOK, "application/json", `{"data":[],"total":0}`)
			default:
				say(w, http.StatusOK, "application/json", `{"data":[{"id":"e1","processInstanceId":"p1"}],"total":1}`)
			}
		})
		if r := e.Correlate(t.Context(), aDelivery); r.Verdict != engine.Technical || r.Reference != "p1" {
			t.Errorf("%d %s: got %s %s (%s) of %q, want Technical of p1", i.status, i.exception, r.Verdict, r.Code, r.Detail, r.Reference)
		}
	}
}

// TestFlowableRefusesTheRequestItself: only what it says before it acts is about the message.
func TestFlowableRefusesTheRequestItself(t *testing.T) {
	for exception, want := range map[string]string{
		"The given variable value is not a localDate: 'CANARY'":                "no localDate",
		"The given variable value is not an instant: 'CANARY'":                 "no instant",
		"Converter can only convert string to date":                            "not of its type",
		"Variable 'x' has unsupported type: 'CANARY'.":                         "does not have the type",
		"JSON parse error: String value length (20051112) exceeds the limit":   "cannot read the message",
		"Invalid HTTP message. Error ID: 0f8fad5b-d9cb-469f-a165-70867728950e": "cannot read the message",
	} {
		e := answering(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPut {
				say(w, http.StatusOK, "application/json", `{"data":[{"id":"e1","processInstanceId":"p1"}],"total":1}`)
				return
			}
			body, _ := json.Marshal(info{Message: "Bad request", Exception: exception})
			say(w, http.StatusBadRequest, "application/json", string(body))
		})
		if r := e.Correlate(t.Context(), aDelivery); r.Verdict != engine.Rejected || !strings.Contains(r.Detail, want) || strings.Contains(r.Detail, "CANARY") {
			t.Errorf("%s: got %s (%s), want Rejected with %q", exception, r.Verdict, r.Detail, want)
		}
	}
}

// TestNothingOfAPayloadIsKept: Flowable repeats values in its texts, of this message and of any that came before, in every
// answer. What leads to its log is kept.
func TestNothingOfAPayloadIsKept(t *testing.T) {
	const id = "0f8fad5b-d9cb-469f-a165-70867728950e"
	for _, status := range []int{400, 403, 404, 409, 415, 500} {
		for _, exception := range []string{
			"The given value is not a date: 'CANARY'\nat line 2", "no processes deployed with key 'DE89370400440532013000'",
			"Error with ID: " + id + " DE89370400440532013000", "Error with ID: " + id,
		} {
			for _, queriesFail := range []bool{false, true} {
				e := answering(t, func(w http.ResponseWriter, r *http.Request) {
					switch {
					case r.Method == http.MethodPut, queriesFail:
						body, _ := json.Marshal(info{Message: "CANARY", Exception: exception})
						say(w, status, "application/json", string(body))
					case strings.HasSuffix(r.URL.Path, "instances"):
						say(w, http.StatusOK, "application/json", `{"data":[],"total":0}`)
					default:
						say(w, http.StatusOK, "application/json", `{"data":[{"id":"e1","processInstanceId":"p1"}],"total":1}`)
					}
				})
				r := e.Correlate(t.Context(), aDelivery)
				all := r.Code + r.Detail + r.Reference
				if strings.Contains(all, "CANARY") || strings.Contains(all, "DE89") || strings.Contains(all, "\n") {
					t.Errorf("%d %s: %q", status, exception, all)
				}
				if masked := strings.HasSuffix(exception, id); r.Verdict == engine.Technical && masked != strings.Contains(r.Detail, id) {
					t.Errorf("%d %s: %q; the error id is to be kept", status, exception, r.Detail)
				}
			}
		}
	}
}

// TestAFailedLookUpAfterAFailureIsUnknown: what became of the message nobody can say then.
func TestAFailedLookUpAfterAFailureIsUnknown(t *testing.T) {
	calls := 0
	e := answering(t, func(w http.ResponseWriter, r *http.Request) {
		calls++
		if calls == 1 {
			say(w, http.StatusOK, "application/json", `{"data":[{"id":"e1","processInstanceId":"p1"}],"total":1}`)
			return
		}
		say(w, http.StatusInternalServerError, "application/json", `{"message":"Internal server error","exception":"Error with ID: 1"}`)
	})
	if r := e.Correlate(t.Context(), aDelivery); r.Verdict != engine.Unknown {
		t.Errorf("got %s %s (%s), want Unknown", r.Verdict, r.Code, r.Detail)
	}
}

func TestWaitingActivities(t *testing.T) {
	const bpmn = `<?xml version="1.0" encoding="ISO-8859-1"?>
<b:definitions xmlns:b="http://www.omg.org/spec/BPMN/20100524/MODEL" xmlns:m="urn:m">
  <b:message id="m1" name="Done"/><b:message id="m2" name="Cancelled"/>
  <b:process id="p">
    <b:startEvent id="byMessage"><b:messageEventDefinition messageRef="m1"/></b:startEvent>
    <b:intermediateCatchEvent id="c1"><b:messageEventDefinition messageRef="m1"/></b:intermediateCatchEvent>
    <b:intermediateCatchEvent id="timer"><b:timerEventDefinition/></b:intermediateCatchEvent>
    <b:intermediateThrowEvent id="t1"><b:messageEventDefinition messageRef="m1"/></b:intermediateThrowEvent>
    <b:userTask id="task"/>
    <b:boundaryEvent id="b1" attachedToRef="task"><b:messageEventDefinition messageRef="m:m2"/></b:boundaryEvent>
    <b:subProcess id="s1"><b:intermediateCatchEvent id="c2"><b:messageEventDefinition messageRef="m1"/></b:intermediateCatchEvent></b:subProcess>
    <b:subProcess id="s2" triggeredByEvent="true"><b:startEvent id="e1"><b:messageEventDefinition messageRef="m2"/></b:startEvent></b:subProcess>
    <b:intermediateCatchEvent id="c3"><b:messageEventDefinition messageRef="Plain"/></b:intermediateCatchEvent>
    <b:intermediateCatchEvent id="c4"><b:messageEventDefinition f:messageExpression="${any}" xmlns:f="http://flowable.org/bpmn"/></b:intermediateCatchEvent>
  </b:process>
</b:definitions>`
	want := map[string][]string{"Done": {"c1", "c2"}, "Cancelled": {"b1", "task", "e1"}, "Plain": {"c3"}, "": {"c4"}}
	got, processes, err := waitingActivities([]byte(bpmn))
	if diff := cmp.Diff(want, got); diff != "" || err != nil || !slices.Equal(processes, []string{"p"}) {
		t.Errorf("processes %v, error %v, %s", processes, err, diff)
	}
}

// TestOnlyBPMNIsBelievedAboutAProcess: what was taken for it once would be believed for ever, and say of an instance that is
// past the message that it is not.
func TestOnlyBPMNIsBelievedAboutAProcess(t *testing.T) {
	const bpmn = `<definitions><message id="m" name="WorkOrderCompleted"/><process id="order"><intermediateCatchEvent id="wait">` +
		`<messageEventDefinition messageRef="m"/></intermediateCatchEvent></process></definitions>`
	for other, key := range map[string]string{
		"": "", "maintenance": "", "<maintenance/>": "", "<definitions/>": "", "</a>": "", "<x>" + bpmn + "</x>": "",
		strings.ReplaceAll(bpmn, "definitions>", "x>"): "", bpmn[:len(bpmn)-1]: "", bpmn[:150]: "",
		strings.Replace(bpmn, "order", "another", 1): "order",
	} {
		document := other
		e := answering(t, func(w http.ResponseWriter, r *http.Request) {
			query, _ := io.ReadAll(r.Body)
			switch {
			case strings.HasSuffix(r.URL.Path, "/resourcedata"):
				say(w, http.StatusOK, "text/plain", document)
			case strings.Contains(r.URL.Path, "historic-activity-instances"):
				say(w, http.StatusOK, "application/json", `{"data":[{"id":"a1"}],"total":1}`)
			case strings.HasSuffix(r.URL.Path, "/historic-process-instances") && strings.Contains(string(query), "4711") && !strings.Contains(string(query), MarkerPrefix):
				say(w, http.StatusOK, "application/json", `{"data":[{"id":"p1","businessKey":"4711","processDefinitionId":"order:1:1"}],"total":1}`)
			default:
				say(w, http.StatusOK, "application/json", `{"data":[],"total":0}`)
			}
		}, func(c *Config) { c.ProcessDefinitionKey = key })
		if r := e.Through(t.Context(), aDelivery); r.Verdict != engine.Technical || r.Code != "PROTOCOL" {
			t.Errorf("%q: got %s %s (%s), want Technical PROTOCOL", other, r.Verdict, r.Code, r.Detail)
		}
		document = bpmn
		if r := e.Through(t.Context(), aDelivery); r.Verdict != engine.AlreadyThrough || r.Code != "THROUGH" {
			t.Errorf("after %q: got %s %s (%s), want ALREADY_THROUGH", other, r.Verdict, r.Code, r.Detail)
		}
	}
}

func TestHeadersOfTheConfiguration(t *testing.T) {
	var got http.Header
	answer := func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		say(w, http.StatusOK, "application/json", `{"data":[],"total":0}`)
	}
	ask := func(h map[string]string) {
		e := answering(t, answer, func(c *Config) { c.Headers = h })
		e.Correlate(t.Context(), aDelivery)
	}
	ask(nil)
	if got.Get("Accept") == "" || got.Get("User-Agent") != "pubsub-inbox" {
		t.Errorf("got %v, want Accept and User-Agent of the inbox", got)
	}
	ask(map[string]string{"accept": "application/json", "User-Agent": "ours", "X-Tenant": "a"})
	if got.Get("Accept") != "application/json" || got.Get("User-Agent") != "ours" || got.Get("X-Tenant") != "a" {
		t.Errorf("got %v, want the configured ones", got)
	}
	for name, value := range map[string]string{
		"content-type": "text/xml", "Accept-Encoding": "gzip", "Transfer-Encoding": "chunked", "Content-Length": "3", "Host": "x",
		"Bad Header": "x", "X-A": "a\r\nb", "Authorization": "hush",
	} {
		_, err := New(Config{Name: "f", BaseURL: "http://host", Correlation: Correlation{Variable: "v"}, Headers: map[string]string{name: value},
			Auth: Auth{Kind: AuthBearer, Token: "t"}}, Deps{})
		if err == nil || !strings.Contains(err.Error(), "headers.") || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: got %v, want a fault without the value", name, err)
		}
	}
}

func TestAConfigurationsFaultsAreAllSaid(t *testing.T) {
	_, err := New(Config{Name: "f", BaseURL: "ftp://user:hush@host/x?y", Timeout: -1, MaxAnswerBytes: -1,
		Auth: Auth{Kind: "x", Password: "hush"}, Correlation: Correlation{Type: "double"}, VariableTypes: map[string]string{"a": "b"}}, Deps{})
	if err == nil {
		t.Fatal("no fault")
	}
	for _, want := range []string{"scheme", "timeout", "maxAnswerBytes", "auth", "needs the name of the process variable", `"double"`, "a:"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("nothing about %s in:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "hush") {
		t.Error("a secret is said")
	}
}

// What the adapter finds by itself it finds before it asks, and says so: it is nothing that the engine has said.
func TestWhatCannotBeSentIsFoundWithoutAsking(t *testing.T) {
	start := func(c *Config) { c.ProcessDefinitionKey = "work-order" }
	tests := []struct {
		name   string
		config func(*Config)
		change func(*engine.Delivery)
		want   engine.Verdict
	}{
		{"no key", start, func(d *engine.Delivery) { d.Key = "" }, engine.Rejected},
		{"a key of another type", func(c *Config) { c.Correlation.Type = "long" }, func(d *engine.Delivery) { d.Key = "A-1" }, engine.Rejected},
		{"a variable of another type", func(c *Config) { c.VariableTypes = map[string]string{"name": "long"} }, func(*engine.Delivery) {}, engine.Rejected},
		{"a payload that is no text", start, func(d *engine.Delivery) { d.Variables, d.Payload = nil, []byte{0xff} }, engine.Rejected},
		{"a start without a key", start, func(d *engine.Delivery) { d.Start, d.Key = true, "" }, engine.Rejected},
		{"a start under too long a key", start, func(d *engine.Delivery) { d.Start, d.Key = true, strings.Repeat("x", 256) }, engine.Rejected},
		{"a start without a process", func(*Config) {}, func(d *engine.Delivery) { d.Start = true }, engine.Technical},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := answering(t, func(http.ResponseWriter, *http.Request) { t.Error("the engine was asked") }, tt.config)
			d := aDelivery
			tt.change(&d)
			if r := e.Correlate(t.Context(), d); r.Verdict != tt.want || !r.NotAsked {
				t.Errorf("%s %s, not asked %v; want %s, true", r.Verdict, r.Code, r.NotAsked, tt.want)
			}
		})
	}
}
