package mover

import (
	"cmp"
	"context"
	"math/bits"
	"strconv"

	"pipedeck/pipeline"
)

// mapIDs is the largest sample id that the map of an output can hold, so that
// a stray number in a file's name cannot take the memory.
const mapIDs = 1 << 26

// idMap knows of each integer sample id of an output whether it is stored, and
// whether it is complete on the disk. Marking twice is harmless.
type idMap struct {
	stored, local bitset
	read          bool   // what was stored before is in
	reason        string // why there is no map
}

type bitset []uint64

func (b *bitset) set(n uint64) {
	if need := int(n/64) + 1; need > len(*b) {
		*b = append(*b, make([]uint64, need-len(*b))...)
	}
	(*b)[n/64] |= 1 << (n % 64)
}

func (b bitset) clear(n uint64) {
	if int(n/64) < len(b) {
		b[n/64] &^= 1 << (n % 64)
	}
}

// word is the i-th word; beyond the end there is nothing.
func (b bitset) word(i int) uint64 {
	if i < len(b) {
		return b[i]
	}
	return 0
}

func (m *idMap) number(sample string) (uint64, bool) {
	n, err := strconv.ParseUint(sample, 10, 64)
	switch {
	case sample == "":
		return 0, false
	case err != nil:
		m.reason = "sample ids are not all integers"
		return 0, false
	case n >= mapIDs:
		m.reason = "sample ids are too large"
		return 0, false
	}
	return n, true
}

func (m *idMap) markStored(sample string) {
	if n, ok := m.number(sample); ok {
		m.stored.set(n)
	}
}

func (m *idMap) markLocal(sample string, here bool) {
	n, ok := m.number(sample)
	switch {
	case !ok:
	case here:
		m.local.set(n)
	default:
		m.local.clear(n)
	}
}

// spread counts the ids in cells of equal size.
func (m *idMap) spread() *pipeline.IDSpread {
	out := &pipeline.IDSpread{Reason: m.reason}
	switch {
	case m.reason != "":
		return out
	case !m.read:
		out.Reason = "what is stored was not read yet"
		return out
	}
	words := max(len(m.stored), len(m.local))
	per := 1
	for words*64 > per*pipeline.MaxIDCells {
		per *= 2
	}
	cells := (words*64 + per - 1) / per
	out.PerCell, out.Stored, out.Local = int64(per), make([]int64, cells), make([]int64, cells)
	part := min(per, 64) // bits of a word that fall into one cell
	mask := ^uint64(0) >> (64 - part)
	for i := range words {
		s, l := m.stored.word(i), m.local.word(i)
		for bit := 0; bit < 64; bit += part {
			cell := (i*64 + bit) / per
			out.Stored[cell] += int64(bits.OnesCount64(s >> bit & mask))
			out.Local[cell] += int64(bits.OnesCount64((l &^ s) >> bit & mask))
		}
	}
	return out
}

// readMaps takes over from the ledger which ids are stored.
func (m *Mover) readMaps(ctx context.Context) {
	for _, o := range m.outputs {
		if o.spec.ID == "" {
			continue
		}
		var before idMap
		err := m.opt.Ledger.Samples(ctx, o.name, before.markStored)
		m.mu.Lock()
		if err != nil {
			before.reason = err.Error()
		}
		for i, w := range before.stored {
			for ; w != 0; w &= w - 1 {
				o.idMap.stored.set(uint64(i*64 + bits.TrailingZeros64(w)))
			}
		}
		o.idMap.read, o.idMap.reason = true, cmp.Or(o.idMap.reason, before.reason)
		m.mu.Unlock()
	}
}
