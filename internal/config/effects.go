package config

// setting is what Compare knows of a field of the configuration's types.
type setting struct {
	path string // in the file, below the route, the engine or the whole
	// What a change does to messages in flight: a sentence. Empty: nothing, and nothing says why.
	effect  string
	nothing string
}

const (
	describing  = "it only describes, is kept on the row, and changes with a reroute"
	dispatching = "it says how much is done at a time, and not what is done to a message"

	anotherLane = "New messages go into other lanes than the stored ones of the same key, and the two do not wait for each " +
		"other: let the open rows of the route be worked off first where order matters."
	looksElsewhere = "Stored messages go there at their next attempt; one of unknown outcome is looked up there, or sent again, " +
		"where nobody may know of it: let those be worked off first."
	storedReference = "Stored messages keep the object that they were stored with; one without any is evaluated by it at its next " +
		"attempt."
	credentials = "Attempts from now on show these credentials, those of stored messages too."
	countsStay  = "The counts of stored messages stay: one that has reached it already is parked as POISONED the next time that it " +
		"is counted."
)

// settings has every field of the configuration's types, by type and name; a test holds that against the types. A field
// that is a part with fields of its own has none but its path.
var settings = map[string]setting{
	"Config.Consumer": {path: "consumer", effect: "The consumer is part of every id: rows of the old name are relayed no more and " +
		"must be worked off first, and a message that comes back is taken as new and runs a second time."},
	"Config.Engines":    {path: "engines"},
	"Config.Routes":     {path: "routes"},
	"Config.Retention":  {path: "retention"},
	"Config.Relay":      {path: "relay"},
	"Config.ClaimCheck": {path: "claimCheck"},
	"Config.TraceAttributes": {path: "traceAttributes", effect: "A name that is taken out is content again: where a message was stored " +
		"meanwhile and carries it, its redelivery is other content and is parked as DEDUPE_CONFLICT. A name that is added holds for " +
		"redeliveries of stored messages too."},
	"Config.Warnings": {nothing: "it is what the check says"},
	"Config.Hints":    {nothing: "it is what the check says"},

	"Engine.Name": {nothing: "engines are compared by it"},
	"Engine.Kind": {path: "kind", effect: looksElsewhere},
	"Engine.URL":  {path: "url", effect: looksElsewhere + " A pause and an open breaker are the name's, and stay."},
	"Engine.Timeout": {path: "timeout", effect: "Attempts from now on are cut off after it, those of stored messages too; one that " +
		"was sent by then has an unknown outcome."},
	"Engine.Idempotent": {path: "idempotent", effect: "A message whose outcome is unknown is judged by it at its next attempt, whatever " +
		"held when it was sent: true sends it again, false parks it as POSSIBLY_DELIVERED unless the engine can be asked."},
	"Engine.Probe": {path: "probe", effect: "A message whose outcome is unknown is judged by it at its next attempt, whatever held when it " +
		"was sent: true looks it up, false sends it again or parks it as POSSIBLY_DELIVERED."},
	"Engine.Auth":    {path: "auth"},
	"Engine.Headers": {path: "headers", effect: "Attempts from now on are sent with it as it is now, those of stored messages too."},
	"Engine.Statuses": {path: "statuses", effect: "Answers from now on are read by it, those about stored messages too: a verdict that " +
		"closes a message closes it, and one that parks it parks it."},
	"Engine.MaxAnswerBytes": {path: "maxAnswerBytes", effect: "Of a longer answer only the status counts, from now on; what its body says " +
		"about a stored message is not read."},
	"Engine.Flowable": {},

	"Flowable.ProcessDefinitionKey": {path: "processDefinitionKey", effect: looksElsewhere},
	"Flowable.Tenant":               {path: "tenant", effect: looksElsewhere},
	"Flowable.CorrelationVariable":  {path: "correlation.variable", effect: looksElsewhere},
	"Flowable.CorrelationType":      {path: "correlation.type", effect: looksElsewhere},
	"Flowable.VariableTypes": {path: "variableTypes", effect: "Stored messages send it as that type at their next attempt; a value that is " +
		"not of the type parks its message as REJECTED."},

	"Auth.Kind":        {path: "kind", effect: credentials},
	"Auth.Username":    {path: "username", effect: credentials},
	"Auth.PasswordEnv": {path: "passwordEnv", effect: credentials},
	"Auth.TokenEnv":    {path: "tokenEnv", effect: credentials},
	"Auth.Audience":    {path: "audience", effect: credentials},

	"Route.Name":          {path: "name", nothing: "routes are compared by it"},
	"Route.Line":          {nothing: "it is a place in the file"},
	"Route.Match":         {path: "match", effect: "Messages are routed otherwise from now on; stored ones keep their route."},
	"Route.Type":          {path: "type", nothing: describing},
	"Route.Tenant":        {path: "tenant", nothing: describing},
	"Route.AggregateType": {path: "aggregateType", nothing: describing},
	"Route.CorrelationID": {path: "correlationId", nothing: describing},
	"Route.CausationID":   {path: "causationId", nothing: describing},
	"Route.Version": {path: "version", effect: "Stored messages keep the version of their row, which versions goes by, until they are " +
		"rerouted."},
	"Route.Key":      {path: "key", effect: anotherLane},
	"Route.KeySpace": {path: "keySpace", effect: anotherLane},
	"Route.Dedupe": {path: "dedupe", effect: "The dedupe key is the id: an event republished across the change is taken as new and runs " +
		"a second time; a redelivery finds its row all the same."},
	"Route.Scope": {path: "scope", effect: "The scope is part of the id: a message republished across the change is taken as new and runs " +
		"a second time; a redelivery finds its row all the same."},
	"Route.Order": {path: "order", effect: anotherLane},
	"Route.Sequence": {path: "sequence", effect: "New messages are placed among the stored ones of their lane by another measure: one that " +
		"comes out below the last finished position is late, and passes the others."},
	"Route.Engine": {path: "engine", effect: "Stored messages go to the new engine at their next attempt; an attempt of unknown outcome is " +
		"looked up there, where nobody knows of it: let those be worked off first."},
	"Route.Message": {path: "message", effect: "Stored messages are sent under it at their next attempt; one of unknown outcome is looked " +
		"up, or sent again, under it, and the engine may know it by the old name: let those be worked off first."},
	"Route.Start": {path: "start", effect: "Stored messages follow at their next attempt; an attempt of unknown outcome is looked up in the " +
		"new way: let those be worked off first."},
	"Route.Variables": {path: "variables", effect: "Stored messages are sent with it at their next attempt, those of unknown outcome too; " +
		"one that it has no value for is parked as CONTRACT."},
	"Route.Schema": {path: "schema", effect: "Stored messages are held to it at their next attempt: one that violates it is parked as " +
		"CONTRACT."},
	"Route.Versions": {path: "versions", effect: "Stored messages are held to it at their next attempt: one of another version is parked as " +
		"CONTRACT."},
	"Route.Claim":      {path: "claim"},
	"Route.DeadLetter": {path: "deadLetter", effect: "Dead letters to come go by it; those that are stored run, or stay parked, as before."},
	"Route.Patience": {path: "patience", effect: "The next answer that nobody waits for it is measured by it: a stored message that has " +
		"waited longer already is parked."},
	"Route.Retry": {path: "retry"},
	"Route.Parked": {path: "parked", effect: "It is kept on the row: stored messages, parked ones too, close their lane or let others pass " +
		"as before, until they are rerouted."},

	"Claim.Reference":  {path: "reference", effect: storedReference},
	"Claim.Bucket":     {path: "bucket", effect: storedReference},
	"Claim.Object":     {path: "object", effect: storedReference},
	"Claim.Generation": {path: "generation", effect: storedReference},
	"Claim.SHA256":     {path: "sha256", effect: storedReference},
	"Claim.Read": {path: "read", effect: "Stored messages follow at their next attempt: with true they send what the object holds, which is " +
		"checked first; with false they only say where it is."},
	"Claim.MaxBytes": {path: "maxBytes", effect: "Stored messages are held to it at their next attempt: one that refers to a larger object " +
		"is parked as PAYLOAD_TOO_LARGE."},

	"Retry.Min": {path: "min", effect: "Waits that begin from now on go by it, those of stored messages and between probes of the engine " +
		"too; a wait that has begun ends as it would."},
	"Retry.Max": {path: "max", effect: "Waits that begin from now on go by it, those of stored messages and between probes of the engine " +
		"too; a wait that has begun ends as it would."},

	"Retention.Processed": {path: "processed", effect: "Messages that finish from now on are remembered so long, stored ones too; one that " +
		"has finished keeps its end."},
	"Retention.Payload": {path: "payload", effect: "Payloads of messages that finish from now on are kept so long, stored ones too; one " +
		"whose message has finished keeps its end."},
	"Retention.WaysBack":    {path: "waysBack"},
	"WaysBack.Subscription": {path: "subscription", nothing: "it states how Pub/Sub is configured, for the check"},
	"WaysBack.DeadLetter":   {path: "deadLetter", nothing: "it states how Pub/Sub is configured, for the check"},
	"WaysBack.Replay":       {path: "replay", nothing: "it states how long somebody may publish again, for the check"},

	"Relay.Budget":   {path: "budget", nothing: dispatching},
	"Relay.Poll":     {path: "poll", nothing: dispatching},
	"Relay.Parallel": {path: "parallel", nothing: dispatching},
	"Relay.Batch":    {path: "batch", nothing: dispatching},
	"Relay.Lease": {path: "lease", effect: "Claims from now on hold their lanes so long; what is claimed keeps the end of its lease, also if " +
		"its worker does not come back."},
	"Relay.Poison":      {path: "poison"},
	"Relay.LostWorkers": {path: "lostWorkers", effect: countsStay},
	"Relay.Breaker":     {path: "breaker"},
	"Poison.Failures":   {path: "failures", effect: countsStay},
	"Poison.Over":       {path: "over", effect: countsStay},
	"Breaker.Failures": {path: "failures", effect: "The failures that an engine has in a row are counted on, and its breaker opens when they " +
		"reach it."},

	"ClaimCheck.Threshold": {path: "threshold", nothing: "a payload stays where it was put when it came"},
	"ClaimCheck.Buckets": {path: "buckets", effect: "Stored messages are held to it at their next attempt: one that refers to a bucket which " +
		"is not in the list is parked as CONTRACT."},
}

// What becomes of messages in flight when something comes or goes as a whole.
const (
	routeAdded = "Messages that it takes from the routes after it, or from none, are routed to it from now on; stored ones keep " +
		"their route until they are rerouted."
	routeRemoved = "Its open rows wait, with an alert, until the route is back or they are rerouted; what it matched goes to a " +
		"later route, or is parked as NO_ROUTE."
	routesMoved = "The first route that matches wins: messages that several of them match are routed otherwise from now on; " +
		"stored ones keep their route."
	engineRemoved = "What an operator has paused, or a breaker holds back, is known by the engine's name: under another engine its " +
		"messages are attempted at once."
	claimAdded = "Stored messages are held to it at their next attempt: one whose reference has no value, or is not in " +
		"claimCheck.buckets, is parked as CONTRACT, and one whose object is not there waits for it."
	claimRemoved = "Stored messages that wait for their object are sent without it at their next attempt, and what is waited for " +
		"is waited for no more: let the open rows of the route be worked off first."
)
