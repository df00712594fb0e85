package migrate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"

	"cloud.google.com/go/spanner"
	wrench "github.com/cloudspannerecosystem/wrench/pkg/spanner"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"

	"github.com/pubsub-inbox/pubsub-inbox/migrations"
)

// Table holds one row: the version of the database, and whether a migration to it has not ended.
const Table = "SchemaMigrations"

// Options may be the zero value.
type Options struct {
	// Files are the migrations; nil means those of package migrations.
	Files fs.FS
	// ClientOptions go to the Spanner clients. With SPANNER_EMULATOR_HOST set none are needed.
	ClientOptions []option.ClientOption
	// OnApply, if set, is called before each migration.
	OnApply func(Migration)
}

// Result says what Apply found and did. After an error it says how far it came.
type Result struct {
	Before, After int64    // versions; 0 is an empty database
	Applied       []string // file names
}

// Errors that a caller may want to tell apart. Their texts say what to do.
var (
	ErrDirty  = errors.New("the database is dirty")
	ErrNewer  = errors.New("the database is newer than this program")
	ErrLocked = errors.New("another migration is running")
)

var databaseName = regexp.MustCompile(`^projects/([^/]+)/instances/([^/]+)/databases/([^/]+)$`)

// Apply brings database (projects/P/instances/I/databases/D), which must exist, to the newest version. The
// context bounds all of it; a schema change that it cuts short goes on in Spanner, and the database is
// dirty until a person has looked.
func Apply(ctx context.Context, database string, opts Options) (Result, error) {
	var result Result
	files := opts.Files
	if files == nil {
		files = migrations.Files
	}
	all, err := Read(ctx, files)
	if err != nil {
		return result, err
	}
	c, err := connect(ctx, database, opts)
	if err != nil {
		return result, err
	}
	defer c.Close()

	if err := c.ensureTable(ctx); err != nil {
		return result, fmt.Errorf("make the table %s in %s: %w", Table, database, err)
	}
	// A look before the lock: a database that needs nothing needs no lock, and no permission to write.
	version, err := c.check(ctx, all)
	result.Before, result.After = version, version
	if err != nil || version == all[len(all)-1].Version {
		return result, err
	}

	lock, err := acquire(ctx, c)
	if err != nil {
		return result, err
	}
	version, err = c.check(ctx, all)
	result.Before, result.After = version, version
	for _, m := range all {
		if err != nil {
			break
		}
		if m.Version <= version {
			continue
		}
		if err = lock.held(); err != nil {
			break
		}
		if opts.OnApply != nil {
			opts.OnApply(m)
		}
		if err = c.applyOne(ctx, m); err == nil {
			result.After = m.Version
			result.Applied = append(result.Applied, m.File)
		}
	}
	return result, errors.Join(err, lock.release(ctx))
}

// TableDDL are the statements that make the tables Apply keeps its books in, for who makes a database in one
// call. Apply makes those that are missing.
func TableDDL() []string {
	return []string{
		"CREATE TABLE " + Table + " (Version INT64 NOT NULL, Dirty BOOL NOT NULL) PRIMARY KEY (Version)",
		lockDDL,
	}
}

// Version reads the version of database; 0 if no migration has been applied.
func Version(ctx context.Context, database string, opts Options) (version int64, dirty bool, err error) {
	c, err := connect(ctx, database, opts)
	if err != nil {
		return 0, false, err
	}
	defer c.Close()
	version, dirty, err = c.readVersion(ctx)
	if spanner.ErrCode(err) == codes.NotFound {
		return 0, false, nil
	}
	return version, dirty, err
}

// conn is wrench's client, which changes the schema and writes the version, and one of our own for what
// needs a typed error: wrench's carry no code.
type conn struct {
	*wrench.Client
	database string
	rows     *spanner.Client
}

func connect(ctx context.Context, database string, opts Options) (*conn, error) {
	parts := databaseName.FindStringSubmatch(database)
	if parts == nil {
		return nil, fmt.Errorf("the database %q is not of the form projects/PROJECT/instances/INSTANCE/databases/DATABASE", database)
	}
	rows, err := spanner.NewClientWithConfig(ctx, database, spanner.ClientConfig{DisableNativeMetrics: true}, opts.ClientOptions...)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", database, err)
	}
	client, err := wrench.NewClient(ctx, &wrench.Config{Project: parts[1], Instance: parts[2], Database: parts[3], ClientOptions: opts.ClientOptions})
	if err != nil {
		rows.Close()
		return nil, fmt.Errorf("connect to %s: %w", database, err)
	}
	return &conn{Client: client, database: database, rows: rows}, nil
}

func (c *conn) Close() {
	c.rows.Close()
	c.Client.Close() //nolint:errcheck // nothing is buffered
}

// check returns the version, and an error if nothing may be applied to it.
func (c *conn) check(ctx context.Context, all []Migration) (int64, error) {
	version, dirty, err := c.readVersion(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the version of %s: %w", c.database, err)
	}
	newest := all[len(all)-1].Version
	if version > newest {
		return version, fmt.Errorf("%w: %s is at version %d, the migrations end at %d; use the program of the version that migrated it", ErrNewer, c.database, version, newest)
	}
	if dirty {
		return version, dirtyError(c.database, version, nil)
	}
	return version, nil
}

func dirtyError(database string, version int64, cause error) error {
	why := ""
	if cause != nil {
		why = fmt.Sprintf(" (%v)", cause)
	}
	return fmt.Errorf("%w: migration %d of %s began and has not ended%s. If it is still running, wait: `gcloud spanner operations list` shows it. "+
		"Else compare the schema (`gcloud spanner databases ddl describe`) with the file %06d_*.sql, apply or take back by hand what is missing, and write down the outcome: "+
		"if all of it is there now, `UPDATE %s SET Dirty = false WHERE true`; "+
		"if nothing of it is there, `DELETE FROM %s WHERE true` and then `INSERT INTO %s (Version, Dirty) VALUES (%d, false)`. Then migrate again",
		ErrDirty, version, database, why, version, Table, Table, Table, version-1)
}

func (c *conn) applyOne(ctx context.Context, m Migration) error {
	if err := c.setVersion(ctx, m.Version, true); err != nil {
		return fmt.Errorf("migration %s: write down that it begins: %w", m.File, err)
	}
	var err error
	switch m.Kind {
	case DDL:
		err = c.ApplyDDL(ctx, m.Statements, nil)
	case DML:
		_, err = c.ApplyDML(ctx, m.Statements, wrench.PriorityTypeUnspecified)
	case PartitionedDML:
		_, err = c.ApplyPartitionedDML(ctx, m.Statements, wrench.PriorityTypeUnspecified)
	}
	if err != nil {
		return dirtyError(c.database, m.Version, err)
	}
	if err := c.setVersion(ctx, m.Version, false); err != nil {
		return dirtyError(c.database, m.Version, fmt.Errorf("it ended, which could not be written down: %w", err))
	}
	return nil
}

// setVersion reads back what it has written: the emulator has been seen to lose a commit of mutations alone
// and to report success.
func (c *conn) setVersion(ctx context.Context, version int64, dirty bool) error {
	if err := c.SetSchemaMigrationVersion(ctx, uint(version), dirty, Table); err != nil {
		return err
	}
	gotVersion, gotDirty, err := c.readVersion(ctx)
	if err != nil {
		return err
	}
	if gotVersion != version || gotDirty != dirty {
		return fmt.Errorf("wrote version %d, dirty %t, and read back version %d, dirty %t", version, dirty, gotVersion, gotDirty)
	}
	return nil
}

func (c *conn) readVersion(ctx context.Context) (version int64, dirty bool, err error) {
	err = c.rows.Single().Read(ctx, Table, spanner.AllKeys(), []string{"Version", "Dirty"}).Do(func(r *spanner.Row) error {
		return r.Columns(&version, &dirty)
	})
	return version, dirty, err
}

// ensureTable tries twice: two that find no table at the same moment both create it, and one fails.
func (c *conn) ensureTable(ctx context.Context) error {
	if err := c.EnsureMigrationTable(ctx, Table); err == nil {
		return nil
	}
	return c.EnsureMigrationTable(ctx, Table)
}
