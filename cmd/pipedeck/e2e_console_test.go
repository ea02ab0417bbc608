package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// terminal is a tmux server of this test's own, with one window.
type terminal struct {
	tmux, socket string
}

func (c *terminal) do(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, c.tmux, append([]string{"-S", c.socket, "-f", "/dev/null"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return string(out)
}

// testConsole opens the demo's console in a terminal, sees it live, leaves it.
func testConsole(t *testing.T, bin string) {
	t.Helper()
	tmux := needTool(t, "tmux")
	for _, size := range [][2]int{{80, 24}, {120, 40}} {
		t.Run(fmt.Sprintf("%dx%d", size[0], size[1]), func(t *testing.T) {
			p := newProgram(t, bin)
			c := &terminal{tmux: tmux, socket: filepath.Join(p.dir, "tmux")}
			command := fmt.Sprintf("TMPDIR=%s %s demo; echo $? >%s", p.dir, bin, filepath.Join(p.dir, "code"))
			c.do(t, "new-session", "-d", "-x", strconv.Itoa(size[0]), "-y", strconv.Itoa(size[1]), "sh", "-c", command)
			t.Cleanup(func() { _ = exec.CommandContext(context.Background(), tmux, "-S", c.socket, "kill-server").Run() })
			var screen string
			eventually(t, "header and workers are on screen", func() bool {
				screen = c.do(t, "capture-pane", "-p")
				return strings.Contains(screen, "demo") && strings.Contains(screen, "running") && strings.Contains(screen, "verified")
			})
			t.Log(screen)
			for n, line := range strings.Split(screen, "\n") {
				if len([]rune(line)) > size[0] {
					t.Errorf("line %d is wider than the terminal: %q", n, line)
				}
			}
			c.do(t, "send-keys", "q")
			var code []byte
			eventually(t, "q leaves the console", func() bool {
				var err error
				code, err = os.ReadFile(filepath.Join(p.dir, "code"))
				return err == nil && len(code) > 0
			})
			if strings.TrimSpace(string(code)) != "0" {
				t.Errorf("the console ends with %s", code)
			}
			p.demoGone(t)
		})
	}
}
