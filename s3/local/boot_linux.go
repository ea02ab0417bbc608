package local

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Boot returns the id of the node's boot and the time since it, suspension
// included: a clock that nobody can set. No id: it is not known.
func Boot() (id string, up time.Duration) {
	var ts unix.Timespec
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return "", 0
	}
	return strings.TrimSpace(string(data)), time.Duration(ts.Nano())
}
