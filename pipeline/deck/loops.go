package deck

import (
	"context"
	"path"
	"time"

	"pipedeck/pipeline"
)

// How often each source is read. A worker's death arrives by Ports.Exits
// before the next look; nvidia-smi costs the driver something, so it is rare.
const (
	lookEvery     = 500 * time.Millisecond
	moverEvery    = 500 * time.Millisecond
	progressEvery = time.Second
	gpusEvery     = time.Second
	machineEvery  = 2 * time.Second
	disksEvery    = 5 * time.Second
	purgeEvery    = 15 * time.Second
)

// sourceSMI is the kind of a reading by nvidia-smi.
const sourceSMI = "nvidia-smi"

// superviseLoop looks at the processes and does what supervision wants.
func (d *Deck) superviseLoop(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if err := d.look(ctx); err == nil {
			d.supervise(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-d.kick:
		case <-d.p.Exits:
		}
	}
}

// look observes all processes once.
func (d *Deck) look(ctx context.Context) error {
	launches, err := d.p.Host.Observe(ctx)
	now := d.p.Now()
	if err != nil {
		d.fold(pipeline.LaunchesReading{At: now, Err: err.Error()})
		return err
	}
	seen := map[string]map[int]pipeline.LaunchSeen{}
	for _, l := range launches {
		if seen[l.Stage] == nil {
			seen[l.Stage] = map[int]pipeline.LaunchSeen{}
		}
		seen[l.Stage][l.Rank] = l
	}
	for _, st := range d.sp.Stages {
		d.p.Mover.Live(st.Name, anyAlive(seen[st.Name]))
	}
	d.mu.Lock()
	d.seen = seen
	for _, l := range launches {
		if l.Exit != nil {
			d.exits[workerID(l.Stage, l.Rank)] = *l.Exit
		}
	}
	d.mu.Unlock()
	d.fold(pipeline.LaunchesReading{At: now, Seen: launches})
	return nil
}

func anyAlive(ranks map[int]pipeline.LaunchSeen) bool {
	for _, s := range ranks {
		if alive(s) {
			return true
		}
	}
	return false
}

// alive says whether anything of a launch may still write.
func alive(s pipeline.LaunchSeen) bool {
	return s.State == pipeline.ProcRunning || s.State == pipeline.ProcIntended || s.Stragglers > 0
}

// nudge asks the supervision loop to look now.
func (d *Deck) nudge() {
	select {
	case d.kick <- struct{}{}:
	default:
	}
}

// sensorLoop reads GPUs, machine and disks, each in its own goroutine: one
// that hangs delays no other.
func (d *Deck) sensorLoop(ctx context.Context) {
	d.work.Go(func() {
		var last pipeline.GPUReading
		every(ctx, gpusEvery, func() {
			if last.Kind == sourceSMI && d.p.Now().Sub(last.At) < machineEvery {
				return
			}
			last = d.p.Sensor.GPUs(ctx)
			d.fold(last)
		})
	})
	d.work.Go(func() {
		every(ctx, machineEvery, func() { d.fold(d.p.Sensor.Machine(ctx)) })
	})
	paths := d.diskPaths()
	every(ctx, disksEvery, func() {
		d.fold(pipeline.DisksReading{At: d.p.Now(), Disks: d.p.Sensor.Disks(ctx, paths)})
	})
}

// diskPaths lists the places that the deck fills: the workdir, the state
// directory and every output directory without a rank in it.
func (d *Deck) diskPaths() []string {
	paths := []string{d.sp.Workdir, d.sp.StateDir}
	for i := range d.sp.Stages {
		st := &d.sp.Stages[i]
		for j := range st.Outputs {
			for _, dir := range st.Outputs[j].Dirs(st, 1) {
				paths = append(paths, path.Clean(d.sp.Abs(dir)))
			}
		}
	}
	return paths
}

// purgeLoop removes for good what lay in the trash for its time.
func (d *Deck) purgeLoop(ctx context.Context) {
	every(ctx, purgeEvery, func() {
		list, err := d.p.Custody.Trashes(ctx)
		if err != nil {
			d.notice(pipeline.Warn, "agent", "cannot look at the trash: %v", err)
			return
		}
		for _, t := range list {
			if t.Quarantine || t.Left > 0 {
				continue
			}
			if err := d.p.Custody.Purge(ctx, t.Action); err != nil {
				d.notice(pipeline.Warn, "agent", "cannot purge the trash of action %s: %v", t.Action, err)
				continue
			}
			d.recordOf(t.Action, "agent", "purged the trash of action %s: %s, %d bytes", t.Action, pipeline.Counted(t.Files, "file", "files"), t.Bytes)
		}
	})
}

func (d *Deck) moverLoop(ctx context.Context) {
	every(ctx, moverEvery, func() { d.foldMover() })
}

// foldMover takes the mover's own account, which is in memory and exact. The
// lock keeps two readings from being folded in the wrong order.
func (d *Deck) foldMover() {
	d.moverMu.Lock()
	defer d.moverMu.Unlock()
	r := d.p.Mover.Outputs()
	if d.p.Credentials != nil {
		r.Credentials = new(d.p.Credentials())
	}
	d.fold(r)
	for _, e := range r.Events {
		if e.Action != "" && e.At.After(d.told) {
			d.told = e.At // what became of an action's files belongs into the journal
			d.recordOf(e.Action, "agent", "%s", e.Text)
		}
	}
}

func (d *Deck) progressLoop(ctx context.Context) {
	every(ctx, progressEvery, d.readProgress)
}

func (d *Deck) readProgress() {
	for _, r := range d.progress.read(d.p.Now(), d.seenAll(), d.wants.stages()) {
		d.fold(r)
	}
}

// every calls f at once and then at each interval until ctx is done.
func every(ctx context.Context, interval time.Duration, f func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		f()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
