package expr

import (
	"bytes"
	"encoding/json"
	"testing"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// FuzzDecode holds the lazy views against encoding/json.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{sample, `{"a":{"a":[1,{"b":"\"]"}]},"a":[]}`, `[[],{},"\\",1e5,-0.0]`, `{"\u0061":1,"a":2}`, `"\ud800\u0041"`, ` [ ] `, `{"":{"":""}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		in := NewInput(Message{}, nil, text)
		if !in.JSON() {
			return
		}
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		var want any
		if err := decoder.Decode(&want); err != nil {
			t.Fatalf("it is valid to us, and not to encoding/json: %v", err)
		}
		same(t, in.root(), want)
	})
}

func same(t *testing.T, got ref.Val, want any) {
	switch want := want.(type) {
	case map[string]any:
		m := got.(traits.Mapper)
		if int(m.Size().(types.Int)) != len(want) {
			t.Fatalf("got %d members, want %d", m.Size(), len(want))
		}
		for name, value := range want {
			v, found := m.Find(types.String(name))
			if !found {
				t.Fatalf("no member %q", name)
			}
			same(t, v, value)
		}
	case []any:
		l := got.(traits.Lister)
		if int(l.Size().(types.Int)) != len(want) {
			t.Fatalf("got %d elements, want %d", l.Size(), len(want))
		}
		it := l.Iterator()
		for i, value := range want {
			same(t, l.Get(types.Int(i)), value)
			same(t, it.Next(), value)
		}
		if it.HasNext() != types.False || it.Next() != nil {
			t.Fatal("the iterator goes on")
		}
	case string:
		if types.IsError(got) {
			return // half a character, which encoding/json replaces
		}
		if got != types.String(want) {
			t.Fatalf("got %v, want %q", got, want)
		}
	case json.Number:
		if out, fault := appendJSON(nil, got); fault != nil || string(out) != string(want) {
			t.Fatalf("got %s, want %s", out, want)
		}
	case bool:
		if got != types.Bool(want) {
			t.Fatalf("got %v, want %t", got, want)
		}
	case nil:
		if got != types.NullValue {
			t.Fatalf("got %v, want null", got)
		}
	}
}

func TestScanningAnythingEnds(t *testing.T) {
	for _, text := range []string{"{", `{"`, `{"a`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, "[", "[1", "[1,", `["`, `"\`, `{"a":"\`, "{,}", "[,]", "{]"} {
		b := []byte(text)
		members(b, func(_, _ []byte) bool { return true })
		for element, i := nextElement(b, 1); element != nil; element, i = nextElement(b, i) {
		}
		_ = depth(b)
	}
}
