package local

import (
	"errors"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// moved is the end of a Move whose file is not at its place: an earlier one,
// perhaps killed before its last check, may have moved it. gone is the outcome
// if not.
func (m *removal) moved(root string, gone Outcome) (Outcome, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return Outcome{}, pathError("locate", root, err)
	}
	home := filepath.Join(m.r.Aside, rootID(root))
	for n := range maxSlots {
		slot := filepath.Join(home, slotRemoved+strconv.Itoa(n))
		shelf, err := openRoot(filepath.Join(slot, m.dirRel))
		if errors.Is(err, ErrNoDir) {
			if st := (unix.Stat_t{}); unix.Lstat(slot, &st) != nil {
				return gone, nil //nolint:nilerr // there are no further slots
			}
			continue
		}
		if err != nil {
			return Outcome{}, err
		}
		st, err := statAt(shelf, m.base)
		if id := identityOf(&st); err != nil || !id.SameIgnoringCTime(m.want) {
			_ = unix.Close(shelf)
			continue
		}
		m.shelf, m.place = shelf, slot+"/"+m.rel
		if m.file != nil {
			_ = m.file.Close()
		}
		if m.file, err = openAt(shelf, m.base, m.rel); err != nil {
			return outcomeOf(err)
		}
		out := m.checkAside()
		if out.Status == "" {
			return Outcome{Status: StatusMoved, Aside: m.place, After: m.after()}, nil
		}
		return m.returned(root, out), nil
	}
	return gone, nil
}

// returned puts a file back that failed the check, where its directory may be
// gone by now.
func (m *removal) returned(root string, out Outcome) Outcome {
	kept := func(err error) Outcome {
		return Outcome{Status: StatusKept, Aside: m.place, Reason: out.Reason + "; " + err.Error()}
	}
	var err error
	if m.root < 0 {
		if m.root, err = openRoot(root); err != nil {
			return kept(err)
		}
	}
	if m.dir < 0 {
		if m.dir, err = makeDirsBelow(m.root, m.dirRel, 0o755); err != nil {
			return kept(err)
		}
	}
	return m.back(out)
}
