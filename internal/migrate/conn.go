package migrate

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/spanner"
	database "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	wrench "github.com/cloudspannerecosystem/wrench/pkg/spanner"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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
		if failed = c.changeSchema(ctx, "", ddl); failed == nil {
			return nil
		}
	}
	return failed
}

// changeSchema waits until all statements are applied, or one has failed. operation is the id that the change has in Spanner;
// empty: Spanner gives it one.
//
// A refusal that changed nothing is tried again twice. Spanner queues schema changes, and would refuse again
// at once; the emulator refuses one beside any other transaction.
func (c *conn) changeSchema(ctx context.Context, operation string, statements []string) error {
	before, err := c.schema(ctx)
	if err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		id := operation
		if operation != "" {
			if id, err = c.freeOperation(ctx, operation); err != nil {
				return err
			}
		}
		op, err := c.admin.UpdateDatabaseDdl(ctx, &databasepb.UpdateDatabaseDdlRequest{Database: c.database, OperationId: id, Statements: statements})
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

// operationOf is the id of a migration's schema change in Spanner: by it, whoever comes later finds a change that goes on, or
// has ended, after its caller has gone. It depends on the statements, so that a corrected file is another change.
func operationOf(m Migration) string {
	return fmt.Sprintf("inbox_migration_%06d_%.8x", m.Version, sha256.Sum256([]byte(strings.Join(m.Statements, ";"))))
}

// tries are the ids that an operation may have: one that failed keeps its id, and the next try takes the next.
func tries(operation string) []string {
	ids := []string{operation}
	for n := 2; n <= 20; n++ {
		ids = append(ids, fmt.Sprintf("%s_%d", operation, n))
	}
	return ids
}

// freeOperation returns the first id of an operation that Spanner does not know.
func (c *conn) freeOperation(ctx context.Context, operation string) (string, error) {
	for _, id := range tries(operation) {
		switch err := c.operation(id).Poll(ctx); {
		case status.Code(err) == codes.NotFound:
			return id, nil
		case ctx.Err() != nil:
			return "", fmt.Errorf("look for the operation %s: %w", id, err)
		}
	}
	return "", fmt.Errorf("the operation %s has failed too often; `gcloud spanner operations list` shows why", operation)
}

// attach waits for the latest try of an operation. known is false where Spanner knows none: it was never begun, or so long
// ago that Spanner has forgotten it.
func (c *conn) attach(ctx context.Context, operation string) (known bool, err error) {
	for _, id := range tries(operation) {
		ended := c.operation(id).Wait(ctx)
		if status.Code(ended) == codes.NotFound {
			return known, err
		}
		known, err = true, ended
		if ctx.Err() != nil {
			break
		}
	}
	return known, err
}

func (c *conn) operation(id string) *database.UpdateDatabaseDdlOperation {
	return c.admin.UpdateDatabaseDdlOperation(c.database + "/operations/" + id)
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
