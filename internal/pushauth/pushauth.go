package pushauth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/api/idtoken"
	"google.golang.org/api/option"
)

// Mode says where a token is verified.
type Mode string

const (
	Edge   Mode = "edge"   // by Cloud Run's IAM, in front of us; claims are matched here
	Verify Mode = "verify" // here
	None   Mode = "none"   // nowhere
)

// Config says who may call. Each function has its own.
type Config struct {
	Mode Mode
	// Audience is the one that a token must name, to the letter.
	Audience string
	// Emails are the service accounts that may call, to the letter.
	Emails []string
	// OnCloudRun says whether this process runs there (K_SERVICE is set).
	OnCloudRun bool
}

// Validate answers all faults of the configuration, joined.
func (c Config) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	switch c.Mode {
	case None:
		if c.OnCloudRun {
			fault("auth mode none lets everybody in: not allowed on Cloud Run (K_SERVICE is set)")
		}
		return errors.Join(faults...)
	case Edge:
		if !c.OnCloudRun {
			fault("auth mode edge trusts Cloud Run's IAM check: not allowed elsewhere (K_SERVICE is not set)")
		}
	case Verify:
	default:
		fault("auth mode %q: not one of edge, verify, none", string(c.Mode))
	}
	if c.Audience == "" || strings.TrimSpace(c.Audience) != c.Audience {
		fault("audience %q: empty, or with blanks around it", c.Audience)
	}
	if len(c.Emails) == 0 {
		fault("no service account may call: the list of e-mail addresses is empty")
	}
	for _, e := range c.Emails {
		if at := strings.Index(e, "@"); at <= 0 || at == len(e)-1 || strings.ContainsAny(e, " \t\r\n,") {
			fault("service account %q: not an e-mail address", e)
		}
	}
	return errors.Join(faults...)
}

// ErrKeysUnavailable means that Google's keys could not be had: the token may be good or bad.
var ErrKeysUnavailable = errors.New("keys to verify tokens are unavailable")

// Refused is the refusal of a request.
type Refused struct {
	Status int // 401 or 403
	Reason string
}

func (r *Refused) Error() string { return "request refused: " + r.Reason }

// Reasons of a refusal. The e-mail ones are 403, the others 401.
const (
	ReasonNoToken          = "no_token"
	ReasonSeveralTokens    = "several_tokens"
	ReasonNotBearer        = "not_bearer"
	ReasonMalformed        = "malformed_token"
	ReasonSignatureRemoved = "signature_removed" // verify behind Cloud Run's IAM: AUTH_MODE should be edge
	ReasonAlgorithm        = "algorithm"
	ReasonIssuer           = "issuer"
	ReasonAudience         = "audience"
	ReasonExpired          = "expired"
	ReasonNotYetValid      = "not_yet_valid"
	ReasonUnknownKey       = "unknown_key"
	ReasonSignature        = "signature"
	ReasonNoEmail          = "email_missing"
	ReasonEmailNotVerified = "email_not_verified"
	ReasonEmailNotAllowed  = "email_not_allowed"
)

func unauthenticated(reason string) *Refused {
	return &Refused{Status: http.StatusUnauthorized, Reason: reason}
}

func forbidden(reason string) *Refused {
	return &Refused{Status: http.StatusForbidden, Reason: reason}
}

// Status is the HTTP status for an answer of Check: 200 for nil (the caller goes on), and 503 for whatever is not a
// refusal.
func Status(err error) int {
	var refused *Refused
	switch {
	case err == nil:
		return http.StatusOK
	case errors.As(err, &refused):
		return refused.Status
	}
	return http.StatusServiceUnavailable
}

// leeway is how far a caller's clock and ours may be apart.
const leeway = 30 * time.Second

// Authenticator checks requests.
type Authenticator struct {
	cfg       Config
	now       func() time.Time
	transport http.RoundTripper
	keys      *keySource         // verify only
	validator *idtoken.Validator // verify only
}

// Option changes what New builds.
type Option func(*Authenticator)

// WithClock gives another time than the wall clock's, in which tokens and keys expire. In verify a token must be valid
// by the wall clock too.
func WithClock(now func() time.Time) Option { return func(a *Authenticator) { a.now = now } }

// WithTransport gives the transport by which keys are fetched.
func WithTransport(rt http.RoundTripper) Option { return func(a *Authenticator) { a.transport = rt } }

// New refuses a faulty configuration with all its faults. It opens no connection.
func New(cfg Config, opts ...Option) (*Authenticator, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Emails = slices.Clone(cfg.Emails)
	a := &Authenticator{cfg: cfg, now: time.Now, transport: http.DefaultTransport}
	for _, o := range opts {
		o(a)
	}
	if cfg.Mode != Verify {
		return a, nil
	}
	a.keys = &keySource{client: &http.Client{Transport: a.transport}, now: a.now}
	v, err := idtoken.NewValidator(context.Background(), option.WithHTTPClient(&http.Client{Transport: keysOfContext{}}))
	if err != nil {
		return nil, fmt.Errorf("token validator: %w", err)
	}
	a.validator = v
	return a, nil
}

// Check answers nil if the request comes from a caller that is allowed; see the package for the rest. It reads headers
// only.
func (a *Authenticator) Check(ctx context.Context, r *http.Request) error {
	var err error
	switch a.cfg.Mode {
	case None:
		return nil
	case Edge:
		header := "Authorization"
		if len(r.Header.Values("X-Serverless-Authorization")) > 0 {
			header = "X-Serverless-Authorization"
		}
		err = a.checkEdge(r.Header.Values(header))
	default:
		err = a.checkHere(ctx, r.Header.Values("Authorization"))
	}
	return err
}

func (a *Authenticator) checkEdge(header []string) error {
	t, err := read(header)
	if err != nil {
		return err
	}
	if t.alg != "RS256" && t.alg != "ES256" {
		return unauthenticated(ReasonAlgorithm)
	}
	if err := a.checkClaims(t.claims, leeway); err != nil {
		return err
	}
	return a.checkEmail(t.claims)
}

// checkHere does what needs no key first, so that keys are fetched only for tokens that would pass with a good
// signature. The address comes last: 403 is for callers whose identity is proven.
func (a *Authenticator) checkHere(ctx context.Context, header []string) error {
	t, err := read(header)
	if err != nil {
		return err
	}
	if t.signature == removedSignature {
		return unauthenticated(ReasonSignatureRemoved)
	}
	if t.alg != "RS256" {
		return unauthenticated(ReasonAlgorithm)
	}
	if err := a.checkClaims(t.claims, 0); err != nil {
		return err
	}
	keys, err := a.keys.get(ctx, t.kid)
	if err != nil {
		return err
	}
	if !keys.has(t.kid) {
		return unauthenticated(ReasonUnknownKey)
	}
	if _, err := a.validator.Validate(withKeys(ctx, keys), t.raw, a.cfg.Audience); err != nil {
		if errors.Is(err, ErrKeysUnavailable) {
			return err
		}
		return unauthenticated(ReasonSignature) // the error may quote the token: it goes no further
	}
	return a.checkEmail(t.claims)
}

func (a *Authenticator) checkClaims(c claims, late time.Duration) error {
	if iss, _ := c.text("iss"); iss != "https://accounts.google.com" && iss != "accounts.google.com" {
		return unauthenticated(ReasonIssuer)
	}
	if aud, _ := c.text("aud"); aud != a.cfg.Audience { // an audience is never empty
		return unauthenticated(ReasonAudience)
	}
	now := a.now()
	exp, ok := c.time("exp")
	if !ok {
		return unauthenticated(ReasonMalformed)
	}
	if now.Unix() > exp+int64(late.Seconds()) {
		return unauthenticated(ReasonExpired)
	}
	for _, name := range []string{"iat", "nbf"} {
		if !c.has(name) {
			continue
		}
		if at, ok := c.time(name); !ok {
			return unauthenticated(ReasonMalformed)
		} else if at > now.Add(leeway).Unix() {
			return unauthenticated(ReasonNotYetValid)
		}
	}
	return nil
}

func (a *Authenticator) checkEmail(c claims) error {
	email, _ := c.text("email")
	switch {
	case email == "":
		return forbidden(ReasonNoEmail)
	case !c.isTrue("email_verified"):
		return forbidden(ReasonEmailNotVerified)
	case !slices.Contains(a.cfg.Emails, email):
		return forbidden(ReasonEmailNotAllowed)
	}
	return nil
}
