package emulators

import (
	"context"
	"fmt"
	"regexp"

	"cloud.google.com/go/spanner"
	database "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	instance "cloud.google.com/go/spanner/admin/instance/apiv1"
	"cloud.google.com/go/spanner/admin/instance/apiv1/instancepb"
	"google.golang.org/grpc/codes"

	"github.com/pubsub-inbox/pubsub-inbox/internal/migrate"
	"github.com/pubsub-inbox/pubsub-inbox/migrations"
)

var instanceID = regexp.MustCompile(`^[a-z][-a-z0-9]{0,62}[a-z0-9]$`)

// NewDatabase makes a database with all migrations applied in the Spanner emulator at host, its instance too
// if that is missing, and returns its full name. It fails if the database is there.
//
// It is the quick way to a new database, made in one call; package migrate is for one that exists. Both
// leave the same tables and the same version.
func NewDatabase(ctx context.Context, host, project, instance, name string) (string, error) {
	all, err := migrate.Read(ctx, migrations.Files)
	if err != nil {
		return "", err
	}
	// The migrations up to the first that is no schema change go into the call that makes the database.
	var ddl []string
	var version int64
	for _, m := range all {
		if m.Kind != migrate.DDL {
			break
		}
		ddl = append(ddl, m.Statements...)
		version = m.Version
	}
	full, err := NewDatabaseWith(ctx, host, project, instance, name, append(ddl, migrate.TableDDL()...)...)
	if err != nil {
		return "", err
	}
	client, err := spanner.NewClientWithConfig(ctx, full, ClientConfig(), ClientOptions(host)...)
	if err != nil {
		return "", fmt.Errorf("connect to %s: %w", full, err)
	}
	defer client.Close()
	_, err = client.Apply(ctx, []*spanner.Mutation{
		spanner.Insert(migrate.Table, []string{"Version", "Dirty"}, []any{version, false}),
	}, spanner.ApplyAtLeastOnce())
	if err != nil {
		return "", fmt.Errorf("write the version of %s: %w", full, err)
	}
	if version == all[len(all)-1].Version {
		return full, nil
	}
	if _, err := migrate.Apply(ctx, full, migrate.Options{ClientOptions: ClientOptions(host)}); err != nil {
		return "", err
	}
	return full, nil
}

// NewDatabaseWith is NewDatabase with other statements than the migrations, or none.
func NewDatabaseWith(ctx context.Context, host, project, instance, name string, ddl ...string) (string, error) {
	if !instanceID.MatchString(instance) {
		return "", fmt.Errorf("the instance id %q is not 2 to 64 lower-case letters, digits and hyphens", instance)
	}
	if err := newInstance(ctx, host, project, instance); err != nil {
		return "", err
	}
	admin, err := database.NewDatabaseAdminClient(ctx, ClientOptions(host)...)
	if err != nil {
		return "", fmt.Errorf("connect to the Spanner emulator at %s: %w", host, err)
	}
	defer admin.Close()
	parent := "projects/" + project + "/instances/" + instance
	op, err := admin.CreateDatabase(ctx, &databasepb.CreateDatabaseRequest{
		Parent:          parent,
		CreateStatement: "CREATE DATABASE `" + name + "`",
		ExtraStatements: ddl,
	})
	if err == nil {
		_, err = op.Wait(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("make the database %s in %s: %w", name, parent, err)
	}
	return parent + "/databases/" + name, nil
}

func newInstance(ctx context.Context, host, project, id string) error {
	admin, err := instance.NewInstanceAdminClient(ctx, ClientOptions(host)...)
	if err != nil {
		return fmt.Errorf("connect to the Spanner emulator at %s: %w", host, err)
	}
	defer admin.Close()
	op, err := admin.CreateInstance(ctx, &instancepb.CreateInstanceRequest{
		Parent:     "projects/" + project,
		InstanceId: id,
		Instance:   &instancepb.Instance{Config: "projects/" + project + "/instanceConfigs/emulator-config", DisplayName: id, NodeCount: 1},
	})
	if err == nil {
		_, err = op.Wait(ctx)
	}
	if err != nil && spanner.ErrCode(err) != codes.AlreadyExists {
		return fmt.Errorf("make the instance %s in %s: %w", id, project, err)
	}
	return nil
}

// DropDatabase removes a database from the Spanner emulator at host. Clients of it fail from then on.
func DropDatabase(ctx context.Context, host, name string) error {
	admin, err := database.NewDatabaseAdminClient(ctx, ClientOptions(host)...)
	if err != nil {
		return fmt.Errorf("connect to the Spanner emulator at %s: %w", host, err)
	}
	defer admin.Close()
	if err := admin.DropDatabase(ctx, &databasepb.DropDatabaseRequest{Database: name}); err != nil {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
}

// ClientConfig is the Spanner configuration that goes with ClientOptions: without it a client that does not
// know that it talks to an emulator sends its metrics to Google Cloud.
func ClientConfig() spanner.ClientConfig {
	return spanner.ClientConfig{DisableNativeMetrics: true}
}
