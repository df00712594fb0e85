package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// node is a YAML value with its place. Only what a configuration needs: no anchors, aliases, tags or merges, because a
// fault's place must be the place of its text.
type node struct {
	kind    nodeKind
	text    string // of a scalar
	literal any    // of a scalar: string, bool, nil, or json-like number text (yamlNumber)
	line    int
	column  int
	style   textStyle
	source  []string // the lines of a foldedText, as they stand in the file
	mark    int      // of a brokenNode
	entries []entry
	items   []*node
}

type entry struct {
	key          string
	line, column int
	value        *node
}

type nodeKind int

const (
	nullNode nodeKind = iota
	scalarNode
	listNode
	mapNode
	brokenNode // a mark of YAML's stands in front of a text
)

func (k nodeKind) String() string {
	return [...]string{"nothing", "a value", "a list", "a map", "this"}[k]
}

// textStyle says how a place inside a text is a place in the file.
type textStyle int

const (
	plainText  textStyle = iota // one line; columns add up
	quotedText                  // one line, after its quote
	blockText                   // lines of its own
	foldedText                  // several lines made one: only its beginning is known
)

type yamlNumber string

// readYAML parses a text into a tree. It keeps on after a fault where it can.
func (r *reader) readYAML(text []byte) (root *node) {
	// The parser is not ours, and a configuration that breaks it is a fault like any other.
	defer func() {
		if p := recover(); p != nil {
			root = nil
			r.faultAt(1, 1, "", fmt.Sprintf("the YAML parser gave up on this file (%v)", p))
		}
	}()
	file, err := parser.ParseBytes(r.unmarked(text), 0, parser.AllowDuplicateMapKey())
	if err != nil && len(r.marks) > 0 {
		return nil // the text behind a mark is no YAML either, as a rule; what there is to say is said of the marks
	}
	if err != nil {
		line, column, message := 1, 1, err.Error()
		var syntax yaml.Error
		if errors.As(err, &syntax) {
			message = syntax.GetMessage()
			if tk := syntax.GetToken(); tk != nil && tk.Position != nil {
				line, column = tk.Position.Line, tk.Position.Column
			}
		}
		r.faultAt(line, column, "", r.yamlFault(line, message))
		return nil
	}
	var documents []ast.Node
	for _, document := range file.Docs {
		if document.Body != nil && document.Body.Type() != ast.CommentType {
			documents = append(documents, document.Body)
		}
	}
	switch len(documents) {
	case 0:
		r.faultAt(1, 1, "", "the configuration is empty")
		return nil
	case 1:
		return r.convert(documents[0], 0)
	}
	tk := documents[1].GetToken()
	r.faultAt(tk.Position.Line, tk.Position.Column, "", "a configuration is one YAML document; remove the second one")
	return nil
}

// maxYAMLDepth is far beyond what a configuration or an inline schema nests.
const maxYAMLDepth = 100

func (r *reader) convert(from ast.Node, depth int) *node {
	if from == nil {
		return &node{kind: nullNode}
	}
	n := &node{}
	tk := from.GetToken()
	if tk != nil && tk.Position != nil {
		n.line, n.column = tk.Position.Line, tk.Position.Column
	}
	if depth > maxYAMLDepth {
		r.faultAt(n.line, n.column, "", "this nests too deeply")
		return n
	}
	switch from := from.(type) {
	case *ast.NullNode:
		return n
	case *ast.StringNode:
		if i, ok := markOf(from.Value); ok && i < len(r.marks) {
			n.kind, n.mark = brokenNode, i
			return n
		}
		n.scalar(from.Value, from.Value)
		n.style, n.source = r.style(tk), strings.Split(tk.Origin, "\n")
	case *ast.LiteralNode:
		n.scalar(from.Value.Value, from.Value.Value)
		n.style, n.source = foldedText, strings.Split(from.Value.GetToken().Origin, "\n")
		if strings.HasPrefix(from.Start.Value, "|") {
			n.style = blockText
		}
	case *ast.BoolNode:
		n.scalar(tk.Value, from.Value)
	case *ast.IntegerNode:
		n.scalar(tk.Value, yamlNumber(fmt.Sprint(from.Value)))
	case *ast.FloatNode:
		n.scalar(tk.Value, yamlNumber(tk.Value))
	case *ast.InfinityNode, *ast.NanNode:
		n.scalar(tk.Value, tk.Value)
	case *ast.SequenceNode:
		n.kind = listNode
		for _, value := range from.Values {
			n.items = append(n.items, r.convert(value, depth+1))
		}
	case *ast.MappingNode:
		n.kind = mapNode
		for _, value := range from.Values {
			r.addEntry(n, value, depth)
		}
	case *ast.MappingValueNode:
		n.kind = mapNode
		r.addEntry(n, from, depth)
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		r.faultAt(n.line, n.column, "", "anchors, aliases and tags are not read here; write the value out")
	default:
		r.faultAt(n.line, n.column, "", fmt.Sprintf("%s is not read here", from.Type()))
	}
	return n
}

func (n *node) scalar(text string, literal any) {
	n.kind, n.text, n.literal = scalarNode, text, literal
}

func (r *reader) addEntry(n *node, value *ast.MappingValueNode, depth int) {
	tk := value.Key.GetToken()
	e := entry{line: n.line, column: n.column, value: r.convert(value.Value, depth+1)}
	if tk != nil && tk.Position != nil {
		e.line, e.column = tk.Position.Line, tk.Position.Column
		e.key = tk.Value
	}
	_, simple := value.Key.(ast.ScalarNode)
	if _, merge := value.Key.(*ast.MergeKeyNode); merge || !simple {
		r.faultAt(e.line, e.column, "", "merges and computed keys are not read here; write the keys out")
		return
	}
	if e.value.line == 0 {
		e.value.line, e.value.column = e.line, e.column
	}
	if len(n.entries) == 0 {
		n.line, n.column = e.line, e.column // the token of a map is its first colon
	}
	if _, ok := markOf(e.key); ok && len(r.marks) > 0 {
		return // which is said where the mark is
	}
	for _, other := range n.entries {
		if other.key == e.key {
			r.faultAt(e.line, e.column, "", fmt.Sprintf("%q is here twice, first in line %d; remove one", e.key, other.line))
			return
		}
	}
	n.entries = append(n.entries, e)
}

func (r *reader) style(tk *token.Token) textStyle {
	if tk == nil {
		return foldedText
	}
	if strings.Contains(strings.TrimSpace(tk.Origin), "\n") {
		return foldedText
	}
	switch tk.Type {
	case token.DoubleQuoteType, token.SingleQuoteType:
		return quotedText
	}
	return plainText
}

// place translates a place inside n's text, both from 1, to the file.
func (r *reader) place(n *node, line, column int) (int, int) {
	switch n.style {
	case plainText, quotedText:
		if line == 1 {
			if n.style == quotedText {
				column++
			}
			return n.line, n.column + column - 1
		}
	case blockText:
		// The text begins in the line after the bar, and each of its lines after the block's indentation.
		at := n.line + line
		if at-1 < len(r.lines) {
			source := r.lines[at-1]
			if texts := strings.Split(n.text, "\n"); line <= len(texts) {
				if indent := strings.Index(source, texts[line-1]); indent >= 0 {
					return at, indent + column
				}
			}
		}
	}
	return n.line, n.column
}
