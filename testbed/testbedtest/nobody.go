package testbedtest

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Nobody is an address of this machine that is taken and where nobody listens, until what cleanup is given is called. One
// that a test has listened at and closed may be another test's before it is used.
func Nobody(cleanup func(func())) (address string, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return "", err
	}
	cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return "", err
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		return "", err
	}
	return fmt.Sprint("127.0.0.1:", at.(*unix.SockaddrInet4).Port), nil
}
