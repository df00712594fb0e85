package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestConfigCheckNamesThePlaceOfWhatOnlyAnAdapterRefuses: the rules are the adapters' own, the places are the file's.
func TestConfigCheckNamesThePlaceOfWhatOnlyAnAdapterRefuses(t *testing.T) {
	text := `consumer: c
engines:
  z:
    kind: http
    url: "https://münchen.example"
    headers: {Accept: text/plain, Ce-Id: x, Idempotency-Key: y}
    statuses:
      "409": already_through
      4xx: drop
      "500": correlated
    maxAnswerBytes: 33554432
  a: {kind: flowable, url: "https://f.example", correlation: {variable: id}, headers: {X-A: "ä"}, auth: {kind: basic, username: "a:b", passwordEnv: P}}
routes:
  - {name: r, key: payload.key, engine: z, message: M}
  - {name: s, match: payload.s, key: payload.key, engine: a, message: M}
`
	got := runWith(t, nil, nil, text, "config", "check", "-", "--json")
	var r struct{ Faults []jsonFault }
	if err := json.Unmarshal([]byte(got.out), &r); err != nil || got.code != 1 {
		t.Fatalf("%v: %+v", err, got)
	}
	var lines []string
	for _, f := range r.Faults {
		lines = append(lines, fmt.Sprintf("%d:%d %s %s", f.Line, f.Column, f.Path, f.Message))
	}
	want := []string{
		"5:5 engines.z.url the host must be ASCII (punycode)",
		"6:35 engines.z.headers.Ce-Id Ce-Id is set by the inbox; remove it",
		"6:45 engines.z.headers.Idempotency-Key Idempotency-Key is set by the inbox; remove it",
		"9:7 engines.z.statuses.4xx 4xx must not be drop: it would close messages that nobody has handled",
		"10:7 engines.z.statuses.500 500 must not be correlated: it would close messages that nobody has handled",
		"11:5 engines.z.maxAnswerBytes must be from 1 to 16777216",
		"12:88 engines.a.headers.X-A the value has characters that no header can hold",
		"12:119 engines.a.auth.username basic needs a username, without a colon",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Error(diff)
	}
}

func TestADefaultIsSaidOnce(t *testing.T) {
	for _, command := range []string{"drain", "reconcile"} {
		got := runWith(t, nil, nil, "", command, "--help")
		for line := range strings.Lines(got.out) {
			if strings.Count(line, "default") > 1 {
				t.Errorf("%s: %s", command, line)
			}
		}
	}
}

func TestAHintIsNoWarning(t *testing.T) {
	text := configOf(`{name: r, key: payload.key, engine: e, message: M}`, `{name: s, match: payload.s, key: payload.key, engine: e, message: M}`)
	text = strings.Replace(text, "{name: r,", "{name: r, match: payload.r,", 1)
	got := runWith(t, nil, nil, text, "config", "check", "-")
	const hint = "routes[0].key: messages of one key are ordered by publish time"
	if got.code != 0 || strings.Count(got.out, "(hint)") != 1 || !strings.Contains(got.out, hint) || !strings.Contains(got.out, "order: sequence") ||
		!strings.Contains(got.out, "nothing to say against it") {
		t.Errorf("got %+v", got)
	}
	var r struct{ Warnings, Hints []jsonFault }
	err := json.Unmarshal([]byte(runWith(t, nil, nil, text, "config", "check", "-", "--json").out), &r)
	if err != nil || len(r.Warnings) != 0 || len(r.Hints) != 1 || r.Hints[0].Line != 5 {
		t.Errorf("got %+v, %v", r, err)
	}
	for _, order := range []string{"published", "received"} {
		written := strings.ReplaceAll(text, "key: payload.key", "key: payload.key, order: "+order)
		if got := runWith(t, nil, nil, written, "config", "check", "-"); got.out != "-: nothing to say against it\n" {
			t.Errorf("%s: got %+v", order, got)
		}
	}
}

func TestAListOfIdsMayBeginWithAByteOrderMark(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef"
	got, err := (&app{stdin: strings.NewReader("\ufeff" + id + "\r\n\n" + id + "\n")}).ids([]string{"-"})
	if err != nil || len(got) != 1 || got[0] != id {
		t.Errorf("got %q, %v", got, err)
	}
}
