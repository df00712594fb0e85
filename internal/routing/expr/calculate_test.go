package expr

import (
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// spelled are texts of the same numbers.
var spelled = [][]string{
	{"100", "100.0", "1e2", "1000e-1", "100.00"},
	{"99.99", "99.990", "9999e-2"},
	{"0", "0.0", "-0", "0e5"},
	{"4", "4.0", "0.4e1"},
	{"1500", "1500.0", "1.5e3"},
	{"-7", "-7.0", "-70e-1"},
	{"9007199254740993", "9007199254740993.0", "9.007199254740993e15"},
	{"9223372036854775808", "9223372036854775808.0", "9.223372036854775808e18"},
	{"123456789012345678901234567890", "123456789012345678901234567890.0", "12345678901234567890123456789e1"},
}

// TestWhatAnExpressionYieldsDependsOnValuesAndNotOnSpelling is C094's kind: each expression gives one result for all
// spelled of its operands, or fails for all.
func TestWhatAnExpressionYieldsDependsOnValuesAndNotOnSpelling(t *testing.T) {
	all := func(p *Program, in *Input) string {
		value, err := p.JSON(in)
		key, keyErr := p.Key(in)
		sequence, sequenceErr := p.Sequence(in)
		return fmt.Sprint(string(value), err, key, keyErr, sequence, sequenceErr, p.Bool(in))
	}
	for _, text := range []string{
		`payload.a + payload.b`, `payload.a - payload.b`, `payload.a * payload.b`, `payload.a / payload.b`, `payload.a % payload.b`,
		`-payload.a + 0`, `payload.a + 1`, `payload.a + 1.0`, `1.19 * payload.a >= 100.0`, `payload.a * 1.19 >= 100.0`, `payload.a / 1000`,
		`payload.a / 2.0`, `7 / payload.a`, `7.0 / payload.a`, `payload.a % 4`, `7 % payload.a`, `payload.a * 2.0 / payload.b`, `payload.a + 1u`,
		`payload.a == payload.b`, `payload.a < payload.b`, `payload.a in [4, 99.99, payload.b]`, `payload.a in {4: "x", 100: "y"}`,
		`int(payload.a) + 1`, `uint(payload.a) + 1u`, `double(payload.a) * 1.1`, `double(payload.a)`, `type(payload.a) == int`,
		`type(payload.a) == double`, `["a", "b", "c", "d", "e"][payload.a]`, `{4: "four", 100: "hundred"}[payload.a]`, `payload.list[payload.a]`,
		`{payload.a: "x"}[payload.b]`, `"abcdefgh".substring(payload.a)`, `"abcdefgh".charAt(payload.a)`, `timestamp(payload.a)`,
		`"%d".format([payload.a])`, `"%s".format([payload.a])`, `"%s".format([[payload.a, {"k": payload.b}]])`, `"%x".format([payload.a])`,
		`"%.2f".format([payload.a])`, `hash([payload.a, payload.b])`, `hash([payload.a + payload.b])`, `[payload.a].map(x, x * 1.5)`,
		`[payload.a].exists(x, x % 4 == 0)`, `[payload.a, payload.b].filter(x, x / 2.0 > 1.0).size()`, `payload.a > 4 ? payload.a - 4 : payload.a + 4`,
		`duration("1s") + duration("2s")`, `payload.a + "x"`,
	} {
		p := mustCompile(t, text, ForVariable)
		others := spelled
		if !strings.Contains(text, "payload.b") {
			others = [][]string{{"1"}}
		}
		for _, as := range spelled {
			for _, bs := range others {
				want := ""
				for _, a := range as {
					for _, b := range bs {
						got := all(p, input(fmt.Sprintf(`{"a": %s, "b": %s, "list": [1, 2, 3, 4, 5]}`, a, b)))
						if want == "" {
							want = got
						}
						if got != want {
							t.Fatalf("%s for a = %s and b = %s: got %s, want %s as for %s and %s", text, a, b, got, want, as[0], bs[0])
						}
					}
				}
			}
		}
	}
}

func TestArithmeticIsExact(t *testing.T) {
	for text, want := range map[string]string{
		`payload.total * 1.19`:                             `118.9881`,
		`1.19 * payload.whole`:                             `119`,
		`payload.qty * payload.total`:                      `299.97`,
		`payload.tenth + payload.fifth`:                    `0.3`,
		`0.1 + 0.2`:                                        `0.3`,
		`payload.total - payload.fifth`:                    `99.79`,
		`payload.big + 1`:                                  `9007199254740994`,
		`payload.big + 1.0`:                                `9007199254740994`,
		`payload.big * payload.big`:                        `81129638414606699710187514626049`,
		`payload.big * 0.01`:                               `90071992547409.93`,
		`9223372036854775807 + payload.big`:                `9232379236109516800`,
		`payload.most + 1`:                                 `18446744073709551616`,
		`payload.most - 1`:                                 `18446744073709551614`,
		`payload.qty - payload.most`:                       `-18446744073709551612`,
		`-payload.most`:                                    `-18446744073709551615`,
		`-payload.total`:                                   `-99.99`,
		`payload.far * 2`:                                  `2e400`,
		`payload.far / 2.0`:                                `5e399`,
		`payload.far * payload.far - payload.far`:          ``,
		`payload.money + 0.01`:                             `1234567890123456789.02`,
		`payload.money / 2.0`:                              `617283945061728394.505`,
		`double(payload.money) + 0.01`:                     `1234567890123456800.01`,
		`payload.qty / payload.whole`:                      `0`,
		`payload.whole / payload.qty`:                      `33`,
		`-payload.whole / payload.qty`:                     `-33`,
		`payload.whole / 3.0`:                              `33.333333333333336`,
		`payload.whole / 8.0`:                              `12.5`,
		`payload.total / payload.qty`:                      `33.33`,
		`payload.total / 2`:                                `49.995`,
		`payload.whole * 1.0 / payload.qty`:                `33.333333333333336`,
		`double(payload.whole) / payload.qty`:              `33.333333333333336`,
		`int(payload.total) / 2`:                           `49`,
		`payload.ms / 1000`:                                `1`,
		`payload.ms / 1000.0`:                              `1.5`,
		`payload.whole / 3.0 * 3.0`:                        `100`,
		`payload.qty / 7.0 + payload.qty / 7.0`:            `0.8571428571428571`,
		`payload.qty * 1.0 / 7.0 / payload.qty`:            `0.14285714285714285`,
		`-(payload.qty / 7.0)`:                             `-0.42857142857142855`,
		`payload.qty / 7.0 + payload.far`:                  ``,
		`payload.qty / 7.0 * payload.money`:                `529100524338624300`,
		`int(payload.qty / 7.0 * 7.0)`:                     `3`,
		`payload.total % payload.qty`:                      `0.99`,
		`-payload.total % payload.qty`:                     `-0.99`,
		`payload.whole % payload.qty`:                      `1`,
		`payload.far % payload.qty`:                        ``,
		`payload.lines.map(l, l.n * l.price)`:              `[60,59.97]`,
		`payload.digits + 1`:                               ``,
		`payload.hundredDigits + 0`:                        `7.` + strings.Repeat("7", 99) + `e99`,
		`payload.hundredDigits * 10`:                       `7.` + strings.Repeat("7", 99) + `e100`,
		`payload.hundredDigits * 11`:                       ``,
		`payload.tiny + 1`:                                 ``,
		`payload.tiny * payload.tiny`:                      `1e-800`,
		`payload.tiny / 3.0`:                               ``,
		`payload.deep * payload.deep`:                      ``,
		`payload.deep + payload.deep`:                      `2e50000000000000000`,
		`payload.deep + 1`:                                 ``,
		`payload.deep % 3`:                                 ``,
		`payload.deep / 3.0`:                               ``,
		`string(payload.total * payload.qty) + " EUR"`:     `"299.97 EUR"`,
		`"%.1f".format([payload.total * payload.qty])`:     `"300.0"`,
		`[payload.total * 2, payload.whole * 1.5].size()`:  `2`,
		`payload.total * payload.qty == 299.97`:            `true`,
		`payload.whole / 3.0 == payload.whole / 3.0`:       `true`,
		`payload.text + "!" + string(payload.whole * 1.0)`: `"x!100"`,
	} {
		const payload = `{"total": 99.99, "whole": 100, "qty": 3, "tenth": 0.1, "fifth": 0.20, "big": 9007199254740993, "most": 18446744073709551615,
			"far": 1e400, "tiny": 1e-400, "money": 1234567890123456789.01, "ms": 1500, "deep": 1e50000000000000000, "text": "x",
			"lines": [{"n": 3, "price": 20}, {"n": 3, "price": 19.99}]`
		got, err := mustCompile(t, text, ForVariable).JSON(input(payload +
			`, "digits": ` + strings.Repeat("7", 101) + `, "hundredDigits": ` + strings.Repeat("7", 100) + `}`))
		if (err != nil) != (want == "") || string(got) != want {
			t.Errorf("%s: got %s, %v, want %s", text, got, err, want)
		}
		if err != nil && err.Error() != "a number is out of range" {
			t.Errorf("%s: got %v", text, err)
		}
		if err == nil && !json.Valid(got) {
			t.Errorf("%s: %s is not JSON", text, got)
		}
	}
}

func TestDecimalsCalculateAsFractionsDo(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 4))
	literal := func() string {
		text := strconv.FormatInt(random.Int64()>>random.IntN(63)-int64(random.IntN(3)), 10)
		if random.IntN(2) == 0 {
			text += "." + strconv.Itoa(random.IntN(10000))
		}
		if random.IntN(3) == 0 {
			text += "e" + strconv.Itoa(random.IntN(40)-20)
		}
		return text
	}
	for range 5000 {
		x, y := literal(), literal()
		a, _ := new(big.Rat).SetString(x)
		b, _ := new(big.Rat).SetString(y)
		same := func(what string, d decimal, ok bool, want *big.Rat) {
			t.Helper()
			got, valid := new(big.Rat).SetString(d.canonical())
			if !ok || !valid || got.Cmp(want) != 0 {
				t.Fatalf("%s %s %s: got %s, %t, want %s", x, what, y, d.canonical(), ok, want.RatString())
			}
			if again := parseDecimal(d.canonical()); again != d {
				t.Fatalf("%s %s %s: %+v is not in its one form %+v", x, what, y, d, again)
			}
		}
		d, e := parseDecimal(x), parseDecimal(y)
		sum, ok := d.add(e)
		same("+", sum, ok, new(big.Rat).Add(a, b))
		difference, ok := d.add(e.negated())
		same("-", difference, ok, new(big.Rat).Sub(a, b))
		product, ok := d.times(e)
		same("*", product, ok, new(big.Rat).Mul(a, b))
		if b.Sign() == 0 {
			continue
		}
		ratio := new(big.Rat).Quo(a, b)
		quotient, exact, ok := d.divided(e)
		if exact {
			same("/", quotient, ok, ratio)
		} else if f, _ := ratio.Float64(); !ok || floatDecimal(f) != quotient {
			t.Fatalf("%s / %s: got %s, %t, want %g", x, y, quotient.canonical(), ok, f)
		}
		whole := new(big.Rat).SetInt(new(big.Int).Quo(ratio.Num(), ratio.Denom()))
		remainder, ok := d.remainder(e)
		same("%", remainder, ok, new(big.Rat).Sub(a, new(big.Rat).Mul(b, whole)))
		if d.integral() && e.integral() {
			quotient, ok := d.quotient(e)
			same("/ of integers", quotient, ok, whole)
		}
	}
}
