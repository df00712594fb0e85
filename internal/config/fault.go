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

// Fault makes a fault at the place of a setting, or of the nearest thing around it; without a place if the configuration
// was built by hand.
func (c *Config) Fault(path, message string) Fault {
	line, column := c.places.at(path)
	return Fault{File: c.file, Line: line, Column: column, Path: path, Message: message}
}

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
