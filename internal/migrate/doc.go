// Package migrate brings a database to the schema of package migrations, forward only.
//
// It promises: a migration is applied once, in the order of the numbers; the version is written down before
// a migration begins (dirty) and after it has ended; a second Apply changes nothing; files with gaps, equal
// numbers, other names or mixed kinds of statements are refused before anything is touched; a database that
// is dirty, or newer than the files, is refused with a sentence that says what to do.
//
// It does not promise that a failed migration leaves nothing behind: Spanner applies the statements of a
// schema change one after another and keeps those before the one that failed. The database then stays dirty
// until a person has looked.
//
// Apply may run twice at once, in any processes: a lock row (table SchemaMigrationLock) lets one go first,
// and the other is refused or, if it comes later, finds nothing to do. The lock is a lease that its holder
// renews. A holder that stalls for longer than the lease (two minutes) can meet a second one; that one finds
// the database dirty and is refused, unless the stall falls between two migrations. Two that create the
// lock table at the same moment are safe too: one of them finds it there.
//
// Parsing and execution are those of github.com/cloudspannerecosystem/wrench, whose tool can read the same
// files and the same table SchemaMigrations. Its ExecuteMigrations is not used, because it writes to standard
// output; and as its reader skips a file it cannot read, the files are compared with what it returned.
package migrate
