// Command inboxctl is the operator's command line: it lists, shows and repairs messages, drains a dead-letter subscription,
// compares the bucket with the database, checks configurations and migrates the database.
//
// The database is that of SPANNER_DATABASE, or of --database; the bucket for payloads that of PAYLOAD_BUCKET; a configuration
// that of INBOX_CONFIG_FILE or INBOX_CONFIG, or of --config. With SPANNER_EMULATOR_HOST, STORAGE_EMULATOR_HOST or
// PUBSUB_EMULATOR_HOST set, that client talks to an emulator.
//
// Results go to standard output, everything else to standard error. Payloads and attribute values go to standard output
// only, and only where they are asked for. Exit codes: 0, all was done; 1, something failed or was refused; 2, the command
// line is wrong; 3, a list is not complete.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"os/user"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"cloud.google.com/go/spanner"
	"github.com/spf13/cobra"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"

	"github.com/pubsub-inbox/pubsub-inbox/internal/config"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/spannerstore"
	"github.com/pubsub-inbox/pubsub-inbox/internal/wiring"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.LookupEnv, time.Now)
	stop()
	os.Exit(code)
}

// The exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
	exitPart   = 3
)

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, lookup config.Lookup, now func() time.Time) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, lookup: lookup, now: now}
	return a.run(ctx, args)
}

// app is one run of the program.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	lookup         config.Lookup
	now            func() time.Time
	// Of the clients; for tests.
	options, storageOptions, pubsubOptions []option.ClientOption

	database string
	role     string // of the database; empty: all that the account may do
	timeout  time.Duration
	began    bool // the command line is understood
}

// usageError is a mistake in the command line.
type usageError struct{ error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errReported has been said already.
var errReported = errors.New("reported")

// errIncomplete: a list was cut off, and has said so.
var errIncomplete = errors.New("not complete")

func (a *app) run(ctx context.Context, args []string) int {
	root := a.command()
	root.SetArgs(args)
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	cmd, err := root.ExecuteContextC(ctx)
	var wrong usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errReported):
		return exitFailed
	case errors.Is(err, errIncomplete):
		return exitPart
	case errors.As(err, &wrong) || !a.began:
		fmt.Fprintf(a.stderr, "inboxctl: %v\n%s --help says more\n", err, cmd.CommandPath())
		return exitUsage
	}
	fmt.Fprintf(a.stderr, "inboxctl: %v\n", a.explain(err))
	return exitFailed
}

func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:               "inboxctl",
		Short:             "List, show and repair the messages of an inbox",
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: func(*cobra.Command, []string) error { a.began = true; return nil },
		Long: `List, show and repair the messages of an inbox; drain a dead-letter subscription into it; compare its bucket with its
database; check its configuration; migrate its database.

Environment:
  SPANNER_DATABASE        projects/P/instances/I/databases/D (or --database)
  PAYLOAD_BUCKET          where large payloads are kept, a bare bucket name
  INBOX_CONFIG_FILE       a configuration file, INBOX_CONFIG the text itself (or --config where a command has it)
  GOOGLE_CLOUD_PROJECT    the project of a subscription without one (or --project)
  SPANNER_EMULATOR_HOST   host:port of an emulator, in place of Spanner; likewise STORAGE_EMULATOR_HOST, PUBSUB_EMULATOR_HOST

Exit codes: 0 all was done; 1 something failed or was refused; 2 the command line is wrong; 3 a list is not complete.`,
	}
	root.PersistentFlags().StringVar(&a.database, "database", "", "the database: projects/P/instances/I/databases/D (default: $SPANNER_DATABASE)")
	root.PersistentFlags().StringVar(&a.role, "database-role", "", "the database `role` to take, such as inbox_ledger (list, show and reopen, without payloads)")
	root.PersistentFlags().Var(durationFlag{&a.timeout}, "timeout", "give up after this time, with several ids on each of them; 0: never (default 1m; reconcile: 5m a slice; migrate: never)")
	root.AddCommand(a.listCommand(), a.showCommand(), a.reopenCommand(), a.rerouteCommand(), a.drainCommand(), a.reconcileCommand(),
		a.configCommand(), a.migrateCommand(), a.versionCommand())
	return root
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of this program", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			info, ok := debug.ReadBuildInfo()
			if !ok {
				return errors.New("this program was built without a module")
			}
			revision, modified := "", ""
			for _, setting := range info.Settings {
				switch {
				case setting.Key == "vcs.revision":
					revision = " " + setting.Value
				case setting.Key == "vcs.modified" && setting.Value == "true":
					modified = " (changed)"
				}
			}
			_, err := fmt.Fprintf(a.stdout, "inboxctl %s%s%s %s\n", info.Main.Version, revision, modified, info.GoVersion)
			return err
		},
	}
}

// within bounds ctx by --timeout.
func (a *app) within(cmd *cobra.Command, otherwise time.Duration) (context.Context, context.CancelFunc) {
	timeout := a.timeout
	if !cmd.Flags().Changed("timeout") {
		timeout = otherwise
	}
	if timeout <= 0 {
		return context.WithCancel(cmd.Context())
	}
	return context.WithTimeout(cmd.Context(), timeout)
}

var databaseName = regexp.MustCompile(`^projects/[^/\s]+/instances/[^/\s]+/databases/[^/\s]+$`)

func (a *app) databaseName() (string, error) {
	name, from := a.database, "--database"
	if name == "" {
		name, _ = a.lookup(config.EnvDatabase)
		name, from = strings.TrimSpace(name), config.EnvDatabase
	}
	switch {
	case name == "":
		return "", usage("no database: set %s to projects/P/instances/I/databases/D, or give --database", config.EnvDatabase)
	case !databaseName.MatchString(name):
		return "", usage("%s is %q; it must be projects/P/instances/I/databases/D", from, name)
	}
	return name, nil
}

// withStore runs f on the store.
func (a *app) withStore(cmd *cobra.Command, f func(store *spannerstore.Store) error) error {
	database, err := a.databaseName()
	if err != nil {
		return err
	}
	store, err := wiring.Store(cmd.Context(), a.lookup, database, a.role, a.now, a.options...)
	if err != nil {
		return err
	}
	defer store.Close()
	return f(store)
}

// explain adds to an error what to do about it.
func (a *app) explain(err error) error {
	var elsewhere *elsewhereError
	if errors.As(err, &elsewhere) {
		if elsewhere.hint == "" {
			return err
		}
		return fmt.Errorf("%w\n%s", err, elsewhere.hint)
	}
	database, nameErr := a.databaseName()
	if nameErr != nil || errors.Is(err, inbox.ErrConflict) || errors.Is(err, inbox.ErrNotFound) {
		return err
	}
	hint := ""
	switch spanner.ErrCode(err) {
	case codes.NotFound, codes.InvalidArgument, codes.FailedPrecondition:
		hint = "Is " + database + " there, and has `inboxctl migrate` brought it to this version?"
	case codes.PermissionDenied, codes.Unauthenticated:
		hint = "Log in with `gcloud auth application-default login`, and let a role such as roles/spanner.databaseUser on " + database + " be granted to you."
	case codes.Unavailable, codes.DeadlineExceeded:
		hint = database + " did not answer in time; is it in reach?"
		if host, ok := a.lookup("SPANNER_EMULATOR_HOST"); ok && host != "" {
			hint = fmt.Sprintf("SPANNER_EMULATOR_HOST is %q; does an emulator answer there?", host)
		}
	default:
		return err
	}
	return fmt.Errorf("%w\n%s", err, hint)
}

// say writes one line about a message to standard error.
func (a *app) say(id, format string, args ...any) {
	fmt.Fprintf(a.stderr, "%s: %s\n", id, fmt.Sprintf(format, args...))
}

// fault says what went wrong with one message.
func (a *app) fault(id string, err error) {
	var refused *spannerstore.RefusedError
	var moved *spannerstore.MovedError
	switch {
	case errors.As(err, &moved):
		a.say(id, "it has the id %s since it was rerouted", moved.To)
	case errors.Is(err, inbox.ErrNotFound):
		database, _ := a.databaseName()
		fmt.Fprintf(a.stderr, "no message with id %s in %s; `inboxctl list` shows ids\n", id, database)
	case errors.As(err, &refused):
		a.say(id, "refused: %s", refused.Why)
	default:
		a.say(id, "%v", a.explain(err))
	}
}

// each runs f for every id, whatever becomes of the others; --timeout bounds each. What is refused or fails is said, an id
// a line. It ends early only where the program is told to end.
func (a *app) each(cmd *cobra.Command, ids []string, f func(ctx context.Context, id string) error) error {
	groups := make([]group, len(ids))
	for i, id := range ids {
		groups[i] = group{ids: []string{id}, lane: i}
	}
	return a.eachGroup(cmd, groups, func(ctx context.Context, ids []string) []error { return []error{f(ctx, ids[0])} })
}

// group is what is done together, of one lane. The groups of a lane come in its order.
type group struct {
	ids  []string
	lane int
}

// eachGroup runs f for every group as each does for every id; f answers for each. Where one fails for another reason than
// that it is refused or not there, the groups of its lane that come after it are not tried: they would overtake it.
func (a *app) eachGroup(cmd *cobra.Command, groups []group, f func(ctx context.Context, ids []string) []error) error {
	failed := false
	broken := map[int]bool{}
	left := 0
	for _, g := range groups {
		left += len(g.ids)
	}
	for _, g := range groups {
		if cmd.Context().Err() != nil {
			fmt.Fprintf(a.stderr, "told to end; %d messages were not tried\n", left)
			return errReported
		}
		left -= len(g.ids)
		ctx, cancel := a.within(cmd, time.Minute)
		errs := make([]error, len(g.ids))
		if broken[g.lane] {
			for i := range errs {
				errs[i] = spannerstore.ErrBehind
			}
		} else {
			errs = f(ctx, g.ids)
		}
		cancel()
		for i, err := range errs {
			if err == nil {
				continue
			}
			failed = true
			a.fault(g.ids[i], err)
			if !errors.Is(err, inbox.ErrConflict) && !errors.Is(err, inbox.ErrNotFound) {
				broken[g.lane] = true
			}
		}
	}
	if failed {
		return errReported
	}
	return nil
}

var idPattern = regexp.MustCompile(`^[0-9a-f]{32}$`)

// ids returns the ids that the command line names, each once. "-" stands for those on standard input, one a line.
func (a *app) ids(args []string) ([]string, error) {
	var ids []string
	seen := map[string]bool{}
	add := func(id string) error {
		if !idPattern.MatchString(id) {
			return usage("%q is no message id: one has 32 of the digits 0-9 and a-f; `inboxctl list` shows ids", id)
		}
		if !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
		return nil
	}
	for _, arg := range args {
		if arg != "-" {
			if err := add(arg); err != nil {
				return nil, err
			}
			continue
		}
		lines := bufio.NewScanner(a.stdin)
		for lines.Scan() {
			line := strings.TrimSpace(strings.TrimPrefix(lines.Text(), "\ufeff"))
			if line != "" {
				if err := add(line); err != nil {
					return nil, err
				}
			}
		}
		if err := lines.Err(); err != nil {
			return nil, fmt.Errorf("read ids from standard input: %w", err)
		}
	}
	if len(ids) == 0 {
		return nil, usage("no message id; `inboxctl list` shows ids")
	}
	return ids, nil
}

// action is what every command that changes messages needs to know.
type action struct {
	reason, actor string
	dryRun        bool
}

func (act *action) flags(cmd *cobra.Command) {
	act.who(cmd, "why; it is written down (required)")
	cmd.Flags().BoolVar(&act.dryRun, "dry-run", false, "say what would be done, and do nothing")
}

func (act *action) who(cmd *cobra.Command, reason string) {
	cmd.Flags().StringVar(&act.reason, "reason", "", reason)
	cmd.Flags().StringVar(&act.actor, "actor", "", "who; it is written down (default: user@host)")
}

// check fills in the actor.
func (a *app) check(act *action) error {
	act.reason, act.actor = strings.TrimSpace(act.reason), strings.TrimSpace(act.actor)
	if act.reason == "" {
		return usage("--reason is missing: say why, for those who read the audit later")
	}
	if act.actor != "" {
		return nil
	}
	name, _ := a.lookup("USER")
	if name == "" {
		if u, err := user.Current(); err == nil {
			name = u.Username
		}
	}
	if name == "" {
		return usage("--actor is missing, and the environment does not say who you are (USER)")
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	act.actor = name + "@" + host
	return nil
}

// configuration reads the file, or what the environment names. Nil: there is none.
func (a *app) configuration(file string) (*config.Config, error) {
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read the configuration: %w", err)
		}
		cfg, _, err := config.Parse(file, text)
		return cfg, err
	}
	name, _ := a.lookup(config.EnvFile)
	text, _ := a.lookup(config.EnvText)
	if name == "" && text == "" {
		return nil, nil
	}
	return config.Load(a.lookup)
}

// durationFlag is a duration that may have days: 75d, 1d12h, 24h, 10m.
type durationFlag struct{ d *time.Duration }

// String returns the duration.
func (f durationFlag) String() string {
	if f.d == nil || *f.d == 0 {
		return ""
	}
	return config.Duration(*f.d)
}

// Type names the value in help texts.
func (durationFlag) Type() string { return "duration" }

// Set reads the duration.
func (f durationFlag) Set(text string) error {
	const day = 24 * time.Hour
	count, rest, hasDays := strings.Cut(text, "d")
	if !hasDays {
		count, rest = "0", text
	}
	days, err := strconv.ParseInt(count, 10, 64)
	wrong := fmt.Errorf("%q is not a duration; write it as 90s, 10m, 24h, 75d or 1d12h", text)
	if err != nil || days < 0 || days > 100*365 {
		return wrong
	}
	d := time.Duration(days) * day
	if rest != "" || !hasDays {
		more, err := time.ParseDuration(rest)
		if err != nil || more < 0 || more > 100*365*day {
			return wrong
		}
		d += more
	}
	*f.d = d
	return nil
}

// printable returns text fit for a terminal: what a sender has written must not move the cursor.
func printable(s string) string {
	for _, r := range s {
		if !strconv.IsPrint(r) || r == utf8.RuneError {
			return strconv.Quote(s)
		}
	}
	return s
}

func moment(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
