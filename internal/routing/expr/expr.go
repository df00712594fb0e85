package expr

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
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
	divisions []Place
	spellings []Place
}

// Place is a place inside an expression, both numbers from 1.
type Place struct{ Line, Column int }

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
		return nil, errors.Join(explained(text, issues.Errors())...)
	}
	tree := checked.NativeRep()
	names := namesOf(tree)
	var all []error
	all = append(all, names.unknownFields()...)
	if message := unfit(checked.OutputType(), use); message != "" {
		all = append(all, &SyntaxError{1, 1, message})
	}
	if len(all) > 0 {
		return nil, errors.Join(all...)
	}
	program, err := env.Program(checked,
		cel.CustomDecoratorV2(exact(plainValues(tree))),
		cel.CostLimit(costLimit),
		cel.OptimizeRegex(interpreter.MatchesRegexOptimization),
	)
	if err != nil {
		return nil, &SyntaxError{1, 1, err.Error()}
	}
	p := &Program{program: program, variables: names.variables(), reads: names.reads(), divisions: divisions(tree), spellings: spellings(names)}
	if steps, root := names.selection(tree.Expr()); root == "payload" {
		p.path = steps
	}
	return p, nil
}

// readsSpelling are the functions and operators that are given a number as it was written: those that compare, calculate and
// convert here, and those that hand it on.
var readsSpelling = []string{
	operators.Add, operators.Subtract, operators.Multiply, operators.Divide, operators.Modulo, operators.Negate,
	operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals,
	operators.In, operators.OldIn, operators.Conditional, operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot,
	operators.NotStrictlyFalse,
	overloads.TypeConvertString, overloads.TypeConvertInt, overloads.TypeConvertUint, overloads.TypeConvertDouble,
	overloads.TypeConvertDyn, overloads.TypeConvertType, "hash",
}

// plainValues are the nodes whose value must not show how a number was written, with what makes it so: the arguments of all
// other functions, what selects from a list or a map, and the keys of a map.
func plainValues(tree *ast.AST) map[int64]func(ref.Val) ref.Val {
	plain := map[int64]func(ref.Val) ref.Val{}
	add := func(e ast.Expr, change func(ref.Val) ref.Val) {
		if e.Kind() != ast.LiteralKind {
			plain[e.ID()] = change
		}
	}
	ast.PostOrderVisit(tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.CallKind:
			call := e.AsCall()
			switch {
			case call.FunctionName() == operators.Index:
				add(call.Args()[1], byValue)
			case !slices.Contains(readsSpelling, call.FunctionName()):
				change := byValue
				if call.FunctionName() == "format" {
					change = formatted
				}
				for _, arg := range call.Args() {
					add(arg, change)
				}
				if call.IsMemberFunction() {
					add(call.Target(), byValue)
				}
			}
		case ast.MapKind:
			for _, entry := range e.AsMap().Entries() {
				add(entry.AsMapEntry().Key(), byValue)
			}
		}
	}))
	return plain
}

// Constant reports whether the value is the same for every message.
func (p *Program) Constant() bool { return len(p.variables) == 0 }

// Refers reports whether the expression reads message, attributes, payload or claim.
func (p *Program) Refers(variable string) bool { return slices.Contains(p.variables, variable) }

// Reads returns what the expression selects from message, attributes and payload, each selection in one spelling, such as
// payload["order"]["id"].
func (p *Program) Reads() []string { return p.reads }

// Divisions returns where the expression divides what may be two whole numbers and may be not: only the message decides
// whether the quotient has a fraction.
func (p *Program) Divisions() []Place { return p.divisions }

// Spellings returns where the expression makes a text of what may be a number of the payload: it is as the publisher wrote
// it, and 7.0 gives another one than 7.
func (p *Program) Spellings() []Place { return p.spellings }

func spellings(n names) []Place {
	var places []Place
	ast.PostOrderVisit(n.tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != overloads.TypeConvertString {
			return
		}
		arg := e.AsCall().Args()[0]
		if _, root := n.selection(arg); n.tree.GetType(arg.ID()).Kind() == types.DynKind && root != "message" {
			at := n.tree.SourceInfo().GetStartLocation(e.ID())
			places = append(places, Place{at.Line(), at.Column() + 1})
		}
	}))
	return places
}

func divisions(tree *ast.AST) []Place {
	var places []Place
	ast.PostOrderVisit(tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operators.Divide {
			return
		}
		dynamic := false
		for _, arg := range e.AsCall().Args() {
			switch tree.GetType(arg.ID()).Kind() {
			case types.DoubleKind:
				return
			case types.DynKind:
				dynamic = true
			}
		}
		if dynamic {
			at := tree.SourceInfo().GetStartLocation(e.ID())
			places = append(places, Place{at.Line(), at.Column() + 1})
		}
	}))
	return places
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
