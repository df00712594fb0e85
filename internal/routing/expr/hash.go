package expr

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash"
	"slices"
	"strings"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

var errNothing = errors.New("hash() of nothing but empty values would be one key for many messages")

// hashList implements hash(list). Each element goes in with its type and its length: ["a","bc"] and ["ab","c"] differ, as
// do "7" and 7; 1 and 1.0 do not, and neither do objects that differ in white space or in the order of members.
func hashList(v ref.Val) ref.Val {
	l, ok := v.(traits.Lister)
	if !ok {
		return types.NewErr("no such overload")
	}
	sum := sha256.New()
	nothing := true
	for it := l.Iterator(); it.HasNext() == types.True; {
		e := it.Next()
		nothing = nothing && (e == types.NullValue || e == types.String(""))
		if fault := writeValue(sum, e); fault != nil {
			return fault
		}
	}
	if nothing {
		return types.WrapErr(errNothing)
	}
	return types.String(hex.EncodeToString(sum.Sum(nil)))
}

// writeValue writes a value in its canonical form; nil, or a CEL error.
func writeValue(sum hash.Hash, v ref.Val) ref.Val {
	if d, ok := numeric(v); ok {
		if d.wide {
			return types.WrapErr(errRange)
		}
		write(sum, 'n', d.canonical())
		return nil
	}
	switch v := v.(type) {
	case types.String:
		write(sum, 's', string(v))
	case types.Bytes:
		write(sum, 'y', string(v))
	case types.Null:
		write(sum, 'z', "")
	case types.Bool, types.Timestamp, types.Duration:
		text, ok := v.ConvertToType(types.StringType).(types.String)
		if !ok {
			return types.NewErr("no such overload")
		}
		write(sum, 't', v.Type().TypeName()+" "+string(text))
	case traits.Lister:
		writeSize(sum, 'l', int(v.Size().(types.Int)))
		for it := v.Iterator(); it.HasNext() == types.True; {
			if fault := writeValue(sum, it.Next()); fault != nil {
				return fault
			}
		}
	case traits.Mapper:
		return writeMap(sum, v)
	case *types.Err:
		return v
	default:
		return types.NewErr("no such overload")
	}
	return nil
}

func writeMap(sum hash.Hash, m traits.Mapper) ref.Val {
	var names []types.String
	for it := m.Iterator(); it.HasNext() == types.True; {
		name, ok := it.Next().(types.String)
		if !ok {
			return types.NewErr("no such overload")
		}
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b types.String) int { return strings.Compare(string(a), string(b)) })
	writeSize(sum, 'm', len(names))
	for _, name := range names {
		write(sum, 's', string(name))
		value, _ := m.Find(name)
		if fault := writeValue(sum, value); fault != nil {
			return fault
		}
	}
	return nil
}

func write(sum hash.Hash, kind byte, text string) {
	writeSize(sum, kind, len(text))
	sum.Write([]byte(text))
}

func writeSize(sum hash.Hash, kind byte, size int) {
	var head [9]byte
	head[0] = kind
	binary.BigEndian.PutUint64(head[1:], uint64(size))
	sum.Write(head[:])
}
