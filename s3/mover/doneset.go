package mover

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"pipedeck/pipeline"
	"pipedeck/pipeline/spec"
)

// WriteDoneSet implements pipeline.Mover: the ids that are stored, by any node, or
// locally complete for every output of the stage that has ids.
func (m *Mover) WriteDoneSet(ctx context.Context, stage string) (n int, lacks string, err error) {
	st := m.opt.Spec.Stage(stage)
	if st == nil || st.DoneSet == nil {
		return 0, "", pipeline.Problemf(pipeline.ProblemUsage, "", "cannot write the done-set of %q: the spec has none", stage)
	}
	var outputs []*output
	for _, o := range m.outputs {
		if o.stage.Name == stage && o.spec.ID != "" {
			outputs = append(outputs, o)
		}
	}
	if err := m.awaitTruth(ctx, outputs); err != nil {
		return 0, "", err
	}
	lacks = m.readOthers(ctx, outputs)
	ids, err := m.doneIDs(ctx, outputs)
	if err != nil {
		return 0, "", err
	}
	data, err := formatIDs(ids, st.DoneSet.Form)
	if err != nil {
		return 0, "", err
	}
	path := m.opt.Spec.Abs(st.DoneSet.File)
	if err := m.opt.Files.WriteFile(path, data); err != nil {
		return 0, "", pipeline.Wrapf(err, "cannot write the done-set %q", path)
	}
	return len(ids), lacks, nil
}

// awaitTruth waits until the outputs were scanned after now, every file was
// judged, and what the bucket holds is known. It fails when one of that cannot
// be had.
func (m *Mover) awaitTruth(ctx context.Context, outputs []*output) error {
	rounds := map[*output]int{}
	m.mu.Lock()
	for _, o := range outputs {
		rounds[o] = o.scan.rounds + 1
	}
	if m.opt.Clock().Sub(m.asked).Abs() > m.pause(minScan) {
		m.askAgain()
	}
	m.mu.Unlock()
	m.scanNow()
	var problem string
	err := m.await(ctx, func() bool {
		if !m.known {
			problem = m.knownErr
			return problem != ""
		}
		for _, o := range outputs {
			if o.scan.rounds < rounds[o] || o.tally.files[stateSeen] > 0 {
				return false
			}
			if o.scan.problem != "" {
				problem = o.scan.problem
			}
		}
		return true
	})
	switch {
	case err != nil:
		return pipeline.Problemf(pipeline.ProblemUnreachable, "", "cannot tell what is done: %w", err)
	case problem != "":
		return pipeline.Problemf(pipeline.ProblemUnreachable, "make the store and the output directory readable, then try again",
			"cannot tell what is done: %s", problem)
	}
	return nil
}

// doneIDs returns the ids that all outputs have, in order.
func (m *Mover) doneIDs(ctx context.Context, outputs []*output) ([]string, error) {
	have := map[string]int{}
	for n, o := range outputs {
		add := func(id string) {
			if have[id] == n {
				have[id] = n + 1
			}
		}
		// What is here first: a file that leaves meanwhile is in the ledger by then.
		for _, id := range m.localIDs(o, func(f *file) bool { return f.complete }) {
			add(id)
		}
		if err := m.opt.Ledger.Samples(ctx, o.name, add); err != nil {
			return nil, err
		}
		if err := m.opt.Ledger.OtherSamples(ctx, o.name, add); err != nil {
			return nil, err
		}
	}
	ids := make([]string, 0, len(have))
	for id, n := range have {
		if n == len(outputs) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, compareIDs)
	return ids, nil
}

// localIDs returns the sample ids of the local files that pass.
func (m *Mover) localIDs(o *output, pass func(*file) bool) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var ids []string
	for _, f := range o.files {
		if f.odd || f.row == nil || f.sample == "" || !pass(f) {
			continue
		}
		ids = append(ids, f.sample)
	}
	return ids
}

// compareIDs orders integers by value, before all other ids.
func compareIDs(a, b string) int {
	na, nb := isNumber(a), isNumber(b)
	switch {
	case na && nb && len(a) != len(b):
		return len(a) - len(b)
	case na != nb && na:
		return -1
	case na != nb:
		return 1
	}
	return strings.Compare(a, b)
}

func isNumber(id string) bool {
	return id != "" && strings.Trim(id, "0123456789") == ""
}

// formatIDs writes ids one a line, or as a JSON array of numbers where all are
// integers and of strings otherwise.
func formatIDs(ids []string, form string) ([]byte, error) {
	if form != spec.DoneJSON {
		var b bytes.Buffer
		for _, id := range ids {
			b.WriteString(id)
			b.WriteByte('\n')
		}
		return b.Bytes(), nil
	}
	if slices.ContainsFunc(ids, func(id string) bool { return !isNumber(id) }) {
		data, err := json.Marshal(ids)
		return append(data, '\n'), err
	}
	return []byte("[" + strings.Join(ids, ",") + "]\n"), nil
}
