package config

import (
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// reader collects what a file says and everything wrong with it.
type reader struct {
	file     string
	lines    []string
	faults   Faults
	warnings []Warning
	hints    []Warning
	places   places
	marks    []mark
	broken   []string // paths of what could not be read
}

func newReader(name string, text []byte) *reader {
	return &reader{file: name, lines: strings.Split(string(text), "\n"), places: places{}}
}

func (r *reader) folder() string { return filepath.Dir(r.file) }

func (r *reader) faultAt(line, column int, path, message string) {
	message = strings.Join(strings.Fields(message), " ") // the libraries' texts have several lines
	r.faults = append(r.faults, Fault{File: r.file, Line: line, Column: column, Path: path, Message: message})
}

// fault reports at the place of path, or of the nearest thing around it, and at most once for each path: later checks of a value
// that could not be read would only repeat the fault.
func (r *reader) fault(path, format string, args ...any) {
	if slices.ContainsFunc(r.faults, func(f Fault) bool { return f.Path == path }) {
		return
	}
	for _, b := range r.broken {
		if path == b || strings.HasPrefix(path, b+".") || strings.HasPrefix(path, b+"[") {
			return
		}
	}
	line, column := r.at(path)
	r.faultAt(line, column, path, fmt.Sprintf(format, args...))
}

func (r *reader) warn(path, format string, args ...any) {
	line, column := r.at(path)
	r.warnAt(line, column, path, fmt.Sprintf(format, args...))
}

func (r *reader) warnAt(line, column int, path, message string) {
	r.warnings = append(r.warnings, Warning{File: r.file, Line: line, Column: column, Path: path, Message: message})
}

func (r *reader) at(path string) (line, column int) {
	if line, column = r.places.at(path); line == 0 {
		return 1, 1
	}
	return line, column
}

// places are where the paths of a file are.
type places map[string]entry

// at returns the place of path, or of the nearest thing around it; 0: none is known.
func (p places) at(path string) (line, column int) {
	for {
		if e, ok := p[path]; ok {
			return e.line, e.column
		}
		cut := strings.LastIndexAny(path, ".[")
		if cut < 0 {
			return 0, 0
		}
		path = path[:cut]
	}
}

func (r *reader) has(path string) bool {
	_, ok := r.places[path]
	return ok
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

type field = func(n *node, path string)

// fields reads a map with known keys, and reports the others with the nearest known one.
func (r *reader) fields(n *node, path string, known map[string]field) {
	r.each(n, path, func(e entry, at string) {
		read, ok := known[e.key]
		if !ok {
			r.fault(at, "%s", unknownKey(e.key, known))
			return
		}
		if e.value.kind == nullNode {
			delete(r.places, at) // a key without a value is as good as none
			return
		}
		read(e.value, at)
	})
}

// each reads a map with free keys.
func (r *reader) each(n *node, path string, read func(e entry, at string)) {
	if n.kind != mapNode {
		r.fault(path, "this must be a map, not %s", n.kind)
		return
	}
	for _, e := range n.entries {
		at := join(path, e.key)
		r.places[at] = e
		r.readMark(e.value, at)
		read(e, at)
	}
}

func (r *reader) list(n *node, path string, read field) {
	if n.kind != listNode {
		r.fault(path, "this must be a list, not %s", n.kind)
		return
	}
	for i, item := range n.items {
		at := fmt.Sprintf("%s[%d]", path, i)
		r.places[at] = entry{line: item.line, column: item.column}
		r.readMark(item, at)
		read(item, at)
	}
}

func unknownKey(key string, known map[string]field) string {
	names := make([]string, 0, len(known))
	for name := range known {
		names = append(names, name)
	}
	slices.Sort(names)
	best, bestDistance := "", math.MaxInt
	for _, name := range names {
		d := distance(strings.ToLower(key), strings.ToLower(name))
		if strings.HasPrefix(name, key) {
			d = min(d, 1) // password for passwordEnv
		}
		if d < bestDistance {
			best, bestDistance = name, d
		}
	}
	if bestDistance <= max(2, len(key)/3) {
		return fmt.Sprintf("there is no setting %q here; did you mean %q?", key, best)
	}
	return fmt.Sprintf("there is no setting %q here; there are %s", key, strings.Join(names, ", "))
}

// distance is Levenshtein's.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return math.MaxInt
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := before
			if a[i] != b[j] {
				cost++
			}
			before = row[j+1]
			row[j+1] = min(cost, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}

func (r *reader) text(into *string) field {
	return func(n *node, path string) {
		if n.kind != scalarNode {
			r.fault(path, "this must be a text, not %s", n.kind)
			return
		}
		if strings.Contains(n.text, "${") && !strings.HasSuffix(path, ".url") {
			r.warnAt(n.line, n.column, path, "nothing is filled in here: ${...} stands as it is")
		}
		*into = n.text
	}
}

func (r *reader) boolean(into *bool) field {
	return func(n *node, path string) {
		b, ok := n.literal.(bool)
		if n.kind != scalarNode || !ok {
			r.fault(path, "this must be true or false")
			return
		}
		*into = b
	}
}

func (r *reader) integer(into *int) field {
	return func(n *node, path string) {
		number, ok := n.literal.(yamlNumber)
		i, err := strconv.Atoi(string(number))
		if n.kind != scalarNode || !ok || err != nil {
			r.fault(path, "this must be a whole number")
			return
		}
		*into = i
	}
}

// size reads a number of bytes, with or without a unit.
func (r *reader) size(into *int64) field {
	return func(n *node, path string) {
		bytes, ok := parseSize(n.text)
		if n.kind != scalarNode || !ok {
			r.fault(path, "this must be a size such as 1MiB, 512KiB or 1048576")
			return
		}
		*into = bytes
	}
}

var sizePattern = regexp.MustCompile(`^([0-9]{1,12})\s*(|B|KiB|MiB|GiB)$`)

func parseSize(text string) (int64, bool) {
	m := sizePattern.FindStringSubmatch(strings.TrimSpace(text))
	if m == nil {
		return 0, false
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	return n * map[string]int64{"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[m[2]], err == nil
}

func (r *reader) duration(into *time.Duration) field {
	return func(n *node, path string) {
		if n.kind != scalarNode {
			r.fault(path, "this must be a duration such as 90s, 10m, 24h or 75d, not %s", n.kind)
			return
		}
		d, err := parseDuration(n.text)
		if err != nil {
			r.fault(path, "%q is not a duration; write it as 500ms, 90s, 10m, 24h or 75d", n.text)
			return
		}
		*into = d
	}
}

var days = regexp.MustCompile(`^(-?)([0-9]{1,6})d`)

// parseDuration reads Go's durations, and days of 24 hours before them.
func parseDuration(s string) (time.Duration, error) {
	m := days.FindStringSubmatch(s)
	if m == nil {
		return time.ParseDuration(s)
	}
	count, _ := strconv.ParseInt(m[2], 10, 64)
	if count > int64(math.MaxInt64/day) {
		return 0, strconv.ErrRange
	}
	d := time.Duration(count) * day
	if rest := s[len(m[0]):]; rest != "" {
		more, err := time.ParseDuration(rest)
		if err != nil || more < 0 || d > math.MaxInt64-more {
			return 0, strconv.ErrRange
		}
		d += more
	}
	if m[1] == "-" {
		d = -d
	}
	return d, nil
}

// oneOf reads one of a few words.
func oneOf[T ~string](r *reader, into *T, words ...T) field {
	return func(n *node, path string) {
		if n.kind != scalarNode || !slices.Contains(words, T(n.text)) {
			list := make([]string, len(words))
			for i, word := range words {
				list[i] = string(word)
			}
			r.fault(path, "this must be one of %s", strings.Join(list, ", "))
			return
		}
		*into = T(n.text)
	}
}

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// checkName reports a name that is no name, or too long for its column.
func (r *reader) checkName(path, what, name string) {
	switch {
	case name == "":
		r.fault(path, "the %s needs a name", what)
	case len(name) > maxName:
		r.fault(path, "the %s's name has %d bytes; its column holds %d", what, len(name), maxName)
	case !namePattern.MatchString(name):
		r.fault(path, "%q is no name for the %s; use letters, digits, '.', '_' and '-', and begin with a letter or digit", name, what)
	}
}

// maxName is the width of the columns Consumer, Route and Engine.
const maxName = 128
