//go:build !linux

package wire

import (
	"errors"
	"net"
)

// PeerUID is known on Linux only.
func PeerUID(net.Conn) (int, error) {
	return 0, errors.New("cannot read the peer of a unix socket: only Linux tells it")
}
