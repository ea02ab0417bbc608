package spec

import (
	"slices"
	"strings"
	"testing"
)

func TestMatches(t *testing.T) {
	t.Parallel()
	o := &Output{Match: "**/*.bin"}
	for rel, want := range map[string]bool{
		"a.bin": true, "x/y/a.bin": true, "a.bin.tmp": false, ".tmpab12.bin": false, "_tmp/a.bin": false,
		"x.incomplete/a.bin": false, "a.lock/b.bin": false, ".pipedeck/a.bin": false, "x/.pipedeck-aside/a.bin": false,
		"a.txt": false, "tmp/a.bin": true, ".hidden.bin": true,
	} {
		if got := o.Matches(rel); got != want {
			t.Errorf("%q: got %v", rel, got)
		}
	}
}

func TestOwnsFilesOfMarkerDirectories(t *testing.T) {
	t.Parallel()
	o := &Output{Match: "step_*", Format: FormatMarker, Marker: "x.json"}
	for rel, want := range map[string]bool{
		"step_1/model.bin": true, "step_1/deep/model.bin": true, "step_1": false, "other/step_1/a": false, "step_1/a.tmp": false,
	} {
		if got := o.Owns(rel); got != want {
			t.Errorf("%q: got %v", rel, got)
		}
	}
	if !o.Matches("step_1") {
		t.Error("the directory does not match")
	}
}

func TestSampleID(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ id, rel, want string }{
		{`hs_(\d+)\.bin`, "hs_000012.bin", "12"},
		{`hs_(\d+)\.bin`, "hs_000.bin", "0"},
		{`hs_(\d+)\.bin`, "x/hs_7.bin", "7"},
		{`hs_(\d+)\.bin`, "hs_.bin", ""},
		{`^(.*)\.bin`, "abc-01.bin", "abc-01"},
		{`(\d+)`, "99999999999999999999999", "99999999999999999999999"},
		{`(x)?`, "y", ""},
		{"", "hs_1.bin", ""},
	} {
		o := &Output{ID: c.id}
		if got, ok := o.SampleID(c.rel); got != c.want || ok != (c.want != "") {
			t.Errorf("%q of %q: got %q, %v", c.id, c.rel, got, ok)
		}
	}
}

func TestDirs(t *testing.T) {
	t.Parallel()
	st := &Stage{Name: "extract"}
	for dir, want := range map[string]string{
		"data/hs": "data/hs", "data/{rank}/": "data/0 data/1 data/2", "{stage}/r{rank}of{world}": "extract/r0of3 extract/r1of3 extract/r2of3",
		"./out": "out",
	} {
		o := &Output{Dir: dir}
		if got := strings.Join(o.Dirs(st, 3), " "); got != want {
			t.Errorf("%q: got %q", dir, got)
		}
	}
	s := load(t, "all-keys.yaml")
	s.Stages[0].Outputs[0].Dir = "{workdir}/{run}"
	if got := s.Stages[0].Outputs[0].Dirs(&s.Stages[0], 2); !slices.Equal(got, []string{"/workspace/all/r1"}) {
		t.Errorf("got %q", got)
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	s := load(t, "dflash.yaml")
	ex, train := s.Stage("extract"), s.Stage("train")
	check(t, "object key", s.ObjectKey(&ex.Outputs[0], ex, "hs_1.safetensors"), "r1/hidden_states/hs_1.safetensors")
	check(t, "braces in a path", s.ObjectKey(&ex.Outputs[0], ex, "{rank}.safetensors"), "r1/hidden_states/{rank}.safetensors")
	check(t, "artifact key", s.ArtifactKey("scripts/a.py"), "r1/scripts/a.py")
	check(t, "manifests", s.ManifestPrefix("extract", "hidden_states"), "r1/.pipedeck/manifests/extract/hidden_states/")
	check(t, "listing", s.OutputKeyPrefix(ex, &ex.Outputs[0]), "r1/hidden_states/")
	check(t, "listing of checkpoints", s.OutputKeyPrefix(train, &train.Outputs[0]), "r1/checkpoints/step_")
	check(t, "listing of one file", s.OutputKeyPrefix(train, &Output{Match: "a.bin", Key: "x/{path}.z"}), "r1/x/a.bin.z")
	s.Store.Prefix = "a/b"
	check(t, "run prefix", s.RunPrefix(), "a/b/r1/")
	check(t, "relative", s.Abs("data//x/"), "/workspace/dflash/data/x")
	check(t, "absolute", s.Abs("/dev/shm/x"), "/dev/shm/x")
}

func TestFindOutput(t *testing.T) {
	t.Parallel()
	s := &Spec{Stages: []Stage{
		{Name: "a", Outputs: []Output{{Name: "x"}, {Name: "y"}}}, {Name: "b", Outputs: []Output{{Name: "x"}}},
	}}
	if st, o, err := s.FindOutput("y"); err != nil || st.Name != "a" || o.Name != "y" {
		t.Errorf("y: %v, %v, %v", st, o, err)
	}
	if st, o, err := s.FindOutput("b/x"); err != nil || st.Name != "b" || o != &s.Stages[1].Outputs[0] {
		t.Errorf("b/x: %v, %v, %v", st, o, err)
	}
	for name, want := range map[string]string{"x": "it could be a/x or b/x", "z": "there are a/x, a/y, b/x"} {
		if _, _, err := s.FindOutput(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s.Stage("c") != nil {
		t.Error("found stage c")
	}
}

func TestArtifactMatches(t *testing.T) {
	t.Parallel()
	s := &Spec{
		Workdir: "/w", StateDir: "/w/state", Artifacts: []string{"data/**", "scripts", "*.lock", "state/**", "run1_old/**", "run1/**"},
		Stages: []Stage{{Name: "a", Outputs: []Output{
			{Dir: "data/hs", Match: "*.bin", AfterUpload: AfterDelete},
			{Dir: "data/kept", Match: "*.bin", AfterUpload: AfterKeep},
			{Dir: "run{rank}", Match: "*.bin", AfterUpload: AfterDelete},
			{Dir: ".", Match: "data/top_*", AfterUpload: AfterDelete},
		}}},
	}
	for rel, want := range map[string]bool{
		"data/a": true, "data/hs/a.bin": false, "data/hs/index.json": false, "data/kept/a.bin": true, "data/hs2/a.bin": true,
		"scripts/x/y.py": true, "scripts": true, "scripts2": false, "uv.lock": true, "data/a.tmp": false, "state/ledger.db": false,
		"data/.pipedeck/x": false, "run1_old/a": true, "run1/a.bin": false, "data/top_1": false, "other": false,
	} {
		if got := s.ArtifactMatches(rel); got != want {
			t.Errorf("%q: got %v", rel, got)
		}
	}
}

func TestScratchDirs(t *testing.T) {
	t.Parallel()
	s := &Spec{Run: "r1", Workdir: "/w", Stages: []Stage{{Name: "a", Scratch: []string{"/dev/shm/{run}_{rank}", "tmp/{stage}"}}}}
	if got, want := s.ScratchDirs(&s.Stages[0], 2), []string{"/dev/shm/r1_0", "/dev/shm/r1_1", "/w/tmp/a"}; !slices.Equal(got, want) {
		t.Errorf("scratch of two ranks: %q, want %q", got, want)
	}
	if got, want := s.ScratchDirs(&s.Stages[0], 0), []string{"/dev/shm/r1_0", "/w/tmp/a"}; !slices.Equal(got, want) {
		t.Errorf("scratch of an unknown number of ranks: %q, want %q", got, want)
	}
}
