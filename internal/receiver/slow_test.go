package receiver_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/funcserver"
)

func TestC104APushThatStopsIsAnswered503AndHasNoRow(t *testing.T) {
	stopped, err := os.ReadFile("testdata/C104.http")
	if err != nil {
		t.Fatal(err)
	}
	_, request, _ := strings.Cut(string(stopped), "\n") // behind the comment
	w := newWorld(t, anyRoute)
	function := funcserver.New(funcserver.Options{Name: "Receive", Logger: w.log.logger(), BodyWithin: 100 * time.Millisecond,
		Build: func(*funcserver.Function) (http.Handler, error) { return w.endpoint(), nil }})
	server := httptest.NewServer(function)
	t.Cleanup(server.Close)
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil { // only a test that fails waits for it
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, strings.ReplaceAll(request, "\n", "\r\n")); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text := drain(t, resp.Body); resp.StatusCode != http.StatusServiceUnavailable || !resp.Close {
		t.Errorf("answered %d %q, and the connection is kept: %t", resp.StatusCode, text, !resp.Close)
	}
	w.checkRefused(1, http.StatusServiceUnavailable)
}
