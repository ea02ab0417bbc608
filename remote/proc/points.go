package proc

// point names a moment at which a crash leaves something for the next agent to
// judge. Only a test of this package can hook it.
type point string

// Points of a start in the agent, then those of the shim, in their order.
const (
	startLocked   point = "start: GPU slots taken"
	startFolder   point = "start: run directory made"
	startRecorded point = "start: run.json written"
	startSpawned  point = "start: shim started"
	startSeen     point = "start: worker's start seen"
	adoptListed   point = "adopt: launches listed"
	adoptLooked   point = "adopt: a launch looked at"

	shimIntent     point = "shim: run.json read"
	shimForked     point = "shim: worker forked"
	shimStartedTmp point = "shim: started.json written, not in place"
	shimStarted    point = "shim: started.json in place"
	shimExited     point = "shim: exit seen"
	shimExitTmp    point = "shim: exit.json written, not in place"
	shimExitKept   point = "shim: exit.json in place"
	shimReapedTmp  point = "shim: reaped.json written, not in place"
	shimReaped     point = "shim: reaped.json in place"
)

// hook is called at each point; nil does nothing.
type hook func(point)

func (h hook) at(p point) {
	if h != nil {
		h(p)
	}
}
