package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/claimcheck"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/emulatortest"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// TestTheREADMEsCommandsRun tries what the README tells an operator to type, with nothing but the environment to find the
// database, the bucket and the subscription.
func TestTheREADMEsCommandsRun(t *testing.T) {
	w := newWorld(t)
	l := newLetters(w)
	l.publish(event(1))
	server, err := emulators.StartStorage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	for _, bucket := range []string{"payloads", "reports"} {
		if err := emulators.NewBucket(t.Context(), server.Host(), emulatortest.Project, bucket); err != nil {
			t.Fatal(err)
		}
	}
	w.objects = claimcheck.New("payloads", emulators.StorageClientOptions(server.Host())...)
	t.Cleanup(func() { _ = w.objects.Close() })
	parked := map[string]any{"Status": "PARKED", "Reason": "REJECTED", "Attempts": 1}
	body := []byte(`{"key":"WO-1"}`)
	id, o := w.insertKept(body, parked)
	w.finish(o, time.Now()) // so that there is something to mend

	t.Setenv("SPANNER_EMULATOR_HOST", emulatortest.Spanner(t))
	t.Setenv("STORAGE_EMULATOR_HOST", server.Host())
	t.Setenv("PUBSUB_EMULATOR_HOST", pubSubHost(t))
	t.Setenv("SPANNER_DATABASE", w.db)
	t.Setenv("PAYLOAD_BUCKET", "payloads")
	t.Setenv("USER", "ann")
	cfg := file(t, "claimCheck: {buckets: [reports]}\n"+configOf(
		`{name: r, match: has(payload.key), key: payload.key, engine: e, message: M}`, strings.Replace(reportRoute, "name: report", "name: NAME", 1)))
	values := strings.NewReplacer("ID", id, "FILE", cfg, "PROJECT", "p", "NAME", l.name[strings.LastIndexByte(l.name, '/')+1:])

	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, operations, ok := strings.Cut(string(text), "\n## Operations\n")
	if !ok {
		t.Fatal("the README has no section Operations")
	}
	operations, _, _ = strings.Cut(operations, "\n## ")
	tried := map[string]int{}
	for _, command := range regexp.MustCompile(`(?m)^    go run ./cmd/inboxctl (.*)$`).FindAllStringSubmatch(operations, -1) {
		var args []string
		for _, word := range regexp.MustCompile(`"[^"]*"|\S+`).FindAllString(command[1], -1) {
			args = append(args, strings.Trim(word, `"`))
		}
		for i := range args {
			if args[max(0, i-1)] != "--route" {
				args[i] = values.Replace(args[i])
			}
		}
		if args[0] == "drain" {
			args = append(args, "--wait", "1s")
		}
		tried[args[0]]++
		var out, stderr bytes.Buffer
		code := run(t.Context(), args, nil, &out, &stderr, os.LookupEnv, time.Now)
		if code != 0 {
			t.Errorf("inboxctl %s: exit code %d: %s%s", command[1], code, out.String(), stderr.String())
		}
		switch {
		case args[0] == "show" && args[1] == "--payload" && out.String() != string(body):
			t.Errorf("inboxctl %s writes %q", command[1], out.String())
		case args[0] == "reopen": // the next one is to find it as it was
			parked["InboxId"] = id
			w.update("Messages", parked)
		case args[0] == "drain" && !strings.Contains(out.String(), "inserted 1,"):
			t.Errorf("inboxctl %s says %q", command[1], out.String())
		}
	}
	for _, name := range []string{"list", "show", "reopen", "reroute", "drain", "reconcile"} {
		if tried[name] == 0 {
			t.Errorf("the README has no example of %s", name)
		}
	}
	now, err := w.objects.Stat(t.Context(), w.location(id))
	if err != nil || !now.CustomTime.IsZero() || now.Generation == o.Generation {
		t.Errorf("the object was not mended: %+v, %v", now, err)
	}
	if got := w.text("Messages", id, "Status"); got != string(inbox.Received) {
		t.Errorf("the message is %s", got)
	}
}
