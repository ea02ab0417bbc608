package mover

import (
	"context"
	"path/filepath"

	"pipedeck/pipeline"
	"pipedeck/s3/local"
)

// Untrash brings back what an action moved away.
func (m *Mover) Untrash(ctx context.Context, action string, progress pipeline.Progress) (pipeline.MoveReport, error) {
	var report pipeline.MoveReport
	if err := goodAction(action); err != nil {
		return report, err
	}
	m.care.moving.Lock()
	defer m.care.moving.Unlock()
	bins, err := m.bins(action)
	if err != nil {
		return report, err
	}
	var total int64
	for _, b := range bins {
		total += m.countBin(ctx, b).files
	}
	count := newCounter(progress, total)
	for _, b := range bins {
		if err := m.restoreBin(ctx, b, &report, count); err != nil {
			return report, err
		}
	}
	m.loadApart(ctx)
	count.end()
	m.scanNow()
	return report, nil
}

// restoreBin brings back all that it can. Names that leave a directory while it
// is read may hide others, so it looks until nothing more comes back.
func (m *Mover) restoreBin(ctx context.Context, b local.Bin, report *pipeline.MoveReport, count *counter) error {
	defer m.forgetBin(b)
	made := map[string]bool{}
	for {
		pass := pipeline.MoveReport{}
		problems, err := b.Files(ctx, func(a local.AsideFile) {
			if !made[a.Root] {
				made[a.Root] = true
				if err := local.MakeRoot(a.Root); err != nil {
					m.notify(pipeline.Warn, err.Error())
				}
			}
			m.restore(a, &pass, count)
		})
		for _, p := range problems {
			pass.Stay(filepath.Join(b.Dir(), p.Path), p.Err.Error())
		}
		report.Moved += pass.Moved
		report.MovedBytes += pass.MovedBytes
		report.Gone += pass.Gone
		if err != nil {
			return err
		}
		if pass.Moved > 0 {
			continue
		}
		for _, s := range pass.Stayed {
			report.Stay(s.Path, s.Reason)
		}
		report.StayedAll += pass.StayedAll - int64(len(pass.Stayed))
		m.hook(HookEmptied)
		return b.Tidy()
	}
}

func (m *Mover) restore(a local.AsideFile, pass *pipeline.MoveReport, count *counter) {
	out, err := local.Restore(a)
	full := filepath.Join(a.Root, a.Rel)
	switch {
	case err != nil:
		pass.Stay(full, err.Error())
	case out.Status == local.StatusRestored:
		m.hook(HookRestored)
		pass.Moved++
		pass.MovedBytes += a.Entry.ID.Size
		count.tick()
	case out.Status == local.StatusVanished:
		pass.Gone++
	default:
		pass.Stay(full, out.Reason)
	}
}
