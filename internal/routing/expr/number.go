package expr

import (
	"errors"
	"math"
	"reflect"
	"strconv"

	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// number is a JSON number whose literal is no 64-bit integer's, or a result that is none. Its type is that of its value:
// 100.0 is an int, as 100 is. Its literal is what it is where it goes out, or becomes a text.
type number struct {
	literal string
	rounded bool // a quotient without an end
}

var (
	errRange = errors.New("a number is out of range")
	errZero  = errors.New("it divides by zero")
)

func (n number) decimal() decimal { return parseDecimal(n.literal) }

func (n number) double() ref.Val {
	f, err := strconv.ParseFloat(n.literal, 64)
	if err != nil {
		return types.WrapErr(errRange)
	}
	return types.Double(f)
}

// value is n as CEL's own integer, if it is one.
func (n number) value() ref.Val {
	if n.rounded {
		return n
	}
	d := n.decimal()
	if i, ok := d.int64(); ok {
		return types.Int(i)
	}
	if u, ok := d.uint64(); ok {
		return types.Uint(u)
	}
	return n
}

// Type implements ref.Val.
func (n number) Type() ref.Type {
	if v := n.value(); v != n {
		return v.Type()
	}
	return types.DoubleType
}

// Value implements ref.Val. Only extensions that want a float64 ask for it.
func (n number) Value() any {
	f, _ := strconv.ParseFloat(n.literal, 64)
	return f
}

// Equal implements ref.Val.
func (n number) Equal(other ref.Val) ref.Val { return equal(n, other) }

// ConvertToNative implements ref.Val.
func (n number) ConvertToNative(desc reflect.Type) (any, error) {
	if v := n.value(); v != n {
		return v.ConvertToNative(desc)
	}
	if d, ok := n.double().(types.Double); ok {
		return d.ConvertToNative(desc)
	}
	return nil, errRange
}

// ConvertToType implements ref.Val.
func (n number) ConvertToType(to ref.Type) ref.Val {
	switch to {
	case types.StringType:
		return types.String(n.literal)
	case types.IntType:
		if i, ok := n.decimal().truncated().int64(); ok {
			return types.Int(i)
		}
		return types.WrapErr(errRange)
	case types.UintType:
		if u, ok := n.decimal().truncated().uint64(); ok {
			return types.Uint(u)
		}
		return types.WrapErr(errRange)
	case types.DoubleType:
		return n.double()
	case types.TypeType:
		return n.Type().(ref.Val)
	}
	return types.NewErr("no such overload")
}

// Compare implements traits.Comparer.
func (n number) Compare(other ref.Val) ref.Val { return compare(n, other) }

// Add implements traits.Adder.
func (n number) Add(other ref.Val) ref.Val { return calculate(operators.Add, n, other, false) }

// Subtract implements traits.Subtractor.
func (n number) Subtract(other ref.Val) ref.Val {
	return calculate(operators.Subtract, n, other, false)
}

// Multiply implements traits.Multiplier.
func (n number) Multiply(other ref.Val) ref.Val {
	return calculate(operators.Multiply, n, other, false)
}

// Divide implements traits.Divider.
func (n number) Divide(other ref.Val) ref.Val { return calculate(operators.Divide, n, other, false) }

// Modulo implements traits.Modder.
func (n number) Modulo(other ref.Val) ref.Val { return calculate(operators.Modulo, n, other, false) }

// Negate implements traits.Negater.
func (n number) Negate() ref.Val { return calculate(operators.Subtract, types.Int(0), n, false) }

// calculate is CEL's arithmetic. That of numbers is about their values: the result is the exact one, whatever the types
// and the literals of the operands. Only a quotient needs more than the values: of two whole numbers it has no fraction,
// as in CEL, unless the expression itself computes with fractions.
func calculate(function string, l, r ref.Val, fraction bool) ref.Val {
	if isInt(l) && isInt(r) && !fraction {
		if v := native(function, l, r); !types.IsError(v) {
			return v // and else it is too large, or divided by zero
		}
	}
	a, okA := numeric(l)
	b, okB := numeric(r)
	if !okA || !okB { // texts, lists and times; an infinity or NaN, which only doubles can be
		return native(function, double(l), double(r))
	}
	if (rounded(l) || rounded(r)) && function != operators.Modulo {
		return approximate(function, l, r)
	}
	_, doubleL := l.(types.Double)
	_, doubleR := r.(types.Double)
	var d decimal
	var ok bool
	inexact := rounded(l) || rounded(r)
	switch function {
	case operators.Add:
		d, ok = a.add(b)
	case operators.Subtract:
		d, ok = a.add(b.negated())
	case operators.Multiply:
		d, ok = a.times(b)
	case operators.Divide:
		switch {
		case b.sign() == 0 && doubleL && doubleR:
			return native(function, l, r) // an infinity, or NaN
		case b.sign() == 0:
			return types.WrapErr(errZero)
		case a.integral() && b.integral() && !fraction && !doubleL && !doubleR:
			d, ok = a.quotient(b)
		default:
			var exact bool
			d, exact, ok = a.divided(b)
			inexact = !exact
		}
	case operators.Modulo:
		if b.sign() == 0 {
			return types.WrapErr(errZero)
		}
		d, ok = a.remainder(b)
	}
	if !ok {
		return types.WrapErr(errRange)
	}
	return number{d.canonical(), inexact}.value()
}

// approximate calculates with doubles, where an operand is one already: a third times three is one, and no digits come up
// that nobody has put in.
func approximate(function string, l, r ref.Val) ref.Val {
	a, b := l.ConvertToType(types.DoubleType), r.ConvertToType(types.DoubleType)
	if b == types.Double(0) && function == operators.Divide {
		return types.WrapErr(errZero)
	}
	f, ok := native(function, a, b).(types.Double)
	if !ok || !finite(float64(f)) {
		return types.WrapErr(errRange)
	}
	return number{floatDecimal(float64(f)).canonical(), true}
}

// double is v as CEL's arithmetic knows it.
func double(v ref.Val) ref.Val {
	if n, ok := v.(number); ok {
		return n.double()
	}
	return v
}

// native is CEL's own arithmetic.
func native(function string, l, r ref.Val) ref.Val {
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
	case operators.Modulo:
		if l, ok := l.(traits.Modder); ok {
			return l.Modulo(r)
		}
	}
	return types.NewErr("no such overload")
}

// byValue is v where its spelling must not matter: an integer of the payload is CEL's own, however it was written.
func byValue(v ref.Val) ref.Val {
	if n, ok := v.(number); ok {
		return n.value()
	}
	return v
}

// formatted is byValue for what format() is given, at every depth. It knows doubles only, and a number that is none would
// lose digits.
func formatted(v ref.Val) ref.Val {
	switch v := v.(type) {
	case number:
		whole := v.value()
		if whole != v {
			return whole
		}
		d, ok := v.double().(types.Double)
		if exact, _ := numeric(d); !ok || exact != v.decimal() {
			return types.WrapErr(errRange)
		}
		return d
	case traits.Lister:
		var all []ref.Val
		for it := v.Iterator(); it.HasNext() == types.True; {
			element := formatted(it.Next())
			if types.IsError(element) {
				return element
			}
			all = append(all, element)
		}
		return types.NewRefValList(adapter, all)
	case traits.Mapper:
		all := map[ref.Val]ref.Val{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			value, _ := v.Find(key)
			if all[key] = formatted(value); types.IsError(all[key]) {
				return all[key]
			}
		}
		return types.NewRefValMap(adapter, all)
	}
	return v
}

// numeric returns the exact value of a CEL number. ok is false for anything else, and for NaN and the infinities.
func numeric(v ref.Val) (d decimal, ok bool) {
	switch v := v.(type) {
	case number:
		return v.decimal(), true
	case types.Int:
		return parseDecimal(strconv.FormatInt(int64(v), 10)), true
	case types.Uint:
		return parseDecimal(strconv.FormatUint(uint64(v), 10)), true
	case types.Double:
		if finite(float64(v)) {
			return floatDecimal(float64(v)), true
		}
	}
	return decimal{}, false
}

func isNumber(v ref.Val) bool {
	switch v.(type) {
	case number, types.Int, types.Uint, types.Double:
		return true
	}
	return false
}

func isInt(v ref.Val) bool {
	_, ok := v.(types.Int)
	return ok
}

func isNaN(v ref.Val) bool {
	d, ok := v.(types.Double)
	return ok && math.IsNaN(float64(d))
}

// rounded reports whether a number is not what was asked for, but the double next to it.
func rounded(v ref.Val) bool {
	n, ok := v.(number)
	return ok && n.rounded
}
