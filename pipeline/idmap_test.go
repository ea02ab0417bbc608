package pipeline

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestCoverageMapKeepsEveryID(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Int64Range(1, 2_000_000).Draw(t, "total")
		s := &IDSpread{PerCell: 64 << rapid.IntRange(0, 6).Draw(t, "size")}
		n := rapid.Int64Range(0, min(MaxIDCells, (total-1)/s.PerCell+1)).Draw(t, "cells")
		for range n {
			s.Stored = append(s.Stored, rapid.Int64Range(0, s.PerCell/2).Draw(t, "stored"))
			s.Local = append(s.Local, rapid.Int64Range(0, s.PerCell/2).Draw(t, "local"))
		}
		m, why := coverageMap(&OutputReading{IDs: s}, &total)
		if m == nil {
			t.Fatal(*why)
		}
		if len(m.StoredIDs) > MaxIDCells || int64(len(m.StoredIDs))*m.IDsPerCell < total || len(m.StoredIDs) != len(m.LocalIDs) {
			t.Fatalf("%d cells of %d for %d", len(m.StoredIDs), m.IDsPerCell, total)
		}
		if sumOf(m.StoredIDs) != sumOf(s.Stored) || sumOf(m.LocalIDs) != sumOf(s.Local) {
			t.Fatalf("ids got lost: %v of %v", m, s)
		}
		for i := range m.StoredIDs {
			if m.StoredIDs[i]+m.LocalIDs[i] > m.IDsPerCell {
				t.Fatalf("cell %d holds more than its ids", i)
			}
		}
	})
}

func sumOf(list []int64) (n int64) {
	for _, v := range list {
		n += v
	}
	return n
}

func TestCoverageMapSaysWhyThereIsNone(t *testing.T) {
	t.Parallel()
	ids := &IDSpread{PerCell: 64, Stored: []int64{1, 1}, Local: []int64{0, 0}}
	for name, c := range map[string]struct {
		r     *OutputReading
		total *int64
	}{
		"no reading":       {nil, new(int64(9))},
		"no ids":           {&OutputReading{}, new(int64(9))},
		"a reason":         {&OutputReading{IDs: &IDSpread{Reason: "no"}}, new(int64(9))},
		"no total":         {&OutputReading{IDs: ids}, nil},
		"beyond the total": {&OutputReading{IDs: ids}, new(int64(9))},
	} {
		if m, why := coverageMap(c.r, c.total); m != nil || why == nil || *why == "" {
			t.Errorf("%s: %v", name, m)
		}
	}
	m, _ := coverageMap(&OutputReading{IDs: ids}, new(int64(64))) // ids from 1 to 64
	if m == nil || !slices.Equal(m.StoredIDs, []int64{2}) {
		t.Errorf("ids that count from 1: %v", m)
	}
}
