package pushauth

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// clock is a time that a test moves. Tokens have to be valid by the wall clock too, so it starts there.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func TestAKeyServerInTroubleIs503AndHeals(t *testing.T) {
	good := answering(200, keySetOf("k1"), "max-age=3600")
	tests := []struct {
		name   string
		answer func() (*http.Response, error)
	}{
		{"unreachable", func() (*http.Response, error) { return nil, errors.New("connection refused") }},
		{"500", answering(500, keySetOf("k1"), "max-age=3600")},
		{"404", answering(404, "", "")},
		{"204", answering(204, "", "")},
		{"a proxy's page", answering(200, "<html>log in</html>", "max-age=3600")},
		{"JSON of another kind", answering(200, `{"keys": "none"}`, "")},
		{"no keys", answering(200, `{"keys": []}`, "")},
		{"a key that is none", answering(200, `{"keys": [{"kty":"RSA","kid":"k1","n":"AQAB","e":"AQAB"}]}`, "")},
		{"more than anybody needs", answering(200, strings.Repeat(" ", maxKeysBody)+keySetOf("k1"), "")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, c := &keyServer{answer: tt.answer}, &clock{at: time.Now()}
			a := newVerifier(t, s, WithClock(c.now))
			r := request("Authorization", "Bearer "+sign(t, "k1", goodClaims(nil)))

			for range 3 {
				err := a.Check(t.Context(), r)
				if !errors.Is(err, ErrKeysUnavailable) || Status(err) != http.StatusServiceUnavailable {
					t.Fatalf("error %v, status %d; want ErrKeysUnavailable, 503", err, Status(err))
				}
			}
			if diff := cmp.Diff("401 expired", verdict(a, request("Authorization", "Bearer "+sign(t, "k1", goodClaims(map[string]any{"exp": 1}))))); diff != "" {
				t.Errorf("a bad token meanwhile (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(1, s.count()); diff != "" {
				t.Errorf("fetches within the pause (-want +got):\n%s", diff)
			}

			s.set(good)
			c.add(failurePause)
			if diff := cmp.Diff("200", verdict(a, r)); diff != "" {
				t.Errorf("after it healed (-want +got):\n%s", diff)
			}
		})
	}
}

// step moves the clock, then checks a token.
type step struct {
	after time.Duration
	token string
	want  string
	total int // fetches since the beginning
}

func TestKeysAreFetchedNoOftenerThanNeeded(t *testing.T) {
	one, two := sign(t, "k1", goodClaims(nil)), sign(t, "k2", goodClaims(nil))
	old := sign(t, "k1", goodClaims(map[string]any{"exp": 1}))
	strange := sign(t, "k1", goodClaims(map[string]any{"aud": "https://other.example"}))
	tests := []struct {
		name         string
		cacheControl string
		steps        []step
	}{
		{"once for as long as max-age says", "public, max-age=1200, must-revalidate", []step{
			{0, one, "200", 1}, {19 * time.Minute, one, "200", 1}, {time.Minute, one, "200", 2},
		}},
		{"once a minute where nothing is said", "", []step{
			{0, one, "200", 1}, {59 * time.Second, one, "200", 1}, {time.Second, one, "200", 2},
		}},
		{"once a minute where max-age cannot be read", "max-age=soon", []step{
			{0, one, "200", 1}, {59 * time.Second, one, "200", 1},
		}},
		{"not for tokens that are bad anyway", "max-age=1200", []step{
			{0, "rubbish", "401 malformed_token", 0}, {0, old, "401 expired", 0}, {0, strange, "401 audience", 0},
			{0, stripped(one), "401 signature_removed", 0},
		}},
		{"once a minute for key ids that nobody knows", "max-age=1200", []step{
			{0, two, "401 unknown_key", 1}, {30 * time.Second, two, "401 unknown_key", 1}, {0, one, "200", 1},
			{30 * time.Second, two, "401 unknown_key", 2}, {time.Second, two, "401 unknown_key", 2}, {0, one, "200", 2},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, c := &keyServer{answer: answering(200, keySetOf("k1"), tt.cacheControl)}, &clock{at: time.Now()}
			a := newVerifier(t, s, WithClock(c.now))
			for i, st := range tt.steps {
				c.add(st.after)
				got := step{st.after, st.token, verdict(a, request("Authorization", "Bearer "+st.token)), s.count()}
				if diff := cmp.Diff(st, got, cmp.AllowUnexported(step{})); diff != "" {
					t.Errorf("step %d (-want +got):\n%s", i, diff)
				}
			}
		})
	}
}

func TestAKeyBroughtInEarlyIsFoundAndKeysWithdrawnAreNotUsed(t *testing.T) {
	one, two := "Bearer "+sign(t, "k1", goodClaims(nil)), "Bearer "+sign(t, "k2", goodClaims(nil))
	s, c := &keyServer{answer: answering(200, keySetOf("k1"), "max-age=1200")}, &clock{at: time.Now()}
	a := newVerifier(t, s, WithClock(c.now))
	check := func(what, header, want string) {
		t.Helper()
		if diff := cmp.Diff(want, verdict(a, request("Authorization", header))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	check("the first key", one, "200")
	s.set(answering(200, keySetOf("k2"), "max-age=1200"))
	check("a new key within the pause", two, "401 unknown_key")
	c.add(unknownKeyPause)
	check("a new key after the pause", two, "200")
	check("the old key", one, "401 unknown_key")
	s.set(answering(500, "", ""))
	c.add(20 * time.Minute)
	check("expired keys, and the server down", two, "503")
	c.add(failurePause)
	s.set(answering(200, keySetOf("k2"), "max-age=1200"))
	check("the server back", two, "200")
}

func TestAnUnknownKeyWhileTheServerIsDownIsNotRefused(t *testing.T) {
	two := "Bearer " + sign(t, "k2", goodClaims(nil))
	s, c := &keyServer{answer: answering(200, keySetOf("k1"), "max-age=1200")}, &clock{at: time.Now()}
	a := newVerifier(t, s, WithClock(c.now))
	verdict(a, request("Authorization", two))
	s.set(answering(503, "", ""))
	c.add(unknownKeyPause)
	if diff := cmp.Diff("503", verdict(a, request("Authorization", two))); diff != "" {
		t.Errorf("unknown key (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff("200", verdict(a, request("Authorization", "Bearer "+sign(t, "k1", goodClaims(nil))))); diff != "" {
		t.Errorf("known key (-want +got):\n%s", diff)
	}
}

// gate is a transport that answers when told to, or when its request ends.
type gate struct {
	keyServer
	open chan struct{}
}

func (g *gate) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-g.open:
		return g.keyServer.RoundTrip(r)
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

func TestRequestsAtOnceShareOneFetch(t *testing.T) {
	token := "Bearer " + sign(t, "k1", goodClaims(nil))
	g := &gate{keyServer: keyServer{answer: answering(200, keySetOf("k1"), "max-age=1200")}, open: make(chan struct{})}
	a, err := New(Config{Mode: Verify, Audience: audience, Emails: []string{pusher}}, WithTransport(g))
	if err != nil {
		t.Fatal(err)
	}
	// The one who starts the fetch leaves before its end.
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() { first <- a.Check(ctx, request("Authorization", token)) }()
	cancel()
	if err := <-first; !errors.Is(err, ErrKeysUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("the one who left: %v", err)
	}
	const n = 20
	got := make(chan string, n)
	for range n {
		go func() { got <- verdict(a, request("Authorization", token)) }()
	}
	close(g.open)
	for range n {
		if diff := cmp.Diff("200", <-got); diff != "" {
			t.Errorf("verdict (-want +got):\n%s", diff)
		}
	}
	if diff := cmp.Diff(1, g.count()); diff != "" {
		t.Errorf("fetches (-want +got):\n%s", diff)
	}
}

func TestAKeyServerThatDoesNotAnswerIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &keySource{client: &http.Client{Transport: &gate{open: make(chan struct{})}}, now: time.Now}
		begin := time.Now()
		_, err := s.get(t.Context(), "k1")
		if !errors.Is(err, ErrKeysUnavailable) {
			t.Errorf("error %v, want ErrKeysUnavailable", err)
		}
		if diff := cmp.Diff(fetchTimeout, time.Since(begin)); diff != "" {
			t.Errorf("given up after (-want +got):\n%s", diff)
		}
	})
}
