package expr

import (
	"math/big"
	"strings"
)

const (
	// maxDigits bounds what is calculated with, and what comes out. The exact sum of 1e99999999 and 1 would fill the memory.
	maxDigits = 100
	// maxQuotientDigits is where a quotient counts as one without an end. 34 digits are those of a decimal128.
	maxQuotientDigits = 34
	// maxPower keeps what comes out within the exponents that parseDecimal reads.
	maxPower = 99_999_999_999_999_000
)

var (
	bigTwo  = big.NewInt(2)
	bigFive = big.NewInt(5)
	bigTen  = big.NewInt(10)
)

func power(of *big.Int, n int64) *big.Int { return new(big.Int).Exp(of, big.NewInt(n), nil) }

// small reports whether d can be calculated with.
func (d decimal) small() bool { return !d.wide && len(d.digits) <= maxDigits }

// unscaled is ±digits.
func (d decimal) unscaled() *big.Int {
	i, _ := new(big.Int).SetString("0"+d.digits, 10)
	if d.negative {
		i.Neg(i)
	}
	return i
}

// scaled makes a decimal of i × 10^exp. ok is false if it has too many digits.
func scaled(i *big.Int, exp int64) (d decimal, ok bool) {
	text, negative := strings.CutPrefix(i.String(), "-")
	d.digits = strings.TrimRight(text, "0")
	if d.digits == "" {
		return decimal{}, true
	}
	d.negative, d.exp = negative, exp+int64(len(text)-len(d.digits))
	return d, len(d.digits) <= maxDigits && d.exp > -maxPower && d.exp < maxPower
}

func (d decimal) negated() decimal {
	if d.digits != "" {
		d.negative = !d.negative
	}
	return d
}

// aligned returns both as multiples of one power of ten. ok is false if one of them has too many digits.
func (d decimal) aligned(e decimal) (a, b *big.Int, exp int64, ok bool) {
	if !d.small() || !e.small() {
		return nil, nil, 0, false
	}
	switch {
	case d.digits == "":
		return new(big.Int), e.unscaled(), e.exp, true
	case e.digits == "":
		return d.unscaled(), new(big.Int), d.exp, true
	}
	exp = min(d.exp, e.exp)
	if d.magnitude()-exp > maxDigits || e.magnitude()-exp > maxDigits {
		return nil, nil, 0, false
	}
	a = d.unscaled()
	b = e.unscaled()
	return a.Mul(a, power(bigTen, d.exp-exp)), b.Mul(b, power(bigTen, e.exp-exp)), exp, true
}

// add is exact. ok is false, here and below, for a result that has too many digits, and where it would take too much work
// to tell.
func (d decimal) add(e decimal) (sum decimal, ok bool) {
	a, b, exp, ok := d.aligned(e)
	if !ok {
		return decimal{}, false
	}
	return scaled(a.Add(a, b), exp)
}

// times is exact.
func (d decimal) times(e decimal) (product decimal, ok bool) {
	if !d.small() || !e.small() {
		return decimal{}, false
	}
	a := d.unscaled()
	return scaled(a.Mul(a, e.unscaled()), d.exp+e.exp)
}

// quotient is that of two integers, without its fraction. e is not zero.
func (d decimal) quotient(e decimal) (quotient decimal, ok bool) {
	a, b, _, ok := d.aligned(e)
	if !ok {
		return decimal{}, false
	}
	return scaled(a.Quo(a, b), 0)
}

// remainder has the sign of d. e is not zero.
func (d decimal) remainder(e decimal) (remainder decimal, ok bool) {
	a, b, exp, ok := d.aligned(e)
	if !ok {
		return decimal{}, false
	}
	return scaled(a.Rem(a, b), exp)
}

// divided is the quotient with its fraction: exact if it ends soon enough, else the double next to it. e is not zero.
func (d decimal) divided(e decimal) (quotient decimal, exact, ok bool) {
	if !d.small() || !e.small() {
		return decimal{}, false, false
	}
	a, b, exp := d.unscaled(), e.unscaled(), d.exp-e.exp
	ratio := new(big.Rat).SetFrac(a, b)
	// A fraction in its lowest terms ends if its denominator divides a power of ten.
	rest, twos := strip(ratio.Denom(), bigTwo)
	rest, fives := strip(rest, bigFive)
	if rest.IsInt64() && rest.Int64() == 1 {
		places := max(twos, fives)
		i := new(big.Int).Mul(ratio.Num(), power(bigTen, places))
		if q, ok := scaled(i.Quo(i, ratio.Denom()), exp-places); ok && len(q.digits) <= maxQuotientDigits {
			return q, true, true
		}
	}
	if exp > 2*maxExponent || exp < -2*maxExponent {
		return decimal{}, false, false
	}
	if exp >= 0 {
		ratio.Mul(ratio, new(big.Rat).SetInt(power(bigTen, exp)))
	} else {
		ratio.Quo(ratio, new(big.Rat).SetInt(power(bigTen, -exp)))
	}
	f, _ := ratio.Float64()
	if !finite(f) || (f == 0 && d.digits != "") {
		return decimal{}, false, false
	}
	return floatDecimal(f), false, true
}

// maxExponent is beyond the powers of ten of any double.
const maxExponent = 400

// strip divides i by a prime for as long as it can.
func strip(i, prime *big.Int) (rest *big.Int, times int64) {
	rest = new(big.Int).Set(i)
	for {
		q, r := new(big.Int).QuoRem(rest, prime, new(big.Int))
		if r.Sign() != 0 {
			return rest, times
		}
		rest, times = q, times+1
	}
}
