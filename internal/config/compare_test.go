package config

import (
	"strings"
	"testing"
)

func TestCompareNamesEachChangeAndWhatItDoesToRowsInFlight(t *testing.T) {
	second := full + ""
	for name, c := range map[string]struct {
		old, new string
		want     []string
	}{
		"nothing":  {"", "", nil},
		"consumer": {"consumer: orders", "consumer: bills", []string{"consumer: orders becomes bills. The consumer is part of every id"}},
		"match": {`match: attributes.eventType == "Completed"`, "match: payload.done", []string{
			`route completed: match: attributes.eventType == "Completed" becomes payload.done. Messages are routed otherwise from now on`}},
		"scope":    {"scope: consumer", "scope: subscription", []string{"route completed: scope: consumer becomes subscription. The scope is part of the id"}},
		"dedupe":   {"    dedupe: attributes.eventId\n", "", []string{"route completed: dedupe: attributes.eventId becomes the message id. The dedupe key is the id"}},
		"key":      {"key: payload.orderId", "key: payload.customerId", []string{"route completed: key: payload.orderId becomes payload.customerId. New messages go into other lanes"}},
		"keySpace": {"keySpace: orders", "keySpace: bills", []string{"route completed: keySpace: orders becomes bills. New messages go into other lanes"}},
		"order": {"    order: sequence\n    sequence: payload.revision\n", "", []string{
			"route completed: order: sequence becomes published. New messages go into other lanes"}},
		"sequence": {"sequence: payload.revision", "sequence: payload.version", []string{
			"route completed: sequence: payload.revision becomes payload.version. New messages are placed among the stored ones"}},
		"engine": {"    engine: flow\n", "    engine: flow2\n", []string{"route completed: engine: flow becomes flow2. Stored messages go to the new engine"}},
		"a renamed route": {"- name: completed", "- name: done", []string{
			"route done: added. Messages that it takes", "route completed: removed. Its open rows wait, with an alert"}},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(second, c.old, c.new, 1)
			if c.new == "    engine: flow2\n" {
				text = strings.Replace(text, "routes:", "  flow2: {kind: http, url: \"https://b.example\", idempotent: true}\nroutes:", 1)
			}
			var got []string
			for _, change := range Compare(parse(t, full), parse(t, text)) {
				got = append(got, change.String())
			}
			if len(got) != len(c.want) {
				t.Fatalf("got %q, want %q", got, c.want)
			}
			for i := range got {
				if !strings.HasPrefix(got[i], c.want[i]) || !strings.HasSuffix(got[i], ".") {
					t.Errorf("got %q, want %q", got[i], c.want[i])
				}
			}
		})
	}
}

func TestCompareSeesThatTheFirstRouteThatMatchesIsAnother(t *testing.T) {
	const a, b = "  - {name: a, match: payload.a, engine: flow, message: A}\n", "  - {name: b, match: payload.b, engine: flow, message: B}\n"
	head, _, _ := strings.Cut(minimal, "  - name")
	changes := Compare(parse(t, head+a+b), parse(t, head+b+a))
	if len(changes) != 1 || !strings.HasPrefix(changes[0].String(), "routes: [a b] becomes [b a]. The first route that matches wins") {
		t.Errorf("got %v", changes)
	}
}

func parse(t *testing.T, text string) *Config {
	t.Helper()
	cfg, _, err := Parse("f.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}
