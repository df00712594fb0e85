package pushauth

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	audience = "https://inbox-abc123-ew.a.run.app/push"
	pusher   = "pubsub-pusher@demo-proj.iam.gserviceaccount.com"
)

// keyOf answers the same key for the same id: making one is slow.
var keyOf = func() func(string) *rsa.PrivateKey {
	var mu sync.Mutex
	keys := map[string]*rsa.PrivateKey{}
	return func(kid string) *rsa.PrivateKey {
		mu.Lock()
		defer mu.Unlock()
		if keys[kid] == nil {
			k, err := rsa.GenerateKey(rand.Reader, 2048)
			if err != nil {
				panic(err)
			}
			keys[kid] = k
		}
		return keys[kid]
	}
}()

func segment(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// sign makes a token with the key of that name, under that name.
func sign(t testing.TB, kid string, claims map[string]any) string {
	t.Helper()
	content := segment(t, map[string]any{"alg": "RS256", "typ": "JWT", "kid": kid}) + "." + segment(t, claims)
	sum := sha256.Sum256([]byte(content))
	sig, err := rsa.SignPKCS1v15(rand.Reader, keyOf(kid), crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return content + "." + base64.RawURLEncoding.EncodeToString(sig)
}

// stripped is the token as Cloud Run hands it on.
func stripped(token string) string {
	return token[:strings.LastIndex(token, ".")+1] + removedSignature
}

// goodClaims are those of a push, with changes; a nil takes a claim away.
func goodClaims(changes map[string]any) map[string]any {
	now := time.Now()
	c := map[string]any{
		"iss": "https://accounts.google.com", "aud": audience, "azp": "113774264463038321964", "sub": "113774264463038321964",
		"email": pusher, "email_verified": true, "iat": now.Unix() - 10, "exp": now.Unix() + 3590,
	}
	for k, v := range changes {
		if c[k] = v; v == nil {
			delete(c, k)
		}
	}
	return c
}

func keySetOf(kids ...string) string {
	var keys []map[string]string
	for _, kid := range kids {
		pub := keyOf(kid).PublicKey
		keys = append(keys, map[string]string{
			"kty": "RSA", "alg": "RS256", "use": "sig", "kid": kid,
			"n": base64.RawURLEncoding.EncodeToString(pub.N.Bytes()),
			"e": base64.RawURLEncoding.EncodeToString(big.NewInt(int64(pub.E)).Bytes()),
		})
	}
	b, err := json.Marshal(map[string]any{"keys": keys})
	if err != nil {
		panic(err)
	}
	return string(b)
}

// keyServer is what answers in place of Google's.
type keyServer struct {
	mu      sync.Mutex
	answer  func() (*http.Response, error)
	fetches int
}

func (s *keyServer) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fetches++
	if r.URL.String() != "https://www.googleapis.com/oauth2/v3/certs" {
		return nil, fmt.Errorf("asked for %s", r.URL)
	}
	return s.answer()
}

func (s *keyServer) set(f func() (*http.Response, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = f
}

func (s *keyServer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fetches
}

// answering returns an answer of the key server; cacheControl may be empty.
func answering(status int, body, cacheControl string) func() (*http.Response, error) {
	return func() (*http.Response, error) {
		w := httptest.NewRecorder()
		if cacheControl != "" {
			w.Header().Set("Cache-Control", cacheControl)
		}
		w.WriteHeader(status)
		_, _ = w.WriteString(body)
		return w.Result(), nil
	}
}

func newVerifier(t testing.TB, s *keyServer, opts ...Option) *Authenticator {
	t.Helper()
	a, err := New(Config{Mode: Verify, Audience: audience, Emails: []string{"other@demo-proj.iam.gserviceaccount.com", pusher}},
		append([]Option{WithTransport(s)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func newEdge(t testing.TB) *Authenticator {
	t.Helper()
	a, err := New(Config{Mode: Edge, Audience: audience, Emails: []string{pusher}, OnCloudRun: true})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func request(headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

// verdict is an answer of Check in one line: "200", "403 email_missing", "503".
func verdict(a *Authenticator, r *http.Request) string {
	err := a.Check(r.Context(), r)
	var refused *Refused
	if errors.As(err, &refused) {
		return fmt.Sprint(refused.Status, " ", refused.Reason)
	}
	return fmt.Sprint(Status(err))
}
