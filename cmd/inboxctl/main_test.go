package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	database "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"

	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/emulatortest"
)

func TestRunNeedsNoDatabaseForWhatDoesNotUseOne(t *testing.T) {
	for _, test := range []struct {
		args string
		want string
	}{
		{"version", "inboxctl "},
		{"--help", "SPANNER_DATABASE"},
		{"list --help", "--older-than"},
		{"completion bash", "__start_inboxctl"},
		{"completion zsh", "compdef"},
		{"completion fish", "complete -c inboxctl"},
		{"completion powershell", "Register-ArgumentCompleter"},
		{"__complete list --status ", "PARKED"},
		{"__complete list --reason ", "NO_WAITING_INSTANCE"},
	} {
		t.Run(test.args, func(t *testing.T) {
			var out, stderr bytes.Buffer
			args := strings.Split(test.args, " ")
			code := run(t.Context(), args, nil, &out, &stderr, func(string) (string, bool) { return "", false }, time.Now)
			if code != 0 || !strings.Contains(out.String(), test.want) {
				t.Errorf("exit code %d, standard error %q, no %q in %d bytes of output", code, stderr.String(), test.want, out.Len())
			}
		})
	}
}

func TestWrongCommandLines(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		env  map[string]string
		want string
	}{
		{"no database", []string{"list"}, nil, "set SPANNER_DATABASE to projects/P/instances/I/databases/D"},
		{"a blank database", []string{"migrate"}, map[string]string{"SPANNER_DATABASE": " "}, "set SPANNER_DATABASE"},
		{"a database by its short name", []string{"list"}, map[string]string{"SPANNER_DATABASE": "inbox"}, `SPANNER_DATABASE is "inbox"`},
		{"a flag's database by its short name", []string{"list", "--database", "inbox"}, nil, `--database is "inbox"`},
		{"a command that is none", []string{"lst"}, nil, "unknown command"},
		{"a flag that is none", []string{"--force"}, nil, "unknown flag"},
		{"config without a command", []string{"config"}, nil, "config needs a command"},
		{"config with another", []string{"config", "show"}, nil, "unknown command"},
		{"a timeout that is none", []string{"list", "--timeout", "1"}, nil, "is not a duration"},
		{"version of something", []string{"version", "x"}, nil, "unknown command"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := runWith(t, nil, test.env, "", test.args...)
			if got.code != 2 || got.out != "" || !strings.Contains(got.stderr, test.want) {
				t.Errorf("exit code %d, output %q, standard error %q; want 2, nothing, and %q", got.code, got.out, got.stderr, test.want)
			}
		})
	}
}

func TestADatabaseThatIsNotThereIsExplained(t *testing.T) {
	env := map[string]string{"SPANNER_DATABASE": "projects/p/instances/none/databases/none"}
	got := runWith(t, emulatortest.ClientOptions(t), env, "", "list")
	if got.code != 1 || !strings.Contains(got.stderr, "inboxctl migrate") {
		t.Errorf("exit code %d, %q", got.code, got.stderr)
	}
}

func TestADatabaseOutOfReachEndsWithTheTimeout(t *testing.T) {
	w := newWorld(t)
	w.tap.Before("StreamingRead", func(ctx ctx, _ int, _ any) error {
		<-ctx.Done()
		return ctx.Err()
	})
	w.refused(1, "does an emulator answer there?", "list", "--timeout", "200ms")
	delete(w.env, "SPANNER_EMULATOR_HOST")
	w.refused(1, "did not answer in time", "list", "--timeout", "200ms")
	w.refused(1, "did not answer in time", "show", "--timeout", "200ms", unknownID)
}

func TestMigrate(t *testing.T) {
	w := newWorld(t)
	parent, id, _ := strings.Cut(w.db, "/databases/")
	id = "u" + id[1:] // as random as that of the world
	admin, err := database.NewDatabaseAdminClient(t.Context(), emulatortest.ClientOptions(t)...)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	op, err := admin.CreateDatabase(t.Context(), &databasepb.CreateDatabaseRequest{Parent: parent, CreateStatement: "CREATE DATABASE " + id})
	if err == nil {
		_, err = op.Wait(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	name := parent + "/databases/" + id
	t.Cleanup(func() {
		if err := emulators.DropDatabase(context.Background(), emulatortest.Spanner(t), name); err != nil {
			t.Log(err)
		}
	})
	w.refused(1, "inboxctl migrate", "list", "--database", name)
	got := w.ok("migrate", "--database", name)
	if !strings.Contains(got.out, "applying 000001_") || !strings.Contains(got.out, name+": version 0 before, ") {
		t.Errorf("the first run says %q", got.out)
	}
	if got := w.ok("migrate", "--database", name); !strings.Contains(got.out, "nothing to do") {
		t.Errorf("the second run says %q", got.out)
	}
	w.ok("list", "--database", name)
	client := emulatortest.Client(t, name)
	var version int64
	err = client.Single().Read(t.Context(), "SchemaMigrations", spanner.AllKeys(), []string{"Version"}).Do(func(r *spanner.Row) error { return r.Columns(&version) })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Apply(t.Context(), []*spanner.Mutation{spanner.Update("SchemaMigrations", []string{"Version", "Dirty"}, []any{version, true})}); err != nil {
		t.Fatal(err)
	}
	// The change has ended in Spanner, and nobody was there to write that down.
	if got := w.ok("migrate", "--database", name); !strings.Contains(got.out, fmt.Sprintf("%s: version %d before, %d now", name, version-1, version)) {
		t.Errorf("the run after one that was cut off says %q", got.out)
	}
	if _, err := client.Apply(t.Context(), []*spanner.Mutation{spanner.Delete("SchemaMigrations", spanner.AllKeys()),
		spanner.Insert("SchemaMigrations", []string{"Version", "Dirty"}, []any{version + 1, false})}); err != nil {
		t.Fatal(err)
	}
	w.refused(1, "newer", "migrate", "--database", name)
}

func TestActorIsWhoeverRunsTheProgram(t *testing.T) {
	w := newWorld(t)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	id := w.parked("", "REJECTED")
	w.ok("reopen", id, "--reason", "x")
	shown, err := w.store.Show(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := shown.Audit[0].Actor, "ann@"+host; got != want {
		t.Errorf("the actor is %q, want %q", got, want)
	}
}

func TestConfigCheck(t *testing.T) {
	good := configOf(`{name: r, key: payload.key, order: published, dedupe: attributes.eventId, engine: e, message: M}`)
	changed := strings.Replace(good, "payload.key", "payload.id", 1)
	broken := configOf(`{name: r, key: "payload.", engine: nobody, message: M}`, `{name: r, engine: e, message: M, colour: red}`)
	warned := good + "  - {name: s, key: payload.key, order: received, engine: e, message: M}\n"
	check := func(stdin string, args ...string) answer {
		t.Helper()
		return runWith(t, nil, nil, stdin, append([]string{"config", "check"}, args...)...)
	}

	name := file(t, good)
	if got := check("", name); got.code != 0 || got.out != name+": nothing to say against it\n" {
		t.Errorf("a good file: %+v", got)
	}
	got := check(broken, "-")
	if got.code != 1 || got.stderr != "" {
		t.Errorf("a broken file: exit code %d, standard error %q", got.code, got.stderr)
	}
	for _, want := range []string{"-:5:", "-:6:", "nobody", "colour"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("a broken file: no %q in\n%s", want, got.out)
		}
	}
	if got := check(warned, "-"); got.code != 0 || !strings.Contains(got.out, "(warning)") {
		t.Errorf("a file with warnings: %+v", got)
	}
	if got := check(changed, "-", "--against", name); got.code != 0 || !strings.Contains(got.out, "change: route r: key: payload.key becomes payload.id. New messages go into other lanes") {
		t.Errorf("a change: %+v", got)
	}
	if got := check(good, "-", "--against", name); got.code != 0 || !strings.Contains(got.out, "no change touches messages in flight") {
		t.Errorf("no change: %+v", got)
	}
	if got := check(good, "-", "--against", file(t, broken)); got.code != 1 || !strings.Contains(got.out, "nobody") {
		t.Errorf("a broken old file: %+v", got)
	}
	if got := check("", "/nowhere.yaml"); got.code != 1 || !strings.Contains(got.stderr, "no such file") {
		t.Errorf("no file: %+v", got)
	}
	if got := check("", "-", "--against", "-"); got.code != 2 {
		t.Errorf("standard input twice: %+v", got)
	}
	if got := check(""); got.code != 2 || !strings.Contains(got.stderr, "set INBOX_CONFIG_FILE") {
		t.Errorf("no name: %+v", got)
	}
	for variable, c := range map[string]struct{ value, want string }{
		"INBOX_CONFIG_FILE": {name, name + ": nothing to say against it\n"},
		"INBOX_CONFIG":      {good, "INBOX_CONFIG: nothing to say against it\n"},
	} {
		if got := runWith(t, nil, map[string]string{variable: c.value}, "", "config", "check"); got.code != 0 || got.out != c.want {
			t.Errorf("a file that %s names: %+v", variable, got)
		}
	}

	var r struct {
		OK                        bool
		Faults, Warnings, Changes []map[string]any
	}
	if err := json.Unmarshal([]byte(check(broken, "-", "--json").out), &r); err != nil || r.OK || len(r.Faults) < 2 || r.Faults[0]["line"] != 5.0 {
		t.Errorf("faults in JSON: %+v, %v", r, err)
	}
	if err := json.Unmarshal([]byte(check(changed, "-", "--json", "--against", name).out), &r); err != nil || !r.OK || len(r.Changes) != 1 || r.Changes[0]["field"] != "key" {
		t.Errorf("changes in JSON: %+v, %v", r, err)
	}
}

func TestRunFindsTheEmulatorByTheEnvironment(t *testing.T) {
	w := newWorld(t)
	id := w.insert(row{})
	t.Setenv("SPANNER_EMULATOR_HOST", emulatortest.Spanner(t))
	t.Setenv("SPANNER_DATABASE", w.db)
	var out, stderr bytes.Buffer
	code := run(t.Context(), []string{"list", "--json"}, nil, &out, &stderr, os.LookupEnv, time.Now)
	if code != 0 || stderr.Len() > 0 || !strings.Contains(out.String(), id) {
		t.Errorf("exit code %d, output %q, standard error %q", code, out.String(), stderr.String())
	}
}
