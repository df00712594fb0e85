package config

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"

	"github.com/pubsub-inbox/pubsub-inbox/internal/routing/expr"
)

// mark is one of YAML's in front of a plain text: a tag (!), an anchor (&) or an alias (*). None is read here, and behind
// each may stand an expression that lacks its quotes. The parser loses what follows one, so each is taken out of the text
// before, and leaves a letter that stands for it.
type mark struct {
	line, column int
	sign         string
	read         bool // a fault tells of it
}

const (
	markBase = 0xF0000 // a plane for private use
	maxMarks = 50
)

// markOf returns the mark that a text begins with.
func markOf(text string) (int, bool) {
	r, _ := utf8.DecodeRuneInString(text)
	return int(r - markBase), r >= markBase && r < markBase+maxMarks
}

func (m mark) String() string {
	const all = "anchors, aliases and tags are not read here: "
	if m.sign == "!" {
		return all + "an expression that begins with ! needs quotes around all of it"
	}
	return fmt.Sprintf("%swrite the value out; a text that begins with %s needs quotes around all of it", all, m.sign)
}

// unmarked takes the marks out of a text.
func (r *reader) unmarked(text []byte) []byte {
	plain := string(text)
	for len(r.marks) < maxMarks {
		m, at, ok := nextMark(plain)
		if !ok {
			break
		}
		plain = plain[:at] + string(rune(markBase+len(r.marks))) + plain[at+1:]
		r.marks = append(r.marks, m)
	}
	return []byte(plain)
}

// nextMark finds the first mark, and its index.
func nextMark(text string) (m mark, at int, ok bool) {
	for _, tk := range lexer.Tokenize(text) {
		sign := ""
		switch value := strings.TrimSpace(tk.Value); {
		case tk.Type == token.TagType, tk.Type == token.InvalidType && strings.HasPrefix(value, "!"):
			sign = "!"
		case tk.Type == token.AnchorType:
			sign = "&"
		case tk.Type == token.AliasType:
			sign = "*"
		default:
			continue
		}
		lines := strings.SplitAfter(text, "\n")
		if tk.Position == nil || tk.Position.Line > len(lines) {
			return mark{}, 0, false
		}
		line := lines[tk.Position.Line-1]
		// Of an invalid one the column is that of what makes it so.
		before := []rune(line)
		column := min(tk.Position.Column, len(before))
		for column > 0 && string(before[column-1]) != sign {
			column--
		}
		if column == 0 {
			return mark{}, 0, false
		}
		for _, l := range lines[:tk.Position.Line-1] {
			at += len(l)
		}
		return mark{line: tk.Position.Line, column: column, sign: sign}, at + len(string(before[:column-1])), true
	}
	return mark{}, 0, false
}

// readMark reports the mark of a broken node.
func (r *reader) readMark(n *node, path string) {
	if n.kind != brokenNode {
		return
	}
	m := &r.marks[n.mark]
	m.read = true
	r.faultAt(m.line, m.column, path, m.String())
	r.broken = append(r.broken, path)
}

// unreadMarks reports the marks that no setting has led to.
func (r *reader) unreadMarks() {
	for _, m := range r.marks {
		if !m.read {
			r.faultAt(m.line, m.column, "", m.String())
		}
	}
}

// marked reports whether a mark stands in n.
func (n *node) marked() bool {
	for _, e := range n.entries {
		if e.value.marked() {
			return true
		}
	}
	for _, item := range n.items {
		if item.marked() {
			return true
		}
	}
	return n.kind == brokenNode
}

// swallowed reports a comment that reaches into the lines after its own: YAML makes one line of them, unless they are a
// block with |.
func (r *reader) swallowed(n *node, path string) bool {
	if n.style != foldedText {
		return false
	}
	for _, comment := range expr.Comments(n.text) {
		comment = squeeze(comment)
		within, line, column := false, n.line, n.column
		for i, source := range n.source {
			_, after, ok := strings.Cut(source, "//")
			source = unescaped.Replace(source)
			within = within || strings.Contains(squeeze(source), comment)
			if ok && strings.HasPrefix(comment, squeeze(unescaped.Replace(after))) {
				if at := r.lineOf(n, n.source[i]); at > 0 && line == n.line {
					line, column = at, utf8.RuneCountInString(r.lines[at-1][:strings.Index(r.lines[at-1], "//")])+1
				}
			}
		}
		if !within {
			r.faultAt(line, column, path, "the rest of this expression is a comment: YAML makes one line of these, and // reaches to its "+
				"end; write the expression as a block that begins with |, or take the comment out")
			return true
		}
	}
	return false
}

// lineOf returns the line of the file that holds a line of n's source; 0: none.
func (r *reader) lineOf(n *node, source string) int {
	source = strings.TrimSpace(source)
	for at := n.line; at <= min(n.line+len(n.source), len(r.lines)); at++ {
		if strings.Contains(r.lines[at-1], source) {
			return at
		}
	}
	return 0
}

// unescaped undoes what quotes inside of quotes need.
var unescaped = strings.NewReplacer(`\"`, `"`, `\\`, `\`, `''`, `'`)

func squeeze(text string) string { return strings.Join(strings.Fields(text), " ") }

// yamlFault explains what the parser says about a line.
func (r *reader) yamlFault(line int, message string) string {
	text := ""
	if line >= 1 && line <= len(r.lines) {
		text = r.lines[line-1]
	}
	indented := text[:len(text)-len(strings.TrimLeft(text, " \t"))]
	_, value, _ := strings.Cut(text, ": ")
	value = strings.TrimSpace(value)
	switch {
	case strings.Contains(indented, "\t"):
		return "this is not valid YAML: the line is indented with a tab; indent with blanks"
	case strings.Contains(message, `'\t'`), strings.Contains(message, "'\t'"):
		return "this is not valid YAML: a value begins with a tab; write a blank"
	case strings.Contains(value, ": "), strings.Contains(value, " #"), strings.HasPrefix(value, `"`), strings.HasPrefix(value, "'"):
		return "this is not valid YAML: " + message + "; a text that holds ': ', ' #' or begins with a quote needs quotes around all of it"
	}
	return "this is not valid YAML: " + message + "; look at the indentation of this line and of the one before, and at quotes and brackets " +
		"without an end"
}
