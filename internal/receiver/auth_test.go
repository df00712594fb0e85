package receiver_test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math/big"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/pushauth"
)

// keys are those of the pretended key server.
type keys struct {
	private *rsa.PrivateKey
	broken  bool
}

// RoundTrip answers in place of Google's key server.
func (k *keys) RoundTrip(*http.Request) (*http.Response, error) {
	if k.broken {
		return nil, errors.New("no route to host")
	}
	n := base64.RawURLEncoding.EncodeToString(k.private.N.Bytes())
	e := base64.RawURLEncoding.EncodeToString(big.NewInt(int64(k.private.E)).Bytes())
	body := `{"keys":[{"kty":"RSA","alg":"RS256","use":"sig","kid":"1","n":"` + n + `","e":"` + e + `"}]}`
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
}

func (k *keys) sign(t *testing.T, claims map[string]any) string {
	t.Helper()
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	content := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256","kid":"1","typ":"JWT"}`)) + "." + base64.RawURLEncoding.EncodeToString(payload)
	sum := sha256.Sum256([]byte(content))
	signature, err := rsa.SignPKCS1v15(rand.Reader, k.private, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return content + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func newKeys(t *testing.T) *keys {
	t.Helper()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return &keys{private: private}
}

func verifying(t *testing.T, k *keys) *pushauth.Authenticator {
	t.Helper()
	auth, err := pushauth.New(pushauth.Config{Mode: pushauth.Verify, Audience: "https://inbox-abc123-ew.a.run.app/push",
		Emails: []string{"pubsub-pusher@demo-proj.iam.gserviceaccount.com"}}, pushauth.WithTransport(k))
	if err != nil {
		t.Fatal(err)
	}
	return auth
}

// tokenCase is one element of C019: claims, or the way in which a good token is sent, or nothing.
type tokenCase struct {
	Name   string `json:"name"`
	Claims any    `json:"claims"`
	Expect string `json:"expect"`
}

func (c tokenCase) headers(t *testing.T, k *keys) []string {
	claims := map[string]any{"iss": "https://accounts.google.com", "aud": "https://inbox-abc123-ew.a.run.app/push",
		"email": "pubsub-pusher@demo-proj.iam.gserviceaccount.com", "email_verified": true, "exp": time.Now().Unix() + 3600}
	switch given := c.Claims.(type) {
	case map[string]any:
		exp := time.Now().Unix() + 3600
		if offset, ok := given["exp_offset_s"].(float64); ok {
			exp = time.Now().Unix() + int64(offset)
		}
		claims = maps.Clone(given)
		claims["exp"] = exp
		return []string{"Authorization", "Bearer " + k.sign(t, claims)}
	case string:
		return []string{"Authorization", strings.ReplaceAll(given, "<token>", k.sign(t, claims))}
	}
	return nil
}

func TestC019OnlyTheSubscriptionsOwnIdentityReachesTheStore(t *testing.T) {
	text, err := os.ReadFile("testdata/C019.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []tokenCase
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	// Where the case leaves a choice.
	chosen := map[string]struct {
		status int
		reason string
	}{
		"ok": {204, ""}, "wrong-aud": {401, pushauth.ReasonAudience}, "wrong-email": {403, pushauth.ReasonEmailNotAllowed},
		"email-missing": {403, pushauth.ReasonNoEmail}, "verified-missing": {403, pushauth.ReasonEmailNotVerified},
		"verified-false": {403, pushauth.ReasonEmailNotVerified}, "verified-string": {403, pushauth.ReasonEmailNotVerified},
		"expired": {401, pushauth.ReasonExpired}, "no-header": {401, pushauth.ReasonNoToken}, "two-spaces": {204, ""},
		"lowercase-scheme": {204, ""},
	}
	k := newKeys(t)
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			w := newWorld(t, anyRoute)
			want, ok := chosen[c.Name]
			if !ok {
				t.Fatalf("an unknown case: %s", c.Expect)
			}
			got := post(w.endpointOf(w.receiver(w.store), verifying(t, k)), canaries().body(t), c.headers(t, k)...)
			if got.Code != want.status {
				t.Errorf("status %d, want %d (%s)", got.Code, want.status, c.Expect)
			}
			checkDiscreet(t, w, got)
			if want.status == 204 {
				w.one()
				return
			}
			if n := w.count("Messages"); n != 0 {
				t.Errorf("%d rows of a stranger", n)
			}
			if !strings.Contains(w.log.String(), "request refused: "+want.reason) {
				t.Errorf("the log does not say %s", want.reason)
			}
		})
	}
}

func TestC019WithoutKeysNothingIsSaidAboutACaller(t *testing.T) {
	w := newWorld(t, anyRoute)
	k := newKeys(t)
	k.broken = true
	token := k.sign(t, map[string]any{"iss": "https://accounts.google.com", "aud": "https://inbox-abc123-ew.a.run.app/push",
		"email": "pubsub-pusher@demo-proj.iam.gserviceaccount.com", "email_verified": true, "exp": time.Now().Add(time.Hour).Unix()})
	if got := post(w.endpointOf(w.receiver(w.store), verifying(t, k)), message{ID: "1"}.body(t), "Authorization", "Bearer "+token); got.Code != 503 {
		t.Errorf("status %d", got.Code)
	}
	if n := w.count("Messages"); n != 0 {
		t.Errorf("%d rows", n)
	}
}

func TestC086AnEmulatorsPushIsTakenLocallyAndRefusedWhereTokensAreAskedFor(t *testing.T) {
	w := newWorld(t, anyRoute)
	body := input(t, "C086")[0]
	if got := post(w.endpointOf(w.receiver(w.store), verifying(t, newKeys(t))), body); got.Code != 401 {
		t.Errorf("deployed: status %d", got.Code)
	}
	if n := w.count("Messages"); n != 0 {
		t.Errorf("%d rows of a stranger", n)
	}
	if got := w.post(body); got != 204 {
		t.Errorf("locally: status %d", got)
	}
	r := w.one()
	if r.MessageID != "7" || r.Subscription != "projects/local/subscriptions/local-test" || !r.PublishedAt.IsZero() || !r.OrderedAt.Equal(wallClock) ||
		r.Body != `{"a":1}` || len(r.Attributes) != 0 || r.Status != "RECEIVED" {
		t.Errorf("the row is %+v", r)
	}
}
