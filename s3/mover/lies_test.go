package mover_test

import (
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"pipedeck/s3/s3test"
)

// lie is a kind of fault that never ends, and what must be said of it. Nothing
// said: the mover finds another way, or what it says is not wrong.
type lie struct {
	op   s3test.Op
	says string // in a file's reason, the output's state or an event
	stay bool   // no file may leave
}

// lies has every kind of s3test.
func lies() map[s3test.Kind]lie {
	put, list := s3test.OpPut, s3test.OpList
	return map[s3test.Kind]lie{
		s3test.ResetBefore:     {put, "EOF|reset", true},
		s3test.ResetInside:     {put, "EOF|reset|broken pipe", true},
		s3test.ResetAfter:      {put, "EOF|reset", true},
		s3test.LostAnswer:      {put, "", false}, // it is there, and seen there
		s3test.Stall:           {put, "EOF|reset|deadline|time", true},
		s3test.Slow:            {put, "", false},
		s3test.ErrorIn200:      {put, "no ETag|InternalError", true},
		s3test.TruncatedAnswer: {list, "EOF|cut off|not well-formed|XML", false},
		s3test.SlowDown:        {put, "SlowDown", true},
		s3test.TooMany:         {put, "TooManyRequests", true},
		s3test.Broken:          {put, "InternalError", true},
		s3test.Expired:         {put, "expired", true},
		s3test.Denied:          {put, "AccessDenied|s3:PutObject", true},
		s3test.QuotaReached:    {put, "Quota", true},
		s3test.DiskFull:        {put, "InsufficientStorage|no more bytes", true},
		s3test.SkewedClock:     {"", "", false}, // the endpoint's clock is taken for right
		s3test.Moved:           {put, "PermanentRedirect|eu-west-1", true},
		s3test.StoreTruncated:  {put, "ETag|other bytes|another size", true},
		s3test.StoreFlipped:    {put, "ETag|other bytes", true},
		s3test.StoreFramed:     {put, "ETag|other bytes|another size", true},
		s3test.StoreNothing:    {put, "does not hold it", true},
		s3test.WrongETag:       {put, "", false}, // the object is right, and a listing says so
		s3test.NoETag:          {put, "no ETag", true},
		s3test.ListLag:         {list, "", false}, // a HEAD knows better
		s3test.ListDuplicate:   {list, "out of order|begins with", false},
		s3test.ListUnordered:   {list, "out of order|begins with|contradicts", false},
		s3test.ListEmptyPage:   {list, "", false}, // legal
		s3test.ListNoToken:     {list, "no token", false},
		s3test.ListLoop:        {list, "", false}, // on the one page that there is
		s3test.ListIgnoreStart: {list, "", false}, // where the first key begins, it is no lie
		s3test.ListForeign:     {list, "holds", false},
		s3test.ListCutOff:      {list, "cut off|not well-formed|XML", false},
		s3test.ListHide:        {list, "", false},
	}
}

// TestEveryLieIsMet lets each kind of fault strike for ever. What cannot be
// proven stays, with a reason that names it.
func TestEveryLieIsMet(t *testing.T) {
	t.Parallel()
	for _, kind := range kindsInSource(t) {
		l, known := lies()[kind]
		if !known {
			t.Errorf("no case for %q", kind)
			continue
		}
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, s3test.Options{}, oneOutput)
			w.hurry, w.patience = 200, time.Minute
			w.start("extract")
			w.await("the bucket is known", func() bool { return w.reading().VerifiedFiles != nil })
			key := "pre/r1/hs/*"
			if l.op != s3test.OpPut {
				key = ""
			}
			rule := w.server.Inject(s3test.Rule{Op: l.op, Key: key, Kind: kind, Delay: 300 * time.Millisecond, Skew: time.Hour, RetryAfter: "1"})
			w.writeSamples(0, 5, 300)
			said := newSaying(l.says)
			w.await("it is named, and what can be proven has left", func() bool {
				said.hear(w)
				return said.done && rule.Struck() > 0 && (l.stay || w.moved(5)())
			})
			if l.stay && !is(w.reading().LocalFiles, 5) {
				t.Errorf("files have left: %+v", w.reading())
			}
		})
	}
}

// TestHiddenLiesAreReadBack: only a GET shows them. Where the ETag is not the
// MD5 of the stored bytes every object is read back.
func TestHiddenLiesAreReadBack(t *testing.T) {
	t.Parallel()
	for _, kind := range []s3test.Kind{s3test.StoreTruncated, s3test.StoreFlipped, s3test.StoreFramed} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, s3test.Options{Personality: s3test.Personality{Name: "opaque", OpaqueETag: true, OpaqueParts: true}}, oneOutput)
			w.hurry, w.patience = hurry, 2*time.Minute
			w.server.Inject(s3test.Rule{Op: s3test.OpPut, Key: w.key(sample(1)), Kind: kind, Hidden: true})
			w.writeSamples(0, 3, 300)
			w.start("extract")
			w.await("the others have left, and it says why", func() bool {
				f := w.m.Failures()
				return is(w.reading().DeletedLocalFiles, 2) && len(f) == 1 && regexp.MustCompile("other bytes|another object").MatchString(f[0].Reason)
			})
		})
	}
}

// saying waits for words.
type saying struct {
	words *regexp.Regexp
	done  bool
	heard []string
}

func newSaying(words string) *saying { return &saying{words: regexp.MustCompile(words)} }

// hear looks at whatever is told to the operator.
func (s *saying) hear(w *world) {
	var texts []string
	r := w.m.Outputs()
	for _, e := range r.Events {
		texts = append(texts, e.Text)
	}
	texts = append(texts, r.Outputs[0].StateReason)
	for _, f := range w.m.Failures() {
		texts = append(texts, f.Reason)
	}
	s.heard = append(s.heard, texts...)
	s.done = s.done || slices.ContainsFunc(texts, s.words.MatchString)
}

// kindsInSource are all kinds of faults that s3test declares.
func kindsInSource(t *testing.T) (kinds []s3test.Kind) {
	t.Helper()
	raw, err := os.ReadFile("../s3test/fault.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^\t\w+ +Kind = "(\w+)"`).FindAllStringSubmatch(string(raw), -1) {
		kinds = append(kinds, s3test.Kind(m[1]))
	}
	if len(kinds) != len(lies()) {
		t.Errorf("%d kinds in the source, %d cases", len(kinds), len(lies()))
	}
	return kinds
}
