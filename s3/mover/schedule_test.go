package mover_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pipedeck/pipeline"
	"pipedeck/s3/s3test"
)

const (
	fixedSteps = 10_000 // of each fixed seed
	freshSteps = 2_000  // of the fresh one
	calmEvery  = 500    // steps
	hurry      = 20
)

// TestSchedule lets random things happen to files, store and mover, and holds
// disk and server against the truth after each. PIPEDECK_SEED replays seeds
// ("fresh" draws one), PIPEDECK_STEPS sets the number of steps.
func TestSchedule(t *testing.T) {
	t.Parallel()
	text := os.Getenv("PIPEDECK_SEED")
	if text == "" {
		text = "1 2 3 fresh"
	}
	for name := range strings.FieldsSeq(text) {
		seed, n := rand.Uint64N(1_000_000_000), freshSteps
		if name != "fresh" {
			seed, n = uint64(number(t, name)), fixedSteps
		}
		if text := os.Getenv("PIPEDECK_STEPS"); text != "" {
			n = number(t, text)
		}
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			runSchedule(t, seed, n)
		})
	}
}

func number(tb testing.TB, text string) int {
	tb.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

func runSchedule(t *testing.T, seed uint64, steps int) {
	t.Helper()
	// Those whose ETags are MD5s, so that the log of overwrites tells the bytes.
	kinds := []s3test.Personality{s3test.MinIO(), s3test.AWS(), s3test.FilOne(), s3test.OldCeph(), s3test.B2()}
	p := kinds[seed%uint64(len(kinds))]
	w := newWorld(t, s3test.Options{Personality: p, Seed: seed}, scheduleStages)
	w.hurry = hurry
	s := &schedule{oracle: newOracle(t, w, p), rng: rand.New(rand.NewPCG(seed, seed)), alive: true, steps: map[string]int{}}
	defer func() {
		if t.Failed() {
			t.Logf("replay with PIPEDECK_SEED=%d PIPEDECK_STEPS=%d; so far %v", seed, steps, s.steps)
		}
	}()
	s.startChild()
	all, total := allSteps(), 0
	for _, st := range all {
		total += st.weight
	}
	for n := 1; n <= steps; n++ {
		st := s.draw(all, total)
		s.steps[st.name]++
		st.do(s)
		s.check()
		time.Sleep(time.Duration(s.rng.IntN(3)) * time.Millisecond)
		if n%calmEvery == 0 || n == steps {
			s.calm()
		}
	}
	t.Logf("seed %d at %s: %d files moved in %d steps, %d starts, %d requests", seed, p.Name, s.gone, steps, s.kills, w.server.TotalRequests())
	if s.gone == 0 {
		t.Error("nothing was moved: the schedule shows nothing")
	}
}

func (s *schedule) draw(all []step, total int) step {
	n := s.rng.IntN(total)
	for _, st := range all {
		if n -= st.weight; n < 0 {
			return st
		}
	}
	return all[0]
}

// calm ends all trouble. Then every file leaves, or says why it stays, and the
// counts are exact.
func (s *schedule) calm() {
	s.t.Helper()
	s.w.server.Clear()
	for _, rel := range s.order {
		for p := s.paths[rel]; p != nil && p.writer != nil; {
			s.more(p)
		}
	}
	s.alive = false
	s.child.kill()
	s.child = s.w.spawn("", 0)
	for _, o := range []order{
		{Do: "activate", Arg: "extract"},
		{Do: "activate", Arg: "gen"},
		{Do: "live", Arg: "gen"},
		{Do: "live", Arg: "extract"},
		{Do: "pause"},
		{Do: "retry"},
	} {
		s.tell(o)
	}
	deadline := time.Now().Add(90 * time.Second)
	for n := 0; ; n++ {
		a := s.tell(order{Do: "read"})
		s.check()
		why := s.unsettled(a)
		if why == "" {
			break
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("not settled: %s\nreading: %+v\nfailures: %+v", why, a.Reading.Outputs, a.Failures)
		}
		if n%80 == 79 {
			s.tell(order{Do: "retry"}) // as an operator would after three damaged files
		}
		time.Sleep(25 * time.Millisecond)
	}
	s.doneSet()
	s.tidy()
	s.alive = true
	s.tell(order{Do: "live", Arg: "gen", On: true})
}

// unsettled says what is neither gone nor explained, or miscounted.
func (s *schedule) unsettled(a answer) string {
	explained := map[string]bool{}
	for _, f := range a.Failures {
		if f.Reason == "" {
			return "a failure without a reason: " + f.Path
		}
		_, name, _ := strings.Cut(f.Output, "/")
		dir := map[string]string{"hs": "hs", "raw": "raw", "lines": "gen"}[name]
		explained[dir+"/"+f.Path] = true
	}
	local, gone, maybe := map[string]int64{}, int64(0), map[string]int64{}
	for _, p := range s.paths {
		switch {
		case !p.present && !p.touched:
			gone++
		case !p.present && s.orphaned(p):
			dir, _, _ := strings.Cut(p.rel, "/")
			maybe[dir]++
		case p.present:
			dir, _, _ := strings.Cut(p.rel, "/")
			local[dir]++
			if !explained[p.rel] && !p.broken {
				return p.rel + " is still there"
			}
		}
	}
	return s.miscounted(a.Reading.Outputs, local, maybe, gone)
}

// orphaned says whether a placeholder is left of a file whose object the test
// took away: then nobody can tell it from an empty file.
func (s *schedule) orphaned(p *truth) bool {
	info, err := os.Lstat(s.w.path(p.rel))
	stored, _ := s.w.server.Object(s.key(p.rel))
	return err == nil && info.Size() == 0 && len(stored) == 0
}

// miscounted compares counts with the truth. Of maybe, any number may count.
func (s *schedule) miscounted(outputs []pipeline.OutputReading, local, maybe map[string]int64, gone int64) string {
	verified, touched := int64(0), int64(0)
	for _, p := range s.paths {
		if p.touched {
			touched++
		}
	}
	for _, r := range outputs {
		if r.LocalFiles == nil || r.VerifiedFiles == nil {
			return "not known yet: " + r.Reason
		}
		dir, _, _ := strings.Cut(r.Dir, "/")
		if *r.LocalFiles < local[dir] || *r.LocalFiles > local[dir]+maybe[dir] {
			return fmt.Sprintf("%s: %d local files counted, there are %d (and perhaps %d)", r.Name, *r.LocalFiles, local[dir], maybe[dir])
		}
		verified += *r.VerifiedFiles
	}
	if most := s.stored() + touched + s.tampered; verified < gone || verified > most {
		return fmt.Sprintf("%d verified, %d are gone and %d may be stored", verified, gone, most)
	}
	return ""
}

// doneSet holds the ids that are done against the truth.
func (s *schedule) doneSet() {
	a := s.tell(order{Do: "done_set", Arg: "extract"})
	if a.Err != "" {
		s.t.Fatal("done-set: ", a.Err)
	}
	data, err := os.ReadFile(s.w.path("done.txt"))
	if err != nil {
		s.t.Fatal(err)
	}
	done := map[int]bool{}
	for id := range strings.FieldsSeq(string(data)) {
		done[number(s.t, id)] = true
	}
	for _, p := range s.paths {
		if !isSample(p) {
			continue
		}
		base := p.rel[strings.LastIndex(p.rel, "/")+1:]
		id := number(s.t, strings.TrimLeft(strings.TrimSuffix(base, ".safetensors"), "hs_0"))
		whole := !p.present || !p.broken
		if done[id] == whole || p.touched {
			continue
		}
		// What was spoilt after it had been stored is done or not, by when it was.
		if stored, ok := s.w.server.Object(s.key(p.rel)); whole || !ok || s.origins[tagOf(stored)].inode == 0 {
			a := s.tell(order{Do: "read"})
			s.t.Fatalf("id %d of %s: done %v, whole %v, there %v; %d of %d bytes are stored; failures %+v", id, p.rel, done[id], whole, p.present, len(stored), len(p.data), a.Failures)
		}
	}
}

// tidy is the operator who settles what is reported: those files go.
func (s *schedule) tidy() {
	for rel, p := range s.paths {
		if p.present {
			// It may just have been moved away.
			if err := os.Remove(s.w.path(rel)); err != nil && !errors.Is(err, os.ErrNotExist) {
				s.t.Fatal(err)
			}
			s.tampered++ // its object may count or not from now on
			s.forget(rel)
		}
	}
	s.order = slices.Sorted(maps.Keys(s.paths))
}
