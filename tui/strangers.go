package tui

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"pipedeck/pipeline"
)

// strangersView lists processes that no launch of ours owns: those that were
// started by hand, strays that carry our run, and whoever holds GPU memory.
// Nothing in it acts: adopt and reap are asked for by the palette.
type strangersView struct {
	list  []pipeline.Stranger
	known bool
	err   string
	at    int
}

func openStrangers(m *model) []effect {
	m.ui.open(&strangersView{})
	return []effect{strangersEffect{}}
}

func (m *model) strangersListed(msg strangersMsg) {
	v, ok := m.ui.top().(*strangersView)
	if !ok {
		return
	}
	v.known, v.err, v.list = true, "", msg.list
	if msg.err != nil {
		v.err = problemText(msg.err)
	}
	slices.SortStableFunc(v.list, func(a, b pipeline.Stranger) int { return cmp.Compare(b.GPUMem, a.GPUMem) })
	v.at = max(0, min(v.at, len(v.list)-1))
}

func (v *strangersView) scope() scope { return inStrangers }
func (v *strangersView) scroll(_ *ui, m move, page int) []effect {
	v.at = m.offset(v.at, max(0, len(v.list)-1), page)
	return nil
}

func askStrangers(*model) []effect { return []effect{strangersEffect{}} }

func (v *strangersView) draw(b board, _ *ui, sz size) []line {
	out := []line{rowOf(ident, left(" Processes that are no workers of this deck, "+clean(deckName(b)+" @ "+b.node.Name), sz.w)), nil}
	switch {
	case v.err != "":
		return append(out, rowOf(bad, cut("cannot list them: "+clean(v.err), sz.w)))
	case !v.known:
		return append(out, rowOf(dim, "asking the agent"))
	case len(v.list) == 0:
		return append(out, rowOf(plain, "none: nobody else holds GPU memory, and none carries this deck's run"))
	}
	gpus := map[string]string{}
	for _, g := range b.node.GPUs {
		gpus[g.UUID] = strconv.Itoa(g.Index)
	}
	out = append(out, rowOf(dim, "  "+right("PID", 8)+" "+left("USER", 9)+left("SINCE", 8)+right("GPU MEM", 9)+" "+left("GPU", 8)+"COMMAND"))
	rows := max(1, sz.h-len(out)-7)
	top := max(0, min(v.at-rows/2, len(v.list)-rows))
	for i, s := range v.list[top:min(len(v.list), top+rows)] {
		on := make([]string, 0, len(s.GPUs))
		for _, u := range s.GPUs {
			on = append(on, cmp.Or(gpus[u], cut(u, 8)))
		}
		mem := none
		if s.GPUMem >= 0 {
			mem = bytesText(s.GPUMem)
		}
		k, mark := plain, "  "
		if top+i == v.at {
			k, mark = chosen, "> "
		}
		out = append(out, rowOf(k, left(mark+right(strconv.Itoa(s.PID), 8)+" "+left(clean(s.User), 9)+left(lasting(b.since(s.StartedAt)), 8)+
			right(mem, 9)+" "+left(strings.Join(on, ","), 8)+clean(commandOf(s)), sz.w)))
	}
	s := v.list[v.at]
	for len(out) < sz.h-6 {
		out = append(out, nil)
	}
	run := "carries no run of pipedeck"
	if s.Run != "" {
		run = "carries the run " + s.Run
	}
	for _, part := range wrap(commandOf(s), sz.w-2)[:1] {
		out = append(out, rowOf(bold, part))
	}
	return append(out, rowOf(plain, cut(clean(fmt.Sprintf("in %s, %d children, %s", s.Dir, s.Children, run)), sz.w)), nil,
		rowOf(dim, cut(":adopt STAGE PID,PID  takes them over as workers, in the order of their ranks", sz.w)),
		rowOf(dim, cut(":reap PID,PID  ends those that carry this deck's run", sz.w)),
		rowOf(dim, cut("Both show a plan first. t: look again", sz.w)))
}

// commandOf is a command line without the secrets that may be in it.
func commandOf(s pipeline.Stranger) string {
	return strings.Join(pipeline.MaskArgs(s.Argv), " ")
}
