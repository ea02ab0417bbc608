package local

import (
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// Writers tells for many files who has them open for writing: where the
// kernel does not say, it reads all of /proc once instead of once a file.
type Writers struct {
	once sync.Once
	open map[[2]uint64]bool
}

// Has says whether somebody is seen to have f open for writing. No is a proof
// only where the filesystem knows leases: see File.Writer.
func (w *Writers) Has(f *File) bool {
	state, _ := probeWriter(f.fd)
	if state != WriterUnknown {
		return state == WriterOpen
	}
	st, err := f.stat()
	if err != nil {
		return false
	}
	w.once.Do(w.read)
	id := identityOf(&st)
	return w.open[[2]uint64{id.Dev, id.Ino}]
}

func (w *Writers) read() {
	w.open = map[[2]uint64]bool{}
	fds, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return
	}
	for _, fd := range fds {
		var st unix.Stat_t
		if unix.Stat(fd, &st) == nil && kindOf(uint32(st.Mode)) == KindRegular && writableFD(fd) {
			id := identityOf(&st)
			w.open[[2]uint64{id.Dev, id.Ino}] = true
		}
	}
}
