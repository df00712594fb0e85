package terraform

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// needTerraform skips where terraform is not to be used: `make terraform` says whether it is there.
func needTerraform(t *testing.T) {
	t.Helper()
	if os.Getenv("TERRAFORM_CHECKS") != "1" {
		t.Skip("needs terraform; make terraform runs it")
	}
}

// run runs terraform in a directory and returns what it says, and whether it succeeded.
func run(t *testing.T, dir string, args ...string) (string, bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "terraform", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("terraform %s in %s took too long:\n%s", args[0], dir, out.String())
	}
	return out.String(), err == nil
}

// prepare installs modules, and the provider where a registry has to bring it.
func prepare(t *testing.T, dir string) {
	t.Helper()
	args := []string{"init", "-backend=false", "-input=false", "-no-color"}
	if os.Getenv("TERRAFORM_OFFLINE") == "1" {
		args = []string{"get", "-no-color"}
	}
	if out, ok := run(t, dir, args...); !ok {
		t.Fatalf("terraform %s in %s:\n%s", args[0], dir, out)
	}
}

// copied copies the module, as it is edited, to a directory of its own: nothing is left in the working tree.
func copied(t *testing.T, edit func(name, text string) string) string {
	t.Helper()
	dir := t.TempDir()
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if d.Name() == ".terraform" || d.Name() == "internal" {
				return fs.SkipDir
			}
			return os.MkdirAll(filepath.Join(dir, name), 0o755)
		}
		if strings.HasPrefix(d.Name(), ".terraform") || strings.Contains(d.Name(), ".tfstate") || strings.HasSuffix(d.Name(), ".go") {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if edit != nil {
			text = []byte(edit(filepath.ToSlash(name), string(text)))
		}
		return os.WriteFile(filepath.Join(dir, name), text, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestFormat(t *testing.T) {
	needTerraform(t)
	if out, ok := run(t, ".", "fmt", "-check", "-recursive", "-diff"); !ok {
		t.Errorf("not formatted, run terraform fmt -recursive terraform:\n%s", out)
	}
}

func TestModuleAndExamplesAreValidAndPassTheirTests(t *testing.T) {
	needTerraform(t)
	dir := copied(t, nil)
	for _, below := range []string{".", "examples/minimal", "examples/production"} {
		where := filepath.Join(dir, below)
		prepare(t, where)
		if out, ok := run(t, where, "validate", "-no-color"); !ok {
			t.Fatalf("%s is not valid:\n%s", below, out)
		}
		files, err := filepath.Glob(filepath.Join(where, "tests", "*.tftest.hcl"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s has no test: %v", below, err)
		}
		for _, file := range files {
			name := "tests/" + filepath.Base(file)
			if name == "tests/changes.tftest.hcl" || name == "tests/whole.tftest.hcl" {
				continue // TestAPlan...
			}
			t.Run(below+"/"+name, func(t *testing.T) {
				t.Parallel()
				out, ok := run(t, where, "test", "-no-color", "-filter="+name)
				if m := regexp.MustCompile(`(\d+) passed, 0 failed`).FindStringSubmatch(out); !ok || m == nil || m[1] == "0" {
					t.Errorf("%s", out)
				}
			})
		}
	}
}

// A person's own root configuration, as the README shows it.
func TestTheReadmesConfigurationIsValid(t *testing.T) {
	needTerraform(t)
	t.Parallel()
	dir := copied(t, nil)
	root := filepath.Join(dir, "examples", "readme")
	blocks := regexp.MustCompile("(?ms)^```hcl\n((?:module|import) .*?)^```").FindAllStringSubmatch(read(t, "README.md"), -1)
	if len(blocks) != 2 {
		t.Fatalf("found %d configurations in the README", len(blocks))
	}
	text := strings.Replace(blocks[0][1], "github.com/pubsub-inbox/pubsub-inbox//terraform", "../..", 1) + blocks[1][1]
	if err := os.MkdirAll(root, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"main.tf": text, "inbox.yaml": read(t, "examples/minimal/inbox.yaml")} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	prepare(t, root)
	if out, ok := run(t, root, "validate", "-no-color"); !ok {
		t.Errorf("%s", out)
	}
}

// C073, and the promise that a subscription is its name: what the plans of tests/changes.tftest.hcl touch.
func TestAPlanTouchesWhatHasChangedAndNothingElse(t *testing.T) {
	needTerraform(t)
	t.Parallel()
	dir := copied(t, nil)
	prepare(t, dir)
	out, ok := run(t, dir, "test", "-json", "-verbose", "-filter=tests/changes.tftest.hcl")
	if !ok {
		t.Fatal(out)
	}
	touched := map[string][]string{}
	for line := range strings.Lines(out) {
		var event struct {
			Type string `json:"type"`
			Run  string `json:"@testrun"`
			Plan struct {
				Changes []struct {
					Address string `json:"address"`
					Mode    string `json:"mode"`
					Change  struct {
						Actions []string `json:"actions"`
					} `json:"change"`
				} `json:"resource_changes"`
			} `json:"test_plan"`
		}
		if json.Unmarshal([]byte(line), &event) != nil || event.Type != "test_plan" {
			continue
		}
		touched[event.Run] = []string{}
		if len(event.Plan.Changes) < 50 {
			t.Errorf("%s: the plan has %d resources only", event.Run, len(event.Plan.Changes))
		}
		for _, c := range event.Plan.Changes {
			if action := strings.Join(c.Change.Actions, "+"); action != "no-op" && c.Mode == "managed" {
				touched[event.Run] = append(touched[event.Run], action+" "+c.Address)
			}
		}
		slices.Sort(touched[event.Run])
	}
	of := func(action, key string) []string {
		return []string{
			action + ` google_monitoring_alert_policy.subscription_gone["` + key + `"]`,
			action + ` google_pubsub_subscription.push["` + key + `"]`,
			action + ` google_pubsub_subscription_iam_member.dead_letter_subscriber["` + key + `"]`,
			action + ` google_pubsub_topic.events["` + key + `"]`,
		}
	}
	for name, want := range map[string][]string{
		"nothing_changes":        {},
		"one_subscription_goes":  of("delete", "invoices"),
		"one_subscription_comes": of("create", "reports"),
		// The stand-in for the provider knows no replacement: Google's makes a new version of the secret, and with it new
		// revisions of the functions.
		"the_configuration_changes": {"update google_secret_manager_secret_version.config"},
		"the_source_changes": {
			"update google_storage_bucket_object.source",
			"update module.receive.google_cloudfunctions2_function.this",
			"update module.relay.google_cloudfunctions2_function.this",
		},
	} {
		got, ok := touched[name]
		if name == "the_configuration_changes" || name == "the_source_changes" {
			// With Google's provider the names of versions and objects follow.
			if !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, strings.Fields(want[0])[1]) }) {
				t.Errorf("%s touches %v, want at least %v", name, got, want)
			}
			if slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "pubsub") || strings.Contains(s, "spanner") }) {
				t.Errorf("%s touches %v, which has nothing to do with it", name, got)
			}
			continue
		}
		if !ok || !slices.Equal(got, want) {
			t.Errorf("%s touches %v, want %v", name, got, want)
		}
	}
}

// C074: each element of the dead-letter wiring is tested. A copy without it fails.
func TestNoElementOfTheDeadLetterWiringCanBeMissing(t *testing.T) {
	needTerraform(t)
	const topic, subscription = `resource "google_pubsub_topic" "dead_letter"`, `resource "google_pubsub_subscription" "dead_letter"`
	// in edits one resource.
	in := func(head string, edit func(string) string) func(string) string {
		return func(text string) string {
			before, rest, ok := strings.Cut(text, head)
			body, after, ok2 := strings.Cut(rest, "\n}\n")
			if !ok || !ok2 {
				return text
			}
			return before + edit(head+body+"\n}\n") + after
		}
	}
	gone := func(string) string { return "" }
	without := func(pattern string) func(string) string {
		return func(text string) string { return regexp.MustCompile(`(?ms)`+pattern).ReplaceAllString(text, "") }
	}
	swap := func(old, new string) func(string) string {
		return func(text string) string { return strings.ReplaceAll(text, old, new) }
	}
	swapAll := func(pattern, new string) func(string) string {
		return func(text string) string { return regexp.MustCompile(pattern).ReplaceAllString(text, new) }
	}
	const push = `resource "google_pubsub_subscription" "push"`
	const publisher, subscriber = `resource "google_pubsub_topic_iam_member" "dead_letter_publisher"`, `resource "google_pubsub_subscription_iam_member" "dead_letter_subscriber"`
	for name, edit := range map[string]func(string) string{
		"the topic":                            in(topic, gone),
		"its subscription":                     in(subscription, gone),
		"the publisher's grant":                in(publisher, gone),
		"the subscriber's grants":              in(subscriber, gone),
		"the dead-letter policy":               in(push, without(`^  dead_letter_policy \{.*?^  \}\n`)),
		"the full name of the topic":           in(push, swap("google_pubsub_topic.dead_letter.id", "google_pubsub_topic.dead_letter.name")),
		"a number of attempts that is legal":   in(push, swap("= each.value.max_delivery_attempts", "= 3")),
		"the right topic of the subscription":  in(subscription, swap("google_pubsub_topic.dead_letter.id", `"projects/demo/topics/another"`)),
		"no expiry":                            in(subscription, without(`^  expiration_policy \{.*?^  \}\n`)),
		"the long retention":                   in(subscription, without(`^  message_retention_duration .*?\n`)),
		"the retry policy":                     in(subscription, without(`^  retry_policy \{.*?^  \}\n`)),
		"the path":                             in(subscription, swap("/dead-letter\"", "\"")),
		"the identity":                         in(subscription, without(`^    oidc_token \{.*?^    \}\n`)),
		"the audience":                         in(subscription, without(`^      audience .*?\n`)),
		"the acknowledgement deadline":         in(subscription, without(`^  ack_deadline_seconds .*?\n`)),
		"the receive function's timeout in it": in(subscription, swapAll(`(ack_deadline_seconds +=) .*`, "$1 60")),
		"the end":                              in(subscription, swap("  retry_policy {", "  dead_letter_policy {\n    dead_letter_topic     = google_pubsub_topic.dead_letter.id\n    max_delivery_attempts = 5\n  }\n\n  retry_policy {")),
		"the agent as publisher":               in(publisher, swap("local.pubsub_agent", `"serviceAccount:${google_service_account.push.email}"`)),
		"the agent as subscriber":              in(subscriber, swap("local.pubsub_agent", `"serviceAccount:${google_service_account.push.email}"`)),
		"the publisher's role":                 in(publisher, swap("roles/pubsub.publisher", "roles/pubsub.viewer")),
		"the subscriber's role":                in(subscriber, swap("roles/pubsub.subscriber", "roles/pubsub.viewer")),
		"the source subscription in the grant": in(subscriber, swap("google_pubsub_subscription.push[each.key].name", "google_pubsub_subscription.dead_letter.name")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changed := false
			dir := copied(t, func(file, text string) string {
				if file != "pubsub.tf" {
					return text
				}
				edited := edit(text)
				changed = edited != text
				return edited
			})
			if !changed {
				t.Fatal("pubsub.tf does not have it any more in the form that is looked for")
			}
			prepare(t, dir)
			if out, ok := run(t, dir, "test", "-no-color", "-filter=tests/dead_letter.tftest.hcl"); ok {
				t.Errorf("without %s the tests still pass:\n%s", name, out)
			} else if !strings.Contains(out, "dead_letter.tftest.hcl... fail") && !strings.Contains(out, "Error: Reference to undeclared resource") {
				t.Errorf("it fails for another reason:\n%s", out)
			}
		})
	}
}
