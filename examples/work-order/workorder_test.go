package workorder_test

import (
	"encoding/xml"
	"slices"
	"testing"

	workorder "github.com/pubsub-inbox/pubsub-inbox/examples/work-order"
	"github.com/pubsub-inbox/pubsub-inbox/internal/config"
)

func TestTheConfigurationIsValidAndFitsTheProcess(t *testing.T) {
	c, warnings, err := config.Parse("pubsub-inbox.yaml", []byte(workorder.Config)) // what inboxctl config check does
	if err != nil || len(warnings) > 0 {
		t.Fatalf("error %v, warnings %v; want none", err, warnings)
	}
	var model struct {
		Messages []struct {
			Name string `xml:"name,attr"`
		} `xml:"message"`
		Process struct {
			ID string `xml:"id,attr"`
		} `xml:"process"`
	}
	if err := xml.Unmarshal(workorder.BPMN, &model); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range model.Messages {
		names = append(names, m.Name)
	}
	for _, r := range c.Routes {
		if !slices.Contains(names, r.Message.Literal) {
			t.Errorf("the route %s delivers %q; the process knows %v", r.Name, r.Message.Literal, names)
		}
	}
	for _, e := range c.Engines {
		if e.Flowable.ProcessDefinitionKey != model.Process.ID {
			t.Errorf("the engine %s looks at the process %s, deployed is %s", e.Name, e.Flowable.ProcessDefinitionKey, model.Process.ID)
		}
	}
}
