package freeport_test

import (
	"net"
	"runtime"
	"testing"

	"github.com/pubsub-inbox/pubsub-inbox/internal/freeport"
)

func TestAHeldPortIsForTheOneWhoKnowsIt(t *testing.T) {
	p, err := freeport.Hold()
	if err != nil {
		t.Fatal(err)
	}
	if conn, err := net.Dial("tcp", p.Address()); err == nil {
		_ = conn.Close()
		t.Fatal("a connection is taken, though nobody listens")
	}
	for _, address := range []string{p.Address(), ":" + p.String()} { // all interfaces: what functions-framework-go does
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("tcp", p.Address())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		_ = l.Close()
	}
	if err := p.Release(); err != nil {
		t.Error(err)
	}
}

func TestTheSystemGivesAHeldPortToNobody(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux can hold a port")
	}
	// The ports the system can give are some tens of thousands. So many are held that one which is given is one of them with
	// near certainty (999 of 1000), if holding does nothing.
	const held, given = 600, 200
	mine := map[int]bool{}
	for range held {
		p, err := freeport.Hold()
		if err != nil {
			t.Fatal(err)
		}
		defer p.Release()
		if mine[p.Number()] {
			t.Fatalf("port %d is held twice", p.Number())
		}
		mine[p.Number()] = true
	}
	for range given {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if port := l.Addr().(*net.TCPAddr).Port; mine[port] {
			t.Fatalf("port %d is held, and was given away", port)
		}
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if port := conn.LocalAddr().(*net.TCPAddr).Port; mine[port] {
			t.Fatalf("port %d is held, and was given to a connection", port)
		}
	}
}
