package local

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWriterStates(t *testing.T) {
	t.Parallel()
	eachFilesystem(t, func(t *testing.T, dir string) {
		put(t, dir, "a", "content")
		f, err := Open(dir, "a")
		must(t, err)
		defer f.Close()
		want := func(want WriterState) {
			t.Helper()
			if got, reason := f.Writer(); got != want {
				t.Errorf("%s (%s), want %s", got, reason, want)
			}
			id, err := f.Identity()
			must(t, err)
			if got := writerInProc(id); got != (want == WriterOpen) {
				t.Errorf("/proc says %v, want %s", got, want)
			}
		}
		want(WriterNone)
		// Another process holds the file open until its stdin is closed.
		cmd := exec.Command("sh", "-c", `exec 3>>"$0"; echo; read x`, filepath.Join(dir, "a"))
		in, err := cmd.StdinPipe()
		must(t, err)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		_, err = out.Read(make([]byte, 1))
		must(t, err)
		want(WriterOpen)
		must(t, in.Close())
		_ = cmd.Wait()
		want(WriterNone)
		reader, err := os.Open(filepath.Join(dir, "a"))
		must(t, err)
		defer reader.Close()
		want(WriterNone)
	})
}

func TestHashes(t *testing.T) {
	t.Parallel()
	data := make([]byte, 3<<20+17)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data)
	got := HashBuffer(data, true)
	table := crc32.MakeTable(crc32.Castagnoli)
	want := Sums{md5.Sum(data), crc32.Checksum(data, table), sha256.Sum256(data), int64(len(data))}
	if got != want {
		t.Errorf("%+v", got)
	}
	if empty := HashBuffer(nil, false); empty.MD5 != md5.Sum(nil) || empty.SHA256 != [32]byte{} {
		t.Errorf("%+v", empty)
	}
	root := t.TempDir()
	put(t, root, "a", string(data))
	f, err := Open(root, "a")
	must(t, err)
	defer f.Close()
	sums, err := HashFile(context.Background(), f, int64(len(data)), 2<<20)
	must(t, err)
	one, two := HashBuffer(data[:2<<20], false), HashBuffer(data[2<<20:], false)
	both := md5.Sum(append(one.MD5[:], two.MD5[:]...))
	if len(sums.Parts) != 2 || sums.Parts[0] != one || sums.Parts[1] != two ||
		sums.MD5 != want.MD5 || sums.CRC32C != want.CRC32C || sums.ETag != hex.EncodeToString(both[:])+"-2" {
		t.Errorf("%+v", sums)
	}
	if _, err := HashFile(context.Background(), f, int64(len(data))+1, 1<<20); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	buf := make([]byte, len(data))
	if err := f.ReadAll(buf); err != nil || !bytes.Equal(buf, data) {
		t.Error(err)
	}
	if err := f.ReadAll(make([]byte, len(data)+1)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
}

func TestFS(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a", "b.json")
	var files FS
	must(t, files.WriteFile(path, []byte("12345")))
	must(t, files.WriteFile(path, []byte("1234567")))
	data, at, err := files.ReadFile(path, 5)
	if err != nil || string(data) != "12345" || at.IsZero() {
		t.Error(string(data), at, err)
	}
	tail, size, inode, err := files.ReadFrom(path, 5, 100)
	if err != nil || string(tail) != "67" || size != 7 || inode == 0 {
		t.Error(string(tail), size, inode, err)
	}
	if past, size, _, err := files.ReadFrom(path, 99, 5); err != nil || len(past) != 0 || size != 7 {
		t.Error(past, size, err)
	}
	found, err := files.Glob(filepath.Join(filepath.Dir(path), "*"))
	if err != nil || len(found) != 1 || found[0] != path {
		t.Error(found, err)
	}
	if _, _, err := files.ReadFile(path+".no", 1); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	fifo := path + ".fifo"
	must(t, unix.Mkfifo(fifo, 0o600))
	if _, _, err := files.ReadFile(fifo, 1); !errors.Is(err, ErrNotRegular) {
		t.Error(err)
	}
}

func TestReserve(t *testing.T) {
	t.Parallel()
	eachFilesystem(t, func(t *testing.T, dir string) {
		path := filepath.Join(dir, "reserve")
		must(t, Reserve(path, 1<<20))
		must(t, Reserve(path, 1<<20))
		var st unix.Stat_t
		must(t, unix.Stat(path, &st))
		if st.Blocks*512 < 1<<20 {
			t.Errorf("%d blocks", st.Blocks)
		}
		must(t, ReleaseReserve(path))
		must(t, ReleaseReserve(path))
		if err := Reserve(path, 1<<60); err == nil {
			t.Error("reserved an exabyte")
		}
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Error("a part of a reserve is left")
		}
	})
}

func TestAsideDir(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	root := filepath.Join(t.TempDir(), "out")
	if _, err := AsideDir(state, root); !errors.Is(err, ErrNoDir) {
		t.Error(err)
	}
	must(t, os.Mkdir(root, 0o755))
	if got, err := AsideDir(state, root); err != nil || got != filepath.Join(state, "aside") {
		t.Error(got, err)
	}
	shm, err := os.MkdirTemp("/dev/shm", "pipedeck-local-") //nolint:usetesting // a tmpfs is the point
	if err != nil {
		t.Skip(err)
	}
	defer os.RemoveAll(shm)
	if got, err := AsideDir(state, shm); err != nil || got != "/dev/shm/.pipedeck-aside" {
		t.Error(got, err)
	}
	if got, err := AsideDir(state, "/dev/shm"); err != nil || got != "/dev/shm/.pipedeck-aside" {
		t.Error(got, err)
	}
	if name, err := FilesystemName(filepath.Join(shm, "not/yet")); err != nil || name != "tmpfs" {
		t.Error(name, err)
	}
	if name, err := FilesystemName("/proc/self"); err != nil || name != "proc" {
		t.Error(name, err)
	}
	for name, want := range map[string]bool{"nfs4": true, "ext4": false, "fuse.sshfs": true, "fuse": false, "fuse.overlayfs": false} {
		if IsNetworkFS(name) != want {
			t.Error(name)
		}
	}
	if mount, err := IsMountPoint("/dev/shm"); err != nil || !mount {
		t.Error(mount, err)
	}
	if mount, err := IsMountPoint(shm); err != nil || mount {
		t.Error(mount, err)
	}
}
