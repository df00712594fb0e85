package pushmsg

import "strconv"

// TraceParentAttribute is where Pub/Sub's client libraries carry the publisher's trace context. The traceparent header of
// a push belongs to the push itself.
const TraceParentAttribute = "googclient_traceparent"

// TraceParent returns the publisher's trace context as a W3C traceparent of version 00, or "" if there is no valid one.
// The field of a later version is rewritten as the specification asks: ids and sampled flag are kept.
// https://www.w3.org/TR/trace-context/#traceparent-header
func (e *Envelope) TraceParent() string {
	const (
		length = len("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
		zeroID = "00000000000000000000000000000000"
	)
	s := e.Attributes[TraceParentAttribute]
	if len(s) < length || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return ""
	}
	version, traceID, parentID, flags := s[:2], s[3:35], s[36:52], s[53:length]
	if !lowerHex(version) || !lowerHex(traceID) || !lowerHex(parentID) || !lowerHex(flags) {
		return ""
	}
	if version == "ff" || traceID == zeroID || parentID == zeroID[:len(parentID)] {
		return ""
	}
	if version == "00" {
		if len(s) != length {
			return ""
		}
		return s
	}
	if len(s) > length && s[length] != '-' {
		return ""
	}
	sampled := "00"
	if bits, err := strconv.ParseUint(flags, 16, 8); err == nil && bits&1 == 1 {
		sampled = "01"
	}
	return "00-" + traceID + "-" + parentID + "-" + sampled
}

func lowerHex(s string) bool {
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
