package local

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// crashEnv makes the test binary a process that dies in a removal.
const crashEnv = "PIPEDECK_LOCAL_CRASH"

func TestMain(m *testing.M) {
	if point := os.Getenv(crashEnv); point != "" {
		crash(point, os.Args[1], os.Args[2], os.Args[3])
	}
	os.Exit(m.Run())
}

func crash(point, way, root, asideDir string) {
	f, err := Open(root, "d/a\n\xff")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	id, _ := f.Identity()
	r := NewRemover(asideDir)
	r.Hook = once(point, func() {
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		select {}
	})
	do := (*Remover).Remove
	if way == "placeholder" {
		do = (*Remover).Placeholder
	}
	out, err := do(r, root, "d/a\n\xff", id)
	fmt.Fprintln(os.Stderr, "survived", out, err)
	os.Exit(1)
}

func TestCrashLosesNothing(t *testing.T) {
	t.Parallel()
	points := []string{PointNamed, PointRenamed, PointChecked, PointGone}
	eachFilesystem(t, func(t *testing.T, dir string) {
		for i, point := range append(points, points...) {
			way := []string{"remove", "placeholder"}[i/len(points)]
			t.Run(way+" "+point, func(t *testing.T) {
				root, r := newTree(t, filepath.Join(dir, way, point))
				const rel = "d/a\n\xff"
				put(t, root, rel, "content")
				cmd := exec.Command(os.Args[0], way, root, r.Aside)
				cmd.Env = append(os.Environ(), crashEnv+"="+point)
				out, err := cmd.CombinedOutput()
				var died *exec.ExitError
				if !errors.As(err, &died) || died.ExitCode() != -1 {
					t.Fatalf("did not die: %v %s", err, out)
				}
				for _, a := range aside(t, r) {
					if got, err := Restore(a); err != nil || got.Status == StatusKept {
						t.Errorf("restore %+v: %+v %v", a, got, err)
					}
				}
				want := "content"
				if point == PointGone {
					want = map[string]string{"remove": "(none)", "placeholder": ""}[way]
				}
				if got := content(t, filepath.Join(root, rel)); got != want {
					t.Errorf("left %q, want %q", got, want)
				}
				must(t, r.Tidy())
				if _, err := os.Stat(r.Aside); !os.IsNotExist(err) {
					t.Errorf("something is left aside: %+v", aside(t, r))
				}
			})
		}
	})
}

const crashed = "crash" // what a crash is thrown as

// world is an output directory with two names, of which every content ever
// written is remembered until it may be gone.
type world struct {
	t       *rapid.T
	root    string
	r       *Remover
	hashed  map[string]Identity // by name, as an uploader saw it
	proven  map[string]string   // by name, the content at that time
	alive   map[string]bool     // contents that must be somewhere
	version int
}

func (w *world) path(name string) string { return filepath.Join(w.root, name) }

func (w *world) read(name string) (string, bool) {
	b, err := os.ReadFile(w.path(name))
	return string(b), err == nil && len(b) > 0
}

// write is a worker that replaces, or appends to, a name: what was there is
// the worker's to lose.
func (w *world) write(name string, appending bool) {
	w.version++
	data := fmt.Sprintf("<%s %d>", name, w.version)
	if old, ok := w.read(name); ok {
		delete(w.alive, old)
		if appending {
			data = old + data
		}
	}
	must2(w.t, os.MkdirAll(filepath.Dir(w.path(name)), 0o755))
	if appending {
		must2(w.t, os.WriteFile(w.path(name), []byte(data), 0o644))
	} else {
		must2(w.t, os.WriteFile(w.path(name)+".tmp", []byte(data), 0o644))
		must2(w.t, os.Rename(w.path(name)+".tmp", w.path(name)))
	}
	w.alive[data] = true
}

func (w *world) hash(name string) {
	f, err := Open(w.root, name)
	if err != nil {
		return
	}
	defer f.Close()
	id, err := f.Identity()
	must2(w.t, err)
	if data, ok := w.read(name); ok {
		w.hashed[name], w.proven[name] = id, data
	}
}

// remove tries to remove what was hashed, with something happening, or the
// agent dying, at a drawn point.
func (w *world) remove(name string) {
	do := rapid.SampledFrom([]take{(*Remover).Remove, (*Remover).Placeholder}).Draw(w.t, "way")
	point := rapid.SampledFrom([]string{"", PointNamed, PointRenamed, PointChecked, PointGone}).Draw(w.t, "point")
	event := rapid.SampledFrom([]string{"crash", "replace", "append"}).Draw(w.t, "event")
	w.r.Hook = once(point, func() {
		if event == "crash" {
			panic(crashed)
		}
		w.write(name, event == "append")
	})
	defer func() {
		if e := recover(); e != nil && e != crashed {
			panic(e)
		} else if e != nil && point == PointGone {
			delete(w.alive, w.proven[name])
		}
	}()
	out, err := do(w.r, w.root, name, w.hashed[name])
	must2(w.t, err)
	if out.Status == StatusRemoved {
		delete(w.alive, w.proven[name])
	}
}

func (w *world) recover() {
	files, problems, err := RecoverAside(w.t.Context(), w.r.Aside)
	must2(w.t, err)
	if len(problems) > 0 {
		w.t.Fatal(problems)
	}
	for _, a := range files {
		_, err := Restore(a)
		must2(w.t, err)
	}
}

// check finds every content that must be somewhere.
func (w *world) check() {
	found := map[string]bool{}
	for _, top := range []string{w.root, w.r.Aside} {
		_, err := Scan(w.t.Context(), top, nil, func(e Entry) {
			if e.Kind == KindRegular {
				b, err := os.ReadFile(filepath.Join(top, e.Rel))
				must2(w.t, err)
				found[string(b)] = true
			}
		})
		if err != nil && !errors.Is(err, ErrNoDir) {
			w.t.Fatal(err)
		}
	}
	for data := range w.alive {
		if !found[data] {
			w.t.Fatalf("%s is lost", data)
		}
	}
}

func must2(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestNoContentIsEverLost(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		dir := filepath.Join(base, strconv.Itoa(n))
		w := &world{
			t: rt, root: filepath.Join(dir, "out"), r: NewRemover(filepath.Join(dir, "aside")),
			hashed: map[string]Identity{}, proven: map[string]string{}, alive: map[string]bool{},
		}
		must2(rt, os.MkdirAll(w.root, 0o755))
		name := rapid.SampledFrom([]string{"a", "d/b"})
		rt.Repeat(map[string]func(*rapid.T){
			"":        func(*rapid.T) { w.check() },
			"replace": func(rt *rapid.T) { w.write(name.Draw(rt, "name"), false) },
			"append":  func(rt *rapid.T) { w.write(name.Draw(rt, "name"), true) },
			"hash":    func(rt *rapid.T) { w.hash(name.Draw(rt, "name")) },
			"remove":  func(rt *rapid.T) { w.remove(name.Draw(rt, "name")) },
			"recover": func(*rapid.T) { w.recover() },
			"tidy":    func(*rapid.T) { must2(rt, w.r.Tidy()) },
		})
	})
}
