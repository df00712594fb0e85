package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// line is one row of the table.
type line struct {
	what, value, limit string
	over               bool // a counted limit is exceeded
	note               bool // a limit that is read, not enforced, is exceeded
}

type results struct {
	size  sizes
	lines []line
}

// count notes something counted. A limit below 0 is none.
func (r *results) count(what string, value, limit float64) {
	l := line{what: what, value: number(value)}
	if limit >= 0 {
		l.limit, l.over = "at most "+number(limit), value > limit+1e-9
	}
	r.lines = append(r.lines, l)
}

// equal notes something counted that must not depend on what is stored beside it.
func (r *results) equal(what string, value, beside float64) {
	r.lines = append(r.lines, line{what: what, value: number(value), limit: "equal, " + number(beside), over: value != beside})
}

// ratio notes a comparison. A limit is read, not enforced; 0 is none.
func (r *results) ratio(what string, value, limit float64) {
	l := line{what: what, value: strconv.FormatFloat(value, 'f', 1, 64) + "x"}
	if limit > 0 {
		l.limit, l.note = "aim: "+number(limit)+"x", value > limit
	}
	r.lines = append(r.lines, l)
}

// number drops zeros that say nothing.
func number(v float64) string {
	return strconv.FormatFloat(float64(int64(v*1000+0.5))/1000, 'f', -1, 64)
}

func (r *results) write(w io.Writer) error {
	wide := [3]int{}
	rows := [][3]string{{"What", "Value", "Limit"}}
	for _, l := range r.lines {
		limit := l.limit
		if l.over {
			limit += ": EXCEEDED"
		} else if l.note {
			limit += ": missed"
		}
		rows = append(rows, [3]string{l.what, l.value, limit})
	}
	for _, row := range rows {
		for i, cell := range row {
			wide[i] = max(wide[i], len(cell))
		}
	}
	var b strings.Builder
	for i, row := range rows {
		fmt.Fprintf(&b, "| %-*s | %*s | %-*s |\n", wide[0], row[0], wide[1], row[1], wide[2], row[2])
		if i == 0 {
			fmt.Fprintf(&b, "|%s|%s:|%s|\n", strings.Repeat("-", wide[0]+2), strings.Repeat("-", wide[1]+1), strings.Repeat("-", wide[2]+2))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

const preface = `# What it costs

Written by "make bench" (%s), on the emulator; do not edit.

Counts (round trips, commits, rows) are exact; a limit on one of them fails the run. A relay's vary a little with how its
batches fall. Ratios compare two things that ran in turns in one process on one machine, with the emulator beside them, so
that they say what the inbox adds to the least that could be done, and nothing about how long that takes on Google Cloud;
they move a little with each run. A bare call records nothing and goes to an engine in the same process, so that the relay's
time over it is that of the emulator's transactions. Tries that the emulator aborted are not counted.

`

func (r *results) save(name string) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, preface, goVersion())
	if err := r.write(&b); err != nil {
		return err
	}
	return os.WriteFile(name, b.Bytes(), 0o644)
}

// goVersion leaves out what a vendor adds.
func goVersion() string {
	version, _, _ := strings.Cut(runtime.Version(), " ")
	return version
}

func (r *results) exceeded() error {
	var all []error
	for _, l := range r.lines {
		if l.over {
			all = append(all, fmt.Errorf("%s: %s, limit: %s", l.what, l.value, l.limit))
		}
	}
	return errors.Join(all...)
}

func median[T time.Duration | float64](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
