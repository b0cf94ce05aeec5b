// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
)

// Listen opens host:port or unix:PATH. A socket file that nobody serves any more is replaced; any other file
// is left alone.
func Listen(address string) (net.Listener, error) {
	network, where := "tcp", address
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		network, where = "unix", path
		if err := clearSocket(path); err != nil {
			return nil, fmt.Errorf("listening on %s: %w", address, err)
		}
	}
	l, err := net.Listen(network, where)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err // the rest says the address again
		}
		return nil, fmt.Errorf("listening on %s: %w (choose another address with --listen)", address, err)
	}
	return l, nil
}

// clearSocket takes the socket file of a process that has gone out of the way.
func clearSocket(path string) error {
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&fs.ModeSocket == 0:
		return errors.New("there is a file that is no socket")
	}
	if c, err := net.Dial("unix", path); err == nil {
		_ = c.Close()
		return errors.New("another process serves it")
	}
	return os.Remove(path)
}
