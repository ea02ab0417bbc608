package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// dyingBinary builds the program with one thing added to its journal: an agent
// that has just put record N of `die-at` on the disk, or is just about to, is
// gone as after kill -9. The product has no such place; the build has it from
// an overlay.
func dyingBinary(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	source, err := filepath.Abs("../../remote/journal/journal.go")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	const before, after = "\t_, err = j.f.Write(line)\n", "\tj.wrote(line, hash)\n\tj.keepRoom()\n"
	if strings.Count(string(raw), before) != 1 || strings.Count(string(raw), after) != 1 {
		t.Fatal("the journal is not written as this test knows it")
	}
	text := strings.Replace(string(raw), before, "\tdieAt(j, \"before\")\n"+before, 1)
	text = strings.Replace(text, after, "\tdieAt(j, \"after\")\n"+after, 1)
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		source: put("journal.go", text), filepath.Join(filepath.Dir(source), "dieat.go"): put("dieat.go", dieAt),
	}})
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "pipedeck")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", put("overlay.json", string(overlay)), "-o", bin, ".").CombinedOutput()
	if err != nil {
		t.Fatalf("cannot build: %v\n%s", err, out)
	}
	return bin
}

const dieAt = `package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

func dieAt(j *Journal, when string) {
	path := filepath.Join(filepath.Dir(j.f.Name()), "die-at")
	raw, err := os.ReadFile(path)
	if err != nil || string(raw) != fmt.Sprintf("%d %s", j.seq+1, when) {
		return
	}
	if os.Remove(path) != nil {
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}
`

// moment is one place to die at in an action: after its n-th record, or with
// all of it done but the record.
type moment struct {
	n    int
	when string
}

func (m moment) String() string { return fmt.Sprintf("%s %d", m.when, m.n) }

func moments(records int) []moment {
	var out []moment
	for n := 1; n <= records; n++ {
		out = append(out, moment{n, "before"}, moment{n, "after"})
	}
	return out
}

// TestE2ECrashes kills the agent at each record of each action's journal, a
// fresh deck of real processes each time. Every day a dozen of these moments
// are tried; PIPEDECK_FULL=1 tries all. PIPEDECK_SEED repeats a day.
func TestE2ECrashes(t *testing.T) {
	if testing.Short() {
		t.Skip("end to end: minutes")
	}
	seed := int(time.Now().Unix() / 86400)
	if s := os.Getenv("PIPEDECK_SEED"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	bin := dyingBinary(t)
	if full() {
		t.Run("all", func(t *testing.T) { crashEverywhere(t, bin) })
		return
	}
	t.Logf("PIPEDECK_SEED=%d", seed)
	for i, c := range crashCases() {
		if (i+seed)%2 == 1 {
			continue
		}
		at := moments(c.records)
		m := at[(seed*7+i*5)%len(at)]
		t.Run(c.name+"/"+m.String(), func(t *testing.T) {
			t.Parallel()
			newCrash(t, bin, c).dies(m)
		})
	}
}

func crashEverywhere(t *testing.T, bin string) {
	t.Helper()
	var points, missed atomic.Int64
	var mu sync.Mutex
	t.Cleanup(func() { t.Logf("%d moments, %d of them not come to", points.Load(), missed.Load()) })
	for _, c := range crashCases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			records := 0
			t.Run("undisturbed", func(t *testing.T) { records = newCrash(t, bin, c).undisturbed() })
			mu.Lock()
			t.Logf("%d records; the table says %d", records, c.records)
			mu.Unlock()
			for _, m := range moments(records) {
				t.Run(m.String(), func(t *testing.T) {
					points.Add(1)
					if !newCrash(t, bin, c).dies(m) {
						missed.Add(1)
					}
				})
			}
		})
	}
}
