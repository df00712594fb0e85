package demoengine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Outage is how the engine misbehaves.
type Outage int

const (
	// Healthy: deliveries are handled.
	Healthy Outage = iota
	// Unavailable: each request gets 503 and Options.RetryAfter, without effect, and says so.
	Unavailable
	// Throttling: each request gets 429 and Options.RetryAfter, without effect, and says so.
	Throttling
	// Locked: each request gets 401, without effect.
	Locked
	// Closing: the connection is closed when the request has been read, without effect.
	Closing
	// LosingAnswers: the delivery is handled, then the connection is closed instead of an answer.
	LosingAnswers
	// Hanging: the request is read, and then nothing happens until its client gives up.
	Hanging
	// Echoing: each request gets a 422 whose problem repeats the body, without effect.
	Echoing
)

// Options are fixed when the engine is made.
type Options struct {
	Now        func() time.Time // nil: time.Now
	RetryAfter time.Duration    // sent, in whole seconds, by Unavailable and Throttling if not zero
	Forgetful  bool             // no idempotency: each delivery is a new one
}

// Delivery is one request that reached the engine, and what became of it.
type Delivery struct {
	Key         string
	InboxID     string // the Idempotency-Key, else the event's id
	Attempt     int64
	Message     string
	ContentType string
	Body        []byte
	Variables   map[string]json.RawMessage // of a JSON object, each value's exact text
	Start, End  time.Time                  // End is zero while it is being handled
	Status      int                        // of the answer; zero: none was given
	Advanced    string                     // the instance that this request advanced
}

// Engine is the engine. Make it with New.
type Engine struct {
	options Options

	mu        sync.Mutex
	outage    Outage
	latency   func(ctx context.Context, d Delivery)
	instances []*instance
	vanishing map[string]bool // keys whose instance goes away in the middle of the next delivery
	known     map[string]memory
	history   []*Delivery
	advanced  map[string]int
	lastID    int
}

// instance is a process instance: it waits for messages[at], and is through when there is none.
type instance struct {
	id       string
	key      string
	messages []string
	at       int
}

func (i *instance) waitsFor(message string) bool {
	return i.at < len(i.messages) && i.messages[i.at] == message
}
func (i *instance) isPast(message string) bool { return slices.Contains(i.messages[:i.at], message) }

// memory is a delivery that had its effect, with the answer to give again.
type memory struct {
	digest [32]byte
	answer answer
}

// New returns a healthy engine without instances.
func New(options Options) *Engine {
	if options.Now == nil {
		options.Now = time.Now
	}
	return &Engine{
		options: options, vanishing: map[string]bool{}, known: map[string]memory{}, advanced: map[string]int{},
	}
}

// Start starts an instance that waits for messages, one after another, and returns its id.
func (e *Engine) Start(key string, messages ...string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.start(key, messages)
}

// StartTwice starts two instances at once: a message for key is ambiguous.
func (e *Engine) StartTwice(key string, messages ...string) [2]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return [2]string{e.start(key, messages), e.start(key, messages)}
}

func (e *Engine) start(key string, messages []string) string {
	e.lastID++
	id := "instance-" + strconv.Itoa(e.lastID)
	e.instances = append(e.instances, &instance{id: id, key: key, messages: slices.Clone(messages)})
	return id
}

// Finish takes the instances of key past everything they wait for, without any message.
func (e *Engine) Finish(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, i := range e.instances {
		if i.key == key {
			i.at = len(i.messages)
		}
	}
}

// RemoveOne removes the oldest instance of key, as if it had never been, and reports whether there was one. It makes an
// ambiguous message deliverable.
func (e *Engine) RemoveOne(key string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.remove(key)
}

func (e *Engine) remove(key string) bool {
	at := slices.IndexFunc(e.instances, func(i *instance) bool { return i.key == key })
	if at < 0 {
		return false
	}
	e.instances = slices.Delete(e.instances, at, at+1)
	return true
}

// VanishOnDelivery removes the instance of key in the middle of the next delivery to it: found, and gone.
func (e *Engine) VanishOnDelivery(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.vanishing[key] = true
}

// SetOutage changes how requests are handled from now on. Requests that hang go on hanging.
func (e *Engine) SetOutage(o Outage) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.outage = o
}

// SetLatency has each request call wait before it is handled, with the request's context. The engine is not locked
// meanwhile. Nil: no wait.
func (e *Engine) SetLatency(wait func(ctx context.Context, d Delivery)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.latency = wait
}

// Advanced is how many times instances of key were advanced by a message.
func (e *Engine) Advanced(key string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.advanced[key]
}

// Waiting is how many instances of key wait for message.
func (e *Engine) Waiting(key, message string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.waiting(key, message))
}

func (e *Engine) waiting(key, message string) []*instance {
	var found []*instance
	for _, i := range e.instances {
		if i.key == key && i.waitsFor(message) {
			found = append(found, i)
		}
	}
	return found
}

// History is every delivery that has arrived, in the order of arrival.
func (e *Engine) History() []Delivery {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make([]Delivery, len(e.history))
	for i, d := range e.history {
		all[i] = *d
	}
	return all
}

// deliver is the engine's one transaction: it finds, decides and advances.
func (e *Engine) deliver(d *Delivery) answer {
	found := e.waiting(d.Key, d.Message)
	switch {
	case d.Key == "" || d.Message == "":
		return refusal(422, "rejected", "The event has no subject or no type.")
	case len(found) > 1:
		return refusal(409, "ambiguous", fmt.Sprintf("%d instances wait for the message.", len(found)))
	case len(found) == 1 && e.vanishing[d.Key]:
		delete(e.vanishing, d.Key)
		e.remove(d.Key)
		return refusal(412, "vanished", "The instance went away meanwhile.")
	case len(found) == 1:
		found[0].at++
		e.advanced[d.Key]++
		d.Advanced = found[0].id
		return answer{status: 200, reference: found[0].id}
	case slices.ContainsFunc(e.instances, func(i *instance) bool { return i.key == d.Key && i.isPast(d.Message) }):
		return refusal(410, "already-through", "The process is past the point that waits for the message.")
	default:
		return refusal(404, "not-waiting", "No instance waits for the message.")
	}
}
