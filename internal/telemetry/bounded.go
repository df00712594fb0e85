package telemetry

import (
	"crypto/sha256"
	"sync"
)

const (
	none  = "none"
	other = "other"

	// maxTypes bounds the values of the label type, which publishers choose.
	maxTypes = 100
	// maxValue bounds one label value, in bytes.
	maxValue = 128
	// maxHashes is how many payloads an instance remembers; 32 bytes each, and as much again for the index.
	maxHashes = 10_000
)

// bounded lets the first values through, and calls all later ones "other".
type bounded struct {
	limit int
	mu    sync.Mutex
	seen  map[string]bool
}

func newBounded(limit int) *bounded { return &bounded{limit: limit, seen: map[string]bool{}} }

func (b *bounded) value(s string) string {
	if s == "" {
		return none
	}
	if len(s) > maxValue {
		return other
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.seen[s] {
		if len(b.seen) >= b.limit {
			return other
		}
		b.seen[s] = true
	}
	return s
}

// allowed lets through what a list names.
type allowed map[string]bool

func newAllowed(names []string) allowed {
	list := allowed{}
	for _, name := range names {
		list[name] = true
	}
	return list
}

func (a allowed) value(s string) string {
	switch {
	case s == "":
		return none
	case a[s]:
		return s
	}
	return other
}

// payloads remembers the hashes of the last payloads.
type payloads struct {
	mu   sync.Mutex
	ring [][sha256.Size]byte
	next int
	seen map[[sha256.Size]byte]int // how often the ring holds it
}

// add remembers a payload of a route, and reports whether it was there.
func (p *payloads) add(route, payloadSHA256 string) bool {
	h := sha256.Sum256([]byte(route + "\x00" + payloadSHA256))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen == nil {
		p.seen = map[[sha256.Size]byte]int{}
	}
	before := p.seen[h] > 0
	if len(p.ring) < maxHashes {
		p.ring = append(p.ring, h)
	} else {
		old := p.ring[p.next]
		if p.seen[old]--; p.seen[old] == 0 {
			delete(p.seen, old)
		}
		p.ring[p.next] = h
		p.next = (p.next + 1) % maxHashes
	}
	p.seen[h]++
	return before
}
