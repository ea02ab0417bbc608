package tui

import (
	"cmp"
	"fmt"
	"slices"
)

// order is how the workers are sorted.
type order struct {
	by      sortBy
	reverse bool
}

// sortBy is a column that the workers can be sorted by.
type sortBy int

const (
	byGPU sortBy = iota // as they come: by GPU, then what has none
	byNeedFirst
	byRate
	byETA
	byDone
	byName
	sorts
)

func (s sortBy) name() string {
	return [...]string{"GPU", "need", "rate", "ETA", "done", "name"}[s]
}

func nextSort(m *model) []effect {
	m.ui.order = order{by: (m.ui.order.by + 1) % sorts}
	m.ui.say(plain, "workers sorted by "+m.ui.order.by.name())
	return nil
}

func reverseSort(m *model) []effect {
	m.ui.order.reverse = !m.ui.order.reverse
	m.ui.say(plain, "workers "+m.ui.order.text())
	return nil
}

// text says how the workers are sorted.
func (o order) text() string {
	text := "by " + o.by.name()
	if o.reverse {
		text += ", reversed"
	}
	return text
}

// arrange puts the rows into the order asked for and leaves out what the
// filter does not let through. The worst state is judged by all of them.
func (b *board) arrange(u *ui) {
	b.rows = slices.Clone(b.all)
	slices.SortStableFunc(b.rows, u.order.compare)
	if u.order.reverse {
		slices.Reverse(b.rows)
	}
	if f := u.filters[paneWorkers]; f != "" {
		b.rows = slices.DeleteFunc(b.rows, func(r row) bool { return !contains(f, r.key, r.word, r.reason) })
	}
}

func (o order) compare(a, b row) int {
	switch o.by {
	case byNeedFirst:
		return cmp.Compare(b.weight, a.weight)
	case byRate:
		return cmp.Compare(rowRate(a), rowRate(b))
	case byETA:
		return cmp.Compare(rowETA(b), rowETA(a))
	case byDone:
		return cmp.Compare(rowDone(a), rowDone(b))
	case byName:
		return cmp.Compare(a.key, b.key)
	case byGPU, sorts:
	}
	return 0
}

// rowRate sorts the slowest first: that is the one to look at. What has no
// rate comes last.
func rowRate(r row) float64 {
	if r.worker == nil || r.worker.SamplesPerSecond == nil {
		return 1e300
	}
	return *r.worker.SamplesPerSecond
}

// rowETA is the time left, 0 if unknown.
func rowETA(r row) float64 {
	w := r.worker
	if w == nil || w.Done == nil || w.Total == nil || deref(w.SamplesPerSecond) <= 0 {
		return 0
	}
	return float64(*w.Total-*w.Done) / *w.SamplesPerSecond
}

func rowDone(r row) int64 {
	if r.worker == nil {
		return 1 << 62
	}
	return deref(r.worker.Done)
}

// hidden says what a filter of the workers leaves out, above all what needs
// attention.
func (b board) hidden() string {
	n := len(b.all) - len(b.rows)
	if n == 0 {
		return ""
	}
	text := fmt.Sprintf("%d hidden", n)
	if bad := failing(b.all) - failing(b.rows); bad > 0 {
		text += fmt.Sprintf(", %d of them failing", bad)
	}
	return text
}

func sortNames(board) []string {
	var out []string
	for s := range sorts {
		out = append(out, s.name())
	}
	return out
}

func sortWorkers(m *model, name string) []effect {
	m.ui.order = order{by: sortBy(slices.Index(sortNames(board{}), name))}
	return nil
}
