// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

func TestJSONReadsBackAsTheSameMessage(t *testing.T) {
	for _, m := range []proto.Message{
		contested(), single(), runnablePlan(), refusedPlan(), doneRun(), rolledBackRun(), sevenNodes(), &vipmovev1.Run{}, &vipmovev1.Judgement{},
		&vipmovev1.Sysctls{ArpIgnore: proto.Int32(0)},
		&vipmovev1.Finding{Message: "quotes \" and \\ and <angles> and \u2028 and \x00", Code: "X"},
	} {
		text := jsonOf(t, m)
		back := m.ProtoReflect().New().Interface()
		if err := protojson.Unmarshal([]byte(text), back); err != nil {
			t.Fatalf("%T: %v\n%s", m, err, text)
		}
		if !proto.Equal(m, back) {
			t.Errorf("%T came back as another message:\n%v\n%v", m, m, back)
		}
		for range 3 {
			if jsonOf(t, m) != text {
				t.Errorf("%T: not the same bytes twice", m)
			}
		}
	}
}

func jsonOf(t *testing.T, m proto.Message) string {
	t.Helper()
	var b bytes.Buffer
	if err := writeJSON(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestJSONIsWhatHelpPromises(t *testing.T) {
	text := jsonOf(t, rolledBackRun())
	var run map[string]any
	if err := json.Unmarshal([]byte(text), &run); err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]any{
		"requestsSent": float64(200), "requestsFailed": float64(3), "longestGap": "0.012s", "startedAt": "2026-05-04T14:03:07.211Z",
		"verdictAfter": "", "after": nil, "findings": []any{}, "changed": true,
	} {
		if diff := cmp.Diff(want, run[field]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", field, diff)
		}
	}
	step := run["steps"].([]any)[1].(map[string]any)
	if removed, present := step["removedAt"]; !present || removed != nil {
		t.Errorf("a time that is not yet must be null, got %v (present: %v)", removed, present)
	}
	if !strings.HasPrefix(text, "{\n  \"runId\"") || !strings.HasSuffix(text, "}\n") {
		t.Errorf("want the .proto file's order and one newline at the end:\n%s", text)
	}
	// An absent sysctl is not known, which is not 0 (I6).
	if text := jsonOf(t, &vipmovev1.Sysctls{ArpIgnore: proto.Int32(0)}); !strings.Contains(text, `"arpIgnore": 0`) || !strings.Contains(text, `"arpFilter": null`) {
		t.Errorf("sysctls: %s", text)
	}
	// A later coordinator's enum value must not break an older command.
	if text := jsonOf(t, &vipmovev1.Node{Role: 77}); !strings.Contains(text, `"role": 77`) {
		t.Errorf("unknown enum value: %s", text)
	}
}

func TestAnImpossibleTimeIsAnErrorAndNoHalfOutput(t *testing.T) {
	var b bytes.Buffer
	if err := writeJSON(&b, &vipmovev1.Run{LongestGap: &durationpb.Duration{Seconds: 1, Nanos: -1}}); err == nil {
		t.Error("an invalid duration was written")
	}
	if b.Len() != 0 {
		t.Errorf("half an object was written: %s", b.String())
	}
}

func TestNamesSortAsPeopleCount(t *testing.T) {
	names := []string{"n10", "n2", "n1", "client", "n01", "w-3-b", "w-3-a", "w-20", "n2a", ""}
	slices.SortFunc(names, compareNames)
	want := []string{"", "client", "n1", "n01", "n2", "n2a", "n10", "w-3-a", "w-3-b", "w-20"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestComparingNamesIsAnOrder(t *testing.T) {
	name := rapid.StringMatching(`[a-c0-2-]{0,6}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := name.Draw(t, "a"), name.Draw(t, "b"), name.Draw(t, "c")
		if compareNames(a, b) != -compareNames(b, a) {
			t.Fatalf("%q and %q both ways: %d, %d", a, b, compareNames(a, b), compareNames(b, a))
		}
		if compareNames(a, b) <= 0 && compareNames(b, c) <= 0 && compareNames(a, c) > 0 {
			t.Fatalf("not transitive: %q %q %q", a, b, c)
		}
	})
}

func TestCuttingALineKeepsColoursAndWidth(t *testing.T) {
	red := style{on: true}.paint(sgrRed, "contested")
	for _, c := range []struct {
		text  string
		width int
		want  string
	}{
		{"plain", 10, "plain"},
		{"plain", 5, "plain"},
		{"plain", 3, "pla"},
		{"plain", 0, ""},
		{red, 9, red},
		{red + " tail", 9, red},
		{red, 4, "\x1b[31mcont\x1b[0m"},
		{"größer", 3, "grö"},
		{"broken\x1b[31", 20, "broken"},
	} {
		if got := cut(c.text, c.width); got != c.want {
			t.Errorf("cut(%q, %d) = %q, want %q", c.text, c.width, got, c.want)
		}
	}
}

func FuzzCut(f *testing.F) {
	f.Add("\x1b[31mred\x1b[0m", 2)
	f.Fuzz(func(t *testing.T, text string, width int) {
		width = max(0, min(width, 1000))
		got := cut(text, width)
		if n := len([]rune(visible(got))); n > width {
			t.Errorf("cut(%q, %d) shows %d characters: %q", text, width, n, got)
		}
	})
}

// visible takes colour sequences out, and what an unfinished one begins.
func visible(s string) string {
	for {
		start := strings.Index(s, "\x1b[")
		if start < 0 {
			return s
		}
		end := strings.IndexByte(s[start:], 'm')
		if end < 0 {
			return s[:start]
		}
		s = s[:start] + s[start+end+1:]
	}
}

// terminal understands what screen writes, and nothing else.
type terminal struct {
	lines []string
	row   int
}

func (t *terminal) Write(b []byte) (int, error) {
	for s := string(b); s != ""; {
		var up int
		switch n, _ := fmt.Sscanf(s, "\x1b[%dA\r", &up); {
		case n == 1 && strings.HasPrefix(s, fmt.Sprintf("\x1b[%dA\r", up)):
			t.row -= up
			s = s[len(fmt.Sprintf("\x1b[%dA\r", up)):]
		case strings.HasPrefix(s, "\x1b[J"):
			t.lines = t.lines[:t.row]
			s = s[3:]
		default:
			line, rest, _ := strings.Cut(s, "\n")
			t.lines = append(t.lines[:t.row], strings.TrimSuffix(line, "\x1b[K"))
			t.row++
			s = rest
		}
	}
	return len(b), nil
}

func TestTheViewIsRedrawnInPlace(t *testing.T) {
	term := &terminal{}
	s := &screen{w: term, width: func() int { return 11 }}
	s.draw([]string{"one", "two", "three"})
	s.draw([]string{"uno", "longer than the terminal"})
	if diff := cmp.Diff([]string{"uno", "longer tha"}, term.lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	s.clear()
	if len(term.lines) != 0 {
		t.Errorf("left on the terminal: %q", term.lines)
	}
	s.clear() // nothing to take away must take nothing away
	s.draw([]string{"again"})
	if diff := cmp.Diff([]string{"again"}, term.lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAFollowerOnATerminalLeavesItCleanAndSaysLinesAbove(t *testing.T) {
	term := &terminal{}
	a := newApp(Env{Args: []string{"vipmove"}, Stderr: term, Getenv: func(string) string { return "" }})
	a.now, a.zone = func() time.Time { return t0.Add(9 * time.Second) }, time.UTC
	f := &follower{a: a, screen: &screen{w: term, width: func() int { return 200 }}}
	f.redraw() // nothing is known yet
	f.show(runAt(1))
	f.say("lost the coordinator")
	f.show(runAt(2))
	view := liveRun(runAt(2), t0.Add(9*time.Second), style{}, time.UTC)
	if diff := cmp.Diff(append([]string{"lost the coordinator"}, view...), term.lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	f.end()
	if diff := cmp.Diff([]string{"lost the coordinator"}, term.lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAShellReadsQuotedWordsBack(t *testing.T) {
	words := []string{"plain", "", "two words", "it's", `"double" $HOME`, "a;b", "back\\slash", "new\nline", "/path/to-it.crt", "*"}
	line := "printf '%s\\0'"
	for _, w := range words {
		line += " " + shellQuote(w)
	}
	out, err := exec.Command("sh", "-c", line).Output()
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	if diff := cmp.Diff(words, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if shellQuote("/path/to-it.crt") != "/path/to-it.crt" {
		t.Error("a plain word was quoted")
	}
}

func TestNothingIsColouredOffATerminalOrAgainstTheWish(t *testing.T) {
	var b bytes.Buffer
	a := newApp(Env{Args: []string{"vipmove"}, Stdout: &b, Getenv: func(string) string { return "" }})
	if a.styleFor(&b).on {
		t.Error("a buffer is coloured")
	}
	if got := (style{}).paint(sgrRed, "text"); got != "text" {
		t.Errorf("off, but painted: %q", got)
	}
	if got := (style{on: true}).paint(sgrRed, ""); got != "" {
		t.Errorf("an empty word got colour: %q", got)
	}
}

func TestNumbersReadWell(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 950 * time.Microsecond: "950µs", 1234 * time.Microsecond: "1.2ms", 123456 * time.Microsecond: "123ms",
		1234 * time.Millisecond: "1.2s", 250 * time.Second: "4m10s",
	} {
		if got := span(d); got != want {
			t.Errorf("span(%v) = %s, want %s", d, got, want)
		}
	}
	for _, c := range []struct {
		n          uint32
		noun, want string
	}{{1, "node", "1 node"}, {0, "node", "0 nodes"}, {7, "node", "7 nodes"}, {2, "address", "2 addresses"}} {
		if got := count(c.n, c.noun); got != c.want {
			t.Errorf("count(%d, %s) = %s, want %s", c.n, c.noun, got, c.want)
		}
	}
	for p, want := range map[float64]string{7.22: "7.2 %", 0.0749: "0.075 %", 0.5: "0.50 %", 97.5: "98 %"} {
		if got := percent(p); got != want {
			t.Errorf("percent(%v) = %s, want %s", p, got, want)
		}
	}
}

func TestGRPCsWrappingIsTakenOff(t *testing.T) {
	for text, want := range map[string]string{
		`connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`: "dial tcp 127.0.0.1:1: connect: connection refused",
		`last connection error: connection error: desc = "transport: authentication handshake failed: EOF"`:            "EOF",
		`connection error: desc = "error reading server preface: remote error: tls: bad certificate"`:                  "remote error: tls: bad certificate",
		"shutting down": "shutting down",
		"":              "",
	} {
		if got := cause(text); got != want {
			t.Errorf("cause(%q) = %q, want %q", text, got, want)
		}
	}
}
