package mover

import (
	"path"
	"path/filepath"
	"strings"
	"time"

	"pipedeck/pipeline"
	"pipedeck/pipeline/spec"
	"pipedeck/s3/ledger"
	"pipedeck/s3/local"
)

// ranksLooked is how many rank directories per worker slot are looked for when
// an output's dir holds {rank}: more than any node has GPUs.
const ranksLooked = 64

// artifactsName is the name of the artifacts in ledger, manifests and readings.
const artifactsName = "artifacts"

// output is one output of the spec, or the artifacts, with its local files.
// All fields below dir are guarded by Mover.mu.
type output struct {
	name  string // "stage/output"; as in the ledger
	stage *spec.Stage
	spec  *spec.Output
	dir   string
	roots []root
	// wakeScan asks for a scan now.
	wakeScan chan struct{}

	active   bool   // the mover may touch it
	alive    bool   // processes of the stage live
	heldBy   string // the action that keeps the mover off, "" if none
	removing int64  // removals under way
	files    map[string]*file
	holders  map[string]int64 // placeholders on disk: key to ctime
	renewed  bool             // keys were sent more than once: only the ledger counts them right
	left     map[string]bool  // keys and ids that leave files during a discovery; nil outside of one
	ids
	tally    tally
	stored   ledger.Count
	scan     scanState
	batch    batch
	recheck  recheck
	line     []waiter // in the order of waiting
	lastUnit time.Time
	retiring map[string]bool // unit keys: their directories are on their way out
	newest   time.Time
	total    totals
}

// ids are the sample ids of an output's local files, and the ids that more than
// one file has.
type ids struct {
	byID       map[string]*file
	twins      map[string]*twins
	twinsNoted int
	idMap      idMap
}

// root is one directory of an output.
type root struct {
	dir  string // absolute
	rank int    // -1: the directory is not of one rank

	prepared bool // for removals; guarded by Mover.mu

	produced int64 // complete files seen by this process; guarded by Mover.mu
	newest   time.Time
}

// waiter is a file that began to wait at a time. It is out of date when the
// file no longer waits since then.
type waiter struct {
	file  *file
	since time.Time
}

// scanState is what is known of the directory as a whole.
type scanState struct {
	done    bool // at least one whole scan
	round   int  // whole scans that began
	rounds  int  // and that ended
	asked   int  // the first whole scan that a settle believes
	askedAt time.Time
	at      time.Time
	problem string // why the last scan could not see everything
	blind   bool   // it saw nothing
}

// totals only grow, for rates.
type totals struct {
	verifiedFiles, verifiedBytes, producedBytes int64
}

// tally counts the local files of an output by state, so that a reading costs
// nothing however many there are.
type tally struct {
	files, bytes [states]int64
	localStored  int64 // local files whose key is stored
	done         int64 // complete local files whose key is not stored
	foreign      int64 // local files of another run
	inflight     int64 // requests in flight
}

func (t *tally) localFiles() (n int64) {
	for _, f := range t.files {
		n += f
	}
	return n
}

func (t *tally) localBytes() (n int64) {
	for _, b := range t.bytes {
		n += b
	}
	return n
}

// state is where a local file is on its way.
type state uint8

// The states of a local file.
const (
	stateSeen     state = iota // to be judged
	stateWriting               // incomplete, or not settled yet
	stateWaiting               // complete, queued
	stateInFlight              // being read or sent
	stateSent                  // in the store, to be verified
	stateRemoving              // verified, on its way out
	stateHeld                  // verified, cannot be removed at the moment
	stateKept                  // verified, stays
	stateFailed                // tried again later
	stateMismatch              // another object has its key: the operator decides
	states
)

// file is one local file. Its fields are guarded by Mover.mu; while it is in
// flight, in a batch or being removed, row belongs to that goroutine.
type file struct {
	out   *output
	root  *root
	rel   string // below root
	key   string // below the run's prefix
	id    local.Identity
	state state
	// stored: the store holds, verified, an object of this key, perhaps of an
	// older content.
	stored   bool
	complete bool      // at id
	produced bool      // counted in producedBytes
	odd      bool      // cannot be read as a file: reported, not moved
	dropped  bool      // not counted any more
	round    int       // of the last whole scan that saw it
	fresh    bool      // stored was verified by this process
	changed  time.Time // when this identity was first seen
	settling bool      // only time has to pass until it is complete
	judgeAt  reminder
	sendAt   reminder
	row      *ledger.Row // nil: not looked up
	wrongTag string      // ETag that the first verification of our PUT found
	attempts int
	reason   string
	since    time.Time // of the queueing, or of the failure
	next     time.Time // not before
	lastSent time.Time // of a growing file
	hasty    bool      // it does not wait for its interval
	unit     string    // marker format: directory below root
	sample   string    // id, "" without one
	// elsewhere is another stored key with this id.
	elsewhere string
	owner     string // the other run that it belongs to, "" if it is this one's
	counted   bool   // in tally.done
}

func newOutput(st *spec.Stage, o *spec.Output, s *spec.Spec) *output {
	out := &output{name: st.Name + "/" + o.Name, stage: st, spec: o, dir: o.Dir}
	ranks := ranksLooked * max(1, st.Workers.PerGPU)
	dirs := o.Dirs(st, max(ranks, st.Workers.Count))
	for rank, dir := range dirs {
		r := root{dir: s.Abs(dir), rank: -1}
		if len(dirs) > 1 {
			r.rank = rank
		}
		out.roots = append(out.roots, r)
	}
	out.reset()
	return out
}

// newArtifacts makes the pseudo output of the artifacts: they are kept, and an
// object is replaced only if it is what this ledger recorded.
func newArtifacts(s *spec.Spec) *output {
	out := &output{
		name: artifactsName, dir: ".", active: true,
		stage: &spec.Stage{Name: "."},
		spec: &spec.Output{
			Name: artifactsName, Dir: ".", Match: "**", Format: spec.FormatAny,
			AfterUpload: spec.AfterKeep, Settle: 2 * time.Second,
		},
	}
	out.roots = []root{{dir: filepath.Clean(s.Workdir), rank: -1}}
	out.reset()
	return out
}

func (o *output) reset() {
	o.files, o.holders, o.retiring = map[string]*file{}, map[string]int64{}, map[string]bool{}
	o.wakeScan = make(chan struct{}, 1)
	o.ids = ids{byID: map[string]*file{}, twins: map[string]*twins{}}
}

func (o *output) isArtifacts() bool { return o.name == artifactsName }
func (o *output) isMarker() bool    { return o.spec.Format == spec.FormatMarker }

// grows says whether the output's files are appended to while the stage runs.
func (o *output) grows() bool { return o.spec.Format == spec.FormatJSONL && o.alive }

// matches says whether the file rel belongs to the output.
func (m *Mover) matches(o *output, rel string) bool {
	if o.isArtifacts() {
		return m.opt.Spec.ArtifactMatches(rel)
	}
	return o.spec.Owns(rel)
}

// keyOf is the key of a file below the run's prefix.
func (m *Mover) keyOf(o *output, rel string) string {
	if o.isArtifacts() {
		return rel
	}
	return strings.TrimPrefix(m.opt.Spec.ObjectKey(o.spec, o.stage, rel), m.prefix)
}

// listPrefix is what all keys of an output begin with, in full.
func (m *Mover) listPrefix(o *output) string {
	if o.isArtifacts() {
		return m.prefix
	}
	return m.opt.Spec.OutputKeyPrefix(o.stage, o.spec)
}

// relOf is the inverse of keyOf; ok is false for a key of nobody's.
func (m *Mover) relOf(o *output, key string) (rel string, ok bool) {
	if o.isArtifacts() {
		return key, m.matches(o, key)
	}
	const hole = "\x00"
	before, after, ok := strings.Cut(m.keyOf(o, hole), hole)
	if !ok || len(key) < len(before)+len(after) || !strings.HasPrefix(key, before) || !strings.HasSuffix(key, after) {
		return "", false
	}
	rel = key[len(before) : len(key)-len(after)]
	return rel, rel != "" && path.Clean(rel) == rel && m.matches(o, rel)
}

// unitOf is the directory that a marker completes, for a file in or below it.
func (o *output) unitOf(rel string) string {
	if !o.isMarker() {
		return ""
	}
	for dir := path.Dir(rel); dir != "." && dir != "/"; dir = path.Dir(dir) {
		if o.spec.Matches(dir) {
			return dir
		}
	}
	return ""
}

// isMarkerFile says whether f completes its unit. It is sent last.
func (f *file) isMarkerFile() bool {
	return f.unit != "" && f.rel == path.Join(f.unit, f.out.spec.Marker)
}

// setState moves a file between states and keeps the tally. Mover.mu is held.
func (f *file) setState(s state) {
	t := &f.out.tally
	t.files[f.state]--
	t.bytes[f.state] -= f.id.Size
	f.state = s
	t.files[s]++
	t.bytes[s] += f.id.Size
	f.recount()
}

// setIdentity replaces what is known of the file's content. Mover.mu is held.
func (f *file) setIdentity(id local.Identity) {
	f.out.tally.bytes[f.state] += id.Size - f.id.Size
	f.id = id
}

// setStored notes that the store holds an object of the file's key.
func (f *file) setStored(on bool) {
	if f.stored == on {
		return
	}
	f.stored = on
	if on {
		f.out.tally.localStored++
	} else {
		f.out.tally.localStored--
	}
	f.recount()
}

// setOwner notes which other run the file belongs to. Mover.mu is held.
func (f *file) setOwner(run string) {
	if (f.owner != "") != (run != "") {
		if run != "" {
			f.out.tally.foreign++
		} else {
			f.out.tally.foreign--
		}
	}
	f.owner = run
}

// add begins to count a file. Mover.mu is held.
func (o *output) add(f *file) {
	o.files[f.key] = f
	o.tally.files[f.state]++
	o.tally.bytes[f.state] += f.id.Size
}

// drop ends counting a file: it is gone from the disk. Mover.mu is held.
func (o *output) drop(f *file) {
	o.unidentify(f, f.stored)
	f.setStored(false)
	f.setOwner("")
	f.recount()
	delete(o.files, f.key)
	o.tally.files[f.state]--
	o.tally.bytes[f.state] -= f.id.Size
	if o.left != nil {
		o.left[f.key] = true
	}
}

// waitingSince is when the file that waits longest began to. Mover.mu is held.
func (o *output) waitingSince() (since time.Time) {
	for len(o.line) > 0 {
		w := o.line[0]
		f := w.file
		if !f.dropped && (f.state == stateWaiting || f.state == stateFailed) && f.since.Equal(w.since) {
			return w.since
		}
		o.line[0] = waiter{}
		o.line = o.line[1:]
	}
	return time.Time{}
}

// proven says whether the store holds, verified, the bytes of the file as it
// is now. Mover.mu is held.
func (f *file) proven() bool {
	return f.stored && f.row != nil && isCopyOf(f.row.Stored, f.id)
}

// isCopyOf says whether a copy was read from the file with exactly this identity.
func isCopyOf(c *ledger.Copy, id local.Identity) bool {
	return c != nil && c.Ino != 0 && c.Dev == id.Dev && c.Ino == id.Ino &&
		c.Size == id.Size && c.MTimeNS == id.MTimeNS && c.CTimeNS == id.CTimeNS
}

func newCopy(src *local.File, id local.Identity, sums local.Sums, etag string) *ledger.Copy {
	return &ledger.Copy{
		Size: sums.Size, MD5: sums.MD5, CRC32C: sums.CRC32C, ETag: etag,
		Dev: id.Dev, Ino: id.Ino, MTimeNS: id.MTimeNS, CTimeNS: id.CTimeNS, Born: src.Born(),
	}
}

var _ pipeline.Mover = (*Mover)(nil)
