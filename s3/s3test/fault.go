package s3test

import (
	"io"
	"math/rand/v2"
	"path"
	"strings"
	"sync"
	"time"
)

// Kind is what goes wrong.
type Kind string

// Faults of the connection and of answers.
const (
	ResetBefore     Kind = "reset_before"     // the connection breaks before the body is read
	ResetInside     Kind = "reset_inside"     // … after half of it
	ResetAfter      Kind = "reset_after"      // … after all of it, and nothing is stored
	LostAnswer      Kind = "lost_answer"      // it is done, and the connection breaks instead of an answer
	Stall           Kind = "stall"            // no answer for Rule.Delay (0: until the server closes), then a reset
	Slow            Kind = "slow"             // a right answer after Rule.Delay
	ErrorIn200      Kind = "error_in_200"     // status 200 with an error in the body; nothing is done
	TruncatedAnswer Kind = "truncated_answer" // it is done, and half of the answer's body arrives
)

// Refusals, each with the code and status that endpoints use.
const (
	SlowDown     Kind = "slow_down"     // 503
	TooMany      Kind = "too_many"      // 429, with Rule.RetryAfter
	Broken       Kind = "internal"      // 500
	Expired      Kind = "expired_token" // 400
	Denied       Kind = "access_denied" // 403
	Moved        Kind = "moved"         // 301 to region eu-west-1
	QuotaReached Kind = "quota"         // 403 QuotaExceeded
	DiskFull     Kind = "disk_full"     // 507
	SkewedClock  Kind = "skewed_clock"  // the server's clock is ahead by Rule.Skew
)

// Lies about stored bytes. With Rule.Hidden, size and ETag in answers and
// listings are those of the bytes that were sent: only a GET shows the lie.
const (
	StoreTruncated Kind = "store_truncated" // the second half is missing
	StoreFlipped   Kind = "store_flipped"   // one bit is wrong
	StoreFramed    Kind = "store_framed"    // aws-chunked framing is part of the object
	StoreNothing   Kind = "store_nothing"   // a good answer, and no object
	WrongETag      Kind = "wrong_etag"      // the answer's ETag is of other bytes
	NoETag         Kind = "no_etag"
)

// Lies of listings.
const (
	ListLag         Kind = "list_lag"          // objects younger than Rule.Delay are not shown
	ListDuplicate   Kind = "list_duplicate"    // the first key comes twice
	ListUnordered   Kind = "list_unordered"    // the first and last key of the page change places
	ListEmptyPage   Kind = "list_empty_page"   // legal: no object, more to come
	ListNoToken     Kind = "list_no_token"     // more to come, and no token
	ListLoop        Kind = "list_loop"         // the token of the request is given again
	ListIgnoreStart Kind = "list_ignore_start" // begins at the first key
	ListForeign     Kind = "list_foreign"      // a key outside the prefix
	ListCutOff      Kind = "list_cut_off"      // the body ends in the middle, with a matching length
	ListHide        Kind = "list_hide"         // the first object of the page is not shown
)

// refusals are the kinds that are nothing but an answer.
var refusals = map[Kind]failure{
	SlowDown:     {503, "SlowDown", "Please reduce your request rate", nil},
	TooMany:      {429, "TooManyRequests", "Too many requests", nil},
	Broken:       {500, "InternalError", "We encountered an internal error. Please try again.", nil},
	Expired:      {400, "ExpiredToken", "The provided token has expired", nil},
	Denied:       {403, "AccessDenied", "Access Denied", nil},
	QuotaReached: {403, "QuotaExceeded", "The storage quota is used up", nil},
	DiskFull:     {507, "InsufficientStorage", "There is no room left", nil},
	Moved: {
		301, "PermanentRedirect", "The bucket you are attempting to access must be addressed using the specified endpoint",
		map[string]string{"X-Amz-Bucket-Region": "eu-west-1"},
	},
}

// Rule makes requests go wrong. The first rule that matches and strikes wins.
type Rule struct {
	Op          Op      // empty: every operation
	Key         string  // pattern of path.Match on the key; empty: every key
	Except      string  // keys with this in them are let through; empty: none
	Skip        int     // matching requests that are let through first
	Count       int     // how often it strikes; 0: always
	Probability float64 // of striking, 0: always; from the server's seed
	Kind        Kind

	Delay      time.Duration // of Stall, Slow, ListLag
	Skew       time.Duration // of SkewedClock
	RetryAfter string        // header of refusals
	Hidden     bool          // of lies about stored bytes
	Framed     bool          // of TruncatedAnswer: with a length that fits
}

// faults is the list of rules in force.
type faults struct {
	mu    sync.Mutex
	rng   *rand.Rand
	rules []*armed
}

// armed is a rule with what it has seen.
type armed struct {
	Rule
	seen, struck int
}

func (f *faults) seed(n uint64) { f.rng = rand.New(rand.NewPCG(n, n)) }

// pick returns the fault of one request, or nil.
func (f *faults) pick(op Op, key string) *Rule {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.rules {
		if a.matches(op, key) && a.strikes(f.rng) {
			r := a.Rule
			return &r
		}
	}
	return nil
}

func (a *armed) matches(op Op, key string) bool {
	if a.Op != "" && a.Op != op {
		return false
	}
	if a.Except != "" && strings.Contains(key, a.Except) {
		return false
	}
	if a.Key == "" {
		return true
	}
	ok, err := path.Match(a.Key, key)
	return ok && err == nil
}

func (a *armed) strikes(rng *rand.Rand) bool {
	a.seen++
	if a.seen <= a.Skip || a.Count > 0 && a.struck >= a.Count {
		return false
	}
	if a.Probability > 0 && rng.Float64() >= a.Probability {
		return false
	}
	a.struck++
	return true
}

// Injected is a rule in force.
type Injected struct {
	s *Server
	a *armed
}

// Inject puts a rule in force, after those that are.
func (s *Server) Inject(r Rule) *Injected {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	a := &armed{Rule: r}
	s.faults.rules = append(s.faults.rules, a)
	return &Injected{s, a}
}

// Clear ends all rules.
func (s *Server) Clear() {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.rules = nil
}

// Struck is how often the rule has made a request go wrong.
func (i *Injected) Struck() int {
	i.s.faults.mu.Lock()
	defer i.s.faults.mu.Unlock()
	return i.a.struck
}

func (c *call) is(k Kind) bool { return c.fault != nil && c.fault.Kind == k }

// before applies the faults that strike before the operation. It reports
// whether the operation is to be done.
func (c *call) before() bool {
	if c.fault == nil {
		return true
	}
	if f, ok := refusals[c.fault.Kind]; ok {
		if c.fault.RetryAfter != "" {
			c.w.Header().Set("Retry-After", c.fault.RetryAfter)
		}
		c.fail(&f)
		return false
	}
	if strike, ok := weather[c.fault.Kind]; ok {
		return strike(c)
	}
	return true
}

// weather are the kinds that strike before the operation. Each reports whether
// it is to be done all the same; a reset does not return.
var weather = map[Kind]func(*call) bool{
	ResetBefore: func(c *call) bool {
		c.reset()
		return false
	},
	ResetInside: func(c *call) bool {
		_, _ = io.CopyN(io.Discard, c.r.Body, max(1, c.r.ContentLength/2))
		c.reset()
		return false
	},
	ResetAfter: func(c *call) bool {
		_, _ = io.Copy(io.Discard, c.r.Body)
		c.reset()
		return false
	},
	Stall: func(c *call) bool {
		_, _ = io.Copy(io.Discard, c.r.Body)
		c.pause()
		c.reset()
		return false
	},
	Slow: func(c *call) bool {
		c.pause()
		return true
	},
	ErrorIn200: func(c *call) bool {
		c.fail(&failure{200, "InternalError", "We encountered an internal error. Please try again.", nil})
		return false
	},
}

// pause waits for Rule.Delay, the client's patience or the server's end.
func (c *call) pause() {
	var after <-chan time.Time
	if c.fault.Delay > 0 {
		after = time.After(c.fault.Delay)
	}
	select {
	case <-after:
	case <-c.r.Context().Done():
	case <-c.s.endless.Done():
	}
}

// committed applies the faults that strike once the operation is done.
func (c *call) committed() {
	if c.is(LostAnswer) {
		c.reset()
	}
}
