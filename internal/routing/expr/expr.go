package expr

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/ext"
	"cel.dev/cel-go/interpreter"
)

// Use is what an expression is for: it decides which result types make sense.
type Use string

// The uses.
const (
	ForMatch    Use = "match"    // a bool
	ForText     Use = "text"     // anything with a text
	ForKey      Use = "key"      // a string, a bool or an exact number
	ForSequence Use = "sequence" // an integer
	ForVariable Use = "variable" // anything with a JSON form
)

const (
	// costLimit is in CEL's units, about one for each node evaluated: generous for a list of thousands of items, and an end
	// for nested loops over a hostile one.
	costLimit = 2_000_000
	// maxText bounds an expression; a longer one belongs into the publisher or the process.
	maxText = 8192
)

var adapter = types.DefaultTypeAdapter

var environment = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(
		cel.Variable("message", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("attributes", cel.MapType(cel.StringType, cel.StringType)),
		cel.Variable("payload", cel.DynType),
		cel.Variable("claim", cel.MapType(cel.StringType, cel.DynType)),
		cel.Function("hash", cel.Overload("hash_list", []*cel.Type{cel.ListType(cel.DynType)}, cel.StringType,
			cel.UnaryBinding(hashList))),
		cel.CrossTypeNumericComparisons(true),
		cel.DefaultUTCTimeZone(true),
		cel.ParserExpressionSizeLimit(maxText),
		cel.ParserRecursionLimit(64),
		ext.Strings(),
	)
})

// SyntaxError is one reason why an expression does not compile. Line counts from 1 inside the expression, Column from 1.
type SyntaxError struct {
	Line, Column int
	Message      string
}

// Error returns the message.
func (e *SyntaxError) Error() string { return e.Message }

// Program is a compiled expression. It is safe for concurrent use.
type Program struct {
	program   cel.Program
	path      []any // of a plain selection from payload: string and int64 steps; nil: it is none
	reads     []string
	variables []string
}

// Compile compiles an expression for a use. The error joins one *SyntaxError for each fault.
func Compile(text string, use Use) (*Program, error) {
	env, err := environment()
	if err != nil {
		return nil, fmt.Errorf("the expression environment: %w", err)
	}
	if len(text) > maxText {
		return nil, &SyntaxError{1, 1, fmt.Sprintf("the expression is longer than %d bytes", maxText)}
	}
	checked, issues := env.Compile(text)
	if issues.Err() != nil {
		var all []error
		for _, e := range issues.Errors() {
			all = append(all, &SyntaxError{e.Location.Line(), e.Location.Column() + 1, hint(e.Message)})
		}
		return nil, errors.Join(all...)
	}
	tree := checked.NativeRep()
	var all []error
	all = append(all, unknownFields(tree)...)
	if message := unfit(checked.OutputType(), use); message != "" {
		all = append(all, &SyntaxError{1, 1, message})
	}
	if len(all) > 0 {
		return nil, errors.Join(all...)
	}
	program, err := env.Program(checked,
		cel.CustomDecoratorV2(exact),
		cel.CostLimit(costLimit),
		cel.OptimizeRegex(interpreter.MatchesRegexOptimization),
	)
	if err != nil {
		return nil, &SyntaxError{1, 1, err.Error()}
	}
	p := &Program{program: program, variables: variables(tree)}
	if steps, root := selection(tree.Expr()); root == "payload" {
		p.path = steps
	}
	p.reads = reads(tree)
	return p, nil
}

// Constant reports whether the value is the same for every message.
func (p *Program) Constant() bool { return len(p.variables) == 0 }

// Refers reports whether the expression reads message, attributes, payload or claim.
func (p *Program) Refers(variable string) bool { return slices.Contains(p.variables, variable) }

// Reads returns what the expression selects from message, attributes and payload, each selection in one spelling, such as
// payload["order"]["id"].
func (p *Program) Reads() []string { return p.reads }

func hint(message string) string {
	message = strings.TrimSpace(message)
	if strings.HasPrefix(message, "undeclared reference to") {
		message += "; expressions see message, attributes, payload and hash(), those of message and variables also claim, and a constant text needs quotes of its own, " +
			`as in '"Order"'`
	}
	return message
}

func unfit(t *cel.Type, use Use) string {
	kinds := map[Use][]types.Kind{
		ForMatch:    {types.DynKind, types.BoolKind},
		ForText:     {types.DynKind, types.StringKind, types.IntKind, types.UintKind, types.DoubleKind, types.BoolKind, types.TimestampKind, types.DurationKind},
		ForKey:      {types.DynKind, types.StringKind, types.IntKind, types.UintKind, types.BoolKind, types.NullTypeKind},
		ForSequence: {types.DynKind, types.IntKind, types.UintKind},
	}
	want, restricted := kinds[use]
	if !restricted || slices.Contains(want, t.Kind()) {
		if use == ForVariable && t.Kind() == types.TypeKind {
			return "a type is no value; a variable needs one with a JSON form"
		}
		return ""
	}
	switch use {
	case ForMatch:
		return fmt.Sprintf("the result is %s; a match needs a bool, such as attributes.eventType == \"...\"", t)
	case ForSequence:
		return fmt.Sprintf("the result is %s; a sequence needs an integer, such as int(attributes.revision)", t)
	case ForKey:
		return fmt.Sprintf("the result is %s; a key needs a string, an integer or a bool; use hash([...]) for several values", t)
	}
	return fmt.Sprintf("the result is %s, which has no text", t)
}

// unknownFields reports selections from message that can never succeed.
func unknownFields(tree *ast.AST) []error {
	var faults []error
	ast.PostOrderVisit(tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		steps, root := selection(e)
		known, ok := map[string][]string{"message": messageFields, "claim": claimFields}[root]
		if !ok || len(steps) != 1 {
			return
		}
		if name, ok := steps[0].(string); ok && !slices.Contains(known, name) {
			at := tree.SourceInfo().GetStartLocation(e.ID())
			faults = append(faults, &SyntaxError{at.Line(), at.Column() + 1,
				fmt.Sprintf("%s has no %q; it has %s", root, name, strings.Join(known, ", "))})
		}
	}))
	return faults
}

func variables(tree *ast.AST) []string {
	var names []string
	for _, name := range []string{"message", "attributes", "payload", "claim"} {
		for _, reference := range tree.ReferenceMap() {
			if reference.Name == name {
				names = append(names, name)
				break
			}
		}
	}
	return names
}

func reads(tree *ast.AST) []string {
	var all []string
	inner := map[int64]bool{} // parts of a selection that is already in
	ast.PreOrderVisit(tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		steps, root := selection(e)
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

// selection reads root.a["b"][0] as its root and its steps.
func selection(e ast.Expr) (steps []any, root string) {
	steps = []any{}
	for {
		switch e.Kind() {
		case ast.IdentKind:
			slices.Reverse(steps)
			return steps, e.AsIdent()
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

// raw follows the plain selection in the payload's text; nil if it leads nowhere.
func (p *Program) raw(in *Input) []byte {
	if p.path == nil || !in.JSON() {
		return nil
	}
	raw := in.raw
	for _, step := range p.path {
		switch step := step.(type) {
		case string:
			if raw[0] != '{' {
				return nil
			}
			raw = (&object{raw: raw}).member(step)
		case int64:
			if raw[0] != '[' {
				return nil
			}
			raw = (&list{raw: raw}).at(step)
		}
		if raw == nil {
			return nil
		}
	}
	return raw
}
