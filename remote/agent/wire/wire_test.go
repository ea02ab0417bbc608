package wire

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pipedeck/pipeline"
)

func TestSocketPathDependsOnTheStateDirectoryOnly(t *testing.T) {
	for _, tc := range []struct{ dir, want string }{
		{"/w/.pipedeck", "/w/.pipedeck/agent.sock"},
		{"/w//x/../.pipedeck/", "/w/.pipedeck/agent.sock"},
		{"/" + strings.Repeat("a", 88), "/" + strings.Repeat("a", 88) + "/agent.sock"}, // 100 bytes
	} {
		if got := SocketPath(tc.dir); got != tc.want {
			t.Errorf("%q gives %q, want %q", tc.dir, got, tc.want)
		}
	}
	long := "/" + strings.Repeat("a", 89)
	t.Setenv("XDG_RUNTIME_DIR", "/run/user/1")
	t.Setenv("TMPDIR", "/somewhere")
	first := SocketPath(long)
	t.Setenv("XDG_RUNTIME_DIR", "")
	t.Setenv("TMPDIR", "")
	if second := SocketPath(long); first != second {
		t.Errorf("the environment changes %q to %q", first, second)
	}
	if len(first) > maxSocketPath || first == SocketPath(long+"b") {
		t.Errorf("%q is too long or not of this directory alone", first)
	}
}

func TestSocketPathFollowsTheOwnerOfTheDirectory(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root to give a directory away")
	}
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 25))
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, 1234, 1234)); err != nil {
		t.Fatal(err)
	}
	if got := SocketPath(dir); !strings.HasPrefix(got, "/tmp/pipedeck-1234-") {
		t.Errorf("root looks for the agent of user 1234 at %q", got)
	}
}

func TestLockIsHeldByOneAndTellsByWhom(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agent.lock")
	if _, held, err := Held(path); held || err != nil {
		t.Fatalf("a missing lock is held=%t (%v)", held, err)
	}
	lock, err := TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []Record{{os.Getpid(), LockBackoff, 12345}, {os.Getpid(), LockReady, 0}} {
		if err := lock.Write(want.State, want.Count); err != nil {
			t.Fatal(err)
		}
		if got, held, err := Held(path); got != want || !held || err != nil {
			t.Errorf("got %+v held=%t (%v), want %+v", got, held, err, want)
		}
	}
	if _, err := TryLock(path); !errors.Is(err, ErrHeld) {
		t.Errorf("a second lock gives %v, want ErrHeld", err)
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	if rec, held, err := Held(path); held || err != nil || rec.State != LockReady {
		t.Errorf("after the release: %+v held=%t (%v)", rec, held, err)
	}
}

func TestReadRecordOfForeignFiles(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "12\n", "x ready 0", "1 ready x", strings.Repeat("1 ready 0 ", 100)} {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := ReadRecord(path); got != (Record{}) {
			t.Errorf("%q reads as %+v", text, got)
		}
	}
}

func TestLastLines(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	for text, want := range map[string]string{
		"": "", "a": "a", "a\n": "a", "a\nb\nc\n": "b\nc", "a\n\nc": "\nc",
		strings.Repeat("x", 3*tailBytes) + "\nend\n": strings.Repeat("x", tailBytes-5) + "\nend",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := LastLines(path, 2); got != want {
			t.Errorf("last lines of %.20q are %.40q, want %.40q", text, got, want)
		}
	}
	if got := LastLines(path+".none", 2); got != "" {
		t.Errorf("a missing log gives %q", got)
	}
}

func TestProtoRanges(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		a, b Proto
		want bool
	}{
		{Proto{1, 1}, Proto{1, 1}, true},
		{Proto{1, 3}, Proto{3, 5}, true},
		{Proto{1, 2}, Proto{3, 5}, false},
		{Proto{}, Proto{1, 1}, false},
	} {
		if tc.a.Overlaps(tc.b) != tc.want || tc.b.Overlaps(tc.a) != tc.want {
			t.Errorf("%s and %s overlap: want %t", tc.a, tc.b, tc.want)
		}
	}
}

func TestAsProblemKeepsTheDecksOwn(t *testing.T) {
	t.Parallel()
	own := pipeline.Problemf(pipeline.ProblemRefused, "hint", "cannot stop")
	if got := AsProblem(fmt.Errorf("wrapped: %w", own)); got != own {
		t.Errorf("got %+v, want the deck's problem", got)
	}
	if got := AsProblem(os.ErrClosed); got.Kind != pipeline.ProblemFailed || Status(got.Kind) != 500 {
		t.Errorf("a plain error travels as %+v", got)
	}
}
