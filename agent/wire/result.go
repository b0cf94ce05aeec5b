// SPDX-License-Identifier: Apache-2.0

package wire

import "time"

// Bounds on what a round keeps, whatever the segment sends. What goes beyond is
// counted, and marks the result Truncated.
const (
	maxReplies  = 4096 // a round
	maxHints    = 1024 // a round: unsolicited and outgoing frames, each
	maxHeard    = 256  // a result
	maxFromOne  = 16   // replies of one MAC to one request: none crowds out another
	maxRequests = 1024 // a round
)

// Reply is a reply for the asked address, to this NIC's MAC or to everyone,
// that came inside the window of a request.
type Reply struct {
	Frame
	After     time.Duration // since the request went out
	Solicited bool          // its target address is our sender address, from a MAC that was asked: an answer to this very request
}

// Result is what came of one request. Only a result that was Sent, with an
// empty ListenError and nothing Dropped, makes silence mean anything.
type Result struct {
	Request // with Window filled in

	Sent      bool
	SentAt    time.Time     // just before the frame was handed to the NIC
	Waited    time.Duration // for the NIC's probe budget
	SendError string        // this sensor could not ask; never "nobody answers"

	// Replies, in the order heard. Two of one MAC are two: its kernel and an
	// announcer. Only a Broadcast has some that are not Solicited: broadcast
	// replies, and replies with other target fields.
	Replies []Reply
	// Unsolicited are other incoming frames whose sender address is the VIP:
	// announcements, requests, replies to others. Hints, and listed with one
	// request only where several ask for the VIP.
	Unsolicited []Frame
	// Outgoing are this host's own replies for the VIP, to whoever asked.
	Outgoing []Frame
	// OwnRequests counts requests for the VIP by this host's kernel or other
	// software on it. Their answers look like answers to ours, so with any,
	// two replies of one MAC prove no announcer. Seen when capturing only.
	OwnRequests int
	// Heard are the senders of others' broadcast requests: this NIC is not deaf.
	Heard []MAC

	ListenError string // the window was not heard to its end
	Dropped     uint32 // frames lost in the receive queue meanwhile
	OtherVLAN   int    // frames about the addresses, tagged for another segment
	Truncated   bool   // some list is not complete
	Overflow    int    // frames left out of the lists
}

// Answers returns the solicited replies.
func (r Result) Answers() []Reply {
	var out []Reply
	for _, reply := range r.Replies {
		if reply.Solicited {
			out = append(out, reply)
		}
	}
	return out
}

// Complete reports whether the request went out and everything that came in
// its window was heard and kept: whether silence can mean anything.
func (r Result) Complete() bool {
	return r.Sent && r.ListenError == "" && r.Dropped == 0 && !r.Truncated
}
