//go:build !linux

package main

import (
	"context"
	"os"

	"pipedeck/pipeline"
	"pipedeck/remote/agent/wire"
)

func (a *app) serve(context.Context, specFile, agentFlags) error {
	return pipeline.Problemf(pipeline.ProblemFailed, "run the agent on a Linux node",
		"cannot serve: the agent is Linux only")
}

func shimMain(string) int { return exitFailed }

func livingWorkers(context.Context, string) ([]string, error) { return nil, nil }

func killRecorded(context.Context, string) {}

// What follows is asked of a node, which this machine cannot be.

func ownSHA256() string { return "" }

func rehearse(specFile) error { return notANode() }

func ofKeeper(int) []string { return nil }

func oldProgram(int) *os.File { return nil }

func (a *app) takeOver(context.Context, here, []string) (wire.Hello, error) {
	return wire.Hello{}, notANode()
}

func (a *app) giveBack(context.Context, here, *os.File, []string, wire.Hello, error) error {
	return notANode()
}

func farRemoval(context.Context, here) ([]string, error) { return nil, notANode() }

func notANode() error {
	return pipeline.Problemf(pipeline.ProblemFailed, "nodes run Linux", "cannot serve a console here: the agent is Linux only")
}
