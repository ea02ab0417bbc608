package local

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// waitFor receives hints until one is h, however many others come.
func waitFor(t *testing.T, w *Watcher, h Hint) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	var seen []Hint
	for {
		select {
		case got := <-w.Events():
			if got == h {
				return
			}
			seen = append(seen, got)
		case <-deadline:
			t.Fatalf("no %+v; saw %+v", h, seen)
		}
	}
}

func TestWatcher(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	put(t, root, "d/old", "x")
	w, err := NewWatcher(root)
	must(t, err)
	defer w.Close()
	put(t, root, "a", "x")
	waitFor(t, w, Hint{root, "a", HintCreated})
	waitFor(t, w, Hint{root, "a", HintWritten})
	put(t, root, "d/b.tmp", "x")
	must(t, os.Rename(filepath.Join(root, "d/b.tmp"), filepath.Join(root, "d/b\n\xff")))
	waitFor(t, w, Hint{root, "d/b\n\xff", HintMovedIn})
	must(t, os.Remove(filepath.Join(root, "a")))
	waitFor(t, w, Hint{root, "a", HintRemoved})
	must(t, os.MkdirAll(filepath.Join(root, "new/deep"), 0o755))
	waitFor(t, w, Hint{root, "new", HintDir})
	must(t, w.Add(root)) // a rescan adds what came before its parent was watched
	put(t, root, "new/deep/c", "x")
	waitFor(t, w, Hint{root, "new/deep/c", HintWritten})
	// A directory that is renamed goes on under its new name.
	must(t, os.Rename(filepath.Join(root, "new"), filepath.Join(root, "newer")))
	waitFor(t, w, Hint{root, "newer", HintDir})
	must(t, w.Add(root))
	put(t, root, "newer/deep/e", "x")
	waitFor(t, w, Hint{root, "newer/deep/e", HintWritten})
}

func TestWatcherRootThatComesLater(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "out")
	w, err := NewWatcher(root)
	must(t, err)
	waitFor(t, w, Hint{Root: root, Kind: HintOverflow})
	if err := w.Add(root); !errors.Is(err, ErrNoDir) {
		t.Error(err)
	}
	must(t, os.Mkdir(root, 0o755))
	must(t, w.Add(root))
	put(t, root, "a", "x")
	waitFor(t, w, Hint{root, "a", HintWritten})
	must(t, w.Close())
	for range w.Events() {
	}
	if err := w.Add(root); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
}

func TestHintQueue(t *testing.T) {
	t.Parallel()
	var q hintQueue
	for range 3 {
		q.push(Hint{"r", "a", HintWritten})
	}
	if got := q.take(); len(got) != 1 {
		t.Errorf("not coalesced: %v", got)
	}
	for i := range maxPending + 5 {
		q.push(Hint{"r", strconv.Itoa(i), HintWritten})
	}
	if got := q.take(); len(got) != 1 || got[0].Kind != HintOverflow {
		t.Errorf("%d hints, first %v", len(got), got[0])
	}
	if got := q.take(); len(got) != 0 {
		t.Errorf("left %v", got)
	}
}
