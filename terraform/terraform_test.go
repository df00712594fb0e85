package terraform

import (
	"context"
	"encoding/csv"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	database "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"cloud.google.com/go/spanner/apiv1/spannerpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"

	"github.com/pubsub-inbox/pubsub-inbox/internal/config"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/emulatortest"
	"github.com/pubsub-inbox/pubsub-inbox/internal/receiver"
	"github.com/pubsub-inbox/pubsub-inbox/internal/spannerstore"
	"github.com/pubsub-inbox/pubsub-inbox/internal/wiring"
	"github.com/pubsub-inbox/pubsub-inbox/terraform/internal/reference/readme"
)

func TestMain(m *testing.M) { emulatortest.Main(m) }

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// module returns the HCL files of the module and its own modules, without tests and examples.
func module(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, pattern := range []string{"*.tf", "modules/*/*.tf"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("no file matches %s: %v", pattern, err)
		}
		for _, name := range names {
			files[name] = read(t, name)
		}
	}
	return files
}

func TestTheReadmeHasTheInputsAndOutputs(t *testing.T) {
	have := read(t, "README.md")
	want, err := readme.Renew(".", have)
	if err != nil {
		t.Fatal(err)
	}
	if have != want {
		t.Error("README.md is not what variables.tf and outputs.tf say; run make generate")
	}
}

// The plan decides by these defaults where the configuration says nothing; the functions by their own.
func TestDefaultsOfTheConfigurationAreTheFunctionsOwn(t *testing.T) {
	text := read(t, "main.tf")
	d := config.Default()
	for place, want := range map[string]time.Duration{
		"local.config.relay.budget":                    d.Relay.Budget,
		"local.config.relay.lease":                     d.Relay.Lease,
		"local.config.retention.processed":             d.Retention.Processed,
		"local.config.retention.payload":               d.Retention.Payload,
		"local.config.retention.waysBack.subscription": d.Retention.WaysBack.Subscription,
		"local.config.retention.waysBack.deadLetter":   d.Retention.WaysBack.DeadLetter,
		"local.config.retention.waysBack.replay":       d.Retention.WaysBack.Replay,
		"engine.timeout":                               config.DefaultEngine().Timeout,
	} {
		m := regexp.MustCompile(regexp.QuoteMeta("try("+place+", ") + `"(?:(\d+)d)?([^"]*)"`).FindStringSubmatch(text)
		if m == nil {
			t.Errorf("main.tf does not read %s", place)
			continue
		}
		days, _ := strconv.Atoi(m[1])
		rest, err := time.ParseDuration("0s" + m[2])
		if got := time.Duration(days)*24*time.Hour + rest; err != nil || got != want {
			t.Errorf("main.tf takes %s for the default of %s, which is %s", got, place, want)
		}
	}
}

func TestTheDeadLetterEndpointIsTheFunctions(t *testing.T) {
	if !strings.Contains(read(t, "pubsub.tf"), `"${local.receive_url}`+receiver.DeadLetterPath+`"`) {
		t.Errorf("pubsub.tf does not push dead letters to %s", receiver.DeadLetterPath)
	}
}

var variableSet = regexp.MustCompile(`(?m)^\s+([A-Z][A-Z_]+)\s+= `)

func TestTheEnvironmentIsTheFunctions(t *testing.T) {
	known := read(t, "../docs/configuration.md")
	set := map[string]bool{}
	for _, name := range []string{"functions.tf", "receive.tf", "relay.tf"} {
		for _, m := range variableSet.FindAllStringSubmatch(read(t, name), -1) {
			set[m[1]] = true
			if !strings.HasPrefix(m[1], "OTEL_") && !strings.Contains(known, "`"+m[1]+"`") {
				t.Errorf("%s sets %s, which docs/configuration.md does not know", name, m[1])
			}
		}
	}
	for _, name := range []string{config.EnvFile, config.EnvDatabase, config.EnvPayloadBucket, config.EnvAuthMode, config.EnvPushAudience,
		config.EnvPushServiceAccounts, config.EnvRelayAudience, config.EnvRelayServiceAccounts, config.EnvProject} {
		if !set[name] {
			t.Errorf("nobody sets %s", name)
		}
	}
}

func TestTheConfigurationsOfTheExamplesAreGood(t *testing.T) {
	files, err := filepath.Glob("examples/*/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("found %v: %v", files, err)
	}
	for _, file := range append(files, "tests/testdata/inbox.yaml") {
		_, warnings, err := config.Parse(file, []byte(read(t, file)))
		if err != nil || len(warnings) > 0 {
			t.Errorf("%s: %v %v", file, err, warnings)
		}
	}
}

// alert is a row of the table in alerts.tf, or the alert of a subscription.
type alert struct{ name, query, reason string }

func alerts(t *testing.T) []alert {
	t.Helper()
	text := read(t, "alerts.tf")
	_, table, _ := strings.Cut(text, "\n  alerts = {\n")
	table, after, _ := strings.Cut(table, "\n  }\n}\n")
	var all []alert
	for _, m := range regexp.MustCompile(`(?ms)^    ([a-z-]+) = \{\n(.*?)\n    \}`).FindAllStringSubmatch(table, -1) {
		a := alert{name: m[1], query: m[2]}
		a.query, a.reason, _ = strings.Cut(m[2], "\n      reason")
		all = append(all, a)
	}
	_, query, _ := strings.Cut(after, `display_name = "subscription-gone"`)
	query, _, _ = strings.Cut(query, "disable_metric_validation")
	all = append(all, alert{name: "subscription-gone", query: query, reason: "its documentation"})
	if len(all) < 12 {
		t.Fatalf("found %d alerts only", len(all))
	}
	return all
}

var (
	googleMetric = regexp.MustCompile(`([a-z]+)_googleapis_com:([a-z_]+)`)
	inboxMetric  = regexp.MustCompile(`\binbox_[a-z_]+`)
)

// metrics returns the names that PromQL has, as Cloud Monitoring and docs/metrics.md have them.
func metrics(promQL string) (google, inbox []string) {
	for _, m := range googleMetric.FindAllStringSubmatch(promQL, -1) {
		// Only the first underscore stood for a slash in the names that are used here: run's have none.
		google = append(google, m[1]+".googleapis.com/"+strings.Replace(m[2], "subscription_", "subscription/", 1))
	}
	for _, name := range inboxMetric.FindAllString(promQL, -1) {
		if name != "inbox_ledger" {
			inbox = append(inbox, strings.TrimSuffix(name, "_bucket"))
		}
	}
	return google, inbox
}

func TestAlertsAndDashboardNameMetricsThatExist(t *testing.T) {
	documented, err := csv.NewReader(strings.NewReader(read(t, "tests/testdata/google-metrics.csv"))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, row := range documented[1:] {
		known[row[0]] = true
		if !strings.HasPrefix(row[2], "https://cloud.google.com/monitoring/api/metrics_gcp") {
			t.Errorf("%s is not documented by Google at %s", row[0], row[2])
		}
	}
	ours := read(t, "../docs/metrics.md")
	used := map[string]bool{}
	for file, text := range map[string]string{"alerts.tf": read(t, "alerts.tf"), "dashboard.tf": read(t, "dashboard.tf")} {
		google, inbox := metrics(text)
		if len(google) == 0 || len(inbox) == 0 {
			t.Errorf("%s: found no metric", file)
		}
		for _, name := range google {
			used[name] = true
			if !known[name] {
				t.Errorf("%s: %s is not in tests/testdata/google-metrics.csv", file, name)
			}
		}
		for _, name := range inbox {
			if !strings.Contains(ours, "\n| `"+name+"` | ") {
				t.Errorf("%s: docs/metrics.md has no %s", file, name)
			}
		}
	}
	for name := range known {
		if !used[name] {
			t.Errorf("tests/testdata/google-metrics.csv has %s, which nobody uses", name)
		}
	}
}

// A process that has ended, or cannot export, counts nothing. Each alert looks at what the database or Google says, too.
func TestNoAlertReliesOnCountersOfAProcess(t *testing.T) {
	for _, a := range alerts(t) {
		google, inbox := metrics(a.query)
		if len(google) > 0 || slices.ContainsFunc(inbox, func(name string) bool { return !strings.HasSuffix(name, "_total") }) {
			continue
		}
		t.Errorf("%s relies on %v alone", a.name, inbox)
	}
}

func TestEachAlertHasAReasonAndARunbookOfItsOwn(t *testing.T) {
	operations := read(t, "../docs/operations.md")
	var names []string
	for _, a := range alerts(t) {
		names = append(names, a.name)
		if len(a.reason) < 10 {
			t.Errorf("%s has no reason", a.name)
		}
		_, runbook, ok := strings.Cut(operations, "\n### "+a.name+"\n")
		runbook, _, _ = strings.Cut(runbook, "\n### ")
		runbook, _, _ = strings.Cut(runbook, "\n## ")
		if !ok || strings.Count(strings.TrimSpace(runbook), "\n") < 3 {
			t.Errorf("docs/operations.md has no runbook ### %s", a.name)
		}
	}
	for _, must := range []string{"parked", "oldest-open", "dedupe-conflict", "dead-letters", "relay-not-succeeding", "receive-failing",
		"engine-paused", "unknown-routes", "expired-leases", "redeliveries", "oldest-unacked", "backlog", "dead-letters-forwarded"} {
		if !slices.Contains(names, must) {
			t.Errorf("there is no alert %s", must)
		}
	}
}

// The role sees every table whole, but for the body of a payload; every statement of it is one that Spanner knows.
func TestTheOperatorsRoleCoversTheSchema(t *testing.T) {
	var statements []string
	var lines []string
	for line := range strings.Lines(read(t, "operator-roles.sql")) {
		if !strings.HasPrefix(line, "--") {
			lines = append(lines, line)
		}
	}
	for statement := range strings.SplitSeq(strings.Join(lines, ""), ";") {
		if statement = strings.TrimSpace(statement); statement != "" {
			statements = append(statements, statement)
		}
	}
	reads := statements[slices.IndexFunc(statements, func(s string) bool { return strings.HasPrefix(s, "GRANT SELECT ON") })]
	for _, m := range regexp.MustCompile(`CREATE TABLE (\w+) `).FindAllStringSubmatch(read(t, "../migrations/schema.sql"), -1) {
		if named := regexp.MustCompile(`\b` + m[1] + `\b`).MatchString(reads); named != (m[1] != "Payloads") {
			t.Errorf("the table %s is in the grant: %v", m[1], named)
		}
	}
	for _, statement := range statements {
		if regexp.MustCompile(`\bBody\b`).MatchString(statement) {
			t.Errorf("%s is about bodies", statement)
		}
	}
	name := emulatortest.Database(t)
	admin, err := database.NewDatabaseAdminClient(t.Context(), emulatortest.ClientOptions(t)...)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	for _, statement := range statements {
		op, err := admin.UpdateDatabaseDdl(t.Context(), &databasepb.UpdateDatabaseDdlRequest{Database: name, Statements: []string{statement}})
		if err == nil {
			err = op.Wait(t.Context())
		}
		// The emulator reads these statements, says what it has no use for, and refuses as a mistake what it cannot read.
		if err != nil && !strings.Contains(err.Error(), "Unsupported ddl statement") && !strings.Contains(err.Error(), "does not yet support column level access") {
			t.Errorf("%s: %v", statement, err)
		}
	}
}

// The emulator knows no roles; that the role is asked for is seen in the request.
func TestTheRoleIsTakenWhereItIsAskedFor(t *testing.T) {
	for _, role := range []string{"", "inbox_ledger"} {
		var asked []string
		var mu sync.Mutex
		tap := grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if r, ok := req.(*spannerpb.CreateSessionRequest); ok {
				mu.Lock()
				asked = append(asked, r.GetSession().GetCreatorRole())
				mu.Unlock()
			}
			return invoke(ctx, method, req, reply, cc, opts...)
		})
		store, err := spannerstore.OpenAs(t.Context(), emulatortest.Database(t), role, time.Now, wiring.NewID,
			append(emulatortest.ClientOptions(t), option.WithGRPCDialOption(tap))...)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.List(t.Context(), spannerstore.Filter{Limit: 1, Scan: 1}); err != nil {
			t.Error(err)
		}
		store.Close()
		mu.Lock()
		if len(asked) == 0 || slices.ContainsFunc(asked, func(got string) bool { return got != role }) {
			t.Errorf("sessions were made for %q, want %q", asked, role)
		}
		mu.Unlock()
	}
}

// What a person copies from the documents into a database must work there.
func TestTheStatementsInTheDocumentsFitTheSchema(t *testing.T) {
	deploy, operations := read(t, "../docs/deploy.md"), read(t, "../docs/operations.md")
	policies := regexp.MustCompile(`(?s)CREATE TABLE (\w+) \((?:[^;]*?)ROW DELETION POLICY (\(OLDER_THAN\(.*?\)\))`).FindAllStringSubmatch(read(t, "../migrations/schema.sql"), -1)
	if len(policies) < 3 {
		t.Fatalf("found %d row deletion policies in the schema", len(policies))
	}
	for _, m := range policies {
		if want := "ALTER TABLE " + m[1] + " ADD ROW DELETION POLICY " + m[2]; !strings.Contains(deploy, want) {
			t.Errorf("docs/deploy.md, Restore, lacks %s", want)
		}
	}
	client := emulatortest.Client(t, emulatortest.Database(t))
	update := regexp.MustCompile(`--sql "(UPDATE [^"]+)"`).FindStringSubmatch(deploy)
	closing := regexp.MustCompile(`(?m)^ +(UPDATE Messages SET .*)$`).FindStringSubmatch(operations)
	count := regexp.MustCompile(`(?m)^    (SELECT COUNT.*)$`).FindStringSubmatch(operations)
	if update == nil || closing == nil || count == nil {
		t.Fatal("the statements are not there in the form that is looked for")
	}
	for _, sql := range []string{update[1], closing[1]} {
		if _, err := client.PartitionedUpdate(t.Context(), spanner.Statement{SQL: sql}); err != nil {
			t.Errorf("%s: %v", sql, err)
		}
	}
	if err := client.Single().Query(t.Context(), spanner.Statement{SQL: count[1]}).Do(func(*spanner.Row) error { return nil }); err != nil {
		t.Errorf("%s: %v", count[1], err)
	}
}

// Mistakes that were made elsewhere: the inputs have them, the module has not.
func TestTheModuleRepeatsNoKnownMistake(t *testing.T) {
	ours := module(t)
	for _, c := range []struct {
		input string
		want  []string
	}{
		{"C067.tf.txt", []string{"no retry policy", "no identity", "may expire", "no retention"}},
		{"C068.tf.txt", []string{"a role with a capital", "an e-mail with a prefix", "no audience"}},
		{"C069.tf.txt", []string{"no retention"}},
		{"C072.tf.txt", []string{"an invoker of the function, not of its service"}},
		{"C073.tf.txt", []string{"no audience", "several retries"}},
	} {
		found := mistakes(read(t, "tests/testdata/"+c.input))
		for _, want := range c.want {
			if !slices.Contains(found, want) {
				t.Errorf("%s: %q is not found, so that it would not be found in the module either; found is %v", c.input, want, found)
			}
		}
	}
	for file, text := range ours {
		if found := mistakes(text); len(found) > 0 {
			t.Errorf("%s: %v", file, found)
		}
	}
}

var (
	resource   = regexp.MustCompile(`(?ms)^resource "([a-z0-9_]+)" "\w+" \{\n(.*?)\n\}`)
	capital    = regexp.MustCompile(`"roles/[a-z.]*\.[A-Z]`)
	prefixed   = regexp.MustCompile(`service_account_email\s*=\s*"serviceAccount:`)
	retries    = regexp.MustCompile(`retry_count\s*=\s*([2-9])`)
	identity   = regexp.MustCompile(`oidc_token \{`)
	anyone     = regexp.MustCompile(`"all(Authenticated)?Users"`)
	neverEnds  = regexp.MustCompile(`expiration_policy \{\s*ttl\s*=\s*""`)
	withPolicy = regexp.MustCompile(`_iam_(policy|binding)$`)
)

var comment = regexp.MustCompile(`(?m)#.*$`)

func mistakes(text string) (found []string) {
	text = comment.ReplaceAllString(text, "")
	add := func(is bool, what string) {
		if is {
			found = append(found, what)
		}
	}
	add(capital.MatchString(text), "a role with a capital")
	for _, m := range resource.FindAllStringSubmatch(text, -1) {
		kind, body := m[1], m[2]
		add(anyone.MatchString(body), "everybody is let in")
		add(withPolicy.MatchString(kind), "grants of others are taken away")
		add(prefixed.MatchString(body), "an e-mail with a prefix")
		add(identity.MatchString(body) && !strings.Contains(body, "audience"), "no audience")
		switch kind {
		case "google_pubsub_subscription":
			add(!neverEnds.MatchString(body), "may expire")
			add(!strings.Contains(body, "message_retention_duration"), "no retention")
			add(!strings.Contains(body, "retry_policy"), "no retry policy")
			add(!identity.MatchString(body), "no identity")
		case "google_cloudfunctions2_function_iam_member":
			add(strings.Contains(body, "roles/run.invoker"), "an invoker of the function, not of its service")
		case "google_cloud_scheduler_job":
			add(retries.MatchString(body), "several retries")
		}
	}
	return found
}
