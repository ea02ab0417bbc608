package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pipedeck/pipeline"
	"pipedeck/s3/s3test"
)

// testForeign runs the specs of examples/foreign over stand-ins that write as
// those scripts do: half files are never uploaded, a restart moves them aside,
// and nothing that is stored is computed again.
func testForeign(t *testing.T, bin string) {
	t.Helper()
	for _, c := range []struct {
		name, half string
		id         func(i int) string
	}{
		{"specforge", "rows_0-10/data_9.ckpt", strconv.Itoa},
		{"speculators", "hs_9.safetensors", strconv.Itoa},
		{"modelopt", "conv-0009-b9.pt", func(i int) string {
			if i == 9 {
				return "conv-0009-b9"
			}
			return "conv-" + strings.Repeat("0", 3-i/16) + strconv.FormatInt(int64(i), 16) + "-b"
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newForeign(t, bin, c.name)
			f.diesOnce(t, c.half)
			f.finishes(t, c.id)
			f.skipsWhatIsStored(t)
		})
	}
}

// foreignFiles is how many samples the stand-ins have.
const foreignFiles = 24

type foreign struct {
	*program
	deck string
}

// newForeign is the example's spec with another place, store and program.
func newForeign(t *testing.T, bin, name string) *foreign {
	t.Helper()
	python := needTool(t, "python3")
	gateway := s3test.Versitygw(t)
	f := &foreign{program: newProgram(t, bin, "AWS_ACCESS_KEY_ID="+gateway.AccessKey, "AWS_SECRET_ACCESS_KEY="+gateway.SecretKey), deck: name}
	raw, err := os.ReadFile(filepath.Join("..", "..", "examples", "foreign", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	for _, r := range [][2]string{
		{`workdir: .*`, "workdir: " + f.dir},
		{`store: .*`, "store: {bucket: " + gateway.Bucket + ", endpoint: \"" + gateway.Endpoint + "\", region: us-east-1, path_style: true, credentials: node}"},
		{`command: .*`, `command: ["` + python + `", "` + filepath.Join(workersDir(t), "foreign.py") + `", ` + name + `, "{rank}", "{world}"]`},
		{`per_gpu: 1`, "count: 1"},
		{`gpus: all`, ""},
		{`settle: 10s`, "settle: 1s"},
	} {
		text = regexp.MustCompile(r[0]).ReplaceAllLiteralString(text, r[1])
	}
	f.write(t, "pipedeck.yaml", text)
	f.write(t, "first", "")
	return f
}

func (f *foreign) output(t *testing.T) pipeline.OutputSnapshot {
	t.Helper()
	return stageOf(f.snapshot(t)).Outputs[0]
}

// diesOnce sees the first start end in the middle of a file, which stays where
// it is and is not uploaded.
func (f *foreign) diesOnce(t *testing.T, half string) {
	t.Helper()
	f.run(t, "start", "extract") // the worker may have ended before it was verified alive
	eventually(t, "the first worker has ended", func() bool {
		w := stageOf(f.snapshot(t)).Workers
		return len(w) == 1 && w[0].PID == nil && w[0].State == pipeline.WorkerFailed
	})
	eventually(t, "what was whole is stored", func() bool {
		o := f.output(t)
		return o.VerifiedFiles != nil && *o.VerifiedFiles == 9 && *o.LocalFiles == 1
	})
	if info, err := os.Stat(filepath.Join(f.dir, "data", "hidden_states", half)); err != nil || info.Size() == 0 {
		t.Errorf("the half file: %v, %v", info, err)
	}
}

func (f *foreign) finishes(t *testing.T, id func(int) string) {
	t.Helper()
	_, errs, code := f.run(t, "restart", "extract", "--confirm", f.deck)
	if code != exitOK {
		t.Fatalf("the restart ends with %d: %s", code, errs)
	}
	eventually(t, "all is stored", func() bool {
		o := f.output(t)
		return o.VerifiedFiles != nil && *o.VerifiedFiles == foreignFiles
	})
	var want, got []string
	for i := range foreignFiles {
		want = append(want, id(i))
	}
	out, _, _ := f.run(t, "coverage", "extract/hidden_states", "--ids", "--json")
	var report pipeline.CoverageReport
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got = report.Outputs[0].IDs.Stored
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("stored ids %q, want %q", got, want)
	}
}

// skipsWhatIsStored starts the script again: it finds every name and writes
// nothing.
func (f *foreign) skipsWhatIsStored(t *testing.T) {
	t.Helper()
	begin := f.bytes(t)
	f.must(t, "restart", "extract", "--confirm", f.deck)
	eventually(t, "the stage is done", func() bool { return stageOf(f.snapshot(t)).State == pipeline.StageDone })
	if got := f.bytes(t); got != begin {
		t.Errorf("%d bytes of files after another start, %d before", got, begin)
	}
}

// bytes is what the output folder holds, but for what is kept for good.
func (f *foreign) bytes(t *testing.T) int64 {
	t.Helper()
	sum := int64(0)
	for _, pattern := range []string{"*", "rows_*/*"} {
		names, err := filepath.Glob(filepath.Join(f.dir, "data", "hidden_states", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if info, err := os.Stat(name); err == nil && !info.IsDir() {
				sum += info.Size()
			}
		}
	}
	return sum
}
