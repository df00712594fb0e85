package terraform

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/emulatortest"
)

// A terraform that writes down what it was asked for, and says the outputs that the scripts want.
const standIn = `#!/bin/sh
echo "$*" >>"$SAID"
case "$*" in
*" output -raw database") printf '%s' "$SPANNER_OUTPUT" ;;
*" output -raw ephemeral") printf '%s' "${EPHEMERAL:-true}" ;;
*" output -raw "*) printf 'x' ;;
esac
`

func TestDestroyRefusesWhileMessagesAreOpenOrParked(t *testing.T) {
	database := emulatortest.Database(t)
	client := emulatortest.Client(t, database)
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "terraform"), []byte(standIn), 0o755); err != nil {
		t.Fatal(err)
	}
	destroy := func(more ...string) (out string, asked string, ok bool) {
		said := filepath.Join(t.TempDir(), "said")
		cmd := exec.Command("./destroy.sh")
		cmd.Env = append(append(os.Environ(), emulatortest.Env(database)...), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"),
			"SAID="+said, "SPANNER_OUTPUT="+database, "PROJECT=p", "AUTO_APPROVE=1", "INBOX_CONFIG_FILE=nowhere.yaml", "INBOX_CONFIG=")
		cmd.Env = append(cmd.Env, more...)
		text, err := cmd.CombinedOutput()
		calls, _ := os.ReadFile(said)
		return string(text), string(calls), err == nil
	}
	message := func(status string) {
		t.Helper()
		_, err := client.Apply(t.Context(), []*spanner.Mutation{spanner.InsertOrUpdateMap("Messages", map[string]any{
			"InboxId": strings.Repeat("a", 32), "Consumer": "c", "Scope": "s", "DedupeKey": "k", "ReceivedAt": spanner.CommitTimestamp,
			"LaneId": strings.Repeat("b", 32), "Sequence": int64(0), "OrderedAt": time.Unix(0, 0), "Status": status, "ContentSha256": "",
			"PayloadSha256": "", "PayloadBytes": int64(0),
		})}, spanner.ApplyAtLeastOnce())
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, status := range []string{"RECEIVED", "PROCESSING", "RETRYING", "PARKED"} {
		message(status)
		out, asked, ok := destroy()
		if ok || strings.Contains(asked, " destroy") || !strings.Contains(out, "refused: these messages") {
			t.Errorf("%s: terraform was asked for %q:\n%s", status, asked, out)
		}
	}
	if out, asked, ok := destroy("FORCE=1"); !ok || !strings.Contains(asked, " destroy") {
		t.Errorf("FORCE=1: terraform was asked for %q:\n%s", asked, out)
	}
	if out, asked, ok := destroy("SPANNER_OUTPUT=projects/p/instances/none/databases/none"); ok || strings.Contains(asked, " destroy") {
		t.Errorf("no database: terraform was asked for %q:\n%s", asked, out)
	}
	message("PROCESSED")
	if out, asked, ok := destroy("EPHEMERAL=false", "FORCE=1"); ok || strings.Contains(asked, " destroy") || !strings.Contains(out, "protected") {
		t.Errorf("protected: terraform was asked for %q:\n%s", asked, out)
	}
	if out, asked, ok := destroy(); !ok || !strings.Contains(asked, " destroy -auto-approve") {
		t.Errorf("nothing open: terraform was asked for %q:\n%s", asked, out)
	}
}
