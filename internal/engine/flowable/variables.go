package flowable

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
)

const (
	// PayloadVariable is the variable that the payload goes into where the route names no variables.
	PayloadVariable = "payload"
	// maxDigits is the longest number that Flowable's JSON reader takes.
	maxDigits = 1000
)

// variables are those of the delivery, each with its type, and the marker. The correlation variable is the key wherever it
// is set: with another value or type nobody would find the instance again.
func (e *Engine) variables(d engine.Delivery) ([]variable, *engine.Result) {
	set := make([]variable, 0, len(d.Variables)+1)
	if d.Variables == nil {
		if d.ContentEncoding != "" || !utf8.Valid(d.Payload) {
			return nil, rejected("PAYLOAD", "The payload is no text: name variables in the route.")
		}
		value, err := encode(string(d.Payload))
		if err != nil {
			return nil, rejected("PAYLOAD", "The payload is no text: name variables in the route.")
		}
		set = append(set, variable{Name: PayloadVariable, Type: "string", Value: value})
	}
	for _, name := range slices.Sorted(maps.Keys(d.Variables)) {
		if strings.HasPrefix(name, MarkerPrefix) {
			return nil, rejected("VARIABLE", "A variable's name begins with "+MarkerPrefix+", which is for markers.")
		}
		v, problem := typed(d.Variables[name], e.config.VariableTypes[name])
		if problem != "" {
			// The name is the route's, the value the message's: only the name is said.
			return nil, rejected("VARIABLE", "The variable "+name+" "+problem+".")
		}
		v.Name = name
		set = append(set, v)
	}
	set = append(set, marker(d))
	named := func(v variable) bool { return v.Name == e.config.Correlation.Variable }
	if d.Start || slices.ContainsFunc(set, named) {
		key, problem := e.keyVariable(d.Key)
		if problem != nil {
			return nil, problem
		}
		set = append(slices.DeleteFunc(set, named), key)
	}
	return set, nil
}

// keyVariable is the correlation variable with this key as its value, if the key has its type. Only the one way to write a
// number is a number: 007 is not 7.
func (e *Engine) keyVariable(key string) (variable, *engine.Result) {
	no := rejected("KEY", "The correlation key is no "+e.config.Correlation.Type+", which the correlation variable is.")
	v := variable{Name: e.config.Correlation.Variable, Type: e.config.Correlation.Type}
	bits := map[string]int{"short": 16, "integer": 32, "long": 64}[v.Type]
	if bits > 0 {
		n, err := strconv.ParseInt(key, 10, bits)
		if err != nil || strconv.FormatInt(n, 10) != key {
			return v, no
		}
		v.Value = json.RawMessage(key)
		return v, nil
	}
	if v.Type == "uuid" && !uuidPattern.MatchString(key) {
		return v, no
	}
	value, err := encode(key)
	if err != nil {
		return v, no
	}
	v.Value = value
	return v, nil
}

var (
	uuidPattern    = regexp.MustCompile(`^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$`)
	integerPattern = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
	numberPattern  = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)
)

// typed is a JSON text as a variable of Flowable, or what is wrong with it. Where no type is asked for, the text decides:
// a text is a string, a number without fraction and exponent an integer, a long or a bigInteger by its size, any other
// number a bigDecimal, and objects and lists are json. No number changes its value on the way; one that would is a
// problem.
func typed(raw json.RawMessage, want string) (variable, string) {
	if len(raw) == 0 {
		raw = json.RawMessage("null")
	}
	if !json.Valid(raw) {
		return variable{}, "is not JSON"
	}
	raw = bytes.TrimSpace(raw)
	if string(raw) == "null" {
		return variable{Value: raw}, ""
	}
	text, isText := "", raw[0] == '"'
	if isText {
		if json.Unmarshal(raw, &text) != nil {
			return variable{}, "is not JSON"
		}
	} else {
		text = string(raw)
	}
	isNumber := !isText && (raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9')
	if want == "" {
		want = naturalType(raw, isNumber)
	}
	v := variable{Type: want, Value: raw}
	quote := func() (variable, string) {
		value, err := encode(text)
		if err != nil {
			return variable{}, "is not JSON"
		}
		v.Value = value
		return v, ""
	}
	no := "is no " + want + ", which is its type"
	switch want {
	case "string":
		return quote() // of an object or a number: its JSON text, with every digit
	case "integer", "short", "long":
		bits := map[string]int{"short": 16, "integer": 32, "long": 64}[want]
		if _, err := strconv.ParseInt(text, 10, bits); err != nil || !integerPattern.MatchString(text) {
			return variable{}, no
		}
		v.Value = json.RawMessage(text)
		return v, ""
	case "bigInteger":
		if !integerPattern.MatchString(text) || len(text) > maxDigits {
			return variable{}, no
		}
		return quote()
	case "bigDecimal":
		if n, ok := decimalOf(text); !ok || n.exponent > maxDigits || n.exponent < -maxDigits || len(text) > maxDigits {
			return variable{}, no
		}
		return quote()
	case "double":
		if !isNumber {
			return variable{}, no
		}
		if !isDouble(text) {
			return variable{}, "is a number that a double would change; give the variable the type bigDecimal"
		}
		return v, ""
	case "boolean":
		if text != "true" && text != "false" || isText {
			return variable{}, no
		}
		return v, ""
	case "json":
		if !survives(raw) {
			return variable{}, "holds a number that Flowable would change: it reads numbers inside of JSON as doubles; give the variable the type string"
		}
		return v, ""
	}
	// The dates are for Flowable to read. A text that is no uuid it takes for a failure of its own.
	if !isText || want == "uuid" && !uuidPattern.MatchString(text) {
		return variable{}, no
	}
	return v, ""
}

// naturalType is the type that a JSON text has by itself.
func naturalType(raw json.RawMessage, isNumber bool) string {
	switch {
	case raw[0] == '"':
		return "string"
	case raw[0] == 't', raw[0] == 'f':
		return "boolean"
	case !isNumber:
		return "json"
	case !integerPattern.Match(raw):
		return "bigDecimal"
	}
	if n, err := strconv.ParseInt(string(raw), 10, 64); err != nil {
		return "bigInteger"
	} else if int64(int32(n)) != n {
		return "long"
	}
	return "integer"
}

// survives reports whether each number in a JSON text keeps its value when its integers are read exactly, and all others
// as doubles.
func survives(raw json.RawMessage) bool {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	for {
		token, err := dec.Token()
		if err != nil {
			return true
		}
		n, ok := token.(json.Number)
		if !ok {
			continue
		}
		if len(n) > maxDigits {
			return false
		}
		if !integerPattern.MatchString(n.String()) && !isDouble(n.String()) {
			return false
		}
	}
}

// isDouble reports whether a JSON number keeps its value when it is read as a double.
func isDouble(number string) bool {
	f, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return false
	}
	was, _ := decimalOf(number)
	is, _ := decimalOf(strconv.FormatFloat(f, 'e', -1, 64))
	return was == is
}

// decimal is a number's value: digits without zeros at either end, times ten to the exponent. Zero has no digits.
type decimal struct {
	negative bool
	digits   string
	exponent int64
}

// decimalOf reads a JSON number without computing with it: 1e999999999 is short to write.
func decimalOf(text string) (decimal, bool) {
	if !numberPattern.MatchString(text) {
		return decimal{}, false
	}
	var d decimal
	text, d.negative = strings.CutPrefix(text, "-")
	mantissa, exponent := text, ""
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		mantissa, exponent = text[:i], text[i+1:]
		n, err := strconv.ParseInt(exponent, 10, 32)
		if err != nil {
			return decimal{}, false
		}
		d.exponent = n
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	d.exponent -= int64(len(fraction))
	d.digits = strings.TrimLeft(whole+fraction, "0")
	trimmed := strings.TrimRight(d.digits, "0")
	d.exponent += int64(len(d.digits) - len(trimmed))
	d.digits = trimmed
	if d.digits == "" {
		return decimal{}, true
	}
	return d, true
}

// encode writes s as JSON, its characters as they are.
func encode(s string) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}
