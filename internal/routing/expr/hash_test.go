package expr

import "testing"

func TestHashTellsTypesAndBordersApart(t *testing.T) {
	texts := []string{
		`hash(["a", "bc"])`, `hash(["ab", "c"])`, `hash(["abc"])`, `hash(["7"])`, `hash([7])`, `hash([7.5])`, `hash(["7.5"])`, `hash([true])`,
		`hash(["true"])`, `hash([["a"], "b"])`, `hash([["a", "b"]])`, `hash(["a", null])`, `hash([null, "a"])`, `hash(["a"])`,
		`hash([{"a": 1}])`, `hash([{"a": "1"}])`, `hash([{"b": 1}])`, `hash([b"a"])`, `hash([payload.int])`, `hash([payload.near])`,
		`hash([message.publishTime])`, `hash([string(message.publishTime)])`,
	}
	seen := map[string]string{}
	for _, text := range texts {
		got, err := mustCompile(t, text, ForKey).Key(input(sample))
		if err != nil || len(got) != 64 {
			t.Errorf("%s: got %q, %v", text, got, err)
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%s and %s have one hash", text, other)
		}
		seen[got] = text
	}
}

func TestHashSeesValuesAndNotTheirSpelling(t *testing.T) {
	for a, b := range map[string]string{
		`hash([payload.one])`:   `hash([1])`,
		`hash([payload.price])`: `hash([1.1])`,
		`hash([payload.order])`: `hash([{"a": {"id": "4711"}, "z": 1.1}])`,
		`hash(payload.list)`:    `hash([1, 2.5, "x", null, [3]])`,
		`hash([payload.text])`:  `hash(["café <b>"])`,
	} {
		x, errX := mustCompile(t, a, ForKey).Key(input(sample))
		y, errY := mustCompile(t, b, ForKey).Key(input(sample))
		if errX != nil || errY != nil || x != y {
			t.Errorf("%s is %q (%v), %s is %q (%v)", a, x, errX, b, y, errY)
		}
	}
}

// TestHashIsForEver: a stored identity depends on it.
func TestHashIsForEver(t *testing.T) {
	const want = "1545a0007f5e3ca80fe7a351bc0f2c2b"
	got, err := mustCompile(t, `hash(["4711", 2, true, null, 1.50])`, ForKey).Key(input(sample))
	if err != nil || got[:32] != want {
		t.Errorf("got %s, %v", got, err)
	}
}
