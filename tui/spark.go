package tui

import "math"

// The ramps of a sparkline, lowest first. Blocks stop at seven eighths: full
// blocks of two rows would fuse.
const (
	blockRamp = "▁▂▃▄▅▆▇"
	asciiRamp = "_.:-=+*#"
)

// spark draws the newest w values on a scale from 0 to top. NaN is missing
// data and stays blank; a real zero is drawn as a line.
func spark(values []float64, w int, top float64, ascii bool) string {
	ramp := []rune(blockRamp)
	if ascii {
		ramp = []rune(asciiRamp)
	}
	out := make([]rune, max(0, w))
	for i := range out {
		out[i] = ' '
		j := len(values) - len(out) + i
		if j < 0 || math.IsNaN(values[j]) {
			continue
		}
		out[i] = level(values[j], top, ramp)
	}
	return string(out)
}

func level(v, top float64, ramp []rune) rune {
	if v <= 0 || top <= 0 {
		return '_'
	}
	n := int(math.Ceil(min(1, v/top)*float64(len(ramp)))) - 1
	return ramp[min(len(ramp)-1, max(0, n))]
}

// scaleTop returns a round number not below the largest value, so that the
// scale of a chart rarely jumps.
func scaleTop(series ...[]float64) float64 {
	top := 0.0
	for _, s := range series {
		for _, v := range s {
			if !math.IsNaN(v) && !math.IsInf(v, 0) {
				top = max(top, v)
			}
		}
	}
	if top <= 0 {
		return 1
	}
	base := math.Pow(10, math.Floor(math.Log10(top)))
	for _, m := range []float64{1, 1.5, 2, 3, 5, 7.5, 10} {
		if m*base >= top {
			return m * base
		}
	}
	return 10 * base
}
