package inbox

import (
	"maps"
	"slices"
	"strings"
)

// Attribute returns the value of an attribute whose name publishers spell differently: content-type, Content-Type,
// content_type and contentType are one. Where a message has several of them, the same one is taken each time: name itself,
// in lower case with hyphens, and else the first by the order of their bytes.
func Attribute(attributes map[string]string, name string) string {
	if value, ok := attributes[name]; ok {
		return value
	}
	plain := func(s string) string { return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(s)) }
	want := plain(name)
	for _, other := range slices.Sorted(maps.Keys(attributes)) {
		if plain(other) == want {
			return attributes[other]
		}
	}
	return ""
}

// ContentEncoding returns the content coding that a payload came in, such as gzip, in lower case; empty: none. The name of
// its character set, which some publishers write there, is no coding.
func ContentEncoding(attributes map[string]string) string {
	switch coding := strings.ToLower(strings.TrimSpace(Attribute(attributes, "content-encoding"))); coding {
	case "identity", "utf-8", "utf8":
		return ""
	default:
		return coding
	}
}
