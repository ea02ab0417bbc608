package pipeline

import "strconv"

// suggest is the hint for a name that does not exist.
func suggest(typed string, names []string) string {
	best, at := 1+len(typed)/3, ""
	for _, n := range names {
		if d := distance(typed, n); d <= best {
			best, at = d-1, n
		}
	}
	if at == "" {
		return ""
	}
	return "did you mean " + strconv.Quote(at) + "?"
}

// distance is the number of edits between two short names.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diag, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diag+cost)
		}
	}
	return row[len(b)]
}
