package mover

import (
	"context"
	"fmt"
	"time"

	"pipedeck/pipeline"
	"pipedeck/pipeline/spec"
	"pipedeck/s3/local"
)

// apartFile is a file in quarantine.
type apartFile struct {
	output, rel, reason, action string
	since                       time.Time
}

// quarantinable says whether an output's format tells that a file is not
// complete. Of jsonl whole lines are good, and of any nothing can be told.
func (o *output) quarantinable() bool {
	switch o.spec.Format {
	case spec.FormatSafetensors, spec.FormatZip, spec.FormatParquet, spec.FormatArrow, spec.FormatMarker:
		return !o.isArtifacts()
	}
	return false
}

// suspect is what is incomplete together: a file, or all of a directory
// without its marker.
type suspect struct {
	out    *output
	root   *root
	unit   string
	reason string
	files  []local.Entry
	stays  string // why it is left, "" if it is not
}

// Quarantine moves the incomplete files of a stage aside.
func (m *Mover) Quarantine(ctx context.Context, action, stage string, progress pipeline.Progress) (pipeline.MoveReport, error) {
	var report pipeline.MoveReport
	if err := goodAction(action); err != nil {
		return report, err
	}
	if m.opt.Spec.Stage(stage) == nil {
		return report, pipeline.Problemf(pipeline.ProblemUsage, "", "cannot quarantine files of stage %q: the spec has none of that name", stage)
	}
	began := m.opt.Clock()
	if progress == nil {
		progress = func(int64, int64) {}
	}
	suspects, err := m.suspects(ctx, stage, &report)
	if err != nil {
		return report, err
	}
	if err := m.awaitSettled(ctx, suspects, progress); err != nil {
		return report, err
	}
	m.care.moving.Lock()
	defer m.care.moving.Unlock()
	t := m.newTransfer(ctx, action, local.BinQuarantine, progress, countFiles(suspects))
	t.report = report
	for _, s := range suspects {
		m.lookAgain(ctx, s, began)
		for _, e := range s.files {
			if s.stays != "" {
				t.report.Stay(s.root.dir+"/"+e.Rel, s.stays)
				continue
			}
			t.add(s.root.dir, local.BinEntry{Root: s.root.dir, Path: e.Rel, ID: e.ID, Reason: s.reason})
		}
	}
	if len(t.order) == 0 {
		return t.report, nil
	}
	report, err = t.run()
	m.loadApart(ctx)
	return report, err
}

func countFiles(suspects []*suspect) (n int) {
	for _, s := range suspects {
		n += len(s.files)
	}
	return n
}

// suspects are the incomplete files of a stage as they are now.
func (m *Mover) suspects(ctx context.Context, stage string, report *pipeline.MoveReport) (list []*suspect, err error) {
	for _, o := range m.outputs {
		if o.stage.Name != stage || !o.quarantinable() {
			continue
		}
		for i := range o.roots {
			found, err := m.suspectsBelow(ctx, o, &o.roots[i], report)
			if err != nil {
				return nil, err
			}
			list = append(list, found...)
		}
	}
	return list, nil
}

func (m *Mover) suspectsBelow(ctx context.Context, o *output, r *root, report *pipeline.MoveReport) (list []*suspect, err error) {
	var files []local.Entry
	problems, err := local.Scan(ctx, r.dir, m.wanted(o), func(e local.Entry) {
		if e.Kind == local.KindRegular {
			files = append(files, e)
		}
	})
	if err != nil && !isGone(err) {
		return nil, pipeline.Problemf(pipeline.ProblemUnreachable, "", "cannot tell which files of %s are incomplete: %w", o.name, err)
	}
	for _, p := range problems {
		report.Stay(r.dir+"/"+p.Path, p.Err.Error())
	}
	units := map[string]*suspect{}
	for _, e := range files {
		s, err := m.suspect(ctx, o, r, e, units)
		if err != nil {
			return nil, err
		}
		if s != nil {
			list = append(list, s)
		}
	}
	return list, nil
}

// suspect returns a file that is not complete, or its directory the first time
// that it comes up.
func (m *Mover) suspect(ctx context.Context, o *output, r *root, e local.Entry, units map[string]*suspect) (*suspect, error) {
	unit := o.unitOf(e.Rel)
	if s, seen := units[unit]; seen && unit != "" {
		if s != nil {
			s.files = append(s.files, e)
		}
		return nil, nil
	}
	s := &suspect{out: o, root: r, unit: unit, files: []local.Entry{e}}
	incomplete, err := m.incomplete(ctx, s)
	if err != nil {
		return nil, err
	}
	if !incomplete {
		s = nil
	}
	if unit != "" {
		units[unit] = s
	}
	return s, nil
}

// incomplete judges a suspect and notes why it is one. Files of another run,
// and placeholders or what may be one, are none.
func (m *Mover) incomplete(ctx context.Context, s *suspect) (bool, error) {
	e := s.files[0]
	if s.unit == "" && local.IsPlaceholder(e.ID) {
		m.mu.Lock()
		known := m.known
		m.mu.Unlock()
		row, ok, err := m.opt.Ledger.Row(ctx, s.out.name, m.keyOf(s.out, e.Rel))
		if err != nil {
			return false, err
		}
		if !known || ok && row.Stored != nil && row.Stored.Size > 0 {
			return false, nil
		}
	}
	v := m.judge(ctx, m.probe(s.out, s.root, e.Rel, e.ID))
	if v.err != nil && !isGone(v.err) {
		return false, pipeline.Problemf(pipeline.ProblemUnreachable, "", "cannot tell whether %q is complete: %w", e.Rel, v.err)
	}
	s.reason = v.reason
	if s.reason == "" {
		s.reason = "not complete"
	}
	return v.err == nil && !v.done && v.owner == "", nil
}

// awaitSettled waits until every suspect was left alone for its output's settle
// time, and no longer: what changes meanwhile is somebody's.
func (m *Mover) awaitSettled(ctx context.Context, suspects []*suspect, progress pipeline.Progress) error {
	var wait time.Duration
	now := m.opt.Clock()
	for _, s := range suspects {
		for _, e := range s.files {
			settle := s.out.spec.Settle
			if !local.Settled(e.ID, now, settle) {
				at := time.Unix(0, max(e.ID.MTimeNS, e.ID.CTimeNS)).Add(settle)
				wait = max(wait, min(at.Sub(now), settle)+time.Millisecond)
			}
		}
	}
	total := int64(countFiles(suspects))
	for end := time.Now().Add(wait); ; {
		left := time.Until(end)
		progress(0, total)
		if left <= 0 {
			return nil
		}
		if err := sleep(ctx, min(left, time.Second)); err != nil {
			return err
		}
	}
}

// lookAgain says whether a suspect stays: it became complete, changed, or is
// open for writing.
func (m *Mover) lookAgain(ctx context.Context, s *suspect, began time.Time) {
	incomplete, err := m.incomplete(ctx, s)
	if err != nil {
		s.stays = err.Error()
		return
	}
	if !incomplete {
		s.files = nil // complete by now, or gone
		return
	}
	for _, e := range s.files {
		src, err := local.Open(s.root.dir, e.Rel)
		if isGone(err) {
			continue
		}
		if err != nil {
			s.stays = err.Error()
			return
		}
		id, err := src.Identity()
		switch {
		case err != nil:
			s.stays = err.Error()
		case !id.Same(e.ID):
			s.stays = "it is still being written"
		case isOpen(src):
			s.stays = "open for writing"
		case !local.Settled(id, m.opt.Clock(), s.out.spec.Settle) && m.opt.Clock().Sub(began) < s.out.spec.Settle:
			s.stays = "it changed a moment ago"
		}
		_ = src.Close()
		if s.stays != "" {
			return
		}
	}
}

// loadApart reads what lies in quarantine.
func (m *Mover) loadApart(ctx context.Context) {
	bins, err := m.bins("")
	if err != nil {
		m.notify(pipeline.Warn, err.Error())
	}
	var list []apartFile
	for _, b := range bins {
		if b.Kind != local.BinQuarantine {
			continue
		}
		about, err := b.About()
		if err != nil {
			m.notify(pipeline.Warn, err.Error())
		}
		reasons := map[[2]string]string{}
		if err := b.Listed(func(e local.BinEntry) { reasons[[2]string{e.Root, e.Path}] = e.Reason }); err != nil {
			m.notify(pipeline.Warn, err.Error())
		}
		_, err = b.Files(ctx, func(a local.AsideFile) {
			for _, o := range m.outputs {
				if !o.isArtifacts() && o.isRoot(a.Root) && m.matches(o, a.Rel) {
					list = append(list, apartFile{
						output: o.name, rel: a.Rel, reason: reasons[[2]string{a.Root, a.Rel}], action: b.Action, since: about.At,
					})
				}
			}
		})
		if err != nil && ctx.Err() == nil {
			m.notify(pipeline.Warn, err.Error())
		}
	}
	m.mu.Lock()
	m.care.apart = list
	m.mu.Unlock()
}

// apartOf counts the files of an output in quarantine. Mover.mu is held.
func (m *Mover) apartOf(o *output) (n int64) {
	for i := range m.care.apart {
		if m.care.apart[i].output == o.name {
			n++
		}
	}
	return n
}

func (a *apartFile) failure() pipeline.Failure {
	return pipeline.Failure{
		Output: a.output, Path: a.rel, Kind: pipeline.FailureQuarantined, Since: a.since,
		Reason: fmt.Sprintf("%s; moved to quarantine, `pipedeck undo %s` brings it back", a.reason, a.action),
	}
}
