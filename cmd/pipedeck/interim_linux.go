package main

import (
	"context"

	"pipedeck/pipeline"
)

// partOf takes a port from an adapter that has it already, else its fallback.
func partOf[T any](adapter any, fallback T) T {
	if got, ok := adapter.(T); ok {
		return got
	}
	return fallback
}

// noCustody moves nothing and says so.
type noCustody struct{ pipeline.Custody }

func (noCustody) cannot() error {
	return pipeline.Problemf(pipeline.ProblemFailed, "", "cannot look after local files: this build has no custody")
}

func (c noCustody) Holdings(context.Context, pipeline.HoldingsRequest, pipeline.Progress) ([]pipeline.Holding, error) {
	return nil, c.cannot()
}
func (noCustody) Release(context.Context, string) error               { return nil }
func (noCustody) Trashes(context.Context) ([]pipeline.Trashed, error) { return nil, nil }
func (noCustody) ProbeStore(context.Context) error                    { return nil }
func (noCustody) Quarantine(context.Context, string, string, pipeline.Progress) (pipeline.MoveReport, error) {
	return pipeline.MoveReport{}, nil
}

func (noCustody) StageRecord(context.Context, string) (*pipeline.StageRecord, bool, error) {
	return nil, true, nil
}

func (noCustody) DescribeInputs(context.Context, string) (pipeline.StageRecord, error) {
	return pipeline.StageRecord{}, nil
}

func (noCustody) WriteStageRecord(context.Context, string, pipeline.StageRecord) error { return nil }
