package e2e_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const modulePath = "github.com/pubsub-inbox/pubsub-inbox"

// sourceFile is one Go file of the module that is not a test.
type sourceFile struct {
	name    string // below the root
	syntax  *ast.File
	imports []string
}

// goSources parses the module, without its tests, by package: "." for the root, else the path below it. Build constraints do
// not count: what is built on another system obeys the same rules.
func goSources(t *testing.T) map[string][]sourceFile {
	t.Helper()
	root := filepath.Join("..", "..")
	packages := map[string][]sourceFile{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		below = filepath.ToSlash(below)
		if d.IsDir() {
			hidden := strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_")
			if below != "." && (hidden || d.Name() == "testdata" || d.Name() == "vendor") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(below, ".go") || strings.HasSuffix(below, "_test.go") {
			return nil
		}
		syntax, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		file := sourceFile{name: below, syntax: syntax}
		for _, i := range syntax.Imports {
			p, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			file.imports = append(file.imports, p)
		}
		packages[path.Dir(below)] = append(packages[path.Dir(below)], file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(packages["."]) == 0 || len(packages["internal/inbox"]) == 0 {
		t.Fatal("the module was not found")
	}
	return packages
}

// ofModule cuts the module off an import path; ok says that it was there.
func ofModule(importPath string) (below string, ok bool) {
	if importPath == modulePath {
		return ".", true
	}
	return strings.CutPrefix(importPath, modulePath+"/")
}

func inStandardLibrary(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

// underAny reports whether the package is one of the given, or below one.
func underAny(pkg string, parents ...string) bool {
	return slices.ContainsFunc(parents, func(p string) bool { return pkg == p || strings.HasPrefix(pkg, p+"/") })
}

// forTests reports whether a package serves tests only, as its name then says: enginetest, like httptest.
func forTests(pkg string) bool { return strings.HasSuffix(path.Base(pkg), "test") }

// linkedInto returns the packages of the module that are linked into a program that imports root, with one that imports
// each.
func linkedInto(packages map[string][]sourceFile, root string) map[string]string {
	found := map[string]string{root: "itself"}
	for todo := []string{root}; len(todo) > 0; todo = todo[1:] {
		for _, f := range packages[todo[0]] {
			for _, i := range f.imports {
				if below, ok := ofModule(i); ok && found[below] == "" {
					found[below] = f.name
					todo = append(todo, below)
				}
			}
		}
	}
	return found
}

// Imports flow down: the domain knows nobody, use cases know the domain and interfaces of their own.
func TestTheDomainAndTheUseCasesKnowNoAdapter(t *testing.T) {
	packages := goSources(t)
	allowed := map[string][]string{ // beside the standard library
		"internal/inbox":    {},
		"internal/engine":   {"internal/inbox"},
		"internal/pushmsg":  {"internal/inbox"},
		"internal/receiver": {"internal/inbox", "internal/pushmsg", "internal/routing"},
		"internal/relayer":  {"internal/inbox", "internal/engine", "internal/routing", "internal/config"},
	}
	for _, pkg := range slices.Sorted(maps.Keys(allowed)) {
		if len(packages[pkg]) == 0 {
			t.Errorf("%s is not there", pkg)
		}
		for _, f := range packages[pkg] {
			for _, i := range f.imports {
				below, ok := ofModule(i)
				if (ok && !slices.Contains(allowed[pkg], below)) || (!ok && !inStandardLibrary(i)) {
					t.Errorf("%s imports %s; allowed are the standard library and %v", f.name, i, allowed[pkg])
				}
				if below == "internal/config" && f.name != "internal/relayer/config.go" {
					t.Errorf("%s imports the configuration, which FromConfig alone translates", f.name)
				}
			}
		}
	}
}

// Every transition of a message is in the domain: nobody else gives a message a status or a reason. To read one back from where
// it is stored is none.
func TestTransitionsAreInTheDomain(t *testing.T) {
	packages := goSources(t)
	states := map[string]bool{} // the constants of Status and Reason
	for _, f := range packages["internal/inbox"] {
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			if typ, ok := spec.Type.(*ast.Ident); ok && (typ.Name == "Status" || typ.Name == "Reason") {
				for _, name := range spec.Names {
					states[name.Name] = true
				}
			}
			return true
		})
	}
	if !states["Parked"] || !states["Poisoned"] || len(states) < 15 {
		t.Fatalf("the statuses and reasons found are %v", states)
	}
	selected := func(e ast.Expr, of string) string {
		if s, ok := e.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); of == "" || (ok && x.Name == of) {
				return s.Sel.Name
			}
		}
		return ""
	}
	isState := func(name string) bool { return name == "Status" || name == "Reason" }
	found := 0
	for pkg, files := range packages {
		for _, f := range files {
			complain := func(what string) {
				if pkg == "internal/inbox" {
					found++
				} else {
					t.Errorf("%s %s", f.name, what)
				}
			}
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.AssignStmt:
					for i, to := range n.Lhs {
						if len(n.Lhs) != len(n.Rhs) || !isState(selected(to, "")) {
							continue
						}
						name := selected(n.Rhs[i], "inbox")
						if x, ok := n.Rhs[i].(*ast.Ident); ok && pkg == "internal/inbox" {
							name = x.Name
						}
						if states[name] {
							complain("assigns " + name)
						}
					}
				case *ast.CompositeLit:
					if selected(n.Type, "inbox") != "Message" {
						return true
					}
					for _, e := range n.Elts {
						if kv, ok := e.(*ast.KeyValueExpr); ok {
							if key, ok := kv.Key.(*ast.Ident); ok && isState(key.Name) && selected(kv.Value, "inbox") != "" {
								complain("makes a message " + selected(kv.Value, "inbox"))
							}
						}
					}
				}
				return true
			})
		}
	}
	if found < 15 {
		t.Errorf("%d transitions were found in the domain: this test sees too little", found)
	}
}

// An adapter knows the domain, its contract and its client library. What several engines share is no adapter.
func TestAdaptersDoNotKnowEachOther(t *testing.T) {
	packages := goSources(t)
	shared := []string{"internal/engine/httpcall"}
	var adapters []string
	for pkg := range packages {
		if underAny(pkg, "internal/spannerstore", "internal/claimcheck") ||
			(strings.HasPrefix(pkg, "internal/engine/") && !underAny(pkg, shared...) && !forTests(pkg)) {
			adapters = append(adapters, pkg)
		}
	}
	if !slices.Contains(adapters, "internal/spannerstore") || len(adapters) < 2 {
		t.Fatalf("the adapters found are %v", adapters)
	}
	for _, adapter := range adapters {
		for below, importer := range linkedInto(packages, adapter) {
			if below != adapter && slices.Contains(adapters, below) && !underAny(below, adapter) && !underAny(adapter, below) {
				t.Errorf("%s reaches %s, through %s", adapter, below, importer)
			}
			if underAny(below, "internal/receiver", "internal/relayer", "internal/config", "internal/wiring", "functions") {
				t.Errorf("%s reaches %s, through %s: imports flow down", adapter, below, importer)
			}
		}
	}
}

func TestOneAdapterOwnsEachCloudClient(t *testing.T) {
	packages := goSources(t)
	owners := map[string]struct {
		owner string
		// tools may import it too. They are no part of the functions.
		tools []string
	}{
		"cloud.google.com/go/spanner": {"internal/spannerstore", []string{
			"internal/migrate",   // the command line's and the local stack's
			"internal/emulators", // with rpctap and emulatortest
			"internal/localstack",
			"cmd/local",
			"cmd/inboxctl", // spanner.ErrCode, for a hint beside an error
			"bench",
		}},
		"cloud.google.com/go/storage": {"internal/claimcheck", []string{"internal/emulators", "internal/localstack", "cmd/local", "bench"}},
		"cloud.google.com/go/pubsub":  {"", []string{"internal/emulators", "internal/localstack", "cmd/local", "cmd/inboxctl", "cmd/smoke", "bench"}},
	}
	served := linkedInto(packages, ".")
	for client, o := range owners {
		for pkg, files := range packages {
			for _, f := range files {
				if !slices.ContainsFunc(f.imports, func(i string) bool { return underAny(i, client) }) || pkg == o.owner {
					continue
				}
				if _, in := served[pkg]; in {
					t.Errorf("%s imports %s, which is %q's, and is part of the functions", f.name, client, o.owner)
				} else if !underAny(pkg, o.tools...) {
					t.Errorf("%s imports %s; allowed are %q and %v", f.name, client, o.owner, o.tools)
				}
			}
		}
	}
}

// What production runs is what the root package links: nothing that stands in for Google Cloud, nothing for tests.
func TestTheFunctionsLinkNothingForTests(t *testing.T) {
	packages := goSources(t)
	for _, root := range []string{".", "functions/receive/cmd", "functions/relay/cmd", "cmd/inboxctl"} {
		for pkg, importer := range linkedInto(packages, root) {
			if forTests(pkg) || underAny(pkg, "internal/emulators", "internal/localstack", "internal/demoengine",
				"internal/funcserver/buildpack", "internal/e2e", "cmd/local", "bench") {
				t.Errorf("%s links %s, through %s", root, pkg, importer)
			}
			for _, f := range packages[pkg] {
				for _, i := range f.imports {
					if underAny(i, "testing", "net/http/httptest") {
						t.Errorf("%s links %s, through %s", root, i, f.name)
					}
				}
			}
		}
	}
	for pkg, importer := range linkedInto(packages, ".") {
		if underAny(pkg, "internal/migrate", "migrations", "cmd") {
			t.Errorf("the functions link %s, through %s: their accounts may not change a schema", pkg, importer)
		}
	}
}

// Production code does not ask whether it is emulated, but where a client of the emulator can do less: the client libraries read
// these variables.
func TestProductionDoesNotReadTheEmulatorsVariables(t *testing.T) {
	allowed := []string{
		"internal/emulators", "internal/localstack", "cmd/local", "bench", // they are about emulators
		"internal/wiring", // one transaction at a time
		"cmd/inboxctl",    // in its help, and in a hint beside an error; the client is the same
	}
	for pkg, files := range goSources(t) {
		if underAny(pkg, allowed...) {
			continue
		}
		for _, f := range files {
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && strings.Contains(lit.Value, "_EMULATOR_HOST") {
					t.Errorf("%s has the string %s", f.name, lit.Value)
				}
				return true
			})
		}
	}
}

// Time and chance come from outside: a test sets them. What serves tests only is free. Handing time.Now on as somebody's clock is wiring; calling it, or
// waiting by the wall clock, is not.
func TestTimeAndChanceComeFromOutside(t *testing.T) {
	// Who may call, and why.
	callers := map[string]string{
		"bench":               "it measures",
		"cmd/local":           "it shows a person what takes how long",
		"cmd/smoke":           "waits for what it has published",
		"internal/localstack": "the pause between two runs of the relay",
		"internal/emulators":  "waits for other programs",
		"internal/migrate":    "renews its lock, and tries again",
		"internal/funcserver": "the platform's deadline after SIGTERM",
	}
	// Who may hand it on: what puts parts together, and packages whose clock is an option with a default.
	wiring := []string{"functions", "cmd", "internal/wiring", "internal/telemetry", "internal/pushauth", "internal/engine",
		"internal/demoengine", "internal/claimcheck", "internal/migrate", "examples/work-order/cmd"}
	clocks := []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}
	makers := []string{"New", "NewPCG", "NewChaCha8", "NewSource", "NewZipf"} // of generators; the rest of rand is global
	types := []string{"Rand", "Source", "PCG", "ChaCha8", "Zipf"}

	for pkg, files := range goSources(t) {
		if forTests(pkg) {
			continue
		}
		allowed := slices.ContainsFunc(slices.Collect(maps.Keys(callers)), func(p string) bool { return underAny(pkg, p) })
		for _, f := range files {
			time, random := importName(f, "time"), importName(f, "math/rand/v2")
			if random == "" {
				random = importName(f, "math/rand")
			}
			called := map[*ast.SelectorExpr]bool{}
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
						called[sel] = true
					}
				}
				sel, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				x, ok := sel.X.(*ast.Ident)
				switch {
				case !ok:
				case time != "" && x.Name == time && slices.Contains(clocks, sel.Sel.Name):
					if called[sel] && !allowed {
						t.Errorf("%s calls time.%s", f.name, sel.Sel.Name)
					}
					if !called[sel] && !allowed && !underAny(pkg, wiring...) {
						t.Errorf("%s names time.%s: its clock is to be handed to it", f.name, sel.Sel.Name)
					}
				case random != "" && x.Name == random && !slices.Contains(makers, sel.Sel.Name) && !slices.Contains(types, sel.Sel.Name):
					t.Errorf("%s uses the global generator: rand.%s", f.name, sel.Sel.Name)
				}
				return true
			})
		}
	}
}

// importName is the name by which a file knows a package, or "".
func importName(f sourceFile, importPath string) string {
	for _, i := range f.syntax.Imports {
		if p, err := strconv.Unquote(i.Path.Value); err != nil || p != importPath {
			continue
		}
		if i.Name != nil {
			return i.Name.Name
		}
		if base := path.Base(importPath); base != "v2" {
			return base
		}
		return path.Base(path.Dir(importPath))
	}
	return ""
}
