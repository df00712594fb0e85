package pushauth

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBearer(t *testing.T) {
	tests := []struct {
		name   string
		header []string
		token  string
		reason string
	}{
		{name: "one blank", header: []string{"Bearer abc"}, token: "abc"},
		{name: "several blanks", header: []string{"Bearer   abc"}, token: "abc"},
		{name: "any case", header: []string{"bEARER abc"}, token: "abc"},
		{name: "blanks around", header: []string{"  Bearer abc  "}, token: "abc"},
		{name: "no header", reason: ReasonNoToken},
		{name: "an empty one", header: []string{""}, reason: ReasonNoToken},
		{name: "blanks only", header: []string{"   "}, reason: ReasonNoToken},
		{name: "the scheme alone", header: []string{"Bearer"}, reason: ReasonNoToken},
		{name: "the scheme and blanks", header: []string{"Bearer   "}, reason: ReasonNoToken},
		{name: "another scheme", header: []string{"Basic abc"}, reason: ReasonNotBearer},
		{name: "a scheme that begins alike", header: []string{"Bearerabc"}, reason: ReasonNotBearer},
		{name: "a tab", header: []string{"Bearer\tabc"}, reason: ReasonNotBearer},
		{name: "two headers", header: []string{"Bearer abc", "Bearer abc"}, reason: ReasonSeveralTokens},
		{name: "a huge one", header: []string{"Bearer " + strings.Repeat("a", maxToken+1)}, reason: ReasonMalformed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			token, refused := bearer(tt.header)
			reason := ""
			if refused != nil {
				reason = refused.Reason
			}
			if diff := cmp.Diff([]string{tt.token, tt.reason}, []string{token, reason}); diff != "" {
				t.Errorf("token, reason (-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzHeader: whatever is in the header, the answer is a token of three parts or a refusal with 401, and never a panic.
func FuzzHeader(f *testing.F) {
	good := sign(f, "k1", goodClaims(nil))
	for _, s := range []string{"", "Bearer", "Bearer " + good, "bearer  " + stripped(good), "Bearer a.b.c", "Bearer ..", "Bearer e30.e30.x", "\x00"} {
		f.Add(s, false)
	}
	f.Add("Bearer "+good, true)
	edge, err := New(Config{Mode: Edge, Audience: audience, Emails: []string{pusher}, OnCloudRun: true})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, header string, twice bool) {
		values := []string{header}
		if twice {
			values = append(values, header)
		}
		tok, err := read(values)
		var refused *Refused
		switch {
		case err == nil:
			if tok.claims == nil || tok.signature == "" || strings.Count(tok.raw, ".") != 2 {
				t.Errorf("read %+v", tok)
			}
		case !errors.As(err, &refused) || refused.Status != http.StatusUnauthorized || refused.Reason == "":
			t.Errorf("error %v", err)
		}
		if s := Status(edge.Check(t.Context(), &http.Request{Header: http.Header{"Authorization": values}})); s != 200 && s != 401 && s != 403 {
			t.Errorf("status %d", s)
		}
	})
}
