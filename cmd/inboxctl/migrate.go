package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pubsub-inbox/pubsub-inbox/internal/migrate"
)

func (a *app) migrateCommand() *cobra.Command {
	return &cobra.Command{
		Use: "migrate", Short: "Bring the database to the schema of this version", Args: cobra.NoArgs,
		Long: `Bring the database, which must exist, to the schema of this version, forward only. A second run changes nothing, and
two at once are safe. A schema change can take hours where there are many rows. It goes on in Spanner when this program is
ended, and the next run waits for it and goes on behind it. A migration that fails leaves the database dirty, with a sentence
that says what to do.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			database, err := a.databaseName()
			if err != nil {
				return err
			}
			ctx, cancel := a.within(cmd, 0)
			defer cancel()
			result, err := migrate.Apply(ctx, database, migrate.Options{
				ClientOptions: a.options,
				OnApply:       func(m migrate.Migration) { fmt.Fprintf(a.stdout, "applying %s\n", m.File) },
			})
			if err != nil {
				if result.After != result.Before {
					fmt.Fprintf(a.stdout, "%s: version %d before, %d now\n", database, result.Before, result.After)
				}
				return fmt.Errorf("migrate: %w", err)
			}
			if result.After == result.Before {
				_, err = fmt.Fprintf(a.stdout, "%s: version %d, nothing to do\n", database, result.After)
				return err
			}
			_, err = fmt.Fprintf(a.stdout, "%s: version %d before, %d now\n", database, result.Before, result.After)
			return err
		},
	}
}
