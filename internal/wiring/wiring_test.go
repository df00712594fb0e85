package wiring

import (
	"strings"
	"testing"

	"github.com/pubsub-inbox/pubsub-inbox/internal/config"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/flowable"
)

const flowableConfig = `consumer: c
engines:
  flow:
    kind: flowable
    url: https://flowable.example/flowable-rest/service
    auth: {kind: basic, username: inbox, passwordEnv: FLOWABLE_PASSWORD}
    processDefinitionKey: order
    tenant: acme
    correlation: {variable: workOrderId, type: TYPE}
    variableTypes: {completedItems: VARIABLE}
routes:
  - {name: r, key: payload.id, engine: flow, message: M, start: true}
`

func lookup(name string) (string, bool) { return "secret", name == "FLOWABLE_PASSWORD" }

func made(t *testing.T, correlationType, variableType string) error {
	t.Helper()
	text := strings.NewReplacer("TYPE", correlationType, "VARIABLE", variableType).Replace(flowableConfig)
	cfg, _, err := config.Parse("inbox.yaml", []byte(text))
	if err != nil {
		return err
	}
	engines, err := Engines(cfg, lookup)
	if err != nil {
		return err
	}
	if p := engines["flow"].Properties(); !p.Probe || p.Idempotent || p.Probe != cfg.Engines["flow"].Probe {
		t.Errorf("properties %+v, and the configuration says probe: %v", p, cfg.Engines["flow"].Probe)
	}
	if _, ok := engines["flow"].(engine.Historian); !ok {
		t.Error("history is not asked")
	}
	return nil
}

// TestFlowableIsMadeAsConfigured also holds together the types that the configuration knows and those of the adapter.
func TestFlowableIsMadeAsConfigured(t *testing.T) {
	for _, c := range flowable.CorrelationTypes {
		if err := made(t, c, "string"); err != nil {
			t.Errorf("correlation type %s: %v", c, err)
		}
	}
	for _, v := range flowable.VariableTypes {
		if err := made(t, "string", v); err != nil {
			t.Errorf("variable type %s: %v", v, err)
		}
	}
	if made(t, "double", "string") == nil || made(t, "string", "text") == nil {
		t.Error("a type that Flowable does not have is taken")
	}
}

func TestWhatAnAdapterRefusesHasItsPlaceInTheFile(t *testing.T) {
	text := strings.NewReplacer("TYPE", "string", "VARIABLE", "string", "username: inbox", "username: 'in:box'").Replace(flowableConfig)
	cfg, _, err := config.Parse("inbox.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	_, err = Engines(cfg, lookup)
	if want := "inbox.yaml:6:25: engines.flow.auth.username: basic needs a username, without a colon"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	_, err = Engines(cfg, func(string) (string, bool) { return "", false })
	want := "inbox.yaml:6:45: engines.flow.auth.passwordEnv: the environment variable FLOWABLE_PASSWORD, which holds a secret, is not set"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
