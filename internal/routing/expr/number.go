package expr

import (
	"errors"
	"math"
	"reflect"
	"strconv"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// number is a JSON number that no 64-bit integer stands for. To CEL it is a double, so that every overload fits; its
// literal is what it is.
type number string

var errRange = errors.New("a number is out of range")

func (n number) decimal() decimal { return parseDecimal(string(n)) }

func (n number) double() ref.Val {
	f, err := strconv.ParseFloat(string(n), 64)
	if err != nil {
		return types.WrapErr(errRange)
	}
	return types.Double(f)
}

// Type implements ref.Val.
func (n number) Type() ref.Type { return types.DoubleType }

// Value implements ref.Val. Only extensions that want a float64 ask for it.
func (n number) Value() any {
	f, _ := strconv.ParseFloat(string(n), 64)
	return f
}

// Equal implements ref.Val.
func (n number) Equal(other ref.Val) ref.Val { return equal(n, other) }

// ConvertToNative implements ref.Val.
func (n number) ConvertToNative(desc reflect.Type) (any, error) {
	if d, ok := n.double().(types.Double); ok {
		return d.ConvertToNative(desc)
	}
	return nil, errRange
}

// ConvertToType implements ref.Val.
func (n number) ConvertToType(to ref.Type) ref.Val {
	switch to {
	case types.StringType:
		return types.String(n)
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
		return n
	case types.TypeType:
		return types.DoubleType
	}
	return types.NewErr("no such overload")
}

// Compare implements traits.Comparer.
func (n number) Compare(other ref.Val) ref.Val { return compare(n, other) }

// Add implements traits.Adder, as doubles.
func (n number) Add(other ref.Val) ref.Val { return arithmetic("_+_", n, other) }

// Subtract implements traits.Subtractor, as doubles.
func (n number) Subtract(other ref.Val) ref.Val { return arithmetic("_-_", n, other) }

// Multiply implements traits.Multiplier, as doubles.
func (n number) Multiply(other ref.Val) ref.Val { return arithmetic("_*_", n, other) }

// Divide implements traits.Divider, as doubles.
func (n number) Divide(other ref.Val) ref.Val { return arithmetic("_/_", n, other) }

// Negate implements traits.Negater, as a double.
func (n number) Negate() ref.Val {
	if d, ok := n.double().(types.Double); ok {
		return d.Negate()
	}
	return types.WrapErr(errRange)
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

func isNaN(v ref.Val) bool {
	d, ok := v.(types.Double)
	return ok && math.IsNaN(float64(d))
}
