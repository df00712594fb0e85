package inbox

import "time"

// Content is what a message says, read after its claim.
type Content struct {
	ID              string
	Scope           string
	DedupeKey       string
	Subscription    string
	MessageID       string
	OrderingKey     string
	PublishedAt     time.Time
	Type            string
	Version         string
	TenantID        string
	AggregateType   string
	CorrelationID   string
	CausationID     string
	TraceParent     string
	Attributes      map[string]string
	PayloadSHA256   string
	PayloadBytes    int64
	PayloadLocation string
	Body            []byte
	ContentType     string
	HasBody         bool // false: the payload row has been deleted
}
