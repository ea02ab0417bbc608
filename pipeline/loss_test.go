package pipeline

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"pipedeck/pipeline/spec"
)

var classes = []FileClass{ClassProven, ClassUnproven, ClassMismatched, ClassMissing, ClassUnknown, ClassBeingWritten, ClassOther}

func drawFiles(t *rapid.T, label, root string, other bool) []ListedFile {
	n := rapid.IntRange(0, 12).Draw(t, label)
	out := make([]ListedFile, 0, n)
	for i := range n {
		class := rapid.SampledFrom(classes).Draw(t, "class")
		if class == ClassOther && !other {
			class = ClassUnknown
		}
		out = append(out, ListedFile{
			Root: root, Path: fmt.Sprint("f", i), Class: class,
			ID: FileID{Ino: uint64(i), Size: rapid.Int64Range(0, 100).Draw(t, "size")},
		})
	}
	return out
}

func lossSpec() *spec.Spec {
	sp := extractSpec()
	sp.Stages[0].Scratch = []string{"/dev/shm/x"}
	return sp
}

// Over random worlds: what a plan says it loses is what it would remove and is
// not proven, the words to type name that number, and a plan that promises to
// remove only what is proven lists nothing else.
func TestLossOverRandomWorlds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sp := lossSpec()
		in := rapid.SampledFrom([]Intent{
			{Verb: VerbWipe, Target: "extract/hidden"},
			{Verb: VerbWipe, Target: "extract/hidden", ProvenOnly: true},
			{Verb: VerbWipe, Target: "extract", Scratch: true},
			{Verb: VerbWipe, Target: "extract", Scratch: true, ProvenOnly: true},
			{Verb: VerbPivot, Target: "tokenize", From: "extract"},
			{Verb: VerbPivot, Target: "tokenize", From: "extract", Leave: LeaveKeep},
			{Verb: VerbPivot, Target: "tokenize", From: "extract", Leave: LeaveDiscard},
			{Verb: VerbKill, Target: "extract"},
		}).Draw(t, "intent")
		s := snapshotOf(rapid.SampledFrom([]func(*bench){idleWorld, runningWorld, stoppedWorld}).Draw(t, "world"))
		need := Need(sp, s, in)
		var f Facts
		for _, name := range need.Holdings.Outputs {
			f.Holdings = append(f.Holdings, Holding{Name: name, Complete: true, Undoable: true, Files: drawFiles(t, "outputs", "/w/"+name, false)})
		}
		for _, dir := range need.Holdings.Scratch {
			f.Holdings = append(f.Holdings, Holding{Name: dir, Scratch: true, Complete: true, Files: drawFiles(t, "scratch", dir, true)})
		}
		p, err := Decide(sp, s, f, in, at(50), "p")
		if err != nil {
			t.Fatal(err)
		}
		l := p.Loss
		if l.Proven+l.Unproven+l.Mismatched+l.Missing+l.Unknown+l.BeingWritten != l.Files {
			t.Fatalf("the categories do not sum to the files: %+v", l)
		}
		list := Removes(sp, s, f, in)
		lost := slices.DeleteFunc(slices.Clone(list), func(f ListedFile) bool { return !f.Lost() })
		if int64(len(lost)) != l.LostFiles {
			t.Fatalf("%d files would be lost, the plan says %d", len(lost), l.LostFiles)
		}
		if in.ProvenOnly && len(lost) > 0 {
			t.Fatalf("lists %v", lost)
		}
		takes := slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Kind == StepTrash })
		if len(list) > 0 != takes {
			t.Fatalf("%d files are listed, steps %v", len(list), plainSteps(p))
		}
		if l.LostFiles > 0 {
			name := "deck"
			if in.Verb == VerbPivot {
				name = "tokenize"
			}
			if want := fmt.Sprintf("%d %s", l.LostFiles, name); p.Confirm == nil || *p.Confirm != want {
				t.Fatalf("confirm %v, want %q", p.Confirm, want)
			}
		}
		if takes && p.Confirm == nil {
			t.Fatal("files are taken and nothing is asked")
		}
		stops := slices.IndexFunc(p.Steps, func(s Step) bool { return s.Kind == StepStopWorkers })
		recount := slices.IndexFunc(p.Steps, func(s Step) bool { return s.Kind == StepRecount })
		trash := slices.IndexFunc(p.Steps, func(s Step) bool { return s.Kind == StepTrash })
		if takes && (recount < 0 || trash != recount+1 || stops > recount) {
			t.Fatalf("out of order: %s", plainSteps(p))
		}
	})
}

// Whatever happened since the plan: what is taken was listed and is unchanged,
// and nothing that is not proven is taken unless it was listed as lost.
func TestRecountTakesOnlyWhatWasShown(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		list := drawFiles(t, "listed", "/w", false)
		now := drawFiles(t, "now", "/w", false)
		for i := range now {
			if rapid.Bool().Draw(t, "replaced") {
				now[i].ID.Ino += 100
			}
		}
		r := Recount(list, []Holding{{Files: now}})
		if r.Refusal() != "" {
			return // nothing is taken at all
		}
		for _, f := range r.Take {
			i := slices.IndexFunc(list, func(l ListedFile) bool { return l.Path == f.Path })
			if i < 0 || list[i].ID != f.ID || f.Lost() && !list[i].Lost() {
				t.Fatalf("takes %+v of the list %+v", f, list)
			}
		}
		if len(r.Take)+len(r.Others) != len(now) {
			t.Fatalf("%d taken and %d others of %d", len(r.Take), len(r.Others), len(now))
		}
		still, missing := Remaining(r.Take, r.Others, []Holding{{Files: now}})
		if len(still) != len(r.Take) || len(missing) != 0 {
			t.Fatalf("before anything moved: %v, %v", still, missing)
		}
	})
}

func TestJudgeFree(t *testing.T) {
	t.Parallel()
	ours := func(p GPUProcess) bool { return p.PID == 7 }
	held := func(pid int, mem int64) []GPUProcess { return []GPUProcess{{PID: pid, MemBytes: &mem}} }
	for name, tc := range map[string]struct {
		used     int64
		procs    []GPUProcess
		baseline map[string]int64
		want     Verdict
	}{
		"empty":                          {0, []GPUProcess{}, nil, Verified},
		"a display":                      {500 << 20, []GPUProcess{}, nil, Verified},
		"a stranger":                     {58 << 30, held(9, 58<<30), nil, ActionFailed},
		"a stranger of unknown memory":   {58 << 30, []GPUProcess{{PID: 9}}, nil, ActionFailed},
		"our own other rank":             {58 << 30, held(7, 58<<30), nil, Verified},
		"nobody is named":                {58 << 30, []GPUProcess{}, nil, ActionFailed},
		"unlisted, at baseline":          {3 << 30, nil, map[string]int64{"GPU-a": 3 << 30}, Verified},
		"unlisted, above baseline":       {5 << 30, nil, map[string]int64{"GPU-a": 3 << 30}, ActionFailed},
		"unlisted, no baseline, a model": {5 << 30, nil, nil, ActionFailed},
	} {
		r := GPUReading{At: at(1), Kind: "nvml", GPUs: []GPUSnapshot{{UUID: "GPU-a", State: GPUOK, MemUsedBytes: &tc.used, Processes: tc.procs}}}
		if got, checks := JudgeFree(r, []string{"GPU-a"}, tc.baseline, ours, at(1)); got != tc.want {
			t.Errorf("%s: %s %+v", name, got, checks)
		}
	}
	if got, _ := JudgeFree(GPUReading{Reason: "no driver"}, []string{"GPU-a"}, nil, ours, at(1)); got != Unverified {
		t.Errorf("no reading: %s", got)
	}
}
