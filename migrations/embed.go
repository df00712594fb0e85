// Package migrations holds the database schema as numbered SQL files, and schema.sql, what they add up to.
//
// Each NNNNNN_verb_noun.sql holds statements of one kind (DDL, INSERT, or UPDATE and DELETE), says at its top
// its purpose, cost and way back, and is never changed once released. schema.sql is written by
// `go test ./internal/migrate -run TestSchema -update` and read by people; nothing is applied from it.
//
// The package only carries the bytes; package migrate applies them. Files may be read by several goroutines
// at once.
package migrations

import "embed"

// Files are the migrations; schema.sql is not among them.
//
//go:embed [0-9]*.sql
var Files embed.FS
