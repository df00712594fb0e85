package config

import (
	"errors"
	"os"
	"testing"
)

func FuzzParse(f *testing.F) {
	example, err := os.ReadFile("testdata/example.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{string(example), minimal, full, "", "a: [", "a: &x 1\nb: *x", "routes: [{schema: {$ref: \"#/a\"}}]",
		"routes:\n  - match: |\n      payload.a\n      + b\n", "consumer: !!binary x", "routes: [{match: !has(a.b), key: &c d, type: *e}]", "routes:\n  - match: >-\n      payload.a // b\n      + c\n", "\ufeffa: 1", "? [a]\n: b", "---\n...\n---\n", "a:\n\t- b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		cfg, _, err := Parse("testdata/fuzz.yaml", []byte(text))
		if err == nil {
			if cfg == nil || len(cfg.Routes) == 0 || len(cfg.Engines) == 0 || cfg.Consumer == "" {
				t.Fatalf("no fault, and no configuration: %+v", cfg)
			}
			if changes := Compare(cfg, cfg); len(changes) > 0 {
				t.Fatalf("it differs from itself: %v", changes)
			}
			return
		}
		var faults Faults
		if !errors.As(err, &faults) || len(faults) == 0 || cfg != nil {
			t.Fatalf("got %v with %v", cfg, err)
		}
		for _, fault := range faults {
			if fault.Message == "" || fault.Line < 1 || fault.Column < 1 {
				t.Fatalf("a fault without a place or a text: %#v", fault)
			}
		}
	})
}
