package pipeline

// MaxIDCells bounds the cells of an IDSpread and of a CoverageMap.
const MaxIDCells = 480

// IDSpread counts the sample ids of an output in cells of equal size, from id
// 0 on: as stored, or else as complete on the disk.
type IDSpread struct {
	PerCell       int64
	Stored, Local []int64
	Reason        string // why there is none
}

// coverageMap lays an output's ids over the range of its stage.
func coverageMap(r *OutputReading, total *int64) (*CoverageMap, *string) {
	switch {
	case r == nil:
		return nil, new("not looked at yet")
	case r.IDs == nil:
		return nil, new("the spec names no sample ids for this output")
	case r.IDs.Reason != "":
		return nil, new(Clean(r.IDs.Reason))
	case total == nil || *total <= 0:
		return nil, new("the total is not known")
	}
	per := max(1, r.IDs.PerCell)
	had := per
	for (*total-1)/per >= MaxIDCells {
		per *= 2
	}
	cells := int((*total-1)/per) + 1
	out := &CoverageMap{IDsPerCell: per, StoredIDs: make([]int64, cells), LocalIDs: make([]int64, cells)}
	for i, n := range r.IDs.Stored {
		local := r.IDs.Local[i]
		if n+local == 0 {
			continue
		}
		first := int64(i) * had
		if first > *total { // ids may count from 1
			return nil, new("sample ids go beyond the total")
		}
		at := min(cells-1, int(first/per))
		out.StoredIDs[at] += n
		out.LocalIDs[at] += local
	}
	return out, nil
}
