package proc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"pipedeck/pipeline"
)

// deadFS is a filesystem that answers to the mount and then nothing more, like
// a network filesystem whose server is gone: whoever asks it for a name cannot
// be killed before it ends. asked is closed with the first question.
func deadFS(t *testing.T) (dir string, asked <-chan struct{}, end func()) {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("needs /dev/fuse and root: %v", err)
	}
	dir = t.TempDir()
	opts := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd)
	if err := unix.Mount("pipedeck-test", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, opts); err != nil {
		unix.Close(fd)
		t.Skipf("cannot mount: %v", err)
	}
	questions := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		serveNothing(fd, questions)
	}()
	ended := false
	end = func() {
		if ended {
			return
		}
		ended = true
		// A forced unmount aborts the connection, and with it every question.
		if err := unix.Unmount(dir, unix.MNT_FORCE|unix.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
		<-done
		unix.Close(fd)
	}
	t.Cleanup(end)
	return dir, questions, end
}

// serveNothing speaks as much of the FUSE protocol as a mount needs.
func serveNothing(fd int, asked chan<- struct{}) {
	const opInit = 26
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Read(fd, buf)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil || n < 40 {
			return // ENODEV: unmounted
		}
		if binary.NativeEndian.Uint32(buf[4:]) != opInit {
			if asked != nil {
				close(asked)
				asked = nil
			}
			continue
		}
		out := make([]byte, 16+64)
		binary.NativeEndian.PutUint32(out, uint32(len(out)))
		copy(out[8:16], buf[8:16])                     // unique
		binary.NativeEndian.PutUint32(out[16:], 7)     // major
		binary.NativeEndian.PutUint32(out[20:], 31)    // minor
		binary.NativeEndian.PutUint32(out[24:], 1<<16) // max_readahead
		binary.NativeEndian.PutUint16(out[32:], 12)    // max_background
		binary.NativeEndian.PutUint32(out[36:], 4096)  // max_write
		if _, err := unix.Write(fd, out); err != nil {
			return
		}
	}
}

// A process that waits in the kernel for what does not come outlasts every
// SIGKILL. The stop is not verified before it has gone, and says where it waits.
func TestUnkillableWorker(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	t.Parallel()
	dir, asked, end := deadFS(t)
	d := newDeck(t)
	h := d.up(t)
	t.Cleanup(end) // before its processes are waited for
	start(t, h, d.launch("w-0-1", "exec cat "+filepath.Join(dir, "file")))
	leader := seen(t, h).PID
	await(t, "the question", func() bool {
		select {
		case <-asked:
			return true
		default:
			return false
		}
	})
	for range 2 {
		if _, err := h.Signal(context.Background(), "w-0-1", "SIGKILL", pipeline.ToSet); err != nil {
			t.Errorf("kill: %v", err)
		}
	}
	await(t, "D state", func() bool { s, err := h.fs.stat(leader); return err == nil && s.State == 'D' })
	verdict, checks := judge(t, h, "w-0-1")
	if want := fmt.Sprintf("D state: pid %d (cat)", leader); verdict != pipeline.ActionFailed || !strings.Contains(said(checks), want) {
		t.Errorf("%s: %s", verdict, said(checks))
	}
	t.Logf("%s", said(checks))
	if got := seen(t, h); got.State != pipeline.ProcRunning {
		t.Errorf("observed: %+v", got)
	}
	end()
	await(t, "its end", func() bool { return gone(leader) })
	if verdict, checks := judge(t, h, "w-0-1"); verdict != pipeline.Verified {
		t.Errorf("then %s: %s", verdict, said(checks))
	}
}
