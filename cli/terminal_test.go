// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// openTerminal makes a pseudo terminal (pty(7)) and returns the side that a program writes to; screen waits until that is
// closed and returns all that was written.
func openTerminal(t *testing.T) (program *os.File, screen func() string) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("a pseudo terminal is needed: %v", err)
	}
	t.Cleanup(func() { person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(program.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 120}); err != nil {
		t.Fatal(err)
	}
	written := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(person) // ends with EIO once the program's side is closed
		written <- string(text)
	}()
	return program, func() string {
		program.Close()
		return strings.ReplaceAll(<-written, "\r\n", "\n")
	}
}

// onTerminal runs a command line with stderr, and stdout where it is wanted, on a terminal.
func onTerminal(t *testing.T, env map[string]string, dataToo bool, args ...string) (code int, stdout, screen string) {
	t.Helper()
	program, wait := openTerminal(t)
	var file bytes.Buffer
	e := Env{Args: append([]string{"vipmove"}, args...), Stdout: &file, Stderr: program, Getenv: func(name string) string { return env[name] }}
	if dataToo {
		e.Stdout = program
	}
	a := newApp(e)
	a.zone, a.reconnect = time.UTC, time.Millisecond
	code = a.run(t.Context())
	return code, file.String(), wait()
}

func aRun() *fakeControl {
	return &fakeControl{runID: "R7", watches: [][]*vipmovev1.Run{{runAt(0), runAt(1), doneRun()}}}
}

func TestOnATerminalARunIsRedrawnAndItsDataStaysPlain(t *testing.T) {
	code, stdout, screen := onTerminal(t, aRun().serve(t), false, "run", testVIP, "--plan", "3f1c9e")
	if code != exitDone {
		t.Fatalf("exit code %d: %s", code, screen)
	}
	for _, want := range []string{"run R7 started", "\x1b[J", "\x1b[10A\r", "\x1b[32mconfirmed\x1b[0m"} {
		if !strings.Contains(screen, want) {
			t.Errorf("the screen never got %q:\n%q", want, screen)
		}
	}
	if strings.Contains(screen, "n1 applied\n") {
		t.Errorf("plain lines beside the redrawn view:\n%s", screen)
	}
	if want := draw(false, func(p *printer) { p.run(doneRun()) }); stdout != want {
		t.Errorf("data that is not for a terminal is not plain:\n%q", stdout)
	}
}

func TestNoColorIsRespectedAndTheViewStillRedrawn(t *testing.T) {
	env := aRun().serve(t)
	env["NO_COLOR"] = "1"
	_, _, screen := onTerminal(t, env, true, "watch", "R7")
	if strings.Contains(screen, "\x1b[3") || strings.Contains(screen, "\x1b[1m") || strings.Contains(screen, "\x1b[2m") {
		t.Errorf("coloured although NO_COLOR is set:\n%q", screen)
	}
	if !strings.Contains(screen, "\x1b[J") {
		t.Errorf("not redrawn:\n%q", screen)
	}
}

func TestADumbTerminalGetsPlainLines(t *testing.T) {
	env := aRun().serve(t)
	env["TERM"] = "dumb"
	_, _, screen := onTerminal(t, env, true, "watch", "R7")
	if strings.Contains(screen, "\x1b") || !strings.Contains(screen, "n1 applied\n") {
		t.Errorf("want plain lines:\n%q", screen)
	}
}

func TestOnATerminalRepliesAreShownAsTheyAreHeard(t *testing.T) {
	fake := &fakeControl{survey: []*vipmovev1.SurveyEvent{
		{Event: &vipmovev1.SurveyEvent_Heard{Heard: &vipmovev1.HeardEvent{
			Observer: "n1", Interface: "eth0", Node: "n2", Kind: vipmovev1.ProbeKind_PROBE_KIND_ANNOUNCER_QUESTION, Reply: &vipmovev1.Reply{SenderMac: mac(2)},
		}}},
		{Event: &vipmovev1.SurveyEvent_Heard{Heard: &vipmovev1.HeardEvent{Observer: "n1", Interface: "eth0", Reply: &vipmovev1.Reply{SenderMac: mac(9)}}}},
		{Event: &vipmovev1.SurveyEvent_Judgement{Judgement: contested()}},
	}}
	_, stdout, screen := onTerminal(t, fake.serve(t), false, "owners", testVIP)
	for _, want := range []string{"heard n2 02:00:00:00:00:02 by n1 eth0", "(announcer question)", "heard 02:00:00:00:00:09 by n1 eth0"} {
		if !strings.Contains(screen, want) {
			t.Errorf("the screen does not say %q:\n%s", want, screen)
		}
	}
	if strings.Contains(stdout, "heard n2") {
		t.Errorf("replies on stdout:\n%s", stdout)
	}
}
