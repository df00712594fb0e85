// Package flowable delivers messages into Flowable over its REST API, and proves what became of them.
//
// # A delivery
//
// First the one execution is looked for that waits for the message's name and key: POST /query/executions, by a process
// variable of the instance (not one of the execution's own: the token that waits sits on a child), with its type, and the
// configured process definition key and tenant. Its total decides, never the page, which holds ten rows. Then the message
// is delivered to this execution: PUT /runtime/executions/{id}, with typed variables and a marker, the variable
// inboxMsg_<inbox id>, which Flowable sets in the same transaction as the effect. It is a message that is delivered and
// not a signal: a signal that nobody receives is a silent success.
//
// # Verdicts
//
//	nobody waits                                   NotWaiting; Through asks history whether the point is passed
//	total is two or more                           Ambiguous, with the count and the ids of up to ten executions
//	200 with this execution, or 204                Correlated, with the id of the process instance
//	404, 500 that name this execution as gone      Vanished
//	the instance is suspended                      RetryAfter a minute
//	400 of Flowable                                Rejected
//	any other error of Flowable                    what the look-up says, see below
//	401 403 407                                    Unauthorised
//	429, 503 with Retry-After                      Throttled
//	404, 405 not of Flowable; "No endpoint"        Technical: the base URL is wrong
//	408, 502, 504, 5xx that are not Flowable's     Unknown
//	anything else                                  Technical, or Unknown where it may have been handled
//
// Flowable answers most failures with 500, and a bean setting (sendFullErrorException) replaces their texts by an error
// id. Classes and statuses do not help either: a step behind the event can fail with not-found, and a failure can come
// after the commit. So after an error of Flowable, whose transaction is then over, the engine is asked at once: the
// marker is there: Correlated. The execution still waits: Technical (RetryAfter where the text says that two
// transactions met). Nobody waits: Vanished. It does not say: Unknown. So masked errors park nothing while an outage
// lasts, and a subscription that is truly gone is found to be.
//
// # Unknown outcome
//
// Probe looks for the marker, first in running instances, whatever history is kept, then in history. If it is not there
// and an instance waits, that proves something only if history keeps variables: one that has ended might have had the
// marker. Less history than audit is therefore ProbeGone, and never sent again.
//
// # History
//
// Through knows instances by the correlation variable and, if a process definition key is configured, by business key.
// One that runs and has not finished an activity that waits for the message may still come to: NotWaiting. Which
// activities do is read from the BPMN of its definition.
//
// # Starting instances
//
// With Delivery.Start the message starts an instance whose business key, and correlation variable, is the key, unless
// there is or was one under that business key in the configured process: then Duplicate.
//
// # Variables
//
// A number keeps its value, or the message is Rejected. Flowable reads numbers inside of JSON objects and lists as
// doubles; a variable whose numbers would change needs the type string, which carries the JSON text. Without variables
// in the route the payload's text is the variable "payload".
//
// # Not guaranteed
//
// Flowable is not idempotent. A second delivery of a message is prevented by the relay, which probes first, no sooner
// than twice the timeout after the delivery began, and by history of level audit or more, kept longer than a message can
// be under way. A transaction that lasts longer than that is not seen; nor is a marker that the process does not take: an
// event with in-parameters of its own replaces the variables, and with asynchronous history the record can come late. A
// process that waits for the same message again can then take one twice. A business key is not unique in Flowable: that
// an instance is started once rests on the relay, which takes messages of one key one after another. Flowable has no
// index on the values of variables; one on ACT_RU_VARIABLE (NAME_, TEXT_) makes look-ups cheap.
//
// # Concurrency
//
// An Engine is safe for concurrent use. Close it when no call is under way any more.
package flowable
