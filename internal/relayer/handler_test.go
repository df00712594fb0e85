package relayer_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/pubsub-inbox/pubsub-inbox/internal/relayer"
)

func TestTheBodyOfARequestForARunIsReadToTheLetter(t *testing.T) {
	secret := "4242"
	tests := map[string]struct {
		body io.Reader
		want int // 503: it is accepted, and no relay is ready
		why  string
	}{
		"nothing":                   {strings.NewReader(""), 503, "not ready"},
		"white space":               {strings.NewReader(" \n"), 503, "not ready"},
		"an empty object":           {strings.NewReader("{}"), 503, "not ready"},
		"once":                      {strings.NewReader(` {"once": true} `), 503, "not ready"},
		"not once":                  {strings.NewReader(`{"once":false}`), 503, "not ready"},
		"no JSON":                   {strings.NewReader("once=" + secret), 400, "not one JSON object"},
		"null":                      {strings.NewReader("null"), 400, "not one JSON object"},
		"a list":                    {strings.NewReader(`[{"once":true}]`), 400, "not one JSON object"},
		"text behind the object":    {strings.NewReader(`{"once":true} {"once":false}`), 400, "not one JSON object"},
		"an object that breaks off": {strings.NewReader(`{"once":true`), 400, "not one JSON object"},
		"an unknown member":         {strings.NewReader(`{"once":true,"` + secret + `":true}`), 400, "a member of another name"},
		"another letter case":       {strings.NewReader(`{"Once":true}`), 400, "a member of another name"},
		"a text":                    {strings.NewReader(`{"once":"true"}`), 400, "neither true nor false"},
		"a number":                  {strings.NewReader(`{"once":1}`), 400, "neither true nor false"},
		"a member without a value":  {strings.NewReader(`{"once":null}`), 400, "neither true nor false"},
		"too much":                  {strings.NewReader(`{"once":true}` + strings.Repeat(" ", 64<<10)), 400, "more than 65536 bytes"},
		"a body that breaks off":    {iotest.ErrReader(io.ErrUnexpectedEOF), 400, "broke off"},
		"a body that stops":         {iotest.ErrReader(os.ErrDeadlineExceeded), 503, "in time"},
	}
	for name, tt := range tests {
		handler := relayer.Handler(func(context.Context) (*relayer.Relayer, error) { return nil, errors.New("none") }, nil, nil)
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/", tt.body))
		if text := answer.Body.String(); answer.Code != tt.want || !strings.Contains(text, tt.why) || strings.Contains(text, secret) {
			t.Errorf("%s: answered %d %q, want %d with %q", name, answer.Code, text, tt.want, tt.why)
		}
	}
}
