package gpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"pipedeck/gpu/probe"
	"pipedeck/pipeline"
)

// KindNVML is the source that reads through pipedeck-gpu.
const KindNVML = "nvml"

// HelperName is the program that reads NVML.
const HelperName = "pipedeck-gpu"

// HelperEnv names it elsewhere.
const HelperEnv = "PIPEDECK_GPU"

// Helper reads GPUs through a pipedeck-gpu child, and replaces the child by the
// rule of judgeHelper.
type Helper struct {
	find   func() (string, error)
	now    func() time.Time
	limits helperLimits

	turn chan struct{} // one token: the right to talk to the child

	// Under turn.
	child    *child
	dying    *child // was killed and has not ended: D state
	deny     []string
	fails    int
	next     time.Time // no new child before
	why      string    // why there is no child
	hung     bool      // and whether the driver hangs
	replaced time.Time // when a child was last replaced for one GPU that hangs

	mu    sync.Mutex
	known []pipeline.GPUSnapshot // by the last good reading
}

// NewHelper finds pipedeck-gpu where HelperEnv says, beside this program, or in
// PATH.
func NewHelper(now func() time.Time) *Helper {
	return newHelper(findHelper, now, defaultLimits)
}

func newHelper(find func() (string, error), now func() time.Time, limits helperLimits) *Helper {
	h := &Helper{find: find, now: now, limits: limits, turn: make(chan struct{}, 1)}
	h.turn <- struct{}{}
	return h
}

func findHelper() (string, error) {
	if path := os.Getenv(HelperEnv); path != "" {
		return exec.LookPath(path)
	}
	if self, err := os.Executable(); err == nil {
		path := filepath.Join(filepath.Dir(self), HelperName)
		if found, err := exec.LookPath(path); err == nil {
			return found, nil
		}
	}
	return exec.LookPath(HelperName)
}

// errElsewhere says that this source reads nothing and another may.
var errElsewhere = errors.New("another source may know")

// read asks the child once. With errElsewhere the reading holds only the
// reason; a driver that hangs is no such case, since it hangs for all.
func (h *Helper) read(ctx context.Context) (pipeline.GPUReading, error) {
	select {
	case <-h.turn:
	case <-ctx.Done():
		return h.blank("the helper is busy: " + ctx.Err().Error()), nil
	}
	defer func() { h.turn <- struct{}{} }()
	begin := h.now()
	for {
		if !h.ensure() {
			r := h.blank(h.why)
			if h.hung {
				return r, nil
			}
			return r, errElsewhere
		}
		a, err := h.child.ask(ctx, h.limits.soft)
		act, why := judgeHelper(h.child.facts(a, err, h.now().Sub(h.replaced)), h.limits)
		switch act {
		case helperKeep:
			return h.reading(a), nil
		case helperReplaceLater:
			// This answer is good, the next one comes from another process.
			h.retire(why, false)
			return h.reading(a), nil
		case helperWait:
			if a.Code == probe.NotReady && h.now().Sub(begin) < h.limits.start && ctx.Err() == nil {
				time.Sleep(h.limits.poll)
				continue
			}
			return h.blank(why), nil
		case helperHung:
			h.retire(why, true)
			return h.blank(why), nil
		default:
			h.retire(why, false)
			return h.blank(why), errElsewhere
		}
	}
}

// reading is what an answer says; GPUs that were there and are not any more
// keep their rows as lost.
func (h *Helper) reading(a probe.Answer) pipeline.GPUReading {
	h.mu.Lock()
	defer h.mu.Unlock()
	gone := "the driver does not list it any more"
	for _, k := range h.known {
		if !slices.ContainsFunc(a.GPUs, func(g pipeline.GPUSnapshot) bool { return g.UUID == k.UUID || g.UUID == "" && g.Index == k.Index }) {
			a.GPUs = append(a.GPUs, pipeline.GPUSnapshot{Index: k.Index, UUID: k.UUID, Name: k.Name, State: pipeline.GPULost, StateReason: &gone})
		}
	}
	for i := range a.GPUs {
		h.recall(&a.GPUs[i])
	}
	h.known = slices.Clone(a.GPUs)
	if len(h.known) > maxKnown {
		h.known = h.known[:maxKnown]
	}
	r := pipeline.GPUReading{At: h.now(), Kind: KindNVML, GPUs: a.GPUs}
	if len(a.GPUs) == 0 {
		r.Reason = "the driver lists no GPU"
	}
	return r
}

// maxKnown bounds what is remembered of GPUs that came and went.
const maxKnown = 256

// recall names a GPU that was lost before this child could ask for its UUID.
func (h *Helper) recall(g *pipeline.GPUSnapshot) {
	for _, k := range h.known {
		if g.UUID == "" && k.Index == g.Index {
			g.UUID, g.Name = k.UUID, k.Name
		}
	}
}

// blank is a reading without values: the GPUs seen before keep their rows.
func (h *Helper) blank(why string) pipeline.GPUReading {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := pipeline.GPUReading{At: h.now(), Kind: KindNVML, Reason: why}
	for _, k := range h.known {
		r.GPUs = append(r.GPUs, pipeline.GPUSnapshot{Index: k.Index, UUID: k.UUID, Name: k.Name, State: pipeline.GPUUnknown, StateReason: &why})
	}
	return r
}

// ensure has a living child, or says in why and hung that there is none.
func (h *Helper) ensure() bool {
	if h.child != nil && h.child.ended() {
		h.retire(h.child.obituary(), false)
	}
	if h.child != nil {
		return true
	}
	if h.dying != nil {
		if !h.dying.ended() {
			h.why, h.hung = fmt.Sprintf("the driver does not answer: the helper (pid %d, state %s) cannot be ended", h.dying.pid(), h.dying.state()), true
			return false
		}
		h.dying = nil
	}
	if h.now().Before(h.next) {
		return false
	}
	path, err := h.find()
	if err != nil {
		h.why, h.hung = HelperName+" was not found: put it beside pipedeck, into PATH, or name it in "+HelperEnv, false
		h.next = h.now().Add(h.limits.most)
		return false
	}
	c, err := startChild(path, h.deny, h.now)
	if err != nil {
		h.failed("cannot start " + HelperName + ": " + err.Error())
		h.hung = false
		return false
	}
	h.child = c
	return true
}

// failed delays the next child, longer each time.
func (h *Helper) failed(why string) {
	h.why = why
	h.next = h.now().Add(min(h.limits.most, h.limits.first<<min(h.fails, 10)))
	h.fails++
}

// retire ends the child. One that was good for a while is followed at once.
func (h *Helper) retire(why string, hung bool) {
	c := h.child
	h.child, h.hung = nil, hung
	h.deny = append(h.deny, c.missingSymbols()...)
	if h.now().Sub(c.begin) > h.limits.most {
		h.fails = 0
	}
	if c.stuck {
		h.replaced = h.now()
	}
	c.kill(h.limits.reap)
	if !c.ended() {
		h.dying = c
	}
	h.failed(why)
	if c.good && !hung {
		h.next = h.now()
	}
	h.why = strings.TrimSpace(why)
}
