package tui

import "testing"

// BenchmarkFrame is one look at the Source and one frame of eight workers:
// it happens about twice a second.
func BenchmarkFrame(b *testing.B) {
	m := newModel(doer{}, t0, ui{theme: ThemeAuto})
	m.size = size{120, 40}
	in := mixed(8).in
	for b.Loop() {
		m.take(in)
		m.fresh = false
		if m.View().Content == "" {
			b.Fatal("no frame")
		}
	}
}
