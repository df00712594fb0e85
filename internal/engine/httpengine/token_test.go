package httpengine

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"cloud.google.com/go/compute/metadata"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
)

type tokens func(context.Context) (string, error)

func (t tokens) Token(ctx context.Context) (string, error) { return t(ctx) }

func TestWithoutATokenNothingIsSent(t *testing.T) {
	tests := []struct {
		name   string
		tokens tokens
		want   engine.Verdict
	}{
		{"a server of tokens that is down", func(context.Context) (string, error) { return "", errors.New("down") }, engine.Technical},
		{"a workload that gets none", func(context.Context) (string, error) { return "", &TokenRefusal{Err: errors.New("no account")} }, engine.Unauthorised},
		{"a wait beyond the timeout", func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }, engine.Technical},
		{"a token with a line break", func(context.Context) (string, error) { return "a\r\nX-Evil: 1", nil }, engine.Technical},
		{"an empty token", func(context.Context) (string, error) { return "", nil }, engine.Technical},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWire(t, say(okAnswer))
			e, err := New(Config{URL: w.url, Timeout: 200 * time.Millisecond, Auth: Auth{Kind: AuthOIDC, Audience: "a"}}, Deps{Tokens: tt.tokens})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			d := aDelivery()
			d.BeforeSend = func() bool { t.Error("BeforeSend was asked without a token"); return true }
			if r := e.Correlate(t.Context(), d); r.Verdict != tt.want || r.Code != codeToken {
				t.Errorf("got %s %s, want %s", r.Verdict, r.Code, tt.want)
			}
			if connections, _ := w.seen(); connections != 0 {
				t.Errorf("%d connections were made", connections)
			}
		})
	}
}

func TestEachKindOfAuthenticationSetsItsHeader(t *testing.T) {
	got := make(chan string, 1)
	url := answering(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Get("Authorization") })
	for _, tt := range []struct {
		auth Auth
		want string
	}{
		{Auth{}, ""},
		{Auth{Kind: AuthNone}, ""},
		{Auth{Kind: AuthBasic, Username: "u", Password: "p:ß"}, "Basic dTpwOsOf"},
		{Auth{Kind: AuthBearer, Token: "abc"}, "Bearer abc"},
		{Auth{Kind: AuthOIDC, Audience: "a"}, "Bearer id-token"},
	} {
		e, err := New(Config{URL: url, Auth: tt.auth}, Deps{Tokens: tokens(func(context.Context) (string, error) { return "id-token", nil })})
		if err != nil {
			t.Fatal(err)
		}
		e.Correlate(t.Context(), aDelivery())
		if header := <-got; header != tt.want {
			t.Errorf("%s: %q, want %q", tt.auth.Kind, header, tt.want)
		}
		_ = e.Close()
	}
}

func TestARefusedTokenIsToldFromAFailure(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{&metadata.Error{Code: 404}, true},
		{&metadata.Error{Code: 503}, false},
		{metadata.NotDefinedError("identity"), true},
		{context.DeadlineExceeded, false},
		{errors.New("connection refused"), false},
	} {
		if got := refused(tt.err); got != tt.want {
			t.Errorf("refused(%v) = %v, want %v", tt.err, got, tt.want)
		}
	}
}

func TestAWaitForAnothersTokenEndsWithItsContext(t *testing.T) {
	g := newGoogleTokens("a")
	g.turn <- struct{}{} // another call is at it
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := g.Token(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
}
