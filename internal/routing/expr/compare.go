package expr

import (
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// exact replaces CEL's comparing and calculating nodes. CEL asks the left operand, and its own types know nothing of
// number: 1.5 == payload.x would be false for an x of 1.5. Mixed numbers compare and calculate exactly here, on either
// side. What is in plain is handed on by its value, so that no function can tell 7.0 from 7.
func exact(plain map[int64]func(ref.Val) ref.Val) interpreter.InterpretableDecoratorV2 {
	return func(node interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		if call, ok := node.(interpreter.InterpretableCall); ok {
			node = exactCall(call)
		}
		if change := plain[node.ID()]; change != nil {
			return interpreter.NewCall(node.ID(), "@value", "", []interpreter.InterpretableV2{node},
				func(args ...ref.Val) ref.Val { return change(args[0]) }), nil
		}
		return node, nil
	}
}

func exactCall(call interpreter.InterpretableCall) interpreter.InterpretableV2 {
	replace := func(do func(args ...ref.Val) ref.Val) interpreter.InterpretableV2 {
		return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), do)
	}
	switch len(call.Args()) {
	case 1:
		if call.Function() == operators.Negate {
			return replace(func(args ...ref.Val) ref.Val { return negate(args[0]) })
		}
		if to := conversions[call.Function()]; to != nil {
			return replace(func(args ...ref.Val) ref.Val { return convert(args[0], to) })
		}
		return call
	case 2:
	default:
		return call
	}
	binary := func(do func(l, r ref.Val) ref.Val) interpreter.InterpretableV2 {
		return replace(func(args ...ref.Val) ref.Val { return do(args[0], args[1]) })
	}
	switch function := call.Function(); function {
	case operators.Equals:
		return binary(equal)
	case operators.NotEquals:
		return binary(func(l, r ref.Val) ref.Val {
			if same, ok := equal(l, r).(types.Bool); ok {
				return !same
			}
			return equal(l, r)
		})
	case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		return binary(func(l, r ref.Val) ref.Val { return relation(function, l, r) })
	case operators.Add, operators.Subtract, operators.Multiply, operators.Divide, operators.Modulo:
		// The overload is that of the static types: one of doubles says that the expression computes with fractions.
		fraction := call.OverloadID() == overloads.DivideDouble
		return binary(func(l, r ref.Val) ref.Val { return calculate(function, l, r, fraction) })
	case operators.In, operators.OldIn:
		return binary(contains)
	}
	return call
}

// conversions are replaced because CEL's own look for the type that was inferred, and a result such as 2.0 * payload.x is an
// integer for some messages.
var conversions = map[string]ref.Type{
	overloads.TypeConvertString: types.StringType, overloads.TypeConvertInt: types.IntType,
	overloads.TypeConvertUint: types.UintType, overloads.TypeConvertDouble: types.DoubleType,
}

func convert(v ref.Val, to ref.Type) ref.Val {
	if to != types.StringType {
		v = byValue(v)
	}
	switch v.(type) {
	case traits.Lister, traits.Mapper, types.Null:
		return types.NewErr("no such overload")
	case types.Bool:
		if to != types.StringType {
			return types.NewErr("no such overload")
		}
	}
	return v.ConvertToType(to)
}

func negate(v ref.Val) ref.Val {
	if _, ok := numeric(v); ok {
		if d, ok := v.(types.Double); ok {
			return d.Negate()
		}
		return calculate(operators.Subtract, types.Int(0), v, false)
	}
	if v, ok := v.(traits.Negater); ok {
		return v.Negate()
	}
	return types.NewErr("no such overload")
}

// equal is CEL's equality, with exact numbers at every depth.
func equal(l, r ref.Val) ref.Val {
	switch l := l.(type) {
	case number, types.Int, types.Uint, types.Double:
		if !isNumber(r) {
			return types.False
		}
		if !isOwn(l) && !isOwn(r) && l.Type() == r.Type() {
			return l.Equal(r)
		}
		c := compare(l, r)
		if c, ok := c.(types.Int); ok {
			return types.Bool(c == 0)
		}
		if isNaN(l) || isNaN(r) {
			return types.False
		}
		return types.Bool(l == r) // out of range: the same literal is the same number
	case traits.Lister:
		if r, ok := r.(traits.Lister); ok {
			return equalLists(l, r)
		}
		return types.False
	case traits.Mapper:
		if r, ok := r.(traits.Mapper); ok {
			return equalMaps(l, r)
		}
		return types.False
	}
	return types.Equal(l, r)
}

func isOwn(v ref.Val) bool {
	_, ok := v.(number)
	return ok
}

func equalLists(l, r traits.Lister) ref.Val {
	if l.Size() != r.Size() {
		return types.False
	}
	a, b := l.Iterator(), r.Iterator()
	for a.HasNext() == types.True && b.HasNext() == types.True {
		if same := equal(a.Next(), b.Next()); same != types.True {
			return same
		}
	}
	return types.True
}

func equalMaps(l, r traits.Mapper) ref.Val {
	if l.Size() != r.Size() {
		return types.False
	}
	for it := l.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		a, _ := l.Find(key)
		b, found := r.Find(key)
		if !found {
			return types.False
		}
		if same := equal(a, b); same != types.True {
			return same
		}
	}
	return types.True
}

func contains(v, in ref.Val) ref.Val {
	switch in := in.(type) {
	case traits.Lister:
		for it := in.Iterator(); it.HasNext() == types.True; {
			if same := equal(it.Next(), v); same != types.False {
				return same
			}
		}
		return types.False
	case traits.Container:
		return in.Contains(byValue(v))
	}
	return types.NewErr("no such overload")
}

// compare returns -1, 0 or 1 as CEL does.
func compare(l, r ref.Val) ref.Val {
	if isNumber(l) && isNumber(r) && (isOwn(l) || isOwn(r) || l.Type() != r.Type()) {
		a, okA := numeric(l)
		b, okB := numeric(r)
		switch {
		case isNaN(l) || isNaN(r):
			return types.NewErr("NaN values cannot be ordered")
		case !okA || !okB: // an infinity, which is beyond every decimal
			return types.Int(infinite(l) - infinite(r))
		case a.wide || b.wide:
			return types.WrapErr(errRange)
		}
		return types.Int(a.compare(b))
	}
	if l, ok := l.(traits.Comparer); ok {
		return l.Compare(r)
	}
	return types.NewErr("no such overload")
}

func infinite(v ref.Val) int {
	d, ok := v.(types.Double)
	switch {
	case !ok || finite(float64(d)):
		return 0
	case d < 0:
		return -1
	}
	return 1
}

func relation(function string, l, r ref.Val) ref.Val {
	if isNaN(l) || isNaN(r) {
		return types.False
	}
	c, ok := compare(l, r).(types.Int)
	if !ok {
		return compare(l, r)
	}
	switch function {
	case operators.Less:
		return types.Bool(c < 0)
	case operators.LessEquals:
		return types.Bool(c <= 0)
	case operators.Greater:
		return types.Bool(c > 0)
	}
	return types.Bool(c >= 0)
}
