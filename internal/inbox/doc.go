// Package inbox is the domain: what a message is, which states it goes through, who may move it, and what follows when
// somebody dies in the middle. It does no I/O, reads no clock and draws no random number of its own. What a transaction
// has read goes in (PlanClaim, PlanSettle), what it must write comes out, so that a transaction that runs twice decides
// anew, and every rule below is tested without a database. Package spannerstore reads and writes, package receiver
// records, package relayer calls engines; none of them has rules of its own about states.
//
// This page is the specification. Where code and page differ, one of them is wrong.
//
// # Promised
//
//   - A message has at most one row that runs for a consumer, however often it is delivered: the row's id is a hash of what
//     identifies the message (ID), and a push finds the row that it owns (TransportKey) even when the configuration has
//     changed meanwhile. A republished one has the same row where its route names what identifies it, also where that
//     route came later: a rerouted message takes the identity that its new route names, and a taken one is refused.
//   - The messages of a lane are called one after another, in the order of their positions, each after the one before it
//     has its result. Lanes run in parallel.
//   - An attempt is recorded, under a lease, before its engine is called.
//   - A result changes a message only while the lease and the attempt that it belongs to still stand.
//   - A message whose outcome is unknown is not sent again before its engine was asked what became of it, unless the engine
//     is known to take a repetition for one. Where it can do neither, a person decides.
//   - An outage parks nothing: while an engine answers nobody, failures do not count against a message, and time in which
//     it could not be asked uses no patience.
//   - What is not finished is never cleaned up: PurgeAfter is set for PROCESSED and DISCARDED only, and the schema derives
//     the deletion time from the status as it is at that moment.
//
// # Not promised
//
//   - That an engine is called once. A fence protects the row, and cannot reach into the engine: a worker that was taken for
//     lost may still be heard there. Beyond the check of the lease just before a call is sent, only an idempotent engine
//     protects.
//   - That a message that arrives behind its lane's position is called in its place. It is called, and marked Late.
//   - Any order between lanes, between kinds of order, or around a parked message whose route lets others by.
//
// # States
//
//	         receive                                     receive: unreadable, without a route,
//	            |                                        against its contract, or against another row
//	            v                                             |
//	        RECEIVED <------ person: reopened ------------+   |
//	         |  ^  |                                      |   v
//	         |  |  +-- claim: reopened, and no route --> PARKED
//	   claim |  |                                         ^
//	         |  | settle: given back at a first attempt   |
//	         v  |                                         |
//	       PROCESSING --- settle: needs a person; --------+
//	        ^ | | |       claim: lost for the fifth time
//	        | | | |
//	  claim | | | +---> PROCESSED    settle: the engine has it
//	        | | +-----> DISCARDED    settle: the engine wants it closed
//	        | |
//	        | | settle: later, or given back; claim: its worker was lost
//	        | v
//	      RETRYING
//
//	from        to          by       when
//	(nothing)   RECEIVED    receive  a route takes it, and neither its id nor its push has a row
//	(nothing)   PARKED      receive  no route takes it, it cannot be read, it does not fit its route, or it contradicts another row;
//	                                 it is a dead letter, unless its route has those processed and nothing looks like it
//	RECEIVED    PROCESSING  claim    its lane is due, not leased and not held, everything before it has left the queue or is
//	RETRYING                         claimed with it, its time has come, its engine may be called. Attempts grows by one
//	PROCESSING  RECEIVED    settle   given back: nothing was sent, or the engine refuses our credentials and accepts nobody.
//	            RETRYING             Attempts shrinks by one; RETRYING where that leaves any, or an unknown outcome, or a lost worker
//	PROCESSING  RETRYING    settle   the verdict says later
//	PROCESSING  PROCESSED   settle   the verdict says done
//	PROCESSING  DISCARDED   settle   the verdict says drop
//	PROCESSING  PARKED      settle   the verdict needs a person, patience is over, or the message is poisoned
//	PROCESSING  RETRYING    claim    the lease ran out: LostWorkers grows by one, OutcomeUnknown is set
//	PROCESSING  PARKED      claim    the same, for the fifth time: POISONED
//	RECEIVED    PARKED      claim    it was reopened by hand and has no route: its old reason stays; or it is a dead letter whose
//	                                 wait is over, and its lane holds what may be the same message (Twin): not a letter that
//	                                 waits as well, nor one that was parked as a copy of this one (TwinAmong)
//	PARKED      RECEIVED    person   reopened, by inboxctl or by one statement; by inboxctl also what is finished, by force;
//	                                 or rerouted: afresh, in the place that another configuration gives it
//
// Two guards stand before every transition of a settlement: the lane's LeaseOwner and LeaseToken are those of the claim,
// and the row is PROCESSING with the attempt number that the claim gave it. Owners are unique to a run, because a lane that
// was deleted and made anew starts its tokens at 0. A result that fails a guard is late: it is kept as an Attempts row and
// changes nothing else, except that what it says about its engine is true whoever holds the lane.
//
// A message is reopened by hand with one statement that sets Status to RECEIVED and Attempts to 0. The Reason that it leaves
// behind tells the claim: it writes down what the message was (ClaimPlan.Before) and starts it afresh (StartAfresh).
// OutcomeUnknown survives that, unless the reason was POSSIBLY_DELIVERED: then the reopening is a person's word that the
// message may be sent.
//
// Several messages of a lane that are repaired together keep its order, also beside a running relay: inboxctl reopens them in
// one transaction, and reroutes the earlier ones first.
//
// # Verdicts
//
// What the relay makes of an engine's answer. "Answered" says that the engine gave a definite answer: it closes the breaker,
// and lets failures of others count as their own.
//
//	verdict          becomes                                               the engine
//	CORRELATED       PROCESSED                                             answered
//	DUPLICATE        PROCESSED                                             answered
//	HANDED_OVER      PROCESSED, HandedOver                                 answered
//	NOT_WAITING      RETRYING; NO_WAITING_INSTANCE when patience is over   answered
//	ALREADY_THROUGH  PARKED                                                answered
//	AMBIGUOUS        PARKED                                                answered
//	VANISHED         PARKED, after one more try within the attempt         answered
//	REJECTED         PARKED                                                answered
//	RETRY_AFTER      RETRYING at the time asked for, within bounds         answered
//	DROP             DISCARDED                                             answered
//	TECHNICAL        RETRYING with backoff; POISONED, see below            failed
//	UNKNOWN          RETRYING, OutcomeUnknown; POISONED, see below         failed
//	THROTTLED        RETRYING with backoff, or at the time asked for;      throttled
//	                 POISONED, see below
//	UNAUTHORISED     given back; while others are accepted RETRYING with   refused us
//	                 backoff, and POISONED, see below
//	NOT_STARTED      given back                                            says nothing
//
// What an adapter finds without having asked its engine (a key or a variable that the engine cannot have) has its verdict,
// and says nothing about the engine: it closes no breaker, answers nobody, and leaves LostWorkers as they are.
//
// While OutcomeUnknown is set, NO_WAITING_INSTANCE and ALREADY_THROUGH become POSSIBLY_DELIVERED: nobody waiting any more may
// be the effect of the delivery that was not answered. Patience is the time between consecutive NOT_WAITING answers, added
// up; of each, no more than the wait that was planned after the first of the two. So neither the engine's outage nor our own,
// a backlog or a message in front uses any, wherever the message stands. Any other answer, a lost worker and a time in which
// the lane had to wait for its engine, its route or a person stop that clock.
//
// # Lanes
//
// A lane is the unit of order, of leases and of waiting. It is due when WokenAt is set or DueAt has passed, and no lease
// holds it. Two columns, because two parties write without having read: with one, a receive would overwrite the backoff
// that the relay has just set, or the relay a wake-up that it has not seen.
//
//	column              written by               and why
//	WokenAt             receive, sweep, reopen   set to the commit time: something is there to look at. A wake-up is always safe
//	                    claim                    cleared, in the transaction that reads the queue which it announced
//	DueAt               claim                    the end of the lease; or the time of a lane that cannot run, see below
//	                    settle                   the time of the next head, with the lane's last result
//	LeaseOwner,         claim                    taken, or cleared where a dead one is found; the token grows with each lease
//	LeaseUntil,         settle                   ended with the last result; the token stays
//	LeaseToken
//	WhyNotDue           claim, settle            for the operator, and for the sweep: a wait for an engine is deliberate
//	Last                settle                   the position of what has finished; it moves forward only
//	PurgeAt             receive, sweep, reopen,  null: the lane is needed
//	                    claim
//	                    claim, settle            set where the queue is found empty (Lane.End): its position must outlive whatever
//	                                             can still come late. A held lane has none
//	HeldBy, HeldReason  a person                 the lane rests until the hold ends and it is woken
//
// Settling neither reads nor writes WokenAt. So a message that arrives between a claim and its settlement is found by the
// next claim, whatever DueAt says.
//
//	a lane that cannot run           DueAt                        WhyNotDue
//	its head waits                   the head's NextAttemptAt     HEAD_WAITS
//	its head is parked and blocks    none                         BLOCKED
//	a person holds it                none                         HELD
//	its queue is empty               none                         none; it ends
//	its engine may not be called     now, where it was misfiled   ENGINE_PAUSED
//	route or engine unknown here     in a minute                  ROUTE_UNKNOWN, ENGINE_UNKNOWN
//
// The last is a deployment under way, one hopes: the message is never parked for it.
//
// A lane whose engine may not be called (paused, behind its breaker, behind another probe, or without a free call slot) is
// left as it stands: its wake-up or its due time stays. Only where it is filed (see Turns) may have to change.
//
// Two rests heal themselves. A head that was tried before is claimed alone, so that what stands behind it is not burdened
// with an attempt that will be given back. And what a lane has forgotten, by a repair by hand or by a fault of ours, the
// sweep finds (MayBeForgotten, Forgotten): it wakes lanes whose time is later than their head allows, or missing.
//
// A lane ends only when a claim or a settlement has seen its whole queue, and found it empty. Where something has left the
// queue in a claim, which reads a few messages of it, the lane is due again at once.
//
// # Turns
//
// What is due is found in turns (LaneShard). A lane is filed under a flow, the route of its head, and in a slot of the flow: by
// a hash of its id, or by its tenant. Receive files a lane under the message that it brings, and a claim under the head that it
// finds. A scan that cannot have everything gives each flow whose engine may be called a share: from the next slot the lanes
// that have waited longest, and from a walk through all slots the next few. So a round is bounded by what is due in a lane's
// own flow, and by nothing else: a backlog of another route, engine or tenant does not make it longer (two tenants share a
// slot with a probability of 1/32, and then take turns in the claim), nor do messages that keep coming to a lane, which the
// walk meets in its place.
//
// Flows whose engine may not be called have no turn. Nothing is read or written for each of their lanes: a scan reads the
// engine's state, and one page of such lanes, to find those whose head has come to be of another route. When the engine may be
// called again, they are due as they were. A half-open breaker is probed from a few lanes of each flow.
//
// Suspects (Message.Suspect) are filed in a slot of their own, however many there are. They and all others take turns.
//
// # Leases
//
// A run never claims a lane that it still works on, whatever became of the lease: another relay does. A result is settled
// under the lease that its message was claimed with. A worker looks at its lease last just before it sends, after everything
// that can be slow, and what it reads before that ends with the lease. A run that breaks off gives back its place in the
// process; what it had claimed is found by the end of its leases.
//
// # Engines
//
// All relays of a consumer share one breaker for each engine. It opens after failures in a row that each were another
// message's than the one before, or at once where the engine asks for time or refuses our credentials. It lets nothing pass
// until its time; then one probe among all relays, the message that has failed least, or longest ago. Success closes it, failure opens it
// for longer. Calls that were under way when it opened cannot push it further, though the engine's own word can. A probe
// that was not sent, and one whose worker was lost, leave their place to the next.
//
// An answer about one message is not one about its engine. A firewall refuses one text as an engine refuses wrong
// credentials, and a tenant's quota is no overload. So a refusal opens nothing while others are accepted: since the message's
// failure before, or, for the first refusal of a message, within the longest pause between probes; unless as many messages
// are refused in a row as failures open the breaker. A call for less is believed the first time; repeated for a message while
// others were answered in between, it is about that message. A breaker that one message's refusal has opened alone lets
// another message probe at once.
//
// A message is poisoned by its own failures only. A failure is the message's own where the engine has answered another
// message since the one before; otherwise it is the outage's (OutageFailures) and does not count. After so many of its own,
// over so long a time (PoisonPolicy), the message is parked. One whose handling costs worker after worker is poisoned too,
// whatever the engine says.
//
// # Failures
//
//	what happens                            what stands                     what follows
//	receive ends before its commit          nothing                         Pub/Sub delivers again
//	receive ends between commit and answer  RECEIVED, lane woken            the redelivery finds its row and is answered 2xx
//	the commit's outcome is unknown         one or the other                answered 503; the redelivery finds out
//	the claim's outcome is unknown          one or the other                read back by owner and token; nothing is called before
//	relay ends between claim and call       PROCESSING, lease               the lease runs out; the next claim finds a lost worker:
//	                                                                        RETRYING, outcome unknown, called alone
//	relay ends between call and settlement  PROCESSING, lease               the same: from outside the two look alike
//	the settlement's outcome is unknown     one or the other                tried again; what stands as it should is not late
//	the settlement fails until the lease    PROCESSING                      a lost worker
//	ends
//	a worker comes back after its lease     whatever its successor made     an Attempts row, marked Late; the successor's lease
//	                                        of it                           and position are not touched
//	the lease is short for what was claimed PROCESSING                      what could not be started is given back in time
//	SIGTERM                                 PROCESSING                      calls end, are settled; the rest is given back
//	the engine is down                      RETRYING, breaker open          one probe at a time; nothing is parked
//	one message fails, is refused or        RETRYING                        others go on; POISONED in the end
//	throttled, others pass
//	the engine refuses our credentials      RECEIVED or RETRYING, as        one probe at a time, by another message each time;
//	                                        before; breaker open            nothing is parked
//	one message kills its process           PROCESSING                      claimed and called alone in its process from then on, in
//	                                                                        turns with all others; POISONED at the fifth
//	the engine gives no definite answer     RETRYING, outcome unknown       probed, no sooner than twice the timeout after the call
//	                                                                        began. Found: PROCESSED. Not found and still waiting:
//	                                                                        sent again. No probe, but idempotent: sent again under
//	                                                                        the same id. Neither: POSSIBLY_DELIVERED
//	the row is deleted while under way      nothing                         its result is skipped
//	the lane is deleted while under way     PROCESSING                      the result is late; the sweep makes the lane anew, and the
//	                                                                        claim finds a lost worker
//
// # Time
//
// The database's clock decides (Clock). What has come is judged by the earliest time that it can be there: a due time, the
// end of somebody's lease. What is promised is reckoned from the latest: the end of one's own lease, a retention. So the
// error of a reading takes nothing from anybody. Local readings are only subtracted from each other. How old the timestamp
// of a strong read may be is not promised; a commit's is of its time. So what a process has committed within the last minute
// counts too, and where a read's timestamp seems to be old, a commit is made for its time alone.
//
// # Concurrency
//
// Functions here are pure but for what they are given: PlanClaim changes the messages and the map of engines that it gets,
// which belong to one try of one transaction; PlanSettle changes nothing that it gets. Values may be read by many
// goroutines. What keeps two relays apart is the database: claims and settlements are read-write transactions over the same
// lane rows, so that of two at once one sees what the other wrote.
package inbox
