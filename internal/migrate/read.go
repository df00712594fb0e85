package migrate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	wrench "github.com/cloudspannerecosystem/wrench/pkg/spanner"
)

// Kind is what the statements of a migration are. Spanner takes each kind in another call, with other
// promises, so that a file holds only one.
type Kind int

const (
	DDL            Kind = iota // one schema change; statements before a failing one stay
	DML                        // INSERT: one transaction
	PartitionedDML             // UPDATE and DELETE: must be idempotent, may be applied in part
)

// Migration is one file.
type Migration struct {
	Version    int64
	File       string
	Kind       Kind
	Statements []string // without comments
}

var fileName = regexp.MustCompile(`^([0-9]{6})_[a-z]+(_[a-z0-9]+)+\.sql$`)

// Read reads the migrations at the top of fsys, sorted by number, and refuses what Apply could not apply for
// sure: names other than NNNNNN_verb_noun.sql, numbers that do not count up from 1, empty files, and files
// with statements of several kinds. Files that do not end in .sql, and schema.sql, are not looked at.
func Read(ctx context.Context, fsys fs.FS) ([]Migration, error) {
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, fmt.Errorf("list the migrations: %w", err)
	}
	// wrench reads folders. What it gets is what we could read, each file under its own name.
	dir, err := os.MkdirTemp("", "migrations-")
	if err != nil {
		return nil, fmt.Errorf("copy the migrations: %w", err)
	}
	defer os.RemoveAll(dir)

	var found []Migration
	var errs []error
	for _, entry := range entries {
		name := entry.Name()
		if entry.IsDir() || !strings.HasSuffix(name, ".sql") || name == "schema.sql" {
			continue
		}
		match := fileName.FindStringSubmatch(name)
		if match == nil {
			errs = append(errs, fmt.Errorf("migration %s: the name is not of the form NNNNNN_verb_noun.sql, six digits and lower case", name))
			continue
		}
		version, err := strconv.ParseInt(match[1], 10, 64)
		if err != nil {
			errs = append(errs, fmt.Errorf("migration %s: %w", name, err))
			continue
		}
		body, err := fs.ReadFile(fsys, name)
		if err != nil {
			errs = append(errs, fmt.Errorf("read migration %s: %w", name, err))
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), body, 0o600); err != nil {
			errs = append(errs, fmt.Errorf("copy migration %s: %w", name, err))
			continue
		}
		found = append(found, Migration{Version: version, File: name})
	}
	slices.SortFunc(found, func(a, b Migration) int { return strings.Compare(a.File, b.File) })
	for i, m := range found {
		switch want := int64(i + 1); {
		case i > 0 && m.Version == found[i-1].Version:
			errs = append(errs, fmt.Errorf("migrations %s and %s have the same number", found[i-1].File, m.File))
		case m.Version != want && len(errs) == 0:
			errs = append(errs, fmt.Errorf("migration %s: number %06d is missing before it", m.File, want))
		}
	}
	if len(found) == 0 && len(errs) == 0 {
		errs = append(errs, errors.New("there are no migrations"))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}

	parsed, err := wrench.ReadMigrations(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("parse the migrations: %w", err)
	}
	byVersion := make(map[int64]*wrench.Migration, len(parsed))
	for _, p := range parsed {
		byVersion[int64(p.Version)] = p
	}
	for i := range found {
		p := byVersion[found[i].Version]
		if p == nil {
			return nil, fmt.Errorf("migration %s was skipped by its reader", found[i].File)
		}
		found[i].Statements = p.Statements
		if found[i].Kind, err = kindOf(p.Statements); err != nil {
			return nil, fmt.Errorf("migration %s: %w", found[i].File, err)
		}
	}
	return found, nil
}

func kindOf(statements []string) (Kind, error) {
	if len(statements) == 0 {
		return 0, errors.New("it has no statement")
	}
	kinds := make([]Kind, len(statements))
	for i, s := range statements {
		word, _, _ := strings.Cut(strings.TrimSpace(s), " ")
		switch word = strings.ToUpper(strings.TrimSpace(word)); {
		case strings.HasPrefix(word, "INSERT"):
			kinds[i] = DML
		case strings.HasPrefix(word, "UPDATE"), strings.HasPrefix(word, "DELETE"):
			kinds[i] = PartitionedDML
		case slices.ContainsFunc([]string{"CREATE", "ALTER", "DROP", "RENAME", "GRANT", "REVOKE", "ANALYZE"}, func(w string) bool { return strings.HasPrefix(word, w) }):
			kinds[i] = DDL
		default:
			return 0, fmt.Errorf("statement %d begins with %q: neither DDL nor INSERT, UPDATE or DELETE (hints are not supported here)", i+1, word)
		}
	}
	if len(slices.Compact(slices.Sorted(slices.Values(kinds)))) > 1 {
		return 0, errors.New("DDL, INSERT, and UPDATE or DELETE must not be in one file: Spanner takes them in different calls")
	}
	return kinds[0], nil
}
