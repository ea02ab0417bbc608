// Command pictures draws the screens that README and docs show, from the real
// binary with its demo deck.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"pipedeck/bench/term"
)

// patience bounds each wait for a screen: the demo stalls and crashes within
// its first half minute, on a loaded machine later.
const patience = 3 * time.Minute

// shot is one picture: what must be on the screen, and how to get there.
type shot struct {
	name string
	keys string
	when func(screen string) bool
}

func shots() []shot {
	has := func(texts ...string) func(string) bool {
		return func(s string) bool {
			for _, t := range texts {
				if !strings.Contains(s, t) {
					return false
				}
			}
			return true
		}
	}
	settled := func(s string) bool { return has("RUNNING  4/4", "ETA ")(s) && !strings.Contains(s, "ETA -") }
	return []shot{
		{"alarm", "", has("STALL", "DEGRADED")},
		{"console", "", settled},
		{"log", "l", has("log of extract/", "following", "wrote")},
		{"detail", "q\r", has("How it was started", "sim-worker")},
		{"help", "q?", has("Keys", "next pane")},
		{"confirm", "qpy\r:wipe extract/hidden_states\r", has("WILL BE LOST", "Safer", "To do it")},
	}
}

func main() {
	bin := flag.String("bin", "bin/pipedeck", "the program")
	out := flag.String("out", "docs/pictures", "the folder to write into")
	w := flag.Int("width", 120, "of the terminal, in cells")
	h := flag.Int("height", 40, "of the terminal, in cells")
	text := flag.Bool("text", false, "also write each screen as text")
	odd := flag.Bool("odd", false, "only the list of odd files")
	kept := flag.String("recorded", "testdata/gpu/screens", "folder of recorded screens, NAME.ansi")
	only := flag.Bool("only-recorded", false, "only the recorded screens")
	flag.Parse()
	err := os.MkdirAll(*out, 0o755)
	if err == nil {
		err = recorded(*kept, *out)
	}
	if *only && err == nil {
		return
	}
	if err == nil {
		err = oddPicture(*bin, *out, *text)
	}
	if err == nil && !*odd {
		err = run(*bin, *out, *w, *h, *text)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

func run(bin, out string, w, h int, text bool) error {
	cmd := exec.Command(bin, "demo", "--theme", "dark")
	cmd.Env = append(os.Environ(), "TERM=xterm-256color", "NO_COLOR=")
	t, err := term.Open(cmd, w, h)
	if err != nil {
		return err
	}
	defer t.Close("\x03")
	for _, s := range shots() {
		if err := t.Type(s.keys); err != nil {
			return err
		}
		if _, err := t.Await("what "+s.name+" needs", patience, s.when); err != nil {
			return err
		}
		time.Sleep(300 * time.Millisecond) // the rest of the frame
		if err := os.WriteFile(filepath.Join(out, s.name+".svg"), svg(t, w, h), 0o644); err != nil {
			return err
		}
		if text {
			if err := os.WriteFile(filepath.Join(out, s.name+".txt"), []byte(t.Text()), 0o644); err != nil {
				return err
			}
		}
		fmt.Println(filepath.Join(out, s.name+".svg"))
	}
	return nil
}
