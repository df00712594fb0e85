package expr

import (
	"math/big"
	"strings"
	"testing"
)

func TestEqualNumbersHaveOneCanonicalText(t *testing.T) {
	for want, literals := range map[string][]string{
		"0":                     {"0", "-0", "0.000", "0e999999999999999999999", "-0.0E-5"},
		"1":                     {"1", "1.0", "10e-1", "0.1e1", "1E+0", "1.000e00"},
		"-1.5":                  {"-1.5", "-15e-1", "-1.50"},
		"100":                   {"100", "1e2", "1E2", "100.0"},
		"0.001":                 {"0.001", "1e-3", "0.1E-2"},
		"9007199254740993":      {"9007199254740993", "9007199254740993.0", "9.007199254740993e15"},
		"1.5e400":               {"1.5e400", "15E399"},
		"1e-400":                {"1e-400", "0.1e-399"},
		"0.1000000000000000055": {"0.1000000000000000055"},
	} {
		for _, literal := range literals {
			if got := parseDecimal(literal).canonical(); got != want {
				t.Errorf("%s: got %s, want %s", literal, got, want)
			}
		}
	}
}

func TestDecimalsCompareAsFractionsDo(t *testing.T) {
	literals := []string{"0", "-0", "1", "-1", "1.0", "10", "9", "9.99", "100", "1e2", "1e-2", "0.01", "-0.01", "-0.011", "123.456", "123.4560",
		"9007199254740993", "9007199254740992", "1e20", "-1e20", "12e19", "0.1000000000000000055", "0.1"}
	for _, a := range literals {
		for _, b := range literals {
			x, _ := new(big.Rat).SetString(a)
			y, _ := new(big.Rat).SetString(b)
			if got, want := parseDecimal(a).compare(parseDecimal(b)), x.Cmp(y); got != want {
				t.Errorf("%s and %s: got %d, want %d", a, b, got, want)
			}
			if same := parseDecimal(a).canonical() == parseDecimal(b).canonical(); same != (x.Cmp(y) == 0) {
				t.Errorf("%s and %s: one text is %t", a, b, same)
			}
		}
	}
}

func TestAHostileNumberCostsWhatItsTextCosts(t *testing.T) {
	for _, literal := range []string{"1e999999999", "1e-999999999", "-1e99999999999999999999999999", "1e" + strings.Repeat("9", 100000), strings.Repeat("9", 100000), "0." + strings.Repeat("0", 100000) + "1"} {
		d := parseDecimal(literal)
		if !d.wide && len(d.canonical()) > len(literal)+20 {
			t.Errorf("%.20s: its canonical text has %d bytes", literal, len(d.canonical()))
		}
		_ = d.compare(parseDecimal("1"))
		if _, ok := d.int64(); ok {
			t.Errorf("%.20s: it is no int64", literal)
		}
		if _, ok := d.truncated().uint64(); ok && d.magnitude() > 0 {
			t.Errorf("%.20s: it is no uint64", literal)
		}
	}
	for literal, want := range map[string]bool{"1": true, "1.5e300": true, "1e999999": false, "1e-999999": false, "1e9999999999999999999999": false} {
		if got := Reasonable(literal); got != want {
			t.Errorf("%s: reasonable is %t", literal, got)
		}
	}
}
