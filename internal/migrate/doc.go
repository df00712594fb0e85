// Package migrate brings a database to the schema of package migrations, forward only.
//
// It promises: a migration is applied once, in the order of the numbers; the version is written down before
// a migration begins (dirty) and after it has ended; a second Apply changes nothing; files with gaps, equal
// numbers, other names or mixed kinds of statements are refused before anything is touched; a database that
// is dirty, or newer than the files, is refused with a sentence that says what to do.
//
// A migration that Spanner refuses as a whole leaves the database clean, at the version before.
//
// It does not promise that a failed migration leaves nothing behind: Spanner applies the statements of a
// schema change one after another and keeps those before the one that failed, and a change whose answer is
// lost goes on. The database then stays dirty until a person has looked.
//
// Apply may run twice at once, in any processes: a lock row (table SchemaMigrationLock) lets one go first,
// and the other is refused or, if it comes later, finds nothing to do. The lock is a lease that its holder
// renews, by the database's time. A holder that stalls for longer than the lease (two minutes) can meet a
// second one; that one finds the database dirty and is refused, unless the stall falls between two
// migrations. Then the same migration can begin twice; Spanner refuses to make an object twice, so DDL is
// safe even there, and DML is not.
//
// Files are parsed, and rows written, by github.com/cloudspannerecosystem/wrench, whose tool can read the
// same files and the same table SchemaMigrations. Its ExecuteMigrations is not used: it writes to standard
// output, takes no lock, and its errors carry no code. As its reader skips a file it cannot read, the files
// are compared with what it returned.
package migrate
