package telemetry

// Kind is what a metric's numbers mean.
type Kind string

const (
	Counter   Kind = "counter"   // grows from the start of its process
	Gauge     Kind = "gauge"     // the state of the table, as one run of the relay has read it
	Histogram Kind = "histogram" // a distribution, cumulative from the start of its process
)

// Metric is one row of the table of record, docs/metrics.md. The instruments are made from these rows and from nothing
// else, so that what is exported and what is documented cannot differ.
type Metric struct {
	Name    string
	Kind    Kind
	Unit    string   // as UCUM writes it: s, or what is counted in braces
	Labels  []string // in the order in which values are given; a bounded number of values each
	By      string   // the function that writes it
	Meaning string
	Action  string // what to do when it moves

	buckets []float64
}

// Labels. "other" stands for values beyond a bound, "none" for those a message does not have.
const (
	labelConsumer = "consumer"
	labelRoute    = "route"
	labelType     = "type"
	labelStatus   = "status"
	labelReason   = "reason"
	labelCode     = "code"
	labelOutcome  = "outcome"
	labelEngine   = "engine"
	labelVerdict  = "verdict"
	labelResult   = "result"
	labelCapped   = "capped"
	labelState    = "state"
	labelTenant   = "tenant" // only with INBOX_METRIC_TENANTS
)

var (
	shortSeconds = []float64{0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}
	callSeconds  = []float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}
	runSeconds   = []float64{0.1, 0.5, 1, 5, 15, 30, 45, 60, 90, 120, 300}
	longSeconds  = []float64{0.5, 1, 2, 5, 10, 30, 60, 300, 900, 3600, 21600, 86400, 604800}
	smallCounts  = []float64{1, 2, 3, 5, 10, 20, 50, 100}
)

// all is the table, in the order of its declarations.
var all []*Metric

func row(m Metric) *Metric {
	all = append(all, &m)
	return &m
}

// Metrics returns the table of record.
func Metrics() []Metric {
	table := make([]Metric, len(all))
	for i, m := range all {
		table[i] = *m
	}
	return table
}

const (
	byReceive = "receive"
	byRelay   = "relay"
	byReport  = "relay, one run"
)

// What receive counts.
var (
	received = row(Metric{Name: "inbox_received_total", Kind: Counter, Unit: "{message}", By: byReceive,
		Labels:  []string{labelConsumer, labelRoute, labelType, labelStatus, labelReason},
		Meaning: "New rows. `status` is RECEIVED, or PARKED with its `reason` for what is parked on arrival.",
		Action:  "No growth while the topic has traffic: look at the subscription's push errors. Many PARKED: see `inbox_parked_messages`."})
	redelivered = row(Metric{Name: "inbox_redelivered_total", Kind: Counter, Unit: "{message}", By: byReceive,
		Labels:  []string{labelConsumer, labelRoute},
		Meaning: "Deliveries whose row was there: redelivered by Pub/Sub, or published again under the same identity.",
		Action:  "A jump: publishers that miss their confirmations, acknowledgement deadlines that are too short (compare `inbox_commit_seconds`), or a replay."})
	conflicts = row(Metric{Name: "inbox_conflicts_total", Kind: Counter, Unit: "{message}", By: byReceive,
		Labels:  []string{labelConsumer, labelRoute},
		Meaning: "Messages with other content under an identity that is taken; each is PARKED as DEDUPE_CONFLICT.",
		Action:  "The route's `dedupe` has no event-specific part, or a publisher uses ids twice. See the parked rows."})
	refused = row(Metric{Name: "inbox_refused_requests_total", Kind: Counter, Unit: "{request}", By: byReceive,
		Labels:  []string{labelConsumer, labelCode},
		Meaning: "Requests answered without a row, by HTTP status.",
		Action:  "400: a subscription without the wrapper, or no subscription at all. 401, 403: its identity. 413: over the size limit. 503: Spanner, Cloud Storage or the key server; see `/health/ready`. 500: a panic; see the log."})
	deadLetters = row(Metric{Name: "inbox_dead_letters_total", Kind: Counter, Unit: "{message}", By: byReceive,
		Labels:  []string{labelConsumer, labelOutcome},
		Meaning: "Messages that came through the dead-letter topic: `stored`, or `known` because their row was there.",
		Action:  "Each one was refused for as long as its subscription allows: find out by whom (`inbox_refused_requests_total`, the platform's own errors), then repair the parked rows."})
	equalPayloads = row(Metric{Name: "inbox_equal_payloads_total", Kind: Counter, Unit: "{message}", By: byReceive,
		Labels: []string{labelConsumer, labelRoute},
		Meaning: "New rows whose payload, not empty, equals that of another row of the same route. Approximate: each instance remembers " +
			"the hashes of the last 10,000 payloads that it has stored, and sees no other instance's.",
		Action: "A publisher that sends one event again and again under new ids: give the route a `dedupe`. Payloads that are equal by nature, such as heartbeats, count too."})
	brokerAttempts = row(Metric{Name: "inbox_broker_delivery_attempts", Kind: Histogram, Unit: "{attempt}", By: byReceive, buckets: smallCounts,
		Labels:  []string{labelConsumer},
		Meaning: "Pub/Sub's own count of delivery attempts, with each delivery. Only subscriptions with a dead-letter policy say it.",
		Action:  "Beside `inbox_attempts`: many here and few there means that receive is refused or slow; the other way round, the engine is."})
	commitSeconds = row(Metric{Name: "inbox_commit_seconds", Kind: Histogram, Unit: "s", By: byReceive, buckets: shortSeconds,
		Labels:  []string{labelConsumer},
		Meaning: "Time of the commit that stores a message, refused ones included.",
		Action:  "Above a second: Spanner's latency and load, or the distance to its leader."})
)

// What the relay counts.
var (
	processed = row(Metric{Name: "inbox_processed_total", Kind: Counter, Unit: "{message}", By: byRelay,
		Labels:  []string{labelConsumer, labelRoute, labelType, labelEngine},
		Meaning: "Messages that became PROCESSED, those handed over included.",
		Action:  "No growth while `inbox_open_messages` stands: see `inbox_relay_runs_total`, then `inbox_technical_failures_total`."})
	handedOver = row(Metric{Name: "inbox_handed_over_total", Kind: Counter, Unit: "{message}", By: byRelay,
		Labels:  []string{labelConsumer, labelRoute, labelEngine},
		Meaning: "Of the processed ones, those that the engine has taken and not yet acted upon.",
		Action:  "Nothing by itself; what becomes of them shows in the engine only."})
	retried = row(Metric{Name: "inbox_retried_total", Kind: Counter, Unit: "{attempt}", By: byRelay,
		Labels:  []string{labelConsumer, labelRoute, labelEngine, labelVerdict},
		Meaning: "Attempts after which the message waits for the next one.",
		Action:  "NOT_WAITING heals where messages overtake their process. TECHNICAL, THROTTLED, UNKNOWN: the engine."})
	parked = row(Metric{Name: "inbox_parked_total", Kind: Counter, Unit: "{message}", By: byReceive + ", " + byRelay,
		Labels:  []string{labelConsumer, labelRoute, labelReason},
		Meaning: "Messages that became PARKED, on arrival or later.",
		Action:  "As for `inbox_parked_messages`, on which an alert belongs: an instance that has ended counts no more."})
	discarded = row(Metric{Name: "inbox_discarded_total", Kind: Counter, Unit: "{message}", By: byRelay,
		Labels:  []string{labelConsumer, labelRoute, labelEngine},
		Meaning: "Messages that their engine wanted closed.",
		Action:  "Unexpected ones: the engine's explicit answer is in the row."})
	technicalFailures = row(Metric{Name: "inbox_technical_failures_total", Kind: Counter, Unit: "{attempt}", By: byRelay,
		Labels:  []string{labelConsumer, labelEngine, labelVerdict},
		Meaning: "Attempts that failed for the engine's sake: TECHNICAL, THROTTLED, UNKNOWN, UNAUTHORISED.",
		Action:  "UNAUTHORISED: while inbox_engine_paused is 1 the credentials, at once; else one message that something in front of the engine refuses. The others: the engine's own health; messages wait and none is parked for an outage."})
	poisoned = row(Metric{Name: "inbox_poisoned_total", Kind: Counter, Unit: "{message}", By: byRelay,
		Labels:  []string{labelConsumer, labelRoute},
		Meaning: "Messages that became PARKED as POISONED: they fail, or cost their worker, while others pass.",
		Action:  "Look at the row's attempts (`inboxctl show`); it is the message or the code that handles it."})
	lostWorkers = row(Metric{Name: "inbox_lost_workers_total", Kind: Counter, Unit: "{attempt}", By: byRelay,
		Labels:  []string{labelConsumer},
		Meaning: "Attempts whose lease ran out without a result: the process died, or lost the database.",
		Action:  "Out of memory, a crash, or a kill without SIGTERM: see the platform's log of the relay."})
	lateResults = row(Metric{Name: "inbox_late_results_total", Kind: Counter, Unit: "{attempt}", By: byRelay,
		Labels:  []string{labelConsumer},
		Meaning: "Results that came after their lease and changed nothing. Each is kept as an attempt.",
		Action:  "`relay.lease` against the engine's timeout, and whether the relay is starved of CPU."})
	attempts = row(Metric{Name: "inbox_attempts", Kind: Histogram, Unit: "{attempt}", By: byRelay, buckets: smallCounts,
		Labels:  []string{labelConsumer, labelRoute},
		Meaning: "Attempts that a message took until it was PROCESSED or DISCARDED.",
		Action:  "More than one as a rule: messages come before their process waits; compare `inbox_retried_total` by verdict."})
	publishToCorrelation = row(Metric{Name: "inbox_publish_to_correlation_seconds", Kind: Histogram, Unit: "s", By: byRelay, buckets: longSeconds,
		Labels:  []string{labelConsumer, labelRoute},
		Meaning: "From the publish time to PROCESSED. Messages of unknown publish time are left out.",
		Action:  "Above what the process bears: the relay's poll and budget, its schedule, `inbox_engine_call_seconds`."})
	engineCallSeconds = row(Metric{Name: "inbox_engine_call_seconds", Kind: Histogram, Unit: "s", By: byRelay, buckets: callSeconds,
		Labels:  []string{labelConsumer, labelEngine, labelVerdict},
		Meaning: "Time of a call that delivers, token and connection included. Calls that were not sent are left out.",
		Action:  "Close to the engine's `timeout`: the engine."})
	claimSeconds = row(Metric{Name: "inbox_claim_seconds", Kind: Histogram, Unit: "s", By: byRelay, buckets: shortSeconds,
		Labels:  []string{labelConsumer},
		Meaning: "Time of a claim that was committed, whatever it found. One that fails is an error in the log.",
		Action:  "Above a second: Spanner's latency, or relays that get in each other's way."})
	settleSeconds = row(Metric{Name: "inbox_settle_seconds", Kind: Histogram, Unit: "s", By: byRelay, buckets: shortSeconds,
		Labels:  []string{labelConsumer},
		Meaning: "Time of settling a batch of results, its repetitions lane by lane included.",
		Action:  "As for `inbox_claim_seconds`; near a quarter of `relay.lease` results begin to be late."})
	relayRuns = row(Metric{Name: "inbox_relay_runs_total", Kind: Counter, Unit: "{run}", By: byRelay,
		Labels:  []string{labelConsumer, labelResult},
		Meaning: "Runs that have ended: `ok`, or `failed` because the store failed them.",
		Action:  "`failed`: the error is in the log. No growth at all: Cloud Scheduler's job, its identity, the relay's own start."})
	relayRunSeconds = row(Metric{Name: "inbox_relay_run_seconds", Kind: Histogram, Unit: "s", By: byRelay, buckets: runSeconds,
		Labels:  []string{labelConsumer},
		Meaning: "How long a run took.",
		Action:  "Far beyond `relay.budget`: calls that outlast it; see `inbox_engine_call_seconds`."})
)

// What one run at a time, the one that holds the reporter's lease, reads from the table. Zero is written as zero.
var (
	oldestOpenAge = row(Metric{Name: "inbox_oldest_open_age_seconds", Kind: Gauge, Unit: "s", By: byReport,
		Labels:  []string{labelConsumer},
		Meaning: "How long ago the oldest open message was received.",
		Action:  "Growing: nothing relays it. `inboxctl list --status RECEIVED,RETRYING` says what it waits for."})
	oldestProcessingAge = row(Metric{Name: "inbox_oldest_processing_age_seconds", Kind: Gauge, Unit: "s", By: byReport,
		Labels:  []string{labelConsumer},
		Meaning: "How long ago the oldest attempt that is under way was recorded. Beyond the cap of `inbox_open_messages`: among the oldest.",
		Action:  "Above `relay.lease`: a worker was lost and nobody takes over; `inboxctl list --stuck`."})
	oldestExpiredLeaseAge = row(Metric{Name: "inbox_oldest_expired_lease_age_seconds", Kind: Gauge, Unit: "s", By: byReport,
		Labels:  []string{labelConsumer},
		Meaning: "How long ago the oldest lease ran out that nobody has taken over.",
		Action:  "Above two or three schedule intervals: no relay runs, or it fails; see `inbox_relay_runs_total`."})
	openMessages = row(Metric{Name: "inbox_open_messages", Kind: Gauge, Unit: "{message}", By: byReport,
		Labels:  []string{labelConsumer, labelCapped},
		Meaning: "Open messages. At most 10,000 are counted: with `capped` true there are that many or more.",
		Action:  "Growing over hours: the engine's or the relay's throughput. The age says more than the number."})
	parkedMessages = row(Metric{Name: "inbox_parked_messages", Kind: Gauge, Unit: "{message}", By: byReport,
		Labels:  []string{labelConsumer, labelReason},
		Meaning: "Parked messages, for every reason there is. At most 1,000 of a reason are counted: 1000 means that many or more.",
		Action:  "Any: a person is needed. `inboxctl list --status PARKED --reason REASON`, repair the cause, then reopen."})
	unknownRoutes = row(Metric{Name: "inbox_unknown_route_messages", Kind: Gauge, Unit: "{message}", By: byReport,
		Labels:  []string{labelConsumer},
		Meaning: "Open messages of routes that the reporting run's configuration lacks. Beyond the cap of `inbox_open_messages`: among those counted.",
		Action:  "A route was renamed or removed: bring the name back, or `inboxctl reroute`. For minutes during a deployment it is normal."})
	enginePaused = row(Metric{Name: "inbox_engine_paused", Kind: Gauge, Unit: "", By: byReport,
		Labels:  []string{labelConsumer, labelEngine},
		Meaning: "1 while an engine is paused, by a person or because it refuses our credentials; else 0.",
		Action:  "`Engines.PausedBy` and `OpenReason` say by whom. Messages wait; none is parked for it."})
	engineBreaker = row(Metric{Name: "inbox_engine_breaker_open", Kind: Gauge, Unit: "", By: byReport,
		Labels:  []string{labelConsumer, labelEngine},
		Meaning: "1 while an engine's breaker is open, whatever for; else 0.",
		Action:  "The engine is down or wants less; it is probed, and closes by itself."})
	lanes = row(Metric{Name: "inbox_lanes", Kind: Gauge, Unit: "{lane}", By: byReport,
		Labels: []string{labelConsumer, labelState},
		Meaning: "Lanes that are `due` and not leased, `leased`, `blocked` by a parked message, or `held` by a person. At most 10,000 of " +
			"each are counted. A blocked lane counts once a relay has met its parked message.",
		Action: "`due` that stays: too few or failing runs. `blocked`: repair the parked message. `held`: whoever holds them."})
)
