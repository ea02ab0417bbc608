package tui

import (
	"regexp"
	"testing"
	"time"

	"pipedeck/pipeline"
)

// misfit finds a number beside a noun that does not go with it.
var misfit = regexp.MustCompile(`\b1 (files|samples|nodes|more nodes|workers|bytes|lines|steps)\b|\b[02] (file|sample|node|more node|worker|byte|line|step)\b`)

// Whatever the count, the words around it fit, on a plan and on the console.
func TestCountsRead(t *testing.T) {
	t.Parallel()
	for n := range int64(3) {
		d := newDesk(t, healthy(int(n)))
		for i := range d.m.in.snap.Nodes[0].Stages {
			for j := range d.m.in.snap.Nodes[0].Stages[i].Outputs {
				o := &d.m.in.snap.Nodes[0].Stages[i].Outputs[j]
				o.LocalFiles, o.Queue.WaitingFiles = &n, n
			}
		}
		read := func(what string) {
			t.Helper()
			for _, sz := range []size{{80, 24}, {200, 60}} {
				d.m.size = sz
				if m := misfit.FindString(d.screen()); m != "" {
					t.Errorf("%d: %q in the %s:\n%s", n, m, what, d.screen())
				}
			}
		}
		read("console")
		p := worstPlan(d.now)
		p.Loss = pipeline.Loss{Files: n, Bytes: n, Missing: n, LostFiles: n, LostBytes: n, OtherFiles: 1, OtherBytes: n}
		p.Store.StoredFiles, p.Store.Total = &n, &n
		d.show(p)
		read("plan")
		p.Checking = &pipeline.Checking{Done: n}
		d.m.ui.close()
		d.show(p)
		read("check")
		p.Checking = nil
		d.m.ui.close()
		d.show(p).wait(time.Second)
		v := d.m.ui.top().(*planView)
		v.files = &fileList{plan: p.ID, page: &pipeline.PlanFiles{Total: n, Files: make([]pipeline.ListedFile, n)}}
		read("list of files")
	}
}
