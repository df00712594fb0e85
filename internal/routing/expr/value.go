package expr

import (
	"errors"
	"reflect"
	"strconv"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// object and list are views of the payload's text, decoded where they are read: a large body is never held twice, and
// what is selected whole keeps its text.

type object struct {
	raw  []byte
	memo map[string]ref.Val // of what was looked up; nil: not there
}

type list struct {
	raw    []byte
	starts []int32 // of the elements, once one was asked for by index
}

var errHalfPair = errors.New("a text holds half a character")

// decode returns the value of a valid JSON text.
func decode(raw []byte) ref.Val {
	switch raw[0] {
	case '{':
		return &object{raw: raw}
	case '[':
		return &list{raw: raw}
	case '"':
		s, whole := unquote(raw)
		if !whole {
			return types.WrapErr(errHalfPair)
		}
		return types.String(s)
	case 't':
		return types.True
	case 'f':
		return types.False
	case 'n':
		return types.NullValue
	}
	return decodeNumber(string(raw))
}

func decodeNumber(literal string) ref.Val {
	// Only what these print again is their value: -0 and 1e2 are literals of their own.
	if i, err := strconv.ParseInt(literal, 10, 64); err == nil && literal != "-0" {
		return types.Int(i)
	}
	if u, err := strconv.ParseUint(literal, 10, 64); err == nil {
		return types.Uint(u)
	}
	return number{literal: literal}
}

// Find implements traits.Mapper.
func (o *object) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return nil, false
	}
	if v, ok := o.memo[string(name)]; ok {
		return v, v != nil
	}
	var v ref.Val
	if raw := o.member(string(name)); raw != nil {
		v = decode(raw)
	}
	if o.memo == nil {
		o.memo = map[string]ref.Val{}
	}
	o.memo[string(name)] = v
	return v, v != nil
}

// member returns the text of a member, of the last one of that name; nil if there is none.
func (o *object) member(name string) (raw []byte) {
	members(o.raw, func(key, value []byte) bool {
		if isName(key, name) {
			raw = value
		}
		return true
	})
	return raw
}

// Contains implements traits.Container.
func (o *object) Contains(key ref.Val) ref.Val {
	_, found := o.Find(key)
	return types.Bool(found)
}

// Get implements traits.Indexer.
func (o *object) Get(key ref.Val) ref.Val {
	if v, ok := o.Find(key); ok {
		return v
	}
	return types.NewErr("no such key")
}

// keys returns each name once, in the order of the text.
func (o *object) keys() []ref.Val {
	var keys []ref.Val
	seen := map[string]bool{}
	members(o.raw, func(key, _ []byte) bool {
		if s, _ := unquote(key); !seen[s] {
			seen[s] = true
			keys = append(keys, types.String(s))
		}
		return true
	})
	return keys
}

// Size implements traits.Sizer.
func (o *object) Size() ref.Val { return types.Int(len(o.keys())) }

// Iterator implements traits.Iterable: the keys.
func (o *object) Iterator() traits.Iterator { return types.NewRefValList(adapter, o.keys()).Iterator() }

// Equal implements ref.Val.
func (o *object) Equal(other ref.Val) ref.Val { return equal(o, other) }

// Type implements ref.Val.
func (o *object) Type() ref.Type { return types.MapType }

// Value implements ref.Val.
func (o *object) Value() any { return o }

// ConvertToType implements ref.Val.
func (o *object) ConvertToType(to ref.Type) ref.Val {
	switch to {
	case types.MapType:
		return o
	case types.TypeType:
		return types.MapType
	}
	return types.NewErr("no such overload")
}

// ConvertToNative implements ref.Val.
func (o *object) ConvertToNative(desc reflect.Type) (any, error) {
	entries := map[ref.Val]ref.Val{}
	for _, key := range o.keys() {
		entries[key] = o.Get(key)
	}
	return types.NewRefValMap(adapter, entries).ConvertToNative(desc)
}

func (l *list) elements() []ref.Val {
	var all []ref.Val
	for raw, i := nextElement(l.raw, 1); raw != nil; raw, i = nextElement(l.raw, i) {
		all = append(all, decode(raw))
	}
	return all
}

func (l *list) index() []int32 {
	if l.starts == nil {
		l.starts = []int32{}
		for raw, i := nextElement(l.raw, 1); raw != nil; raw, i = nextElement(l.raw, i) {
			// raw is a slice of l.raw: the capacities tell where it begins.
			l.starts = append(l.starts, int32(cap(l.raw)-cap(raw)))
		}
	}
	return l.starts
}

// at returns the text of an element; nil if there is none.
func (l *list) at(i int64) []byte {
	starts := l.index()
	if i < 0 || i >= int64(len(starts)) {
		return nil
	}
	start := int(starts[i])
	return l.raw[start:skipValue(l.raw, start)]
}

// Get implements traits.Indexer.
func (l *list) Get(index ref.Val) ref.Val {
	d, ok := numeric(index)
	i, whole := d.int64()
	if !ok || !whole {
		return types.NewErr("no such overload")
	}
	if raw := l.at(i); raw != nil {
		return decode(raw)
	}
	return types.NewErr("index out of bounds")
}

// Size implements traits.Sizer.
func (l *list) Size() ref.Val { return types.Int(len(l.index())) }

// Contains implements traits.Container.
func (l *list) Contains(v ref.Val) ref.Val { return contains(v, l) }

// Add implements traits.Adder.
func (l *list) Add(other ref.Val) ref.Val {
	return types.NewRefValList(adapter, l.elements()).Add(other)
}

// Iterator implements traits.Iterable.
func (l *list) Iterator() traits.Iterator { return &elements{raw: l.raw, next: 1} }

// Equal implements ref.Val.
func (l *list) Equal(other ref.Val) ref.Val { return equal(l, other) }

// Type implements ref.Val.
func (l *list) Type() ref.Type { return types.ListType }

// Value implements ref.Val.
func (l *list) Value() any { return l }

// ConvertToType implements ref.Val.
func (l *list) ConvertToType(to ref.Type) ref.Val {
	switch to {
	case types.ListType:
		return l
	case types.TypeType:
		return types.ListType
	}
	return types.NewErr("no such overload")
}

// ConvertToNative implements ref.Val.
func (l *list) ConvertToNative(desc reflect.Type) (any, error) {
	return types.NewRefValList(adapter, l.elements()).ConvertToNative(desc)
}

// elements iterates over a list without holding it.
type elements struct {
	raw  []byte
	next int
}

// HasNext implements traits.Iterator.
func (e *elements) HasNext() ref.Val {
	raw, _ := nextElement(e.raw, e.next)
	return types.Bool(raw != nil)
}

// Next implements traits.Iterator.
func (e *elements) Next() ref.Val {
	raw, after := nextElement(e.raw, e.next)
	if raw == nil {
		return nil
	}
	e.next = after
	return decode(raw)
}

// Type implements ref.Val.
func (e *elements) Type() ref.Type { return types.IteratorType }

// Value implements ref.Val.
func (e *elements) Value() any { return nil }

// Equal implements ref.Val.
func (e *elements) Equal(ref.Val) ref.Val { return types.NewErr("no such overload") }

// ConvertToType implements ref.Val.
func (e *elements) ConvertToType(ref.Type) ref.Val { return types.NewErr("no such overload") }

// ConvertToNative implements ref.Val.
func (e *elements) ConvertToNative(reflect.Type) (any, error) { return nil, errors.ErrUnsupported }
