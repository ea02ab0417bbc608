package spec

import (
	"fmt"
	"slices"
)

// assumedGPUs is how many GPUs a node may have whose spec does not say.
const assumedGPUs = 16

func (c *checker) service(stage string, st *Stage, i int) {
	v := &st.Services[i]
	at := where(stage, "services", v.Name)
	c.name(at, "service", v.Name)
	c.ranks(at, v.PerGPU, v.Count)
	sc := serviceScope(st, i)
	c.templates(where(at, "command"), v.Command, sc)
	c.env(where(at, "env"), v.Env, sc)
	if c.r.given(where(at, "port")) {
		if last := v.Port + c.portsOf(v) - 1; v.Port < 1 || last > 65535 {
			c.fail(where(at, "port"), "each rank listens on port + rank", "%s is not between 1 and 65535", portRange(v.Port, last))
		}
	}
	if v.Ready.HTTP != "" {
		c.templateURL(where(at, "ready", "http"), v.Ready.HTTP, sc)
		ready := where(at, "ready")
		if c.sound(where(ready, "timeout")) && c.sound(where(ready, "within")) && (v.Ready.Timeout == 0 || v.Ready.Within < v.Ready.Timeout) {
			c.fail(ready, "timeout is of one probe, within of all of them", "ready never succeeds: timeout %v, within %v", v.Ready.Timeout, v.Ready.Within)
		}
	}
	if v.Metrics != "" {
		c.templateURL(where(at, "metrics"), v.Metrics, sc)
	}
	c.stop(where(at, "stop"), v.Stop)
	c.restart(where(at, "restart"), v.Restart)
}

// serviceScope lets a service use the addresses of those before it, so that
// there is an order to start them in.
func serviceScope(st *Stage, i int) scope {
	v := &st.Services[i]
	sc := scope{
		allowed: []string{"rank", "world", "stage", "workdir", "run"},
		why:     map[string]string{"path": "only keys are made for a file"},
	}
	if v.PerGPU > 0 {
		sc.allowed = append(sc.allowed, "gpu", "gpu_uuid")
	} else {
		const why = "the service holds no GPU; give per_gpu"
		sc.why["gpu"], sc.why["gpu_uuid"] = why, why
	}
	if v.Port > 0 {
		sc.allowed = append(sc.allowed, "port")
	} else {
		sc.why["port"] = "the service has no port"
	}
	for _, earlier := range st.Services[:i] {
		if earlier.Port > 0 {
			sc.services = append(sc.services, earlier.Name)
		}
	}
	return sc
}

// portsOf is how many ports a service may take on one node.
func (c *checker) portsOf(v *Service) int {
	if v.PerGPU == 0 {
		return max(1, v.Count)
	}
	most := 0
	for _, n := range c.s.Nodes {
		gpus := len(n.GPUs.Indexes) + len(n.GPUs.UUIDs)
		if n.GPUs.All {
			gpus = assumedGPUs
		}
		most = max(most, gpus)
	}
	return v.PerGPU * most
}

// listener is a service with the ports that it may take on one node.
type listener struct {
	st          *Stage
	name, at    string
	first, last int
}

func (l listener) collides(k listener) bool {
	return l.first <= k.last && k.first <= l.last && (k.st == l.st || together(k.st, l.st))
}

// ports reports services that could listen on the same port at the same time.
func (c *checker) ports() {
	var seen []listener
	for i := range c.s.Stages {
		st := &c.s.Stages[i]
		for j := range st.Services {
			v := &st.Services[j]
			l := listener{st: st, name: st.Name + "/" + v.Name, at: where("stages", st.Name, "services", v.Name, "port"), first: v.Port}
			if v.Port == 0 || !c.sound(l.at) {
				continue
			}
			l.last = v.Port + c.portsOf(v) - 1
			if i := slices.IndexFunc(seen, l.collides); i >= 0 {
				k := seen[i]
				c.fail(l.at, "each rank listens on port + rank; move one of them",
					"%s of service %s collides with %s of %s (line %d)", portRange(l.first, l.last), l.name, portRange(k.first, k.last), k.name, c.line(k.at))
			}
			seen = append(seen, l)
		}
	}
}

func portRange(first, last int) string {
	if first == last {
		return fmt.Sprintf("port %d", first)
	}
	return fmt.Sprintf("port range %d-%d", first, last)
}

// together says whether two stages may be active at once: they must not hold
// the same GPU.
func together(a, b *Stage) bool {
	as, bs := holdings(a), holdings(b)
	switch {
	case !as.some() || !bs.some():
		return true
	case as.All || bs.All:
		return false
	}
	for _, i := range as.Indexes {
		if slices.Contains(bs.Indexes, i) {
			return false
		}
	}
	for _, u := range as.UUIDs {
		if slices.Contains(bs.UUIDs, u) {
			return false
		}
	}
	return true
}

// holdings are the GPUs that a stage takes while it is active.
func holdings(st *Stage) GPUSet {
	if st.Workers.PerGPU > 0 {
		return GPUSet{All: true}
	}
	for _, v := range st.Services {
		if v.PerGPU > 0 {
			return GPUSet{All: true}
		}
	}
	return st.Workers.GPUs
}
