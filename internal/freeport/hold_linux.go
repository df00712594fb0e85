package freeport

import (
	"errors"
	"fmt"
	"syscall"
)

// hold binds a socket and does not listen on it. Linux lets another socket bind the same address if both allow reuse and none
// of them listens, as Go's and Java's listeners do, but never picks a bound port by itself (socket(7), SO_REUSEADDR).
func hold() (*Port, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("hold a free port: %w", err)
	}
	number, err := bind(fd)
	if err != nil {
		return nil, fmt.Errorf("hold a free port: %w", errors.Join(err, syscall.Close(fd)))
	}
	return &Port{number: number, release: func() error { return syscall.Close(fd) }}, nil
}

func bind(fd int) (int, error) {
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, err
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, err
	}
	bound, err := syscall.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	address, ok := bound.(*syscall.SockaddrInet4)
	if !ok {
		return 0, fmt.Errorf("the socket is bound to a %T", bound)
	}
	return address.Port, nil
}
