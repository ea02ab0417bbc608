package proc

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestRun(t *testing.T) {
	t.Parallel()
	d := newDeck(t)
	o := d.options()
	o.BaseEnv = append(o.BaseEnv, "AWS_SECRET_ACCESS_KEY=s", "KEPT=1")
	h := New(o)
	for name, c := range map[string]struct {
		script, tail string
		code         int
	}{
		"zero":         {"exit 0", "", 0},
		"code":         {"echo out; echo err >&2; exit 3", "out\nerr\n", 3},
		"signal":       {"kill -KILL $$", "", 137},
		"folder":       {"pwd; echo $PWD", d.root + "\n" + d.root + "\n", 0},
		"no input":     {"cat; echo end", "end\n", 0},
		"environment":  {"echo $KEPT${AWS_SECRET_ACCESS_KEY-none}", "1none\n", 0},
		"own group":    {"test $(ps -o pgid= -p $$) = $$ && echo own", "own\n", 0},
		"left a child": {"sleep 60 >/dev/null 2>&1 & echo $! > left", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			ran, err := h.Run(context.Background(), d.root, []string{"sh", "-c", c.script})
			if err != nil || ran.Code != c.code || ran.Tail != c.tail {
				t.Errorf("ran = %+v, %v, want code %d and %q", ran, err, c.code, c.tail)
			}
		})
	}
	_ = unix.Kill(awaitPID(t, filepath.Join(d.root, "left")), unix.SIGKILL)
	ran, err := h.Run(context.Background(), d.root, []string{"sh", "-c", "i=0; while test $i -lt 3000; do echo line $i; i=$((i+1)); done"})
	if err != nil || len(ran.Tail) != tailBytes || !strings.HasSuffix(ran.Tail, "line 2998\nline 2999\n") {
		t.Errorf("the tail has %d bytes: …%q, %v", len(ran.Tail), ran.Tail[max(0, len(ran.Tail)-30):], err)
	}
	for _, argv := range [][]string{nil, {""}, {"no-such-command"}, {"./no-such-command"}} {
		if _, err := h.Run(context.Background(), d.root, argv); err == nil {
			t.Errorf("run of %q is no error", argv)
		}
	}
}

func TestRunInterrupted(t *testing.T) {
	t.Parallel()
	d := newDeck(t)
	h := d.host()
	ctx, cancel := context.WithTimeoutCause(context.Background(), time.Minute, errors.New("too slow"))
	defer cancel()
	done := make(chan error, 1)
	go func() {
		// The child has the pipe of the output open and is deaf.
		_, err := h.Run(ctx, d.root, []string{"sh", "-c", "trap '' TERM; (trap '' TERM; echo $$ > shell; sleep 60 & echo $! > child; wait); wait"})
		done <- err
	}()
	child := awaitPID(t, filepath.Join(d.root, "child"))
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("interrupted: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it waits on")
	}
	await(t, "the group to end", func() bool { return gone(child) })
}

// The first process has ended, its group goes on with the output open.
func TestRunOutlived(t *testing.T) {
	t.Parallel()
	d := newDeck(t)
	h := d.host()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		awaitFileExists(t, filepath.Join(d.root, "child"))
		cancel()
	}()
	_, err := h.Run(ctx, d.root, []string{"sh", "-c", "sleep 60 & echo $! > child"})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	child := awaitPID(t, filepath.Join(d.root, "child"))
	await(t, "the group to end", func() bool { return gone(child) })
	if raw, err := os.ReadFile(filepath.Join("/proc", itoa(child), "cmdline")); err == nil && len(raw) > 0 {
		t.Errorf("process %d lives", child)
	}
}
