package telemetry

import (
	"sync"
	"time"
)

const (
	// crowdLimit entries of one message are written in each crowdWindow: enough to see what goes on, without a line for each
	// message of a busy topic.
	crowdLimit  = 50
	crowdWindow = 10 * time.Second
	// maxCrowds bounds how many messages are told apart; they are constants of the code.
	maxCrowds = 200
)

// crowd counts entries by their message.
type crowd struct {
	mu     sync.Mutex
	counts map[string]*window
}

type window struct {
	since   time.Time
	written int
	leftOut int
}

func newCrowd() *crowd { return &crowd{counts: map[string]*window{}} }

// admit says whether an entry is to be written, and how many before it were not.
func (c *crowd) admit(message string, at time.Time) (write bool, leftOut int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.counts[message]
	switch {
	case w == nil && len(c.counts) >= maxCrowds:
		return true, 0
	case w == nil:
		w = &window{since: at}
		c.counts[message] = w
	case at.Sub(w.since) >= crowdWindow:
		w.since, w.written = at, 0
	}
	if w.written >= crowdLimit {
		w.leftOut++
		return false, 0
	}
	w.written++
	leftOut, w.leftOut = w.leftOut, 0
	return true, leftOut
}
