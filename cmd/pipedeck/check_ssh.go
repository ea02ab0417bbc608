package main

import (
	"context"
	"errors"
	"fmt"

	"pipedeck/remote/client"
)

// checkFar looks at a node over SSH. It installs nothing: what only a program
// there could see is asked of one that is installed already.
func (a *app) checkFar(ctx context.Context, rep *checkReport, s specFile) {
	f, err := a.overSSH(s)
	if err != nil {
		rep.add("ssh", s.node.Name, checkFail, err.Error(), hintOf(err))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	probe, err := f.node.Probe(ctx)
	if err != nil {
		rep.add("ssh", s.node.Name, checkUnknown, err.Error(), hintOf(err))
		return
	}
	rep.add("ssh", s.node.Name, checkOK, fmt.Sprintf("%s %s, %s", probe.Kernel, probe.Machine, probe.Server), "")
	if off := probe.ClockOffset; off.Abs() > clockTolerant {
		rep.add("ssh", "clock", checkWarn, fmt.Sprintf("%s apart from this machine's", off), "set the clock: requests to the store may be refused")
	}
	for _, b := range probe.Bases {
		if b.Usable {
			rep.add("ssh", "programs", checkOK, fmt.Sprintf("go to %s, %d installed", b.Dir, len(b.Installed)), "")
			break
		}
		rep.add("ssh", "programs", checkWarn, b.Dir+" "+b.Reason, "another directory is used if there is one")
	}
	var items []checkItem
	err = f.node.Call(ctx, farCheck, f.request(), &items)
	switch {
	case errors.Is(err, client.ErrNoAgent):
		rep.add("node", s.node.Name, checkUnknown, "nothing is installed there that could look", "`pipedeck agent deploy` installs it")
	case err != nil:
		rep.add("node", s.node.Name, checkUnknown, err.Error(), hintOf(err))
	}
	for _, it := range items {
		todo := ""
		if it.Todo != nil {
			todo = *it.Todo
		}
		rep.add(it.Group, it.Name, it.Result, it.Text, todo)
	}
}
