// SPDX-License-Identifier: Apache-2.0

package fleettest

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

func pair(t *testing.T, l *Listener) (client, server net.Conn) {
	t.Helper()
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}()
	client, err := l.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return client, <-accepted
}

func TestWhatOneEndWritesTheOtherReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := pair(t, Listen())
		for _, ends := range [][2]net.Conn{{client, server}, {server, client}} {
			if n, err := ends[0].Write([]byte("hello")); n != 5 || err != nil {
				t.Fatal(n, err)
			}
			b := make([]byte, 16)
			if n, err := ends[1].Read(b); string(b[:n]) != "hello" || err != nil {
				t.Errorf("read %q, %v", b[:n], err)
			}
		}
		if client.LocalAddr().String() != "memory" || client.RemoteAddr().Network() != "memory" {
			t.Errorf("addresses %v %v", client.LocalAddr(), client.RemoteAddr())
		}
	})
}

func TestAReadWaitsAndTheEndComesAfterTheData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := pair(t, Listen())
		all := make(chan string, 1)
		go func() {
			b, err := io.ReadAll(server)
			if err != nil {
				t.Error(err)
			}
			all <- string(b)
		}()
		synctest.Wait() // durable: the bubble's clock can go on meanwhile
		for _, s := range []string{"a", "b"} {
			if _, err := client.Write([]byte(s)); err != nil {
				t.Fatal(err)
			}
		}
		_ = client.Close()
		_ = client.Close()
		if got := <-all; got != "ab" {
			t.Errorf("read %q", got)
		}
		if _, err := server.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("writing to an end that closed: %v", err)
		}
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("reading from a closed end: %v", err)
		}
	})
}

func TestAClosedListenerTakesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Listen()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.DialContext(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("nobody accepts: %v", err)
		}
		_ = l.Close()
		_ = l.Close()
		if _, err := l.DialContext(t.Context()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("dialling: %v", err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("accepting: %v", err)
		}
	})
}
