package main

import (
	"context"
	"os"
	"path/filepath"

	"pipedeck/remote/agent/wire"
	"pipedeck/remote/client"
)

// end takes everything away: workers, agent, store, folder. It has its own
// time: ctx has ended by then.
func (d *demo) end(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	if d.client != nil {
		defer d.client.Close()
		d.endWorkers(ctx)
		ending, cancel := context.WithTimeout(ctx, demoAgentWait)
		_, err := client.End(ending, wire.State{Dir: d.spec.StateDir})
		cancel()
		if err != nil {
			d.a.say("demo: the agent did not end by itself: %v", err)
			d.killAgent(ctx)
		}
		killRecorded(ctx, filepath.Join(d.spec.StateDir, "runs"))
	}
	if d.store != nil {
		d.store.Close()
	}
	return d.removeFolder()
}

// endWorkers stops what still lives, by the agent's proven way. Who is not gone
// in time is killed by recorded identity once the agent has ended.
func (d *demo) endWorkers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, demoStopWait)
	defer cancel()
	s, err := d.client.Snapshot(ctx)
	if err != nil || busyWith(s) == "" {
		return
	}
	if err := d.stopWorkers(ctx); err != nil && ctx.Err() == nil {
		d.a.say("demo: %v", err)
	}
}

func (d *demo) killAgent(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, demoAgentWait)
	defer cancel()
	h, err := d.client.Hello(ctx)
	if err != nil {
		return
	}
	for _, pid := range []int{h.KeeperPID, h.PID} {
		if p, err := os.FindProcess(pid); err == nil && pid > 1 {
			_ = p.Kill() // gone already is as good
		}
	}
}
