package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const claimsText = `consumer: reports
claimCheck: {threshold: 512KiB, buckets: [demo-reports, demo.claims]}
engines:
  e: {kind: http, url: "https://e.example", idempotent: true}
routes:
  - name: by-name
    match: attributes.eventType == "OBJECT_FINALIZE"
    claim: {bucket: attributes.bucketId, object: attributes.objectId, generation: attributes.objectGeneration}
    engine: e
    message: 'claim.contentType == "text/csv" ? "Table" : "Report"'
    variables: {uri: claim.uri}
  - name: short
    match: has(payload.report)
    key: payload.id
    claim: payload.report
    deadLetter: process
    engine: e
    message: Report
  - name: read
    claim: {reference: payload.report, sha256: payload.sha256, read: true, maxBytes: 32MiB}
    engine: e
    message: Report
    variables: {lines: claim.payload.lines}
`

func TestClaimsAreRead(t *testing.T) {
	cfg, warnings, err := Parse("inbox.yaml", []byte(claimsText))
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v %v", err, warnings)
	}
	if diff := cmp.Diff(ClaimCheck{Threshold: 512 << 10, Buckets: []string{"demo-reports", "demo.claims"}}, cfg.ClaimCheck); diff != "" {
		t.Error(diff)
	}
	text := func(s string) Expr { return Expr{Text: s} }
	want := []*Claim{
		{Bucket: text("attributes.bucketId"), Object: text("attributes.objectId"), Generation: text("attributes.objectGeneration"), MaxBytes: 16 << 20},
		{Reference: text("payload.report"), MaxBytes: 16 << 20},
		{Reference: text("payload.report"), SHA256: text("payload.sha256"), Read: true, MaxBytes: 32 << 20},
	}
	var got []*Claim
	for _, route := range cfg.Routes {
		got = append(got, route.Claim)
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Expr{}), cmpopts.IgnoreFields(Expr{}, "Line", "Column")); diff != "" {
		t.Error(diff)
	}
	if cfg.Routes[0].DeadLetter != DeadLetterPark || cfg.Routes[1].DeadLetter != DeadLetterProcess || cfg.Routes[0].Message.Expr.Absent() {
		t.Errorf("dead letters %s and %s, message %+v", cfg.Routes[0].DeadLetter, cfg.Routes[1].DeadLetter, cfg.Routes[0].Message)
	}
}

func TestClaimsThatCannotBe(t *testing.T) {
	for _, tt := range []struct{ old, new, want string }{
		{"threshold: 512KiB", "threshold: 0", "claimCheck.threshold: this must be from 1 to 7340032"},
		{"threshold: 512KiB", "threshold: 8MiB", "claimCheck.threshold: this must be from 1 to 7340032"},
		{"threshold: 512KiB", "threshold: 1MB", "claimCheck.threshold: this must be a size such as 1MiB"},
		{"threshold: 512KiB", "threshold: -1", "claimCheck.threshold: this must be a size such as 1MiB"},
		{"threshold: 512KiB", "threshold: [1]", "claimCheck.threshold: this must be a size such as 1MiB"},
		{"demo.claims", "gs://demo", `claimCheck.buckets[1]: "gs://demo" is no bucket's name; write it without gs:// and folders`},
		{"buckets: [demo-reports, demo.claims]", "buckets: []", "routes[0].claim: a claim needs claimCheck.buckets"},
		{"claim: {bucket: attributes.bucketId, object", "claim: {reference: payload.x, bucket: attributes.bucketId, object", "routes[0].claim: a claim has a reference, or a bucket and an object, not both"},
		{"claim: {bucket: attributes.bucketId, object", "claim: {object", "routes[0].claim: a claim needs a reference"},
		{"read: true, maxBytes: 32MiB", "maxBytes: 32MiB", "routes[2].claim.maxBytes: this bounds what is read, and without read: true nothing is"},
		{"maxBytes: 32MiB", "maxBytes: 1GiB", "routes[2].claim.maxBytes: this must be from 1 to 67108864"},
		{"maxBytes: 32MiB", "maxbytes: 32MiB", `there is no setting "maxbytes" here; did you mean "maxBytes"?`},
		{"    claim: payload.report\n", "    claim: claim.uri\n", "routes[1].claim: claim is known only when an attempt is made"},
		{"key: payload.id", "key: claim.uri", "routes[1].key: claim is known only when an attempt is made"},
		{"claim.payload.lines", "claim.lines", "routes[2].variables.lines: claim has no \"lines\"; it has uri, bucket"},
		{"    claim: payload.report\n", "    variables: {a: claim.uri}\n", "routes[1].variables.a: claim is what the route's claim refers to, and the route has none"},
		{"    claim: payload.report\n    deadLetter: process\n    engine: e\n    message: Report", "    engine: e\n    message: claim.uri", "routes[1].message: claim is what the route's claim refers to, and the route has none"},
		{"    key: payload.id\n", "", "routes[1].deadLetter: deadLetter: process needs dedupe, or a key with an order"},
		{"    key: payload.id\n", "    key: payload.id\n    order: none\n", "routes[1].deadLetter: deadLetter: process needs dedupe, or a key with an order"},
		{"deadLetter: process", "deadLetter: drop", "routes[1].deadLetter: "},
	} {
		_, _, err := Parse("f.yaml", []byte(replace(t, claimsText, tt.old, tt.new)))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: got\n%v\nwant %s", tt.new, err, tt.want)
		}
	}
	if _, _, err := Parse("f.yaml", []byte(replace(t, claimsText, "    key: payload.id\n", "    dedupe: attributes.id\n"))); err != nil {
		t.Errorf("a dead letter with an id of its own may run: %v", err)
	}
}

func TestTraceAttributesAreNamesOrTheirBeginnings(t *testing.T) {
	parse := func(names string) (*Config, error) {
		cfg, _, err := Parse("inbox.yaml", []byte(claimsText+"traceAttributes: "+names+"\n"))
		return cfg, err
	}
	cfg, err := parse(`[x-span, "hop-*"]`)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"x-span", "hop-*"}, cfg.TraceAttributes); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{`"*"`, `""`, `"a*b"`, `"**"`, `" a"`} {
		if _, err := parse(`[a, ` + bad + `]`); err == nil || !strings.Contains(err.Error(), "traceAttributes[1]: ") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
