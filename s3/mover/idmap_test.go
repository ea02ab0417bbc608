package mover

import (
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"pipedeck/pipeline"
)

// The cells hold each id once: as stored if it is stored, else as local.
func TestIDMapCountsEachIDOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := idMap{read: true}
		stored, local := map[int]bool{}, map[int]bool{}
		for range rapid.IntRange(0, 300).Draw(t, "marks") {
			id := rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(0, 500_000)).Draw(t, "id")
			text := "00" + strconv.Itoa(id)
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0:
				m.markStored(text)
				stored[id] = true
			case 1:
				m.markLocal(text, true)
				local[id] = true
			case 2:
				m.markLocal(text, false)
				delete(local, id)
			}
		}
		got := m.spread()
		if len(got.Stored) > pipeline.MaxIDCells || len(got.Stored) != len(got.Local) {
			t.Fatalf("%d and %d cells", len(got.Stored), len(got.Local))
		}
		want := [2][]int64{make([]int64, len(got.Stored)), make([]int64, len(got.Stored))}
		for id := range stored {
			want[0][int64(id)/got.PerCell]++
			delete(local, id)
		}
		for id := range local {
			want[1][int64(id)/got.PerCell]++
		}
		if !slices.Equal(got.Stored, want[0]) || !slices.Equal(got.Local, want[1]) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

func TestIDMapSaysWhyThereIsNone(t *testing.T) {
	t.Parallel()
	var m idMap
	if m.spread().Reason == "" {
		t.Error("a map before the ledger was read")
	}
	m.read = true
	if s := m.spread(); s.Reason != "" || len(s.Stored) != 0 {
		t.Errorf("an empty map is %+v", s)
	}
	m.markStored("shard-a")
	if m.spread().Reason == "" {
		t.Error("a map of ids that are no integers")
	}
	m = idMap{read: true}
	m.markLocal("99999999999", true)
	if m.spread().Reason == "" {
		t.Error("a map of ids without end")
	}
}
