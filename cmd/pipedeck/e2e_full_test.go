package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"pipedeck/remote/agent/wire"
	"pipedeck/s3/s3test"
)

// testFullDisk fills a disk to its last byte while uploads are paused, until
// the reserve is used up too. A wipe then is what makes room, so it has to work; so has its undo.
func testFullDisk(t *testing.T, bin string) {
	t.Helper()
	server := s3test.Start(t, s3test.Options{})
	p := newProgram(t, bin, "AWS_ACCESS_KEY_ID=k", "AWS_SECRET_ACCESS_KEY=s")
	mark := "TMPDIR=" + p.dir
	p.dir = filepath.Join(p.dir, "w")
	if err := os.Mkdir(p.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("pipedeck-test", p.dir, "tmpfs", 0, "size=64M"); err != nil {
		t.Skipf("cannot mount a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := endDeck(filepath.Join(p.dir, ".pipedeck")); err != nil {
			t.Error(err)
		}
		awaitGone(mark, patience)
		if err := unix.Unmount(p.dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	p.write(t, "pipedeck.yaml", fmt.Sprintf(crashYAML, p.dir, server.Bucket(), server.URL(), bin, 4000, 100_000, "delete"))
	p.must(t, "pause")
	if err := os.Mkdir(filepath.Join(p.dir, "out"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		if os.WriteFile(filepath.Join(p.dir, "out", simName(i)), simFile(i, 100_000), 0o644) != nil {
			break
		}
	}
	eatUp(t, filepath.Join(p.dir, "stuff-1"))
	for range 50 { // uses up the reserve, and what that leaves
		p.run(t, "pause")
	}
	eatUp(t, filepath.Join(p.dir, "stuff-2"))
	_, said, code := p.run(t, "wipe", "extract/hs")
	confirm := confirmation(said)
	if code != exitRefused || confirm == "" {
		t.Fatalf("the wipe asks with %d: %s", code, said)
	}
	out, said, code := p.run(t, "wipe", "extract/hs", "--confirm", confirm, "--json")
	if code != exitOK {
		t.Fatalf("the wipe ends with %d: %s\n%s", code, said, wire.LastLines(wire.State{Dir: filepath.Join(p.dir, ".pipedeck")}.Log(), 10))
	}
	t.Logf("wiped by %q: %s", confirm, said)
	if _, said, code := p.run(t, "undo", actionID.FindString(out)); code != exitOK {
		t.Errorf("the undo ends with %d: %s", code, said)
	}
}

// eatUp takes the last bytes of a disk, as far as there are any.
func eatUp(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		return
	}
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 16
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// confirmation is the text that a refusal asks for.
func confirmation(said string) string {
	_, rest, _ := strings.Cut(said, `--confirm "`)
	text, _, _ := strings.Cut(rest, `"`)
	return text
}
