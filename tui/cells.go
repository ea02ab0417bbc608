package tui

import (
	"fmt"
	"strconv"
	"time"

	"pipedeck/pipeline"
)

func gpuCell(c cellInput) span {
	switch {
	case c.r.gpu != nil:
		return txt(plain, strconv.Itoa(c.r.gpu.Index))
	case c.r.worker != nil && c.r.worker.GPU != nil:
		return txt(dim, strconv.Itoa(*c.r.worker.GPU))
	}
	return txt(dim, "cpu")
}

// gpuFigure shows a value of the GPU; a row without a GPU stays blank.
func gpuFigure[T any](c cellInput, v func(*pipeline.GPUSnapshot) *T, f func(T) string) span {
	if c.r.gpu == nil {
		return span{}
	}
	return txt(aged(c.b.oldGPU), old(c.b.oldGPU, opt(v(c.r.gpu), f)))
}

func aged(stale bool) look {
	if stale {
		return dim
	}
	return plain
}

func utilCell(c cellInput) span {
	return gpuFigure(c, func(g *pipeline.GPUSnapshot) *float64 { return g.UtilPercent },
		func(v float64) string { return fmt.Sprintf("%.0f%%", v) })
}

func utilBar(c cellInput) span {
	if c.r.gpu == nil || c.r.gpu.UtilPercent == nil || c.b.oldGPU {
		return span{}
	}
	return txt(dim, meter(*c.r.gpu.UtilPercent/100, c.w))
}

const gib = 1 << 30

func memCell(c cellInput) span {
	return gpuFigure(c, func(g *pipeline.GPUSnapshot) *string {
		if g.MemUsedBytes == nil {
			return nil
		}
		s := fmt.Sprintf("%.0f/%s", float64(*g.MemUsedBytes)/gib,
			opt(g.MemTotalBytes, func(n int64) string { return fmt.Sprintf("%.0f", float64(n)/gib) }))
		return &s
	}, func(s string) string { return s })
}

func memBar(c cellInput) span {
	g := c.r.gpu
	if g == nil || g.MemUsedBytes == nil || deref(g.MemTotalBytes) <= 0 || c.b.oldGPU {
		return span{}
	}
	return txt(dim, meter(float64(*g.MemUsedBytes)/float64(*g.MemTotalBytes), c.w))
}

func tempCell(c cellInput) span {
	return gpuFigure(c, func(g *pipeline.GPUSnapshot) *float64 { return g.TempCelsius },
		func(v float64) string { return fmt.Sprintf("%.0fC", v) })
}

func powerCell(c cellInput) span {
	return gpuFigure(c, func(g *pipeline.GPUSnapshot) *float64 { return g.PowerWatts },
		func(v float64) string { return fmt.Sprintf("%.0fW", v) })
}

func rateCell(c cellInput) span {
	if c.r.worker == nil {
		return span{}
	}
	if c.b.stale {
		return txt(dim, none)
	}
	return txt(bold, opt(c.r.worker.SamplesPerSecond, rateText))
}

func sparkCell(c cellInput) span {
	if c.r.worker == nil {
		return span{}
	}
	s := c.u.history.series[c.r.worker.ID]
	return span{text: spark(s, c.w, c.top, c.u.ascii), look: accent}
}

func doneCell(c cellInput) span {
	if c.r.worker == nil {
		return span{}
	}
	return txt(aged(c.b.stale), old(c.b.stale, opt(c.r.worker.Done, count)))
}

func shardCell(c cellInput) span {
	if c.r.worker == nil {
		return span{}
	}
	return txt(dim, opt(c.r.worker.Total, count))
}

func etaCell(c cellInput) span {
	w := c.r.worker
	if w == nil {
		return span{}
	}
	if c.b.stale || w.Done == nil || w.Total == nil || deref(w.SamplesPerSecond) <= 0 || *w.Done > *w.Total {
		return txt(dim, none)
	}
	return txt(plain, lasting(float64(*w.Total-*w.Done) / *w.SamplesPerSecond))
}

func pidCell(c cellInput) span {
	if c.r.worker == nil {
		return span{}
	}
	return txt(dim, opt(c.r.worker.PID, strconv.Itoa))
}

func restartCell(c cellInput) span {
	w := c.r.worker
	if w == nil {
		return span{}
	}
	return txt(dim, fmt.Sprintf("%d/%d", w.Restarts, w.MaxRestarts))
}

func lastCell(c cellInput) span {
	if c.r.worker == nil {
		return span{}
	}
	return txt(aged(c.b.stale), opt(c.r.worker.LastOutputAt, func(t time.Time) string {
		return lasting(max(0, c.b.now.Sub(t).Seconds()))
	}))
}

func seconds(s float64) time.Duration {
	return time.Duration(min(s, 1e9) * float64(time.Second))
}
