package expr

import (
	"cmp"
	"math"
	"strconv"
	"strings"
)

// decimal is ±digits × 10^exp, exactly. digits has neither leading nor trailing zeros, and is empty for zero, so that
// equal values have equal fields, whatever their literal. Its arithmetic is on texts: a literal such as 1e999999999 costs
// what its text costs.
type decimal struct {
	negative bool
	digits   string
	exp      int64
	// wide: the exponent does not fit, and exp is not set.
	wide bool
}

// parseDecimal parses a JSON number literal, or what strconv writes.
func parseDecimal(literal string) decimal {
	var d decimal
	mantissa, exponent, _ := strings.Cut(strings.ToLower(literal), "e")
	mantissa, d.negative = strings.CutPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	d.exp = -int64(len(fraction))
	d.digits = strings.TrimRight(digits, "0")
	d.exp += int64(len(digits) - len(d.digits))
	if d.digits == "" {
		return decimal{}
	}
	exponent, negative := strings.CutPrefix(exponent, "-")
	exponent = strings.TrimLeft(strings.TrimPrefix(exponent, "+"), "0")
	if len(exponent) > 17 {
		d.wide = true
		return d
	}
	if exponent != "" {
		e, _ := strconv.ParseInt(exponent, 10, 64)
		if negative {
			e = -e
		}
		d.exp += e
	}
	return d
}

func floatDecimal(f float64) decimal { return parseDecimal(strconv.FormatFloat(f, 'e', -1, 64)) }

// compare returns -1, 0 or 1. Neither may be wide.
func (d decimal) compare(e decimal) int {
	switch {
	case d.digits == "" || e.digits == "" || d.negative != e.negative:
		return cmp.Compare(d.sign(), e.sign())
	case d.negative:
		return e.compareMagnitude(d)
	}
	return d.compareMagnitude(e)
}

func (d decimal) compareMagnitude(e decimal) int {
	// Without leading and trailing zeros the longer whole part is the larger, and then texts compare like numbers.
	if c := d.magnitude() - e.magnitude(); c != 0 {
		return cmp.Compare(c, 0)
	}
	return strings.Compare(d.digits, e.digits)
}

// magnitude is the number of digits before the point; negative: zeros after it.
func (d decimal) magnitude() int64 { return d.exp + int64(len(d.digits)) }

func (d decimal) sign() int {
	switch {
	case d.digits == "":
		return 0
	case d.negative:
		return -1
	}
	return 1
}

// Plain texts up to here, scientific ones beyond: a key must not grow to the size of its exponent.
const (
	maxPlainMagnitude = 40
	minPlainMagnitude = -10
)

// canonical is one text for one value: 1, 1.0 and 10e-1 are "1". Not for wide ones.
func (d decimal) canonical() string {
	if d.digits == "" {
		return "0"
	}
	sign := ""
	if d.negative {
		sign = "-"
	}
	m := d.magnitude()
	switch {
	case m > maxPlainMagnitude || m < minPlainMagnitude:
		text := d.digits[:1]
		if len(d.digits) > 1 {
			text += "." + d.digits[1:]
		}
		return sign + text + "e" + strconv.FormatInt(m-1, 10)
	case d.exp >= 0:
		return sign + d.digits + strings.Repeat("0", int(d.exp))
	case m <= 0:
		return sign + "0." + strings.Repeat("0", int(-m)) + d.digits
	}
	return sign + d.digits[:m] + "." + d.digits[m:]
}

func (d decimal) integral() bool { return !d.wide && (d.digits == "" || d.exp >= 0) }

// truncated drops the fraction.
func (d decimal) truncated() decimal {
	m := d.magnitude()
	switch {
	case d.digits == "" || d.exp >= 0:
		return d
	case m <= 0:
		return decimal{}
	}
	d.digits = strings.TrimRight(d.digits[:m], "0")
	d.exp = m - int64(len(d.digits))
	return d
}

// int64 returns the value if it is an integer within the range.
func (d decimal) int64() (int64, bool) {
	if !d.integral() || d.magnitude() > 19 {
		return 0, false
	}
	n, err := strconv.ParseInt(d.canonical(), 10, 64)
	return n, err == nil
}

func (d decimal) uint64() (uint64, bool) {
	if !d.integral() || d.negative || d.magnitude() > 20 {
		return 0, false
	}
	n, err := strconv.ParseUint(d.canonical(), 10, 64)
	return n, err == nil
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// Reasonable reports whether a number's value can be written out in full.
func Reasonable(literal string) bool {
	const limit = 5000
	d := parseDecimal(literal)
	return !d.wide && d.magnitude() < limit && d.exp > -limit
}
