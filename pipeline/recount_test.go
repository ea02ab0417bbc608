package pipeline

import "testing"

// Whatever the counts, the words around them fit.
func TestRecountedReads(t *testing.T) {
	t.Parallel()
	for i, want := range []string{
		"0 of the listed files are as the plan says",
		"1 of the listed files is as the plan says; 1 of them was stored meanwhile; 1 is gone already; 1 changed and stays; 1 file that the plan does not list stays",
		"2 of the listed files are as the plan says; 2 of them were stored meanwhile; 2 are gone already; 2 changed and stay; 2 files that the plan does not list stay",
	} {
		n := int64(i)
		r := Recounted{Take: make([]ListedFile, i), Saved: n, Gone: n, Changed: n, Appeared: n}
		if got := r.Text(); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}
