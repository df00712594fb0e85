package expr

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCommentsAreWhatTheParserLeavesOut(t *testing.T) {
	for text, want := range map[string][]string{
		`payload.a / payload.b`:                   nil,
		`payload.a // the rest`:                   {" the rest"},
		"payload.a // one\n + payload.b // two\n": {" one", " two"},
		"// one\r + 1":                            {" one\r + 1"},
		`"https://a" + 'b//c' // d`:               {" d"},
		`"a\"//" + '\'//' // d`:                   {" d"},
		`r"a\" // "b`:                             {` "b`},
		`R'\' + br"\" // x`:                       {" x"},
		`bar"a\"//"`:                              nil,
		`"""a " // " b""" // c`:                   {" c"},
		"'''a\n // b''' + 'x'":                    nil,
		"payload.`a//b` // c":                     {" c"},
		"\"a\n // b":                              {" b"},
		`"" // a`:                                 {" a"},
		`"`:                                       nil,
		`'''`:                                     nil,
	} {
		if diff := cmp.Diff(want, Comments(text)); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
}
