package expr

import (
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
)

// roots are the names that expressions see.
var roots = []string{"message", "attributes", "payload", "claim"}

// names tells the names that expressions see from those that a macro binds: in payload.lines.map(message, message.text)
// the second and the third message are lines.
type names struct {
	tree  *ast.AST
	bound map[int64]bool // the identifiers that are a macro's
}

func namesOf(tree *ast.AST) names {
	n := names{tree: tree, bound: map[int64]bool{}}
	n.bind(tree.Expr(), nil)
	return n
}

// bind walks an expression inside of macros that bind the names of scope.
func (n names) bind(e ast.Expr, scope []string) {
	switch e.Kind() {
	case ast.IdentKind:
		if slices.Contains(scope, e.AsIdent()) {
			n.bound[e.ID()] = true
		}
	case ast.SelectKind:
		n.bind(e.AsSelect().Operand(), scope)
	case ast.CallKind:
		if e.AsCall().IsMemberFunction() {
			n.bind(e.AsCall().Target(), scope)
		}
		for _, arg := range e.AsCall().Args() {
			n.bind(arg, scope)
		}
	case ast.ListKind:
		for _, element := range e.AsList().Elements() {
			n.bind(element, scope)
		}
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			n.bind(entry.AsMapEntry().Key(), scope)
			n.bind(entry.AsMapEntry().Value(), scope)
		}
	case ast.StructKind:
		for _, field := range e.AsStruct().Fields() {
			n.bind(field.AsStructField().Value(), scope)
		}
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		n.bind(c.IterRange(), scope)
		n.bind(c.AccuInit(), scope)
		result := append(slices.Clone(scope), c.AccuVar())
		step := append(slices.Clone(result), c.IterVar())
		if c.HasIterVar2() {
			step = append(step, c.IterVar2())
		}
		n.bind(c.LoopCondition(), step)
		n.bind(c.LoopStep(), step)
		n.bind(c.Result(), result)
	}
}

// name returns which of the names that expressions see an identifier is; empty: it is a macro's. A dot in front leads out
// of every macro.
func (n names) name(e ast.Expr) string {
	if n.bound[e.ID()] {
		return ""
	}
	return strings.TrimPrefix(e.AsIdent(), ".")
}

// unknownFields reports selections from message that can never succeed.
func (n names) unknownFields() []error {
	var faults []error
	ast.PostOrderVisit(n.tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		steps, root := n.selection(e)
		known, ok := map[string][]string{"message": messageFields, "claim": claimFields}[root]
		if !ok || len(steps) != 1 {
			return
		}
		if name, ok := steps[0].(string); ok && !slices.Contains(known, name) {
			at := n.tree.SourceInfo().GetStartLocation(e.ID())
			faults = append(faults, &SyntaxError{at.Line(), at.Column() + 1,
				fmt.Sprintf("%s has no %q; it has %s", root, name, strings.Join(known, ", "))})
		}
	}))
	return faults
}

// variables returns which of the names that expressions see are read.
func (n names) variables() []string {
	found := map[string]bool{}
	ast.PostOrderVisit(n.tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.IdentKind {
			found[n.name(e)] = true
		}
	}))
	var all []string
	for _, name := range roots {
		if found[name] {
			all = append(all, name)
		}
	}
	return all
}

// reads returns each selection from message, attributes and payload.
func (n names) reads() []string {
	var all []string
	inner := map[int64]bool{} // parts of a selection that is already in
	ast.PreOrderVisit(n.tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		steps, root := n.selection(e)
		if root == "message" || root == "attributes" || root == "payload" {
			if text := spell(root, steps); !inner[e.ID()] && !slices.Contains(all, text) {
				all = append(all, text)
			}
			switch e.Kind() {
			case ast.SelectKind:
				inner[e.AsSelect().Operand().ID()] = true
			case ast.CallKind:
				inner[e.AsCall().Args()[0].ID()] = true
			}
		}
	}))
	return all
}

func spell(root string, steps []any) string {
	var b strings.Builder
	b.WriteString(root)
	for _, step := range steps {
		if name, ok := step.(string); ok {
			fmt.Fprintf(&b, "[%q]", name)
		} else {
			fmt.Fprintf(&b, "[%d]", step)
		}
	}
	return b.String()
}

// selection reads root.a["b"][0] as its root and its steps. The root is empty if it is no name that expressions see.
func (n names) selection(e ast.Expr) (steps []any, root string) {
	steps = []any{}
	for {
		switch e.Kind() {
		case ast.IdentKind:
			slices.Reverse(steps)
			return steps, n.name(e)
		case ast.SelectKind:
			if e.AsSelect().IsTestOnly() {
				return nil, ""
			}
			steps = append(steps, e.AsSelect().FieldName())
			e = e.AsSelect().Operand()
		case ast.CallKind:
			call := e.AsCall()
			if call.FunctionName() != operators.Index || len(call.Args()) != 2 || call.Args()[1].Kind() != ast.LiteralKind {
				return nil, ""
			}
			switch step := call.Args()[1].AsLiteral().(type) {
			case types.String:
				steps = append(steps, string(step))
			case types.Int:
				steps = append(steps, int64(step))
			default:
				return nil, ""
			}
			e = call.Args()[0]
		default:
			return nil, ""
		}
	}
}
