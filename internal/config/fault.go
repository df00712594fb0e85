package config

import (
	"fmt"
	"strings"
)

// Fault is one thing wrong with a configuration, and what to do about it.
type Fault struct {
	File    string
	Line    int // from 1; 0: the file as a whole
	Column  int
	Path    string // such as routes[0].key
	Message string
}

// String returns "file:line:column: path: message".
func (f Fault) String() string { return position(f.File, f.Line, f.Column, f.Path, f.Message) }

// Warning is something that works, and probably not as meant.
type Warning Fault

// String returns "file:line:column: path: message".
func (w Warning) String() string { return Fault(w).String() }

// Faults is every fault of a configuration, in the order of the file.
type Faults []Fault

// Error lists the faults, one a line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.String()
	}
	return strings.Join(lines, "\n")
}

func position(file string, line, column int, path, message string) string {
	var b strings.Builder
	if file != "" {
		b.WriteString(file + ":")
	}
	if line > 0 {
		fmt.Fprintf(&b, "%d:%d:", line, column)
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	if path != "" {
		b.WriteString(path + ": ")
	}
	b.WriteString(message)
	return b.String()
}
