package spec

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	maxPerGPU  = 64
	maxWorkers = 10_000
)

func (c *checker) stage(st *Stage) {
	at := where("stages", st.Name)
	c.name(at, "stage", st.Name)
	c.atLeast(where(at, "total"), st.Total, 0)
	for i, g := range st.Inputs {
		fault, hint := globFault("inputs", g, c.s.Workdir, false)
		c.judge(where(at, "inputs", strconv.Itoa(i)), fault, hint)
	}
	once := scope{allowed: []string{"stage", "workdir", "run"}, why: map[string]string{"rank": "the command runs once, for no rank"}}
	for i, cmd := range st.Setup {
		c.templates(where(at, "setup", strconv.Itoa(i)), cmd, once)
	}
	for i := range st.Services {
		c.service(at, st, i)
	}
	c.workers(where(at, "workers"), st)
	for i := range st.Outputs {
		c.output(st, &st.Outputs[i])
	}
	c.progress(at, st)
	c.doneSet(at, st)
	for i := range st.Gates {
		c.gate(where(at, "gates", strconv.Itoa(i)), &st.Gates[i], once)
	}
	c.scratch(at, st)
	c.pause(at, st, once)
}

func (c *checker) ranks(at string, perGPU, count int) {
	switch c.oneOf(at, map[string]bool{"per_gpu": perGPU != 0, "count": count != 0}) {
	case "per_gpu":
		if perGPU < 1 || perGPU > maxPerGPU {
			c.fail(where(at, "per_gpu"), "", "per_gpu is %d, want 1 to %d", perGPU, maxPerGPU)
		}
	case "count":
		if count < 1 || count > maxWorkers {
			c.fail(where(at, "count"), "", "count is %d, want 1 to %d", count, maxWorkers)
		}
	}
}

func (c *checker) workers(at string, st *Stage) {
	w := &st.Workers
	c.ranks(at, w.PerGPU, w.Count)
	if w.PerGPU > 0 && w.GPUs.some() {
		c.fail(where(at, "gpus"), "a per_gpu stage runs on the node's gpus; use count to hold certain GPUs", "gpus cannot be given with per_gpu")
	}
	for _, i := range w.GPUs.Indexes {
		if !c.onSomeNode(i) {
			c.fail(where(at, "gpus"), "", "GPU %d is on no node of this spec", i)
		}
	}
	sc := c.workerScope(st)
	c.templates(where(at, "command"), w.Command, sc)
	c.env(where(at, "env"), w.Env, sc)
	c.stop(where(at, "stop"), w.Stop)
	c.restart(where(at, "restart"), w.Restart)
	if w.LoadingTimeout == 0 {
		c.fail(where(at, "loading_timeout"), "", "loading_timeout is 0: every worker would be late at once")
	}
	if w.StallAfter == 0 {
		c.fail(where(at, "stall_after"), "", "stall_after is 0: every worker would be stalled at once")
	}
}

func (g GPUSet) some() bool { return g.All || len(g.Indexes) > 0 || len(g.UUIDs) > 0 }

func (c *checker) onSomeNode(gpu int) bool {
	return slices.ContainsFunc(c.s.Nodes, func(n Node) bool {
		return n.GPUs.All || len(n.GPUs.UUIDs) > 0 || slices.Contains(n.GPUs.Indexes, gpu)
	})
}

func (c *checker) workerScope(st *Stage) scope {
	sc := scope{
		allowed: []string{"rank", "world", "stage", "workdir", "run", "gpu", "gpu_uuid"},
		why: map[string]string{
			"port": "only services have a port; workers get {services.NAME.addresses}",
			"path": "only keys are made for a file",
		},
	}
	for _, v := range st.Services {
		if v.Port > 0 {
			sc.services = append(sc.services, v.Name)
		}
	}
	return sc
}

func (c *checker) env(at string, vars []EnvVar, sc scope) {
	for _, v := range vars {
		fault, hint := envFault(v.Name)
		if c.judge(where(at, v.Name), fault, hint) {
			c.template(where(at, v.Name), v.Value, sc)
		}
		if strings.ContainsRune(v.Value, 0) {
			c.fail(where(at, v.Name), "", "an environment variable cannot hold a NUL byte")
		}
	}
}

func (c *checker) stop(at string, s Stop) {
	fault, hint := signalFault(s.Signal, stopSignals())
	c.judge(where(at, "signal"), fault, hint)
	if s.Grace == 0 {
		c.fail(where(at, "grace"), "give workers the time to finish what they compute", "grace is 0: workers would be killed at once")
	}
}

func (c *checker) restart(at string, r Restart) {
	c.atLeast(where(at, "max"), int64(r.Max), 0)
	if r.Backoff == 0 && r.Max > 0 {
		c.fail(where(at, "backoff"), "", "backoff is 0: a failing worker would be restarted without a pause")
	}
}

func (c *checker) progress(at string, st *Stage) {
	at, p := where(at, "progress"), &st.Progress
	given := map[string]string{"json": p.JSON, "jsonl": p.JSONL, "log": p.Log, "prometheus": p.Prometheus}
	var sources []string
	for _, name := range []string{"json", "jsonl", "log", "prometheus"} {
		if given[name] != "" || c.written(where(at, name)) {
			sources = append(sources, name)
		}
	}
	switch {
	case len(sources) > 1:
		c.fail(where(at, sources[1]), "one source tells the truth; keep one", "more than one progress source: %s", strings.Join(sources, ", "))
		return
	case len(sources) == 0 && *p != (Progress{}):
		c.fail(at, "json, jsonl, log or prometheus; without progress, output files are counted", "the progress source is missing")
		return
	}
	c.progressKeys(at, p)
	c.progressSource(at, st)
}

// progressKeys checks the keys that belong to one source only.
func (c *checker) progressKeys(at string, p *Progress) {
	for _, k := range []struct{ name, value string }{
		{"done", p.Done}, {"total", p.Total}, {"skipped", p.Skipped}, {"failed", p.Failed},
	} {
		if k.value != "" && p.JSON == "" {
			c.fail(where(at, k.name), "", "%s names a key of a status file: it needs json", k.name)
		}
	}
	if p.JSON != "" && p.Done == "" {
		c.fail(where(at, "json"), "the key of the status file that counts done samples", "json needs done")
	}
	if p.Metric != "" && p.Prometheus == "" {
		c.fail(where(at, "metric"), "", "metric needs prometheus")
	}
	if p.Prometheus != "" && p.Metric == "" {
		c.fail(where(at, "prometheus"), "the name of a counter", "prometheus needs metric")
	}
}

func (c *checker) progressSource(at string, st *Stage) {
	p := &st.Progress
	sc := pathScope()
	switch {
	case p.JSON != "":
		c.templatePath(where(at, "json"), "path", p.JSON, sc, false)
	case p.JSONL != "":
		c.templatePath(where(at, "jsonl"), "glob", p.JSONL, sc, false)
	case p.Log != "":
		c.logRegexp(where(at, "log"), p.Log)
	case p.Prometheus != "":
		if ports := c.workerScope(st).services; len(ports) == 1 {
			sc.allowed = append(sc.allowed, "port")
		} else {
			sc.why["port"] = "the stage has not exactly one service with a port"
		}
		c.templateURL(where(at, "prometheus"), p.Prometheus, sc)
	}
}

func (c *checker) logRegexp(at, text string) {
	re, err := regexp.Compile(text)
	if err != nil {
		c.fail(at, "RE2 syntax, as in grep -E", "%s", regexpFault(err))
		return
	}
	if re.SubexpIndex("done") < 0 {
		c.fail(at, `as in step (?P<done>\d+)/(?P<total>\d+)`, "the regexp has no group named done")
	}
	for _, g := range re.SubexpNames() {
		if g != "" && g != "done" && g != "total" {
			c.fail(at, "done, and optionally total", "unknown group %q%s", clip(g), didYouMean(g, []string{"done", "total"}))
		}
	}
}

func regexpFault(err error) string {
	return "cannot read regexp: " + strings.TrimPrefix(err.Error(), "error parsing regexp: ")
}

// pathScope is what paths that exist once for each rank may use.
func pathScope() scope {
	const why = "which GPU a rank gets is known only when it starts; use {rank}"
	return scope{
		allowed: []string{"rank", "world", "stage", "workdir", "run"},
		why: map[string]string{
			"gpu": why, "gpu_uuid": why, "port": "only services have a port",
			"path": "only keys are made for a file", "services": "it is no part of a path",
		},
	}
}

// templatePath checks a template and the path that it gives.
func (c *checker) templatePath(at, what, tmpl string, sc scope, inside bool) bool {
	if fault := textFault(what, tmpl); fault != "" {
		return c.judge(at, fault, "")
	}
	if !c.template(at, tmpl, sc) {
		return false
	}
	sample, err := Expand(tmpl, Vars{World: 1, Stage: "stage", Run: "run", Workdir: c.s.Workdir})
	if err != nil {
		return false // only without a workdir, which is reported
	}
	judge := pathFault
	if what == "glob" {
		judge = globFault
	}
	fault, hint := judge(what, sample, c.s.Workdir, inside)
	return c.judge(at, fault, hint)
}

func (c *checker) templateURL(at, tmpl string, sc scope) {
	if !c.template(at, tmpl, sc) {
		return
	}
	sample, err := Expand(tmpl, Vars{World: 1, GPU: "0", GPUUUID: "GPU-0", Port: "1", Stage: "stage", Run: "run", Workdir: "/w"})
	if err != nil {
		return
	}
	fault, hint := urlFault(sample, true)
	c.judge(at, fault, hint)
}

func (c *checker) doneSet(at string, st *Stage) {
	if st.DoneSet == nil {
		return
	}
	at = where(at, "done_set")
	fault, hint := pathFault("done_set file", st.DoneSet.File, c.s.Workdir, true)
	if fault == "" && strings.ContainsAny(st.DoneSet.File, "{}*?[]") {
		fault = fmt.Sprintf("done_set file %q is one file: no templates and no wildcards", clip(st.DoneSet.File))
	}
	c.judge(where(at, "file"), fault, hint)
	if !slices.ContainsFunc(st.Outputs, func(o Output) bool { return o.ID != "" || c.written(where(outputAt(st, &o), "id")) }) {
		c.fail(at, "give an output the regexp that reads the sample id from its path", "no output of the stage has an id: nothing could be listed as done")
	}
}

func (c *checker) gate(at string, g *Gate, once scope) {
	c.oneOf(at, map[string]bool{"loss_mask": g.LossMask != nil, "command": g.Command != nil})
	c.templates(where(at, "command"), g.Command, once)
	if g.LossMask == nil {
		return
	}
	at = where(at, "loss_mask")
	fault, hint := pathFault("dataset", g.LossMask.Dataset, c.s.Workdir, false)
	c.judge(where(at, "dataset"), fault, hint)
	c.atLeast(where(at, "min_sum"), int64(g.LossMask.MinSum), 0)
	for _, share := range []struct {
		name  string
		value float64
	}{{"max_share_below", g.LossMask.MaxShareBelow}, {"max_mode_share", g.LossMask.MaxModeShare}} {
		if share.value < 0 || share.value > 1 {
			c.fail(where(at, share.name), "a share: 0.05 is 5 %", "%s is %v, want 0 to 1", share.name, share.value)
		}
	}
}

func (c *checker) scratch(at string, st *Stage) {
	for i, tmpl := range st.Scratch {
		at := where(at, "scratch", strconv.Itoa(i))
		if !c.templatePath(at, "path", tmpl, pathScope(), false) || !c.sound("workdir") {
			continue
		}
		sample, err := Expand(tmpl, Vars{World: 1, Stage: "stage", Run: "run", Workdir: c.s.Workdir})
		if err != nil {
			continue
		}
		dir := c.s.Abs(sample)
		if _, in := within(dir, c.s.Workdir); in && path.IsAbs(dir) && dir != c.s.Workdir {
			continue
		}
		if why := sharedFault(dir); why != "" {
			c.fail(at, "scratch is removed as a whole: give it a directory of its own", "scratch %q cannot be removed: %s", clip(tmpl), why)
		}
	}
}

func (c *checker) pause(at string, st *Stage, once scope) {
	p := st.Pause
	if p == nil {
		return
	}
	at = where(at, "pause")
	way := c.oneOf(at, map[string]bool{"signal": p.Signal != "", "command": p.Command != nil})
	if way == "signal" {
		fault, hint := signalFault(p.Signal, pauseSignals())
		c.judge(where(at, "signal"), fault, hint)
		if p.Resume != nil {
			c.fail(where(at, "resume"), "a signal is taken back by SIGCONT", "resume goes with command")
		}
	}
	if way == "command" && p.Resume == nil {
		c.fail(where(at, "command"), "else a paused stage could never go on", "command needs resume")
	}
	c.templates(where(at, "command"), p.Command, once)
	c.templates(where(at, "resume"), p.Resume, once)
}
