package gpu

import (
	"context"
	"time"

	"pipedeck/pipeline"
)

// Chain reads GPUs with the best source that answers: the NVML helper, else
// nvidia-smi, else none. The reading says which it was and why not a better
// one.
type Chain struct {
	helper *Helper
	smi    *SMI
	who    processNames
}

var _ Source = (*Chain)(nil)

// NewChain is the GPU source of a node.
func NewChain(now func() time.Time) *Chain {
	return &Chain{helper: NewHelper(now), smi: NewSMI("", now), who: processNames{proc: "/proc"}}
}

// Read makes one reading. A driver that hangs is not asked a second time
// through nvidia-smi, which would hang as well.
func (c *Chain) Read(ctx context.Context) pipeline.GPUReading {
	r, err := c.helper.read(ctx)
	if err != nil {
		why := r.Reason
		r = c.smi.Read(ctx)
		switch {
		case r.Kind == KindNone:
			r.Reason = why + "; " + r.Reason
		case r.Reason == "":
			r.Reason = "read with nvidia-smi, not NVML: " + why
		default:
			r.Reason += "; not read with NVML: " + why
		}
	}
	c.who.fill(r.GPUs)
	return r
}
