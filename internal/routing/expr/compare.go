package expr

import (
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// exact replaces CEL's comparing and calculating nodes. CEL asks the left operand, and its own types know nothing of
// number: 1.5 == payload.x would be false for an x of 1.5. Mixed numbers compare exactly here, on either side.
func exact(node interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, ok := node.(interpreter.InterpretableCall)
	if !ok || len(call.Args()) != 2 {
		return node, nil
	}
	var do func(l, r ref.Val) ref.Val
	switch function := call.Function(); function {
	case operators.Equals:
		do = equal
	case operators.NotEquals:
		do = func(l, r ref.Val) ref.Val {
			if same, ok := equal(l, r).(types.Bool); ok {
				return !same
			}
			return equal(l, r)
		}
	case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		do = func(l, r ref.Val) ref.Val { return relation(function, l, r) }
	case operators.Add, operators.Subtract, operators.Multiply, operators.Divide:
		do = func(l, r ref.Val) ref.Val { return arithmetic(function, l, r) }
	case operators.In, operators.OldIn:
		do = contains
	default:
		return node, nil
	}
	return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(),
		func(args ...ref.Val) ref.Val { return do(args[0], args[1]) }), nil
}

// equal is CEL's equality, with exact numbers at every depth.
func equal(l, r ref.Val) ref.Val {
	switch l := l.(type) {
	case number, types.Int, types.Uint, types.Double:
		if !isNumber(r) {
			return types.False
		}
		if l.Type() == r.Type() && !isOwn(l) && !isOwn(r) {
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
		return in.Contains(v)
	}
	return types.NewErr("no such overload")
}

// compare returns -1, 0 or 1 as CEL does.
func compare(l, r ref.Val) ref.Val {
	if isNumber(l) && isNumber(r) && (l.Type() != r.Type() || isOwn(l) || isOwn(r)) {
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

// arithmetic is CEL's, with numbers as doubles.
func arithmetic(function string, l, r ref.Val) ref.Val {
	for _, v := range []*ref.Val{&l, &r} {
		if n, ok := (*v).(number); ok {
			*v = n.double()
			if types.IsError(*v) {
				return *v
			}
		}
	}
	switch function {
	case operators.Add:
		if l, ok := l.(traits.Adder); ok {
			return l.Add(r)
		}
	case operators.Subtract:
		if l, ok := l.(traits.Subtractor); ok {
			return l.Subtract(r)
		}
	case operators.Multiply:
		if l, ok := l.(traits.Multiplier); ok {
			return l.Multiply(r)
		}
	case operators.Divide:
		if l, ok := l.(traits.Divider); ok {
			return l.Divide(r)
		}
	}
	return types.NewErr("no such overload")
}
