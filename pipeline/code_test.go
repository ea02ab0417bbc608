package pipeline

import (
	"strings"
	"testing"
)

func codeOf(files int, push ...CodePush) Code {
	return Code{Hash: strings.Repeat("ab", 32), Files: files, Push: push, PushFiles: len(push), PushBytes: 2048}
}

func pushed(to, sum string, isNew bool) CodePush {
	return CodePush{CodeFile: CodeFile{To: to, SHA256: sum, Mode: 0o644}, New: isNew}
}

func TestDecideCode(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		world func(*bench)
		verb  Verb
		code  Code
		first StepKind // "" none
		says  string
	}{
		{"new files", idleWorld, VerbStart, codeOf(3, pushed("src/a", "1", true), pushed("src/b", "2", false)), StepCode, "code abababababab: 2 of 3 files, 2.0 kB, are pushed first: new src/a, changed src/b"},
		{"nothing differs", idleWorld, VerbStart, codeOf(3), StepCode, "code abababababab: all 3 files are on the node"},
		{"nothing is started", runningWorld, VerbStart, codeOf(3, pushed("src/b", "2", false)), "", "differs on the node and is not pushed, since nothing is started: changed src/b"},
		{"before the stop", runningWorld, VerbRestart, codeOf(3), StepCode, "all 3 files"},
		{"a pivot, before the stop", runningWorld, VerbPivot, codeOf(3, pushed("src/b", "2", false)), StepCode, "1 of 3 files, 2.0 kB, is pushed first: changed src/b"},
		{"a pivot from nothing", idleWorld, VerbPivot, codeOf(3), StepCode, "all 3 files"},
		{"other code runs", func(b *bench) {
			runningWorld(b)
			b.edit(50, 1, func(w *WorkerWant) { w.Code = strings.Repeat("cd", 32) })
		}, VerbRestart, codeOf(3), StepCode, "extract/1 runs with cdcdcdcdcdcd"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			in := Intent{Verb: tc.verb, Target: "extract", Code: &tc.code}
			if tc.verb == VerbPivot {
				in.Target = "tokenize"
			}
			p, err := Decide(extractSpec(), snapshotOf(tc.world), Facts{}, in, at(51), "p-1")
			if err != nil {
				t.Fatal(err)
			}
			first := StepKind("")
			if len(p.Steps) > 0 {
				first = p.Steps[0].Kind
			}
			if first != tc.first {
				t.Errorf("the first of %q is not %q", plainSteps(p), tc.first)
			}
			if notes := strings.Join(p.Notes, "\n"); !strings.Contains(notes, tc.says) {
				t.Errorf("no %q in %q", tc.says, notes)
			}
		})
	}
}

func TestCodeMoved(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name      string
		then, now Code
		want      string
	}{
		{"another content", codeOf(2, pushed("a", "1", false)), codeOf(2, pushed("a", "2", false)), "a"},
		{"one more changed", codeOf(2, pushed("a", "1", false)), codeOf(2, pushed("a", "1", false), pushed("b", "2", false)), "b"},
		{"taken back", codeOf(2, pushed("a", "1", false)), codeOf(2), "a"},
		{"a new one", codeOf(2), codeOf(3, pushed("c", "1", true)), "c, 2 files then, 3 now"},
		{"one that was on the node is gone", codeOf(2), codeOf(1), "2 files then, 1 now"},
		{"too many to name", Code{Files: 500, PushFiles: 500}, Code{Files: 500, PushFiles: 500}, "500 files then, 500 now"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := tc.then.Moved(tc.now); got != tc.want {
				t.Errorf("%q", got)
			}
		})
	}
}
