package config

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// check reports what the file says and cannot be.
func (r *reader) check(cfg *Config) {
	if !r.has("consumer") {
		r.fault("consumer", "the configuration needs a consumer: one name for this deployment, which never changes")
	} else {
		r.checkName("consumer", "consumer", cfg.Consumer)
	}
	for _, name := range r.engineNames(cfg) {
		r.checkEngine("engines."+name, cfg.Engines[name])
	}
	if len(cfg.Engines) == 0 {
		r.fault("engines", "the configuration needs at least one engine")
	}
	if len(cfg.Routes) == 0 {
		r.fault("routes", "the configuration needs at least one route")
	}
	first := map[string]int{}
	for i := range cfg.Routes {
		path := routePath(i)
		route := &cfg.Routes[i]
		r.checkRoute(path, route, cfg)
		if j, ok := first[route.Name]; ok && route.Name != "" {
			r.fault(path+".name", "the route %q is here twice, first as %s; names must be unique", route.Name, routePath(j))
		} else {
			first[route.Name] = i
		}
	}
	r.checkRetention(&cfg.Retention)
	r.checkRelay(cfg)
	r.checkClaimCheck(&cfg.ClaimCheck)
	for i, name := range cfg.TraceAttributes {
		if begin, _ := strings.CutSuffix(name, "*"); begin == "" || strings.Contains(begin, "*") || strings.TrimSpace(name) != name {
			r.fault("traceAttributes["+itoa(i)+"]", "%q names no attribute; write a name, or the beginning of one with a * behind it", name)
		}
	}
}

// engineNames returns the engines in the order of the file.
func (r *reader) engineNames(cfg *Config) []string {
	names := make([]string, 0, len(cfg.Engines))
	for name := range cfg.Engines {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		x, y := r.places["engines."+a], r.places["engines."+b]
		if x.line != y.line {
			return x.line - y.line
		}
		return strings.Compare(a, b)
	})
	return names
}

// engineKinds are the engines that the relay has an adapter for.
var engineKinds = []string{KindHTTP, KindFlowable}

func (r *reader) checkEngine(path string, e Engine) {
	r.checkName(path, "engine", e.Name)
	switch {
	case e.Kind == "":
		r.fault(path+".kind", "the engine needs a kind: %s", strings.Join(engineKinds, ", "))
	case !slices.Contains(engineKinds, e.Kind):
		r.fault(path+".kind", "there is no engine of kind %q; there are %s", e.Kind, strings.Join(engineKinds, ", "))
	}
	r.checkURL(path+".url", e.URL)
	if e.Timeout <= 0 {
		r.fault(path+".timeout", "the timeout must be longer than zero: it bounds each call")
	}
	if e.MaxAnswerBytes < 1 || e.MaxAnswerBytes > maxAnswer {
		r.fault(path+".maxAnswerBytes", "this must be from 1 to %d: an answer is held in memory", maxAnswer)
	}
	r.checkAuth(path+".auth", e.Auth)
	if e.Kind == KindFlowable {
		r.checkFlowable(path, e)
	} else {
		for _, name := range flowableOnly {
			if r.has(path + "." + name) {
				r.fault(path+"."+name, "only an engine of kind %s has a use for %s; remove it, or change the kind", KindFlowable, name)
			}
		}
	}
	for name, value := range e.Headers {
		r.checkHeader(path+".headers."+name, name, value)
		if e.Kind == KindFlowable && slices.Contains(flowableHeaders, strings.ToLower(name)) {
			r.fault(path+".headers."+name, "%s is set by the inbox; remove it", name)
		}
	}
	for status, verdict := range e.Statuses {
		at := path + ".statuses." + status
		if !statusPattern.MatchString(status) {
			r.fault(at, "%q is no HTTP status; write one as \"409\", or a class of them as \"4xx\"", status)
		}
		if !slices.Contains(verdicts, verdict) {
			r.fault(at, "%q is no verdict; there are %s", verdict, strings.Join(verdicts, ", "))
		}
	}
}

// flowableOnly are the settings of an engine that only Flowable has.
var flowableOnly = []string{"processDefinitionKey", "tenant", "correlation", "variableTypes"}

// flowableHeaders are those that the adapter does not take, beside those that no engine can be sent.
var flowableHeaders = []string{
	"accept-encoding", "content-encoding", "content-type", "expect", "keep-alive", "proxy-connection", "te", "trailer", "upgrade",
}

// checkFlowable reports settings that Flowable does not have, and values that it has no use for.
func (r *reader) checkFlowable(path string, e Engine) {
	if r.has(path + ".statuses") {
		r.fault(path+".statuses", "a status alone says nothing about Flowable, which is asked for evidence instead; remove it")
	}
	if e.Idempotent {
		r.fault(path+".idempotent", "Flowable does not recognise a delivery that it has had: it is looked up; remove this")
	}
	if !e.Probe {
		r.fault(path+".probe", "a delivery of unknown outcome is always looked up; remove this")
	}
	if e.Auth.Kind == AuthOIDC {
		r.fault(path+".auth.kind", "there is no auth of kind oidc for Flowable; there are none, basic, bearer")
	}
	if u, err := url.Parse(e.URL); err == nil && u.RawQuery != "" {
		r.fault(path+".url", "the URL must be the base of Flowable's REST API, without a query")
	}
	if e.Flowable.CorrelationVariable == "" {
		r.fault(path+".correlation", "Flowable needs a correlation, such as {variable: workOrderId}: the process variable that holds a "+
			"message's key")
	}
	if t := e.Flowable.CorrelationType; t != "" && !slices.Contains(correlationTypes, t) {
		r.fault(path+".correlation.type", "%q is no type to compare keys by; there are %s", t, strings.Join(correlationTypes, ", "))
	}
	for name, t := range e.Flowable.VariableTypes {
		if !slices.Contains(variableTypes, t) {
			r.fault(path+".variableTypes."+name, "%q is no type of Flowable's variables; there are %s", t, strings.Join(variableTypes, ", "))
		}
	}
}

// The types are those of package flowable, which a test of package wiring holds together.
var (
	correlationTypes = []string{"string", "integer", "long", "short", "uuid"}
	variableTypes    = []string{
		"string", "integer", "short", "long", "double", "boolean", "bigDecimal", "bigInteger", "json", "uuid", "date", "instant",
		"localDate", "localDateTime",
	}
)

const maxAnswer = 64 << 20

var (
	statusPattern = regexp.MustCompile(`^([2-5]xx|[2-5][0-9][0-9])$`)
	headerPattern = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
	envPattern    = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// verdicts are those that a status can stand for; NotStarted is none, because then nothing was sent.
var verdicts = func() []string {
	all := []engine.Verdict{
		engine.Correlated, engine.Duplicate, engine.HandedOver, engine.NotWaiting, engine.AlreadyThrough, engine.Ambiguous,
		engine.Vanished, engine.Rejected, engine.RetryAfter, engine.Technical, engine.Throttled, engine.Unauthorised,
		engine.Unknown, engine.Drop,
	}
	names := make([]string, len(all))
	for i, v := range all {
		names[i] = strings.ToLower(string(v))
	}
	return names
}()

func (r *reader) checkURL(path, text string) {
	u, err := url.Parse(text)
	switch {
	case text == "":
		r.fault(path, "the engine needs an absolute URL, such as https://engine.example/messages")
	case strings.Contains(text, "${"):
		r.fault(path, "nothing is filled in here: ${...} stands as it is; write the URL out")
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "":
		r.fault(path, "this must be an absolute http or https URL with a host")
	case u.User != nil:
		r.fault(path, "secrets do not belong into this file; take user and password out of the URL and use auth")
	case u.Fragment != "":
		r.fault(path, "a fragment (#...) is never sent; remove it")
	}
}

func (r *reader) checkAuth(path string, a Auth) {
	settings := map[string]string{
		"username": a.Username, "passwordEnv": a.PasswordEnv, "tokenEnv": a.TokenEnv, "audience": a.Audience,
	}
	needs := map[string][]string{
		AuthNone: {}, AuthBasic: {"username", "passwordEnv"}, AuthBearer: {"tokenEnv"}, AuthOIDC: {"audience"},
	}
	need, ok := needs[a.Kind]
	if !ok {
		r.fault(path+".kind", "there is no auth of kind %q; there are none, basic, bearer, oidc", a.Kind)
		return
	}
	for _, name := range []string{"username", "passwordEnv", "tokenEnv", "audience"} {
		switch wanted := slices.Contains(need, name); {
		case wanted && settings[name] == "":
			r.fault(path+"."+name, "auth of kind %s needs %s", a.Kind, name)
		case !wanted && settings[name] != "":
			r.fault(path+"."+name, "auth of kind %s has no use for %s; remove it, or change the kind", a.Kind, name)
		case strings.HasSuffix(name, "Env") && settings[name] != "" && !envPattern.MatchString(settings[name]):
			// The value may be the secret itself: it is not repeated.
			r.fault(path+"."+name, "this must be the name of an environment variable that holds the secret, never the secret")
		}
	}
}

func (r *reader) checkHeader(path, name, value string) {
	switch strings.ToLower(name) {
	case "authorization", "proxy-authorization", "cookie":
		r.fault(path, "secrets do not belong into this file; use auth")
	case "host", "content-length", "transfer-encoding", "connection":
		r.fault(path, "%s is set by the transport; remove it", name)
	}
	if !headerPattern.MatchString(name) {
		r.fault(path, "%q is no name for a header", name)
	}
	if strings.ContainsFunc(value, func(c rune) bool { return (c < ' ' && c != '\t') || c == 0x7f }) {
		r.fault(path, "the header's value holds a control character")
	}
}

func (r *reader) checkRoute(path string, route *Route, cfg *Config) {
	r.checkName(path+".name", "route", route.Name)
	if _, ok := cfg.Engines[route.Engine]; route.Engine == "" {
		r.fault(path+".engine", "the route needs an engine")
	} else if !ok && len(cfg.Engines) == 0 {
		r.fault(path+".engine", "there is no engine %q, and no other; engines names them", route.Engine)
	} else if !ok {
		r.fault(path+".engine", "there is no engine %q; there are %s", route.Engine, strings.Join(r.engineNames(cfg), ", "))
	}
	if e, ok := cfg.Engines[route.Engine]; route.Start && ok {
		switch {
		case e.Kind != KindFlowable:
			r.fault(path+".start", "only an engine of kind %s can be told to start an instance", KindFlowable)
		case e.Flowable.ProcessDefinitionKey == "":
			r.fault(path+".start", "to start instances the engine %q needs a processDefinitionKey: other processes may have the same "+
				"business keys", route.Engine)
		case route.Key.Absent():
			r.fault(path+".start", "to start instances the route needs a key: it becomes the business key, by which a second start is known")
		}
	}
	if !r.has(path + ".message") {
		r.fault(path+".message", "the route needs a message: the name that the engine knows it by")
	}
	switch hasSequence := r.has(path + ".sequence"); {
	case route.Order == inbox.OrderSequence && !hasSequence:
		r.fault(path+".order", "order: sequence needs a sequence, such as sequence: payload.revision")
	case route.Order != inbox.OrderSequence && hasSequence:
		r.fault(path+".sequence", "a sequence decides nothing with order: %s; remove it, or write order: sequence", route.Order)
	}
	if len(route.KeySpace) > maxName {
		r.fault(path+".keySpace", "the key space has more than %d bytes", maxName)
	}
	if len(route.Versions) > 0 && !r.has(path+".version") {
		r.fault(path+".versions", "versions needs a version, such as version: attributes.schemaVersion; without it no message would pass")
	}
	if r.has(path+".versions") && len(route.Versions) == 0 {
		r.fault(path+".versions", "an empty list accepts no version; leave versions out to accept all")
	}
	for i, version := range route.Versions {
		if len(version) > inbox.MaxType {
			r.fault(path+".versions["+itoa(i)+"]", "a version has at most %d bytes", inbox.MaxType)
		}
	}
	for _, v := range route.Variables {
		if v.Name == "" {
			r.fault(path+".variables", "a variable needs a name")
		}
	}
	r.checkClaim(path, route, cfg)
	if route.DeadLetter == DeadLetterProcess && route.Dedupe.Absent() && (route.Key.Absent() || route.Order == inbox.OrderNone) {
		r.fault(path+".deadLetter", "deadLetter: process needs dedupe, or a key with an order: without either nothing tells whether a "+
			"dead letter was stored before, and it would run a second time")
	}
	if route.Patience < 0 {
		r.fault(path+".patience", "patience must not be negative; 0 parks a message that nobody waits for at once")
	}
	switch retry := route.Retry; {
	case retry.Min <= 0:
		r.fault(path+".retry.min", "retry.min must be longer than zero: without a pause a failing message would be a hot loop")
	case retry.Min > retry.Max:
		r.fault(path+".retry", "retry.min (%s) must not be longer than retry.max (%s)", Duration(retry.Min), Duration(retry.Max))
	case retry.Max > maxRetry:
		r.fault(path+".retry.max", "retry.max must not be longer than %s: a message would look forgotten", Duration(maxRetry))
	}
}

const maxRetry = 7 * day

// maxClaim bounds what is read of an object: each call slot can hold one in memory, and what an expression decodes of it is
// several times as large.
const maxClaim = 64 << 20

func (r *reader) checkClaim(path string, route *Route, cfg *Config) {
	c := route.Claim
	if c == nil {
		for _, v := range route.Variables {
			if p := v.Expr.program; p != nil && p.Refers("claim") {
				r.fault(path+".variables."+v.Name, "claim is what the route's claim refers to, and the route has none")
			}
		}
		if p := route.Message.Expr.program; p != nil && p.Refers("claim") {
			r.fault(path+".message", "claim is what the route's claim refers to, and the route has none")
		}
		return
	}
	at := path + ".claim"
	switch byURI, byName := !c.Reference.Absent(), !c.Bucket.Absent() || !c.Object.Absent(); {
	case byURI && byName:
		r.fault(at, "a claim has a reference, or a bucket and an object, not both")
	case !byURI && (c.Bucket.Absent() || c.Object.Absent()):
		r.fault(at, "a claim needs a reference, such as payload.report (gs://bucket/object), or a bucket and an object, such as "+
			"attributes.bucketId and attributes.objectId")
	}
	if len(cfg.ClaimCheck.Buckets) == 0 {
		r.fault(at, "a claim needs claimCheck.buckets: the buckets that senders may refer to")
	}
	if c.MaxBytes < 1 || c.MaxBytes > maxClaim {
		r.fault(at+".maxBytes", "this must be from 1 to %d: what is read is held in memory", maxClaim)
	}
	if r.has(at+".maxBytes") && !c.Read {
		r.fault(at+".maxBytes", "this bounds what is read, and without read: true nothing is; remove it")
	}
}

func (r *reader) checkClaimCheck(c *ClaimCheck) {
	if c.Threshold < 1 || c.Threshold > inbox.MaxInlinePayload {
		r.fault("claimCheck.threshold", "this must be from 1 to %d: a larger payload does not fit its row", inbox.MaxInlinePayload)
	}
	for i, bucket := range c.Buckets {
		if _, err := inbox.Reference(bucket, "x", "", ""); err != nil {
			r.fault("claimCheck.buckets["+itoa(i)+"]", "%q is no bucket's name; write it without gs:// and folders", bucket)
		}
	}
}

func (r *reader) checkRetention(k *Retention) {
	for _, d := range []struct {
		path string
		time time.Duration
	}{
		{"retention.payload", k.Payload},
		{"retention.waysBack.subscription", k.WaysBack.Subscription},
		{"retention.waysBack.deadLetter", k.WaysBack.DeadLetter},
		{"retention.waysBack.replay", k.WaysBack.Replay},
	} {
		if d.time < 0 {
			r.fault(d.path, "this must not be negative")
		} else if d.time > maxRetention {
			r.fault(d.path, "this must not be longer than %s", Duration(maxRetention))
		}
	}
	if k.Processed > maxRetention {
		r.fault("retention.processed", "this must not be longer than %s", Duration(maxRetention))
	}
	if sum := k.WaysBack.Sum(); k.Processed < sum {
		r.fault("retention.processed", "%s is shorter than the sum of waysBack (%s): a message could come back when nobody "+
			"remembers that it was processed, and run twice; keep processed for %s or longer, or say in waysBack how short "+
			"the ways really are", Duration(k.Processed), Duration(sum), Duration(sum))
	}
	if k.Payload > k.Processed {
		r.fault("retention.payload", "%s is longer than retention.processed (%s): a payload goes with its row",
			Duration(k.Payload), Duration(k.Processed))
	}
}

// maxRetention keeps sums of times within a duration.
const maxRetention = 10 * 366 * day

// leaseMargin is for what a worker does besides its call at least: it reads the payload and settles. A claim may take a quarter
// of the lease before anything can start (see relayer.Run), so that the margin is no less than that.
const leaseMargin = 2 * time.Second

// shortestLease is the lease that leaves time for twice the timeout of a call, however long its claim was allowed to take.
func shortestLease(timeout time.Duration) time.Duration {
	// lease - lease/4 >= 2 * timeout, in whole seconds.
	withQuarter := (8*timeout + 3*time.Second - 1) / (3 * time.Second) * time.Second
	return max(2*timeout+leaseMargin, withQuarter)
}

func (r *reader) checkRelay(cfg *Config) {
	relay := cfg.Relay
	for _, d := range []struct {
		path string
		time time.Duration
	}{
		{"relay.budget", relay.Budget}, {"relay.poll", relay.Poll}, {"relay.lease", relay.Lease},
		{"relay.poison.over", relay.Poison.Over},
	} {
		if d.time <= 0 {
			r.fault(d.path, "this must be longer than zero")
		}
	}
	if relay.Budget > time.Hour {
		r.fault("relay.budget", "a run must not be longer than an hour: no function lives longer")
	}
	if relay.Parallel < 1 || relay.Parallel > maxParallel {
		r.fault("relay.parallel", "this must be from 1 to %d: each is a lane at work, with a call and a payload in memory", maxParallel)
	}
	if relay.Batch < 1 || relay.Batch > maxBatch {
		r.fault("relay.batch", "this must be from 1 to %d: a claim is one transaction, and Spanner takes 80,000 mutations in one, "+
			"counted by column and index", maxBatch)
	}
	for _, n := range []struct {
		path  string
		count int
	}{
		{"relay.poison.failures", relay.Poison.Failures}, {"relay.lostWorkers", relay.LostWorkers},
		{"relay.breaker.failures", relay.Breaker.Failures},
	} {
		if n.count < 1 {
			r.fault(n.path, "this must be at least 1")
		}
	}
	name, longest := r.slowest(cfg)
	if need := shortestLease(longest); relay.Lease > 0 && relay.Lease < need {
		r.fault("relay.lease", "%s is too short for the engine %q: a claim may take a quarter of the lease, and a call starts only while "+
			"the lease has twice its timeout (%s) left; make the lease %s or longer, or the timeout shorter", Duration(relay.Lease), name, Duration(longest), Duration(need))
	}
}

const (
	maxParallel = 1000
	maxBatch    = 500
)

// slowest returns the engine with the longest timeout.
func (r *reader) slowest(cfg *Config) (name string, timeout time.Duration) {
	for _, n := range r.engineNames(cfg) {
		if t := cfg.Engines[n].Timeout; t > timeout {
			name, timeout = n, t
		}
	}
	return name, min(timeout, maxRetention) // twice that must still be a duration
}
