package main

import "pipedeck/pipeline"

var (
	startAct = act{
		verb: pipeline.VerbStart, target: "STAGE|WORKER", short: "Start a stage's workers",
		long: `Start a stage's workers. Incomplete files that nobody writes are moved to
quarantine first, the GPUs must be free, and the workers are told what is done.
It ends with 0 once each worker is verified alive or has ended with 0.`,
		example: "  pipedeck start extract\n  pipedeck start extract/2      one worker\n  pipedeck start extract --wait until the first file is proven",
		options: []option{optAccept, optWait},
	}
	stopAct = act{
		verb: pipeline.VerbStop, target: "STAGE|WORKER", short: "Drain and stop workers, proven gone",
		example: "  pipedeck stop extract         asks for the deck's name\n  pipedeck stop extract --confirm my-deck",
	}
	killAct = act{
		verb: pipeline.VerbKill, target: "STAGE|WORKER", short: "Kill workers at once, proven gone",
		long:    "Kill the recorded processes of workers at once, with all that they started.\nThe batch that each computes is lost; no file is removed.",
		example: "  pipedeck kill extract/2       asks for the deck's name",
	}
	restartAct = act{
		verb: pipeline.VerbRestart, target: "STAGE|WORKER", short: "Stop workers and start them again",
		long: `Stop workers and start them again. It deletes nothing and does not wait for
uploads: workers skip what is stored or complete on the disk.`,
		example: "  pipedeck restart extract/2    asks for y\n  pipedeck restart extract",
		options: []option{optAccept, optWait},
	}
	settleAct = act{
		verb: pipeline.VerbSettle, target: "OUTPUT", short: "Upload and verify every complete file of an output", outputs: true,
		example: "  pipedeck settle extract/hidden_states",
	}
	pauseAct = act{
		verb: pipeline.VerbPause, short: "Hold all uploads; workers go on",
		example: "  pipedeck pause",
	}
	resumeAct = act{
		verb: pipeline.VerbResume, short: "Let uploads go on",
		example: "  pipedeck resume",
	}
	pushAct = act{
		verb: pipeline.VerbPush, short: "Upload and prove the artifacts now",
		example: "  pipedeck artifacts push",
	}
	wipeAct = act{
		verb: pipeline.VerbWipe, target: "OUTPUT", short: "Remove local files of an output, or a stage's scratch", outputs: true, noArg: true,
		long: `Remove local files of an output, or of a stage's scratch directories. The plan
says first what is proven in the store and what would be lost; the stage's
workers are stopped, everything is counted again, and only files that the plan
listed are moved to the trash, where "undo" finds them for 10 minutes.`,
		example: `  pipedeck wipe extract/hidden_states --dry-run
  pipedeck wipe extract/hidden_states --proven-only
  pipedeck wipe --scratch extract`,
		options: []option{optProvenOnly, optScratch},
	}
	pivotAct = act{
		verb: pipeline.VerbPivot, target: "STAGE", short: "Leave a stage for another",
		long: `Leave a stage for another: stop the one that is active, settle its outputs (or
keep or discard them), remove its scratch, check that the GPUs are free, start
the other.`,
		example: `  pipedeck pivot generate
  pipedeck pivot generate --from extract --keep`,
		options: []option{optFrom, optKeep, optDiscard, optAccept, optWait},
	}
	undoAct = act{
		verb: pipeline.VerbUndo, target: "ACTION_ID", short: "Bring back what an action moved away; replaces nothing",
		example: "  pipedeck undo a-7f3a",
	}
	adoptAct = act{
		verb: pipeline.VerbAdopt, target: "STAGE", short: "Take over workers that were started by hand",
		long: `Take over workers that were started by hand, after showing what they are. The
first pid becomes rank 0, the next rank 1. Without --pid it lists candidates.`,
		example: "  pipedeck adopt extract\n  pipedeck adopt extract --pid 4711,4712",
		options: []option{optPIDs},
	}
	reapAct = act{
		verb: pipeline.VerbReap, short: "End strays of this deck's run that belong to no worker",
		example: "  pipedeck reap                 lists them\n  pipedeck reap --pid 4711",
		options: []option{optPIDs},
	}
)

// acts are the commands that plan and apply, in the order of the help.
func acts() []act {
	return []act{startAct, stopAct, killAct, restartAct, settleAct, pivotAct, wipeAct, pauseAct, resumeAct, undoAct, adoptAct, reapAct}
}

// planned are the actions that can be planned, by their verb.
func planned() []act { return append(acts(), pushAct) }
