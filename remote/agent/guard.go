package agent

import (
	"context"
	"time"

	"pipedeck/pipeline"
	"pipedeck/remote/agent/wire"
)

// guardEvery is how long two agents could work side by side after the state
// directory of the first was removed. A look costs one stat.
const guardEvery = 250 * time.Millisecond

// Guard looks after a lock until ctx ends, and calls lost once when its file is
// no longer the one at its path: the state directory was removed, replaced or
// moved. What this process records goes nowhere then, and another can hold the
// deck, so it must end at once, without tidying up what is another's by now.
// Before a step that destroys something, Mine asks the same.
func Guard(ctx context.Context, lock *wire.Lock, lost func(*pipeline.Problem)) {
	for sleep(ctx, guardEvery) {
		if !Mine(lock, lost) {
			return
		}
	}
}

// Mine says whether the deck of this lock is still this process's, after a call
// of lost if it is not.
func Mine(lock *wire.Lock, lost func(*pipeline.Problem)) bool {
	err := lock.Check()
	if err != nil {
		lost(pipeline.Problemf(pipeline.ProblemRefused,
			"workers live on; the next command starts an agent on what is there now",
			"the state directory was removed or replaced, this process ends: %w", err))
	}
	return err == nil
}
