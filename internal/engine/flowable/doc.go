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
//	400 of Flowable about the request itself       Rejected
//	any other error of Flowable                    what the look-up says, see below
//	401 407; to a look-up also 403                 Unauthorised
//	to a look-up 429, 503                          Throttled
//	404, 405 not of Flowable; "No endpoint"        Technical: the base URL is wrong
//	408, 429, 502, 503, 504, 5xx not Flowable's    Unknown
//	anything else                                  Technical, or Unknown where it may have been handled
//	a key, variable or payload that Flowable       Rejected, before anything is asked: it says nothing about the engine
//	could not have
//
// A 403 to a delivery comes after a look-up that succeeded with the same credentials: it is a step's or a firewall's, and not
// about us. A 503 or a 429 may stand for an answer that was lost, whatever wait it asks for.
//
// Flowable answers most failures with 500, and a bean setting (sendFullErrorException) replaces their texts by an error
// id. Classes and statuses do not help either: a step behind the event can fail with not-found, and a failure can come
// after the commit. So after an error of Flowable, whose transaction is then over, the engine is asked at once: the
// marker is there: Correlated. The execution still waits: Technical (RetryAfter where the text says that two
// transactions met). Nobody waits: Vanished. It does not say: Unknown. So masked errors park nothing while an outage
// lasts, and a subscription that is truly gone is found to be.
//
// Of Flowable's texts only the error id is kept: a step's own error can repeat values, of any message that came before.
//
// # Unknown outcome
//
// Probe looks for the marker, first in running instances, whatever history is kept, then in history. If it is not there
// and an instance waits, or one could be started, that proves something only if history keeps variables: one that has
// ended might have had the marker. Unless history is known to be of level audit or more, which the instance that waits, or
// the latest of the process, shows, it is therefore ProbeGone, and never sent again. So is a start of unknown outcome in an
// engine that has no instance of the process and never had one.
//
// # History
//
// Through knows instances by the correlation variable and, if a process definition key is configured, by business key.
// One that runs and has not finished an activity that waits for the message may still come to: NotWaiting. Which
// activities do is read from the BPMN of its definition; one whose message is an expression is not recognised.
//
// # Starting instances
//
// With Delivery.Start the message starts an instance whose business key, and correlation variable, is the key, unless
// some instance has its marker, or there is or was one under that business key in the configured process: then Duplicate.
// Before it is sent, the definition that starts by this message is looked up. Of another process nothing is started
// (Technical, CONFIGURATION); a suspended one is RetryAfter.
//
// # Variables
//
// A number keeps its value, or the message is Rejected. Flowable reads numbers inside of JSON objects and lists as
// doubles; a variable whose numbers would change needs the type string, which carries the JSON text. Without variables
// in the route the payload's text is the variable "payload". A variable of the correlation variable's name is replaced by
// the key: with another value or type the instance would not be found again.
//
// # Not guaranteed
//
// Flowable is not idempotent. A second delivery of a message is prevented by the relay, which probes first, no sooner
// than twice the timeout after the delivery began, and by history of level audit or more, kept longer than a message can
// be under way. A transaction that lasts longer than that is not seen; nor is a marker that the process does not take: an
// event with in-parameters of its own replaces the variables, and with asynchronous history the record can come late. A
// process that waits for the same message again can then take one twice. A business key is not unique in Flowable: that
// an instance is started once rests on the relay, which takes messages of one key one after another, and once the instance
// has ended, on history. What a call activity waits for is found only if the called instance has the correlation variable.
// Whether keys that differ in case or accents are the same is up to the database's collation. Flowable has no index on the
// values of variables; one on ACT_RU_VARIABLE (NAME_, TEXT_) makes look-ups cheap.
//
// # Concurrency
//
// An Engine is safe for concurrent use. Close it when no call is under way any more.
package flowable
