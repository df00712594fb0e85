// Package emulatortest gives tests a Spanner database of their own.
//
// It promises one emulator for the whole test process, started when the first test asks for it and ended
// with the process, and a new database with all migrations applied for every call of Database. A test that
// asks fails when there is no emulator; it is never skipped. No environment variable is set, so that tests
// may run in parallel and one package may test what happens without an emulator.
//
// It does not promise isolation of speed: the databases share the emulator, whose clock runs ahead with use
// and whose every database takes one read-write transaction at a time.
//
// All functions may be called by several tests at once.
package emulatortest

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/api/option"

	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators"
)

// Project is the project of all test databases. Emulators do not check it.
const Project = "test-project"

// setupTimeout bounds each step of a set-up.
const setupTimeout = 2 * time.Minute

var shared struct {
	once     sync.Once
	emulator *emulators.Emulator
	instance string
	err      error
}

// Main runs the tests of a package, ends what they have started, and ends the process. A package that does
// not call it from its TestMain leaves the ending to the kernel.
func Main(m *testing.M) {
	os.Exit(Run(m))
}

// Run is Main for a TestMain that has more to do: it returns the exit code.
func Run(m *testing.M) int {
	code := m.Run()
	if shared.emulator != nil {
		if err := shared.emulator.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// Spanner returns the host:port of the process's Spanner emulator.
func Spanner(t testing.TB) string {
	t.Helper()
	shared.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
		defer cancel()
		shared.emulator, shared.err = emulators.StartSpanner(ctx)
		// An emulator that was there already is shared with other processes.
		shared.instance = "test-" + strings.ToLower(rand.Text()[:10])
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.emulator.Host()
}

// Database returns the full name of a new database with all migrations applied. It is removed with the test.
func Database(t testing.TB) string {
	t.Helper()
	return newDatabase(t, emulators.NewDatabase)
}

// DatabaseWith is Database with other statements than the migrations, or none.
func DatabaseWith(t testing.TB, ddl ...string) string {
	t.Helper()
	return newDatabase(t, func(ctx context.Context, host, project, instance, name string) (string, error) {
		return emulators.NewDatabaseWith(ctx, host, project, instance, name, ddl...)
	})
}

func newDatabase(t testing.TB, create func(ctx context.Context, host, project, instance, name string) (string, error)) string {
	t.Helper()
	host := Spanner(t)
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	name, err := create(ctx, host, Project, shared.instance, "d"+strings.ToLower(rand.Text()[:16]))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
		defer cancel()
		// A database that stays does no harm to other tests; only memory would tell.
		if err := emulators.DropDatabase(ctx, host, name); err != nil {
			t.Log(err)
		}
	})
	return name
}

// ClientOptions connect any Spanner client, admin clients too, to the process's emulator. They are for code
// that makes its clients itself; with a Spanner client, use emulators.ClientConfig too.
func ClientOptions(t testing.TB) []option.ClientOption {
	t.Helper()
	return emulators.ClientOptions(Spanner(t))
}

// Client returns a client of a database that Database has made. Options, such as those of an rpctap.Tap,
// come after those that connect it. It is closed with the test.
func Client(t testing.TB, database string, opts ...option.ClientOption) *spanner.Client {
	t.Helper()
	client, err := spanner.NewClientWithConfig(context.Background(), database, emulators.ClientConfig(), append(ClientOptions(t), opts...)...)
	if err != nil {
		t.Fatalf("connect to %s: %v", database, err)
	}
	t.Cleanup(client.Close)
	return client
}

// Env returns what a child process needs in its environment to use a database that Database has made.
func Env(database string) []string {
	if shared.emulator == nil {
		panic("emulatortest.Env: no emulator has been started; call Database first")
	}
	return []string{"SPANNER_EMULATOR_HOST=" + shared.emulator.Host(), "SPANNER_DATABASE=" + database}
}
