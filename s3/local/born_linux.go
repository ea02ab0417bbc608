package local

import "golang.org/x/sys/unix"

func bornOf(fd int) int64 {
	var st unix.Statx_t
	_, err := ignoringEINTR(func() (int, error) {
		return 0, unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BTIME, &st)
	})
	if err != nil || st.Mask&unix.STATX_BTIME == 0 {
		return 0
	}
	return st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
}
