package mover_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pipedeck/pipeline"
	"pipedeck/s3/s3test"
)

// oddNames are legal names of files below the output's directory.
func oddNames() []string {
	names := []string{
		"sp ace", " leading", "trailing ", "plus+plus", "100%", "100%25", "a%2Fb", "#hash", "question?", "amp&lt;<>", "semi;colon", "back\\slash",
		`"double"`, "'single'", "(paren)[bracket]{brace}", "star*", "tilde~", "caret^", "pipe|", "at@equals=", "comma,",
		"-dash", "--help", "..dots", "new\nline", "tab\tand\rreturn", "bell\a", "\x01\x7f",
		"caf\u00e9", "cafe\u0301", "\u043a\u043b\u044e\u0447", "\u9375", "\U0001F511", "\u202edrow",
		"bad\xff\xfe", "half\xc3", "d i r/+/%41/x", "deep/" + strings.Repeat("d/", 40) + "x", strings.Repeat("n", 200),
	}
	for i := range names {
		names[i] += ".safetensors"
	}
	return names
}

// TestOddNames takes each through a real key and back: moved with its bytes,
// or kept and reported; and known again from the bucket alone.
func TestOddNames(t *testing.T) {
	t.Parallel()
	for _, p := range []s3test.Personality{s3test.AWS(), s3test.OldCeph(), s3test.FilOne()} {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, s3test.Options{Personality: p}, oneOutput)
			if refused := oddNamesThrough(t, w); len(refused) != 0 {
				t.Errorf("kept: %q", refused)
			}
		})
	}
	t.Run("versitygw", func(t *testing.T) {
		t.Parallel()
		g := s3test.Versitygw(t)
		w := worldAt(t, t.TempDir(), g.Endpoint, g.Bucket, oneOutput)
		w.access, w.secret = g.AccessKey, g.SecretKey
		w.object = func(key string) ([]byte, bool) {
			data, err := os.ReadFile(filepath.Join(g.Dir, key))
			return data, err == nil
		}
		t.Logf("kept and reported: %q", oddNamesThrough(t, w))
	})
}

// TestForeignNamesThatGarble: names of somebody else, which the server's listing
// spoils, keep nothing from being moved.
func TestForeignNamesThatGarble(t *testing.T) {
	t.Parallel()
	g := s3test.Versitygw(t)
	w := worldAt(t, t.TempDir(), g.Endpoint, g.Bucket, oneOutput)
	w.access, w.secret, w.hurry = g.AccessKey, g.SecretKey, hurry
	w.object = func(key string) ([]byte, bool) {
		data, err := os.ReadFile(filepath.Join(g.Dir, key))
		return data, err == nil
	}
	if err := os.MkdirAll(filepath.Join(g.Dir, "pre/r1/hs"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"\x01\x7f", "a\x02", "z\x03"} {
		if err := os.WriteFile(filepath.Join(g.Dir, "pre/r1/hs", name+".safetensors"), tensors(9, 100), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w.writeSamples(0, 4, 100)
	w.start("extract")
	w.await("all are moved", func() bool { return is(w.reading().LocalFiles, 0) && is(w.reading().FailedFiles, 0) })
	w.stop()
	w.forget()
	w.start("extract")
	w.await("all are known again", func() bool { return w.reading().VerifiedFiles != nil && is(w.reading().LocalFiles, 0) })
}

// oddNamesThrough returns the names that the endpoint did not take.
func oddNamesThrough(t *testing.T, w *world) (refused []string) {
	t.Helper()
	w.hurry = hurry
	names := oddNames()
	for i, name := range names {
		w.write("out/"+name, tensors(uint64(i), 200))
	}
	w.start("extract")
	settled := func() bool {
		r := w.reading()
		return r.VerifiedFiles != nil && r.LocalFiles != nil && *r.VerifiedFiles+*r.LocalFiles == int64(len(names)) &&
			is(r.FailedFiles, *r.LocalFiles) && r.Queue.InFlight == 0
	}
	w.await("each is moved or reported", settled)
	for _, f := range w.m.Failures() {
		if f.Reason == "" {
			t.Errorf("%q is kept without a reason", f.Path)
		}
		if !w.exists("out/" + f.Path) {
			t.Errorf("%q is reported and gone", f.Path)
		}
		refused = append(refused, f.Path)
	}
	w.stop()
	w.forget()
	w.start("extract")
	w.await("it is all known again", func() bool {
		return settled() && is(w.reading().LocalFiles, int64(len(refused)))
	})
	return refused
}

// TestWhatIsNoFile: each is reported, by name and reason, and blocks nothing.
func TestWhatIsNoFile(t *testing.T) {
	t.Parallel()
	makers := map[string]func(path string) error{
		"link":     func(path string) error { return os.Symlink("/etc/passwd", path) },
		"dangling": func(path string) error { return os.Symlink("nowhere", path) },
		"fifo":     func(path string) error { return unix.Mkfifo(path, 0o600) },
		"socket":   func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o600, 0) },
	}
	for name, mk := range makers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, s3test.Options{}, oneOutput)
			w.hurry = hurry
			w.writeSamples(0, 2, 100)
			odd := w.path("out/odd.safetensors")
			if err := mk(odd); err != nil {
				t.Fatal(err)
			}
			w.start("extract")
			w.await("the others are moved and it is reported", func() bool {
				r := w.reading()
				f := w.m.Failures()
				return is(r.DeletedLocalFiles, 2) && is(r.FailedFiles, 1) && is(r.DoneIDs, 2) && len(f) == 1 && f[0].Path == "odd.safetensors" && f[0].Reason != ""
			})
			if !w.exists("out/odd.safetensors") {
				t.Error("it is gone")
			}
		})
	}
}

// TestHardLinkedFileStays: it is stored, and stays while it has another name.
func TestHardLinkedFileStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.hurry = hurry
	w.write(sample(0), tensors(0, 100))
	if err := os.Link(w.path(sample(0)), w.path("out/other.name")); err != nil {
		t.Fatal(err)
	}
	w.start("extract")
	w.await("it is stored and held", func() bool {
		f := w.m.Failures()
		return is(w.reading().VerifiedFiles, 1) && len(f) == 1 && f[0].Kind == pipeline.FailureHeld && strings.Contains(f[0].Reason, "hard link")
	})
	if err := os.Remove(w.path("out/other.name")); err != nil {
		t.Fatal(err)
	}
	w.await("it leaves when its other name has", w.moved(1))
}

// TestChangedDuringTheUpload: the endpoint is slow, and meanwhile the file is
// replaced, appended to, truncated, renamed, or rewritten to look the same.
func TestChangedDuringTheUpload(t *testing.T) {
	t.Parallel()
	old := tensors(1, 5000)
	same := bytes.Clone(old)
	same[len(same)-1] ^= 0xff
	changes := map[string]struct {
		do    func(w *world) error
		ends  string // path that is moved in the end
		data  []byte
		local int64 // files that stay
	}{
		"replaced":  {func(w *world) error { w.write(sample(0), tensors(2, 400)); return nil }, "", nil, 1},
		"appended":  {func(w *world) error { return appendTo(w.path(sample(0)), []byte("x")) }, "", nil, 1},
		"truncated": {func(w *world) error { return os.Truncate(w.path(sample(0)), 100) }, "", nil, 1},
		"renamed": {func(w *world) error {
			w.record(sample(5), old)
			w.unrecord(sample(0))
			return os.Rename(w.path(sample(0)), w.path(sample(5)))
		}, sample(5), old, 0},
		"same size and mtime": {func(w *world) error {
			info, err := os.Stat(w.path(sample(0)))
			if err != nil {
				return err
			}
			w.record(sample(0), same)
			if err := os.WriteFile(w.path(sample(0)), same, 0o644); err != nil {
				return err
			}
			return os.Chtimes(w.path(sample(0)), time.Time{}, info.ModTime())
		}, sample(0), same, 0},
	}
	for name, c := range changes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, s3test.Options{}, oneOutput)
			w.hurry = hurry
			slow := w.server.Inject(s3test.Rule{Op: s3test.OpPut, Key: w.key(sample(0)), Kind: s3test.Slow, Delay: 500 * time.Millisecond, Count: 1})
			w.write(sample(0), old)
			w.start("extract")
			w.await("it is on its way", func() bool { return slow.Struck() == 1 })
			if err := c.do(w); err != nil {
				t.Fatal(err)
			}
			w.write(sample(9), tensors(9, 100))
			w.await("it ends as it should", func() bool {
				r := w.reading()
				if !is(r.LocalFiles, c.local) || r.Queue.InFlight > 0 || w.exists(sample(9)) {
					return false
				}
				got, ok := w.server.Object(w.key(c.ends))
				return c.ends == "" || ok && bytes.Equal(got, c.data)
			})
		})
	}
}

func appendTo(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// TestDirectoryThatGoes: it vanishes, comes as a link, comes back.
func TestDirectoryThatGoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.hurry = hurry
	w.writeSamples(0, 3, 100)
	w.start("extract")
	w.await("the first are moved", w.moved(3))
	if err := w.m.Pause(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	w.writeSamples(3, 6, 100)
	w.await("three wait", func() bool { return is(w.reading().LocalFiles, 3) })
	elsewhere := w.path("elsewhere")
	if err := os.Rename(w.path("out"), elsewhere); err != nil {
		t.Fatal(err)
	}
	for i := 3; i < 6; i++ {
		w.unrecord(sample(i))
	}
	w.await("they are gone with it", func() bool { return is(w.reading().LocalFiles, 0) })
	if err := os.Symlink(elsewhere, w.path("out")); err != nil {
		t.Fatal(err)
	}
	if err := w.m.Pause(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	w.await("no link is followed, and the state says so", func() bool {
		r := w.reading()
		return r.State == pipeline.OutputBlocked && strings.Contains(r.StateReason, "link") && r.LocalFiles == nil && is(r.VerifiedFiles, 3)
	})
	if err := os.Remove(w.path("out")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(elsewhere, w.path("out")); err != nil {
		t.Fatal(err)
	}
	w.await("all are moved", w.moved(6))
}

// TestManyDirectories: one file in each.
func TestManyDirectories(t *testing.T) {
	t.Parallel()
	n := 300
	if os.Getenv("PIPEDECK_FULL") == "1" {
		n = 5000
	}
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.hurry = hurry
	w.start("extract")
	for i := range n {
		w.write(fmt.Sprintf("out/%d/%d/hs_%d.safetensors", i%50, i, i), tensors(uint64(i), 50))
	}
	w.await("all are moved", w.moved(int64(n)))
}

// TestManyFilesAtOnce: an output directory that was full before the start.
func TestManyFilesAtOnce(t *testing.T) {
	t.Parallel()
	n := 3000
	if os.Getenv("PIPEDECK_FULL") == "1" {
		n = 200_000
	}
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.hurry = hurry
	if err := os.MkdirAll(w.path("out"), 0o755); err != nil {
		t.Fatal(err)
	}
	data := tensors(1, 20)
	for i := range n {
		if err := os.WriteFile(w.path(sample(i)), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w.patience = 20 * time.Minute
	w.start("extract")
	w.await("all are moved", w.moved(int64(n)))
	if got := len(dataKeys(w.server)); got != n {
		t.Errorf("%d objects, want %d", got, n)
	}
	ids, _, err := w.m.WriteDoneSet(t.Context(), "extract")
	if err != nil || ids != n {
		t.Errorf("%d ids are done: %v", ids, err)
	}
}

// TestPermissionDenied runs a mover as another user, who may not read one file
// and may not unlink another.
func TestPermissionDenied(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can run a mover as another user")
	}
	const nobody = 65534
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.hurry = hurry
	w.user = &syscall.Credential{Uid: nobody, Gid: nobody}
	unreadable, fast, good := sample(1), "out/fast/hs_2.safetensors", sample(3)
	for i, rel := range []string{unreadable, fast, good} {
		w.write(rel, tensors(uint64(i), 100))
	}
	for path, mode := range map[string]os.FileMode{filepath.Dir(w.dir): 0o755, w.path(unreadable): 0} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{w.dir, w.path("out"), w.path(good)} {
		if err := os.Chown(path, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	c := w.spawn("", 0)
	ask := func(o order) answer {
		a, alive := c.ask(o)
		if !alive {
			t.Fatal("the mover is dead")
		}
		return a
	}
	ask(order{Do: "activate", Arg: "extract"})
	var a answer
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		w.safe()
		a = ask(order{Do: "read"})
		r := a.Reading.Outputs[0]
		if is(r.VerifiedFiles, 2) && is(r.LocalFiles, 2) && len(a.Failures) == 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("reading %+v, failures %+v", r, a.Failures)
		}
	}
	for _, f := range a.Failures {
		want := map[string]pipeline.FailureKind{"hs_000001.safetensors": pipeline.FailureUpload, "fast/hs_2.safetensors": pipeline.FailureHeld}[f.Path]
		if f.Kind != want || !strings.Contains(f.Reason, "permission denied") {
			t.Errorf("failure = %+v, want %q and the cause", f, want)
		}
	}
}
