package expr

import (
	"errors"
	"strings"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

// Fault says why an expression has no value for a message. It holds no value of the message: CEL's own texts do.
type Fault struct {
	// Missing: a field that it reads is not there.
	Missing bool
	Reason  string
}

// Error returns the reason.
func (f *Fault) Error() string { return f.Reason }

var (
	faultMissing = &Fault{Missing: true, Reason: "a field that it reads is missing"}
	faultNull    = &Fault{Missing: true, Reason: "it is null"}
	faultType    = &Fault{Reason: "a value has another type than the expression needs"}
	faultHalf    = &Fault{Reason: "a text that it reads holds half a character (an unpaired surrogate)"}
	faultRange   = &Fault{Reason: "a number is out of range"}
	faultRounded = &Fault{Reason: "it is a quotient that has no end, and so is rounded"}
	faultCost    = &Fault{Reason: "it takes too much work for this message"}
	faultOther   = &Fault{Reason: "it cannot be evaluated for this message"}
)

// eval returns a value that is neither an error nor unknown.
func (p *Program) eval(in *Input) (ref.Val, *Fault) {
	v, _, err := p.program.Eval(in)
	if err != nil {
		return nil, fault(err)
	}
	if v == nil || types.IsUnknownOrError(v) {
		return nil, faultOther
	}
	return v, nil
}

func fault(err error) *Fault {
	var cancelled interpreter.EvalCancelledError
	switch text := err.Error(); {
	case errors.As(err, &cancelled):
		return faultCost
	case errors.Is(err, errHalfPair):
		return faultHalf
	case errors.Is(err, errRange), strings.Contains(text, "overflow"), strings.Contains(text, "range error"):
		return faultRange
	case errors.Is(err, errNothing):
		return &Fault{Reason: errNothing.Error()}
	case errors.Is(err, errZero):
		return &Fault{Reason: errZero.Error()}
	case strings.HasPrefix(text, "no such key"), strings.HasPrefix(text, "index out of bounds"),
		strings.HasPrefix(text, "no such attribute"), strings.HasPrefix(text, "unsupported index"): // a list's member by name
		return faultMissing
	case strings.HasPrefix(text, "no such overload"):
		return faultType
	}
	return faultOther
}

// Bool evaluates a match. An expression that fails does not match: a message without the attribute asked for is not of
// this kind.
func (p *Program) Bool(in *Input) bool {
	v, fault := p.eval(in)
	return fault == nil && v == types.True
}

// Text evaluates to a text: that of the source for a number of the payload. Null is missing.
func (p *Program) Text(in *Input) (string, error) {
	v, fault := p.eval(in)
	if fault != nil {
		return "", fault
	}
	switch v := v.(type) {
	case types.String:
		return string(v), nil
	case number:
		return v.literal, nil
	case types.Null:
		return "", faultNull
	case types.Bool, types.Int, types.Uint, types.Double, types.Timestamp, types.Duration:
		if s, ok := v.ConvertToType(types.StringType).(types.String); ok {
			return string(s), nil
		}
	}
	return "", faultType
}

// Key evaluates to the text of a key. Equal numbers have one text (1, 1.0 and 10e-1 are "1"), different ones have two,
// and a string has its own: "7" and 7 are one key. Null is the empty text.
func (p *Program) Key(in *Input) (string, error) {
	v, fault := p.eval(in)
	if fault != nil {
		return "", fault
	}
	switch v := v.(type) {
	case types.String:
		return string(v), nil
	case types.Bool:
		if v {
			return "true", nil
		}
		return "false", nil
	case types.Int, types.Uint, number:
		if rounded(v) {
			return "", faultRounded
		}
		d, _ := numeric(v)
		if d.wide {
			return "", faultRange
		}
		return d.canonical(), nil
	case types.Null:
		return "", nil
	case types.Double:
		return "", &Fault{Reason: "it is computed in floating point, which is not exact"}
	}
	return "", &Fault{Reason: "it is neither a string nor a number nor a bool"}
}

// Sequence evaluates to an integer; 1.0 and 1e2 are integers too. Null is missing.
func (p *Program) Sequence(in *Input) (int64, error) {
	v, fault := p.eval(in)
	if fault != nil {
		return 0, fault
	}
	if v == types.NullValue {
		return 0, faultNull
	}
	d, ok := numeric(v)
	if !ok || rounded(v) {
		return 0, &Fault{Reason: "it is not an integer"}
	}
	if n, ok := d.int64(); ok {
		return n, nil
	}
	return 0, &Fault{Reason: "it is not an integer of 64 bits"}
}
