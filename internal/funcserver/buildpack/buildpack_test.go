package buildpack

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	goodFunction = "package inbox\n\nimport _ \"github.com/GoogleCloudPlatform/functions-framework-go/functions\"\n"
	goodMod      = "module example.com/inbox\n\ngo 1.26.0\n\nrequire github.com/GoogleCloudPlatform/functions-framework-go v1.9.2\n"
)

func TestCheckRefusesWhatTheBuildpackWould(t *testing.T) {
	tests := []struct {
		name  string
		files map[string]string // beside, or instead of, the good ones; "-" takes one away
		want  []string          // in the error, each; none: no error
	}{
		{name: "a root package that imports the framework passes"},
		{name: "a test inside the root package passes", files: map[string]string{"function_test.go": "package inbox\n"}},
		{
			name:  "an external test package at the root is a second package",
			files: map[string]string{"function_test.go": "package inbox_test\n"},
			want:  []string{"several: inbox (function.go); inbox_test (function_test.go)"},
		},
		{
			name:  "a build constraint does not hide a second package",
			files: map[string]string{"gen.go": "//go:build ignore\n\npackage main\n"},
			want:  []string{"several: inbox (function.go); main (gen.go)"},
		},
		{
			name:  "functions in subdirectories only are not found",
			files: map[string]string{"function.go": "-", "functions/receive/receive.go": goodFunction},
			want:  []string{"no .go file"},
		},
		{
			name:  "without the framework's import the buildpack would look for an exported symbol",
			files: map[string]string{"function.go": "package inbox\n"},
			want:  []string{"another template"},
		},
		{
			name:  "a file that does not parse is named",
			files: map[string]string{"broken.go": "not a go file"},
			want:  []string{"broken.go"},
		},
		{
			name:  "a root package main cannot be imported",
			files: map[string]string{"function.go": strings.Replace(goodFunction, "package inbox", "package main", 1)},
			want:  []string{"root package: main"},
		},
		{
			name:  "a module path without a dot is refused",
			files: map[string]string{"go.mod": strings.Replace(goodMod, "example.com/inbox", "inbox/functions", 1)},
			want:  []string{"needs a dot"},
		},
		{
			name:  "a go directive newer than the runtime is refused",
			files: map[string]string{"go.mod": strings.Replace(goodMod, "1.26.0", "1.26.99", 1)},
			want:  []string{"newer than the runtime"},
		},
		{
			name:  "a module without the framework would get one injected",
			files: map[string]string{"go.mod": "module example.com/inbox\n\ngo 1.26.0\n"},
			want:  []string{"inject"},
		},
		{name: "a tree without go.sum is refused", files: map[string]string{"go.sum": "-"}, want: []string{"go.sum"}},
		{name: "a workspace at the root is refused", files: map[string]string{"go.work": "go 1.26.0\n\nuse .\n"}, want: []string{"go.work"}},
		{
			name:  "a vendor directory without funcframework is refused",
			files: map[string]string{"vendor/modules.txt": ""},
			want:  []string{"vendor: lacks"},
		},
		{
			name:  "all faults are named together",
			files: map[string]string{"function.go": "-", "go.work": "", "go.mod": "module inbox\n\ngo 1.26.0\n"},
			want:  []string{"no .go file", "go.work", "needs a dot", "inject"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			files := map[string]string{"function.go": goodFunction, "go.mod": goodMod, "go.sum": ""}
			for name, text := range tt.files {
				files[name] = text
			}
			for name, text := range files {
				if text == "-" {
					continue
				}
				path := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got, err := Tree{Root: root}.Check(t.Context())
			if len(tt.want) == 0 {
				if diff := cmp.Diff("example.com/inbox", got); diff != "" || err != nil {
					t.Errorf("import path (-want +got):\n%s\nerror: %v", diff, err)
				}
				return
			}
			if err == nil {
				t.Fatal("passed")
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error lacks %q:\n%v", w, err)
				}
			}
		})
	}
}

// The guard itself: what is at the root of this repository can be deployed.
func TestTheBuildpackWouldBuildThisRepository(t *testing.T) {
	got, err := Tree{Root: "../../.."}.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("github.com/pubsub-inbox/pubsub-inbox", got); diff != "" {
		t.Errorf("import path (-want +got):\n%s", diff)
	}
	Build(t, "../../..")
}

func TestCompileWritesNothingIntoTheTree(t *testing.T) {
	root := "../../.."
	program := BuildTree(t, Tree{Root: root, Overlay: map[string]string{
		"function.go":                          "testdata/fixture/function.go",
		"functions/fixture/receive/receive.go": "testdata/fixture/receive/receive.go",
		"functions/fixture/relay/relay.go":     "testdata/fixture/relay/relay.go",
	}})
	if _, err := os.Stat(program); err != nil {
		t.Error(err)
	}
	for _, p := range []string{"functions.local", "functions/fixture"} {
		if exists(filepath.Join(root, p)) {
			t.Errorf("%s was written into the tree", p)
		}
	}
}
