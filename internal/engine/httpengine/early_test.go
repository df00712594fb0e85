package httpengine

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/httpcall"
)

// early is a server that reads no more than a request's header, answers, and closes while the body is still coming.
func early(t *testing.T, l net.Listener, answer string) string {
	t.Helper()
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				if _, err := http.ReadRequest(bufio.NewReaderSize(conn, 16)); err == nil {
					_, _ = io.WriteString(conn, answer)
				}
			}()
		}
	}()
	return l.Addr().String()
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestC091: the answer that came before our write failed is the answer.
func TestC091(t *testing.T) {
	raw, err := os.ReadFile("testdata/C091.json")
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		Answers []struct {
			Status int
			Body   json.RawMessage
		}
		PayloadBytes []int
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		t.Fatal(err)
	}
	verdicts := map[int]engine.Verdict{404: engine.NotWaiting, 413: engine.Rejected}
	believed := func(c *Config) {
		c.Statuses = map[string]engine.Verdict{"404": engine.NotWaiting, "413": engine.Rejected}
	}
	for _, a := range c.Answers {
		answer := fmt.Sprintf("HTTP/1.1 %d No\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", a.Status, len(a.Body), a.Body)
		e := newEngine(t, "http://"+early(t, listen(t), answer), notIdempotent, believed)
		for _, size := range c.PayloadBytes {
			d := aDelivery()
			d.Variables, d.Payload = nil, bytes.Repeat([]byte("x"), size)
			for n := range 20 {
				if r := e.Correlate(t.Context(), d); r.Verdict != verdicts[a.Status] || r.Code != fmt.Sprintf("HTTP %d", a.Status) {
					t.Fatalf("%d bytes, call %d: %s %s (%s), want %s", size, n+1, r.Verdict, r.Code, r.Detail, verdicts[a.Status])
				}
			}
		}
	}
}

// blind is a connection from which nothing is read before a write on it has failed.
type blind struct {
	net.Conn
	failed chan struct{}
	once   *sync.Once
}

func (b blind) Write(p []byte) (int, error) {
	n, err := b.Conn.Write(p)
	if err != nil {
		b.once.Do(func() { close(b.failed) })
	}
	return n, err
}

func (b blind) Read(p []byte) (int, error) {
	<-b.failed
	return b.Conn.Read(p)
}

// Whichever of the two is seen first: the failure of our write, or the answer.
func TestAFailedWriteDoesNotHideTheAnswer(t *testing.T) {
	answer := "HTTP/1.1 413 No\r\nContent-Type: " + problemJSON + "\r\nConnection: close\r\nContent-Length: 45\r\n\r\n" +
		`{"type":"urn:pubsub-inbox:problem:rejected" }`
	e, err := New(Config{URL: "http://" + early(t, listen(t), answer)}, Deps{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return blind{conn, make(chan struct{}), new(sync.Once)}, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	d := aDelivery()
	d.Variables, d.Payload = nil, bytes.Repeat([]byte("x"), 16<<20)
	for n := range 20 {
		if r := e.Correlate(t.Context(), d); r.Verdict != engine.Rejected {
			t.Fatalf("call %d: %s %s (%s), want %s", n+1, r.Verdict, r.Code, r.Detail, engine.Rejected)
		}
	}
}

// What an early answer says in its body is read too, over TLS as well, and where the reset takes the end of a body that has
// no length.
func TestAnEarlyAnswersEvidenceIsRead(t *testing.T) {
	const problem = `{"type":"urn:pubsub-inbox:problem:ambiguous","title":"Two wait"}`
	ca, server, _ := certificates(t)
	lengths := map[string]string{
		"with a length":    fmt.Sprintf("Content-Length: %d\r\n", len(problem)),
		"without a length": "",
	}
	for name, length := range lengths {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, TLS %v", name, secure), func(t *testing.T) {
				answer := "HTTP/1.1 409 Conflict\r\nContent-Type: " + problemJSON + "\r\nConnection: close\r\n" + length + "\r\n" + problem
				l, scheme := listen(t), "http://"
				if secure {
					l, scheme = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{server}}), "https://"
				}
				e, err := New(Config{URL: scheme + early(t, l, answer)}, Deps{TLS: &tls.Config{RootCAs: ca}})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = e.Close() })
				d := aDelivery()
				d.Variables, d.Payload = nil, bytes.Repeat([]byte("x"), 3_000_000)
				for n := range 20 {
					if r := e.Correlate(t.Context(), d); r.Verdict != engine.Ambiguous {
						t.Fatalf("call %d: %s %s (%s), want %s", n+1, r.Verdict, r.Code, r.Detail, engine.Ambiguous)
					}
				}
			})
		}
	}
}

// A connection on which an answer came before the request was whole is not used again.
func TestAConnectionWithAnEarlyAnswerIsNotKept(t *testing.T) {
	answer := "HTTP/1.1 204 No Content\r\n\r\n" // does not say that it will close
	e := newEngine(t, "http://"+early(t, listen(t), answer))
	d := aDelivery()
	d.Variables, d.Payload = nil, bytes.Repeat([]byte("x"), 16<<20) // more than any buffer on the way takes
	for range 5 {
		if r := e.Correlate(t.Context(), d); r.Verdict != engine.Correlated {
			t.Fatalf("%s %s (%s), want %s", r.Verdict, r.Code, r.Detail, engine.Correlated)
		}
	}
}

// certificates are those of an authority, of a server at 127.0.0.1, and of a client that the authority does not know.
func certificates(t *testing.T) (ca *x509.CertPool, server, stranger tls.Certificate) {
	t.Helper()
	sign := func(template, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, tls.Certificate) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if parent == nil {
			parent, parentKey = template, key
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return cert, key, tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	}
	authority := func(name string) *x509.Certificate {
		return &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	}
	leaf := func(name string) *x509.Certificate {
		return &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	}
	root, rootKey, _ := sign(authority("ours"), nil, nil)
	_, _, server = sign(leaf("server"), root, rootKey)
	other, otherKey, _ := sign(authority("theirs"), nil, nil)
	_, _, stranger = sign(leaf("stranger"), other, otherKey)
	ca = x509.NewCertPool()
	ca.AddCert(root)
	return ca, server, stranger
}

// A server that refuses our certificate, or the want of one, has read no request: also in TLS 1.3, where the refusal comes
// after ours has been written.
func TestARefusedCertificateIsAProofThatNothingWasHandled(t *testing.T) {
	ca, server, stranger := certificates(t)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for name, ours := range map[string][]tls.Certificate{"none": nil, "one that it does not know": {stranger}} {
			t.Run(fmt.Sprintf("%s, %s", tls.VersionName(version), name), func(t *testing.T) {
				s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the request was handled") }))
				s.Config.ErrorLog = log.New(io.Discard, "", 0)
				s.TLS = &tls.Config{Certificates: []tls.Certificate{server}, MinVersion: version, MaxVersion: version,
					ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca}
				s.StartTLS()
				t.Cleanup(s.Close)
				config := &tls.Config{RootCAs: ca, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
					if len(ours) == 0 {
						return &tls.Certificate{}, nil
					}
					return &ours[0], nil // also where the server has said that it would not take it
				}}
				for _, size := range []int{10, 1_000_000} {
					e, err := New(Config{URL: s.URL}, Deps{TLS: config})
					if err != nil {
						t.Fatal(err)
					}
					d := aDelivery()
					d.Variables, d.Payload = nil, bytes.Repeat([]byte("x"), size)
					for n := range 20 {
						if r := e.Correlate(t.Context(), d); r.Verdict != engine.Technical || r.Code != httpcall.CodeTLS {
							t.Fatalf("%d bytes, call %d: %s %s (%s), want %s %s", size, n+1, r.Verdict, r.Code, r.Detail, engine.Technical, httpcall.CodeTLS)
						}
					}
					_ = e.Close()
				}
			})
		}
	}
}
