package config

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func receiveEnv() map[string]string {
	return map[string]string{
		"SPANNER_DATABASE": "projects/p/instances/i/databases/d", "PAYLOAD_BUCKET": "payloads", "AUTH_MODE": "verify",
		"PUSH_AUDIENCE": "https://receive.example", "PUSH_SERVICE_ACCOUNTS": "push@p.iam.gserviceaccount.com, other@p.iam.gserviceaccount.com,",
		"RELAY_AUDIENCE": "https://relay.example", "RELAY_SERVICE_ACCOUNTS": "schedule@p.iam.gserviceaccount.com",
	}
}

func TestEachFunctionReadsItsOwnCallers(t *testing.T) {
	env := receiveEnv()
	env["K_SERVICE"], env["K_REVISION"], env["GOOGLE_CLOUD_PROJECT"], env["AUTH_MODE"] = "receive", "receive-1", "run", "edge"
	receive, err := LoadReceiveEnv(lookup(env))
	if err != nil {
		t.Fatal(err)
	}
	want := &ReceiveEnv{
		Database: "projects/p/instances/i/databases/d", PayloadBucket: "payloads", AuthMode: AuthModeEdge,
		Audience:        "https://receive.example",
		ServiceAccounts: []string{"push@p.iam.gserviceaccount.com", "other@p.iam.gserviceaccount.com"},
		OnCloudRun:      true, Revision: "receive-1", ProjectID: "run",
	}
	if diff := cmp.Diff(want, receive); diff != "" {
		t.Error(diff)
	}
	relay, err := LoadRelayEnv(lookup(env))
	if err != nil {
		t.Fatal(err)
	}
	if relay.Audience != "https://relay.example" || len(relay.ServiceAccounts) != 1 || relay.ServiceAccounts[0] != "schedule@p.iam.gserviceaccount.com" {
		t.Errorf("got %+v", relay)
	}
}

func TestTheProjectIsTheDatabasesWhereNothingElseSaysIt(t *testing.T) {
	e, err := LoadReceiveEnv(lookup(receiveEnv()))
	if err != nil || e.ProjectID != "p" {
		t.Errorf("got %+v, %v", e, err)
	}
}

func TestEachEnvironmentFaultSaysWhatToDo(t *testing.T) {
	for name, c := range map[string]struct {
		env  map[string]string // empty: not set
		want string            // empty: no fault
	}{
		"none of it":               {nil, ""},
		"no database":              {map[string]string{"SPANNER_DATABASE": ""}, "SPANNER_DATABASE is not set; it must be projects/P/instances/I/databases/D"},
		"a database's bare name":   {map[string]string{"SPANNER_DATABASE": "inbox"}, `SPANNER_DATABASE is "inbox"; it must be projects/P/instances/I/databases/D`},
		"a database with a slash":  {map[string]string{"SPANNER_DATABASE": "projects/p/instances/i/databases/d/"}, "it must be projects/P"},
		"a bucket with its scheme": {map[string]string{"PAYLOAD_BUCKET": "gs://b"}, "PAYLOAD_BUCKET is \"gs://b\"; it must be a bare bucket name"},
		"no bucket":                {map[string]string{"PAYLOAD_BUCKET": ""}, ""},
		"no auth mode":             {map[string]string{"AUTH_MODE": ""}, "AUTH_MODE is not set; choose edge on Cloud Run behind its IAM check, verify"},
		"an unknown auth mode":     {map[string]string{"AUTH_MODE": "off"}, `AUTH_MODE is "off"; it must be edge, verify or none`},
		"edge away from Cloud Run": {map[string]string{"AUTH_MODE": "edge"}, "AUTH_MODE is edge, and this is not Cloud Run (K_SERVICE is not set)"},
		"edge on Cloud Run":        {map[string]string{"AUTH_MODE": "edge", "K_SERVICE": "s"}, ""},
		"none on Cloud Run":        {map[string]string{"AUTH_MODE": "none", "K_SERVICE": "s"}, "AUTH_MODE is none, and this is Cloud Run (K_SERVICE is set): anybody could call"},
		"none at home":             {map[string]string{"AUTH_MODE": "none", "PUSH_AUDIENCE": "", "PUSH_SERVICE_ACCOUNTS": ""}, ""},
		"no audience":              {map[string]string{"PUSH_AUDIENCE": ""}, "PUSH_AUDIENCE is not set"},
		"an audience of spaces":    {map[string]string{"PUSH_AUDIENCE": "  "}, "PUSH_AUDIENCE is not set"},
		"no service accounts":      {map[string]string{"PUSH_SERVICE_ACCOUNTS": " , "}, "PUSH_SERVICE_ACCOUNTS is not set; it must name the service accounts that may call"},
		"an account with its kind": {map[string]string{"PUSH_SERVICE_ACCOUNTS": "serviceAccount:a@p.example"}, "without serviceAccount:"},
		"the wildcard of a domain": {map[string]string{"PUSH_SERVICE_ACCOUNTS": "@p.example"}, "it must hold bare e-mail addresses"},
	} {
		t.Run(name, func(t *testing.T) {
			env := receiveEnv()
			maps.Copy(env, c.env)
			_, err := LoadReceiveEnv(lookup(env))
			switch {
			case c.want == "" && err != nil:
				t.Errorf("got %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestAnEmptyEnvironmentReportsEverythingAtOnce(t *testing.T) {
	_, err := LoadRelayEnv(lookup(nil))
	for _, name := range []string{"SPANNER_DATABASE", "AUTH_MODE", "RELAY_AUDIENCE", "RELAY_SERVICE_ACCOUNTS"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v does not name %s", err, name)
		}
	}
	if err != nil && strings.Contains(err.Error(), "PUSH_") {
		t.Errorf("%v names the other function's settings", err)
	}
}
