package relayer

import (
	"context"
	"sync"
)

// slots bounds the calls that a process makes at the same time. With several engines none may take the last slot that
// another could need: whatever one engine does, each other one finds a slot at once.
type slots struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced whenever a slot is freed
	total   int
	limit   int // of one engine
	used    int
	engines map[string]*engineSlots
}

type engineSlots struct {
	used      int
	announced int // lanes that will wait as soon as their goroutine runs
	waiting   int
}

func newSlots(total int, engines []string) *slots {
	s := &slots{total: total, limit: max(1, total-len(engines)+1), changed: make(chan struct{}), engines: map[string]*engineSlots{}}
	for _, name := range engines {
		s.engines[name] = &engineSlots{}
	}
	return s
}

// announce counts a lane as waiting before its goroutine gets to run: else the next claim would take its slot for free.
func (s *slots) announce(engine string) {
	s.mu.Lock()
	s.engines[engine].announced++
	s.mu.Unlock()
}

// acquire waits for a slot of the engine. The caller releases it. announced says that the lane has been counted before.
func (s *slots) acquire(ctx context.Context, engine string, announced bool) error {
	s.mu.Lock()
	e := s.engines[engine]
	if announced {
		e.announced--
	}
	for waiting := false; ; {
		if s.used < s.total && e.used < s.limit && !s.yields(e) {
			s.used++
			e.used++
			if waiting {
				e.waiting--
			}
			s.mu.Unlock()
			return nil
		}
		if !waiting {
			waiting = true
			e.waiting++
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
			s.mu.Lock()
		case <-ctx.Done():
			s.mu.Lock()
			e.waiting--
			s.mu.Unlock()
			return ctx.Err()
		}
	}
}

// yields reports whether the engine has its share, and another that has less waits.
func (s *slots) yields(e *engineSlots) bool {
	active := 0
	for _, other := range s.engines {
		if other.used > 0 || other.waiting > 0 {
			active++
		}
	}
	share := (s.total + active - 1) / max(1, active)
	if e.used < share {
		return false
	}
	for _, other := range s.engines {
		if other != e && other.waiting > 0 && other.used < share {
			return true
		}
	}
	return false
}

func (s *slots) release(engine string) {
	s.mu.Lock()
	s.used--
	s.engines[engine].used--
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()
}

// room says how many calls of the engine could start now: none while anybody waits for it.
func (s *slots) room(engine string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.engines[engine]
	if e.waiting > 0 || e.announced > 0 {
		return 0
	}
	return max(0, min(s.total-s.used, s.limit-e.used))
}
