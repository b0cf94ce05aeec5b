// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// message is one netlink message as the kernel sends it.
func message(typ, flags uint16, seq, pid uint32, body ...byte) []byte {
	b := header(typ, flags, seq, len(body))
	binary.NativeEndian.PutUint32(b[12:], pid)
	b = append(b, body...)
	for len(b)%unix.NLMSG_ALIGNTO != 0 {
		b = append(b, 0)
	}
	return b
}

func batch(messages ...[]byte) []byte {
	var b []byte
	for _, m := range messages {
		b = append(b, m...)
	}
	return b
}

func errnoBody(e unix.Errno) []byte {
	return binary.NativeEndian.AppendUint32(nil, uint32(-int32(e)))
}

// Seq 7 and port 42 are ours.
func TestReaderTakesAnswersApart(t *testing.T) {
	entry := message(unix.RTM_NEWADDR, unix.NLM_F_MULTI, 7, 42, 1, 2, 3)
	done := message(unix.NLMSG_DONE, unix.NLM_F_MULTI, 7, 42, 0, 0, 0, 0)
	for _, c := range []struct {
		name    string
		batches [][]byte
		entries int
		done    bool
		err     error
	}{
		{"entries and the end", [][]byte{batch(entry, entry, done)}, 2, true, nil},
		{"the end in a batch of its own", [][]byte{batch(entry, entry), done}, 2, true, nil},
		{"an end without a body", [][]byte{message(unix.NLMSG_DONE, 0, 7, 42)}, 0, true, nil},
		{"no end yet", [][]byte{batch(entry)}, 1, false, nil},
		{"C09 interrupted, said by the first entry", [][]byte{batch(message(unix.RTM_NEWADDR, unix.NLM_F_MULTI|unix.NLM_F_DUMP_INTR, 7, 42), entry, done)}, 2, true, ErrInterrupted},
		{"C09 interrupted, said by the end alone", [][]byte{batch(entry), message(unix.NLMSG_DONE, unix.NLM_F_DUMP_INTR, 7, 42, 0, 0, 0, 0)}, 1, true, ErrInterrupted},
		{"the end carries an error", [][]byte{message(unix.NLMSG_DONE, 0, 7, 42, errnoBody(unix.ENODEV)...)}, 0, true, unix.ENODEV},
		{"a refusal", [][]byte{message(unix.NLMSG_ERROR, 0, 7, 42, errnoBody(unix.EPERM)...)}, 0, true, unix.EPERM},
		{"an acknowledgement", [][]byte{message(unix.NLMSG_ERROR, 0, 7, 42, 0, 0, 0, 0)}, 0, true, nil},
		{"an error without a number", [][]byte{message(unix.NLMSG_ERROR, 0, 7, 42)}, 0, true, errShort},
		{"the answer to another request", [][]byte{batch(message(unix.RTM_NEWADDR, unix.NLM_F_DUMP_INTR, 6, 42), message(unix.NLMSG_DONE, 0, 6, 42)), done}, 0, true, nil},
		{"the answer to another socket", [][]byte{message(unix.NLMSG_ERROR, 0, 7, 41, errnoBody(unix.EPERM)...), done}, 0, true, nil},
		{"entries of another type", [][]byte{batch(message(unix.RTM_NEWLINK, 0, 7, 42, 9), done)}, 0, true, nil},
		{"a length beyond the batch", [][]byte{entry[:len(entry)-2]}, 0, false, errShort},
		{"a length below a header", [][]byte{{8, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 42, 0, 0, 0}}, 0, false, errShort},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := 0
			r := reader{seq: 7, pid: 42, answer: unix.RTM_NEWADDR, each: func([]byte) error { n++; return nil }}
			var err error
			for _, b := range c.batches {
				if err = r.read(b); err != nil {
					break
				}
			}
			if err == nil {
				err = r.verdict()
			}
			if n != c.entries || r.done != c.done || !errors.Is(err, c.err) {
				t.Errorf("got %d entries, done %v, error %v, want %d, %v, %v", n, r.done, err, c.entries, c.done, c.err)
			}
		})
	}
}

// I6: an entry that cannot be read spoils the list, and the interruption is
// what counts when both happened, since that one is worth another try.
func TestReaderReportsAnUnreadableEntry(t *testing.T) {
	bad := errors.New("bad entry")
	r := reader{seq: 7, pid: 42, answer: unix.RTM_NEWADDR, each: func([]byte) error { return bad }}
	if err := r.read(message(unix.RTM_NEWADDR, 0, 7, 42)); err != nil {
		t.Fatal(err)
	}
	if err := r.verdict(); !errors.Is(err, bad) {
		t.Errorf("got %v, want the entry's error", err)
	}
	r.interrupted = true
	if err := r.verdict(); !errors.Is(err, ErrInterrupted) {
		t.Errorf("got %v, want interrupted", err)
	}
}

func FuzzReader(f *testing.F) {
	f.Add(batch(message(unix.RTM_NEWADDR, 0, 7, 42, 1, 2), message(unix.NLMSG_DONE, 0, 7, 42)))
	f.Add(message(unix.NLMSG_ERROR, 0, 7, 42, errnoBody(unix.EPERM)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		total := 0
		r := reader{seq: 7, pid: 42, answer: unix.RTM_NEWADDR, each: func(body []byte) error { total += len(body) + unix.NLMSG_HDRLEN; return nil }}
		err := r.read(b)
		if total > len(b) {
			t.Errorf("read %d bytes of %d", total, len(b))
		}
		if err == nil && !r.done && r.verdict() != nil != r.interrupted {
			t.Errorf("verdict %v, interrupted %v", r.verdict(), r.interrupted)
		}
	})
}
