package local

// HintKind is what seems to have happened to a path.
type HintKind string

// Values of HintKind.
const (
	HintCreated  HintKind = "created"  // a file was begun
	HintWritten  HintKind = "written"  // a file was closed after writing
	HintMovedIn  HintKind = "moved_in" // a file was renamed to this name
	HintRemoved  HintKind = "removed"  // a file or directory went, or was renamed away
	HintDir      HintKind = "dir"      // a directory came: files may be in it already, scan it
	HintOverflow HintKind = "overflow" // hints were lost: scan everything (of Root, if set)
)

// Hint is a reason to look at a path. It proves nothing.
type Hint struct {
	Root string // as given to the Watcher; empty: all roots
	Rel  string // below Root
	Kind HintKind
}

// maxPending hints wait for a slow receiver; beyond, one overflow is cheaper.
const maxPending = 1 << 16

// hintQueue keeps hints in order, one for each path and kind.
type hintQueue struct {
	order    []Hint
	seen     map[Hint]bool
	overflow bool
}

func (q *hintQueue) push(h Hint) {
	switch {
	case q.overflow || q.seen[h]:
		return
	case h.Kind == HintOverflow && h.Root == "", len(q.order) >= maxPending:
		*q = hintQueue{overflow: true}
		return
	}
	if q.seen == nil {
		q.seen = map[Hint]bool{}
	}
	q.seen[h] = true
	q.order = append(q.order, h)
}

func (q *hintQueue) take() []Hint {
	batch := q.order
	if q.overflow {
		batch = []Hint{{Kind: HintOverflow}}
	}
	*q = hintQueue{}
	return batch
}
