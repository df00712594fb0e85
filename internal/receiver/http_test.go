package receiver_test

import (
	"net/http"
	"testing"
)

func TestC015WhatAPushLooksLikeOutsideDecidesWhetherItIsReadAndNothingElse(t *testing.T) {
	w := newWorld(t, anyRoute)
	body := input(t, "C002")[0]
	server := w.serve()
	tests := []struct {
		name    string
		request *http.Request
		want    int
	}{
		{"no content type", request(t, "POST", server, "/", body), 204},
		{"text", request(t, "POST", server, "/", body, "Content-Type", "text/plain"), 204},
		{"JSON with a character set", request(t, "POST", server, "/", body, "Content-Type", "application/json; charset=utf-8"), 204},
		{"bytes", request(t, "POST", server, "/", body, "Content-Type", "application/octet-stream"), 204},
		{"identity encoding", request(t, "POST", server, "/", body, "Content-Encoding", "identity"), 204},
		{"gzip", request(t, "POST", server, "/", gzipped(t, body), "Content-Type", "application/json", "Content-Encoding", "gzip"), 415},
		{"plain text called gzip", request(t, "POST", server, "/", body, "Content-Encoding", "gzip"), 415},
		{"chunked", chunked(request(t, "POST", server, "/", body)), 204},
		{"GET /push", request(t, "GET", server, "/push", nil), 404},
		{"HEAD /push", request(t, "HEAD", server, "/push", nil), 404},
		{"POST /push", request(t, "POST", server, "/push", body), 404},
		{"GET /", request(t, "GET", server, "/", nil), 405},
		{"HEAD /", request(t, "HEAD", server, "/", nil), 405},
		{"PUT /", request(t, "PUT", server, "/", body), 405},
		{"an empty body", request(t, "POST", server, "/", nil), 400},
		{"an empty chunked body", chunked(request(t, "POST", server, "/", []byte{})), 400},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp, err := http.DefaultClient.Do(tt.request)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			text := drain(t, resp.Body)
			if resp.StatusCode != tt.want {
				t.Errorf("status %d, want %d", resp.StatusCode, tt.want)
			}
			if silent := tt.want == 204 || tt.request.Method == "HEAD"; silent != (text == "") {
				t.Errorf("body %q", text)
			}
			if allow := resp.Header.Get("Allow"); (tt.want == 405) != (allow == "POST") {
				t.Errorf("Allow %q", allow)
			}
		})
	}
	want := plain("9100000000000102", orderJSON, nil)
	want.OrderingKey, want.Deliveries = "WO-4711", 5
	checkRow(t, want, w.one())
}
