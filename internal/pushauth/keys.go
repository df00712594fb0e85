package pushauth

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// certsURL is where Google publishes the keys of its ID tokens; idtoken asks for the same.
const certsURL = "https://www.googleapis.com/oauth2/v3/certs"

const (
	fetchTimeout    = 5 * time.Second
	maxKeysBody     = 1 << 20
	minKeysAge      = time.Minute     // also if Cache-Control says less, or nothing
	maxKeysAge      = 24 * time.Hour  // also if it says more
	failurePause    = 2 * time.Second // after a failed fetch
	unknownKeyPause = time.Minute     // between fetches for the sake of unknown key ids
)

// jwk is what an RSA key needs; idtoken reads the same members.
type jwk struct {
	Kty string `json:"kty"`
	Kid string `json:"kid"`
	Alg string `json:"alg,omitempty"`
	Use string `json:"use,omitempty"`
	N   string `json:"n"`
	E   string `json:"e"`
}

// keySet is one answer of the key server. It does not change.
type keySet struct {
	ids     map[string]bool
	body    []byte // {"keys": [...]}, usable keys only
	fetched time.Time
	expires time.Time
}

func (s *keySet) has(kid string) bool { return s.ids[kid] }

// keySource keeps the newest key set. idtoken has a cache of its own, but one that fetches for every request while the
// server is down or sends no max-age, and that does not fetch for a new key before the old answer has expired. So it
// gets its keys from here (keysOfContext), and never from the network.
type keySource struct {
	client *http.Client
	now    func() time.Time

	mu       sync.Mutex
	set      *keySet
	flight   *flight // the fetch under way, if any
	failure  error   // of the last fetch; nil if it succeeded
	failedAt time.Time
}

// flight is one fetch and those who wait for it. set and err are read after done is closed.
type flight struct {
	done chan struct{}
	set  *keySet
	err  error
}

// get returns a key set that is not expired. It holds kid, or was fetched so lately that kid must be an invention. Every
// error is ErrKeysUnavailable.
func (s *keySource) get(ctx context.Context, kid string) (*keySet, error) {
	set, f, err := s.lookup(ctx, kid)
	if f == nil {
		return set, err
	}
	select {
	case <-f.done:
		return f.set, f.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrKeysUnavailable, context.Cause(ctx))
	}
}

// lookup answers from what is known, or names the fetch to wait for.
func (s *keySource) lookup(ctx context.Context, kid string) (*keySet, *flight, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if s.set != nil && now.Before(s.set.expires) && (s.set.has(kid) || now.Before(s.set.fetched.Add(unknownKeyPause))) {
		return s.set, nil, nil
	}
	if s.flight != nil {
		return nil, s.flight, nil
	}
	if s.failure != nil && now.Before(s.failedAt.Add(failurePause)) {
		return nil, nil, s.failure
	}
	s.flight = &flight{done: make(chan struct{})}
	// Not the request's own context: others wait for this fetch too.
	go s.fly(context.WithoutCancel(ctx), s.flight)
	return nil, s.flight, nil
}

func (s *keySource) fly(ctx context.Context, f *flight) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	f.set, f.err = s.fetch(ctx)
	if f.err != nil {
		f.err = fmt.Errorf("%w: %w", ErrKeysUnavailable, f.err)
	}
	s.mu.Lock()
	s.flight = nil
	s.failure, s.failedAt = f.err, s.now()
	if f.err == nil {
		s.set = f.set
	}
	s.mu.Unlock()
	close(f.done)
}

func (s *keySource) fetch(ctx context.Context) (*keySet, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, certsURL, nil)
	if err != nil {
		return nil, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("key server answered %d", resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxKeysBody+1))
	if err != nil {
		return nil, fmt.Errorf("key server: %w", err)
	}
	if len(body) > maxKeysBody {
		return nil, fmt.Errorf("key server sent more than %d bytes", maxKeysBody)
	}
	set, err := parseKeys(body)
	if err != nil {
		return nil, err
	}
	set.fetched = s.now()
	set.expires = set.fetched.Add(lifetime(resp.Header))
	return set, nil
}

// parseKeys keeps the keys an RS256 signature can be checked with. An answer without any is a broken one: a proxy's page,
// or a server in trouble.
func parseKeys(body []byte) (*keySet, error) {
	var in struct {
		Keys []jwk `json:"keys"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, fmt.Errorf("key server's answer is not a key set: %w", err)
	}
	set := &keySet{ids: map[string]bool{}}
	var usable []jwk
	for _, k := range in.Keys {
		if k.usable() && !set.ids[k.Kid] {
			set.ids[k.Kid] = true
			usable = append(usable, k)
		}
	}
	if len(usable) == 0 {
		return nil, fmt.Errorf("key server's answer has no usable key")
	}
	var err error
	set.body, err = json.Marshal(map[string]any{"keys": usable})
	return set, err
}

func (k jwk) usable() bool {
	n, errN := base64.RawURLEncoding.DecodeString(k.N)
	e, errE := base64.RawURLEncoding.DecodeString(k.E)
	if errN != nil || errE != nil || len(e) > 4 || k.Kid == "" || k.Kty != "RSA" {
		return false
	}
	if (k.Alg != "" && k.Alg != "RS256") || (k.Use != "" && k.Use != "sig") {
		return false
	}
	modulus, exponent := new(big.Int).SetBytes(n), new(big.Int).SetBytes(e).Int64()
	return modulus.BitLen() >= 2048 && exponent >= 3 && exponent < 1<<31 && exponent%2 == 1
}

// lifetime is max-age less Age, within our bounds.
func lifetime(h http.Header) time.Duration {
	var age int64
	for _, d := range strings.Split(h.Get("Cache-Control"), ",") {
		if v, ok := strings.CutPrefix(strings.ToLower(strings.TrimSpace(d)), "max-age="); ok {
			age, _ = strconv.ParseInt(v, 10, 32)
		}
	}
	if spent, err := strconv.ParseInt(strings.TrimSpace(h.Get("Age")), 10, 32); err == nil && spent > 0 {
		age -= spent
	}
	return min(max(time.Duration(age)*time.Second, minKeysAge), maxKeysAge)
}

type keysKey struct{}

func withKeys(ctx context.Context, s *keySet) context.Context {
	return context.WithValue(ctx, keysKey{}, s)
}

// keysOfContext answers idtoken's request for keys with the set in the request's context. The answer is out of date at
// once, so that idtoken's cache never keeps it.
type keysOfContext struct{}

func (keysOfContext) RoundTrip(req *http.Request) (*http.Response, error) {
	set, ok := req.Context().Value(keysKey{}).(*keySet)
	if !ok || req.URL.String() != certsURL {
		return nil, fmt.Errorf("%w: idtoken asked for other keys than ours", ErrKeysUnavailable)
	}
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        http.Header{"Content-Type": {"application/json"}, "Cache-Control": {"max-age=0"}, "Age": {"1"}},
		Body:          io.NopCloser(bytes.NewReader(set.body)),
		ContentLength: int64(len(set.body)),
		Request:       req,
	}, nil
}
