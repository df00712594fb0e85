package config

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/routing/expr"
)

func itoa(i int) string { return strconv.Itoa(i) }

func routePath(i int) string { return "routes[" + itoa(i) + "]" }

// Duration prints a duration as the file would: in days where it has whole ones.
func Duration(d time.Duration) string {
	if d >= day && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// longTimeout is where a call of unknown outcome costs an operator's patience.
const longTimeout = 30 * time.Second

// lint warns of what works, and probably not as meant.
func (r *reader) lint(cfg *Config) {
	used := map[string]bool{}
	for _, route := range cfg.Routes {
		used[route.Engine] = true
	}
	for _, name := range r.engineNames(cfg) {
		r.lintEngine("engines."+name, cfg.Engines[name], used[name])
	}
	always := -1
	matches := map[string]string{} // to the route that has it first
	orders := map[string]int{}     // key space to the first route with a key in it
	for i := range cfg.Routes {
		path, route := routePath(i), &cfg.Routes[i]
		if always >= 0 {
			r.warn(path, "no message reaches this route: %s before it matches every one", routePath(always))
		} else if alwaysTrue(route.Match) {
			always = i
		}
		r.lintMatch(path, route, matches)
		r.lintDedupe(path, route)
		r.lintOrder(path, route)
		r.lintCorrelation(path, route, cfg)
		if route.Key.Absent() || route.Order == inbox.OrderNone {
			continue
		}
		if j, ok := orders[route.KeySpace]; !ok {
			orders[route.KeySpace] = i
		} else if other := cfg.Routes[j].Order; other != route.Order {
			r.warn(path+".order", "%s orders the same keys by %s: kinds do not order each other, so messages of the two routes "+
				"pass each other; use one kind, or a keySpace of its own", routePath(j), other)
		}
	}
	r.hintOrder(cfg)
	if cfg.Relay.Poll > cfg.Relay.Budget {
		r.warn("relay.poll", "the pause between two scans is longer than a run (%s): a run looks once", Duration(cfg.Relay.Budget))
	}
	if cfg.Relay.Batch < cfg.Relay.Parallel {
		r.warn("relay.batch", "a claim of %d messages cannot keep %d lanes at work; make batch at least parallel",
			cfg.Relay.Batch, cfg.Relay.Parallel)
	}
	if _, timeout := r.slowest(cfg); cfg.Relay.Lease < cfg.Relay.Budget+timeout {
		r.warn("relay.lease", "the lease is shorter than a whole run and one call (%s): a worker that only is slow can lose it",
			Duration(cfg.Relay.Budget+timeout))
	}
}

// lintMatch warns of a route whose messages an earlier one takes.
func (r *reader) lintMatch(path string, route *Route, matches map[string]string) {
	if route.Match.Absent() {
		return
	}
	text := strings.Join(strings.Fields(route.Match.Text), " ")
	if first, ok := matches[text]; ok {
		r.warn(path+".match", "no message reaches this route: %s has the same match, and is before it", first)
		return
	}
	matches[text] = path
}

// lintLiteral warns of a literal name that would do as an expression.
func (r *reader) lintLiteral(n *node, path string) {
	program, err := expr.Compile(n.text, expr.ForText)
	if err != nil || bareWord.MatchString(n.text) {
		return
	}
	if quoted := strings.HasPrefix(n.text, `"`) || strings.HasPrefix(n.text, "'"); quoted || !program.Constant() {
		r.warnAt(n.line, n.column, path, "this goes out as it stands, as the name itself: only what says attributes., payload., message. or "+
			"claim. is an expression")
	}
}

var bareWord = regexp.MustCompile(`^\w+$`)

// hintOrder tells once of what publish times cannot say. A written order is a decision.
func (r *reader) hintOrder(cfg *Config) {
	for i := range cfg.Routes {
		if path := routePath(i); cfg.Routes[i].Order == inbox.OrderPublished && !cfg.Routes[i].Key.Absent() && !r.has(path+".order") {
			line, column := r.at(path + ".key")
			r.hints = append(r.hints, Warning{File: r.file, Line: line, Column: column, Path: path + ".key",
				Message: "messages of one key are ordered by publish time, which Pub/Sub gives to a whole publish request: if the " +
					"publisher sends several of one key in a row, let it number them and use order: sequence; if not, write order: published"})
			return
		}
	}
}

func (r *reader) lintEngine(path string, e Engine, used bool) {
	if !used {
		r.warn(path, "no route uses this engine")
	}
	if e.Timeout > longTimeout && !e.Idempotent {
		r.warn(path+".timeout", "a call cut off after %s may have had its effect, and this engine is not idempotent: "+
			"shorten the timeout, or let the engine recognise the inbox id", Duration(e.Timeout))
	}
	probed := e.Probe && e.Kind != "http"
	if e.Probe && !probed {
		r.warn(path+".probe", "an engine of kind http cannot be asked what became of a delivery, so this has no effect")
	}
	if !e.Idempotent && !probed {
		r.warn(path, "neither idempotent nor probe: a call of unknown outcome parks its message as POSSIBLY_DELIVERED, "+
			"and a claim takes one message for each free call")
	}
	if u, err := url.Parse(e.URL); err == nil && u.Scheme == "http" && e.Auth.Kind != AuthNone && !local(u.Hostname()) {
		r.warn(path+".url", "the credentials go over plain http")
	}
}

func local(host string) bool { return host == "localhost" || host == "127.0.0.1" || host == "::1" }

func (r *reader) lintDedupe(path string, route *Route) {
	at := path + ".dedupe"
	dedupe := route.Dedupe.program
	if route.Dedupe.Absent() {
		if route.Scope == ScopeConsumer {
			r.warn(path+".scope", "scope says where a dedupe key is unique; without dedupe it decides nothing")
		}
		return
	}
	if dedupe == nil {
		return
	}
	reads := dedupe.Reads()
	switch {
	case dedupe.Constant():
		r.warn(at, "the dedupe key is the same for every message: all but the first would be duplicates")
	case subset(reads, []string{`message["orderingKey"]`, `message["subscription"]`, `message["publishTime"]`}):
		r.warn(at, "the dedupe key has no event-specific part: what it reads is no event's own, and later events would be "+
			"swallowed as duplicates; use the publisher's event id")
	case route.Key.program != nil && subset(reads, route.Key.program.Reads()):
		r.warn(at, "the dedupe key has no event-specific part: it reads what the key reads, so that of all events of one %s "+
			"only the first would run; use the publisher's event id, or hash() the key with what tells the events apart", route.Key.Text)
	}
}

func subset(some, of []string) bool {
	for _, s := range some {
		if !slices.Contains(of, s) {
			return false
		}
	}
	return len(some) > 0
}

func (r *reader) lintOrder(path string, route *Route) {
	if p := route.Key.program; p != nil && p.Constant() {
		r.warn(path+".key", "the key is the same for every message: one strict order over everything, at the speed of one worker")
	}
	if (route.Key.Absent() || route.Order == inbox.OrderNone) && route.Blocks() {
		r.warn(path+".parked", "without a key and an order each message has a lane of its own, and block holds back nothing")
	}
}

// lintDivisions warns of quotients whose fraction depends on the message.
func (r *reader) lintDivisions(n *node, path string, program *expr.Program) {
	for _, at := range program.Divisions() {
		line, column := r.place(n, at.Line, at.Column)
		r.warnAt(line, column, path, "this division has no fraction where both numbers are whole (7 / 2 is 3), and has one otherwise "+
			"(7.5 / 2 is 3.75): write a number with a point, or double(...), to keep it always, and int(...) around both to drop it always")
	}
}

// lintSpellings warns of texts by which a message is told from others, and which depend on how a number was written.
func (r *reader) lintSpellings(n *node, path string, program *expr.Program) {
	for _, at := range program.Spellings() {
		line, column := r.place(n, at.Line, at.Column)
		r.warnAt(line, column, path, "the text of a number is as the publisher wrote it, so that 7 and 7.0 differ: compare the number itself, "+
			"and compose by value, as in \"%s/%s\".format([payload.a, payload.b]) or hash([payload.a, payload.b])")
	}
}

func (r *reader) lintCorrelation(path string, route *Route, cfg *Config) {
	name := cfg.Engines[route.Engine].Flowable.CorrelationVariable
	for _, v := range route.Variables {
		if v.Name == name && name != "" {
			r.warn(path+".variables."+name, "this is the correlation variable of the engine %q, by which its instances are found: "+
				"the key is sent in its place; remove it", route.Engine)
		}
	}
}

// alwaysTrue reports whether a match matches whatever comes.
func alwaysTrue(match Expr) bool {
	if match.Absent() {
		return true
	}
	return match.program != nil && match.program.Constant() && match.program.Bool(expr.NewInput(expr.Message{}, nil, nil))
}
