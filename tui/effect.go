package tui

import "pipedeck/pipeline"

// effect is something a key press or an answer asks of the outside, as data.
// Only cmds.go carries effects out.
type effect interface{ effect() }

type (
	quitEffect      struct{}
	suspendEffect   struct{}
	redrawEffect    struct{}
	retryLinkEffect struct{}
	// planEffect asks the agent what an intent would do.
	planEffect struct {
		intent pipeline.Intent
		quiet  bool            // a note is enough as an answer, no progress view
		then   pipeline.Intent // what to offer once it is done; may be zero
	}
	// applyEffect confirms and starts a plan.
	applyEffect struct {
		req   pipeline.ApplyRequest
		quiet bool
		then  pipeline.Intent
	}
	// followEffect waits for news of an action.
	followEffect struct {
		action string
		ended  bool // only its checks after the start are still open
	}
	// planFilesEffect lists some of the files that a plan touches.
	planFilesEffect struct {
		plan          string
		offset, limit int
	}
	// strangersEffect lists processes that are no workers of ours.
	strangersEffect struct{}
	// resolveEffect says what to do with an action that was interrupted.
	resolveEffect struct{ req pipeline.Resolve }
	// logEffect reads a part of a worker's log for the view numbered gen.
	logEffect struct {
		req      pipeline.LogRequest
		gen, seq int
		part     logPart
	}
	// failuresEffect lists the files with trouble.
	failuresEffect struct{}
	// describeEffect asks how a worker was started.
	describeEffect struct{ worker string }
	// retryFilesEffect has failed files tried now.
	retryFilesEffect struct{}
	copyEffect       struct{ text string }
)

func (quitEffect) effect()       {}
func (suspendEffect) effect()    {}
func (redrawEffect) effect()     {}
func (retryLinkEffect) effect()  {}
func (planEffect) effect()       {}
func (applyEffect) effect()      {}
func (followEffect) effect()     {}
func (logEffect) effect()        {}
func (retryFilesEffect) effect() {}
func (copyEffect) effect()       {}
func (failuresEffect) effect()   {}
func (describeEffect) effect()   {}
func (planFilesEffect) effect()  {}
func (resolveEffect) effect()    {}
func (strangersEffect) effect()  {}
