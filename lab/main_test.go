// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lab

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vipmove/vipmove/lab/namespace/namespacetest"
)

// helperEnv names the program that this binary plays, when run by a test.
const helperEnv = "LAB_TEST_HELPER"

func TestMain(m *testing.M) {
	if handled, code := RunChild(os.Args[1:]); handled {
		os.Exit(code)
	}
	switch os.Getenv(helperEnv) {
	case "":
		os.Exit(namespacetest.Main(m))
	case "lab":
		os.Exit(labProgram())
	case "hardened":
		os.Exit(hardenedProgram())
	}
	os.Exit(99)
}

// labProgram is what `vipmove lab up` is: it enters, builds a lab, says so, and
// closes it on SIGTERM.
func labProgram() int {
	code, done, err := Enter()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if done {
		return code
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	// Not by its path: the directory of go test is closed to other users.
	l, err := New(Config{Nodes: 3, ClusterIPs: 2, VipmovePath: "/proc/self/exe"})
	if err == nil {
		err = l.Up(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	replies, err := l.Responders(ctx, 300*time.Millisecond)
	fmt.Println("up", l.Dir(), os.Getpid(), len(replies), err)
	<-ctx.Done()
	if err := l.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("closed")
	return 5
}

// up builds a lab that is closed when t ends.
func up(t *testing.T, c Config) *Lab {
	t.Helper()
	l := planned(t, c)
	if err := l.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l
}

// wired builds a lab without processes: hosts, links and addresses only.
func wired(t *testing.T, c Config) *Lab {
	t.Helper()
	c.ServeNeedsAddress = true // no redirection either
	l := planned(t, c)
	if err := l.prepareDir(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.build(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l
}

func planned(t *testing.T, c Config) *Lab {
	t.Helper()
	namespacetest.Require(t)
	l, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}
