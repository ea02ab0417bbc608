package mover_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"pipedeck/s3/mover"
	"pipedeck/s3/s3test"
)

// The schedule's deck: files that go, files that leave a placeholder, lines
// that grow.
const scheduleStages = `
stages:
  extract:
    workers: {count: 1, command: [sleep]}
    outputs:
      hs:
        dir: hs
        match: "**/*.safetensors"
        format: safetensors
        id: 'hs_(\d+)\.safetensors'
        key: "hs/{path}"
      raw: {dir: raw, match: "**/*.bin", format: any, settle: 60ms, after_upload: placeholder, key: "raw/{path}"}
    done_set: {file: done.txt, form: lines}
  gen:
    workers: {count: 1, command: [sleep]}
    outputs:
      lines: {dir: gen, match: "*.jsonl", format: jsonl, settle: 60ms, every: 150ms, key: "gen/{path}"}
`

// schedule is one seeded run of random steps.
type schedule struct {
	*oracle
	rng   *rand.Rand
	seq   int
	inode int
	alive bool
	child *child
	kills int
	steps map[string]int
}

// step is one thing that can happen, as often as its weight says.
type step struct {
	name   string
	weight int
	do     func(*schedule)
}

func allSteps() []step {
	return []step{
		{"write", 30, (*schedule).write},
		{"begin", 8, (*schedule).begin},
		{"go on", 20, (*schedule).goOn},
		{"append", 15, (*schedule).appendLines},
		{"replace", 4, (*schedule).replace},
		{"rewrite", 5, (*schedule).rewrite},
		{"truncate", 2, (*schedule).truncate},
		{"rename", 3, (*schedule).rename},
		{"fault", 10, (*schedule).fault},
		{"clear", 2, func(s *schedule) { s.w.server.Clear() }},
		{"foreign first", 2, (*schedule).foreignFirst},
		{"foreign over", 2, (*schedule).foreignOver},
		{"vanish", 1, (*schedule).vanish},
		{"live", 2, (*schedule).live},
		{"pause", 1, (*schedule).pause},
		{"retry", 3, func(s *schedule) { s.tell(order{Do: "retry"}) }},
		{"clock", 1, (*schedule).clock},
		{"kill", 2, (*schedule).kill},
		{"read", 6, (*schedule).read},
	}
}

// fresh is a new name in an output, and a content that fits it.
func (s *schedule) fresh() (rel string, data []byte) {
	s.seq++
	s.inode++
	size := 2 + s.rng.IntN(2000) // rewrite changes two bytes
	dir := strings.Repeat(fmt.Sprintf("d%d/", s.rng.IntN(3)), s.rng.IntN(3))
	if s.rng.IntN(3) > 0 {
		return fmt.Sprintf("hs/%shs_%06d.safetensors", dir, s.seq), tensors(uint64(s.seq), size)
	}
	return fmt.Sprintf("raw/%s%06d.bin", dir, s.seq), s.bytes(size)
}

// bytes are random, and like no others.
func (s *schedule) bytes(n int) []byte {
	s.seq++
	data := fmt.Appendf(nil, "%d:", s.seq)
	for len(data) < n {
		data = append(data, byte(s.rng.Uint32()))
	}
	return data
}

// pick is a path that is there, not open, and passes.
func (s *schedule) pick(ok func(*truth) bool) *truth {
	if len(s.order) == 0 {
		return nil
	}
	from := s.rng.IntN(len(s.order))
	for i := range s.order {
		p := s.paths[s.order[(from+i)%len(s.order)]]
		if p != nil && p.present && p.writer == nil && ok(p) {
			return p
		}
	}
	return nil
}

func isSample(p *truth) bool { return strings.HasPrefix(p.rel, "hs/") }
func isLines(p *truth) bool  { return strings.HasPrefix(p.rel, "gen/") }
func notLines(p *truth) bool { return !isLines(p) }

func (s *schedule) mustDir(rel string) {
	if err := os.MkdirAll(filepath.Dir(s.w.path(rel)), 0o755); err != nil {
		s.t.Fatal(err)
	}
}

// place writes a file beside its name and renames it there.
func (s *schedule) place(rel string, data []byte) {
	s.mustDir(rel)
	tmp := s.w.path(rel) + ".tmp"
	if err := os.WriteFile(tmp, data, 0o644); err != nil {
		s.t.Fatal(err)
	}
	// Known before it is there: it may be gone at once.
	s.record(rel, data, s.inode).broken = false
	if err := os.Rename(tmp, s.w.path(rel)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *schedule) write() {
	rel, data := s.fresh()
	s.place(rel, data)
}

func (s *schedule) replace() {
	if p := s.pick(notLines); p != nil {
		s.inode++
		data := s.bytes(300)
		if isSample(p) {
			data = tensors(uint64(s.seq)+1<<20, 300)
		}
		s.place(p.rel, data)
	}
}

// begin opens a file and writes some of it.
func (s *schedule) begin() {
	rel, data := s.fresh()
	s.mustDir(rel)
	p := s.record(rel, data, s.inode)
	p.rest = data
	p.writer, _ = os.Create(s.w.path(rel))
	if p.writer == nil {
		s.t.Fatal("cannot create", rel)
	}
	s.more(p)
}

func (s *schedule) goOn() {
	for _, rel := range s.order {
		if p := s.paths[rel]; p != nil && p.writer != nil && s.rng.IntN(3) == 0 {
			s.more(p)
			return
		}
	}
}

// more writes some of a file's rest, or closes it.
func (s *schedule) more(p *truth) {
	if len(p.rest) == 0 {
		if s.rng.IntN(10) > 0 {
			return // whole, and still open
		}
		if err := p.writer.Close(); err != nil {
			s.t.Fatal(err)
		}
		p.writer = nil
		return
	}
	n := 1 + s.rng.IntN(len(p.rest))
	if _, err := p.writer.Write(p.rest[:n]); err != nil {
		s.t.Fatal(err)
	}
	p.rest = p.rest[n:]
}

func (s *schedule) appendLines() {
	p := s.pick(isLines)
	if p == nil || s.rng.IntN(10) == 0 {
		s.seq++
		s.inode++
		s.mustDir("gen/x")
		rel := fmt.Sprintf("gen/%06d.jsonl", s.seq)
		line := fmt.Appendf(nil, "{\"n\":%d}\n", s.seq)
		s.record(rel, line, s.inode)
		if err := os.WriteFile(s.w.path(rel), line, 0o644); err != nil {
			s.t.Fatal(err)
		}
		return
	}
	f, err := os.OpenFile(s.w.path(p.rel), os.O_WRONLY|os.O_APPEND, 0)
	if os.IsNotExist(err) {
		return // it has just left
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.seq++
	line := fmt.Appendf(nil, "{\"n\":%d,\"more\":%q}\n", s.seq, bytes.Repeat([]byte("x"), s.rng.IntN(200)))
	s.overwriteWith(p, f, append(bytes.Clone(p.data), line...), func() error {
		_, err := f.Write(line)
		return err
	})
}

// overwriteWith changes the content of a file that is open. Nobody can have
// taken it for done between the look and the write.
func (s *schedule) overwriteWith(p *truth, f *os.File, data []byte, change func() error) {
	mine, err := f.Stat()
	if err != nil {
		s.t.Fatal(err)
	}
	if at, err := os.Lstat(s.w.path(p.rel)); err != nil || !os.SameFile(at, mine) || !s.there(p) {
		// Opened while it lay aside or was on its way out, or the placeholder in
		// its place: leave it.
		_ = f.Close()
		return
	}
	s.record(p.rel, data, p.inode)
	if err := change(); err != nil {
		s.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		s.t.Fatal(err)
	}
}

// rewrite changes bytes in place and restores size and mtime.
func (s *schedule) rewrite() {
	p := s.pick(func(p *truth) bool { return notLines(p) && !p.broken && len(p.data) > 1 })
	if p == nil {
		return
	}
	f, err := os.OpenFile(s.w.path(p.rel), os.O_WRONLY, 0)
	if err != nil {
		return
	}
	info, err := f.Stat()
	if err != nil {
		s.t.Fatal(err)
	}
	data := bytes.Clone(p.data)
	data[len(data)-1] ^= byte(1 + s.rng.IntN(255))
	data[len(data)-2] ^= byte(s.rng.IntN(256))
	s.overwriteWith(p, f, data, func() error {
		if _, err := f.WriteAt(data[len(data)-2:], int64(len(data)-2)); err != nil {
			return err
		}
		return os.Chtimes(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), time.Time{}, info.ModTime())
	})
}

func (s *schedule) truncate() {
	p := s.pick(func(p *truth) bool { return notLines(p) && len(p.data) > 4 })
	if p == nil {
		return
	}
	f, err := os.OpenFile(s.w.path(p.rel), os.O_WRONLY, 0)
	if err != nil {
		return
	}
	n := 1 + s.rng.IntN(len(p.data)-1)
	s.overwriteWith(p, f, bytes.Clone(p.data[:n]), func() error { return f.Truncate(int64(n)) })
	p.broken = isSample(p)
}

func (s *schedule) rename() {
	p := s.pick(notLines)
	if p == nil {
		return
	}
	rel, _ := s.fresh()
	if isSample(p) != strings.HasPrefix(rel, "hs/") {
		return
	}
	s.mustDir(rel)
	to := s.record(rel, p.data, p.inode)
	to.broken = p.broken
	if !s.there(p) || os.Rename(s.w.path(p.rel), s.w.path(rel)) != nil {
		s.forget(rel)
		return
	}
	s.forget(p.rel)
}

// foreignFirst puts somebody's object where a file will be.
func (s *schedule) foreignFirst() {
	rel, data := s.fresh()
	p := &truth{rel: rel}
	s.tamper(p, s.bytes(50))
	s.place(rel, data)
	s.paths[rel].touched = true
}

// foreignOver does so where a file is. Without conditions no client can write
// and be sure.
func (s *schedule) foreignOver() {
	if p := s.pick(func(*truth) bool { return true }); p != nil && s.conds {
		s.tamper(p, s.bytes(50))
	}
}

func (s *schedule) vanish() {
	if p := s.pick(func(*truth) bool { return true }); p != nil {
		s.tamper(p, nil)
	}
}

// fault makes something go wrong for a while.
func (s *schedule) fault() {
	ops := []s3test.Op{s3test.OpPut, s3test.OpPut, s3test.OpHead, s3test.OpList, s3test.OpGet, ""}
	op, kind := ops[s.rng.IntN(len(ops))], faultKinds[s.rng.IntN(len(faultKinds))]
	if !s.conds && (kind == s3test.ListHide || kind == s3test.ListLag) {
		// Where neither conditions nor a 404 tell, a HEAD that is denied and a
		// listing that hides the same object are believed: docs/limits.md.
		kind = s3test.ListEmptyPage
	}
	s.w.server.Inject(s3test.Rule{
		Op: op, Kind: kind,
		// A probe that is lied to leaves conditions unused, and then nobody can
		// tell who wrote what first.
		Except: "/.pipedeck/probe/",
		Count:  1 + s.rng.IntN(12), Probability: 0.3 + 0.7*s.rng.Float64(), Skip: s.rng.IntN(4),
		Delay: time.Duration(s.rng.IntN(100)) * time.Millisecond, Skew: time.Hour,
	})
}

// faultKinds are all that a HEAD or a listing can show.
var faultKinds = []s3test.Kind{
	s3test.ResetBefore, s3test.ResetInside, s3test.ResetAfter, s3test.LostAnswer, s3test.Stall, s3test.Slow, s3test.ErrorIn200, s3test.TruncatedAnswer,
	s3test.SlowDown, s3test.TooMany, s3test.Broken, s3test.Expired, s3test.Denied, s3test.Moved, s3test.QuotaReached, s3test.SkewedClock,
	s3test.StoreTruncated, s3test.StoreFlipped, s3test.StoreFramed, s3test.StoreNothing, s3test.WrongETag, s3test.NoETag,
	s3test.ListLag, s3test.ListDuplicate, s3test.ListUnordered, s3test.ListEmptyPage, s3test.ListNoToken, s3test.ListLoop,
	s3test.ListIgnoreStart, s3test.ListForeign, s3test.ListCutOff, s3test.ListHide,
}

func (s *schedule) live() {
	s.alive = !s.alive
	s.tell(order{Do: "live", Arg: "gen", On: s.alive})
}

func (s *schedule) pause() { s.tell(order{Do: "pause", On: s.rng.IntN(3) == 0}) }

func (s *schedule) clock() {
	s.tell(order{Do: "clock", N: []int{0, 0, 3600, -3600, 7}[s.rng.IntN(5)]})
}

// kill ends the mover now, or lets it end itself at some point of its work; and
// now and then the ledger is lost as well.
func (s *schedule) kill() {
	s.child.kill()
	if s.rng.IntN(8) == 0 {
		s.w.forget()
	}
	s.startChild()
}

func (s *schedule) startChild() {
	s.kills++
	at := ""
	if points := mover.Points(); s.rng.IntN(2) == 0 {
		at = points[s.rng.IntN(len(points))]
	}
	s.child = s.w.spawn(at, s.rng.IntN(20))
	s.tell(order{Do: "activate", Arg: "extract"})
	s.tell(order{Do: "activate", Arg: "gen"})
	s.tell(order{Do: "live", Arg: "gen", On: s.alive})
}

// tell gives an order; if the mover died at its point, the next one takes over.
func (s *schedule) tell(o order) answer {
	a, ok := s.child.ask(o)
	if !ok {
		s.check()
		s.startChild()
	}
	return a
}

// read holds the counts against what can be told of them at any moment.
func (s *schedule) read() {
	a := s.tell(order{Do: "read"})
	s.check()
	for _, r := range a.Reading.Outputs {
		if r.LocalFiles != nil && *r.LocalFiles < 0 || r.DeletedLocalFiles != nil && *r.DeletedLocalFiles < 0 {
			s.t.Fatalf("counts below zero: %+v", r)
		}
		if r.Queue.InFlight > int64(r.Queue.MaxParallel) {
			s.t.Fatalf("%d in flight, %d are allowed", r.Queue.InFlight, r.Queue.MaxParallel)
		}
	}
}
