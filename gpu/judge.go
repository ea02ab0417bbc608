package gpu

import (
	"errors"
	"fmt"
	"time"

	"pipedeck/gpu/probe"
)

// helperLimits are the times of the rule by which a helper is replaced.
type helperLimits struct {
	soft  time.Duration // an answer that takes longer is not waited for
	hard  time.Duration // a helper that is silent, or whose GPU hangs, for longer is replaced
	start time.Duration // how long a reading waits for NVML to start
	begin time.Duration // how long NVML may take to start
	calm  time.Duration // between two replacements for one GPU that hangs
	first time.Duration // pause after the first failure, doubled each time
	most  time.Duration // up to this
	reap  time.Duration // how long a killed helper may take to end
	poll  time.Duration // between two looks at a helper that starts
	bytes int64         // memory above which a helper is replaced
}

var defaultLimits = helperLimits{
	soft: 2 * time.Second, hard: 10 * time.Second, start: 8 * time.Second, begin: 40 * time.Second,
	calm: 5 * time.Minute, first: time.Second, most: 30 * time.Second, reap: time.Second,
	poll: 20 * time.Millisecond, bytes: 1 << 30,
}

// helperFacts is what one question to the helper showed.
type helperFacts struct {
	answer probe.Answer
	err    error         // no answer: errSilent, errEnded or errGarbage
	silent time.Duration // since the oldest question without an answer
	since  time.Duration // since a helper was replaced for a GPU that hangs
	bytes  int64         // of its memory, 0 unknown
	// inKernel: the call that hangs cannot be ended. A helper that still answers
	// for the other GPUs is better than none.
	inKernel bool
	ending   string // how it ended
	garbage  string // what it said instead of an answer
}

var (
	errSilent  = errors.New("no answer")
	errEnded   = errors.New("the helper ended")
	errGarbage = errors.New("no answer but something else")
)

// helperAct is what to do with a helper after a question.
type helperAct int

const (
	helperKeep         helperAct = iota // its answer is good
	helperReplaceLater                  // its answer is good, and it is replaced
	helperWait                          // it may answer yet
	helperHung                          // it is replaced; the driver hangs for other sources too
	helperReplace                       // it is replaced; another source may answer
)

// judgeHelper is the rule by which a helper is kept or replaced.
func judgeHelper(f helperFacts, l helperLimits) (helperAct, string) {
	a := f.answer
	switch {
	case errors.Is(f.err, errEnded):
		return helperReplace, "the NVML helper ended: " + f.ending
	case errors.Is(f.err, errGarbage):
		return helperReplace, "the NVML helper said " + f.garbage
	case f.err != nil && f.silent > l.hard:
		return helperHung, fmt.Sprintf("the driver has not answered for %.0f s; the helper is replaced", f.silent.Seconds())
	case f.err != nil:
		return helperWait, fmt.Sprintf("the driver has not answered for %.0f s", f.silent.Seconds())
	case f.bytes > l.bytes:
		return helperReplace, fmt.Sprintf("the NVML helper took %d MB of memory", f.bytes/1e6)
	case a.Code == probe.NotReady && a.StuckSeconds > l.begin.Seconds():
		return helperHung, a.Error + "; the helper is replaced"
	case a.Code == probe.NotReady:
		return helperWait, a.Error
	case a.Error != "":
		return helperReplace, "NVML: " + a.Error
	case a.Replace != "":
		return helperReplaceLater, a.Replace
	case a.StuckSeconds > l.hard.Seconds() && f.since > l.calm && !f.inKernel:
		return helperReplaceLater, fmt.Sprintf("one GPU has not answered for %.0f s", a.StuckSeconds)
	}
	return helperKeep, ""
}
