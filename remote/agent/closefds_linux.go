package agent

import (
	"math"

	"golang.org/x/sys/unix"
)

// closeOnExec keeps files that this process inherited, such as the lock of a
// `flock` around the command, from living on in the keeper. Kernels before
// 5.11 lack the call; there the files leak, as from any other command.
func closeOnExec() { _ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) }
