package pipeline

import "strings"

func (d *decision) settle() error {
	if d.in.Target == artifactsTarget && len(d.sp.Artifacts) > 0 {
		return d.push()
	}
	names, err := d.outputs()
	if err != nil {
		return err
	}
	if d.node.UploadsPaused {
		d.plan.Blocked = append(d.plan.Blocked, "uploads are paused; `pipedeck resume` first")
	}
	d.step(StepSettle, settleTimeout, "every complete local file is stored, nothing is queued or in flight", names...)
	return nil
}

// outputs resolves an output by its full name, by a bare name that is unique,
// or by a stage that has some.
func (d *decision) outputs() ([]string, error) {
	var all, bare, staged []string
	for _, st := range d.sp.Stages {
		for _, o := range st.Outputs {
			full := st.Name + "/" + o.Name
			all = append(all, full)
			switch d.in.Target {
			case full:
				return []string{full}, nil
			case o.Name:
				bare = append(bare, full)
			case st.Name:
				staged = append(staged, full)
			}
		}
	}
	switch {
	case len(bare) == 1:
		return bare, nil
	case len(bare) > 1:
		return nil, d.usage("name it in full", "the name is not unique: %s", strings.Join(bare, ", "))
	case len(staged) > 0:
		return staged, nil
	case len(all) == 0:
		return nil, d.usage("", "the spec has no outputs")
	}
	return nil, d.usage(suggest(d.in.Target, all), "the spec has no output %q; it has %s", d.in.Target, strings.Join(all, ", "))
}

func (d *decision) pause() error {
	if d.in.Target != "" {
		return d.usage("pipedeck "+string(d.in.Verb), "it takes no name: all uploads are meant")
	}
	on := d.in.Verb == VerbPause
	if d.node.UploadsPaused == on {
		return nil
	}
	if on {
		d.step(StepPause, pauseTimeout, "no upload begins; workers go on")
		return nil
	}
	d.step(StepResume, pauseTimeout, "uploads go on")
	return nil
}

func (d *decision) push() error {
	if d.in.Verb == VerbPush && d.in.Target != "" && d.in.Target != artifactsTarget {
		return d.usage("pipedeck artifacts push", "it takes no name: all artifacts are meant")
	}
	if len(d.sp.Artifacts) == 0 {
		return d.usage("list them under `artifacts:` in the spec", "the spec has no artifacts")
	}
	if d.node.UploadsPaused {
		d.plan.Blocked = append(d.plan.Blocked, "uploads are paused; `pipedeck resume` first")
	}
	d.step(StepSettle, settleTimeout, "every artifact is stored as it is now", artifactsTarget)
	return nil
}
