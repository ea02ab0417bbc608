package wire

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// PeerUID is the user at the other end of a unix socket, from SO_PEERCRED:
// the kernel's word, taken when the connection was made.
func PeerUID(conn net.Conn) (int, error) {
	uc, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, fmt.Errorf("cannot read the peer of %q: not a unix socket", conn.RemoteAddr())
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err != nil {
		return 0, err
	}
	if credErr != nil {
		return 0, fmt.Errorf("cannot read the peer's credentials: %w", credErr)
	}
	return int(cred.Uid), nil
}
