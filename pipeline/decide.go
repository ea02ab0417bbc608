package pipeline

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"pipedeck/pipeline/spec"
)

const (
	planLife = 15 * time.Minute
	// stopMargin is what a stop may take beyond the grace: two escalations and
	// the proof, with the driver slow to give memory back.
	stopMargin     = 95 * time.Second
	startTimeout   = 60 * time.Second
	doneSetTimeout = 10 * time.Minute
	settleTimeout  = 24 * time.Hour
	pauseTimeout   = 30 * time.Second
)

// artifactsTarget stands for the deck's artifacts in Step.On.
const artifactsTarget = "artifacts"

// Decide makes the plan for an intent from what was observed; it changes
// nothing and the same arguments give the same plan. A target that does not
// exist or a verb that has no plan is a usage Problem; a precondition that
// does not hold makes a plan that is not executable.
func Decide(sp *spec.Spec, s Snapshot, f Facts, in Intent, now time.Time, id string) (Plan, error) {
	d := decision{sp: sp, in: in, facts: f}
	if len(s.Nodes) > 0 {
		d.node = s.Nodes[0]
	}
	d.plan = Plan{
		Schema: SchemaVersion, ID: id, Action: in.Verb, Target: in.Target, Deck: sp.Deck, Node: d.node.Name,
		MadeAt: wireTime(now), ExpiresAt: wireTime(now.Add(planLife)), Blocked: []string{}, Steps: []Step{}, Intent: in,
	}
	d.storeOf(wiping{})
	if err := d.decide(); err != nil {
		return Plan{}, err
	}
	d.plan.Executable = len(d.plan.Blocked) == 0 && d.plan.Checking == nil
	if d.plan.Undo.Reason == nil {
		d.plan.Undo.Reason = new(undoReason(in.Verb))
	}
	if d.plan.Loss.RecomputeSeconds == nil && d.plan.Loss.RecomputeReason == nil {
		d.plan.Loss.RecomputeReason = new("nothing is lost")
	}
	if len(d.plan.Steps) == 0 {
		d.plan.Confirm = nil
	}
	d.plan.Fingerprint = d.fingerprint()
	return d.plan, nil
}

// decision is one Decide under way.
type decision struct {
	sp    *spec.Spec
	node  NodeSnapshot
	facts Facts
	in    Intent
	plan  Plan
	// leaving is the stage that the plan stops before it starts another.
	leaving string
}

func (d *decision) decide() error {
	switch d.in.Verb {
	case VerbStart:
		return d.onWorkers(d.start)
	case VerbStop:
		return d.onWorkers(d.stop)
	case VerbRestart:
		return d.onWorkers(d.restart)
	case VerbSettle:
		return d.settle()
	case VerbPause, VerbResume:
		return d.pause()
	case VerbPush:
		return d.push()
	case VerbKill:
		return d.onWorkers(d.kill)
	case VerbWipe:
		return d.wipe()
	case VerbPivot:
		return d.pivot()
	case VerbUndo:
		return d.undone()
	case VerbAdopt:
		return d.onWorkers(d.adopt)
	case VerbReap:
		return d.reap()
	}
	return d.usage("the verbs are start, stop, kill, restart, settle, pivot, wipe, pause, resume, push, undo, adopt and reap",
		"no plan is known for this verb")
}

// CanPlan says whether a plan is known for a verb.
func CanPlan(v Verb) bool {
	switch v {
	case VerbStart, VerbStop, VerbRestart, VerbSettle, VerbPause, VerbResume, VerbPush,
		VerbKill, VerbWipe, VerbPivot, VerbUndo, VerbAdopt, VerbReap:
		return true
	}
	return false
}

func (d *decision) usage(hint, format string, args ...any) error {
	what := string(d.in.Verb)
	if d.in.Target != "" {
		what += " " + d.in.Target
	}
	return Problemf(ProblemUsage, hint, "cannot plan %q: %s", what, fmt.Sprintf(format, args...))
}

func (d *decision) step(kind StepKind, timeout time.Duration, proof string, on ...string) {
	d.plan.Steps = append(d.plan.Steps, Step{
		N: len(d.plan.Steps) + 1, Kind: kind, On: append([]string{}, on...), TimeoutSeconds: timeout.Seconds(), Proof: proof,
	})
}

// target is a stage, or one worker of it (rank >= 0).
type target struct {
	st   *spec.Stage
	seen StageSnapshot
	rank int
}

func (t target) on() string {
	if t.rank < 0 {
		return t.st.Name
	}
	return t.st.Name + "/" + strconv.Itoa(t.rank)
}

// workers lists the snapshot's workers that the target covers.
func (t target) workers() []WorkerSnapshot {
	if t.rank < 0 {
		return t.seen.Workers
	}
	i := slices.IndexFunc(t.seen.Workers, func(w WorkerSnapshot) bool { return w.Rank == t.rank })
	if i < 0 {
		return nil
	}
	return t.seen.Workers[i : i+1]
}

func (d *decision) find() (target, error) {
	name, rest, isWorker := strings.Cut(d.in.Target, "/")
	t := target{rank: -1}
	names := make([]string, 0, len(d.sp.Stages))
	for i := range d.sp.Stages {
		names = append(names, d.sp.Stages[i].Name)
		if d.sp.Stages[i].Name == name {
			t.st = &d.sp.Stages[i]
		}
	}
	if t.st == nil {
		return t, d.usage(suggest(name, names), "the spec has no stage %q; it has %s", name, strings.Join(names, ", "))
	}
	for _, s := range d.node.Stages {
		if s.Name == name {
			t.seen = s
		}
	}
	if !isWorker {
		return t, nil
	}
	rank, err := strconv.Atoi(rest)
	if err != nil || rank < 0 || strconv.Itoa(rank) != rest {
		return t, d.usage("a worker is named STAGE/RANK, for example "+name+"/0", "%q is no rank", rest)
	}
	t.rank = rank
	if len(t.workers()) == 0 && !d.mayBegin(t) {
		return t, d.noRank(t)
	}
	return t, nil
}

// mayBegin says whether a start may name a rank of a stage that has no workers
// yet. How many ranks GPUs give is found out when it starts.
func (d *decision) mayBegin(t target) bool {
	if p := d.placed(t); p != nil {
		return d.in.Verb == VerbStart && p.Has(t.rank)
	}
	return d.in.Verb == VerbStart && len(t.seen.Workers) == 0 && (t.st.Workers.Count == 0 || t.rank < t.st.Workers.Count)
}

func (d *decision) noRank(t target) error {
	if len(t.seen.Workers) == 0 {
		return d.usage("pipedeck start "+t.st.Name, "stage %q has no workers yet; start it first", t.st.Name)
	}
	ids := []string{}
	for _, w := range t.seen.Workers {
		ids = append(ids, w.ID)
	}
	return d.usage("the workers are "+strings.Join(ids, ", "), "stage %q has no rank %d", t.st.Name, t.rank)
}

func (d *decision) onWorkers(plan func(target)) error {
	t, err := d.find()
	if err == nil {
		plan(t)
	}
	return err
}

func (d *decision) stop(t target) {
	if !d.stoppable(t) {
		d.comesBack(t)
		return
	}
	d.stopStep(t)
	d.plan.Confirm = new(d.sp.Deck)
	if t.rank >= 0 {
		d.plan.Confirm = new("y")
	}
}

// stoppable is false where nothing lives and nothing would start by itself.
func (d *decision) stoppable(t target) bool {
	if t.rank >= 0 {
		w := t.workers()[0]
		return w.PID != nil || (!w.Stopped && w.State != WorkerDone && isActive(t.seen.State))
	}
	if s := t.seen.State; s != "" && s != StageIdle && s != StageStopped && s != StageDone {
		return true
	}
	return slices.ContainsFunc(t.seen.Workers, func(w WorkerSnapshot) bool { return w.PID != nil })
}

// comesBack blocks a plan to stop what is stopped already where an action is
// under way that may start workers: "nothing to do" would not stay true.
func (d *decision) comesBack(t target) {
	a := d.node.Action
	if a == nil || a.EndedAt != nil {
		return
	}
	stage, _, _ := strings.Cut(a.Target, "/")
	switch a.Verb {
	case VerbPivot:
	case VerbStart, VerbRestart, VerbAdopt:
		if stage != t.st.Name {
			return
		}
	default:
		return
	}
	d.block("nothing of %q lives now, but %s of %q by %s is under way (action %s%s); `pipedeck action takeover %s` ends that at its next safe point",
		t.on(), a.Verb, a.Target, a.By, a.ID, stepUnderWay(a), a.ID)
}

func stepUnderWay(a *Action) string {
	for _, s := range a.Steps {
		if s.EndedAt == nil {
			return fmt.Sprintf(", at step %d of %d, %s", s.N, len(a.Steps), s.Kind)
		}
	}
	return ""
}

func (d *decision) stopStep(t target) {
	d.step(StepStopWorkers, t.st.Workers.Stop.Grace+stopMargin, d.stopProof(t), t.on())
}

func (d *decision) stopProof(t target) string {
	proof := "process set empty twice, exit recorded"
	if d.holdsGPUs(t.st) {
		proof += ", GPU memory at baseline on two reads"
	}
	return proof
}

func (d *decision) restart(t target) {
	d.code(t, true)
	if d.stoppable(t) {
		d.stop(t)
	}
	if d.noRanks(t) {
		return
	}
	d.startable(t)
	d.placeable(t, t.rank < 0)
	d.startSteps(t, []string{t.on()})
}

func undoReason(v Verb) string {
	switch v {
	case VerbStart:
		return "nothing is moved; stop ends the workers"
	case VerbStop:
		return "nothing is moved; start begins the workers again"
	case VerbRestart:
		return "nothing is moved; the workers skip what is done"
	case VerbPause:
		return "nothing is moved; resume lets uploads go on"
	case VerbResume:
		return "nothing is moved; pause holds uploads again"
	case VerbSettle, VerbPush, VerbKill, VerbWipe, VerbPivot, VerbUndo, VerbAdopt, VerbReap:
	}
	return "nothing is lost: what is stored stays stored"
}

// lostFiles are those that nothing proves.
func lostFiles(holdings []Holding) []ListedFile {
	var out []ListedFile
	for _, h := range holdings {
		for _, f := range h.Files {
			if f.Lost() {
				out = append(out, f)
			}
		}
	}
	return out
}

// fingerprint is a hash of what the plan rests on: which files nothing proves,
// which worker processes live, and whether uploads are paused.
func (d *decision) fingerprint() string {
	type seen struct {
		ID      string
		PID     *int
		Started *time.Time
		Ended   bool
	}
	basis := struct {
		Spec    string
		Intent  Intent
		Paused  bool
		Steps   []Step
		Loss    Loss
		Lost    []ListedFile
		Workers []seen
	}{Spec: d.sp.Hash, Intent: d.in, Paused: d.node.UploadsPaused, Steps: d.plan.Steps, Loss: d.plan.Loss, Lost: lostFiles(d.facts.Holdings)}
	for _, st := range d.node.Stages {
		for _, w := range st.Workers {
			basis.Workers = append(basis.Workers, seen{w.ID, w.PID, w.StartedAt, w.ExitCode != nil})
		}
	}
	raw, err := json.Marshal(basis)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}
