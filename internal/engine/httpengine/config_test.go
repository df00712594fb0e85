package httpengine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
)

func TestEachFaultOfAConfigurationIsNamed(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Config)
		want   string // in the error; empty: no error
	}{
		{"a good one", func(*Config) {}, ""},
		{"IPv6", func(c *Config) { c.URL = "http://[::1]:8080" }, ""},
		{"no URL", func(c *Config) { c.URL = "" }, "scheme"},
		{"another scheme", func(c *Config) { c.URL = "ftp://engine.example" }, "scheme"},
		{"no host", func(c *Config) { c.URL = "http:///x" }, "host"},
		{"a user in the URL", func(c *Config) { c.URL = "http://u:SECRET@engine.example" }, "user"},
		{"a fragment", func(c *Config) { c.URL = "http://engine.example/#SECRET" }, "fragment"},
		{"a host beyond ASCII", func(c *Config) { c.URL = "http://münchen.example" }, "punycode"},
		{"a URL that cannot be read", func(c *Config) { c.URL = "http://engine.example/%zz?SECRET" }, "cannot be read"},
		{"a negative timeout", func(c *Config) { c.Timeout = -1 }, "timeout"},
		{"a negative bound", func(c *Config) { c.MaxAnswerBytes = -1 }, "maxAnswerBytes"},
		{"a bound that is none", func(c *Config) { c.MaxAnswerBytes = math.MaxInt64 }, "maxAnswerBytes"},
		{"a source that is none", func(c *Config) { c.Source = "%zz" }, "source"},
		{"an unknown kind", func(c *Config) { c.Auth.Kind = "magic" }, "magic"},
		{"basic without a name", func(c *Config) { c.Auth = Auth{Kind: AuthBasic, Password: "SECRET"} }, "username"},
		{"basic with a colon", func(c *Config) { c.Auth = Auth{Kind: AuthBasic, Username: "a:b"} }, "username"},
		{"bearer without a token", func(c *Config) { c.Auth.Kind = AuthBearer }, "token"},
		{"bearer with a line break", func(c *Config) { c.Auth = Auth{Kind: AuthBearer, Token: "SECRET\n"} }, "token"},
		{"oidc without an audience", func(c *Config) { c.Auth.Kind = AuthOIDC }, "audience"},
		{"a header that is ours", func(c *Config) { c.Headers = Headers{"ce-id": "SECRET"} }, "ce-id"},
		{"a header of the connection", func(c *Config) { c.Headers = Headers{"transfer-encoding": "x"} }, "transfer-encoding"},
		{"a header that is no name", func(c *Config) { c.Headers = Headers{"a b": "SECRET"} }, "no header name"},
		{"a header's line break", func(c *Config) { c.Headers = Headers{"A": "SECRET\r\nB: c"} }, "no header can hold"},
		{"two authorisations", func(c *Config) {
			c.Auth = Auth{Kind: AuthBearer, Token: "t"}
			c.Headers = Headers{"authorization": "SECRET"}
		}, "Authorization"},
		{"an authorisation of its own", func(c *Config) { c.Headers = Headers{"Authorization": "ApiKey SECRET"} }, ""},
		{"good statuses", func(c *Config) {
			c.Statuses = map[string]engine.Verdict{"409": engine.Duplicate, "2xx": engine.HandedOver, "5xx": engine.Technical, "404": engine.Drop}
		}, ""},
		{"a status that is none", func(c *Config) { c.Statuses = map[string]engine.Verdict{"40x": engine.Technical} }, "40x"},
		{"a status out of range", func(c *Config) { c.Statuses = map[string]engine.Verdict{"199": engine.Technical} }, "199"},
		{"a status with a sign", func(c *Config) { c.Statuses = map[string]engine.Verdict{"+40": engine.Technical} }, "+40"},
		{"a class out of range", func(c *Config) { c.Statuses = map[string]engine.Verdict{"1xx": engine.Technical} }, "1xx"},
		{"a verdict that is none", func(c *Config) { c.Statuses = map[string]engine.Verdict{"409": "FINE"} }, "FINE"},
		{"not started", func(c *Config) { c.Statuses = map[string]engine.Verdict{"409": engine.NotStarted} }, "NOT_STARTED"},
		{"all refusals as success", func(c *Config) { c.Statuses = map[string]engine.Verdict{"4xx": engine.Correlated} }, "nobody has handled"},
		{"a failure as success", func(c *Config) { c.Statuses = map[string]engine.Verdict{"500": engine.Duplicate} }, "nobody has handled"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := Config{Name: "work-orders", URL: "https://engine.example/events?key=SECRET"}
			tt.change(&c)
			_, err := New(c, Deps{})
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("got %v", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v, want one about %q", err, tt.want)
			case err != nil && strings.Contains(err.Error(), "SECRET"):
				t.Errorf("the error holds a secret: %v", err)
			}
		})
	}
}

func TestAllFaultsAreReportedAtOnce(t *testing.T) {
	_, err := New(Config{Timeout: -1, Auth: Auth{Kind: "x"}, Headers: Headers{"": ""}, Statuses: map[string]engine.Verdict{"x": "y"}}, Deps{})
	for _, want := range []string{"url", "timeout", "auth", "headers", "statuses"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not tell of %s", err, want)
		}
	}
}

func TestPropertiesAreTheConfiguration(t *testing.T) {
	e := newEngine(t, "http://engine.example", func(c *Config) { c.Timeout = 0 })
	if got := e.Properties(); got != (engine.Properties{Idempotent: true, Timeout: DefaultTimeout}) {
		t.Errorf("got %+v", got)
	}
	e = newEngine(t, "http://engine.example", func(c *Config) { c.Timeout = time.Second }, notIdempotent)
	if got := e.Properties(); got != (engine.Properties{Timeout: time.Second}) {
		t.Errorf("got %+v", got)
	}
}

func TestSecretsDoNotShowThemselves(t *testing.T) {
	c := Config{
		Auth:    Auth{Kind: AuthBasic, Username: "u", Password: "SECRET", Token: "SECRET"},
		Headers: Headers{"X-Api-Key": "SECRET"},
	}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "config", c, "secret", c.Auth.Token, "headers", c.Headers)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "config", c, "secret", c.Auth.Token, "headers", c.Headers)
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	shown := log.String() + string(text) + fmt.Sprint(c) + fmt.Sprintf("%v %+v %#v %s", c, c, c, c.Auth) +
		fmt.Sprintf("%s %q %x %d %#v", c.Auth.Password, c.Auth.Password, c.Auth.Password, c.Auth.Password, c.Auth.Password) +
		fmt.Sprintf("%v %#v %s", c.Headers, c.Headers, c.Headers) + fmt.Sprintf("%v", &c)
	for _, form := range []string{"SECRET", fmt.Sprintf("%x", "SECRET")} {
		if strings.Contains(shown, form) {
			t.Errorf("%s is in %s", form, shown)
		}
	}
	if string(c.Auth.Password) != "SECRET" {
		t.Error("a conversion does not reveal")
	}
}
