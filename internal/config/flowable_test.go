package config

import (
	"strings"
	"testing"
)

const flowableText = `consumer: orders
engines:
  flow:
    kind: flowable
    url: https://flow.example/flowable-rest/service
    auth: {kind: basic, username: u, passwordEnv: P}
    processDefinitionKey: order
    tenant: acme
    correlation: {variable: workOrderId, type: integer}
    variableTypes: {total: bigDecimal}
  http: {kind: http, url: "https://e.example", idempotent: true}
routes:
  - {name: created, match: attributes.t == "c", key: payload.id, engine: flow, message: Created, start: true}
  - {name: completed, match: attributes.t == "d", key: payload.id, engine: flow, message: Completed}
  - {name: other, key: payload.id, engine: http, message: Other}
`

func TestFlowableIsRead(t *testing.T) {
	cfg, warnings, err := Parse("inbox.yaml", []byte(flowableText))
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v %v", err, warnings)
	}
	e := cfg.Engines["flow"]
	f := e.Flowable
	if f.ProcessDefinitionKey != "order" || f.Tenant != "acme" || f.CorrelationVariable != "workOrderId" || f.CorrelationType != "integer" ||
		f.VariableTypes["total"] != "bigDecimal" || !e.Probe || e.Idempotent {
		t.Errorf("got %+v", e)
	}
	if !cfg.Routes[0].Start || cfg.Routes[1].Start {
		t.Error("start is not read as it is written")
	}
}

func TestFlowablesFaultsHaveTheirPlaces(t *testing.T) {
	for name, c := range map[string]struct{ old, new, want string }{
		"statuses":                  {"tenant: acme", "tenant: acme\n    statuses: {\"409\": technical}", "9:5: engines.flow.statuses: a status alone says nothing"},
		"idempotent":                {"tenant: acme", "tenant: acme\n    idempotent: true", "9:5: engines.flow.idempotent: Flowable does not recognise"},
		"no probe":                  {"tenant: acme", "tenant: acme\n    probe: false", "9:5: engines.flow.probe: a delivery of unknown outcome is always looked up"},
		"oidc":                      {"{kind: basic, username: u, passwordEnv: P}", "{kind: oidc, audience: a}", "engines.flow.auth.kind: there is no auth of kind oidc for Flowable"},
		"a query in the URL":        {"/flowable-rest/service", "/flowable-rest/service?x=1", "5:5: engines.flow.url: the URL must be the base"},
		"no correlation":            {"    correlation: {variable: workOrderId, type: integer}\n", "", "engines.flow.correlation: Flowable needs a correlation"},
		"a correlation by a double": {"type: integer", "type: double", `9:42: engines.flow.correlation.type: "double" is no type to compare keys by`},
		"a header of the adapter's": {"tenant: acme", "tenant: acme\n    headers: {content-type: text/xml}", "9:15: engines.flow.headers.content-type: content-type is set by the inbox"},
		"an unknown type":           {"total: bigDecimal", "total: money", `10:21: engines.flow.variableTypes.total: "money" is no type`},
		"a setting of Flowable's":   {"idempotent: true}", "idempotent: true, tenant: x}", "engines.http.tenant: only an engine of kind flowable"},
		"a start without a process": {"    processDefinitionKey: order\n", "", `routes[0].start: to start instances the engine "flow" needs a processDefinitionKey`},
		"a start without a key":     {`"c", key: payload.id,`, `"c",`, "routes[0].start: to start instances the route needs a key"},
		"a start of another kind":   {"engine: http, message: Other", "engine: http, message: Other, start: true", "routes[2].start: only an engine of kind flowable"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(flowableText, c.old, c.new, 1)
			if text == flowableText {
				t.Fatal("nothing was changed")
			}
			_, _, err := Parse("inbox.yaml", []byte(text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestARouteThatNamesTheCorrelationVariableIsWarnedOf(t *testing.T) {
	with := func(variable string) []Warning {
		_, warnings, err := Parse("inbox.yaml", []byte(strings.Replace(flowableText, "message: Completed}", "message: Completed, variables: {"+variable+": payload.id}}", 1)))
		if err != nil {
			t.Fatal(err)
		}
		return warnings
	}
	if got := with("id"); len(got) > 0 {
		t.Errorf("got %v, want no warning", got)
	}
	const want = "routes[1].variables.workOrderId: this is the correlation variable of the engine"
	if got := with("workOrderId"); len(got) != 1 || !strings.Contains(got[0].String(), want) {
		t.Errorf("got %v, want %s", got, want)
	}
}
