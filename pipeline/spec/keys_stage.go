package spec

import (
	"time"

	"go.yaml.in/yaml/v3"
)

func stageKeys() []field[Stage] {
	return []field[Stage]{
		key("total", integer(), func(s *Stage) *int64 { return &s.Total }).or("0"),
		key("inputs", list(text()), func(s *Stage) *[]string { return &s.Inputs }),
		key("setup", list(command()), func(s *Stage) *[][]string { return &s.Setup }),
		key("services", named("NAME", section(serviceKeys), func(s *Service) *string { return &s.Name }),
			func(s *Stage) *[]Service { return &s.Services }),
		key("workers", section(workersKeys), func(s *Stage) *Workers { return &s.Workers }).must(),
		key("outputs", named("NAME", section(outputKeys), func(o *Output) *string { return &o.Name }),
			func(s *Stage) *[]Output { return &s.Outputs }),
		key("progress", progress(), func(s *Stage) *Progress { return &s.Progress }).or("outputs"),
		key("done_set", optional(section(doneSetKeys)), func(s *Stage) **DoneSet { return &s.DoneSet }),
		key("ids_depend_on_world", boolean(), func(s *Stage) *bool { return &s.IDsDependOnWorld }).or("false"),
		key("gates", list(section(gateKeys)), func(s *Stage) *[]Gate { return &s.Gates }),
		key("scratch", list(text()), func(s *Stage) *[]string { return &s.Scratch }),
		key("launcher", choice(LauncherLocal, LauncherSlurm), func(s *Stage) *string { return &s.Launcher }).or(LauncherLocal),
		key("pause", optional(section(pauseKeys)), func(s *Stage) **Pause { return &s.Pause }),
	}
}

func workersKeys() []field[Workers] {
	return []field[Workers]{
		key("per_gpu", count(), func(w *Workers) *int { return &w.PerGPU }),
		key("count", count(), func(w *Workers) *int { return &w.Count }),
		key("gpus", gpus(), func(w *Workers) *GPUSet { return &w.GPUs }).derived("none"),
		key("command", command(), func(w *Workers) *[]string { return &w.Command }).must(),
		key("env", env(), func(w *Workers) *[]EnvVar { return &w.Env }),
		key("stop", section(stopKeys), func(w *Workers) *Stop { return &w.Stop }).whole(),
		key("restart", section(restartKeys), func(w *Workers) *Restart { return &w.Restart }).whole(),
		key("gpu_memory", size(), func(w *Workers) *int64 { return &w.GPUMemory }).derived("not known"),
		key("loading_timeout", duration(), func(w *Workers) *time.Duration { return &w.LoadingTimeout }).or("20m"),
		key("stall_after", duration(), func(w *Workers) *time.Duration { return &w.StallAfter }).or("60s"),
	}
}

func stopKeys() []field[Stop] {
	return []field[Stop]{
		key("signal", text(), func(s *Stop) *string { return &s.Signal }).or("SIGTERM"),
		key("grace", duration(), func(s *Stop) *time.Duration { return &s.Grace }).or("30s"),
	}
}

func restartKeys() []field[Restart] {
	return []field[Restart]{
		key("max", count(), func(s *Restart) *int { return &s.Max }).or("3"),
		key("backoff", duration(), func(s *Restart) *time.Duration { return &s.Backoff }).or("10s"),
	}
}

func serviceKeys() []field[Service] {
	return []field[Service]{
		key("per_gpu", count(), func(s *Service) *int { return &s.PerGPU }),
		key("count", count(), func(s *Service) *int { return &s.Count }),
		key("command", command(), func(s *Service) *[]string { return &s.Command }).must(),
		key("env", env(), func(s *Service) *[]EnvVar { return &s.Env }),
		key("port", count(), func(s *Service) *int { return &s.Port }),
		key("ready", section(readyKeys), func(s *Service) *Ready { return &s.Ready }),
		key("metrics", text(), func(s *Service) *string { return &s.Metrics }),
		key("stop", section(stopKeys), func(s *Service) *Stop { return &s.Stop }).whole(),
		key("restart", section(restartKeys), func(s *Service) *Restart { return &s.Restart }).whole(),
		key("gpu_memory", size(), func(s *Service) *int64 { return &s.GPUMemory }).derived("not known"),
	}
}

func readyKeys() []field[Ready] {
	return []field[Ready]{
		key("http", text(), func(r *Ready) *string { return &r.HTTP }).must(),
		// A server that answers its health probe by generating a token may
		// need 20 s for it while it is busy.
		key("timeout", duration(), func(r *Ready) *time.Duration { return &r.Timeout }).or("25s"),
		key("within", duration(), func(r *Ready) *time.Duration { return &r.Within }).or("20m"),
	}
}

func outputKeys() []field[Output] {
	return []field[Output]{
		key("dir", text(), func(o *Output) *string { return &o.Dir }).must(),
		key("match", text(), func(o *Output) *string { return &o.Match }).must(),
		key("format", choice(FormatSafetensors, FormatZip, FormatJSONL, FormatParquet, FormatArrow, FormatAny, FormatMarker),
			func(o *Output) *string { return &o.Format }).derived("by match, else any"),
		key("marker", text(), func(o *Output) *string { return &o.Marker }),
		key("settle", duration(), func(o *Output) *time.Duration { return &o.Settle }).or("10s"),
		key("id", text(), func(o *Output) *string { return &o.ID }),
		key("key", text(), func(o *Output) *string { return &o.Key }).derived("NAME/{path}"),
		key("after_upload", choice(AfterDelete, AfterKeep, AfterPlaceholder),
			func(o *Output) *string { return &o.AfterUpload }).or(AfterDelete),
		key("every", duration(), func(o *Output) *time.Duration { return &o.Every }).derived("30m for marker and jsonl, else 0s"),
		key("keep_last", count(), func(o *Output) *int { return &o.KeepLast }).or("0"),
	}
}

func progressKeys() []field[Progress] {
	return []field[Progress]{
		key("json", text(), func(p *Progress) *string { return &p.JSON }),
		key("done", text(), func(p *Progress) *string { return &p.Done }),
		key("total", text(), func(p *Progress) *string { return &p.Total }),
		key("skipped", text(), func(p *Progress) *string { return &p.Skipped }),
		key("failed", text(), func(p *Progress) *string { return &p.Failed }),
		key("jsonl", text(), func(p *Progress) *string { return &p.JSONL }),
		key("log", text(), func(p *Progress) *string { return &p.Log }),
		key("prometheus", text(), func(p *Progress) *string { return &p.Prometheus }),
		key("metric", text(), func(p *Progress) *string { return &p.Metric }),
	}
}

// progress is a mapping with one source, or the word outputs.
func progress() kind[Progress] {
	sources := section(progressKeys)
	return kind[Progress]{name: "outputs, or a mapping", keys: sources.keys, read: func(r *reader, n *yaml.Node, p *Progress) {
		switch {
		case isScalar(n, "!!str") && n.Value == "outputs":
		case n.Kind == yaml.ScalarNode:
			r.wrongType(n, "outputs, or a mapping with json, jsonl, log or prometheus")
		default:
			sources.read(r, n, p)
		}
	}}
}

func doneSetKeys() []field[DoneSet] {
	return []field[DoneSet]{
		key("file", text(), func(d *DoneSet) *string { return &d.File }).must(),
		key("form", choice(DoneLines, DoneJSON), func(d *DoneSet) *string { return &d.Form }).or(DoneLines),
	}
}

func gateKeys() []field[Gate] {
	return []field[Gate]{
		key("loss_mask", optional(section(lossMaskKeys)), func(g *Gate) **LossMaskGate { return &g.LossMask }),
		key("command", command(), func(g *Gate) *[]string { return &g.Command }),
	}
}

func lossMaskKeys() []field[LossMaskGate] {
	return []field[LossMaskGate]{
		key("dataset", text(), func(g *LossMaskGate) *string { return &g.Dataset }).must(),
		key("column", text(), func(g *LossMaskGate) *string { return &g.Column }).or("loss_mask"),
		key("min_sum", count(), func(g *LossMaskGate) *int { return &g.MinSum }).or("16"),
		key("max_share_below", number(), func(g *LossMaskGate) *float64 { return &g.MaxShareBelow }).or("0.05"),
		key("max_mode_share", number(), func(g *LossMaskGate) *float64 { return &g.MaxModeShare }).or("0.5"),
	}
}

func pauseKeys() []field[Pause] {
	return []field[Pause]{
		key("signal", text(), func(p *Pause) *string { return &p.Signal }),
		key("command", command(), func(p *Pause) *[]string { return &p.Command }),
		key("resume", command(), func(p *Pause) *[]string { return &p.Resume }),
	}
}

func duration() kind[time.Duration] {
	return kind[time.Duration]{name: "duration", read: (*reader).duration}
}

// env is a mapping of variables, in the file's order.
func env() kind[[]EnvVar] {
	value := word()
	return named("NAME", kind[EnvVar]{
		name: "string",
		read: func(r *reader, n *yaml.Node, v *EnvVar) { value.read(r, n, &v.Value) },
	}, func(v *EnvVar) *string { return &v.Name })
}
