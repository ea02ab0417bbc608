//go:build !linux

package main

import (
	"context"

	"pipedeck/pipeline"
)

func (a *app) serve(context.Context, specFile, agentFlags) error {
	return pipeline.Problemf(pipeline.ProblemFailed, "run the agent on a Linux node",
		"cannot serve: the agent is Linux only")
}

func shimMain(string) int { return exitFailed }

func livingWorkers(context.Context, string) ([]string, error) { return nil, nil }

func killRecorded(context.Context, string) {}
