package s3test

import (
	"maps"
	"sync"
	"time"
)

// Overwrite is one replacement of an object by other bytes.
type Overwrite struct {
	Key      string
	Old, New string // ETags
	IfMatch  bool   // the client asked for it with the right ETag
}

// stats counts what was asked of the server.
type stats struct {
	mu         sync.Mutex
	requests   map[Op]int
	inFlight   int
	maxFlight  int
	overwrites []Overwrite
}

// begin counts a request in; the result counts it out.
func (s *stats) begin(op Op) func() {
	write := op == OpPut || op == OpPart
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requests == nil {
		s.requests = map[Op]int{}
	}
	s.requests[op]++
	if !write {
		return func() {}
	}
	s.inFlight++
	s.maxFlight = max(s.maxFlight, s.inFlight)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.inFlight--
	}
}

func (s *stats) overwrote(o Overwrite) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.overwrites = append(s.overwrites, o)
}

// Requests returns how often each operation was asked for.
func (s *Server) Requests() map[Op]int {
	s.stats.mu.Lock()
	defer s.stats.mu.Unlock()
	return maps.Clone(s.stats.requests)
}

// TotalRequests is the sum of Requests.
func (s *Server) TotalRequests() int {
	n := 0
	for _, c := range s.Requests() {
		n += c
	}
	return n
}

// ResetStats starts all counts and the log of overwrites anew.
func (s *Server) ResetStats() {
	s.stats.mu.Lock()
	defer s.stats.mu.Unlock()
	s.stats.requests, s.stats.maxFlight, s.stats.overwrites = nil, s.stats.inFlight, nil
}

// MaxUploadsInFlight is the most bodies (objects and parts) that were being
// sent at one time.
func (s *Server) MaxUploadsInFlight() int {
	s.stats.mu.Lock()
	defer s.stats.mu.Unlock()
	return s.stats.maxFlight
}

// Overwrites lists the replacements of objects by other bytes, in order.
func (s *Server) Overwrites() []Overwrite {
	s.stats.mu.Lock()
	defer s.stats.mu.Unlock()
	return append([]Overwrite(nil), s.stats.overwrites...)
}

// limiter is a window of one second for requests and for writes by key.
type limiter struct {
	mu     sync.Mutex
	window time.Time
	count  int
	writes map[string]time.Time
}

func (l *limiter) request(perSecond int, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.window) >= time.Second {
		l.window, l.count = now, 0
	}
	l.count++
	return l.count <= perSecond
}

func (l *limiter) write(key string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writes == nil {
		l.writes = map[string]time.Time{}
	}
	if last, ok := l.writes[key]; ok && now.Sub(last) < time.Second {
		return false
	}
	l.writes[key] = now
	return true
}
