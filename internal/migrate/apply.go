package migrate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"cloud.google.com/go/spanner"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"

	wrench "github.com/cloudspannerecosystem/wrench/pkg/spanner"

	"github.com/pubsub-inbox/pubsub-inbox/migrations"
)

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

// Apply brings database (projects/P/instances/I/databases/D), which must exist, to the newest version. The
// context bounds all of it; a schema change that it cuts short goes on in Spanner, and the next Apply waits for
// that one and goes on behind it.
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

	if err := c.ensureTables(ctx); err != nil {
		return result, fmt.Errorf("make the tables for the migrations of %s: %w", database, err)
	}
	// A look before the lock: a database that needs nothing needs no lock.
	version, err := c.check(ctx, all)
	if errors.Is(err, ErrDirty) {
		// Perhaps only because another one is at work right now.
		if lockErr := holder(ctx, c); lockErr != nil {
			return Result{Before: version, After: version}, lockErr
		}
		version, err = c.check(ctx, all)
	}
	result.Before, result.After = version, version
	if (err != nil && !errors.Is(err, ErrDirty)) || (err == nil && version == all[len(all)-1].Version) {
		return result, err
	}

	lock, err := acquire(ctx, c)
	if err != nil {
		return result, err
	}
	version, err = c.check(ctx, all)
	result.Before, result.After = version, version
	if errors.Is(err, ErrDirty) {
		m := all[version-1]
		if err = c.resume(ctx, m, opts.OnApply, err); err == nil {
			result.Before, result.Applied = version-1, []string{m.File}
		}
	}
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
		if err = c.apply(ctx, m); err == nil {
			result.After = m.Version
			result.Applied = append(result.Applied, m.File)
		}
	}
	return result, errors.Join(err, lock.release(ctx))
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
		if found, missErr := c.missingTables(ctx); missErr == nil && len(found) > 0 {
			return 0, false, nil
		}
	}
	if err != nil {
		return 0, false, fmt.Errorf("read the version of %s: %w", database, err)
	}
	return version, dirty, nil
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
	return fmt.Errorf("%w: migration %d of %s began and has not ended%s. If it is a schema change that still runs, migrate again, which waits for it: `gcloud spanner operations list` shows it. "+
		"Else compare the schema (`gcloud spanner databases ddl describe`) with the file %06d_*.sql, apply or take back by hand what is missing, and write down the outcome: "+
		"if all of it is there now, `UPDATE %s SET Dirty = false WHERE true`; "+
		"if nothing of it is there, `DELETE FROM %s WHERE true` and then `INSERT INTO %s (Version, Dirty) VALUES (%d, false)`. Then migrate again",
		ErrDirty, version, database, why, version, Table, Table, Table, version-1)
}

// resume ends a migration that has begun, where that is a schema change which Spanner knows: it waits for it, or finds that it
// has ended well. Anything else is dirty: the error given.
func (c *conn) resume(ctx context.Context, m Migration, announce func(Migration), dirty error) error {
	if m.Kind != DDL {
		return dirty
	}
	if announce != nil {
		announce(m)
	}
	known, err := c.attach(ctx, operationOf(m))
	switch {
	case err != nil:
		return dirtyError(c.database, m.Version, err)
	case !known:
		return dirty
	}
	if err := c.setVersion(ctx, m.Version, false); err != nil {
		return dirtyError(c.database, m.Version, fmt.Errorf("it ended, which could not be written down: %w", err))
	}
	return nil
}

// apply applies one migration. It leaves the database clean if it ended well or did nothing at all.
func (c *conn) apply(ctx context.Context, m Migration) error {
	before, err := c.schema(ctx)
	if err != nil {
		return fmt.Errorf("migration %s: %w", m.File, err)
	}
	if err := c.setVersion(ctx, m.Version, true); err != nil {
		return fmt.Errorf("migration %s: write down that it begins: %w", m.File, err)
	}
	switch m.Kind {
	case DDL:
		err = c.changeSchema(ctx, operationOf(m), m.Statements)
	case DML:
		_, err = c.wrench.ApplyDML(ctx, m.Statements, wrench.PriorityTypeUnspecified)
	case PartitionedDML:
		_, err = c.wrench.ApplyPartitionedDML(ctx, m.Statements, wrench.PriorityTypeUnspecified)
	}
	if err == nil {
		if err := c.setVersion(ctx, m.Version, false); err != nil {
			return dirtyError(c.database, m.Version, fmt.Errorf("it ended, which could not be written down: %w", err))
		}
		return nil
	}
	if m.Kind == DDL && refused(err) && c.unchanged(ctx, before) {
		if undo := c.setVersion(ctx, m.Version-1, false); undo == nil {
			return fmt.Errorf("migration %s was refused, and nothing of it was applied: %w", m.File, err)
		}
	}
	return dirtyError(c.database, m.Version, err)
}
