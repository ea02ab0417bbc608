package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pipedeck/bench/term"
	"pipedeck/s3/s3test"
)

// oddDeck has one output, whose directory is full of odd files, and a store in
// which two of their keys are taken.
const oddDeck = `version: 1
deck: odd-files
run: r1
workdir: %q
store: {bucket: %q, endpoint: %q, region: us-east-1, path_style: true, credentials: node, prefix: p}
stages:
  extract:
    workers: {count: 1, command: [sleep, "600"]}
    outputs:
      hs: {dir: out, match: "**/*.bin", format: any, settle: 1s, key: "hs/{path}"}
`

// oddPicture draws the console's list of failures with one file of each kind
// that cannot simply be moved.
func oddPicture(bin, out string, text bool) error {
	dir, err := os.MkdirTemp("", "pd-odd-")
	if err != nil {
		return err
	}
	server := s3test.New(s3test.Options{})
	if err := server.Listen(); err != nil {
		return err
	}
	defer server.Close()
	if err := os.WriteFile(filepath.Join(dir, "pipedeck.yaml"), fmt.Appendf(nil, oddDeck, dir, server.Bucket(), server.URL()), 0o644); err != nil {
		return err
	}
	if err := makeOdd(dir, server); err != nil {
		return err
	}
	env := append(os.Environ(), "TERM=xterm-256color", "NO_COLOR=", "AWS_ACCESS_KEY_ID=k", "AWS_SECRET_ACCESS_KEY=s")
	run := func(args ...string) error {
		cmd := exec.Command(bin, args...)
		cmd.Dir, cmd.Env = dir, env
		if raw, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s %q: %w: %s", bin, args, err, raw)
		}
		return nil
	}
	if err := run("start", "extract"); err != nil {
		return err
	}
	defer func() {
		_ = run("stop", "extract", "--confirm", "odd-files")
		_ = run("agent", "stop")
		_ = os.RemoveAll(dir)
	}()
	cmd := exec.Command(bin, "--theme", "dark")
	cmd.Dir, cmd.Env = dir, env
	return drawFailures(cmd, out, text)
}

// drawFailures opens the list of failures in a console and keeps what it shows.
func drawFailures(console *exec.Cmd, out string, text bool) error {
	const w, h = 160, 46 // the whole list, with its reasons
	t, err := term.Open(console, w, h)
	if err != nil {
		return err
	}
	defer t.Close("\x03")
	if _, err := t.Await("a console", patience, func(s string) bool { return strings.Contains(s, "extract") }); err != nil {
		return err
	}
	if err := t.Type("e"); err != nil {
		return err
	}
	if _, err := t.Await("the list of failures", patience, listsOdd); err != nil {
		return fmt.Errorf("%w\n%s", err, t.Text())
	}
	time.Sleep(2 * time.Second)
	if text {
		if err := os.WriteFile(filepath.Join(out, "odd-files.txt"), []byte(t.Text()), 0o644); err != nil {
			return err
		}
	}
	fmt.Println(filepath.Join(out, "odd-files.svg"))
	return os.WriteFile(filepath.Join(out, "odd-files.svg"), svg(t, w, h), 0o644)
}

func listsOdd(screen string) bool {
	for _, name := range []string{"a link.bin", "a dangling link.bin", "a fifo.bin", "a socket.bin", "two names.bin", "cut short.bin", "--help.bin"} {
		if !strings.Contains(screen, name) {
			return false
		}
	}
	return true
}

// takenNames are names of files whose keys somebody else's objects have.
var takenNames = []string{
	"sp ace", "plus+", "100%", "#hash", "'single' \"double\"", "(paren)", "new\nline", "tab\tbell\a", "bad\xff\xfe",
	"caf\u00e9", "cafe\u0301", "\u9375", "-dash", "--help", "back\\slash",
}

// makeOdd fills the output's directory.
func makeOdd(dir string, server *s3test.Server) error {
	out := filepath.Join(dir, "out")
	if err := os.MkdirAll(filepath.Join(out, "sub"), 0o755); err != nil {
		return err
	}
	path := func(name string) string { return filepath.Join(out, name+".bin") }
	write := func(name string) error { return os.WriteFile(path(name), []byte("bytes of "+name), 0o644) }
	for _, name := range takenNames {
		server.SetObject("p/r1/hs/"+name+".bin", []byte("somebody else's"))
		if err := write(name); err != nil {
			return err
		}
	}
	server.Inject(s3test.Rule{Op: s3test.OpPut, Key: "p/r1/hs/cut short.bin", Kind: s3test.StoreTruncated})
	for _, err := range []error{
		write("cut short"), write("two names"), os.Link(path("two names"), path("two names")+".second"),
		os.Symlink("/etc/passwd", path("a link")), os.Symlink("nowhere", path("a dangling link")),
		unix.Mkfifo(path("a fifo"), 0o600), unix.Mknod(path("a socket"), unix.S_IFSOCK|0o600, 0),
		os.WriteFile(path("sub/good"), []byte("moved"), 0o644),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}
