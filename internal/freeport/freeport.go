// Package freeport finds a TCP port for a program that has to be told its port before it starts, or for an address on which
// nobody may listen.
package freeport

import "strconv"

// Port is a port of the loopback address that the system gives to nobody else, as long as it is held. A program that is told
// the number can listen on it. Until it does, a connection is refused.
//
// A port that is found by listening and closing belongs to whoever asks next: a test's server, or the near end of a
// connection. On a busy machine that happens. Only Linux can hold a port that another is to listen on; elsewhere the port is
// free when it is handed out, and no more is known.
type Port struct {
	number  int
	release func() error
}

// Hold finds a port and keeps it from everybody who does not ask for it by its number.
func Hold() (*Port, error) { return hold() }

// Number is the port.
func (p *Port) Number() int { return p.number }

// String is the number, as PORT wants it.
func (p *Port) String() string { return strconv.Itoa(p.number) }

// Address is 127.0.0.1 with the port.
func (p *Port) Address() string { return "127.0.0.1:" + p.String() }

// Release gives the port back to the system. Whoever listens on it goes on.
func (p *Port) Release() error { return p.release() }
