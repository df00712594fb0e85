package pushauth

import (
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestC019(t *testing.T) {
	text, err := os.ReadFile("testdata/C019.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		Name   string
		Claims json.RawMessage
		Expect string
	}
	if err := json.Unmarshal(text, &rows); err != nil {
		t.Fatal(err)
	}
	// What the table leaves open, and what this package makes of it.
	want := map[string]string{
		"ok":               "200",
		"wrong-aud":        "401 audience",
		"wrong-email":      "403 email_not_allowed",
		"email-missing":    "403 email_missing",
		"verified-missing": "403 email_not_verified",
		"verified-false":   "403 email_not_verified",
		"verified-string":  "403 email_not_verified",
		"expired":          "401 expired",
		"no-header":        "401 no_token",
		"two-spaces":       "200",
		"lowercase-scheme": "200",
	}
	verify := newVerifier(t, &keyServer{answer: answering(200, keySetOf("k1"), "max-age=3600")})
	modes := map[string]struct {
		a     *Authenticator
		token func(string) string
	}{
		"verify":                           {verify, func(s string) string { return s }},
		"edge":                             {newEdge(t), stripped},
		"edge, with the signature left on": {newEdge(t), func(s string) string { return s }},
	}
	if len(rows) != len(want) {
		t.Errorf("%d rows, want %d", len(rows), len(want))
	}
	for mode, m := range modes {
		for _, row := range rows {
			t.Run(mode+"/"+row.Name, func(t *testing.T) {
				r := request()
				var claims map[string]any
				var header string
				switch {
				case json.Unmarshal(row.Claims, &header) == nil && header != "":
					r.Header.Set("Authorization", strings.Replace(header, "<token>", m.token(sign(t, "k1", goodClaims(nil))), 1))
				case json.Unmarshal(row.Claims, &claims) == nil && claims != nil:
					offset, ok := claims["exp_offset_s"].(float64)
					if !ok {
						offset = 3600
					}
					delete(claims, "exp_offset_s")
					claims["exp"] = time.Now().Unix() + int64(offset)
					claims["iat"] = time.Now().Unix() + int64(offset) - 3600
					r.Header.Set("Authorization", "Bearer "+m.token(sign(t, "k1", claims)))
				}
				got := verdict(m.a, r)
				if diff := cmp.Diff(want[row.Name], got); diff != "" {
					t.Errorf("verdict (-want +got):\n%s", diff)
				}
				// The table's own words: one of its numbers, or acceptance.
				if status := got[:3]; !strings.Contains(row.Expect, status) && !(status == "200" && strings.Contains(row.Expect, "accept")) {
					t.Errorf("the table expects %q, got %s", row.Expect, got)
				}
			})
		}
	}
}

func TestEachClaimIsMatchedToTheLetter(t *testing.T) {
	now := time.Now().Unix()
	tests := []struct {
		name    string
		changes map[string]any
		want    string
	}{
		{"the other spelling of the issuer passes", map[string]any{"iss": "accounts.google.com"}, "200"},
		{"another issuer", map[string]any{"iss": "https://cloud.google.com/iap"}, "401 issuer"},
		{"an issuer that only begins like Google's", map[string]any{"iss": "https://accounts.google.com.evil.example"}, "401 issuer"},
		{"no issuer", map[string]any{"iss": nil}, "401 issuer"},
		{"no audience", map[string]any{"aud": nil}, "401 audience"},
		{"an audience with a slash more", map[string]any{"aud": audience + "/"}, "401 audience"},
		{"a list of audiences, ours among them", map[string]any{"aud": []string{audience}}, "401 audience"},
		{"a claim whose name differs in case is another claim", map[string]any{"email": nil, "Email": pusher}, "403 email_missing"},
		{"an address in another case", map[string]any{"email": strings.ToUpper(pusher)}, "403 email_not_allowed"},
		{"an address that contains ours", map[string]any{"email": pusher + ".evil.example"}, "403 email_not_allowed"},
		{"an address that is no string", map[string]any{"email": []string{pusher}}, "403 email_missing"},
		{"an empty address", map[string]any{"email": ""}, "403 email_missing"},
		{"a verification that is a number", map[string]any{"email_verified": 1}, "403 email_not_verified"},
		{"no expiry", map[string]any{"exp": nil}, "401 malformed_token"},
		{"an expiry that is a string", map[string]any{"exp": "9999999999"}, "401 malformed_token"},
		{"an expiry beyond all bounds", map[string]any{"exp": json.Number("99999999999999999999")}, "401 malformed_token"},
		{"an expiry in the past", map[string]any{"exp": now - 60}, "401 expired"},
		{"no time of issue", map[string]any{"iat": nil}, "200"},
		{"a time of issue in the future", map[string]any{"iat": now + 300}, "401 not_yet_valid"},
		{"a time of issue within the leeway", map[string]any{"iat": now + 5}, "200"},
		{"a time of issue that is no number", map[string]any{"iat": "x"}, "401 malformed_token"},
		{"not valid before a time to come", map[string]any{"nbf": now + 300}, "401 not_yet_valid"},
	}
	verify, edge := newVerifier(t, &keyServer{answer: answering(200, keySetOf("k1"), "max-age=3600")}), newEdge(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			token := sign(t, "k1", goodClaims(tt.changes))
			if diff := cmp.Diff(tt.want, verdict(verify, request("Authorization", "Bearer "+token))); diff != "" {
				t.Errorf("verify (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.want, verdict(edge, request("Authorization", "Bearer "+stripped(token)))); diff != "" {
				t.Errorf("edge (-want +got):\n%s", diff)
			}
		})
	}
}

func TestVerifyRefusesWhatGoogleHasNotSigned(t *testing.T) {
	good := sign(t, "k1", goodClaims(nil))
	part := strings.Split(good, ".")
	forged := segment(t, goodClaims(map[string]any{"sub": "another"}))
	header := func(alg, kid any) string { return segment(t, map[string]any{"alg": alg, "kid": kid}) }
	tests := []struct{ name, token, want string }{
		{"the real one passes", good, "200"},
		{"a body exchanged", part[0] + "." + forged + "." + part[2], "401 signature"},
		{"a signature cut short", good[:len(good)-8], "401 signature"},
		{"the signature removed by Cloud Run", stripped(good), "401 signature_removed"},
		{"another key under a known id", header("RS256", "k1") + "." + part[1] + "." + part[2], "401 signature"},
		{"a key id that Google does not have", sign(t, "k2", goodClaims(nil)), "401 unknown_key"},
		{"no key id", header("RS256", nil) + "." + part[1] + "." + part[2], "401 unknown_key"},
		{"algorithm none", header("none", "k1") + "." + part[1] + ".x", "401 algorithm"},
		{"algorithm none, and nothing after the dot", header("none", "k1") + "." + part[1] + ".", "401 malformed_token"},
		{"a shared secret", header("HS256", "k1") + "." + part[1] + "." + part[2], "401 algorithm"},
		{"ES256 with a signature too short to split", header("ES256", "k1") + "." + part[1] + ".AAAA", "401 algorithm"},
		{"no algorithm", header(nil, "k1") + "." + part[1] + "." + part[2], "401 algorithm"},
		{"a header that is not JSON", "AAAA." + part[1] + "." + part[2], "401 malformed_token"},
		{"a body that is null", part[0] + "." + segment(t, nil) + "." + part[2], "401 malformed_token"},
		{"a body with a line break in its base64", part[0] + "." + part[1][:8] + "\n" + part[1][8:] + "." + part[2], "401 malformed_token"},
		{"padding", part[0] + "." + part[1] + "=." + part[2], "401 malformed_token"},
		{"four parts", good + ".x", "401 malformed_token"},
	}
	a := newVerifier(t, &keyServer{answer: answering(200, keySetOf("k1"), "max-age=3600")})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, verdict(a, request("Authorization", "Bearer "+tt.token))); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEdgeReadsTheHeaderThatCloudRunHasVerified(t *testing.T) {
	good := "Bearer " + stripped(sign(t, "k1", goodClaims(nil)))
	stranger := "Bearer " + stripped(sign(t, "k1", goodClaims(map[string]any{"email": "a@b.example"})))
	none := "Bearer " + segment(t, map[string]any{"alg": "none"}) + "." + segment(t, goodClaims(nil)) + ".x"
	tests := []struct {
		name    string
		headers []string
		want    string
	}{
		{"Authorization alone", []string{"Authorization", good}, "200"},
		{"X-Serverless-Authorization alone", []string{"X-Serverless-Authorization", good}, "200"},
		{"it goes before a good Authorization", []string{"Authorization", good, "X-Serverless-Authorization", stranger}, "403 email_not_allowed"},
		{"also when it is empty", []string{"Authorization", good, "X-Serverless-Authorization", ""}, "401 no_token"},
		{"and Authorization does not matter then", []string{"Authorization", "Basic eA==", "X-Serverless-Authorization", good}, "200"},
		{"one header twice", []string{"Authorization", good, "Authorization", good}, "401 several_tokens"},
		{"algorithm none", []string{"Authorization", none}, "401 algorithm"},
	}
	a := newEdge(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, verdict(a, request(tt.headers...))); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEdgeAllowsClocksToDifferALittle(t *testing.T) {
	exp := time.Unix(1_900_000_000, 0)
	token := stripped(sign(t, "k1", goodClaims(map[string]any{"exp": exp.Unix(), "iat": exp.Unix() - 3600})))
	for after, want := range map[time.Duration]string{0: "200", 30 * time.Second: "200", 31 * time.Second: "401 expired"} {
		a, err := New(Config{Mode: Edge, Audience: audience, Emails: []string{pusher}, OnCloudRun: true},
			WithClock(func() time.Time { return exp.Add(after) }))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, verdict(a, request("Authorization", "Bearer "+token))); diff != "" {
			t.Errorf("%v after expiry (-want +got):\n%s", after, diff)
		}
	}
}

func TestNoneLetsEverythingPass(t *testing.T) {
	a, err := New(Config{Mode: None})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*http.Request{request(), request("Authorization", "garbage")} {
		if diff := cmp.Diff("200", verdict(a, r)); diff != "" {
			t.Errorf("verdict (-want +got):\n%s", diff)
		}
	}
}

func TestNewNamesAllFaults(t *testing.T) {
	tests := []struct {
		name string
		cfg  Config
		want []string // in the error; none: accepted
	}{
		{"edge on Cloud Run", Config{Mode: Edge, Audience: "a", Emails: []string{pusher}, OnCloudRun: true}, nil},
		{"verify anywhere", Config{Mode: Verify, Audience: "a", Emails: []string{pusher}}, nil},
		{"edge elsewhere", Config{Mode: Edge, Audience: "a", Emails: []string{pusher}}, []string{"K_SERVICE is not set"}},
		{"none on Cloud Run", Config{Mode: None, OnCloudRun: true}, []string{"K_SERVICE is set"}},
		{"nothing at all", Config{}, []string{`auth mode ""`, "audience", "no service account"}},
		{"blanks", Config{Mode: Verify, Audience: " a", Emails: []string{"", "x", " a@b", "a@b,c@d"}},
			[]string{`audience " a"`, `service account ""`, `service account "x"`, `service account " a@b"`, `service account "a@b,c@d"`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := New(tt.cfg)
			if (err == nil) != (len(tt.want) == 0) {
				t.Fatalf("error %v", err)
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error lacks %q: %v", w, err)
				}
			}
		})
	}
}

// A refusal is logged: it must say nothing that the caller has written.
func TestRefusalsQuoteNothing(t *testing.T) {
	a := newVerifier(t, &keyServer{answer: answering(200, keySetOf("k1"), "max-age=3600")})
	words := []string{"zebra@evil.example", "https://zebra.example", "zebra"}
	for _, token := range []string{
		sign(t, "k1", goodClaims(map[string]any{"email": words[0]})),
		sign(t, "k1", goodClaims(map[string]any{"aud": words[1]})),
		sign(t, "zebra", goodClaims(nil)),
		"zebra",
	} {
		err := a.Check(t.Context(), request("Authorization", "Bearer "+token))
		if err == nil {
			t.Fatal("accepted")
		}
		if slices.ContainsFunc(append(words, token), func(w string) bool { return strings.Contains(err.Error(), w) }) {
			t.Errorf("error quotes the token: %v", err)
		}
	}
}
