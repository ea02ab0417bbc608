package ssh

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
)

// whyUnreached is what to look at when the network says no.
func whyUnreached(err error) string {
	dns, unknown := errors.AsType[*net.DNSError](err)
	switch {
	case unknown && dns.IsNotFound:
		return "is the name right? An alias of ~/.ssh/config has a HostName"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there: is the port right, does the node run, has sshd come up?"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), strings.HasSuffix(err.Error(), "EOF"):
		return "the server cut the connection: it may be starting, have too many connections (MaxStartups) or refuse this address"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "there is no way there: is the address right, is this machine online, does it need a VPN?"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		return "nothing answers: is the node up, is the port open in its firewall?"
	}
	return ""
}
