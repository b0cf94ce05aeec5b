// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"net/netip"
	"time"
)

// Answerer is software on a host that answers ARP: it gets every request that
// reaches the NIC and returns what to send.
type Answerer func(request Frame) []Answer

// Answer is a frame to be sent after a delay. Ethernet source and sender MAC
// are the port's own where they are zero.
type Answer struct {
	Frame Frame
	Delay time.Duration
}

// KernelAnswers models a Linux kernel with arp_ignore 0 that holds the
// addresses, on whatever link: it answers once, to the asker alone, and is
// silent to a loopback sender.
func KernelAnswers(held ...netip.Addr) Answerer {
	announcer := AnnouncerAnswers(held...)
	return func(request Frame) []Answer {
		if request.SenderIP.IsLoopback() {
			return nil
		}
		return announcer(request)
	}
}

// AnnouncerAnswers models a user-space announcer, such as MetalLB's speaker:
// it answers whoever asks, whatever the sender.
func AnnouncerAnswers(announced ...netip.Addr) Answerer {
	return func(request Frame) []Answer {
		for _, ip := range announced {
			if ip == request.TargetIP {
				return []Answer{{Frame: Frame{
					EthDst: request.SenderMAC, Op: OpReply, SenderIP: ip,
					TargetMAC: request.SenderMAC, TargetIP: request.SenderIP,
				}}}
			}
		}
		return nil
	}
}

// Delayed models an answer that comes late, such as proxy ARP's.
func Delayed(a Answerer, by time.Duration) Answerer {
	return func(request Frame) []Answer {
		answers := a(request)
		for i := range answers {
			answers[i].Delay += by
		}
		return answers
	}
}
