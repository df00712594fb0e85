package inbox

import (
	"strings"
	"unicode/utf8"
)

// Limits of the columns, in bytes. Spanner counts characters, so these are on the safe side. What identifies or orders a
// message is never cut: over the limit it is a CONTRACT fault. Descriptive texts are cut.
const (
	MaxKey             = 1024
	MaxDedupeKey       = 4096
	MaxTransport       = 1024 // message id, subscription, ordering key
	MaxType            = 256  // also version, tenant, aggregate type, correlation id, causation id
	MaxErrorCode       = 128
	MaxErrorMessage    = 2048
	MaxEngineReference = 1024
	// MaxInlinePayload is the largest payload stored in the row itself: with base64, indexes and attributes it stays
	// well inside Spanner's 10 MiB for a request and for a cell.
	MaxInlinePayload = 7 << 20
	// MaxAttributes bounds the names and values of a message's attributes together. Pub/Sub allows 100 attributes of
	// 256 + 1024 bytes.
	MaxAttributes = 512 << 10
)

// Text returns s as valid UTF-8 of at most limit bytes, cut at a character: Spanner refuses anything else, and a refused
// error text would lose the result that it describes.
func Text(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	cut := limit
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut]
}
