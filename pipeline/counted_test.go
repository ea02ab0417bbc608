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

func TestCountedOf(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"0 of 1 worker is":   CountedOf(0, 1, "worker", "workers", "is", "are"),
		"1 of 1 worker is":   CountedOf(1, 1, "worker", "workers", "is", "are"),
		"0 of 2 workers are": CountedOf(0, 2, "worker", "workers", "is", "are"),
		"1 of 2 workers is":  CountedOf(1, 2, "worker", "workers", "is", "are"),
		"2 of 2 workers are": CountedOf(2, 2, "worker", "workers", "is", "are"),
		"0 of 0 workers are": CountedOf(0, 0, "worker", "workers", "is", "are"),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
