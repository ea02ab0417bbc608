package pipeline

import (
	"fmt"
	"path"
	"strings"
)

// Recounted is what a plan's list has become by the time it is executed.
type Recounted struct {
	// Take are the listed files that are still the same and may go: proven
	// now, or confirmed as lost.
	Take []ListedFile
	// Unlisted would be lost although the plan counted them as proven: while
	// there are any, nothing may be taken.
	Unlisted []ListedFile
	Changed  int64 // listed, and something else by now: they stay
	Gone     int64 // listed, and not there any more
	Appeared int64 // not listed: they stay
	Saved    int64 // counted as lost, proven by now
	// Others are all names that must still be there afterwards.
	Others []string
}

type placeKey struct{ root, path string }

// Recount compares a plan's list with what is there now.
func Recount(list []ListedFile, now []Holding) Recounted {
	listed := make(map[placeKey]int, len(list))
	for i, f := range list {
		listed[placeKey{f.Root, f.Path}] = i
	}
	var r Recounted
	found := 0
	for _, h := range now {
		for _, f := range h.Files {
			i, ok := listed[placeKey{f.Root, f.Path}]
			if !ok {
				r.Appeared++
				r.Others = append(r.Others, path.Join(f.Root, f.Path))
				continue
			}
			found++
			r.add(list[i], f)
		}
	}
	r.Gone = int64(len(list) - found)
	return r
}

func (r *Recounted) add(was, is ListedFile) {
	switch {
	case was.ID != is.ID:
		r.Changed++
		r.Others = append(r.Others, path.Join(is.Root, is.Path))
		return
	case is.Lost() && !was.Lost():
		r.Unlisted = append(r.Unlisted, is)
		return
	case was.Lost() && !is.Lost():
		r.Saved++
	}
	r.Take = append(r.Take, is)
}

// Text says in words what differs from the plan.
func (r Recounted) Text() string {
	parts := []string{Counted(len(r.Take), "of the listed files is as the plan says", "of the listed files are as the plan says")}
	for _, p := range []struct {
		n         int64
		one, many string
	}{
		{r.Saved, "of them was stored meanwhile", "of them were stored meanwhile"},
		{r.Gone, "is gone already", "are gone already"},
		{r.Changed, "changed and stays", "changed and stay"},
		{r.Appeared, "file that the plan does not list stays", "files that the plan does not list stay"},
	} {
		if p.n > 0 {
			parts = append(parts, Counted(p.n, p.one, p.many))
		}
	}
	return strings.Join(parts, "; ")
}

// Refusal says why nothing may be taken, or "".
func (r Recounted) Refusal() string {
	if len(r.Unlisted) == 0 {
		return ""
	}
	names := make([]string, 0, 3)
	for _, f := range r.Unlisted[:min(3, len(r.Unlisted))] {
		names = append(names, fmt.Sprintf("%q (%s)", Clean(path.Join(f.Root, f.Path)), f.Class))
	}
	more := ""
	if n := len(r.Unlisted) - len(names); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("nothing was moved: %s that the plan counted as proven would be lost: %s%s; make a new plan",
		Counted(len(r.Unlisted), "file", "files"), strings.Join(names, ", "), more)
}

// Remaining compares what was taken and what must be there with a later look:
// which taken names are still there, and which others are not.
func Remaining(take []ListedFile, others []string, now []Holding) (still, missing []string) {
	there := map[string]FileID{}
	for _, h := range now {
		for _, f := range h.Files {
			there[path.Join(f.Root, f.Path)] = f.ID
		}
	}
	for _, f := range take {
		name := path.Join(f.Root, f.Path)
		// A name that a new file took meanwhile is not the listed file.
		if id, ok := there[name]; ok && id == f.ID {
			still = append(still, name)
		}
	}
	for _, name := range others {
		if _, ok := there[name]; !ok {
			missing = append(missing, name)
		}
	}
	return still, missing
}
