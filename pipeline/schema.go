package pipeline

import _ "embed" // for the schema files

// SnapshotSchema, PlanSchema and CoverageSchema are JSON Schemas (draft
// 2020-12) of what `--json` prints. More keys may be added to any object.
var (
	//go:embed snapshot.schema.json
	SnapshotSchema []byte
	//go:embed plan.schema.json
	PlanSchema []byte
	//go:embed coverage.schema.json
	CoverageSchema []byte
)
