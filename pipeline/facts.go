package pipeline

import (
	"slices"

	"pipedeck/pipeline/spec"
)

// Facts is what a plan rests on beyond the Snapshot. What Needed did not ask
// for stays zero.
type Facts struct {
	Holdings  []Holding
	Checking  *Checking // the holdings are still being found out
	Made      *MadeFacts
	Strangers []Stranger
	Trashes   []Trashed
}

// MadeFacts tells how the outputs of a stage were made and how they would be
// made now.
type MadeFacts struct {
	Recorded *StageRecord // nil: nobody recorded it yet
	Now      StageRecord
	Known    bool   // this node's ledger knows the run
	Err      string // why Recorded could not be read; ""
}

// Needed is what must be found out before an intent can be decided.
type Needed struct {
	Holdings  HoldingsRequest
	Made      string // stage whose record is compared; ""
	Strangers bool   // those of Intent.PIDs
	Trashes   bool
}

// Empty says whether the files do not matter to the intent.
func (r HoldingsRequest) Empty() bool { return len(r.Outputs)+len(r.Scratch) == 0 }

// Need says what Decide will want to know. An intent that Decide refuses needs
// nothing.
func Need(sp *spec.Spec, s Snapshot, in Intent) Needed {
	d := decision{sp: sp, in: in}
	if len(s.Nodes) > 0 {
		d.node = s.Nodes[0]
	}
	switch in.Verb {
	case VerbStart, VerbRestart:
		t, err := d.find()
		if err != nil {
			return Needed{}
		}
		return Needed{Made: t.st.Name}
	case VerbWipe:
		w, err := d.wiped()
		if err != nil {
			return Needed{}
		}
		return Needed{Holdings: w.request(true)}
	case VerbPivot:
		from, to, err := d.pivoted()
		if err != nil {
			return Needed{}
		}
		return Needed{Holdings: d.left(from).request(in.Leave == LeaveDiscard), Made: to.st.Name}
	case VerbKill:
		t, err := d.find()
		if err != nil {
			return Needed{}
		}
		return Needed{Holdings: HoldingsRequest{Outputs: outputNames(t.st)}}
	case VerbUndo:
		return Needed{Trashes: true}
	case VerbAdopt, VerbReap:
		return Needed{Strangers: true}
	case VerbStop, VerbSettle, VerbPause, VerbResume, VerbPush:
	}
	return Needed{}
}

func outputNames(st *spec.Stage) []string {
	out := make([]string, 0, len(st.Outputs))
	for _, o := range st.Outputs {
		out = append(out, st.Name+"/"+o.Name)
	}
	return out
}

// Removes lists the files that a plan moves out of the way, those that would
// be lost first, in a fixed order.
func Removes(sp *spec.Spec, s Snapshot, f Facts, in Intent) []ListedFile {
	d := decision{sp: sp, in: in, facts: f}
	if len(s.Nodes) > 0 {
		d.node = s.Nodes[0]
	}
	var areas wiping
	var err error
	switch in.Verb {
	case VerbWipe:
		areas, err = d.wiped()
	case VerbPivot:
		var from target
		from, _, err = d.pivoted()
		areas = d.left(from)
	case VerbStart, VerbStop, VerbKill, VerbRestart, VerbSettle, VerbPause, VerbResume, VerbPush, VerbUndo, VerbAdopt, VerbReap:
		return nil
	}
	if err != nil {
		return nil
	}
	return areas.removes(f.Holdings)
}

// removes picks from what lies there: all of it, or what is proven.
func (w wiping) removes(holdings []Holding) []ListedFile {
	var out []ListedFile
	for _, h := range holdings {
		if !h.Scratch && w.keepOutputs {
			continue
		}
		for _, f := range h.Files {
			if !w.provenOnly || !f.Lost() {
				out = append(out, f)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b ListedFile) int {
		switch {
		case a.Lost() == b.Lost():
			return 0
		case a.Lost():
			return -1
		}
		return 1
	})
	return out
}
