package expr

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// JSON evaluates to an exact JSON text: what is selected from the payload has the text of the payload.
func (p *Program) JSON(in *Input) (json.RawMessage, error) {
	if raw := p.raw(in); raw != nil {
		return bytes.Clone(raw), nil
	}
	v, fault := p.eval(in)
	if fault != nil {
		return nil, fault
	}
	out, fault := appendJSON(nil, v)
	if fault != nil {
		return nil, fault
	}
	return out, nil
}

// maxOutput bounds a computed text: an expression that repeats a list for each of its elements squares the payload.
const maxOutput = 32 << 20

func appendJSON(out []byte, v ref.Val) ([]byte, *Fault) {
	if len(out) > maxOutput {
		return nil, &Fault{Reason: "its JSON form is too large"}
	}
	switch v := v.(type) {
	case *object:
		return append(out, v.raw...), nil
	case *list:
		return append(out, v.raw...), nil
	case number:
		return append(out, v.literal...), nil
	case types.Null:
		return append(out, "null"...), nil
	case types.Bool:
		return strconv.AppendBool(out, bool(v)), nil
	case types.Int:
		return strconv.AppendInt(out, int64(v), 10), nil
	case types.Uint:
		return strconv.AppendUint(out, uint64(v), 10), nil
	case types.Double:
		if !finite(float64(v)) {
			return nil, faultRange
		}
		text, _ := json.Marshal(float64(v))
		return append(out, text...), nil
	case types.String:
		return appendString(out, string(v)), nil
	case types.Bytes:
		return appendString(out, base64.StdEncoding.EncodeToString(v)), nil
	case types.Timestamp, types.Duration:
		if s, ok := v.ConvertToType(types.StringType).(types.String); ok {
			return appendString(out, string(s)), nil
		}
	case traits.Lister:
		return appendList(out, v)
	case traits.Mapper:
		return appendMap(out, v)
	case *types.Err:
		return nil, fault(v)
	}
	return nil, &Fault{Reason: "it has no JSON form"}
}

func appendList(out []byte, l traits.Lister) ([]byte, *Fault) {
	out = append(out, '[')
	first := true
	for it := l.Iterator(); it.HasNext() == types.True; first = false {
		if !first {
			out = append(out, ',')
		}
		var fault *Fault
		if out, fault = appendJSON(out, it.Next()); fault != nil {
			return nil, fault
		}
	}
	return append(out, ']'), nil
}

// appendMap sorts the keys, so that every attempt sends the same JSON.
func appendMap(out []byte, m traits.Mapper) ([]byte, *Fault) {
	values := map[string]ref.Val{}
	var names []string
	for it := m.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, ok := key.(types.String)
		if !ok {
			return nil, &Fault{Reason: "a map has keys that are no strings"}
		}
		value, _ := m.Find(key)
		values[string(name)] = value
		names = append(names, string(name))
	}
	slices.Sort(names)
	out = append(out, '{')
	for i, name := range names {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(appendString(out, name), ':')
		var fault *Fault
		if out, fault = appendJSON(out, values[name]); fault != nil {
			return nil, fault
		}
	}
	return append(out, '}'), nil
}

func appendString(out []byte, s string) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(s) // a string in a buffer cannot fail
	return append(out, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}
