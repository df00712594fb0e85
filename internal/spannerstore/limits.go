package spannerstore

import (
	"fmt"
	"unicode/utf8"

	"cloud.google.com/go/spanner"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// widths are the STRING columns that an arrival fills, with the characters that each takes.
var widths = map[string]int{
	"InboxId": 32, "Consumer": 128, "Scope": 1024, "DedupeKey": 4096, "TransportKey": 32, "Subscription": 1024, "MessageId": 1024,
	"OrderingKey": 1024, "MessageType": 256, "MessageVersion": 256, "Route": 128, "TenantId": 256, "AggregateType": 256,
	"CorrelationId": 256, "CausationId": 256, "TraceParent": 64, "LaneId": 32, "CorrelationKey": 1024, "Status": 16, "Reason": 64,
	"LastErrorMessage": 2048, "ContentSha256": 64, "PayloadSha256": 64, "PayloadLocation": 2048, "ReplayOf": 32,
	"ConflictsWith": 32, "ClaimUri": 2048, "ClaimSha256": 64, "ContentType": 256,
}

// checkTexts returns an inbox.ErrRefused that names the first column whose text the database would not take. Asked for all the
// same, it answers FAILED_PRECONDITION, or its client INTERNAL, which faults of the server do too: so these codes never mean
// that a value is refused.
func checkTexts(columns []string, values []any) error {
	for i, column := range columns {
		text, ok := values[i].(string)
		if null, isNull := values[i].(spanner.NullString); isNull {
			text, ok = null.StringVal, null.Valid
		}
		switch {
		case !ok:
		case !utf8.ValidString(text):
			return fmt.Errorf("%w: %s is not valid UTF-8", inbox.ErrRefused, column)
		case utf8.RuneCountInString(text) > widths[column]:
			return fmt.Errorf("%w: %s takes %d characters", inbox.ErrRefused, column, widths[column])
		}
	}
	return nil
}
