// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// UnavailableError says that this process cannot make the namespaces a lab
// needs: it is neither root nor may it make user namespaces, as on hardened
// distributions.
type UnavailableError struct {
	// Reason is what stands in the way, named as the setting where it is one.
	Reason string
	// Sudo is the command line that works instead, "" where this is root
	// already, inside a container for example.
	Sudo string
	// Err is what the kernel said.
	Err error
}

// Error is one sentence and, where it helps, the line to run.
func (e *UnavailableError) Error() string {
	if e.Sudo == "" {
		return fmt.Sprintf("making network namespaces: not possible here even as root (%s); run it outside of this container", e.Reason)
	}
	return fmt.Sprintf("making network namespaces: not possible here for an ordinary user (%s); run: %s", e.Reason, e.Sudo)
}

func (e *UnavailableError) Unwrap() error { return e.Err }

// outerUIDEnv tells the inner process, whose own id is 0, who started it.
const outerUIDEnv = "VIPMOVE_LAB_UID"

func unavailable(err error) error {
	e := &UnavailableError{Reason: obstacle("/proc/sys", err), Err: err}
	if os.Getenv(outerUIDEnv) != "0" && (Inside() || os.Geteuid() != 0) {
		e.Sudo = sudoLine(os.Args)
	}
	return e
}

// switches are the settings that forbid namespaces, with the value that does.
var switches = []struct{ path, value string }{
	{"user/max_user_namespaces", "0"},
	{"user/max_net_namespaces", "0"},
	{"user/max_pid_namespaces", "0"},
	{"user/max_mnt_namespaces", "0"},
	{"kernel/unprivileged_userns_clone", "0"},             // Debian
	{"kernel/apparmor_restrict_unprivileged_userns", "1"}, // Ubuntu
}

// obstacle names the setting below root that stands in the way, else what the
// kernel said.
func obstacle(root string, err error) string {
	for _, s := range switches {
		value, readErr := os.ReadFile(filepath.Join(root, s.path))
		if readErr == nil && strings.TrimSpace(string(value)) == s.value {
			return "sysctl " + strings.ReplaceAll(s.path, "/", ".") + " is " + s.value
		}
	}
	return err.Error()
}

// sudoLine is the command line of args as it has to be typed after sudo, which
// does not search the caller's PATH.
func sudoLine(args []string) string {
	words := append([]string(nil), args...)
	if !strings.Contains(words[0], "/") {
		if self, err := os.Executable(); err == nil {
			words[0] = self
		}
	}
	for i, w := range words {
		words[i] = quote(w)
	}
	return "sudo " + strings.Join(words, " ")
}

// quote quotes a word for a POSIX shell where it needs it.
func quote(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("@%+=:,./-_", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
