package pushauth

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
)

// maxToken bounds a token; Google's have about a kilobyte.
const maxToken = 16 << 10

// removedSignature is what Cloud Run leaves of a signature that it has checked.
const removedSignature = "SIGNATURE_REMOVED_BY_GOOGLE"

// token is a JSON Web Token in compact form, taken apart. Nothing in it is verified.
type token struct {
	raw       string
	alg, kid  string
	claims    claims
	signature string // as it came; never empty
}

// read takes the token out of the values of one header.
func read(header []string) (*token, error) {
	raw, refused := bearer(header)
	if refused != nil {
		return nil, refused
	}
	return parse(raw)
}

// bearer reads "Bearer TOKEN". The scheme's letters may be of either case and any number of blanks may follow it, as
// RFC 9110 has it.
func bearer(header []string) (string, *Refused) {
	switch len(header) {
	case 0:
		return "", unauthenticated(ReasonNoToken)
	case 1:
	default:
		return "", unauthenticated(ReasonSeveralTokens)
	}
	value := strings.Trim(header[0], " ")
	if value == "" {
		return "", unauthenticated(ReasonNoToken)
	}
	scheme, rest, _ := strings.Cut(value, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", unauthenticated(ReasonNotBearer)
	}
	raw := strings.TrimLeft(rest, " ")
	if raw == "" {
		return "", unauthenticated(ReasonNoToken)
	}
	if len(raw) > maxToken {
		return "", unauthenticated(ReasonMalformed)
	}
	return raw, nil
}

func parse(raw string) (*token, error) {
	malformed := unauthenticated(ReasonMalformed)
	part := strings.Split(raw, ".")
	if len(part) != 3 || part[2] == "" || !isBase64URL(part[2]) {
		return nil, malformed
	}
	header, ok := object(part[0])
	if !ok {
		return nil, malformed
	}
	body, ok := object(part[1])
	if !ok {
		return nil, malformed
	}
	t := &token{raw: raw, claims: body, signature: part[2]}
	if t.alg, ok = header.text("alg"); !ok {
		return nil, unauthenticated(ReasonAlgorithm)
	}
	t.kid, _ = header.text("kid")
	return t, nil
}

func isBase64URL(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// claims are a JSON object's members. Names are matched to the letter, which decoding into a struct would not do.
type claims map[string]json.RawMessage

func object(segment string) (claims, bool) {
	if !isBase64URL(segment) { // the decoder would skip line breaks
		return nil, false
	}
	text, err := base64.RawURLEncoding.DecodeString(segment)
	if err != nil {
		return nil, false
	}
	var c claims
	if err := json.Unmarshal(text, &c); err != nil || c == nil {
		return nil, false
	}
	return c, true
}

func (c claims) has(name string) bool { _, ok := c[name]; return ok }

// text is a claim that is a JSON string; an array of one, or a number, is none.
func (c claims) text(name string) (string, bool) {
	v := bytes.TrimSpace(c[name])
	var s string
	if len(v) == 0 || v[0] != '"' || json.Unmarshal(v, &s) != nil {
		return "", false
	}
	return s, true
}

// isTrue is a claim that is JSON's true, not a string that says so.
func (c claims) isTrue(name string) bool { return string(bytes.TrimSpace(c[name])) == "true" }

// time is a claim that is a whole number of seconds; Google writes no fractions. Numbers that would not leave room to
// add a leeway are none.
func (c claims) time(name string) (int64, bool) {
	n, err := strconv.ParseInt(string(bytes.TrimSpace(c[name])), 10, 64)
	return n, err == nil && n >= 0 && n < 1<<40
}
