package receiver_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/receiver"
)

// push is a body with a payload of any size, made without the copies of encoding/json.
func push(id string, data []byte) []byte {
	return []byte(`{"message":{"messageId":"` + id + `","data":"` + base64.StdEncoding.EncodeToString(data) + `"},"subscription":"` + subscription + `"}`)
}

func TestAPayloadIsStoredToTheByteUpToTheLimitAndRefusedBeyondIt(t *testing.T) {
	random := make([]byte, inbox.MaxInlinePayload+1)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range random {
		random[i] = byte(rng.Uint32())
	}
	// Beside the largest payload, all else that a commit holds is as large as it gets.
	attributes := map[string]string{}
	for n := range 100 {
		attributes[strings.Repeat("n", 250)+strconv.Itoa(n)] = strings.Repeat("<&é", 256)
	}
	attributes["key"] = strings.Repeat("k", inbox.MaxKey)
	attributes["event"] = strings.Repeat("e", inbox.MaxDedupeKey)
	tests := []struct {
		name   string
		body   []byte
		status int
		size   int
	}{
		{"nothing", push("1", nil), 204, 0},
		{"one byte less than the limit", push("1", random[:inbox.MaxInlinePayload-1]), 204, inbox.MaxInlinePayload - 1},
		{"the limit", push("1", random[:inbox.MaxInlinePayload]), 204, inbox.MaxInlinePayload},
		{"the limit, with the largest of everything", message{ID: "1", OrderingKey: strings.Repeat("o", 1024), Attributes: attributes,
			Data: random[:inbox.MaxInlinePayload]}.body(t), 204, inbox.MaxInlinePayload},
		{"one byte more", push("1", random), 413, 0},
		{"a body over the limit", append(push("1", nil), bytes.Repeat([]byte(" "), receiver.MaxBody)...), 413, 0},
	}
	for _, tt := range tests {
		for _, chunks := range []bool{false, true} {
			t.Run(tt.name+map[bool]string{true: ", in chunks"}[chunks], func(t *testing.T) {
				w := newWorld(t, `
  - {name: any, key: attributes.key, dedupe: 'has(attributes.event) ? attributes.event : message.id', engine: e, message: M}`)
				r := httptest.NewRequest("POST", "/", bytes.NewReader(tt.body))
				if chunks {
					r = chunked(r)
				}
				got := serve(w.endpoint(), r)
				if got.Code != tt.status {
					t.Fatalf("got %d %.200s", got.Code, got.Body)
				}
				if tt.status != 204 {
					w.checkRefused(1, 413)
					return
				}
				if r := w.one(); r.Body != string(random[:tt.size]) || r.PayloadBytes != int64(tt.size) || r.PayloadSHA256 != inbox.SHA256(random[:tt.size]) || r.Status != "RECEIVED" {
					t.Errorf("%s with %d bytes, said to be %d", r.place(), len(r.Body), r.PayloadBytes)
				}
			})
		}
	}
}

func TestAnUnreadableMessageIsStoredToTheByteUpToTheLimit(t *testing.T) {
	w := newWorld(t, anyRoute)
	body := []byte(`{"message":{"messageId":"1","data":"@`)
	body = append(append(body, bytes.Repeat([]byte("x"), inbox.MaxInlinePayload-len(body)-3)...), `"}}`...)
	if got := w.post(body); got != 204 {
		t.Fatalf("status %d", got)
	}
	if r := w.one(); r.Body != string(body) || r.place() != "PARKED/UNREADABLE" {
		t.Errorf("%s with %d bytes, want %d", r.place(), len(r.Body), len(body))
	}
}

func TestABodyThatBreaksOffIsNotStored(t *testing.T) {
	w := newWorld(t, anyRoute)
	whole := message{ID: "1"}.body(t)
	broken := func() io.Reader {
		return io.MultiReader(bytes.NewReader(whole), iotest.ErrReader(errors.New("reset")))
	}
	short := httptest.NewRequest("POST", "/", bytes.NewReader(whole))
	short.ContentLength++
	long := httptest.NewRequest("POST", "/", broken())
	got := []int{serve(w.endpoint(), short).Code, serve(w.endpoint(), long).Code}
	if diff := cmp.Diff([]int{400, 400}, got); diff != "" {
		t.Error(diff)
	}
	w.checkRefused(2, 400)
}

func TestABodyThatIsAnnouncedOverTheLimitIsNeitherReadNorGivenMemory(t *testing.T) {
	w := newWorld(t, anyRoute)
	r := httptest.NewRequest("POST", "/", iotest.ErrReader(errors.New("it was read")))
	r.ContentLength = 1 << 50
	if got := serve(w.endpoint(), r).Code; got != 413 {
		t.Errorf("status %d", got)
	}
	w.checkRefused(1, 413)
}

// As at the end of a shut-down, which ends the request's context and its connection's reads.
func TestABodyThatIsNotAwaitedAnyLongerIsAskedForAgain(t *testing.T) {
	w := newWorld(t, anyRoute)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequestWithContext(ctx, "POST", "/", iotest.ErrReader(os.ErrDeadlineExceeded))
	if got := serve(w.endpoint(), r).Code; got != 503 {
		t.Errorf("status %d", got)
	}
	w.checkRefused(1, 503)
}

// bigJSON is about 5 MiB of the JSON that services publish: many small fields.
func bigJSON() []byte {
	var b bytes.Buffer
	b.WriteString(`{"items":[`)
	for n := 0; b.Len() < 5<<20; n++ {
		if n > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`{"sku":"A-` + strconv.Itoa(n) + `","quantity":9007199254740993,"tags":["a",{"b":null}]}`)
	}
	b.WriteString(`],"orderId":"WO-1"}`)
	return b.Bytes()
}

func TestAReceiveAllocatesLessThanFourTimesItsBody(t *testing.T) {
	const reads = `
  - {name: any, match: has(payload.orderId), key: payload.orderId, type: payload.orderId, dedupe: payload.orderId, engine: e, message: M}`
	tests := []struct {
		name, routes string
		payload      []byte
	}{
		{"a route that reads a large document", reads, bigJSON()},
		{"a route that does not", anyRoute, bigJSON()},
		{"one long text", reads, []byte(`{"orderId":"WO-1","text":"` + strings.Repeat("x", 5<<20) + `"}`)},
		{"no JSON", anyRoute, bytes.Repeat([]byte{0xff, 0, 1}, 5<<20/3)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, tt.routes)
			w.post(message{ID: "warm-up", Data: []byte("{}")}.body(t))
			body, h := push("1", tt.payload), w.endpoint()
			for _, kind := range []string{"new", "redelivered"} {
				r := httptest.NewRequest("POST", "/", bytes.NewReader(body))
				var before, after runtime.MemStats
				runtime.GC() // twice, so that no pool has a buffer left: the worst case
				runtime.GC()
				runtime.ReadMemStats(&before)
				got := serve(h, r)
				runtime.ReadMemStats(&after)
				if got.Code != 204 {
					t.Fatalf("status %d", got.Code)
				}
				times := float64(after.TotalAlloc-before.TotalAlloc) / float64(len(body))
				t.Logf("%s: %.2f times its body", kind, times)
				if times >= 4 {
					t.Errorf("%s: %.2f times its body is allocated, in all", kind, times)
				}
			}
			if rows := w.rows(); len(rows) != 2 || rows[1].Deliveries != 1 || rows[1].Status != "RECEIVED" {
				t.Errorf("%d rows", len(rows))
			}
		})
	}
}

func TestC018AnAttributeThatIsTooLongForAKeyParksTheMessageBeforeTheCommit(t *testing.T) {
	tests := []struct {
		name   string
		routes string
		length int
		place  string
		why    string
	}{
		{"a key", orderRoute, 1025, "PARKED/CONTRACT", "key (attributes.orderId): the key has 1025 bytes, its column holds 1024"},
		{"the longest key", orderRoute, 1024, "RECEIVED", ""},
		{"a dedupe key", `
  - {name: any, dedupe: attributes.orderId, engine: e, message: M}`, 4097, "PARKED/CONTRACT",
			"dedupe (attributes.orderId): the key has 4097 bytes, its column holds 4096"},
		{"the longest dedupe key", `
  - {name: any, dedupe: attributes.orderId, engine: e, message: M}`, 4096, "RECEIVED", ""},
		{"a type", `
  - {name: any, type: attributes.orderId, engine: e, message: M}`, 257, "PARKED/CONTRACT",
			"type (attributes.orderId): the text has 257 bytes, its column holds 256"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, tt.routes)
			body := message{ID: "1", Attributes: map[string]string{"orderId": strings.Repeat("é", tt.length/2) + strings.Repeat("x", tt.length%2)}}.body(t)
			if diff := cmp.Diff([]int{204, 204}, w.postAll([][]byte{body, body})); diff != "" {
				t.Error(diff)
			}
			r := w.one()
			if diff := cmp.Diff([]string{tt.place, tt.why}, []string{r.place(), r.Error}); diff != "" {
				t.Error(diff)
			}
			if n := w.count("Lanes"); tt.why != "" && n != 0 {
				t.Errorf("%d lanes know of a message that was parked on arrival", n)
			}
		})
	}
}

func TestAClientThatSendsAllBeforeItReadsSeesTheRefusal(t *testing.T) {
	handler := receiver.Handler(nil, slog.New(slog.DiscardHandler))
	server := httptest.NewServer(handler)
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	size := receiver.MaxBody + 2<<20
	if _, err := fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: inbox\r\nContent-Length: %d\r\n\r\n", size); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(make([]byte, size)); err != nil {
		t.Fatalf("the connection broke before the body was sent: %v", err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("status %d, want 413", answer.StatusCode)
	}
}
