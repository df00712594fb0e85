package migrate

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"cloud.google.com/go/spanner"
	database "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	wrench "github.com/cloudspannerecosystem/wrench/pkg/spanner"
	"google.golang.org/grpc/codes"
)

// Table holds one row: the version of the database, and whether a migration to it has not ended. It is the
// table of wrench's tool.
const Table = "SchemaMigrations"

const tableDDL = "CREATE TABLE " + Table + " (Version INT64 NOT NULL, Dirty BOOL NOT NULL) PRIMARY KEY (Version)"

// TableDDL are the statements that make the tables Apply keeps its books in, for who makes a database in one
// call. Apply makes those that are missing.
func TableDDL() []string { return []string{tableDDL, lockDDL} }

var databaseName = regexp.MustCompile(`^projects/([^/]+)/instances/([^/]+)/databases/([^/]+)$`)

// conn is wrench's client and, where the code of an error matters, clients of our own: wrench's errors are
// texts.
type conn struct {
	database string
	wrench   *wrench.Client
	rows     *spanner.Client
	admin    *database.DatabaseAdminClient
}

func connect(ctx context.Context, name string, opts Options) (*conn, error) {
	parts := databaseName.FindStringSubmatch(name)
	if parts == nil {
		return nil, fmt.Errorf("the database %q is not of the form projects/PROJECT/instances/INSTANCE/databases/DATABASE", name)
	}
	c := &conn{database: name}
	var err error
	if c.rows, err = spanner.NewClientWithConfig(ctx, name, spanner.ClientConfig{DisableNativeMetrics: true}, opts.ClientOptions...); err == nil {
		c.admin, err = database.NewDatabaseAdminClient(ctx, opts.ClientOptions...)
	}
	if err == nil {
		c.wrench, err = wrench.NewClient(ctx, &wrench.Config{Project: parts[1], Instance: parts[2], Database: parts[3], ClientOptions: opts.ClientOptions})
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("connect to %s: %w", name, err)
	}
	return c, nil
}

// Close drops the connections. Nothing is buffered in them, so its errors tell nobody anything.
func (c *conn) Close() {
	if c.rows != nil {
		c.rows.Close()
	}
	if c.admin != nil {
		_ = c.admin.Close()
	}
	if c.wrench != nil {
		_ = c.wrench.Close()
	}
}

// missingTables returns the statements for those of our tables that are not there.
func (c *conn) missingTables(ctx context.Context) ([]string, error) {
	missing := map[string]string{Table: tableDDL, LockTable: lockDDL}
	err := c.rows.Single().Query(ctx, spanner.Statement{
		SQL:    "SELECT TABLE_NAME FROM INFORMATION_SCHEMA.TABLES WHERE TABLE_SCHEMA = '' AND TABLE_NAME IN UNNEST(@names)",
		Params: map[string]any{"names": []string{Table, LockTable}},
	}).Do(func(r *spanner.Row) error {
		var name string
		err := r.Columns(&name)
		delete(missing, name)
		return err
	})
	var ddl []string
	for _, statement := range missing {
		ddl = append(ddl, statement)
	}
	return ddl, err
}

// ensureTables looks again after a failure: another one may have been quicker.
func (c *conn) ensureTables(ctx context.Context) error {
	var failed error
	for range 3 {
		ddl, err := c.missingTables(ctx)
		if err != nil || len(ddl) == 0 {
			return err
		}
		if failed = c.changeSchema(ctx, ddl); failed == nil {
			return nil
		}
	}
	return failed
}

// changeSchema waits until all statements are applied, or one has failed.
//
// A refusal that changed nothing is tried again twice. Spanner queues schema changes, and would refuse again
// at once; the emulator refuses one beside any other transaction.
func (c *conn) changeSchema(ctx context.Context, statements []string) error {
	before, err := c.schema(ctx)
	if err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		op, err := c.admin.UpdateDatabaseDdl(ctx, &databasepb.UpdateDatabaseDdlRequest{Database: c.database, Statements: statements})
		if err == nil {
			err = op.Wait(ctx)
		}
		if err == nil || attempt == 3 || spanner.ErrCode(err) != codes.FailedPrecondition || !c.unchanged(ctx, before) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		case <-time.After(time.Duration(attempt) * 100 * time.Millisecond):
		}
	}
}

// refused says whether Spanner itself has ended a schema change for good. After any other error, one of the
// connection above all, it may go on.
func refused(err error) bool {
	code := spanner.ErrCode(err)
	return code == codes.InvalidArgument || code == codes.FailedPrecondition || code == codes.PermissionDenied || code == codes.NotFound || code == codes.AlreadyExists
}

func (c *conn) schema(ctx context.Context) ([]string, error) {
	response, err := c.admin.GetDatabaseDdl(ctx, &databasepb.GetDatabaseDdlRequest{Database: c.database})
	if err != nil {
		return nil, fmt.Errorf("read the schema of %s: %w", c.database, err)
	}
	return response.Statements, nil
}

func (c *conn) unchanged(ctx context.Context, before []string) bool {
	now, err := c.schema(ctx)
	return err == nil && slices.Equal(before, now)
}

// setVersion reads back what it has written: the emulator has been seen to lose a commit of mutations alone
// and to report success.
func (c *conn) setVersion(ctx context.Context, version int64, dirty bool) error {
	if err := c.wrench.SetSchemaMigrationVersion(ctx, uint(version), dirty, Table); err != nil {
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
